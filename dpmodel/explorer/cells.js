// Part 4: models of dpmodel.teach.quiz to read, and how the classifier reads them.
"use strict";

const Cells = (() => {
  const models = window.DPMODEL.questions, table = window.DPMODEL.table1;
  const words = { yes: "yes", "yes*": "yes, but for a few rows", no: "no" };
  let at = 0;

  const truth = () => table.cells.find(each => each.part === models[at].part && each.level === models[at].level);

  function show() {
    byId("cells-count").textContent = `Model ${at + 1} of ${models.length}`;
    byId("cells-code").textContent = models[at].code;
    byId("cells-told").textContent = "";
    delete byId("cells-told").dataset.right;
  }

  byId("cells-check").addEventListener("click", () => {
    const cell = truth();
    const wrong = ["part", "level", "theorem", "verdict"].filter(name => byId(`cells-${name}`).value !== cell[name]);
    const first = wrong.length ? `Not quite: look at ${wrong.join(" and ")}.` : "Right.";
    byId("cells-told").dataset.right = !wrong.length;
    byId("cells-told").textContent = `${first} ${cell.label}, ${cell.level} sensitivity: ${words[cell.verdict]} `
      + `(${cell.theorem}): ${models[at].reading}. ${cell.summary}`;
  });
  byId("cells-next").addEventListener("click", () => {
    at = (at + 1) % models.length;
    show();
  });
  const unique = name => [...new Set(table.cells.map(each => each[name]))];
  fill(byId("cells-part"), unique("part").map(part => [part, table.cells.find(each => each.part === part).label]));
  fill(byId("cells-theorem"), unique("theorem").map(theorem => [theorem, theorem]));
  fill(byId("cells-verdict"), unique("verdict").map(verdict => [verdict, words[verdict]]));
  show();
  return { models };
})();
