// Drawing: elements of SVG, and scales from numbers to places.
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
