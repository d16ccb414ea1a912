// Part 2, where each record owns its variables: what is expected is looked up, for the model in the box.
"use strict";

const Joint = (() => {
  const table = window.DPMODEL.table1;

  // [mechanism, share of the optimum, share of the capacities left free] of each, the chosen one first.
  const forecasts = ({ d, n, delta, epsilon }) => table.joint.forecasts[d][table.people[n]][delta][epsilon];

  function code({ d, n, delta, epsilon }) {
    const values = { d, n: table.people[n], delta: table.deltas[delta], epsilon: table.budgets[epsilon] };
    return table.joint.code.replace(/\$(\w+)/g, (_, name) => values[name]);
  }

  // The heading, the sentence and what everybody learns, of a cell of the table.
  function tell({ label, level, joint }) {
    byId("map-cell").textContent = `${label}, ${level}: ${joint.verdict}, jointly (${joint.theorem})`;
    byId("map-sentence").textContent = joint.summary;
    byId("map-bound-told").textContent = `Others learn ${joint.others_learn}; a person learns ${joint.person_learns}. `
      + "What noise costs does not grow with the number of people: move n.";
  }

  // Bars of the forecasts, by ``bar`` of the map, and a word on their scale.
  function bars(state, bar) {
    return forecasts(state).map(([name, share, unused], i) => {
      const free = unused ? `, ${digits(100 * unused)}% of each capacity left free for the noise` : "";
      return bar(name, `${digits(100 * share)}% of the optimum${free}`, 100 * share, "says", i === 0);
    });
  }
  const scale = "Bars: the share of the optimum that is expected, on synthetic people drawn from what the model below declares; the longest wins.";

  return { forecasts, code, tell, bars, scale };
})();
