"""How far one record moves what is sealed, from raw data: units, neighbors, declared changes and magnitudes mixed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks import Private, Records, private, vault

SENSITIVITIES: list[dict[str, float]] = [{}, {"linf": 0.4}, {"linf": 5.0}, {"l2": 2.0}, {"l1": 4.0}, {"row_l1": 1.5}]
MAGNITUDES: list[dict[str, Any]] = [
    {"bounds": (-3, 3)},
    {"bounds": (0, 2)},
    {"bounds": (1, 2)},
    {"bounds": ([0, -1, 2], [1, 1, 3])},
    {"max_l1": 2.5},
    {"max_l2": 1.5},
    {"max_l2": 1.5, "nonneg": True},
    {"max_l2": 1.5, "bounds": ([0, -0.5, 0], [1, 1, 9])},
    {"max_l1": 2.5, "max_l2": 1.5},
    {"max_linf": 0.7, "max_l1": 1.0},
]
CASES = [
    {"unit": unit, "neighbors": neighbors, **sensitivity, **magnitude}
    for unit, neighbors, sensitivity, magnitude in itertools.product(
        ("entry", "row", "column", "all"), ("replace-one", "add-remove"), SENSITIVITIES, MAGNITUDES
    )
]
SHAPE = (2, 3)
OWNED = {"entry": np.s_[0, 1], "row": np.s_[0], "column": np.s_[:, 1], "all": np.s_[:]}
DECLARED = ("l1", "l2", "linf", "row_l1")


def norms(d: np.ndarray) -> dict[str, float]:
    size = np.abs(d)
    return {
        "l1": float(size.sum()),
        "l2": float(np.linalg.norm(d)),
        "linf": float(size.max()),
        "row_l1": float(size.sum(axis=1).max()),
    }


def parameter_of(case: dict[str, Any]) -> Private:
    given = {key: value for key, value in case.items() if key != "neighbors"}
    return Private(shape=SHAPE, records=Records("people", case["neighbors"]), **given)


def moved(parameter: Private, case: dict[str, Any], rng: np.random.Generator) -> np.ndarray:
    """(2, 3) difference of what is sealed for two neighbors, drawn towards extremes."""
    x, where = rng.normal(size=SHAPE) * rng.choice([0.3, 2.0, 9.0]) * (rng.random(SHAPE) < rng.choice([0.4, 1.0])), None
    if case.get("nonneg"):
        x = np.abs(x)
    y, where = x.copy(), OWNED[case["unit"]]
    declared = {key: case[key] for key in DECLARED if key in case}
    if not declared and case["neighbors"] == "add-remove" and case["unit"] != "all":
        y[where] = 0.0
    else:
        d = np.zeros(SHAPE)
        d[where] = (rng.normal(size=SHAPE) * rng.choice([0.3, 9.0]) * (rng.random(SHAPE) < 0.7))[where]
        if rng.random() < 0.5:  # towards the opposite of x, or the same change in all entries
            d[where] = rng.choice([-2.0, -1.0, 1.0]) * (x if rng.random() < 0.5 else np.ones(SHAPE))[where]
        shrink = min((limit / max(norms(d)[key], 1e-300) for key, limit in declared.items()), default=1.0)
        y = x + d * min(1.0, shrink)
        y = np.maximum(y, 0.0) if case.get("nonneg") else y
    sealed = []
    for value in (x, y):
        parameter.value = value
        sealed.append(np.array(vault.unseal(parameter)).reshape(SHAPE, order="F"))
    return np.asarray(sealed[0] - sealed[1])


def exceeded(case: dict[str, Any], draws: int) -> bool:
    """Whether some pair of neighbors differs by more than what was derived."""
    parameter, rng = parameter_of(case), np.random.default_rng(0)
    caps = parameter.entry_caps.reshape(SHAPE, order="F")
    for _ in range(draws):
        d = moved(parameter, case, rng)
        if (np.abs(d) > caps * (1 + 1e-9) + 1e-12).any():
            return True
        if any(value > getattr(parameter, key) * (1 + 1e-9) + 1e-12 for key, value in norms(d).items()):
            return True
        ball = parameter.ball
        if any(norms(d)[key] > getattr(ball, key) * (1 + 1e-9) + 1e-12 for key in ("l1", "l2", "row_l1")):
            return True
    return False


def test_no_record_moves_what_is_sealed_further() -> None:
    assert not [case for case in CASES if exceeded(case, 8)]


def test_absence_taken_for_a_declared_change_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same game finds a unit that counts as absent under add-remove although a change was declared."""
    right = private.sensitivity_bounds
    owned = [c for c in CASES if c["neighbors"] == "add-remove" and c["unit"] != "all"]
    wrong = [c for c in owned if c.get("linf") == 5]
    monkeypatch.setattr(private, "sensitivity_bounds", lambda *given, **_: right(*given, absent_is_zero=True))
    assert sum(exceeded(case, 40) for case in wrong) > len(wrong) / 2


