"""Writes the numbers of the explorer, ``dpmodel/explorer/data.js``: ``python docs/write_explorer.py``.

The page computes no forecast and no lower bound: all that it shows is looked up in this file, on the grids below.
What it does compute (draws of noise, optima in the plane, the attack) is compared with the package by tests/explorer.
"""

import json
import math
from dataclasses import asdict
from itertools import product
from pathlib import Path
from string import Template
from typing import Any, get_args

import numpy as np
from scipy.stats import binom

import dpmodel as dpm
from dpmodel.programs.prices import Laws
from dpmodel.programs.remedies import statements
from dpmodel.programs.theorems import lower_bound
from dpmodel.requests import Feasibility
from dpmodel.teach import gadgets, quiz

FILE = Path(__file__).parents[1] / "dpmodel" / "explorer" / "data.js"
BETA, DELTA = 0.05, 1e-6
EPSILONS = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10)

# ------------------------------------------------------------------ the plane
PLANE = {
    "scalar": """\
import cvxpy as cp
import dpmodel as dpm

# Hours that volunteers offer, in all: one of them offers at most half of one.
hours = dpm.Private(8, name="hours", unit="entry", linf=0.5, bounds=[0, 16])
visits = cp.Variable(2, nonneg=True, name="visits")  # at home, in the clinic
time = (cp.sum(visits) <= hours).set_label("time")
problem = dpm.Problem(cp.Maximize(3 * visits[0] + 2 * visits[1]), [time, visits <= 6])
""",
    "objective": """\
import cvxpy as cp
import dpmodel as dpm

# What each kind of visit is worth, from votes: one patient moves one of the two by at most 0.5.
worth = dpm.Private([10, 9.75], name="worth", unit="entry", linf=0.5, bounds=[0, 20])
visits = cp.Variable(2, nonneg=True, name="visits")  # at home, in the clinic
problem = dpm.Problem(cp.Maximize(worth @ visits), [cp.sum(visits) <= 8, visits <= 6])
""",
}
# "auto" takes one of them.
FEASIBILITIES = tuple(mode for mode in get_args(Feasibility) if mode != "auto")
# What an hour that nobody offers costs. An hour is worth 2 or 3: so one answer in 10, or in 7, takes too many.
PRICE, WORTHS = 20.0, (2.0, 3.0)


def plane() -> dict[str, Any]:
    """The polytope: what the noise of each budget is, how far the row moves, and what is said of the error."""
    rows = _run(PLANE["scalar"])
    costs = _run(PLANE["objective"])
    time = next(row for row in rows.constraints if row.label == "time")
    moved: dict[str, list[dict[str, Any]]] = {}
    for mode in FEASIBILITIES:
        feasibility, noise_of = (dpm.Priced({time: PRICE}), _priced_noise) if mode == "priced" else (mode, _row_noise)
        settings = {"feasibility": feasibility, "mechanism": MECHANISMS.get(mode, "laplace-once")}
        moved[mode] = [noise_of(rows.plan(epsilon, DELTA, **settings)) for epsilon in EPSILONS]
    noised = [_cost_noise(costs.plan(epsilon, DELTA, mechanism="laplace-once")) for epsilon in EPSILONS]
    return {
        "code": PLANE,
        "price": PRICE,
        "scalar": moved,
        "objective": noised,
        "without": {part: lower_bound(part, 1.0, DELTA, BETA).value for part in PLANE},
    }


# A page that draws with one law: the noise of the others is Laplace's too.
MECHANISMS = {"strict": "strict-truncated-laplace"}


def _row_noise(plan: Any) -> dict[str, Any]:
    forecast = plan.chosen.forecast
    drawn = forecast.noise["scalar"]["distribution"]
    return {
        "mechanism": plan.chosen.mechanism,
        "scale": drawn["scale"],
        "width": drawn.get("half_width"),
        "shift": forecast.moved["constraints"]["time"][0],
        "violation": forecast.error.violation,
        "tightening": forecast.error.tightening,
        "statement": forecast.statement,
    }


