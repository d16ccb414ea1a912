// Words and controls: numbers as people read them, elements by name, choices and how addresses tell them.
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
const check = (name, value) => { document.querySelector(`input[name="${name}"][value="${value}"]`).checked = true; };

function onChoice(name, told) {
  for (const input of document.getElementsByName(name)) input.addEventListener("change", told);
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

// How a choice stands in the address: its text, and what is read from a text, undefined if that is no choice.
const oneOf = values => ({ text: String, read: text => values.find(each => String(each) === text) });
// The same where the state has the place of the value in its list.
const placeIn = values => ({
  text: place => String(values[place]),
  read: text => [...values.keys()].find(place => String(values[place]) === text),
});

// An element with a class and a text.
function make(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}
