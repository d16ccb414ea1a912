// Part 4: models of dpmodel.teach.quiz to read, and how the classifier reads them.
"use strict";

const Cells = (() => {
  const models = window.DPMODEL.questions, table = window.DPMODEL.table1;
  const words = { yes: "yes", "yes*": "yes, but for a few rows", no: "no" };
  const state = { model: 0 }, choices = { model: placeIn(models.map((_, i) => i + 1)) };

  const model = () => models[state.model];
  const truth = () => table.cells.find(each => each.part === model().part && each.level === model().level);

  function show() {
    byId("cells-count").textContent = `Model ${state.model + 1} of ${models.length}`;
    byId("cells-code").textContent = model().code;
    byId("cells-told").textContent = "";
    delete byId("cells-told").dataset.right;
  }

  byId("cells-check").addEventListener("click", () => {
    const cell = truth();
    const wrong = ["part", "level", "theorem", "verdict"].filter(name => byId(`cells-${name}`).value !== cell[name]);
    const first = wrong.length ? `Not quite: look at ${wrong.join(" and ")}.` : "Right.";
    byId("cells-told").dataset.right = !wrong.length;
    byId("cells-told").textContent = `${first} ${cell.label}, ${cell.level} sensitivity: ${words[cell.verdict]} `
      + `(${cell.theorem}): ${model().reading}. ${cell.summary}`
      + (cell.verdict === "no" ? ` Where each record owns its variables it can be solved jointly: ${cell.joint.summary}` : "");
  });
  byId("cells-next").addEventListener("click", () => {
    state.model = (state.model + 1) % models.length;
    show();
  });
  const unique = name => [...new Set(table.cells.map(each => each[name]))];
  fill(byId("cells-part"), unique("part").map(part => [part, table.cells.find(each => each.part === part).label]));
  fill(byId("cells-theorem"), unique("theorem").map(theorem => [theorem, theorem]));
  fill(byId("cells-verdict"), unique("verdict").map(verdict => [verdict, words[verdict]]));
  show();
  return { models, state, choices, restore: show };
})();