def _priced_noise(plan: Any) -> dict[str, Any]:
    """``shift`` : how far beyond the released number the row goes where an hour is worth the one or the other of
    ``WORTHS``; ``short`` : how probable it is, for the first of them, that this is too far."""
    forecast = plan.chosen.forecast
    scale = forecast.noise["scalar"]["distribution"]["scale"]
    law = Laws(np.array([scale]), np.array([True]))
    slopes, kinks = (part[0] for part in law.kinks())
    # The hours are taken while a unit more costs less than it is worth: up to the kink before a dearer piece.
    shift = kinks[[int(np.flatnonzero(PRICE * slopes > worth)[0]) - 1 for worth in WORTHS]]
    return {
        "mechanism": plan.chosen.mechanism,
        "scale": scale,
        "width": None,
        "shift": shift.tolist(),
        "short": float(law.chances(shift[:1])[0][0]),
        "cost": forecast.error.cost,
        "statement": forecast.statement,
    }


def _cost_noise(plan: Any) -> dict[str, Any]:
    forecast = plan.chosen.forecast
    return {
        "mechanism": plan.chosen.mechanism,
        "scale": forecast.noise["objective"]["distribution"]["scale"],
        "objective": forecast.error.objective,
        "statement": forecast.statement,
    }


# ------------------------------------------------------------------ Table 1
PEOPLE, SIZES = (100, 1000, 10_000, 100_000), (5, 50)
BOUNDS, DELTAS, BUDGETS = (1, 10), (0.0, DELTA), (0.1, 0.3, 1, 3, 10)
_HEAD = """\
import cvxpy as cp
import numpy as np
import dpmodel as dpm

n, d, m = $n, $d, $m  # people, variables, constraints
"""
_AVERAGES = "# Averages over the n people: put yours here.\n"
_ROWS = 'A = cp.Constant(np.random.default_rng(0).uniform(size=(m, d)), name="A")  # public\n'
_X = 'x = cp.Variable(d, bounds=[0, 1], name="x")\n'
_PLAN = "print(problem.plan(epsilon=$epsilon, delta=$delta))\n"
MODELS = {
    "objective": _AVERAGES
    + 'c = dpm.Private(np.full(d, 0.5), name="c", unit="$unit"$declared)\n'
    + _ROWS
    + _X
    + "problem = dpm.Problem(cp.Maximize(c @ x), [A @ x <= d / 4])\n",
    "scalar": _AVERAGES
    + 'b = dpm.Private(np.full(m, 0.5), name="b", unit="$unit"$declared)\n'
    + _ROWS
    + _X
    + "problem = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x / d <= b])\n",
    "row": _AVERAGES
    + 'A = dpm.Private(np.full((m, d), 0.5), name="A", unit="$unit"$declared)\n'
    + _X
    + "problem = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= d / 4])\n",
    "own row": "# One person, one constraint: m is n. Put your rows here.\n"
    + 'A = dpm.Private(np.full((n, d), 0.5), name="A", unit="row")\n'
    + _X
    + "problem = dpm.Problem(cp.Maximize(cp.sum(x)), [A @ x <= d / 4])\n",
}
MODELS["column"] = MODELS["matrix"] = MODELS["row"]
MODELS["matrix high"] = (
    "# A number of each person, and their mean scales all of A: put yours here.\n"
    'scale = dpm.Private(np.full(n, 0.5), name="scale", unit="entry")\n'
    + _ROWS
    + _X
    + "problem = dpm.Problem(cp.Maximize(cp.sum(x)), [cp.sum(scale) / n * A @ x <= d / 4])\n"
)
JOINT = """\
import cvxpy as cp
import dpmodel as dpm

n, d = $n, $d  # people, variables of each

# Of any size: what a variable is worth to a person, what it uses, how much is wanted. Put yours here.
people = dpm.Records("people")
worth = dpm.Private(shape=(n, d), name="worth", unit="row", records=people)
use = dpm.Private(shape=(n, d), name="use", unit="row", records=people, nonneg=True)
wish = dpm.Private(shape=n, name="wish", unit="entry", records=people)
x = dpm.Shares((n, d), records=people, bounds=[0, 1], name="x")
shared = cp.sum(cp.multiply(use, x), axis=0) <= n / (4 * d)
problem = dpm.Problem(cp.Maximize(cp.sum(cp.multiply(worth, x))), [cp.sum(x, axis=1) <= wish, shared])
print(problem.plan(epsilon=$epsilon, delta=$delta, release="joint"))
"""
UNITS = {
    "objective": ("entry", "all"),
    "scalar": ("entry", "all"),
    "row": ("row",),
    "matrix": ("all",),
    "column": ("column",),
}


