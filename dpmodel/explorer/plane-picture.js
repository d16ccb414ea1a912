// Part 1, its picture: the feasible set, the private part, the best plan and where it was, and private answers.
"use strict";

const PlanePicture = (() => {
  const FAR = 7.4, ARROW = 0.3; // what the axes show; how long the objective is drawn, in visits for a unit of worth
  const picture = byId("plane-picture");
  const x = Svg.scale(0, FAR, 38, 392), y = Svg.scale(0, FAR, 362, 8);
  const layer = Svg.add(picture, "g", { "aria-hidden": "true" });
  const { state } = Plane;

  function draw() {
    layer.replaceChildren();
    axes();
    const best = Plane.optimum(), was = Plane.before();
    Svg.add(layer, "polygon", { points: path(Plane.feasible()), class: "feasible" });
    if (state.level === "low") reach();
    equalWorth(best, Plane.worth());
    if (Plane.rows()) row(Plane.hours());
    else line([0, 0], Plane.worth().map(c => ARROW * c), "private");
    for (const [point, count] of state.level === "low" ? piles() : []) dot(point, 2.5 + Math.sqrt(count), "noisy");
    line(was, best, "jump");
    dot(was, 7, "was");
    dot(best, 7, "best");
  }

  const path = corners => corners.map(p => `${x(p[0])},${y(p[1])}`).join(" ");
  const dot = (p, r, kind) => Svg.add(layer, "circle", { cx: x(p[0]), cy: y(p[1]), r, class: kind });
  const line = (p, q, kind) =>
    Svg.add(layer, "line", { x1: x(p[0]), y1: y(p[1]), x2: x(q[0]), y2: y(q[1]), class: kind });
  const word = (text, kind, where) =>
    Svg.add(layer, "text", { class: kind, "text-anchor": "middle", ...where }, String(text));

  function axes() {
    for (let k = 0; k <= 6; k += 2) {
      word(k, "tick", { x: x(k), y: 380 });
      if (k) word(k, "tick", { x: 30, y: y(k) + 5, "text-anchor": "end" });
    }
    Svg.add(layer, "path", { d: `M${x(0)} ${y(FAR)}V${y(0)}H${x(FAR)}`, class: "axis" });
    word("visits at home", "name", { x: 215, y: 397 });
    word("visits in the clinic", "name", { transform: "translate(12 185) rotate(-90)" });
  }

  // Where one record can put the row, or the tip of the objective.
  function reach() {
    const [least, most] = Plane.limits();
    if (Plane.rows()) {
      const below = Polygon.cut(Polygon.box(FAR, FAR), [1, 1], Plane.start.hours + most);
      const band = Polygon.cut(below, [-1, -1], -(Plane.start.hours + least));
      Svg.add(layer, "polygon", { points: path(band), class: "reach" });
    } else {
      const [low, high] = [least, most].map(moved => at(moved)[1]);
      Svg.add(layer, "rect", { x: at(0)[0] - 8, y: high, width: 16, height: low - high, class: "reach" });
    }
  }

  function row(total) {
    const [least, most] = [Math.max(0, total - FAR), Math.min(total, FAR)];
    line([least, most], [most, least], "private");
  }

  // Points as good as the best one: a dashed line through it, square to the objective.
  function equalWorth(best, c) {
    const size = Math.hypot(...c), along = [-c[1] / size, c[0] / size];
    const ends = [-1.2, 1.2].map(far => [best[0] + far * along[0], best[1] + far * along[1]]);
    line(...ends, "equal");
  }

  // Answers that fall on the same spot make one larger dot.
  function piles() {
    const found = new Map();
    for (const u of state.draws) {
      const point = Plane.answer(u).map(value => Math.round(value * 10) / 10), key = point.join();
      found.set(key, [point, (found.get(key)?.[1] ?? 0) + 1]);
    }
    return [...found.values()];
  }

  // Where the handle is when the record moved the private part so far, and back.
  function at(moved) {
    const { hours, worth } = Plane.start;
    return Plane.rows()
      ? [x((hours + moved) / 2), y((hours + moved) / 2)]
      : [x(ARROW * worth[0]), y(ARROW * (worth[1] + moved))];
  }
  function from([px, py]) {
    return Plane.rows() ? x.back(px) + y.back(py) - Plane.start.hours : y.back(py) / ARROW - Plane.start.worth[1];
  }

  return { picture, draw, at, from };
})();
