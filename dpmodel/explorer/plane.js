// Part 1: a program in the plane, moved by one record, and the noise that hides it.
"use strict";

const Plane = (() => {
  const numbers = window.DPMODEL.plane;
  const epsilons = window.DPMODEL.epsilons;
  // The model is that of docs/write_explorer.py, PLANE: tests solve both and compare.
  const models = {
    scalar: { start: 8, low: [-0.5, 0.5], high: [-8, 6], range: [0, 16] },
    objective: { start: 9.75, low: [-0.5, 0.5], high: [-9.75, 10.25], range: [0, 20] },
  };
  const MOST = 6; // visits of each kind
  const HOURS = 8, WORTH = [10, 9.75], PUBLIC_WORTH = [3, 2];
  const ARROW = 0.3; // of a unit of worth, in visits
  const state = { part: "scalar", level: "low", epsilon: epsilons.indexOf(1), mode: "relaxed", moved: 0, draws: [] };
  let random = Random.from(7);

  const picture = byId("plane-picture");
  const x = Svg.scale(0, 7.4, 38, 392), y = Svg.scale(0, 7.4, 362, 8);
  const layer = Svg.add(picture, "g", { "aria-hidden": "true" });

  // ---------------------------------------------------------------- the programs
  const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
  const feasible = hours => Polygon.cut(Polygon.box(MOST, MOST), [1, 1], hours);
  const hours = () => (state.part === "scalar" ? HOURS + state.moved : HOURS);
  const worth = () => (state.part === "scalar" ? PUBLIC_WORTH : [WORTH[0], WORTH[1] + state.moved]);
  const optimum = () => Polygon.best(feasible(hours()), worth());
  const before = () =>
    Polygon.best(feasible(HOURS), state.part === "scalar" ? PUBLIC_WORTH : WORTH);

  function noise() {
    return state.part === "scalar" ? numbers.scalar[state.mode][state.epsilon] : numbers.objective[state.epsilon];
  }

  // The private answer for quantiles u of the noise: the released number is moved into its declared range, then the
  // row gives way or is tightened, as the mechanism does it.
  function answer(u) {
    const { scale, width, shift } = noise();
    const range = models[state.part].range;
    if (state.part === "scalar") {
      const released = clamp(hours() + Random.truncated(u[0], scale, width), range);
      return Polygon.best(feasible(clamp(released + shift, range)), PUBLIC_WORTH);
    }
    return Polygon.best(feasible(HOURS), worth().map((c, i) => clamp(c + Random.laplace(u[i], scale), range)));
  }

  // What is wrong with an answer: the hours that it takes too many, or the worth that it loses.
  function error(point) {
    if (state.part === "scalar") return point[0] + point[1] - hours();
    return Polygon.value(optimum(), worth()) - Polygon.value(point, worth());
  }

  const forecast = () => (state.part === "scalar" ? noise().violation : noise().objective);

  // ---------------------------------------------------------------- the picture
  function draw() {
    layer.replaceChildren();
    axes();
    const set = feasible(hours());
    const path = corners => corners.map(p => `${x(p[0])},${y(p[1])}`).join(" ");
    Svg.add(layer, "polygon", { points: path(set), class: "feasible" });
    if (state.level === "low") reach(path);
    const best = optimum(), was = before(), c = worth();
    equalWorth(best, c);
    if (state.part === "scalar") line(hours(), "private");
    else arrow(c);
    if (state.level === "low") piles().forEach(([point, count]) =>
      Svg.add(layer, "circle", { cx: x(point[0]), cy: y(point[1]), r: 2.5 + Math.sqrt(count), class: "noisy" }));
    Svg.add(layer, "line", { x1: x(was[0]), y1: y(was[1]), x2: x(best[0]), y2: y(best[1]), class: "jump" });
    Svg.add(layer, "circle", { cx: x(was[0]), cy: y(was[1]), r: 7, class: "was" });
    Svg.add(layer, "circle", { cx: x(best[0]), cy: y(best[1]), r: 7, class: "best" });
  }

  function axes() {
    for (let k = 0; k <= 6; k += 2) {
      Svg.add(layer, "text", { x: x(k), y: 380, class: "tick", "text-anchor": "middle" }, String(k));
      if (k) Svg.add(layer, "text", { x: 30, y: y(k) + 5, class: "tick", "text-anchor": "end" }, String(k));
    }
    Svg.add(layer, "path", { d: `M${x(0)} ${y(7.4)}V${y(0)}H${x(7.4)}`, class: "axis" });
    Svg.add(layer, "text", { x: 215, y: 397, class: "name", "text-anchor": "middle" }, "visits at home");
    const side = { x: 0, y: 0, class: "name", "text-anchor": "middle", transform: "translate(12 185) rotate(-90)" };
    Svg.add(layer, "text", side, "visits in the clinic");
  }

  // Where one record can put the row, or the tip of the objective.
  function reach(path) {
    const [least, most] = models[state.part][state.level];
    if (state.part === "scalar") {
      const all = Polygon.cut(Polygon.box(7.4, 7.4), [1, 1], HOURS + most);
      Svg.add(layer, "polygon", { points: path(Polygon.cut(all, [-1, -1], -(HOURS + least))), class: "reach" });
    } else {
      const [low, high] = [least, most].map(moved => y(ARROW * (WORTH[1] + moved)));
      Svg.add(layer, "rect", { x: x(ARROW * WORTH[0]) - 8, y: high, width: 16, height: low - high, class: "reach" });
    }
  }

  function line(total, kind) {
    const ends = [[Math.max(0, total - 7.4), Math.min(total, 7.4)], [Math.min(total, 7.4), Math.max(0, total - 7.4)]];
    Svg.add(layer, "line", { x1: x(ends[0][0]), y1: y(ends[0][1]), x2: x(ends[1][0]), y2: y(ends[1][1]), class: kind });
  }

  function arrow(c) {
    Svg.add(layer, "line", { x1: x(0), y1: y(0), x2: x(ARROW * c[0]), y2: y(ARROW * c[1]), class: "private" });
  }

  // Points as good as the best one: a dashed line through it, square to the objective.
  function equalWorth(best, c) {
    const size = Math.hypot(...c), along = [-c[1] / size, c[0] / size];
    const [from, to] = [-1.2, 1.2].map(far => [best[0] + far * along[0], best[1] + far * along[1]]);
    Svg.add(layer, "line", { x1: x(from[0]), y1: y(from[1]), x2: x(to[0]), y2: y(to[1]), class: "equal" });
  }

  // Answers that fall on the same spot make one larger dot.
  function piles() {
    const found = new Map();
    for (const u of state.draws) {
      const point = answer(u).map(value => Math.round(value * 10) / 10), key = point.join();
      found.set(key, [point, (found.get(key)?.[1] ?? 0) + 1]);
    }
    return [...found.values()];
  }

  // ---------------------------------------------------------------- the pile of errors
  const pile = byId("plane-pile");

  function drawPile() {
    pile.replaceChildren();
    const errors = state.draws.map(u => error(answer(u)));
    const rows = state.part === "scalar";
    const [low, high] = rows ? [-9, 9] : [0, Math.max(2, 1.1 * forecast())];
    const place = Svg.scale(low, high, 8, 392), count = 36, width = (high - low) / count;
    const bins = Array(count).fill(0);
    for (const value of errors) bins[Math.min(count - 1, Math.max(0, Math.floor((value - low) / width + 1e-9)))]++;
    const most = Math.max(1, ...bins);
    bins.forEach((tall, i) => {
      const height = (88 * tall) / most;
      Svg.add(pile, "rect", { x: place(low + i * width), y: 134 - height, width: 10, height, class: "bar" });
    });
    Svg.add(pile, "path", { d: "M8 134H392", class: "axis" });
    const ticks = rows ? [-8, -4, 0, 4, 8] : [0, high / 2, high].map(value => Number(value.toPrecision(2)));
    for (const tick of ticks) Svg.add(pile, "text", { x: Math.min(place(tick), 380), y: 151, class: "tick", "text-anchor": "middle" }, digits(tick));
    const name = rows ? "hours that the answer takes beyond the true ones" : "worth that the answer loses";
    Svg.add(pile, "text", { x: 200, y: 172, class: "name", "text-anchor": "middle" }, name);
    mark(place, forecast(), [low, high], "forecast", "forecast");
    if (rows && noise().tightening !== null) mark(place, -noise().tightening, [low, high], "inside", "gives away");
    return errors;
  }

  // A line at a number of the statement, or a word where it lies beyond the picture.
  function mark(place, value, [low, high], kind, name) {
    const inside = value >= low && value <= high, at = place(Math.min(high, Math.max(low, value)));
    const anchor = at > (kind === "forecast" ? 210 : 130) ? "end" : "start", up = kind === "forecast" ? 18 : 38;
    if (inside) Svg.add(pile, "line", { x1: at, x2: at, y1: up - 14, y2: 134, class: kind });
    const words = `${name} ${digits(Math.abs(value))}${inside ? "" : ", beyond this picture"}`;
    const text = { x: at + (anchor === "end" ? -6 : 6), y: up, class: "forecast-name", "text-anchor": anchor };
    Svg.add(pile, "text", text, words);
  }

  function tellPile(errors) {
    byId("plane-statement").textContent = `${noise().mechanism} says: ${noise().statement}.`;
    byId("plane-code").textContent = numbers.code[state.part];
    if (!errors.length) {
      byId("plane-count").textContent = "Draw the noise: private answers pile up below the forecast.";
      return;
    }
    const kept = errors.filter(value => value <= forecast() + 1e-9).length;
    const promise = state.part === "scalar" && state.mode === "strict" ? "always" : "95%";
    byId("plane-count").textContent =
      `${kept} of ${errors.length} private answers keep within the forecast ${digits(forecast())}; it promises ${promise}${state.part === "scalar" ? "" : ", whatever people vote, and is far away for these votes"}.`;
  }

  // ---------------------------------------------------------------- words
  const pair = p => `(${p.map(value => value.toFixed(2)).join(", ")})`;

  function tell() {
    const best = optimum(), was = before(), c = worth();
    const old = Polygon.value(state.part === "scalar" ? was : best, state.part === "scalar" ? PUBLIC_WORTH : WORTH);
    const now = Polygon.value(best, c), far = Math.hypot(best[0] - was[0], best[1] - was[1]);
    const lost = state.part === "scalar" ? Math.abs(now - old) : now - Polygon.value(was, c);
    if (state.moved === 0) {
      const keys = "Drag the round handle, or press arrow keys on it";
      byId("plane-told").textContent = `The best plan is ${pair(best)}. ${keys}: ${state.level === "low" ? "one person moves it by at most 0.5" : "nothing limits this person"}.`;
      return;
    }
    const verb = `One person moved it by ${digits(state.moved)}`;
    const moved = far > 0.005 ? `the best plan went from ${pair(was)} to ${pair(best)}` : `the best plan stays at ${pair(best)}`;
    const value = state.part === "scalar"
      ? `its worth ${lost < 0.005 ? "stays" : `changed by ${digits(now - old)}`}`
      : `keeping the old plan would lose ${digits(Math.max(0, lost))}`;
    const size = state.part === "scalar" ? far > 1.5 : lost > 6;
    const end = state.level === "low"
      ? "Nobody can move it by more than 0.5, so noise of about that size hides who did."
      : size
        ? `A jump: whoever sees it knows what this person brought. ${impossible()}`
        : `Drag further: nothing stops this person. ${impossible()}`;
    byId("plane-told").textContent = `${verb}; ${moved}, and ${value}. ${end}`;
  }

  function impossible() {
    const least = numbers.without[state.part];
    return state.part === "scalar"
      ? `At epsilon 1 no private mechanism keeps all violations below ${digits(least)} B if one person moves a number by B (Theorem 36), for any B.`
      : `At epsilon 1 no private mechanism keeps the loss below ${digits(least)} B for each private number if one person moves one by B (Theorem 37), for any B.`;
  }

  // ---------------------------------------------------------------- handles and controls
  const limits = () => {
    const [min, max] = models[state.part][state.level];
    const label = state.part === "scalar" ? "Hours of one volunteer, more or less" : "Votes of one patient, more or less";
    return { min, max, step: state.level === "low" ? 0.05 : 0.25, label };
  };
  const handle = makeHandle(picture, {
    ...limits(),
    value: 0,
    at: moved => state.part === "scalar"
      ? [x((HOURS + moved) / 2), y((HOURS + moved) / 2)]
      : [x(ARROW * WORTH[0]), y(ARROW * (WORTH[1] + moved))],
    from: ([px, py]) => state.part === "scalar" ? x.back(px) + y.back(py) - HOURS : y.back(py) / ARROW - WORTH[1],
    words: moved => `${state.part === "scalar" ? "hours" : "worth"} ${digits(Number((models[state.part].start + moved).toFixed(6)))}, moved by ${digits(moved)}`,
    moved: value => {
      state.moved = value;
      show();
    },
  });

  function show() {
    const open = state.level === "low";
    for (const name of ["private", "statement", "model"]) byId(`plane-${name}`).hidden = !open;
    byId("plane-feasibility").hidden = state.part !== "scalar";
    byId("plane-epsilon-value").textContent = epsilons[state.epsilon];
    byId("plane-epsilon").setAttribute("aria-valuetext", `epsilon ${epsilons[state.epsilon]}`);
    draw();
    if (open) tellPile(drawPile());
    tell();
  }

  onChoice("plane-part", () => {
    state.part = chosen("plane-part");
    handle.limit({ ...limits() });
    handle.set(0);
  });
  onChoice("plane-level", () => {
    state.level = chosen("plane-level");
    handle.limit(limits());
  });
  onChoice("plane-mode", () => {
    state.mode = chosen("plane-mode");
    show();
  });
  byId("plane-epsilon").max = epsilons.length - 1;
  byId("plane-epsilon").value = state.epsilon;
  byId("plane-epsilon").addEventListener("input", event => {
    state.epsilon = Number(event.target.value);
    show();
  });
  byId("plane-draw").addEventListener("click", () => {
    for (let k = 0; k < 100; k++) state.draws.push([random(), random()]);
    show();
  });
  byId("plane-clear").addEventListener("click", () => {
    state.draws = [];
    random = Random.from(7);
    handle.set(0);
  });
  show();
  return { state, answer, error, optimum, forecast, handle, show };
})();
