"""What leaves a private run, for every mechanism of every family behind every entry point: one contract.

1. With the same answers of the noise, everything released is the same on any neighbour: outcome, notes, counts, status
   and timings, by a clock that moves with the private data.
2. A charge is followed by one read of each private parameter, a read by draws, and a crash changes nothing of that:
   the budget is charged once, before, and no second run is tried.
3. What all draws lose together is at most what was charged.
4. Noise is drawn at every budget from 1e-3 to 100.

That the same holds on any data at all, ``tests/audit/test_contract.py`` holds of every mechanism.
"""

from __future__ import annotations

import math
import time
import traceback
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from faces import FACES, FREE, Face
from replaying import Transcript, watched

import dpmodel as dpm

pytestmark = pytest.mark.filterwarnings("ignore")

# One of each family by default; all of them, and more neighbours, in the slow part.
QUICK = {
    "scalar-laplace-once", "several_parts-gaussian-once", "bounded_scalar-strict-truncated-laplace",
    "objective-vertex-exponential", "people-noisy-hinge-descent", "shares-multiplicative-weights",
    "people_for_least-cheapest-point", "least_squares-sufficient-statistics", "whole_equations-exact-equations",
    "span-stable-span", "measure-laplace", "point_in_hull-tukey-depth", "query_release-auto",
}  # fmt: skip


def _cases(names: str, quick: list[Any], others: list[Any], faces: list[Face] = FACES) -> Any:
    """The quick faces with the quick values by default."""
    cases = []
    for face in faces:
        for value in (*quick, *others):
            default = str(face) in QUICK and value in quick
            cases.append(pytest.param(face, value, id=f"{face}-{value}", marks=() if default else pytest.mark.slow))
    return pytest.mark.parametrize(("face", names), cases)


def run(face: Face, data: Any, source: Transcript, budget: tuple[float, float]) -> tuple[Any, dpm.Budget]:
    account = dpm.Budget(*budget)
    with watched(source):
        released = face.release(data, *budget, budget=account, rng=source)
    return released, account