# What is declared of one person, by bound.
DECLARED = {"none": "", **{str(bound): f", linf={bound} / n, bounds=[0, 1]" for bound in BOUNDS}}


def code(part: str, unit: str, bound: int | None, n: int, d: int, m: int) -> str:
    """The model that the numbers of the map are of, up to its plan; ``bound`` None: nothing is declared."""
    model = MODELS[{"row": "own row", "matrix": "matrix high"}.get(part, part) if bound is None else part]
    name = "none" if bound is None else str(bound)
    values = {"n": n, "d": d, "m": m, "unit": unit, "declared": DECLARED[name]}
    return Template(_HEAD + model).substitute(values)


def table_1() -> dict[str, Any]:
    """Cells, lower bounds for changes by one, and the forecasts of all mechanisms on the grid."""
    names: list[str] = []
    low = {
        f"{part} {unit}": {f"{d} {m}": _low(part, unit, d, m, names) for d, m in product(SIZES, SIZES)}
        for part, units in UNITS.items()
        for unit in units
    }
    own = {d: {n: _budgets(_run(code("row", "row", None, n, d, n)), names) for n in PEOPLE[:3]} for d in SIZES}
    bounds = {
        part: [[lower_bound(part, epsilon, delta, BETA).value for epsilon in BUDGETS] for delta in DELTAS]
        for part in UNITS
    }
    models = {f"{part} {unit}": _run(code(part, unit, 1, 100, 5, 5)) for part, units in UNITS.items() for unit in units}
    carried = [name for name, model in models.items() if model.classify().cells[0].lower_bound(1, 0, BETA) is not None]
    return {
        "cells": [_cell(cell) for cell in dpm.taxonomy()],
        "units": UNITS,
        "people": PEOPLE,
        "sizes": SIZES,
        "bounds": BOUNDS,
        "deltas": DELTAS,
        "budgets": BUDGETS,
        "code": {name: _HEAD + model + _PLAN for name, model in MODELS.items()},
        "declared": DECLARED,
        "mechanisms": names,
        "lowerBounds": bounds,
        "carried": carried,  # the models of low sensitivity of which a theorem speaks
        "low": low,
        "own": own,
        "joint": {"code": JOINT, "forecasts": {d: {n: _shares(n, d) for n in PEOPLE} for d in SIZES}},
    }


def _cell(cell: Any) -> dict[str, Any]:
    kept = ("part", "level", "label", "verdict", "theorem", "section", "summary", "ours", "lower_bound")
    told = {name: getattr(cell, name) for name in kept}
    helps = [] if cell.solvable else list(statements(cell.part))
    return {**told, "mechanisms": list(cell.mechanisms), "remedies": helps, "joint": asdict(cell.joint)}


def _shares(n: int, d: int) -> list[Any]:
    """[delta][epsilon] -> [mechanism, share of the optimum, share of the capacities left free], the chosen first."""
    model = _run(Template(JOINT.rpartition("print")[0]).substitute(n=n, d=d))
    told = []
    for delta, epsilon in product(DELTAS, BUDGETS):
        plan = model.plan(epsilon, delta, release="joint", compare="all")
        served = [each for each in plan.candidates if each.forecast is not None]
        served.sort(key=lambda each: each.mechanism != plan.chosen.mechanism)
        told.append([[each.mechanism, each.forecast.error.share, each.forecast.error.unused] for each in served])
    return [told[: len(BUDGETS)], told[len(BUDGETS) :]]


