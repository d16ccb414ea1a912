// Part 1, its model: a program in the plane, moved by one record, and the private answers to it.
"use strict";

const Plane = (() => {
  const numbers = window.DPMODEL.plane, epsilons = window.DPMODEL.epsilons;
  // As docs/write_explorer.py has it in PLANE; tests solve both. `low`, `high`: how far one record may move the number.
  const models = {
    scalar: { unit: "hours", start: 8, low: [-0.5, 0.5], high: [-8, 6], range: [0, 16] },
    objective: { unit: "worth", start: 9.75, low: [-0.5, 0.5], high: [-9.75, 10.25], range: [0, 20] },
  };
  const modes = Object.keys(numbers.scalar); // the default of the package first
  const HOURS = 8, VISITS = 6, WORTH = [10, 9.75], PUBLIC_WORTH = [3, 2];
  // `draws`: pairs of quantiles, so that the same draws glide along when epsilon moves.
  const state = { part: "scalar", level: "low", epsilon: epsilons.indexOf(1), mode: modes[0], moved: 0, draws: [] };

  const clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
  const rows = () => state.part === "scalar";
  const feasible = hours => Polygon.cut(Polygon.box(VISITS, VISITS), [1, 1], hours);
  const hours = () => (rows() ? HOURS + state.moved : HOURS);
  const worth = () => (rows() ? PUBLIC_WORTH : [WORTH[0], WORTH[1] + state.moved]);
  const optimum = () => Polygon.best(feasible(hours()), worth());
  const before = () => Polygon.best(feasible(HOURS), rows() ? PUBLIC_WORTH : WORTH);
  const noise = () => (rows() ? numbers.scalar[state.mode][state.epsilon] : numbers.objective[state.epsilon]);
  const priced = () => rows() && state.mode === "priced";
  // Null where no number is promised: of priced rows.
  const forecast = () => (rows() ? noise().violation ?? null : noise().objective);
  const limits = () => models[state.part][state.level];
  const choices = {
    part: oneOf(Object.keys(models)), level: oneOf(["low", "high"]), epsilon: placeIn(epsilons), mode: oneOf(modes),
    moved: { text: String, read: text => [Number(text)].find(far => far === clamp(far, limits())) }, // part and level known
  };

  // The private answer for quantiles u of the noise: the released number is moved into its declared range, then the
  // row gives way or is tightened, as the mechanism does it. A priced row goes as far beyond the released number, which
  // stays as it was drawn, as an hour is worth its risk: 3 before all visits at home are made, 2 after.
  function answer(u) {
    const { scale, width, shift } = noise(), range = models[state.part].range;
    if (priced()) {
      const drawn = hours() + Random.laplace(u[0], scale), [clinic, home] = shift.map(far => drawn + far);
      return Polygon.best(feasible(Math.max(0, clinic > VISITS ? clinic : Math.min(home, VISITS))), PUBLIC_WORTH);
    }
    if (rows()) {
      const released = clamp(hours() + Random.truncated(u[0], scale, width), range);
      return Polygon.best(feasible(clamp(released + shift, range)), PUBLIC_WORTH);
    }
    return Polygon.best(feasible(HOURS), worth().map((c, i) => clamp(c + Random.laplace(u[i], scale), range)));
  }

  // What is wrong with an answer: the hours that it takes too many, or the worth that it loses.
  function error(point) {
    if (rows()) return point[0] + point[1] - hours();
    return Polygon.value(optimum(), worth()) - Polygon.value(point, worth());
  }

  return {
    numbers, epsilons, models, state, choices, rows, priced, limits, hours, worth, noise, forecast, answer, error, optimum, before,
    start: { hours: HOURS, worth: WORTH }, feasible: () => feasible(hours()),
  };
})();
