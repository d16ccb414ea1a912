// Drawing: elements of SVG, numbers as people read them, and the controls of a form.
"use strict";

const Svg = {
  // An element with attributes, appended to `parent`; `text` becomes its text.
  add(parent, name, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  },

  // From numbers in [low, high] to positions in [from, to], and back.
  scale(low, high, from, to) {
    const place = value => from + (value - low) / (high - low) * (to - from);
    place.back = position => low + (position - from) / (to - from) * (high - low);
    return place;
  },

  // Where a pointer is, in the coordinates of the picture.
  pointer(picture, event) {
    const seen = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    return [seen.x, seen.y];
  },
};

// Three digits, as "0.0123", "12.3", "0.000012"; null is what is not bounded.
function digits(value) {
  if (value === null) return "no bound";
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  const short = Number(value.toPrecision(3));
  return Math.abs(short) < 1e-4 ? short.toExponential() : String(short);
}

const byId = id => document.getElementById(id);
const chosen = name => document.querySelector(`input[name="${name}"]:checked`).value;

function onChoice(name, told) {
  for (const input of document.getElementsByName(name)) input.addEventListener("change", told);
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}