def _low(part: str, unit: str, d: int, m: int, names: list[str]) -> dict[str, Any]:
    """For each n / bound, which is all that these forecasts know of both: the forecasts."""
    models = {n // bound: code(part, unit, bound, n, d, m) for bound, n in product(BOUNDS, PEOPLE)}
    return {str(ratio): _budgets(_run(text), names) for ratio, text in models.items()}


def _budgets(problem: Any, names: list[str]) -> list[Any]:
    """[delta][epsilon] -> forecasts."""
    return [[_forecasts(problem.plan(e, delta, compare="all"), names) for e in BUDGETS] for delta in DELTAS]


def _forecasts(plan: Any, names: list[str]) -> list[list[Any]]:
    """[mechanism, error as plans compare it, objective within, violation within, rows left out, what it is] of each
    mechanism with a forecast, the chosen one first. It is 0: says something, 1: says nothing, 2: reads no data."""
    served = [candidate for candidate in plan.candidates if candidate.forecast is not None]
    served.sort(key=lambda candidate: (candidate.mechanism != plan.chosen.mechanism, candidate.forecast.error.rank))
    rows = []
    for candidate in served:
        if candidate.mechanism not in names:
            names.append(candidate.mechanism)
        forecast = candidate.forecast
        kind = 2 if forecast.spends_nothing else int(forecast.vacuous)
        error = forecast.error
        rows.append(
            [names.index(candidate.mechanism), error.rank, error.objective, error.violation, error.slack_rows, kind]
        )
    return rows


# ------------------------------------------------------------------ the attack
BITS = 20
LINE = tuple(round(10 ** (k / 20), 4) for k in range(-20, 21))


def attack() -> dict[str, Any]:
    """The gadgets of Theorems 36 and 37 (the sharper form), one record moving an entry by one."""
    bits = [0, 1] * (BITS // 2)
    made = {
        "scalar": gadgets.scalar(bits, sensitivity=1),
        "objective": gadgets.objective(bits, sensitivity=1, sharp=True),
    }
    told = {}
    for part, gadget in made.items():
        plans = [gadget.problem.plan(epsilon, mechanism="laplace-once") for epsilon in EPSILONS]
        told[part] = {
            "theorem": gadget.theorem,
            "line": [gadget.lower_bound(epsilon, 0.0, BETA).value for epsilon in LINE],
            "lowerBound": [gadget.lower_bound(epsilon, 0.0, BETA).value for epsilon in EPSILONS],
            "scale": [plan.chosen.forecast.noise[part]["distribution"]["scale"] for plan in plans],
        }
    wrong = [1 / (1 + math.exp(epsilon)) for epsilon in EPSILONS]
    return {
        "bits": BITS,
        "line": LINE,
        "gadgets": told,
        "wrong": wrong,  # the share of bits that randomised response tells falsely, on average
        "mostWrong": [int(binom.ppf(1 - BETA, BITS, share)) for share in wrong],
    }


# ------------------------------------------------------------------ questions
SEEDS = range(80)


def questions() -> list[dict[str, Any]]:
    """A question of ``dpmodel.teach.quiz`` for each cell of Table 1, the first one found."""
    found = {}
    for seed in SEEDS:
        question = quiz(rng=seed)
        cell = question.cell
        told = {"seed": seed, "code": question.code, "part": cell.part, "level": cell.level, "reading": cell.reason}
        found.setdefault((cell.part, cell.level), told)
    return sorted(found.values(), key=lambda each: each["seed"])


# ------------------------------------------------------------------ the file
def _run(text: str) -> Any:
    scope: dict[str, Any] = {}
    exec(text, scope)
    return scope["problem"]


def _short(value: Any) -> Any:
    """Numbers to four digits, and null for what is not said or not bounded."""
    if isinstance(value, dict):
        return {str(name): _short(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(each) for each in value]
    if isinstance(value, float):
        return (int(value) if value.is_integer() else float(f"{value:.4g}")) if math.isfinite(value) else None
    return value


def data() -> dict[str, Any]:
    """All numbers of the page."""
    found = {
        "version": dpm.__version__,
        "epsilons": EPSILONS,
        "beta": BETA,
        "delta": DELTA,
        "plane": plane(),
        "table1": table_1(),
        "attack": attack(),
        "questions": questions(),
    }
    plain: dict[str, Any] = _short(found)
    return plain


def written(found: dict[str, Any]) -> str:
    """The text of the file: a script, because pages on a disk may not fetch JSON."""
    return (
        "// Written by docs/write_explorer.py from the package: do not edit.\n"
        f"window.DPMODEL = {json.dumps(found, separators=(',', ':'))};\n"
    )


def read(text: str) -> dict[str, Any]:
    """What ``written`` wrote."""
    return json.loads(text.split("window.DPMODEL = ", 1)[1].rstrip().rstrip(";"))


if __name__ == "__main__":
    FILE.write_text(written(data()))
