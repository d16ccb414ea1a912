// A round handle in a picture that pointers drag and keys move: a slider to screen readers.
"use strict";

// `options`: label, min, max, step, value, at(value) -> [x, y], from([x, y]) -> value, words(value), moved(value).
function makeHandle(picture, options) {
  const element = Svg.add(picture, "g", { class: "handle", role: "slider", tabindex: 0, "aria-label": options.label });
  Svg.add(element, "circle", { r: 22, class: "target" });
  Svg.add(element, "circle", { r: 10, class: "knob" });
  const handle = { element, value: options.value };

  handle.set = value => {
    const steps = Math.round((value - options.min) / options.step);
    const near = options.min + steps * options.step;
    handle.value = Number(Math.min(options.max, Math.max(options.min, near)).toFixed(6));
    handle.place();
    options.moved(handle.value);
  };
  handle.place = () => {
    element.setAttribute("transform", `translate(${options.at(handle.value).join()})`);
    element.setAttribute("aria-valuemin", options.min);
    element.setAttribute("aria-valuemax", options.max);
    element.setAttribute("aria-valuenow", handle.value);
    element.setAttribute("aria-valuetext", options.words(handle.value));
  };
  // Other limits, as after another choice; the value stays where it still may be.
  handle.limit = changes => {
    Object.assign(options, changes);
    element.setAttribute("aria-label", options.label);
    handle.set(handle.value);
  };

  element.addEventListener("pointerdown", event => {
    element.setPointerCapture(event.pointerId);
    element.focus();
    event.preventDefault();
  });
  element.addEventListener("pointermove", event => {
    if (element.hasPointerCapture(event.pointerId)) handle.set(options.from(Svg.pointer(picture, event)));
  });
  element.addEventListener("keydown", event => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 }[event.key];
    const to = { Home: options.min, End: options.max }[event.key];
    if (by === undefined && to === undefined) return;
    event.preventDefault();
    handle.set(to === undefined ? handle.value + by * options.step : to);
  });
  handle.place();
  return handle;
}
