// Part 3: bits, the gadget that has them in it, its solution, the bits read back; then with privacy.
"use strict";

const Attack = (() => {
  const numbers = window.DPMODEL.attack, epsilons = window.DPMODEL.epsilons;
  const RUNS = 100, SHARE = 1 - window.DPMODEL.beta;
  const state = { part: "objective", who: "plain", epsilon: epsilons.indexOf(1), seed: 3, bits: [], u: [] };
  const programs = {
    objective: "maximise  Σ (Dᵢ − ½) xᵢ   with  0 ≤ xᵢ ≤ 1",
    scalar: "find x  with  xᵢ = Dᵢ  for every person i",
  };

  const choices = {
    part: oneOf(Object.keys(programs)), who: oneOf(["plain", "response", "laplace-once"]), epsilon: placeIn(epsilons),
    seed: { text: String, read: text => (/^\d{1,9}$/.test(text) ? Number(text) : undefined) },
    bits: {
      text: bits => bits.join(""),
      read: text => (new RegExp(`^[01]{${numbers.bits}}$`).test(text) ? [...text].map(Number) : undefined),
    },
  };

  // ---------------------------------------------------------------- solvers
  // One number of the solution, for a bit and a quantile u of the noise; see dpmodel.teach.gadgets.
  function solved(bit, u, who = state.who) {
    if (who === "plain") return bit;
    if (who === "response") return u < numbers.wrong[state.epsilon] ? 1 - bit : bit;
    const scale = numbers.gadgets[state.part].scale[state.epsilon];
    const released = Math.min(1, Math.max(0, bit + Random.laplace(u, scale))); // into its declared range
    return state.part === "scalar" ? released : Number(released > 0.5);
  }

  const readBack = x => Number(x > 0.5);

  // As the theorem counts it: the largest violation, or the loss in objective value divided by n.
  function error(bits, x) {
    const apart = bits.map((bit, i) => Math.abs(bit - x[i]));
    return state.part === "scalar" ? Math.max(...apart) : apart.reduce((a, b) => a + b) / (2 * bits.length);
  }

  function runs() {
    const random = Random.from(state.seed + 1000);
    return Array.from({ length: RUNS }, () => {
      const bits = Array.from({ length: numbers.bits }, () => Number(random() < 0.5));
      return error(bits, bits.map(bit => solved(bit, random())));
    });
  }

  function refill() {
    const random = Random.from(state.seed);
    state.bits = Array.from({ length: numbers.bits }, () => Number(random() < 0.5));
    state.u = state.bits.map(() => random());
  }

  // ---------------------------------------------------------------- the bits
  function drawBits() {
    const x = state.bits.map((bit, i) => solved(bit, state.u[i]));
    byId("attack-bits").replaceChildren(...state.bits.map((bit, i) => {
      const person = make("div", "person"), button = make("button", `bit ${bit ? "one" : "zero"}`, bit);
      const level = make("span", "solution", digits(Number(x[i].toFixed(1)))), read = readBack(x[i]);
      const back = make("span", read === bit ? "back right" : "back wrong", read);
      button.type = "button";
      button.setAttribute("aria-label", `person ${i + 1}: ${bit}, solution ${digits(x[i])}, read back as ${read}`);
      button.addEventListener("click", () => {
        state.bits[i] = 1 - bit;
        show();
        byId("attack-bits").children[i].firstChild.focus();
      });
      level.style.setProperty("--x", x[i]);
      for (const seen of [level, back]) seen.setAttribute("aria-hidden", "true"); // the button says both
      person.append(button, level, back);
      return person;
    }));
    const right = state.bits.filter((bit, i) => readBack(x[i]) === bit).length;
    const most = 1 - numbers.wrong[state.epsilon];
    const end = state.who === "plain"
      ? "everybody's secret is out"
      : `guessing gets half, and which ones are right stays open: at epsilon ${epsilons[state.epsilon]} `
        + `a bit drawn like a coin is read right with probability ${digits(most)} at most`;
    byId("attack-told").textContent =
      `${right} of ${numbers.bits} bits read back: ${end}. Error of this solution: ${digits(error(state.bits, x))}.`;
  }

  // ---------------------------------------------------------------- error against epsilon
  const picture = byId("attack-picture");
  const layer = Svg.add(picture, "g", { "aria-hidden": "true" });
  const logs = Svg.scale(-1, 1, 46, 388);
  const x = epsilon => logs(Math.log10(epsilon));
  const top = () => (state.part === "scalar" ? 1.05 : 0.4);

  function drawLine() {
    layer.replaceChildren();
    const y = Svg.scale(0, top(), 262, 10), gadget = numbers.gadgets[state.part];
    const points = numbers.line.map((epsilon, i) => `${x(epsilon)},${y(gadget.line[i])}`).join(" ");
    Svg.add(layer, "polygon", { points: `${x(0.1)},${y(0)} ${points} ${x(10)},${y(0)}`, class: "forbidden" });
    Svg.add(layer, "polyline", { points, class: "bound" });
    Svg.add(layer, "path", { d: `M46 10V262H390`, class: "axis" });
    for (const tick of [0.1, 0.3, 1, 3, 10]) word("tick", tick, { x: Math.min(x(tick), 382), y: 279 });
    for (const tick of state.part === "scalar" ? [0, 0.5, 1] : [0, 0.1, 0.2, 0.3]) {
      word("tick", tick, { x: 38, y: y(tick) + 5, "text-anchor": "end" });
    }
    word("name", "epsilon: more privacy to the left", { x: 217, y: 308 });
    const measured = state.part === "scalar" ? "largest violation" : "loss / n";
    word("name", measured, { transform: "translate(12 136) rotate(-90)" });
    const at = x(epsilons[state.epsilon]);
    Svg.add(layer, "line", { x1: at, x2: at, y1: 10, y2: 262, class: "now" });
    if (state.who === "plain") {
      plainLine(y);
      return;
    }
    const errors = runs(), piles = new Map();
    for (const value of errors) piles.set(value.toFixed(3), (piles.get(value.toFixed(3)) ?? 0) + 1);
    for (const [value, count] of piles) {
      Svg.add(layer, "circle", { cx: at, cy: y(Number(value)), r: 2 + Math.sqrt(count), class: "noisy" });
    }
    const most = Random.quantile(errors, SHARE), least = gadget.lowerBound[state.epsilon];
    Svg.add(layer, "line", { x1: at - 16, x2: at + 16, y1: y(most), y2: y(most), class: "quantile" });
    byId("attack-line").textContent =
      `At epsilon ${epsilons[state.epsilon]}, 95 of 100 private answers have an error of at most ${digits(most)}. `
      + (least > 0
        ? `${gadget.theorem}: no private mechanism brings that below ${digits(least)}, the upper edge of the grey area. `
          + "Single answers may lie in it."
        : `${gadget.theorem} proves nothing at this epsilon: so little privacy need not cost anything.`);
  }

  function word(kind, text, attributes) {
    Svg.add(layer, "text", { class: kind, "text-anchor": "middle", ...attributes }, String(text));
  }

  function plainLine(y) {
    Svg.add(layer, "line", { x1: 46, x2: 388, y1: y(0), y2: y(0), class: "quantile" });
    byId("attack-line").textContent =
      "The plain solver has error 0 every time: other bits, another answer, so it is not private at any epsilon. "
      + "The grey area is where no private mechanism keeps 95 of 100 answers.";
  }

  const handle = makeHandle(picture, {
    label: "epsilon", min: 0, max: epsilons.length - 1, step: 1, value: state.epsilon,
    at: i => [x(epsilons[i]), 262],
    from: ([px]) => nearest(10 ** logs.back(px)),
    words: i => `epsilon ${epsilons[i]}`,
    moved: i => {
      state.epsilon = i;
      show();
    },
  });
  const nearest = epsilon => {
    const far = epsilons.map(each => Math.abs(Math.log(each / epsilon)));
    return far.indexOf(Math.min(...far));
  };

  function show() {
    for (const name of ["part", "who"]) check(`attack-${name}`, state[name]);
    byId("attack-program").textContent = programs[state.part];
    drawBits();
    drawLine();
  }

  for (const name of ["part", "who"]) {
    onChoice(`attack-${name}`, () => {
      state[name] = chosen(`attack-${name}`);
      show();
    });
  }
  byId("attack-again").addEventListener("click", () => {
    state.seed++;
    refill();
    show();
  });
  // Bits may have been flipped since they were drawn.
  function restore() {
    const { bits } = state;
    refill();
    state.bits = bits;
    handle.set(state.epsilon);
  }

  refill();
  show();
  return { state, choices, solved, readBack, error, runs, handle, show, restore };
})();
