"""What is read of a model is the model: the same objective, sums and limits at any shares as CVXPY has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models_of_shares import Model, advertisers, appointments, charging, marked, plain, timetables
from scipy.optimize import linprog

from dpmodel.joint.read import Read, read
from dpmodel.joint.table import people_table

N = 7  # unlike the size of any other axis here


def _person(read: Read, number: int) -> tuple[Any, ...]:
    """Values, bounds, A, W and limits of one person, dense."""
    form, person = read.form, people_table(read).person(number)
    use = np.zeros((form.resources, form.size))
    use[form.use_at] = np.asarray(person.use)[0]
    rows = np.zeros((len(form.personal), form.size + form.extra))
    rows[form.limits_at] = np.asarray(person.coefficients)[0]
    caps = np.full(form.size, np.inf) if person.caps is None else np.asarray(person.caps)[0]
    return np.asarray(person.values)[0], caps, use, rows, np.asarray(person.limits)[0]


def _same(model: Model, seed: int = 0, *, most: float = 1.0) -> Read:
    """That ``read`` and CVXPY agree at random shares."""
    problem, shares = marked(model)
    found = read(problem)
    form, rng = found.form, np.random.default_rng(seed)
    for _ in range(8):
        x = rng.uniform(0, most, shares.shape) * (rng.random(shares.shape) < 0.6)
        if form.integral:
            x = np.rint(x)
        objective, constraints = plain(model, x)
        zero = plain(model, np.zeros(shares.shape))[0].args[0].value
        value, used, allowed = 0.0, np.zeros(form.resources), []
        for i in range(N):
            values, caps, use, rows, limits = _person(found, i)
            share = x[i].ravel()
            used += use @ share
            right = limits - rows[:, : form.size] @ share
            if form.extra:
                t = rows[:, form.size :]
                ends = [(None, None)] * form.extra
                best = linprog(-values[form.size :], t, right + 1e-9, bounds=ends)
                fits = best.status in (0, 3)
                value += values[: form.size] @ share + (-best.fun if best.status == 0 else 0.0)
            else:
                fits, value = bool((right >= -1e-9).all()), value + values @ share
            allowed.append(fits and bool((share <= caps + 1e-9).all()))
        sign = -1.0 if found.minimise else 1.0
        if not form.extra or all(allowed):
            assert value == pytest.approx(sign * float(objective.args[0].value) - _offset(found, model, sign, zero))
        over, fine = [], np.ones(N, dtype=bool)
        for constraint in constraints:
            left = np.asarray(constraint.args[0].value) - np.asarray(constraint.args[1].value)
            left = np.broadcast_to(left, constraint.shape)
            if N in constraint.shape:
                axis = constraint.shape.index(N)
                fine &= (np.moveaxis(left, axis, 0).reshape(N, -1) <= 1e-9).all(axis=1)
            else:
                over.append(np.ravel(left))
        np.testing.assert_allclose(used - found.capacity, np.concatenate(over))
        assert allowed == fine.tolist()
    return found


def _offset(found: Read, model: Model, sign: float, zero: Any) -> float:
    """What the objective is of no shares, less what the columns t say of it."""
    if not found.form.extra:
        return sign * float(zero)
    total = 0.0
    for i in range(N):
        values, _, _, rows, limits = _person(found, i)
        best = linprog(
            -values[found.form.size :], rows[:, found.form.size :], limits, bounds=[(None, None)] * found.form.extra
        )
        total -= best.fun
    return sign * float(zero) - total


@pytest.mark.parametrize(
    "model",
    [
        charging(N),
        charging(N, product=True),
        timetables(N),
        timetables(N, private=True),
        appointments(N),
        appointments(N, boolean=True),
        advertisers(N),
    ],
    ids=["charging", "charging by a product", "timetables", "private timetables", "slots", "whole slots", "bids"],
)
def test_models_of_people_are_read_as_they_are(model: Model) -> None:
    assert _same(model).form.single


def test_what_follows_from_declarations() -> None:
    found = read(marked(charging(N))[0])
    assert found.largest_use == pytest.approx(np.sqrt(8)) and found.most_value == np.inf
    assert found.records.name == "people" and [p.name() for p in found.private] == ["values", "power", "wish"]
    assert read(marked(timetables(N))[0]).largest_use == pytest.approx(np.sqrt(3))
    bids = read(marked(advertisers(N))[0])
    assert bids.largest_use == bids.most_value == 1.0 and len(bids.private) == 1


def test_reading_does_not_take_longer_for_more_people(unread: None) -> None:
    problem, _ = marked(charging(100_000))
    import time

    start = time.perf_counter()
    found = read(problem)
    assert time.perf_counter() - start < 0.5 and found.count == 100_000 and found.form.width == 26
