"""Writes what the page on Table 1 takes from the library: ``python docs/table1/write_facts.py``, after a change of it.

Verdicts, theorems, mechanisms and lower bounds come from the classification of the page's own models, the registry and
the formulas of the theorems; they stand between marks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dpmodel as dpm
from dpmodel.programs.remedies import statements
from dpmodel.programs.taxonomy import cell as taxonomy_cell
from dpmodel.programs.theorems import lower_bound
from dpmodel.solve.registry import KINDS
from dpmodel.text import number

PAGE = Path(__file__).parent / "index.md"
MARKS = re.compile(r"(<!-- facts: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANS = {"yes": "yes", "yes*": "all but a few rows", "no": "no"}
EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
BETA = 0.05


def models(text: str) -> dict[str, Any]:
    """Name of a cell -> its problem on the page; the code of the page is run from top to bottom."""
    scope: dict[str, Any] = {}
    found = {}
    for code, mark in re.findall(r"```python\n(.*?)```|<!-- facts: (\w+ \w+) -->", text, re.DOTALL):
        if mark:
            found[mark] = scope["problem"]
        else:
            exec(code, scope)
    return found


def facts(name: str, problem: Any) -> str:
    """The generated lines of a cell."""
    (cell,) = problem.classify().cells
    joint = taxonomy_cell(cell.part, cell.level).joint
    assert f"{cell.part} {cell.level}" == name, f"the model of {name} is {cell.verdict}"
    return "\n".join(
        [
            f"**Verdict.** {_verdict(cell)}",
            "",
            f"**What the library runs.** {_runs(cell)}",
            "",
            f"**Jointly.** {joint.verdict}. {joint.summary}",
            "",
            _cannot(cell),
        ]
    )


def written(text: str, problems: dict[str, Any]) -> str:
    """``text`` with its facts anew, for its ``models``."""

    def fact(name: str) -> str:
        return table() if name == "table" else facts(name, problems[name])

    return MARKS.sub(lambda found: f"{found[1]}{fact(found[2])}\n{found[3]}", text)


def table() -> str:
    """The cells of ``dpm.taxonomy()``, each a link to its section."""
    cells = {(cell.part, cell.level): cell for cell in dpm.taxonomy()}
    head = "| one record moves | low: by at most a declared bound | high: arbitrarily | joint, low and high |"
    lines = [head, "|---|---|---|---|"]
    for part in dict.fromkeys(part for part, _ in cells):
        low, high = (f"[{MEANS[cells[part, level].verdict]}](#{part}-{level})" for level in ("low", "high"))
        lines.append(f"| {cells[part, 'low'].label} | {low} | {high} | {cells[part, 'high'].joint.verdict} |")
    joint = cells["objective", "high"].joint
    told = f"*Joint* ({joint.theorem}): others learn {joint.others_learn}; a person learns {joint.person_learns}."
    return "\n".join([*lines, "", told])


def _verdict(cell: Any) -> str:
    told = taxonomy_cell(cell.part, cell.level)
    ours = f" Ours: {told.ours[0].lower()}{told.ours[1:]}" if told.ours else ""
    if not cell.solvable:
        return f"no ({cell.theorem}). {told.summary}{ours}"
    star = ", all but a few constraints" if cell.relaxed else ""
    return f"yes{star} ({cell.theorem}; HRRU14, section {told.section}). {told.summary}{ours}"


def _runs(cell: Any) -> str:
    if not cell.solvable:
        helps = "; ".join(statements(cell.part)[:3])
        return (
            f"nothing: `solve` raises `ImpossibilityError` before it reads anything. It says what would help: {helps}."
        )
    names = next(each.mechanisms for each in dpm.taxonomy() if (each.part, each.level) == (cell.part, cell.level))
    published = {each.name for kind in KINDS.values() for each in kind.mechanisms if each.serves.as_printed}
    ours, papers = ([f"`{name}`" for name in names if (name in published) == late] for late in (False, True))
    yardsticks = f"; with the constants of the paper, as yardsticks: {', '.join(papers)}" if papers else ""
    return f"{', '.join(ours)}{yardsticks}."


def _cannot(cell: Any) -> str:
    """The lower bound of this model at several epsilons, or that the theorem's programs are not of this kind."""
    relaxed = cell.relaxed
    bounds = [lower_bound(cell.part, e, 0, BETA) if relaxed else cell.lower_bound(e, 0, BETA) for e in EPSILONS]
    if None in bounds:
        return "**What cannot be done.** The library states no lower bound for models like this one."
    first = bounds[0]
    moves = f"one record moving an entry by {number(first.sensitivity)}"
    which = ", if all constraints are to hold" if relaxed else ""
    heads = " | ".join(f"ε = {number(e)}" for e in EPSILONS)
    values = " | ".join("none proved" if b.vacuous else number(b.value) for b in bounds)
    return "\n".join(
        [
            f"**What cannot be done.** {first.theorem} leaves every private mechanism at least this error{which} "
            f"({first.unit}; {moves}, δ = 0, with probability {number(100 * (1 - BETA))} %):",
            "",
            f"| {heads} |",
            f"|{'---|' * len(EPSILONS)}",
            f"| {values} |",
        ]
    )


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(written(page, models(page)), encoding="utf-8")
