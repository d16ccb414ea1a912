"""Which settings an engine runs with, where it is asked for no statement: those that do best on synthetic databases.

A proof of little error says how an engine does on the worst data, and the settings that it likes best may be worse than
others in practice: as the budget grows, a choice by proofs alone moves from good settings without a proof to worse ones
with one. So ``alpha`` or ``slack_rows`` asks for the best statement; without them the settings with the least simulated
error are run, and the plan states what is proved of those. Settings that are the same at every budget can only gain
from more of it, and so does the best of them. Public facts only: databases are drawn from the declarations.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import Options, no_progress
from dpmodel.errors import NotPrivateWarning
from dpmodel.mechanisms.lp.engines.contract import Engine, Promise
from dpmodel.mechanisms.lp.engines.routes import Route, best_route, private_objective, with_promise
from dpmodel.mechanisms.lp.engines.synthetic_rows import DATABASES, databases
from dpmodel.mechanisms.lp.fewer_records import as_noisy, fewer_records
from dpmodel.mechanisms.lp.private_rows import private_rows
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import SeededSource

# Numbers read in the runs with one of the settings: beyond the first one database has to do, beyond the second none.
# A projection onto a set with several public rows takes about as long as reading so many.
_FEW, _MOST, _PROJECTION = 3e7, 3e8, 3e5


@cached
def settle(model: PrivateLP, engine: Engine, options: Options) -> Route:
    """The best route with the settings of least simulated error; as it is where a statement was asked for."""
    route = best_route(model, engine, options)
    assert route is not None  # eligible() came first
    requested = options.by_proof or (options.violation, options.slack_rows) != (None, None)
    replanned = route.goal == "target" and private_objective(model)
    if requested or replanned or route.goal == "search" or not route.promise.width > 0 or not route.promise.others():
        return route
    tries = _tried(model, engine, options, route)
    if not tries:
        return route
    whole = fewer_records(model) is None  # of many records, one database tells
    count = DATABASES if whole and max(work for _, _, work in tries) <= _FEW else 1
    best, least, worse = route.promise, math.inf, False
    for promise, run, _ in tries:
        if worse and promise is not route.promise:
            continue  # they come in the order of the budgets they are for
        found = run(count)
        best, least, worse = (promise, found, False) if found < least else (best, least, True)
    return route if best is route.promise else with_promise(route, best)


def _tried(
    model: PrivateLP, engine: Engine, options: Options, route: Route
) -> list[tuple[Promise, Callable[[int], float], float]]:
    """The settings that can be simulated, how, and the numbers that a run reads. Large problems with fewer records: the
    same settings in the same order, planned for those."""
    few, same = fewer_records(model), route
    if few is not None:
        asked = as_noisy(replace(options, goal=route.goal or "auto", penalty=options.penalty), few.share)
        found = best_route(few, engine, asked)
        if found is None or found.goal != route.goal or len(found.promise.others()) != len(route.promise.others()):
            return []
        same = found
    drawn = few or model
    out: list[tuple[Promise, Callable[[int], float], float]] = []
    own = [*zip(route.promise.others(), same.promise.others(), strict=True)]
    if route.promise.plan.accelerated and same.promise.plan.accelerated:
        own.append((route.promise, same.promise))
    for promise, twin in own:
        if (work := _work(same, twin)) <= _MOST:
            out.append((promise, partial(_simulated, engine, drawn, same, twin), work))
    return out


def _work(route: Route, promise: Promise) -> float:
    form, polytope = route.task.model.form, route.task.polytope
    projection = _PROJECTION if polytope.A_ub.shape[0] + polytope.A_eq.shape[0] > 1 else 0.0
    return float(promise.plan.steps * (form.matrix.nnz + form.A0.nnz + projection))


def _simulated(engine: Engine, model: PrivateLP, route: Route, promise: Promise, count: int) -> float:
    """What the engine minimises, tilt and mean violation, on ``count`` synthetic databases."""
    total, rows = 0.0, private_rows(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        for number, theta in enumerate(databases(model, count)):
            task = route.task
            if route.goal == "penalty":
                task = replace(task, tilt=(model.form.c0 + model.form.objective.apply(theta)) / route.weight)
            x = engine.point(task, promise, theta, SeededSource(number), no_progress).x
            G, h = rows.values(theta)
            total += float(task.tilt @ x) + float(np.maximum(G @ x - h, 0.0).mean())
    return total