def same(one: Any, two: Any, path: str = "released") -> list[str]:
    """Where two releases differ, bit by bit."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        return [each for key in one for each in same(one[key], two[key], f"{path}[{key!r}]")]
    if isinstance(one, list | tuple) and isinstance(two, list | tuple) and len(one) == len(two):
        return [each for i, pair in enumerate(zip(one, two, strict=True)) for each in same(*pair, f"{path}[{i}]")]
    if isinstance(one, np.ndarray | float | int) and isinstance(two, np.ndarray | float | int):
        return [] if np.array_equal(one, two, equal_nan=True) else [path]
    return [] if one == two else [path]


def test_every_quick_face_exists() -> None:
    assert not QUICK - {str(face) for face in FACES}


@_cases("seed", [0], [1, 2])
def test_the_same_answers_release_the_same_on_a_neighbour(face: Face, seed: int) -> None:
    one, two = face.data(np.random.default_rng(seed))
    first = Transcript(seed)
    released, account = run(face, one, first, face.budget)
    second = first.replay()
    try:
        again, _ = run(face, two, second, face.budget)
    except dpm.DPModelError as error:
        raise AssertionError(f"{second.astray or error}") from None
    assert not second.astray and second._next == len(first.draws)
    assert same(released, again) == []
    assert first.events == second.events
    loss = account.spent
    assert 0 < loss.epsilon <= face.budget[0] and loss.delta <= face.budget[1]
    if not face.amplified:
        assert first.lost(loss.epsilon, loss.delta) <= 1 + 1e-6
    assert first.events[0] == "charge" and first.events.count("charge") == 1
    reads = [event for event in first.events if event.startswith("read")]
    assert reads and len(set(reads)) == len(reads), "one read of each"
    assert first.draws


@_cases("crash_at", [0], [1])
def test_a_crash_costs_one_charge_and_shows_nothing(face: Face, crash_at: int) -> None:
    one, _ = face.data(np.random.default_rng(0))
    source = Transcript(0, crash_at=crash_at)
    account = dpm.Budget(*face.budget)
    try:
        with watched(source):
            face.release(one, *face.budget, budget=account, rng=source)
    except dpm.DPModelError as error:
        assert error.__cause__ is None and error.__context__ is None
        assert "FloatingPointError" in str(error) and " at " not in str(error)
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        assert not [file for file in files if "/mechanisms/" in file]
        assert source.events.count("draw") == crash_at + 1, "no second run"
    else:
        assert len(source.draws) <= crash_at, "fewer draws than that"
    assert source.events[0] == "charge" and source.events.count("charge") == 1
    reads = [event for event in source.events if event.startswith("read")]
    assert len(set(reads)) == len(reads)
    assert account.spent.epsilon > 0


@_cases("epsilon", [1e-3, 100.0], [0.03, 1.0, 10.0])
def test_noise_is_drawn_at_every_budget(face: Face, epsilon: float) -> None:
    """Or nothing is spent: the solve is refused, or the plan takes what reads no data."""
    one, two = face.data(np.random.default_rng(1))
    source = Transcript(1)
    budget = (epsilon, face.budget[1])
    try:
        _, account = run(face, one, source, budget)
    except dpm.DPModelError:
        assert not source.events
        return
    if account.spent.epsilon == 0:
        assert not [event for event in source.events if event != "charge"]
        return
    assert source.draws and all(0 < draw.arguments[0] < math.inf for draw in source.draws)
    second = source.replay()
    run(face, two, second, budget)
    if not face.amplified:
        assert source.lost(account.spent.epsilon, account.spent.delta) <= 1 + 1e-6


@pytest.mark.parametrize("face", FREE, ids=str)
def test_what_costs_nothing_reads_and_draws_nothing(face: Face) -> None:
    source = Transcript(0)
    _, account = run(face, None, source, (1.0, 1e-6))
    assert not [event for event in source.events if event != "charge"] and account.spent.epsilon == 0


# ------------------------------------------------------------------ the contract catches
def exact_note(release: Any, data: Any, *budget: Any, **more: Any) -> Any:
    return release(data, *budget, **more) | {"note": f"about {np.sum(data)} people"}


def timed(release: Any, data: Any, *budget: Any, **more: Any) -> Any:
    started = time.perf_counter()
    return release(data, *budget, **more) | {"seconds": time.perf_counter() - started}


def third_of_the_noise(release: Any, data: Any, epsilon: float, delta: float, **more: Any) -> Any:
    released = release(data, 3 * epsilon, delta, rng=more["rng"])
    more["budget"].charge(epsilon, 0.0, label="less than was spent")
    return released


def late_charge(release: Any, data: Any, epsilon: float, delta: float, **more: Any) -> Any:
    released = release(data, epsilon, delta, rng=more["rng"])
    more["budget"].charge(epsilon, 0.0, label="after the run")
    return released


def silent_when_rich(release: Any, data: Any, epsilon: float, delta: float, **more: Any) -> Any:
    if epsilon <= 50:
        return release(data, epsilon, delta, **more)
    more["budget"].charge(epsilon, 0.0, label="nothing is drawn")
    return {"value": data}


def again_after_a_failure(release: Any, data: Any, *budget: Any, **more: Any) -> Any:
    try:
        return release(data, *budget, **more)
    except dpm.DPModelError:
        return release(data, *budget, rng=more["rng"])


@pytest.mark.parametrize(
    ("spoil", "contract", "value"),
    [
        (exact_note, test_the_same_answers_release_the_same_on_a_neighbour, 0),
        (timed, test_the_same_answers_release_the_same_on_a_neighbour, 0),
        (third_of_the_noise, test_the_same_answers_release_the_same_on_a_neighbour, 0),
        (late_charge, test_the_same_answers_release_the_same_on_a_neighbour, 0),
        (silent_when_rich, test_noise_is_drawn_at_every_budget, 100.0),
        (again_after_a_failure, test_a_crash_costs_one_charge_and_shows_nothing, 0),
    ],
)
def test_twins_that_the_contract_catches(spoil: Any, contract: Any, value: Any) -> None:
    face = next(face for face in FACES if str(face) == "measure-laplace")
    contract(face, value)
    with pytest.raises(AssertionError):
        contract(replace(face, release=partial(spoil, face.release)), value)