AR = Records("people", "add-remove")
TIGHT: list[tuple[dict[str, Any], str, float, Any, Any]] = [
    ({"unit": "entry", "linf": 5, "bounds": (-3, 3), "records": AR}, "linf", 5, [2.5, 0.0], [-2.5, 0.0]),
    # An aggregate does not go with a record: one record less may turn -5 into 5. What the record owns is there or zero.
    ({"bounds": (-5, 5), "records": AR}, "linf", 10, [5.0], [-5.0]),
    ({"unit": "entry", "bounds": (-5, 5), "records": AR}, "linf", 5, [5.0], [0.0]),
    ({"unit": "row", "l1": 5, "max_l1": 2.5, "records": AR}, "l1", 5, [[2.5, 0.0]], [[-2.5, 0.0]]),
    ({"unit": "column", "l1": 5, "max_l1": 2.5, "records": AR}, "l1", 5, [[2.5], [0.0]], [[-2.5], [0.0]]),
    ({"unit": "row", "max_l2": 3, "nonneg": True}, "l2", 3 * math.sqrt(2), [[9.0, 0.0]], [[0.0, 9.0]]),
    ({"unit": "row", "max_l2": 3, "bounds": (-9, 0)}, "l2", 3 * math.sqrt(2), [[-9.0, 0.0]], [[0.0, -9.0]]),
    ({"unit": "row", "max_l2": 3}, "l2", 6, [[9.0, 0.0]], [[-9.0, 0.0]]),
    ({"unit": "row", "max_l2": 3, "records": AR}, "l2", 3, [[9.0, 0.0]], [[0.0, 0.0]]),
    ({"unit": "entry", "linf": 0.5, "max_l1": 3}, "linf", 0.5, [1.0], [1.5]),
    ({"unit": "row", "linf": 5, "max_l1": 3}, "linf", 5, [[2.5, 0.0]], [[-2.5, 0.0]]),
    # (3, 0, ..., 0) and (2, 1, ..., 1) differ by 1 and are scaled to 3 and less than .01 in the first entry.
    ({"linf": 1, "max_l1": 3}, "linf", 3, np.eye(1, 999)[0] * 3, np.eye(1, 999)[0] + 1),
]


def mixed_signs(seed: int) -> tuple[dict[str, Any], str, float, Any, Any]:
    """One to three entries that may have both signs, of unequal sizes, beside two that may not: the ends of a record's
    move use all of what is below zero at one end and of what is above at the other."""
    rng = np.random.default_rng(seed)
    size, count = float(rng.choice([0.01, 1.0, 70.0])), 1 + seed % 3
    below, above = (rng.uniform(0.05, 0.5, count) * size for _ in range(2))
    x, y = (np.r_[end, 0.0, 0.0] for end in (-below, above))
    x[-2], y[-1] = (math.sqrt(size**2 - end @ end) for end in (x, y))
    bounds = np.r_[-below, 0, 0], np.r_[above, size, size]
    moved = math.sqrt(2 * size**2 + 2 * float(below @ above))
    return {"unit": "row", "max_l2": size, "bounds": bounds}, "l2", moved, x[None], y[None]


TIGHT += [mixed_signs(seed) for seed in range(9)]


@pytest.mark.parametrize("case", TIGHT, ids=lambda case: str(case[:3]))
def test_bounds_are_attained(case: tuple[dict[str, Any], str, float, Any, Any]) -> None:
    declared, norm, wanted, x, y = case
    parameter = Private(x, **declared)
    before = np.array(vault.unseal(parameter))
    parameter.value = y
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    found = float(np.linalg.norm(np.array(vault.unseal(parameter)) - before, order))
    assert getattr(parameter, norm) == pytest.approx(wanted)
    assert wanted * 0.99 <= found <= getattr(parameter, norm) * (1 + 1e-9)


def test_scaling_can_enlarge_a_declared_change() -> None:
    """[1, 0] and [1, 1/2] differ by 1/2; scaled to 1-norm 1 they differ by 2/3."""
    parameter = Private([1.0, 0.0], l1=0.5, max_l1=1)
    before = np.array(vault.unseal(parameter))
    parameter.value = [1.0, 0.5]
    assert parameter.l1 >= np.abs(np.array(vault.unseal(parameter)) - before).sum() == pytest.approx(2 / 3)


def test_a_record_of_a_cube_owns_all_along_the_first_axis() -> None:
    """Like the matrix with the same rows: what one record moves, and to what norm a row is scaled."""
    cube = np.random.default_rng(0).normal(size=(4, 2, 3))
    for declared in ({"max_l2": 1.0}, {"linf": 1.0}, {"bounds": [-1, 2]}, {"max_l1": 2.0, "nonneg": True}):
        data = np.abs(cube) if "nonneg" in declared else cube
        one = Private(data, unit="row", **declared)
        other = Private(data.reshape(4, 6), unit="row", **declared)
        assert one.sensitivity == other.sensitivity
        rows = (np.asarray(vault.unseal(p)).reshape(p.shape, order="F").reshape(4, 6) for p in (one, other))
        np.testing.assert_allclose(*rows)
        assert dpm.sensitivity(cp.sum(one, axis=0)).l1 == pytest.approx(dpm.sensitivity(cp.sum(other, axis=0)).l1)
