"""A private parameter fails closed, checks what it is told, and derives its bounds rightly."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from walking import assert_no_trace

from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import footprint
from dpmodel.errors import PublicPatternWarning, SpecificationError
from dpmodel.marks import DEFAULT_RECORDS, Private, Records, vault

SECRET = np.array([7321.4375, 8642.8125, 9753.15625])


def secret_parameter(**given: Any) -> Private:
    return Private(SECRET, **{"name": "demand", "unit": "entry", "linf": 1, **given})


# --------------------------------------------------------------------------------- fails closed
def test_value_reads_none_in_every_state() -> None:
    p = Private(shape=3, unit="entry", linf=1)
    states: list[Callable[[], object]] = [
        lambda: None,
        lambda: setattr(p, "value", SECRET),
        lambda: p.save_value(SECRET),
        lambda: setattr(p, "value_sparse", sp.coo_array(SECRET.reshape(1, 3)).reshape(3)),
        lambda: p.project_and_assign(SECRET),
        lambda: setattr(p, "value", None),
    ]
    for sensitivity in states:
        sensitivity()
        assert p.value is None and p.value_sparse is None and p._value is None
    assert not p.has_value


@pytest.mark.parametrize("attributes", [{}, {"nonneg": True, "bounds": [0, 10_000]}])
def test_no_attribute_of_anything_shows_the_value(attributes: dict[str, Any]) -> None:
    p = secret_parameter(**attributes)
    x = cp.Variable(3, name="x")
    expressions = [2 * p + 1, cp.sum(p), p[1:], x - p, cp.norm1(x - p)]
    constraints = [x >= p, cp.sum(x) <= cp.sum(p)]
    problem = cp.Problem(cp.Minimize(cp.norm1(x - p) + p @ x), constraints)
    x.value = np.zeros(3)
    assert_no_trace([p, *expressions, *constraints, problem, lower(problem)], [SECRET])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = problem.get_problem_data(cp.CLARABEL)
    assert_no_trace([problem, data], [SECRET])
    assert_no_trace([footprint(lower(problem).affine)], [SECRET])


def test_sparse_matrix_symmetric_and_diagonal_values_stay_hidden() -> None:
    dense = np.diag(SECRET)
    parameters = [
        Private(sp.coo_array(dense), linf=1, sparsity=(np.arange(3), np.arange(3))),
        Private(dense, linf=1, symmetric=True),
        Private(dense, linf=1, diag=True),
        Private(dense, linf=1, PSD=True),
        Private(dense, unit="row", linf=1),
    ]
    x = cp.Variable(3)
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [p @ x >= 1 for p in parameters])
    assert_no_trace([*parameters, problem, lower(problem)], [SECRET])


def test_the_walk_can_find_a_trace() -> None:
    class Holder:
        __slots__ = ("inner",)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

    plain = cp.Parameter(3, value=SECRET)
    leaks = [
        plain,
        cp.Problem(cp.Minimize(0), [cp.Variable(3) >= plain]),
        {"a": [SECRET[1]]},
        -SECRET,
        sp.csr_array(SECRET.reshape(1, 3)),
        cp.Constant(SECRET) + cp.Variable(3),
        f"{SECRET[0]:.4f}",
        ValueError(SECRET),
        [np.array([SECRET[2], None], dtype=object)],
    ]
    for leak in leaks:
        with pytest.raises(AssertionError):
            assert_no_trace([leak], [SECRET])
    Holder.__module__ = "tests.holder"
    with pytest.raises(AssertionError):
        assert_no_trace([Holder(SECRET)], [SECRET])
    with pytest.raises(AssertionError, match="nothing to look for"):
        assert_no_trace([], [np.zeros(2)])


def test_a_plain_solve_raises() -> None:
    p, x = secret_parameter(), cp.Variable(3)
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [x >= p])
    with pytest.raises(SpecificationError, match=r"dpm\.Problem") as caught:
        problem.solve()
    assert_no_trace([caught.value, "".join(traceback.format_exception(caught.value))], [SECRET])
    assert x.value is None and problem.value is None


def test_expressions_constraints_and_objectives_have_no_value() -> None:
    p, x = secret_parameter(), cp.Variable(3)
    x.value = np.zeros(3)
    assert (2 * p).value is None and cp.sum(p).value is None and (x >= p).residual is None
    assert cp.Minimize(p @ x).value is None
    with pytest.raises(ValueError, match=r"no value|None"):
        (x >= p).violation()


def test_texts() -> None:
    p = secret_parameter()
    assert repr(p) == "Private('demand', shape=(3,), unit='entry', l1=1, l2=1, linf=1, value sealed)"
    assert "no value" in repr(Private(shape=2, linf=1)) and "unbounded" in repr(Private(shape=2, unit="entry"))
    assert_no_trace([str(p), repr(p), f"{p}", f"{p + 1}", repr(p + 1), p.format_labeled()], [SECRET])


# --------------------------------------------------------------------------------- copies
def test_the_value_is_copied() -> None:
    source = SECRET.copy()
    p = secret_parameter()
    p.value = source
    source[:] = 0
    np.testing.assert_array_equal(vault.unseal(p), SECRET)
    with pytest.raises(ValueError, match="read-only"):
        vault.unseal(p)[0] = 1.0


def test_copy_and_deepcopy() -> None:
    p = secret_parameter(records=Records("people"))
    assert copy.copy(p) is p or np.array_equal(vault.unseal(copy.copy(p)), SECRET)
    for twin in (copy.deepcopy(p), copy.deepcopy(copy.deepcopy(p))):
        assert twin is not p and twin.id != p.id and twin.records is p.records
        assert twin.value is None
        np.testing.assert_array_equal(vault.unseal(twin), SECRET)
        twin.value = np.ones(3)
        np.testing.assert_array_equal(vault.unseal(p), SECRET)
    twin = copy.deepcopy(p)
    p.value = None
    np.testing.assert_array_equal(vault.unseal(twin), SECRET)
    assert_no_trace([p, twin], [SECRET])


def test_deepcopy_of_a_problem_keeps_the_annotation() -> None:
    p, x = secret_parameter(), cp.Variable(3)
    twin = copy.deepcopy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= p, x >= 2 * p]))
    (copied,) = twin.parameters()
    assert isinstance(copied, Private) and copied is not p
    assert footprint(lower(twin).affine)["scalar"].l1 == 3.0
    np.testing.assert_array_equal(vault.unseal(copied), SECRET)
    assert_no_trace([twin], [SECRET])


def test_pickle_drops_the_value() -> None:
    p = secret_parameter(records=Records("people", neighbors="add-remove"))
    data = pickle.dumps(p)
    assert not any(number.tobytes() in data for number in SECRET)
    restored = pickle.loads(data)
    assert restored.value is None and not restored.has_value
    assert (restored.name(), restored.shape, restored.unit, restored.linf) == ("demand", (3,), "entry", 1.0)
    assert restored.sensitivity == p.sensitivity
    restored.value = SECRET
    np.testing.assert_array_equal(vault.unseal(restored), SECRET)


def test_the_vault_forgets_with_the_parameter() -> None:
    before = len(vault._values)
    for _ in range(20):
        secret_parameter()
    p = secret_parameter()
    for _ in range(3):
        p.value = None
        p.value = SECRET
    del p
    gc.collect()
    assert len(vault._values) <= before


def test_shares_memory_notices_a_view_of_the_source() -> None:
    source = SECRET.copy()
    p = secret_parameter()
    p.value = source
    assert p.shares_memory(source) and p.shares_memory(source[1:]) and p.shares_memory(source.reshape(3, 1))
    assert not p.shares_memory(source.copy()) and not p.shares_memory(3.0)
    del source
    gc.collect()
    assert not p.shares_memory(SECRET)


# --------------------------------------------------------------------------------- clipping
def test_values_are_clipped_to_bounds() -> None:
    p = Private([-5.0, 50.0, 500.0], unit="entry", bounds=[0, 100])
    np.testing.assert_array_equal(vault.unseal(p), [0, 50, 100])
    lower_, upper = np.array([0.0, 10, 20]), np.array([1.0, 11, 21])
    p = Private([-5.0, 50.0, 20.5], unit="entry", bounds=[lower_, upper])
    np.testing.assert_array_equal(vault.unseal(p), [0, 11, 20.5])
    np.testing.assert_array_equal(p.entry_caps, [1, 1, 1])


def test_units_are_scaled_to_their_norm() -> None:
    rows = np.array([[30.0, 40.0], [0.3, 0.4], [0.0, 0.0]])
    p = Private(rows, unit="row", max_l2=1)
    np.testing.assert_allclose(vault.unseal(p).reshape(2, 3).T, [[0.6, 0.8], [0.3, 0.4], [0, 0]])
    p = Private(rows, unit="row", max_l1=7)
    np.testing.assert_allclose(vault.unseal(p).reshape(2, 3).T, [[3, 4], [0.3, 0.4], [0, 0]])
    p = Private(rows, unit="column", max_linf=2)
    np.testing.assert_allclose(vault.unseal(p).reshape(2, 3).T, [[2, 2], [0.3, 0.4], [0, 0]])


def test_scaling_of_huge_and_tiny_units() -> None:
    rows = np.array([[1e200, 1e200], [3.0, 4.0], [3e-200, 4e-200], [1.7e308, 1.7e308]])
    p = Private(rows, unit="row", max_l2=1)
    norms = np.linalg.norm(vault.unseal(p).reshape(2, 4).T, axis=1)
    assert (norms <= 1 + 1e-12).all() and norms[1] == pytest.approx(1)
    np.testing.assert_allclose(vault.unseal(p).reshape(2, 4).T[2], rows[2])


def test_one_record_never_moves_another_by_a_bit() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 3)) * 5
    p = Private(rows, unit="row", max_l2=1)
    before = vault.unseal(p).reshape(3, 50).T
    rows[7] = 1e6
    p.value = rows
    after = vault.unseal(p).reshape(3, 50).T
    assert (np.delete(before, 7, axis=0) == np.delete(after, 7, axis=0)).all()


# --------------------------------------------------------------------------------- refusals
MATRIX = np.arange(6.0).reshape(3, 2) + 7321.4375
REFUSED: dict[str, Callable[[], object]] = {
    "linf above l2": lambda: secret_parameter(linf=2, l2=1),
    "l2 above l1": lambda: secret_parameter(l2=2, l1=1),
    "linf above l1": lambda: secret_parameter(linf=2, l1=1),
    "row_l1 above l1": lambda: Private(MATRIX, row_l1=2, l1=1),
    "linf above row_l1": lambda: Private(MATRIX, row_l1=1, linf=2),
    "max_l2 above max_l1": lambda: Private(MATRIX, unit="row", max_l2=2, max_l1=1),
    "max_linf above max_l2": lambda: Private(MATRIX, unit="row", max_linf=2, max_l2=1),
    "negative": lambda: secret_parameter(linf=-1),
    "zero": lambda: secret_parameter(linf=0),
    "infinite": lambda: secret_parameter(l1=math.inf),
    "NaN bound": lambda: secret_parameter(l1=math.nan),
    "bool": lambda: secret_parameter(l1=True),
    "text bound": lambda: secret_parameter(l1="1"),
    "array bound": lambda: secret_parameter(l1=SECRET),
    "the data as magnitude": lambda: Private(MATRIX, unit="row", max_l2=MATRIX),
    "complex bound": lambda: secret_parameter(l1=1j),
    "no bound on unit all": lambda: Private(SECRET),
    "half-open bounds on unit all": lambda: Private(SECRET, bounds=[0, None]),
    "unknown unit": lambda: secret_parameter(unit="person"),
    "array as unit": lambda: secret_parameter(unit=SECRET),
    "array as name": lambda: Private(SECRET, name=SECRET, linf=1),
    "records as text": lambda: secret_parameter(records="people"),
    "row of a scalar": lambda: Private(7321.4375, unit="row", linf=1),
    "column of a scalar": lambda: Private(7321.4375, unit="column", linf=1),
    "column of a vector": lambda: secret_parameter(unit="column"),
    "column of a cube": lambda: Private(np.full((2, 2, 2), 7321.4375), unit="column", linf=1),
    "row_l1 of a vector": lambda: secret_parameter(row_l1=1),
    "symmetric rows": lambda: Private(np.eye(3) * 7321.4375, unit="row", linf=1, symmetric=True),
    "PSD columns": lambda: Private(np.eye(3) * 7321.4375, unit="column", linf=1, PSD=True),
    "neither value nor shape": lambda: Private(linf=1),
    "empty": lambda: Private(np.zeros((0, 3)), linf=1),
    "empty shape": lambda: Private(shape=(3, 0), linf=1),
    "fractional shape": lambda: Private(shape=2.5, linf=1),
    "wrong shape": lambda: Private(SECRET, shape=4, linf=1),
    "ragged": lambda: Private([[7321.4375], [8642.8125, 9753.15625]], linf=1),
    "NaN value": lambda: Private([7321.4375, math.nan], linf=1),
    "infinite value": lambda: Private([7321.4375, math.inf], linf=1),
    "NaN behind the pattern": lambda: Private([[7321.4375, math.nan]], linf=1, sparsity=([0], [0])),
    "complex value": lambda: Private([7321.4375, 8642.8125j], linf=1),
    "complex attribute": lambda: Private(shape=2, linf=1, complex=True),
    "hermitian": lambda: Private(shape=(2, 2), linf=1, hermitian=True),
    "objects": lambda: Private([7321.4375, None], linf=1),
    "text": lambda: Private(["7321.4375"], linf=1),
    "an expression": lambda: Private(cp.Parameter(3, value=SECRET) + 1, linf=1),
    "broken nonneg": lambda: Private(-SECRET, linf=1, nonneg=True),
    "broken nonpos": lambda: Private(SECRET, linf=1, nonpos=True),
    "broken sparsity": lambda: Private(MATRIX, linf=1, sparsity=([0], [0])),
    "broken sparsity, sparse": lambda: Private(sp.coo_array(MATRIX), linf=1, sparsity=([0], [0])),
    "broken diag": lambda: Private(MATRIX[:2], linf=1, diag=True),
    "broken symmetric": lambda: Private(MATRIX[:2], linf=1, symmetric=True),
    "broken PSD": lambda: Private(-7321.4375 * np.eye(2), linf=1, PSD=True),
    "broken integer": lambda: Private(SECRET, linf=1, integer=True),
    "sparse without entries": lambda: Private(sp.coo_array((3, 3)), linf=1),
    "bounds that do not meet": lambda: Private(SECRET, unit="entry", bounds=[50, 100], max_linf=10),
    "sign against bounds": lambda: Private(SECRET, unit="entry", bounds=[-5, -1], nonneg=True),
    "scaling out of bounds": lambda: Private(MATRIX, unit="row", bounds=[1, 100], max_l1=3),
    "crossed bounds": lambda: Private(SECRET, unit="entry", bounds=[2, 1]),
    "unknown attribute": lambda: Private(SECRET, linf=1, colour="red"),
    "unknown neighbors": lambda: Records(neighbors="swap"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_without_showing_values(case: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        REFUSED[case]()
    error = caught.value
    assert error.what and (error.remedy or error.why or case == "unknown attribute" or "crossed" in case)
    assert error.__suppress_context__ or error.__context__ is None
    text = "".join(traceback.format_exception_only(error)) + repr(error)
    text = re.sub(r"param\d+", "", text)  # names that CVXPY counts
    for number in [*SECRET, *MATRIX.ravel()]:
        assert repr(float(number)) not in text and f"{number:.4g}" not in text


def test_a_refused_value_leaves_the_old_one() -> None:
    p = secret_parameter()
    with pytest.raises(SpecificationError):
        p.value = [1.0, math.nan, 2.0]
    np.testing.assert_array_equal(vault.unseal(p), SECRET)


@pytest.mark.parametrize("value", [[2**60 + 128, 2**60], np.array([1, 2], dtype=np.longdouble)], ids=str)
def test_numbers_that_double_precision_would_round_are_refused(value: object) -> None:
    if isinstance(value, np.ndarray) and value.dtype.itemsize <= 8:
        pytest.skip("long doubles are doubles on this platform")
    with pytest.raises(SpecificationError, match="rounded"):
        Private(value, unit="entry", linf=1)


@pytest.mark.parametrize("linf", [1e-170, 1e170])
def test_sensitivities_that_cannot_be_squared_are_refused(linf: float) -> None:
    with pytest.raises(SpecificationError, match="squared"):
        Private([1.0], unit="entry", linf=linf)


# --------------------------------------------------------------------------------- derived bounds
def test_missing_bounds_are_derived() -> None:
    p = Private(shape=(3, 4), linf=2)
    assert (p.l1, p.row_l1) == (24, 8) and p.l2 == pytest.approx(2 * math.sqrt(12))
    p = Private(shape=(3, 4), unit="row", l2=2)
    assert p.l1 == pytest.approx(4) and p.linf == 2 and p.row_l1 == pytest.approx(4)
    p = Private(shape=(3, 4), l1=5)
    assert (p.l2, p.linf, p.row_l1) == (5, 5, 5)
    p = Private(shape=(3, 4), l1=4, linf=1)
    assert p.l2 == pytest.approx(2)
    p = Private(shape=(3, 4), row_l1=1)
    assert (p.l1, p.linf) == (3, 1)
    p = Private(shape=5, unit="entry")
    assert math.isinf(p.l1) and math.isinf(p.linf) and not p.sensitivity.finite
    p = Private(shape=5, unit="entry", l1=3)
    assert (p.l1, p.l2, p.linf) == (3, 3, 3)


def test_ragged_rows_count_every_row() -> None:
    """Five stored entries in rows of 3, 1 and 1: one record may move all three rows."""
    pattern = ([0, 0, 0, 1, 2], [0, 1, 2, 1, 2])
    assert Private(shape=(3, 3), sparsity=pattern, row_l1=1).l1 == 3
    assert Private(shape=(3, 3), symmetric=True, row_l1=1).l1 == 3


@pytest.mark.parametrize("seed", range(30))
def test_derived_bounds_hold_for_random_changes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 5, size=2))
    D = rng.normal(size=shape) * (rng.random(shape) < 0.7)
    D[0, 0] = 1.0
    true = {
        "l1": np.abs(D).sum(),
        "l2": np.linalg.norm(D),
        "linf": np.abs(D).max(),
        "row_l1": np.abs(D).sum(axis=1).max(),
    }
    for _ in range(6):
        chosen = rng.choice(list(true), size=rng.integers(1, 5), replace=False)
        p = Private(shape=shape, **{key: float(true[key]) * (1 + 1e-9) for key in chosen})
        for key, value in true.items():
            assert getattr(p, key) >= value * (1 - 1e-9), (key, chosen)


def test_magnitudes_count_twice_for_replaced_and_once_for_absent_records() -> None:
    people = Records("people", neighbors="add-remove")
    for key, norm in (("max_l1", "l1"), ("max_l2", "l2"), ("max_linf", "linf")):
        assert getattr(Private(shape=(4, 3), unit="row", **{key: 1.5}), norm) == 3.0
        assert getattr(Private(shape=(4, 3), unit="row", records=people, **{key: 1.5}), norm) == 1.5
    assert Private(shape=3, unit="entry", bounds=[40, 100]).linf == 60
    assert Private(shape=3, unit="entry", bounds=[40, 100], records=people).linf == 100
    assert Private(shape=3, unit="entry", bounds=[-40, 10], records=people).linf == 40
    assert Private(shape=3, unit="entry", max_linf=2, nonneg=True).linf == 2
    assert Private(shape=3, unit="entry", max_linf=2, linf=0.5).linf == 0.5


# --------------------------------------------------------------------------------- sparse values
def test_a_sparse_value_warns_unless_the_pattern_is_declared() -> None:
    matrix = sp.csr_array(np.diag(SECRET))
    with pytest.warns(PublicPatternWarning) as record:
        p = Private(matrix, linf=1)
    assert not any(str(number) in str(record[0].message) for number in SECRET)
    assert record[0].filename == __file__
    assert p.layout.size == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicPatternWarning)
        Private(matrix, linf=1, sparsity=(np.arange(3), np.arange(3)))
        Private(matrix.toarray(), linf=1)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, np.asarray])
def test_free_entries_follow_cvxpys_order(form: Callable[..., Any]) -> None:
    dense = np.zeros((3, 4))
    row, column = np.array([2, 0, 1, 0]), np.array([3, 1, 1, 0])
    dense[row, column] = [1.0, 2.0, 3.0, 4.0]
    p = Private(form(dense), linf=1, sparsity=(row, column))
    np.testing.assert_array_equal(vault.unseal(p), dense[p.sparse_idx])
    np.testing.assert_array_equal(dense[p.layout.rows, p.layout.columns], vault.unseal(p))


def test_duplicate_stored_entries_are_added_up() -> None:
    matrix = sp.coo_array(([1.0, 2.0, 5.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    with pytest.warns(PublicPatternWarning):
        p = Private(matrix, linf=1)
    np.testing.assert_array_equal(vault.unseal(p), [3.0, 5.0])


# --------------------------------------------------------------------------------- records
def test_records_are_identities() -> None:
    people = Records("people")
    assert Records("people") != people and copy.copy(people) is people and copy.deepcopy(people) is people
    assert Private(shape=2, linf=1).records is DEFAULT_RECORDS
    assert Records() != Records() and Records().name is None
    assert repr(people) == "Records('people', neighbors='replace-one')" and repr(Records())[:18] == "Records(neighbors="
    for name in ("", 3, people):
        with pytest.raises(SpecificationError, match="name"):
            Records(name)  # type: ignore[arg-type]


def test_records_keep_their_identity_through_pickles() -> None:
    people = Records("people", neighbors="add-remove")
    one, two = (Private(shape=2, linf=1, name=n, records=people) for n in "ab")
    together = pickle.loads(pickle.dumps([one, two]))
    apart = [pickle.loads(pickle.dumps(p)) for p in (one, two)]
    assert {p.records for p in [*together, *apart]} == {people}
    assert pickle.loads(pickle.dumps(Private(shape=2, linf=1))).records is DEFAULT_RECORDS


def test_records_restored_where_they_are_unknown_are_still_the_same_people() -> None:
    people = Records("people", neighbors="add-remove")
    data = [pickle.dumps(Private(shape=2, linf=1, name=n, records=people)) for n in "ab"]
    del people
    gc.collect()
    one, two = map(pickle.loads, data)
    assert one.records is two.records and one.records.neighbors == "add-remove" and one.records.name == "people"


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [100000.4, 3 + 1e-8, 0.5])
def test_declared_whole_is_whole_at_any_size(value, sparse):
    """Discrete noise rests on it: rounding 100000.4 could move a value further than was declared."""
    given = sp.coo_array(([value], ([0], [1])), shape=(2, 2)) if sparse else [value]
    more = {"sparsity": ([0], [1])} if sparse else {}
    with pytest.raises(SpecificationError, match="integer"):
        Private(given, integer=True, unit="entry", linf=0.2, **more)


def test_bounds_the_wrong_way_round_are_called_so() -> None:
    with pytest.raises(SpecificationError, match="the lower end first"):
        Private(SECRET, unit="entry", bounds=[50, 0])


def test_a_guess_is_not_the_array_that_is_given_later() -> None:
    values = np.array([3.0, 1, 2])
    for guess in (values, values[:]):
        parameter = Private(shape=3, name="b", unit="entry", linf=1, typical=guess)
        with pytest.raises(SpecificationError, match="typical is the private array itself"):
            parameter.value = values
        assert not parameter.has_value
        parameter.value = values.copy()
        assert parameter.has_value
