// Words and controls: numbers as people read them, elements by name, choices.
"use strict";

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

// An element with a class and a text.
function make(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}
