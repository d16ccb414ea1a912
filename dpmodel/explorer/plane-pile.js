// Part 1, the errors of the private answers as a histogram, and the forecast as a line in it.
"use strict";

const PlanePile = (() => {
  const pile = byId("plane-pile"), BINS = 36, FLOOR = 134, TALLEST = 88;

  function draw() {
    pile.replaceChildren();
    const errors = Plane.state.draws.map(u => Plane.error(Plane.answer(u))), forecast = Plane.forecast();
    const range = Plane.rows() ? [-9, 9] : [0, Math.max(2, 1.1 * forecast)];
    const place = Svg.scale(...range, 8, 392);
    bars(errors, place, range);
    Svg.add(pile, "path", { d: `M8 ${FLOOR}H392`, class: "axis" });
    const ticks = Plane.rows() ? [-8, -4, 0, 4, 8] : [0, range[1] / 2, range[1]].map(value => Number(value.toPrecision(2)));
    for (const tick of ticks) word(digits(tick), "tick", Math.min(place(tick), 380), 151);
    word(Plane.rows() ? "hours that the answer takes beyond the true ones" : "worth that the answer loses", "name", 200, 172);
    if (forecast !== null) mark(place, forecast, range, "forecast", "forecast");
    const inside = Plane.noise().tightening ?? null;
    if (inside !== null) mark(place, -inside, range, "inside", "gives away");
    tell(errors, forecast);
  }

  function bars(errors, place, [low, high]) {
    const width = (high - low) / BINS, bins = Array(BINS).fill(0);
    for (const value of errors) bins[Math.min(BINS - 1, Math.max(0, Math.floor((value - low) / width + 1e-9)))]++;
    bins.forEach((count, i) => {
      const height = (TALLEST * count) / Math.max(...bins, 1);
      Svg.add(pile, "rect", { x: place(low + i * width), y: FLOOR - height, width: 10, height, class: "bar" });
    });
  }

  // A line at a number of the statement, or a word where it lies beyond the picture.
  function mark(place, value, [low, high], kind, name) {
    const inside = value >= low && value <= high, at = place(Math.min(high, Math.max(low, value)));
    const first = kind === "forecast", top = first ? 18 : 38, left = at > (first ? 210 : 130);
    if (inside) Svg.add(pile, "line", { x1: at, x2: at, y1: top - 14, y2: FLOOR, class: kind });
    const words = `${name} ${digits(Math.abs(value))}${inside ? "" : ", beyond this picture"}`;
    word(words, "forecast-name", at + (left ? -6 : 6), top, left ? "end" : "start");
  }

  const word = (text, kind, x, y, anchor = "middle") =>
    Svg.add(pile, "text", { x, y, class: kind, "text-anchor": anchor }, text);

  function tell(errors, forecast) {
    if (Plane.priced()) return tellPriced(errors);
    const kept = errors.filter(value => value <= forecast + 1e-9).length;
    const promise = Plane.rows() && Plane.state.mode === "strict" ? "always" : "95%";
    const far = Plane.rows() ? "" : ", whatever people vote, and is far away for these votes";
    byId("plane-count").textContent = errors.length
      ? `${kept} of ${errors.length} private answers keep within the forecast ${digits(forecast)}; it promises ${promise}${far}.`
      : "Draw the noise: private answers pile up below the forecast.";
  }

  function tellPriced(errors) {
    const { short, cost } = Plane.noise(), many = errors.filter(value => value > 1e-9).length;
    const price = `an hour that nobody offers costs ${digits(Plane.numbers.price)}`;
    byId("plane-count").textContent = errors.length
      ? `${many} of ${errors.length} private answers take hours that nobody offers; ${Math.round(100 * short)}% are expected, as ${price}.`
      : `Draw the noise: ${price}, and the least expected cost is sought. The noise is expected to cost ${digits(cost)} in worth.`;
  }

  return { draw };
})();
