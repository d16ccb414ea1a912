// Part 2: Table 1 as a map; forecasts and lower bounds are looked up, for the model in the box.
"use strict";

const Table1 = (() => {
  const table = window.DPMODEL.table1;
  // n, epsilon and delta are places in their lists.
  const state = { part: "scalar", level: "low", unit: "entry", bound: 1, sees: "all", n: 1, epsilon: 2, delta: 1, d: 5, m: 5 };
  const parts = Object.keys(table.units);
  const owns = { entry: "one entry", all: "every entry", row: "one row", column: "one column" };
  const sight = { all: "the whole answer", own: "their own part, and prices" };
  const choices = {
    sees: oneOf(Object.keys(sight)), part: oneOf(parts), level: oneOf(["low", "high"]), unit: oneOf(Object.keys(owns)), bound: oneOf(table.bounds),
    n: placeIn(table.people), epsilon: placeIn(table.budgets), delta: placeIn(table.deltas),
    d: oneOf(table.sizes), m: oneOf(table.sizes),
  };
  const missed = () => (state.part === "objective" ? "loss in objective" : "violation");
  const verdicts = { yes: "yes", "yes*": "yes, but for a few rows", no: "no" };

  const cell = () => table.cells.find(each => each.part === state.part && each.level === state.level);
  const joint = () => state.sees === "own"; // each record owns its variables
  const ownRow = () => state.part === "row" && state.level === "high";

  // [mechanism, error, objective, violation, rows, kind] of each mechanism, the chosen one first; see write_explorer.py.
  function forecasts() {
    if (cell().verdict === "no") return [];
    const found = ownRow()
      ? table.own[state.d][table.people[state.n]]
      : table.low[`${state.part} ${state.unit}`][`${state.d} ${state.m}`][table.people[state.n] / state.bound];
    return found[state.delta][state.epsilon];
  }

  // The least error of any private mechanism on the worst program of the cell; null where none is proved for it.
  function lowerBound() {
    const low = state.level === "low";
    if (ownRow() || (low && !table.carried.includes(`${state.part} ${state.unit}`))) return null;
    const one = table.lowerBounds[state.part][state.delta][state.epsilon];
    const entries = state.part === "scalar" ? 1 : state.d;
    return one * entries * (low ? state.bound / table.people[state.n] : 1);
  }

  function code() {
    if (joint()) return Joint.code(state);
    const open = state.level === "high";
    const values = {
      n: table.people[state.n], d: state.d, m: ownRow() ? table.people[state.n] : state.m, unit: state.unit,
      declared: table.declared[open ? "none" : state.bound],
      epsilon: table.budgets[state.epsilon], delta: table.deltas[state.delta],
    };
    const model = open && { row: "own row", matrix: "matrix high" }[state.part];
    return table.code[model || state.part].replace(/\$(\w+)/g, (_, name) => values[name]);
  }

  // ---------------------------------------------------------------- the map
  function drawTable() {
    const body = byId("map-table").tBodies[0];
    body.replaceChildren(...parts.map(part => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.textContent = table.cells.find(each => each.part === part).label;
      row.append(head, ...["low", "high"].map(level => square(part, level)));
      return row;
    }));
  }

  function square(part, level) {
    const found = table.cells.find(each => each.part === part && each.level === level);
    const place = document.createElement("td"), kind = { yes: "yes", "yes*": "few", no: "no" }[found.verdict];
    const button = make("button", `cell ${kind}`);
    button.type = "button";
    button.dataset.cell = `${part} ${level}`;
    button.append(make("b", "", verdicts[found.verdict]), make("br", ""), make("span", "", found.theorem));
    button.addEventListener("click", () => choose(part, level));
    place.append(button);
    return place;
  }

  function choose(part, level) {
    Object.assign(state, { part, level });
    if (!table.units[part].includes(state.unit) || level === "high") state.unit = table.units[part][0];
    if (cell().verdict !== "no") state.sees = "all";
    if (ownRow()) state.n = Math.min(state.n, Object.keys(table.own[state.d]).length - 1);
    show();
  }

  // ---------------------------------------------------------------- bars
  function drawBars() {
    if (joint()) return showBars(Joint.bars(state, bar), Joint.scale);
    const rows = forecasts(), least = lowerBound(), open = state.level === "high";
    const shown = [...rows.map(row => row[1]), open ? null : least].filter(value => value > 0);
    const low = 10 ** Math.floor(Math.log10(Math.min(...shown)) - 0.5), high = Math.max(...shown) * 1.05;
    const share = value => Math.log(value / low) / Math.log(high / low);
    const width = value => (value === null ? 100 : value <= 0 ? 0 : 100 * share(value));
    const items = rows.map((row, i) =>
      bar(table.mechanisms[row[0]], told(row), width(row[1]), ["says", "silent", "public"][row[5]], i === 0));
    if (least > 0 && !open) {
      const words = `no private mechanism has less than ${digits(least)} on every program of this cell`;
      items.push(bar("lower bound", words, width(least), "bound", false));
    }
    showBars(items, !shown.length ? "" :
      `Bars: the error as plans compare it, on a logarithmic scale from ${digits(low)} to ${digits(high)}, for the model below.`
      + (ownRow() ? " Where mechanisms leave rows out and no statement settles it, the plan tries them on synthetic data." : ""));
  }

  function showBars(items, scale) {
    byId("map-bars").replaceChildren(...items);
    byId("map-bars").hidden = !items.length;
    byId("map-scale").hidden = !scale;
    byId("map-scale").textContent = scale;
  }

  function told([, , objective, violation, rows, kind]) {
    const said = [];
    if (rows) said.push(`${rows.toLocaleString("en-US")} rows left out`);
    if (violation !== null && state.part !== "objective") said.push(`violation within ${digits(violation)}`);
    if (objective !== null) said.push(`objective within ${digits(objective)}`);
    const first = { 1: "says nothing here: ", 2: "reads no data: " }[kind] ?? "";
    return first + (said.join(", ") || "no bound");
  }

  function bar(name, text, percent, kind, first) {
    const item = make("li", ""), drawn = make("span", `drawn ${kind}`);
    drawn.style.width = `${Math.min(100, Math.max(1, percent))}%`;
    item.append(make("span", "mechanism", first ? `${name} (chosen)` : name), " ", make("span", "amount", text), drawn);
    item.dataset.mechanism = name;
    return item;
  }

  // ---------------------------------------------------------------- words
  function tell() {
    const found = cell(), least = lowerBound(), epsilon = table.budgets[state.epsilon];
    byId("map-cell").textContent = `${found.label}, ${state.level}: ${verdicts[found.verdict]} (${found.theorem}, section ${found.section})`;
    byId("map-sentence").textContent = found.summary + (found.ours ? ` Ours: ${found.ours}` : "");
    const moves = digits(state.bound / table.people[state.n]);
    let bound = `One person moves an average over n people by at most ${state.bound} / n = ${moves}, in a range of 1.`;
    if (ownRow()) bound = "One person owns one constraint, so there are as many constraints as people.";
    if (found.verdict === "no") {
      const entries = state.part === "scalar" ? "" : ` of ${state.d} private entries`;
      bound = least > 0
        ? `If one record moves an entry by B, no private mechanism at epsilon ${epsilon} keeps the ${missed()} below `
          + `${digits(least)} B on every such program${entries}; here B has no limit.`
        : `The theorem leaves no lower bound at epsilon ${epsilon}: so little privacy hides nothing. `
          + "Without a limit on one record the package refuses all the same.";
      bound += ` Try: ${found.remedies[0]} (choose it under “Everybody sees”).`;
    }
    byId("map-bound-told").textContent = bound;
    if (joint()) Joint.tell(found);
    byId("map-code").textContent = code();
    byId("map-n-value").textContent = table.people[state.n].toLocaleString("en-US");
    byId("map-epsilon-value").textContent = epsilon;
    byId("map-n").setAttribute("aria-valuetext", `${table.people[state.n]} people`);
    byId("map-epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
  }

  function show() {
    const open = state.level === "high";
    const units = open ? table.units[state.part].slice(0, 1) : table.units[state.part];
    fill(byId("map-unit"), units.map(unit => [unit, joint() ? "its data and its share" : owns[unit]]));
    byId("map-unit").value = state.unit;
    byId("map-bound").value = open ? "none" : state.bound;
    byId("map-n").max = (ownRow() ? Object.keys(table.own[state.d]).length : table.people.length) - 1;
    byId("map-n").value = state.n;
    byId("map-n").disabled = cell().verdict === "no" && !joint();
    byId("map-sees").disabled = cell().verdict !== "no";
    byId("map-epsilon").value = state.epsilon;
    byId("map-m").disabled = open;
    for (const name of ["d", "m", "delta", "sees"]) byId(`map-${name}`).value = state[name];
    for (const button of document.querySelectorAll("#map-table button")) {
      button.setAttribute("aria-pressed", button.dataset.cell === `${state.part} ${state.level}`);
    }
    tell();
    drawBars();
  }

  drawTable();
  const bounds = table.bounds.map(bound => [bound, `by at most ${bound} / n (low)`]);
  fill(byId("map-bound"), [...bounds, ["none", "by any amount (high)"]]);
  fill(byId("map-sees"), Object.entries(sight));
  for (const name of ["d", "m"]) fill(byId(`map-${name}`), table.sizes.map(size => [size, size]));
  fill(byId("map-delta"), table.deltas.map((delta, i) => [i, delta === 0 ? "0" : delta.toExponential()]));
  byId("map-epsilon").max = table.budgets.length - 1;
  const knobs = { n: Number, epsilon: Number, d: Number, m: Number, delta: Number, unit: String, sees: String };
  for (const [name, read] of Object.entries(knobs)) {
    byId(`map-${name}`).addEventListener("input", event => {
      state[name] = read(event.target.value);
      show();
    });
  }
  byId("map-bound").addEventListener("input", event => {
    const open = event.target.value === "none";
    if (!open) state.bound = Number(event.target.value);
    choose(state.part, open ? "high" : "low");
  });
  byId("map-copy").addEventListener("click", () => {
    getSelection().selectAllChildren(byId("map-code"));
    const copied = document.execCommand("copy"); // pages on a disk may not have the newer clipboard
    byId("map-copied").textContent = copied ? "Copied." : "Selected: press Ctrl and C.";
  });
  show();
  return { state, choices, forecasts, lowerBound, code, show, restore: () => choose(state.part, state.level) };
})();
