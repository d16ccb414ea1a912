"""A value just beyond a bound (the next number, 1e-9, 1, far) is refused or read as the bound, wherever bounds stand.

One record in another place beyond each bound; what was sealed is held against the reading of the bound itself, or
against the norm, unit by unit, written out again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.compile.rows import held_numbers
from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.marks import vault
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import SourceRows

# What is added to an upper bound and taken from a lower one.
BEYOND: dict[str, Callable[[float, float], float]] = {
    "next number": lambda end, out: float(np.nextafter(end, out * np.inf)),
    "1e-9": lambda end, out: end + out * 1e-9,
    "1": lambda end, out: end + out,
    "far": lambda end, out: out * 1e200,
}
UNITS = ("entry", "row", "column", "all")
SHAPE = (3, 2)


def sealed(parameter: dpm.Private) -> np.ndarray:
    """Full size."""
    entries = vault.unseal(parameter)
    if sp.issparse(entries):
        return np.asarray(entries.toarray())
    full, layout = np.zeros(parameter.shape), parameter.layout
    if parameter.ndim == 0:
        return entries.reshape(())
    full[(layout.rows, layout.columns)[: full.ndim]] = entries
    return full


def beyond(low: np.ndarray, high: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(value, the same with the bound in its place) for every entry, end and step; the other entries inside."""
    inside = low + (high - low) * np.random.default_rng(0).uniform(0.1, 0.9, low.shape)
    for place, step in itertools.product(np.ndindex(*low.shape), BEYOND.values()):
        for end, out in ((high, 1.0), (low, -1.0)):
            value, bound = inside.copy(), inside.copy()
            value[place], bound[place] = step(float(end[place]), out), end[place]
            yield value, bound


# ------------------------------------------------------------------ bounds of entries
LOW, HIGH = np.array([[-1.0, 0.0], [-2.0, -0.1], [-3.0, -7.0]]), np.array([[1.0, 0.3], [2.0, 1e-3], [0.7, 4.0]])
RANGES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "numbers": ({"bounds": [-0.1, 0.7]}, -0.1, 0.7),
    "by column": ({"bounds": [np.array([-1.0, 0.0]), np.array([0.1, 0.7])]}, [-1.0, 0.0], [0.1, 0.7]),
    "one end by column": ({"bounds": [-0.1, np.array([0.1, 0.7])]}, -0.1, [0.1, 0.7]),
    "by entry": ({"bounds": [LOW, HIGH]}, LOW, HIGH),
    "max_linf": ({"max_linf": 0.3}, -0.3, 0.3),
    "max_linf below bounds": ({"bounds": [-0.1, 0.7], "max_linf": 0.3}, -0.1, 0.3),
}
FORMS: dict[str, dict[str, Any]] = {
    "dense": {},
    "pattern": {"sparsity": (np.array([0, 1, 1, 2]), np.array([1, 0, 1, 0]))},
    "private positions": {"positions": "private"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", RANGES)
def test_entries_are_clipped(name: str, unit: str, form: str) -> None:
    declared, low, high = RANGES[name]
    if form == "pattern" and name == "by entry":
        pytest.skip("bounds of these entries are no bounds of that pattern")
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), SHAPE) for end in (low, high))
    parameter = dpm.Private(shape=SHAPE, unit=unit, **declared, **FORMS[form])
    stored = np.ones(SHAPE, dtype=bool)
    if form == "pattern":
        stored[:] = False
        stored[FORMS[form]["sparsity"]] = True
    for value, bound in beyond(low, high):
        value, bound = np.where(stored, value, 0.0), np.where(stored, bound, 0.0)
        parameter.value = sp.csr_array(value) if form == "private positions" else value
        np.testing.assert_array_equal(sealed(parameter), bound)


# ------------------------------------------------------------------ norms of units
def units(unit: str) -> list[Any]:
    if unit == "all":
        return [np.s_[:, :]]
    if unit == "entry":
        return list(np.ndindex(*SHAPE))
    return [np.s_[i, :] for i in range(SHAPE[0])] if unit == "row" else [np.s_[:, j] for j in range(SHAPE[1])]


def scaled(value: np.ndarray, unit: str, norms: dict[str, float]) -> np.ndarray:
    out = value.copy()
    for where in units(unit):
        for key, order in (("max_l1", 1), ("max_l2", 2)):
            size = np.linalg.norm(np.ravel(out[where]), order)
            if size > norms.get(key, math.inf):
                out[where] *= norms[key] / size
    return out


