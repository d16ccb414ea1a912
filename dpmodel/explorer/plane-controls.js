// Part 1, the hand: the handle, the choices beside it, and what is seen in words.
"use strict";

(() => {
  const { state, epsilons } = Plane;
  let random = Random.from(7);

  // ---------------------------------------------------------------- words
  const pair = p => `(${p.map(value => value.toFixed(2)).join(", ")})`;

  function tell() {
    const rows = Plane.rows(), low = state.level === "low", best = Plane.optimum(), was = Plane.before();
    if (state.moved === 0) {
      const limit = low ? "one person moves it by at most 0.5" : "nothing limits this person";
      return `The best plan is ${pair(best)}. Drag the round handle, or press arrow keys on it: ${limit}.`;
    }
    const far = Math.hypot(best[0] - was[0], best[1] - was[1]);
    const lost = Polygon.value(best, Plane.worth()) - Polygon.value(was, Plane.worth());
    const plan = far > 0.005 ? `went from ${pair(was)} to ${pair(best)}` : `stays at ${pair(best)}`;
    const value = rows ? `its worth changed by ${digits(lost)}` : `keeping the old plan would lose ${digits(lost)}`;
    const jump = (rows ? far > 1.5 : lost > 6)
      ? "A jump: whoever sees it knows what this person brought."
      : "Drag further: nothing stops this person.";
    const hidden = "Nobody can move it by more than 0.5, so noise of about that size hides who did.";
    const end = low ? hidden : `${jump} ${impossible()}`;
    return `One person moved it by ${digits(state.moved)}; the best plan ${plan}, and ${value}. ${end}`;
  }

  function impossible() {
    const [error, theorem] = Plane.rows()
      ? ["all violations below", "Theorem 36"]
      : ["the loss, for each private number, below", "Theorem 37"];
    return `At epsilon 1 no private mechanism keeps ${error} ${digits(Plane.numbers.without[state.part])} B `
      + `if one person moves a number by B (${theorem}), for any B.`;
  }

  function words(moved) {
    const { start, unit } = Plane.models[state.part];
    return `${unit} ${digits(Number((start + moved).toFixed(6)))}, moved by ${digits(moved)}`;
  }

  // ---------------------------------------------------------------- the handle
  const limits = () => {
    const [min, max] = Plane.limits();
    const label = Plane.rows() ? "Hours of one volunteer, more or less" : "Votes of one patient, more or less";
    return { min, max, step: state.level === "low" ? 0.05 : 0.25, label };
  };
  const handle = makeHandle(PlanePicture.picture, {
    ...limits(), value: 0, at: PlanePicture.at, from: PlanePicture.from, words,
    moved: value => {
      state.moved = value;
      show();
    },
  });

  function show() {
    const low = state.level === "low", epsilon = epsilons[state.epsilon];
    for (const name of ["private", "statement", "model"]) byId(`plane-${name}`).hidden = !low;
    byId("plane-feasibility").hidden = !Plane.rows();
    for (const name of ["part", "level", "mode"]) check(`plane-${name}`, state[name]);
    byId("plane-epsilon").value = state.epsilon;
    byId("plane-epsilon-value").textContent = epsilon;
    byId("plane-epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
    byId("plane-statement").textContent = `${Plane.noise().mechanism} says: ${Plane.noise().statement}.`;
    byId("plane-code").textContent = Plane.numbers.code[state.part];
    byId("plane-told").textContent = tell();
    PlanePicture.draw();
    PlanePile.draw();
  }

  // ---------------------------------------------------------------- the choices
  onChoice("plane-part", () => {
    state.part = chosen("plane-part");
    handle.limit(limits());
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
  function restore() {
    const { moved } = state;
    handle.limit(limits());
    handle.set(moved);
  }

  show();
  Object.assign(Plane, { handle, show, restore });
})();
