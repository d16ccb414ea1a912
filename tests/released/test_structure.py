"""What structure.py sees in arrays, and what it refuses to see."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from dpmodel.errors import InfeasibleError
from dpmodel.released.constraints import require_consistent
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing
from dpmodel.released.structure import Chains, Margins, Sums, margins_of, separable, structure


def recognise(form, shape=None):
    return structure(Postprocessing(form, (), shape=shape))


def _form(n, **rows):
    return LikelihoodForm.of(sp.eye_array(n), np.arange(n, dtype=float), square=1, **rows)


def _steps(n):
    return sp.diags_array([np.ones(n - 1), -np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n)).tocsr()


def _margin_rows(shape, margins):
    cells = np.array(np.unravel_index(np.arange(int(np.prod(shape))), shape))
    rows = []
    for m in margins:
        sizes = [shape[a] for a in m]
        label = np.ravel_multi_index([cells[a] for a in m], sizes) if m else np.zeros(cells.shape[1], dtype=int)
        count = int(np.prod(sizes)) if m else 1
        ones = np.ones(label.size)
        rows.append(sp.csr_array((ones, (label, np.arange(label.size))), shape=(count, label.size)))
    return sp.csr_array(sp.vstack(rows))


def test_separable_collects_measurements_of_one_entry():
    form = LikelihoodForm.of(
        [[2, 0], [1, 0], [0, -1], [0, 0]], [4, 5, 3, 7], absolute=[1, 0, 2, 1], square=[0, 3, 0, 1], linear=[6, 1]
    )
    single = separable(form)
    assert single.curvature.tolist() == [6, 0]
    assert single.centre.tolist() == [5 - 1, 0] and single.derivative.tolist() == [0, 1]
    assert single.owner.tolist() == [0, 1] and single.point.tolist() == [2, -3] and single.weight.tolist() == [2, 2]


def test_a_measurement_of_two_entries_is_not_separable():
    found = recognise(LikelihoodForm.of([[1, 1]], 0, square=1))
    assert found.kind is None and "several" in found.reason


def test_sums():
    found = recognise(_form(5, equality=[[1, 2, 0, 0, 0]], equality_value=3, inequality=[[0, 0, 0, 1, -1]]))
    assert found.kind == "sums" and isinstance(found.coupling, Sums)
    assert found.coupling.group.tolist() == [0, 0, -1, 1, 1]
    assert found.coupling.coefficient.tolist() == [1, 2, 0, 1, -1]
    assert found.coupling.equality.tolist() == [True, False]


def test_chains_in_any_order_and_scale():
    order = np.array([3, 0, 4, 1, 2])
    rows = np.zeros((4, 5))
    for k, (a, b) in enumerate(pairwise(order)):
        rows[k, a], rows[k, b] = k + 1, -(k + 1)
    rows = rows[[2, 0, 3, 1]]
    found = recognise(_form(5, inequality=np.vstack([rows, 2 * rows[:1]])))
    assert found.kind == "chains" and isinstance(found.coupling, Chains)
    assert found.coupling.order.tolist() == order.tolist() and found.coupling.start.tolist() == [0, 5]


@pytest.mark.parametrize(
    "rows,why",
    [
        ([[1, -1, 0], [0, 1, -1], [-1, 0, 1]], "circle"),
        ([[1, -1, 0], [1, 0, -1]], "not a chain"),
        ([[1, -1, 0], [0, 1, -2]], "differences"),
        ([[1, -1, 0], [1, 1, 1]], "several"),
    ],
)
def test_what_is_not_a_chain(rows, why):
    found = recognise(_form(3, inequality=rows))
    assert found.kind is None and why in found.reason


def test_bounds_that_change_along_a_chain_are_refused():
    found = recognise(_form(3, inequality=_steps(3), upper=[0, 5, 5]))
    assert found.kind is None and "change along it" in found.reason
    # Bounds that others imply do not count.
    implied = recognise(_form(3, inequality=_steps(3), lower=[1, 0, -1], upper=[7, 5, 3]))
    assert (
        implied.kind == "chains" and implied.coupling.lower.tolist() == [1] and implied.coupling.upper.tolist() == [3]
    )


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3), (4,), (3, 1, 2)])
def test_margins_are_found_again(shape):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 9, shape).astype(float).ravel()
    for size in range(1, len(shape) + 1):
        for margins in combinations([m for k in range(len(shape)) for m in combinations(range(len(shape)), k)], size):
            E = _margin_rows(shape, margins)
            scale = rng.choice([-2.0, 0.5, 1.0], E.shape[0])
            order = rng.permutation(E.shape[0])
            A = sp.csr_array(sp.diags_array(scale) @ E)[order]
            found = margins_of(A, (A @ truth), shape)
            assert isinstance(found, Margins)
            for axes, target in zip(found.axes, found.targets, strict=True):
                out = tuple(a for a in range(len(shape)) if a not in axes)
                np.testing.assert_allclose(truth.reshape(shape).sum(axis=out), target)
            # Axes with one category may be named or not.
            wide = {tuple(a for a in m if shape[a] > 1) for m in margins}
            assert {tuple(a for a in m if shape[a] > 1) for m in found.axes} == wide


def test_what_is_not_a_whole_margin():
    shape = (2, 3)
    E = _margin_rows(shape, [(0,), (1,)])
    e = np.ones(5)
    assert margins_of(E, e, shape) is not None
    assert margins_of(E[1:], e[1:], shape) is None  # a cell of the margin is missing
    uneven = E.tolil()
    uneven[0, 0] = 2
    assert margins_of(sp.csr_array(uneven), e, shape) is None
    moved = E.toarray()
    moved[0] = np.roll(moved[0], 1)
    assert margins_of(sp.csr_array(moved), e, shape) is None
    swapped = E.toarray()
    swapped[2] = [1, 0, 0, 0, 1, 0]
    assert margins_of(sp.csr_array(swapped), e, shape) is None
    with pytest.raises(InfeasibleError, match="twice"):
        margins_of(sp.csr_array(sp.vstack([E, E[:1]])), np.append(e, 2.0), shape)


def test_margins_need_equal_squares_no_bounds_and_a_shape():
    E = _margin_rows((2, 3), [(0,), (1,)])
    e = E @ np.arange(6.0)
    assert recognise(_form(6, equality=E, equality_value=e), (2, 3)).kind == "margins"
    assert recognise(_form(6, equality=E, equality_value=e)).kind is None
    assert "bounds" in recognise(_form(6, equality=E, equality_value=e, lower=0), (2, 3)).reason
    uneven = LikelihoodForm.of(sp.eye_array(6), 0, square=np.arange(1, 7), equality=E, equality_value=e)
    assert "equal weights" in recognise(uneven, (2, 3)).reason
    laplace = LikelihoodForm.of(sp.eye_array(6), 0, absolute=1, equality=E, equality_value=e)
    assert "equal weights" in recognise(laplace, (2, 3)).reason


@pytest.mark.parametrize(
    "form,why",
    [
        (_form(2, lower=2, upper=1), "at least 2 and at most 1"),
        (_form(2, equality=[[0, 0]], equality_value=1), "left side is at (least|most) 0"),
        (_form(2, inequality=[[0, 0]], inequality_value=-1), "left side is at (least|most) 0"),
        (_form(3, equality=[[1, 1, 1]], equality_value=-1, lower=0, upper=2), "at least 0"),
        (_form(3, equality=[[1, 1, 1]], equality_value=7, lower=0, upper=2), "at most 6"),
        (_form(3, inequality=[[1, -1, 0]], inequality_value=-5, lower=0, upper=2), "at least -2"),
    ],
)
def test_contradictions(form, why):
    with pytest.raises(InfeasibleError, match=why):
        require_consistent(Postprocessing(form, ()))


def test_bounds_that_contradict_each_other_along_a_chain():
    assert "chain" in recognise(_form(3, inequality=_steps(3), lower=[4, 0, 0], upper=[9, 9, 3])).reason


def test_rounding_in_bounds_and_totals_is_no_contradiction():
    assert recognise(_form(2, lower=1 + 1e-13, upper=1)).kind == "box"
    assert recognise(_form(3, equality=[[1, 1, 1]], equality_value=6 + 1e-12, lower=0, upper=2)).kind == "sums"


def test_whole_numbers_under_sums_and_linear_terms_are_left_to_others():
    assert "integers" in recognise(_form(3, equality=[[1, 1, 1]], equality_value=3, integer=True)).reason
    sloped = LikelihoodForm.of(sp.csr_array((0, 2)), np.zeros(0), linear=1, equality=[[1, 1]], equality_value=3)
    assert "linear" in recognise(sloped).reason
