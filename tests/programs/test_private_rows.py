"""What is publicly said of private rows, against random databases inside the annotations and their neighbours."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.marks import Private, Records
from dpmodel.programs.rows import PrivateRows, plain_linear, private_rows, public_polyhedron

Values = dict[str, np.ndarray]
TABLE = np.array([[0.5, -1.0, 2.0, 0.0], [1.0, 1.0, 0.0, -3.0]])


@dataclass(frozen=True)
class Case:
    """``rows(values, x)`` : all private rows ``G x - h`` in any order, written in NumPy.

    ``owned`` : what record i owns, as (name, index) pairs; ``reach`` : how many rows it reaches, counted by hand;
    ``scale`` : size of random values before clipping.
    """

    write: Callable[[], tuple[dpm.Problem, list[Private]]]
    rows: Callable[[Values, np.ndarray], np.ndarray]
    owned: Callable[[int], list[tuple[str, Any]]]
    records: int
    reach: int
    absent: bool = False
    relative: bool = False
    scale: float = 2.0
    add_remove: bool = field(default=False)


def bounded_rows(**how: Any) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    """``A x <= 3`` on {0 <= x <= 2, sum x <= 3}, a row per record."""

    def write() -> tuple[dpm.Problem, list[Private]]:
        A = Private(shape=(4, 3), name="A", unit="row", **(how or {"bounds": [-1, 1]}))
        x = cp.Variable(3, bounds=[0, 2])
        return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= 3, cp.sum(x) <= 3]), [A]

    return write


def auxiliaries(records: int) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    """``A x - b <= t`` with a variable t_i per record: columns that stand in one row each."""

    def write() -> tuple[dpm.Problem, list[Private]]:
        people = Records()
        A = Private(shape=(records, 3), name="A", unit="row", bounds=[-1, 1], records=people)
        b = Private(shape=records, name="b", unit="entry", bounds=[-2, 2], records=people)
        x, t = cp.Variable(3, bounds=[-1, 1]), cp.Variable(records, bounds=[0, 5])
        return dpm.Problem(cp.Minimize(cp.sum(t)), [A @ x - b <= t]), [A, b]

    return write


def covering(neighbors: Any, **how: Any) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    def write() -> tuple[dpm.Problem, list[Private]]:
        A = Private(shape=(4, 3), name="A", unit="row", records=Records(neighbors=neighbors), **how)
        x = cp.Variable(3, bounds=[0, 1])
        return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, cp.sum(x) <= 2]), [A]

    return write


def several_parameters() -> tuple[dpm.Problem, list[Private]]:
    """Row i of A, entry i of b and row i of C belong to one record; signs of x are free."""
    people = Records()
    A = Private(shape=(4, 3), name="A", unit="row", max_l2=1.5, records=people)
    b = Private(shape=4, name="b", unit="entry", bounds=[-1, 2], records=people)
    C = Private(shape=(4, 3), name="C", unit="row", bounds=[0, 1], records=people)
    x = cp.Variable(3, bounds=[-2, 1])
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= b + 1, C @ x >= -1, 2 * x[0] + A[:, 1] * x[1] <= 7])
    return problem, [A, b, C]


def together(norm: str, *starts: int) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    """Two or three tables of unequal norm and factor in one row, and a public entry; where they start, in columns."""

    def write() -> tuple[dpm.Problem, list[Private]]:
        people = Records()
        made = [
            Private(shape=(4, 2), name=name, unit="row", records=people, **{norm: size})
            for name, size in zip("ABC", (1.0, 3.0, 0.5), strict=True)
        ][: len(starts)]
        x = cp.Variable(6, bounds=[-1, 2])
        terms = [f * p @ x[at : at + 2] for p, f, at in zip(made, (2.0, -1.0, 4.0), starts, strict=False)]
        return dpm.Problem(cp.Minimize(cp.sum(x)), [sum(terms[1:], terms[0]) + 0.5 * x[0] <= 3]), made

    return write


def in_row(*starts: int) -> Callable[[Values, np.ndarray], np.ndarray]:
    def rows(v: Values, x: np.ndarray) -> np.ndarray:
        terms = [f * v[n] @ x[at : at + 2] for n, f, at in zip("ABC", (2.0, -1.0, 4.0), starts, strict=False)]
        return np.asarray(np.sum(terms, axis=0) + 0.5 * x[0] - 3)

    return rows


def equalities() -> tuple[dpm.Problem, list[Private]]:
    people = Records()
    A = Private(shape=(3, 2), name="A", unit="row", max_l1=1, records=people)
    b = Private(shape=3, name="b", unit="entry", bounds=[0, 1], records=people)
    x = cp.Variable(2, nonneg=True)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x + 2 * x[0] == b, cp.sum(x) == 1]), [A, b]


def entries() -> tuple[dpm.Problem, list[Private]]:
    A = Private(shape=(3, 2), name="A", unit="entry", bounds=[-1, 2])
    x = cp.Variable(2, bounds=[-1, 1])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= 1, A[0] @ x >= -5]), [A]


def columns() -> tuple[dpm.Problem, list[Private]]:
    A = Private(shape=(4, 3), name="A", unit="column", bounds=[0, 1])
    x = cp.Variable(3, bounds=[0, 1])
    return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= 1]), [A]


def mixed_rows(neighbors: Any) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    """Every constraint mixes several records, and has public coefficients of the other sign."""

    def write() -> tuple[dpm.Problem, list[Private]]:
        A = Private(shape=(4, 3), name="A", unit="row", bounds=[0, 1], records=Records(neighbors=neighbors))
        x = cp.Variable(3, bounds=[0, 1])
        mix = np.array([[2.0, 0.1, 0, 0], [0, 0, 1, 0]])
        return dpm.Problem(cp.Minimize(cp.sum(x)), [mix @ A @ x <= 1.5 * x[0] + 1.5 * x[1] + 1]), [A]

    return write


def sides(**how: Any) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    """Public coefficients, private right-hand sides."""

    def write() -> tuple[dpm.Problem, list[Private]]:
        b = Private(shape=2, name="b", **how)
        x = cp.Variable(4, bounds=[-1, 1])
        return dpm.Problem(cp.Minimize(cp.sum(x)), [TABLE @ x <= b, x[0] + x[1] <= 1]), [b]

    return write


def unbounded(neighbors: Any = "replace-one", **variable: Any) -> Callable[[], tuple[dpm.Problem, list[Private]]]:
    def write() -> tuple[dpm.Problem, list[Private]]:
        people = Records(neighbors=neighbors)
        A = Private(shape=(4, 3), name="A", unit="row", records=people)
        b = Private(shape=4, name="b", unit="entry", records=people)
        x = cp.Variable(3, **variable)
        return dpm.Problem(cp.Minimize(cp.sum(x)), [A @ x <= b, cp.sum(x) <= 1]), [A, b]

    return write


def row_of(*names: str) -> Callable[[int], list[tuple[str, Any]]]:
    return lambda i: [(name, i) for name in names]


def paired(v: Values, x: np.ndarray) -> np.ndarray:
    return v["A"] @ x - v["b"]


CASES: dict[str, Case] = {
    "rows": Case(bounded_rows(), lambda v, x: v["A"] @ x - 3, row_of("A"), 4, 1),
    "rows of 1-norm": Case(bounded_rows(max_l1=1.5), lambda v, x: v["A"] @ x - 3, row_of("A"), 4, 1),
    "rows of 2-norm": Case(bounded_rows(max_l2=1.5, nonneg=True), lambda v, x: v["A"] @ x - 3, row_of("A"), 4, 1),
    "rows, sparse": Case(
        bounded_rows(sparsity=(np.array([0, 0, 1, 3]), np.array([0, 2, 1, 2])), bounds=[0, 2]),
        lambda v, x: np.delete(v["A"] @ x - 3, 2), row_of("A"), 4, 1,
    ),
    "auxiliaries": Case(
        auxiliaries(4), lambda v, x: v["A"] @ x[4:] - v["b"] - x[:4], row_of("A", "b"), 4, 1
    ),
    "covering": Case(covering("replace-one", bounds=[0, 1], max_l1=2), lambda v, x: 1 - v["A"] @ x, row_of("A"), 4, 1),
    "covering, absent": Case(
        covering("add-remove", bounds=[0, 1]),
        lambda v, x: np.where((v["A"] != 0).any(axis=1), 1 - v["A"] @ x, 0.0),
        row_of("A"), 4, 1, absent=True, add_remove=True,
    ),
    "several parameters": Case(
        several_parameters,
        lambda v, x: np.r_[v["A"] @ x - v["b"] - 1, -1 - v["C"] @ x, 2 * x[0] + v["A"][:, 1] * x[1] - 7],
        row_of("A", "b", "C"), 4, 3,
    ),
    **{
        f"together in a row, {norm}, from columns {starts}": Case(
            together(norm, *starts), in_row(*starts), row_of(*"ABC"[: len(starts)]), 4, 1
        )
        for norm in ("max_l1", "max_l2") for starts in ((0, 2), (0, 1), (1, 1), (0, 2, 4), (0, 1, 2))
    },
    "equalities": Case(
        equalities,
        lambda v, x: (lambda r: np.r_[r, -r])(v["A"] @ x + 2 * x[0] - v["b"]),
        row_of("A", "b"), 3, 2,
    ),
    "entries": Case(
        entries,
        lambda v, x: np.r_[v["A"] @ x - 1, -5 - v["A"][0] @ x], lambda i: [("A", (i % 3, i // 3))], 6, 2,
    ),
    "columns": Case(columns, lambda v, x: v["A"] @ x - 1, lambda i: [("A", (slice(None), i))], 3, 4),
    "mixed records": Case(
        mixed_rows("replace-one"),
        lambda v, x: np.array([[2.0, 0.1, 0, 0], [0, 0, 1, 0]]) @ v["A"] @ x - 1.5 * (x[0] + x[1]) - 1,
        row_of("A"), 4, 1,
    ),
    "mixed records, add-remove": Case(
        mixed_rows("add-remove"),
        lambda v, x: np.array([[2.0, 0.1, 0, 0], [0, 0, 1, 0]]) @ v["A"] @ x - 1.5 * (x[0] + x[1]) - 1,
        row_of("A"), 4, 1, add_remove=True,
    ),
    "sides": Case(sides(bounds=[-1, 2]), lambda v, x: TABLE @ x - v["b"], lambda i: [("b", slice(None))], 1, 2),
    "sides by entry": Case(
        sides(unit="entry", bounds=[-1, 2]), lambda v, x: TABLE @ x - v["b"], row_of("b"), 2, 1
    ),
    "no bounds": Case(unbounded(bounds=[-1, 3]), paired, row_of("A", "b"), 4, 1, relative=True),
    "no bounds, simplex": Case(unbounded(nonneg=True), paired, row_of("A", "b"), 4, 1, relative=True),
    "no bounds, absent": Case(
        unbounded("add-remove", bounds=[-1, 3]), paired, row_of("A", "b"), 4, 1,
        absent=True, relative=True, add_remove=True,
    ),
    "no bounds, a fixed column": Case(
        unbounded(bounds=[np.array([0, 0, -1.0]), np.array([1, 0, 2.0])]), paired, row_of("A", "b"), 4, 1, relative=True
    ),
    "no bounds, huge": Case(
        unbounded(bounds=[-1, 3]), paired, row_of("A", "b"), 4, 1, relative=True, scale=1e200
    ),
    "no bounds, tiny": Case(
        unbounded(bounds=[-1, 3]), paired, row_of("A", "b"), 4, 1, relative=True, scale=1e-310
    ),
}  # fmt: skip


class Opened:
    """A case with its problem, and values as they are sealed (clipped)."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.case = CASES[name]
        self.problem, self.parameters = self.case.write()
        self.model = self.problem._model(None)
        self.info: PrivateRows = private_rows(self.model)
        self.polytope = public_polyhedron(self.model)
        self.rng = np.random.default_rng(seed)

    def draw(self) -> Values:
        """Random values, often at the ends of what is allowed, some units empty."""
        values = {}
        for parameter in self.parameters:
            size = self.case.scale * self.rng.choice([0.3, 1.0, 10.0], size=parameter.shape)
            values[parameter.name()] = self.rng.normal(size=parameter.shape) * size
            if parameter.attributes["nonneg"]:
                values[parameter.name()] = np.abs(values[parameter.name()])
            if self.case.add_remove and self.rng.random() < 0.5:
                for i in np.flatnonzero(self.rng.random(self.case.records) < 0.3):
                    self.clear(values, int(i))
        return values

    def clear(self, values: Values, i: int) -> None:
        for name, index in self.case.owned(i):
            if name in values:
                values[name][index] = 0.0

    def neighbour(self, values: Values) -> Values:
        """One record replaced, or taken away."""
        other = {name: value.copy() for name, value in values.items()}
        i = int(self.rng.integers(self.case.records))
        if self.case.add_remove:
            self.clear(other, i)
            return other
        fresh = self.draw()
        for name, index in self.case.owned(i):
            other[name][index] = fresh[name][index]
        return other

    def sealed(self, values: Values) -> tuple[Values, np.ndarray, np.ndarray]:
        """The values after clipping, and G, h (dense)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for parameter in self.parameters:
                parameter.value = self._sparse(parameter, values[parameter.name()])
        theta = self.model.read_private()
        clipped = {}
        for block in self.model.affine.private_blocks:
            full = np.zeros(block.parameter.shape)
            layout = block.parameter.layout
            index = (layout.rows, layout.columns) if full.ndim == 2 else (layout.rows,)
            full[index] = theta[block.columns]
            clipped[block.name] = full
        G, h = self.info.values(theta)
        return clipped, G.toarray(), h

    @staticmethod
    def _sparse(parameter: Private, value: np.ndarray) -> np.ndarray:
        if parameter.sparse_idx is None:
            return value
        kept = np.zeros_like(value)
        kept[parameter.sparse_idx] = value[parameter.sparse_idx]
        return kept

    def point(self) -> np.ndarray:
        found = self.polytope.minimise(self.rng.normal(size=self.polytope.size))
        assert found is not None
        return found * 1.0


@pytest.mark.parametrize("name", CASES)
def test_rows_and_their_public_bounds(name: str) -> None:
    """G x - h are the constraints that were written, and every public bound holds for it."""
    opened = Opened(name)
    info, case = opened.info, opened.case
    assert plain_linear(opened.model) is None
    assert (info.absent, info.relative) == (case.absent, case.relative)
    assert info.per_record == case.reach
    low, high = info.residual_range(opened.polytope)
    tiny = 1e-9
    points = [opened.point() for _ in range(8)]
    if opened.polytope.size == 3 and not case.relative:
        points += [p / 2 + q / 2 for p, q in itertools.pairwise(points)]
    for _ in range(12):
        values, G, h = opened.sealed(opened.draw())
        assert np.isfinite(G).all() and np.isfinite(h).all() and G.shape == (info.count, opened.polytope.size)
        assert (info.lower - tiny <= G).all() and (info.upper + tiny >= G).all()
        assert (h >= info.h_lower - tiny).all() and (h <= info.h_upper + tiny).all()
        for order, bound in ((1, info.norm1), (2, info.norm2), (np.inf, info.norminf)):
            assert (np.linalg.norm(G, order, axis=1) <= bound + tiny).all()
        for x in points:
            residual = G @ x - h
            assert (residual >= low - tiny).all() and (residual <= high + tiny).all()
            expected = case.rows(values, x)
            if not info.relative:
                assert np.allclose(np.sort(expected), np.sort(residual), atol=1e-9)
            else:
                assert (np.abs(residual) <= 1 + tiny).all()
                size = np.abs(values["A"]).sum(axis=1) + np.abs(values["b"])
                clear = np.abs(expected) > 1e-6 * size  # signs agree wherever rounding cannot turn them
                if case.scale > 1e-300:
                    assert (np.sign(expected) == np.sign(residual))[clear].all()


@pytest.mark.parametrize("name", CASES)
def test_one_record_changes_few_rows_by_little(name: str) -> None:
    """Changed rows, the swing of one, and sums of any chosen subset of rows (the worst choice is searched for)."""
    opened = Opened(name, 1)
    info = opened.info
    tiny = 1e-9
    most = 0
    for _ in range(30):
        values = opened.draw()
        _, G, h = opened.sealed(values)
        _, other_G, other_h = opened.sealed(opened.neighbour(values))
        changed = np.flatnonzero((other_G != G).any(axis=1) | (h != other_h))
        most = max(most, changed.size)
        assert changed.size <= info.per_record
        choices = [[G[i] - other_G[i], G[i], -other_G[i]] for i in changed]
        for order in (1, 2):
            for i in changed:
                for row in G:
                    assert np.linalg.norm(row - other_G[i], order) <= info.swing(order) + tiny
            for chosen in itertools.product(*choices):
                total = np.sum(chosen, axis=0) if chosen else np.zeros(1)
                assert np.linalg.norm(total, order) <= info.sum_sensitivity(order) + tiny
    if opened.case.scale > 1e-300:  # rows of nearly subnormal numbers read 0 <= 0
        assert most == opened.case.reach  # the count by hand is attained: the neighbours are strong enough


@pytest.mark.parametrize("name", ["rows", "covering", "columns", "covering, absent"])
def test_swings_are_attained(name: str) -> None:
    """The bounds are not only valid but tight where rows are boxes."""
    opened = Opened(name, 2)
    low, high = opened.info.lower, opened.info.upper
    span = high - low
    assert opened.info.swing(1) == pytest.approx(min(span.sum(), 2 * opened.info.norm1))
    assert opened.info.sum_sensitivity(2) <= opened.info.per_record * np.linalg.norm(span) + 1e-12
    expected = {"rows": [[-1] * 3, [1] * 3], "covering": [[-1] * 3, [0] * 3], "columns": [[0] * 3, [1] * 3]}
    assert np.allclose([low, high], expected.get(name, expected["covering"]))


def test_residual_ranges_are_attained_by_boxes() -> None:
    opened = Opened("rows")
    assert opened.info.residual_range(opened.polytope) == pytest.approx((-6, 0), abs=1e-4)
    opened = Opened("covering, absent")  # an absent row reads 0 <= 0, not 0 <= -1
    assert opened.info.residual_range(opened.polytope) == pytest.approx((-1, 1), abs=1e-4)


@pytest.mark.parametrize("declared", [{"bounds": [1, 2]}, {"linf": 1.0, "bounds": [0, 9]}, {"bounds": [-1, 1]}])
def test_a_row_is_absent_only_where_records_come_and_go_whole(declared: dict[str, Any]) -> None:
    """Counts move by one and bounds without zero keep a row present: neither is a row that reads 0 <= 0."""
    records = Records(neighbors="add-remove")
    q = Private(shape=(3, 2), name="q", unit="row", records=records, **declared)
    x = cp.Variable(2, bounds=[0, 1])
    rows = private_rows(dpm.Problem(cp.Minimize(0), [q @ x <= 1])._model(None))
    assert rows.absent == q.vanishes == (declared == {"bounds": [-1, 1]})
    assert rows.sum_sensitivity(2) == (rows.norm2 if rows.absent else rows.swing(2))


def test_refusals() -> None:
    b = Private(shape=2, name="b", unit="entry", bounds=[0, 1])
    x, y = cp.Variable(2), cp.Variable(2, integer=True)

    def verdict(*constraints: Any) -> str:
        found = plain_linear(dpm.Problem(cp.Minimize(cp.sum(x)), list(constraints))._model(None))
        return "" if found is None else found.reason

    assert "do not bound x" in verdict(x >= b)
    assert "continuous" in verdict(x >= b, y + x >= 0)
    assert "cones" in verdict(x >= b, cp.norm2(x) <= 1)
    assert "split" in verdict(cp.norm1(x - b) <= 1, x >= -9, x <= 9)
    assert verdict(x >= b, x >= -9, x <= 9) == ""


def test_what_is_seen_to_be_endless_has_no_bound() -> None:
    """By a column that nothing stops; of sets that are not empty, and of the others an end is never missed."""
    rng, seen = np.random.default_rng(5), 0
    b = Private(shape=2, name="b", unit="entry", bounds=[0, 1])
    for _ in range(60):
        x = cp.Variable(3, nonneg=bool(rng.integers(2)))
        A, E = rng.integers(-1, 2, size=(3, 3)), rng.integers(-1, 2, size=(1, 3)) * rng.integers(2)
        model = dpm.Problem(cp.Minimize(cp.sum(x)), [x[:2] >= b, A @ x <= 4, E @ x == 0, x[0] <= 9])._model(None)
        if not model.public.feasible:
            continue
        bounded = math.isfinite(model.public.polyhedron.l1)
        assert not (model.public.endless and bounded)
        assert (plain_linear(model) is None) == bounded
        seen += model.public.endless
    assert seen > 5


def test_numbers_that_overflow_end_no_solve_and_give_no_warning() -> None:
    """One record's huge number must not decide whether a solve fails or warns."""
    people = Records("people")
    A = Private(np.ones((4, 2)), unit="row", name="A", records=people)
    b = Private(np.array([1.7e308, 1.0, 1.0, 1.0]), unit="entry", name="b", records=people)
    x = cp.Variable(2, bounds=[0, 1])
    problem = dpm.Problem(cp.Minimize(0), [A @ x <= 2 * b])
    for mechanism in ("dense-multiplicative-weights", "noisy-hinge-descent", "point-exponential"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", dpm.errors.NotPrivateWarning)
            warnings.simplefilter("ignore", dpm.errors.NoGuaranteeWarning)
            problem.solve(10.0, 1e-6, mechanism=mechanism, rng=0)
        assert x.value is not None and np.isfinite(x.value).all()
