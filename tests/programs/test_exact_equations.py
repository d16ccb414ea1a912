"""exact-equations under audit: what one equation more does to the released solution, and a twin with less noise."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from auditing import epsilon_lower_bound

import dpmodel as dpm
from dpmodel.contract import Options
from dpmodel.privacy import SeededSource
from dpmodel.programs.equations import EXACT_EQUATIONS

# A large delta makes the threshold small, and an audit possible: x = 3 is released or not.
OPTIONS = Options(1.0, 0.05)
RUNS = 500


class Loud(SeededSource):
    """A twin with a sixth of the noise."""

    def discrete_laplace(self, values, scale):
        return super().discrete_laplace(values, scale / 6)


def model(count: int, neighbors: str):
    """``a x == 3 a`` of ``count`` records with a = 1; the others are absent."""
    A, b = np.zeros((12, 1)), np.zeros(12)
    A[:count], b[:count] = 1, 3
    people = dpm.Records("people", neighbors)
    left = dpm.Private(A, name="A", unit="row", integer=True, records=people)
    right = dpm.Private(b, name="b", unit="entry", integer=True, records=people)
    x = cp.Variable(1)
    return dpm.Problem(cp.Minimize(0), [left @ x == right])._model(None)


def answers(source, count: int, neighbors: str) -> np.ndarray:
    built = model(count, neighbors)
    found = [EXACT_EQUATIONS.run(built, OPTIONS, source).x for _ in range(RUNS)]
    assert all(x is None or x.tolist() == [3.0] for x in found)
    return np.array([x is not None for x in found], dtype=float)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.slow
def test_audit_and_a_twin(neighbors) -> None:
    """False alarm 1e-7. The pairs stand just below the threshold, where one record counts most."""
    count = 5 if neighbors == "add-remove" else 10
    audit = epsilon_lower_bound(
        answers(SeededSource(1), count + 1, neighbors), answers(SeededSource(2), count, neighbors), delta=OPTIONS.delta
    )
    twin = epsilon_lower_bound(
        answers(Loud(3), count + 1, neighbors), answers(Loud(4), count, neighbors), delta=OPTIONS.delta
    )
    print(neighbors, audit, twin)
    assert audit <= OPTIONS.epsilon < twin
