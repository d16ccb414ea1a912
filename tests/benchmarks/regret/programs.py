"""Regret of plans for programs: cost of the choice beyond the optimum, over that of the best mechanism and treatment.

Cost of a release: its objective at the true numbers, and what is short of them at the models' own prices, which the
plan does not know ("prices given" tells them to it; "centred" is its choice of a mechanism for centred rows). V is the
least such cost. Draws are common: seed s gives every mechanism the same random bits. The best of all mechanisms and
treatments is picked on half of the seeds and scored on the other, both ways. Regret is the mean cost of the choice over
that of the best (in brackets: the same of what both cost beyond V, where those below ``ALIKE`` of V are not told
apart). Also: whether the choice is worse than
the best public point by more than ``BEYOND`` of V, and whether its median excess grows with epsilon.

    python -m tests.benchmarks.regret.programs [--models transport flow] [--size small] [--runs 6] [--seed 0]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

import dpmodel as dpm
from tests.benchmarks.measuring import header, parser
from tests.benchmarks.regret.models import MODELS, Case

BUDGETS, DELTA = (0.5, 1.0, 2.0), 1e-6
ALIKE, BEYOND = 1e-3, 0.05
WITHIN = {"geometric mean": 1.02, "90 %": 1.05, "worst": 1.2}
DEFAULT, CENTRED, GIVEN = "default", "centred", "prices given"


def treatments(case: Case) -> dict[str, Any]:
    """What may be done to the private rows of ``case``: names and values of ``feasibility=``."""
    words: dict[str, Any] = {word: word for word in ("centred", "relaxed", "safe", "strict")}
    priced = getattr(dpm, "Priced", None)
    if priced is None or not case.prices:
        return words if case.prices else {"centred": "centred"}
    return words | {"priced": priced(dict(case.prices)), "priced by itself": priced()}


@dataclass
class Cell:
    """A model at a budget. ``costs`` : by treatment and mechanism, (runs,) costs beyond V; the plan's own choices have
    no mechanism. ``chosen`` : what they were; ``refused`` : why not; ``public`` : those that read no data."""

    name: str
    epsilon: float
    scale: float
    costs: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    public: set[tuple[str, str]] = field(default_factory=set)

    def arms(self, without: tuple[str, ...] = ()) -> dict[tuple[str, str], np.ndarray]:
        """What the choice is compared with."""
        return {key: costs for key, costs in self.costs.items() if key[1] and key[0] not in without}

    def regret(self, choice: str, without: tuple[str, ...] = ()) -> tuple[float, float, tuple[str, str]]:
        """Of the plan's ``choice`` in cost and in excess, and the best of all runs, among all but the treatments
        ``without``."""
        arms, own = self.arms(without), self.costs[choice, ""]
        ours = theirs = 0.0
        for half in (np.arange(own.size) % 2 == 0, np.arange(own.size) % 2 == 1):
            best = min(arms, key=lambda key: arms[key][half].mean())
            ours, theirs = ours + own[~half].mean(), theirs + arms[best][~half].mean()
        least, all_of = 2 * ALIKE * self.scale, 2 * self.scale
        best = min(arms, key=lambda key: arms[key].mean())
        return (all_of + ours) / (all_of + theirs), max(ours, least) / max(theirs, least), best

    def beyond_public(self, choice: str) -> float:
        """By how much of V the choice is worse than the best public point, on average."""
        points = [self.costs[key].mean() for key in self.public]
        return float((self.costs[choice, ""].mean() - min(points)) / self.scale) if points else -np.inf


def measured(case: Case, epsilon: float, runs: int, skip: Sequence[str] = (), patience: float = 20.0) -> Cell:
    """All mechanisms and treatments, and the plan's own choices; one that takes more than ``patience`` seconds a run is
    run once and left out."""
    cell = Cell(case.name, epsilon, abs(case.best) or 1.0)
    for treatment, feasibility in treatments(case).items():
        try:
            plan = case.problem.plan(epsilon, DELTA, feasibility=feasibility, compare="all")
        except dpm.errors.DPModelError as error:
            cell.refused[treatment, ""] = error.what
            continue
        for each in plan.candidates:
            if each.eligible and each.mechanism not in skip:
                _run(case, cell, (treatment, each.mechanism), runs, patience, feasibility=feasibility)
                if not each.reads:
                    cell.public.add((treatment, each.mechanism))
    _run(case, cell, (DEFAULT, ""), runs, np.inf)
    for choice, feasibility in ((CENTRED, "centred"), (GIVEN, treatments(case).get("priced"))):
        if feasibility is not None:
            _run(case, cell, (choice, ""), runs, np.inf, feasibility=feasibility)
    cell.public &= cell.costs.keys()
    return cell


def _run(case: Case, cell: Cell, key: tuple[str, str], runs: int, patience: float, **how: Any) -> None:
    """Note the costs of ``runs`` seeds, or why there are none."""
    found, start = [], perf_counter()
    how |= {"mechanism": key[1]} if key[1] else {}
    for seed in range(runs):
        try:
            case.problem.solve(cell.epsilon, DELTA, rng=seed, **how)
        except dpm.errors.DPModelError as error:
            cell.refused[key] = error.what
            return
        found.append(case.cost() - case.best)
        if perf_counter() - start > patience * (seed + 1):
            cell.refused[key] = "it takes too long"
            return
    cell.costs[key] = np.array(found)
    plan = case.problem.last_plan
    if not key[1] and plan is not None:
        cell.chosen[key[0]] = f"{plan.options.feasibility} {plan.chosen.mechanism}"


def grows(cells: Sequence[Cell], choice: str) -> bool:
    """Whether the median excess of one model grows with epsilon."""
    medians = [max(float(np.median(cell.costs[choice, ""])), ALIKE * cell.scale) for cell in cells]
    return any(later > 1.05 * earlier for earlier, later in pairwise(medians))


def percent(costs: np.ndarray, scale: float) -> str:
    return f"{costs.mean() / scale:9.1%}"


def lines(cell: Cell) -> Iterator[str]:
    for choice in (DEFAULT, CENTRED, GIVEN):
        if (choice, "") in cell.refused:
            yield f"{cell.name:16} {cell.epsilon:4g} {choice:12} refused: {cell.refused[choice, '']}"
        if (choice, "") in cell.costs:
            ratio, excess, best = cell.regret(choice)
            yield (
                f"{cell.name:16} {cell.epsilon:4g} {choice:12} {ratio:6.3f} ({excess:.2f})  "
                f"{percent(cell.costs[choice, ''], cell.scale)} {cell.chosen[choice]:36} "
                f"best {percent(cell.costs[best], cell.scale)} {' '.join(best)}"
            )


def summary(cells: Mapping[str, list[Cell]]) -> Iterator[str]:
    """Geometric mean, quantile and worst regret by name, and what breaks the other two rules."""
    own = ("priced",)
    for choice, without in ((DEFAULT, ()), (DEFAULT, own), (CENTRED, ()), (CENTRED, own), (GIVEN, ())):
        found = {
            f"{name} at {each.epsilon:g}": each.regret(choice, without)[0]
            for name, of in cells.items()
            for each in of
            if (choice, "") in each.costs
        }
        if not found:
            continue
        ratios = np.array(list(found.values()))
        told = {
            "geometric mean": np.exp(np.log(ratios).mean()),
            "90 %": np.quantile(ratios, 0.9),
            "worst": ratios.max(),
        }
        against = "all but those with the models' prices" if without else "all"
        yield f"\n{choice} against {against}, {ratios.size} cells: " + ", ".join(
            f"{name} {value:.2f} (at most {WITHIN[name]})" for name, value in told.items()
        )
        beyond = sorted(((ratio, name) for name, ratio in found.items() if ratio > WITHIN["worst"]), reverse=True)
        yield f"  above {WITHIN['worst']}: " + (", ".join(f"{name} {ratio:.2f}" for ratio, name in beyond) or "none")
        if without:
            continue
        done = [each for of in cells.values() for each in of if (choice, "") in each.costs]
        worse = [f"{each.name} at {each.epsilon:g}" for each in done if each.beyond_public(choice) > BEYOND]
        yield f"  worse than a public point by more than {BEYOND:.0%}: " + (", ".join(worse) or "none")
        growing = [name for name in cells if grows([each for each in done if each.name == name], choice)]
        yield "  median grows with epsilon: " + (", ".join(growing) or "none")


def main() -> int:
    cli = parser(
        __doc__,
        models=sorted(MODELS),
        size="small",
        runs=6,
        seed=0,
        budgets=list(BUDGETS),
        skip=["none"],
        patience=20.0,
    )
    given = cli.parse_args()
    warnings.simplefilter("ignore")
    header()
    cells: dict[str, list[Cell]] = {}
    for name in given.models:
        case = MODELS[name](given.seed, given.size)
        how = {"runs": given.runs, "skip": given.skip, "patience": given.patience}
        cells[name] = [measured(case, epsilon, **how) for epsilon in given.budgets]
        for cell in cells[name]:
            print(*lines(cell), sep="\n", flush=True)
    print(*summary(cells), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
