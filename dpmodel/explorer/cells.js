// Part 4: models of dpmodel.teach.quiz, and how the classifier reads them.
"use strict";

const Cells = (() => {
  const models = window.DPMODEL.questions, table = window.DPMODEL.table1;
  let at = 0;

  function show() {
    byId("cells-words").textContent = `${at + 1} of ${models.length}. ${models[at].words}`;
    byId("cells-told").textContent = "";
    delete byId("cells-told").dataset.right;
  }

  byId("cells-check").addEventListener("click", () => {
    const { part, level, reading } = models[at];
    const right = byId("cells-part").value === part && byId("cells-level").value === level;
    const cell = table.cells.find(each => each.part === part && each.level === level);
    byId("cells-told").dataset.right = right;
    byId("cells-told").textContent = `${right ? "Right." : "Not quite."} ${cell.label}, ${level} sensitivity (${cell.theorem}): ${reading}. ${cell.summary}`;
  });
  byId("cells-next").addEventListener("click", () => {
    at = (at + 1) % models.length;
    show();
  });
  fill(byId("cells-part"), Object.keys(table.units).map(part => [part, table.cells.find(each => each.part === part).label]));
  show();
  return { models };
})();
