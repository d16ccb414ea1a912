"""Expressions grown at random are read as the numbers that CVXPY gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.errors import UnsupportedModelError
from dpmodel.joint.expressions import Reader
from dpmodel.joint.leaves import Flat, Public
from dpmodel.joint.terms import ALL, Terms
from dpmodel.marks.private import Private

PEOPLE = dpm.Records("people")


def _value(terms: Terms, x: Any, rows: Any, aside: Any) -> Any:
    """The numbers of ``terms`` at shares x (n, k) of people with these rows of data."""
    factor = np.ones((len(x), terms.place.size)) * terms.number
    shared, owned = terms.share >= 0, (terms.datum >= 0) & (terms.share != ALL)
    factor[:, shared] *= x[:, terms.share[shared]]
    factor[:, owned] *= rows[:, terms.datum[owned]]
    nobodys = terms.share == ALL
    whole = nobodys & (terms.datum >= 0)
    factor[:, whole] *= aside[terms.datum[whole]]
    each = np.zeros((len(x), terms.places))
    np.add.at(each, (slice(None), terms.place), factor)
    if terms.axis is None:
        once = np.zeros((len(x), terms.places))
        np.add.at(once, (slice(None), terms.place[nobodys]), factor[:, nobodys])
        return ((each - once).sum(axis=0) + once[0]).reshape(terms.shape)
    assert not nobodys.any()
    return np.moveaxis(each.reshape(len(x), *(d for a, d in enumerate(terms.shape) if a != terms.axis)), 0, terms.axis)


class _Grown:
    """An expression in shares and private rows, the same of plain numbers, and which axis is the record."""

    def __init__(self, rng: np.random.Generator, n: int, k: int) -> None:
        self.rng, self.n = rng, n
        self.x = dpm.Shares((n, k), records=PEOPLE, nonneg=True, name="x")
        self.values, self.shares, self.number = rng.normal(size=(n, k)), rng.random((n, k)), rng.normal(size=n)
        v = Private(self.values, unit="row", records=PEOPLE, name="v")
        w = Private(self.number, unit="entry", records=PEOPLE, name="w")
        y = cp.Variable((n, k))
        y.value = self.shares
        start = int(rng.integers(4))
        self.made: Any = [self.x, v, cp.multiply(v, self.x), cp.multiply(w[:, None], self.x)][start]
        c, d = cp.Constant(self.values), cp.Constant(self.number)
        self.plain: Any = [y, c, cp.multiply(c, y), cp.multiply(d[:, None], y)][start]
        self.axis, self.private, self.w, self.d = 0, start > 0, w, d

    def both(self, step: Callable[[Any], Any], axis: int | None = None) -> None:
        self.made, self.plain = step(self.made), step(self.plain)
        self.axis = self.axis if axis is None else axis

    def grow(self) -> None:
        shape, axis, rng = tuple(self.made.shape), self.axis, self.rng
        others = [a for a in range(len(shape)) if a != axis]
        kind = int(rng.integers(12))
        if kind == 0:
            self.both(lambda e: e.T, len(shape) - 1 - axis)
        elif kind == 1:
            public = rng.normal(size=[d if rng.random() < 0.7 else 1 for d in shape])
            self.both(lambda e: e + public if self.private and public.shape[axis] > 1 else cp.multiply(e, public))
        elif kind == 2 and others:
            a = others[int(rng.integers(len(others)))]
            pick = rng.integers(shape[a], size=int(rng.integers(1, 4))).tolist()
            key = tuple(pick if b == a else slice(None) for b in range(len(shape)))
            self.both(lambda e: e[key])
        elif kind == 3 and len(shape) < 4:
            at = int(rng.integers(len(shape) + 1))
            key = tuple([slice(None)] * at + [None])
            self.both(lambda e: e[key], axis + (at <= axis))
        elif kind == 4 and len(others) > 1:
            a = others[int(rng.integers(len(others)))]
            self.both(lambda e: cp.sum(e, axis=a), axis - (a < axis))
        elif kind == 5 and others:
            a = others[int(rng.integers(len(others)))]
            self.both(lambda e: cp.cumsum(e, axis=a) if len(shape) <= 2 else -e)
        elif kind == 6 and len(shape) == 2:
            table = rng.normal(size=(shape[1 - axis], 2)) * (rng.random((shape[1 - axis], 2)) < 0.7)
            table = sp.csr_array(table) if rng.random() < 0.5 else table
            self.both((lambda e: e @ table) if axis == 0 else (lambda e: table.T @ e))
        elif kind == 7 and len(shape) == 2:
            stack = cp.hstack if axis == 0 else cp.vstack
            self.both(lambda e: stack([e, 2 * e]))
        elif kind == 8 and len(shape) == 2 and axis == 0 and not self.private:
            self.made = cp.multiply(self.made, cp.reshape(self.w, (self.n, 1), order="C"))
            self.plain = cp.multiply(self.plain, cp.reshape(self.d, (self.n, 1), order="C"))
            self.private = True
        elif kind == 9 and axis == 0 and len(shape) > 1:
            rest = int(np.prod(shape[1:]))
            order = "FC"[int(rng.integers(2))]
            self.both(lambda e: cp.reshape(e, (self.n, rest), order=order))
        elif kind == 10:
            other, plain = self.made, self.plain
            self.made, self.plain = self.made / 3 - other, self.plain / 3 - plain
        elif kind == 11 and len(shape) == 2 and rng.random() < 0.5:
            flat = "FC"[int(rng.integers(2))]
            self.both(lambda e: cp.reshape(cp.vec(e, order=flat), shape, order=flat))

    def compare(self) -> None:
        reader = Reader(self.x)
        rows = {"v": self.values, "w": self.number[:, None]}
        finals: list[Callable[[Any], Any]] = [lambda e: e, cp.sum, lambda e: cp.sum(e, axis=self.axis)]
        if self.made.ndim == 2:
            weights = self.rng.normal(size=self.n)
            public = not self.private
            finals.append(lambda e: (weights @ e if self.axis == 0 else e @ weights) if public else cp.sum(e, axis=0))
        finals.append(lambda e: cp.sum(cp.vec(e, order="F")))
        for final in finals:
            try:
                found = reader.read(final(self.made))
            except UnsupportedModelError as refused:
                assert self.private and "multiplied by another number" in refused.why
                continue
            assert not isinstance(found, Public | Flat)
            data = [rows[c.name] if isinstance(c.source, Private) else c.source for c in reader.columns]
            table = np.concatenate([np.zeros((self.n, 0)), *data], axis=1)
            expected = final(self.plain).value
            np.testing.assert_allclose(
                _value(found, self.shares, table, np.zeros(0)), expected, rtol=1e-9, atol=1e-9, err_msg=str(self.made)
            )


@pytest.mark.parametrize("seed", range(150))
def test_grown_expressions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # As many records as entries, too: which axis is the record is never told by its length.
    n, k = [(5, 3), (3, 3), (2, 4), (1, 3)][seed % 4]
    grown = _Grown(rng, n, k)
    for _ in range(int(rng.integers(1, 7))):
        grown.grow()
    grown.compare()