@pytest.mark.parametrize("form", ["dense", "private positions"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("norms", [{"max_l1": 1.5}, {"max_l2": 0.7}, {"max_l1": 1.5, "max_l2": 1.1}], ids=str)
def test_units_are_scaled(norms: dict[str, float], unit: str, form: str) -> None:
    """Each by itself: two units of unequal size beyond the norm at once, each of several steps."""
    parameter, rng = dpm.Private(shape=SHAPE, unit=unit, **norms, **FORMS[form]), np.random.default_rng(1)
    for step, other in itertools.product(BEYOND.values(), BEYOND.values()):
        value = rng.normal(size=SHAPE)
        every = units(unit)
        for where, way in zip((every[0], every[-1]), (step, other), strict=True):
            order, limit = (1, norms["max_l1"]) if "max_l1" in norms else (2, norms["max_l2"])
            value[where] *= min(way(limit, 1.0), 1e100) / np.linalg.norm(np.ravel(value[where]), order)
        parameter.value = sp.csr_array(value) if form == "private positions" else value
        np.testing.assert_allclose(sealed(parameter), scaled(value, unit, norms), rtol=1e-14)
        for where in every:
            for key, order in (("max_l1", 1), ("max_l2", 2)):
                size = np.linalg.norm(np.ravel(sealed(parameter)[where]), order)
                assert size <= norms.get(key, math.inf) * (1 + 2.0**-50)


# ------------------------------------------------------------------ attributes
@pytest.mark.parametrize("step", BEYOND)
@pytest.mark.parametrize("attribute", ["nonneg", "nonpos"])
def test_signs_are_refused(attribute: str, step: str) -> None:
    out = -1.0 if attribute == "nonneg" else 1.0
    with pytest.raises(SpecificationError, match=attribute):
        dpm.Private([-out, BEYOND[step](0.0, out), 0.0], linf=1, **{attribute: True})


@pytest.mark.parametrize("value", [np.nextafter(2.0, 3), 2 + 1e-9, 3.0, -1e-9, -1.0])
def test_whole_numbers_and_bits(value: float) -> None:
    """Beyond whole by more than the 1e-9 of ``integer`` is refused; a bit is never beyond 0 and 1."""
    if abs(value - round(value)) > 1e-9:
        with pytest.raises(SpecificationError, match="integer"):
            dpm.Private([value], linf=1, integer=True)
    with pytest.raises(SpecificationError, match="integer"):
        dpm.Private([round(value) + 1.01e-9], linf=1, integer=True)
    for bit, end in ((1 + 9e-10, 1.0), (-9e-10, 0.0)):
        np.testing.assert_array_equal(sealed(dpm.Private([bit], linf=1, boolean=True)), [end])
    for bit in (1 + 1.1e-9, 2.0, -1.1e-9, -1.0):
        with pytest.raises(SpecificationError, match="integer"):
            dpm.Private([bit], linf=1, boolean=True)


# ------------------------------------------------------------------ rows in blocks
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_every_part_of_a_block_is_held(step: int) -> None:
    """Two parameters of one source, unequal blocks, one of them empty: each row beyond its bounds, in every part."""
    low, high = np.array([-1.0, 0.0]), np.array([0.1, 0.7])
    for way, out in itertools.product(BEYOND.values(), (1.0, -1.0)):
        ends = [way(float(end), out) for end in (high if out > 0 else low)]
        data = np.tile([*ends, out * min(way(1.5, 1.0), 1e100)], (9, 1))
        source = MemoryBlocks(np.split(data, [2, 2, 7]))
        X = dpm.Private(SourceRows(source, lambda block: block[:, :2], 2), name="X", unit="row", bounds=[low, high])
        y = dpm.Private(SourceRows(source, lambda block: block[:, 2], None), name="y", unit="entry", max_l1=1.5)
        reader, rows = held_numbers([X, y], [vault.unseal(p) for p in (X, y)]), 0
        for number, block in enumerate(np.split(data, [2, 2, 7])):
            for (first, second), start in reader.parts(block, number, step):
                assert start == rows and len(first) == len(second) <= step
                np.testing.assert_array_equal(first, np.broadcast_to(high if out > 0 else low, first.shape))
                np.testing.assert_allclose(second, np.full(second.shape, out * 1.5), rtol=2**-50)
                rows += len(first)
        assert rows == 9


# ------------------------------------------------------------------ tables
FRAME = pd.DataFrame({"person": [1, 2, 3, 4], "age": [20.0, 30.0, 0.0, 40.0], "town": [0, 1, 0, 1]})


def table(age: float) -> pd.DataFrame:
    frame = FRAME.copy()
    frame.loc[2, "age"] = age
    return frame


@pytest.mark.parametrize("step", BEYOND)
def test_an_encoder_reads_the_bound(step: str) -> None:
    pytest.importorskip("sklearn")
    from dpmodel.learn import PublicEncoder

    encoder = PublicEncoder(bounds={"age": (0, 65)}).fit(FRAME)
    for end, out in ((65.0, 1.0), (0.0, -1.0)):
        at, over = (np.asarray(encoder.transform(table(age))) for age in (end, BEYOND[step](end, out)))
        np.testing.assert_array_equal(at, over)


@pytest.mark.parametrize("code", [2, -1])
def test_codes_beyond_a_domain(code: int) -> None:
    frame = FRAME.copy()
    frame.loc[0, "town"] = code
    people = dpm.Dataset(frame, domain={"town": 2})
    for read in (lambda: people.count(by="town"), lambda: people.rows(["town"])):
        with pytest.raises(SpecificationError):
            read()
    dropped = dpm.Dataset(frame, domain={"town": 2}, outside="drop")
    np.testing.assert_array_equal(sealed(dropped.count(by="town")), [1, 2])
    np.testing.assert_array_equal(sealed(dropped.rows(["town"]))[0], [0, 0])
    with pytest.raises(SpecificationError):
        dpm.query_release({"town": frame["town"].to_numpy()}, domain={"town": 2}, marginals=[("town",)])


# ------------------------------------------------------------------ exact systems
@pytest.mark.parametrize("value", [3, -3, float(np.nextafter(2, 3)), 2 + 1e-9])
def test_inequalities_beyond_their_bound_are_refused(value: float) -> None:
    budget = dpm.Budget(1, 1e-6)
    A, b = np.ones((50, 2)), np.full(50, 2.0)
    for rows, sides in (
        (np.where(np.arange(100).reshape(50, 2) == 7, value, A), b),
        (A, np.where(np.arange(50) == 7, value, b)),
    ):
        with pytest.raises(DPModelError, match="integers of at most that size"):
            dpm.linalg.feasible_point(rows, sides, bound=2, epsilon=1, delta=1e-6, budget=budget)
    assert budget.spent.epsilon == 0
