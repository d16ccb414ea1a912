"""Query release as a private linear program: D is a histogram, x the synthetic distribution, rows are queries."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import Dataset
from dpmodel.marks.domain import Domain, Outside
from dpmodel.marks.private import Private
from dpmodel.marks.records import NEIGHBORS, Neighbors, Records
from dpmodel.problem import Problem
from dpmodel.programs.measure_and_fit import MEASURE_AND_FIT, MeasureAndFit
from dpmodel.programs.noise_once import GAUSSIAN_ONCE, LAPLACE_ONCE
from dpmodel.release import Release
from dpmodel.released.faces.workload import Marginal, Tables, checked_marginals, counts, marginal_named
from dpmodel.solve.plan import Plan
from dpmodel.text import TextTable, long_frame

Loss = Literal["mean", "max"]
Weights = dict[Marginal, float]

# Powers of two keep weighted counts exact. Zero: not measured.
_SINGLES, _TOTALS, _WIDE = (0.0, 0.5, 1.0, 2.0), (0.0, 0.5, 1.0, 2.0), (1.0, 0.5)


def automatic_weights(domain: Domain, workload: Iterable[Marginal], *, loss: Loss = "mean", total: bool) -> Weights:
    """The weights with the least forecast error for ``workload``; ``total`` : the number of records is public.

    Candidates: the workload with equal weights, or half of that for more than two columns; with every single column at
    one of four weights or none; with a private total likewise. Laplace noise grows with the sum of the weights,
    Gaussian noise with the root of their squares, and which one is drawn depends on a budget that is not known yet. So
    candidates are compared by the factor by which their error exceeds the best, for the worse of the two distributions.
    Of those within 5 % of the least, the one that measures a private total, then single columns, with the largest
    weights is taken: they hold the fit where noise drowns the cells, which least squares without bounds do not show.
    """
    workload = tuple(workload)
    candidates = _candidates(domain, workload, total)
    if not workload:
        return candidates[0]
    errors = np.array([[forecast(domain, workload, c, order, loss, total) for order in (1, 2)] for c in candidates])
    excess = (errors / errors.min(axis=0)).max(axis=1)
    close = [c for c, e in zip(candidates, excess, strict=True) if e <= excess.min() * 1.05]
    return max(close, key=lambda c: (c.get((), 0.0), sum(w for m, w in c.items() if len(m) == 1)))


def _candidates(domain: Domain, workload: tuple[Marginal, ...], total: bool) -> list[Weights]:
    columns = [(c,) for c in domain.columns if any(c in m for m in workload)]
    found: list[Weights] = []
    for single, whole, wide in itertools.product(_SINGLES, (0.0,) if total else _TOTALS, _WIDE):
        weights = {(): whole} | {m: 1.0 if len(m) <= 2 else wide for m in workload}
        weights |= {c: max(single, weights.get(c, 0.0)) for c in columns}
        weights = {m: w for m, w in weights.items() if w > 0}
        if weights not in found:
            found.append(weights)
    return found


def forecast(
    domain: Domain,
    workload: Iterable[Marginal],
    measured: Mapping[Marginal, float],
    order: int,
    loss: Loss,
    total: bool,
) -> float:
    """Standard deviation of a cell of the workload, mean over cells or largest, after least squares without bounds.

    In units of the noise scale at a change of 1: ``order`` 1 is Laplace noise, 2 Gaussian noise.

    Write x as the sum of its interactions, one per set S of columns. Counting a marginal A maps the part of S inside A
    to itself, times a factor, and other parts to 0: M_A' M_A has the eigenvalue ``prod of sizes outside A`` there. All
    marginals share these eigenspaces, so with noise of variance v_A the information on S is
    ``sum over A containing S of (that product) / v_A``. A marginal B then has the total variance
    ``sum over S in B of (dimension of S) (product of sizes outside B) / information``, the same in every cell. A
    public total makes the part of the empty set exact. Products outside a marginal are taken relative to the domain.
    """
    workload = tuple(workload)
    size = math.fsum(measured.values()) if order == 1 else math.sqrt(math.fsum(w * w for w in measured.values()))
    distribution = math.sqrt(2.0) if order == 1 else 1.0  # standard deviation of the distribution with scale 1
    precision = {frozenset(a): (w / (size * distribution)) ** 2 / domain.size(a) for a, w in measured.items()}
    variance: dict[frozenset[str], float] = {}

    def component(s: frozenset[str]) -> float:
        if s not in variance:
            known = total and not s
            information = sum(p for a, p in precision.items() if s <= a)
            dimension = math.prod(domain.size((c,)) - 1 for c in s)
            variance[s] = 0.0 if known or not dimension else dimension / information
        return variance[s]

    cells = np.array([domain.size(b) for b in workload], dtype=np.float64)
    parts = [
        [component(frozenset(s)) for k in range(len(b) + 1) for s in itertools.combinations(b, k)] for b in workload
    ]
    sigma: Floats = np.sqrt(np.array([math.fsum(p) for p in parts]) / cells**2)
    return float(sigma.max() if loss == "max" else cells @ sigma / cells.sum())


# ------------------------------------------------------------------ the release


Over = Literal["auto", "domain", "marginals"]

# Up to this many cells x is one table over the whole domain.
MOST_CELLS = 1_000_000
# Mechanisms that measure every answer once, and differ in how they fit what contradicts itself.
_ONCE = (MEASURE_AND_FIT.name, LAPLACE_ONCE.name, GAUSSIAN_ONCE.name)
# Arguments of ``Problem.solve`` that plans do not have.
_OF_SOLVE = ("budget", "verbose", "progress", "rng", "solver_options")


@dataclass(frozen=True)
class MarginalAnswer:
    """A released marginal: ``values`` with one axis per column, ``columns`` their names, ``categories`` the values
    along each axis. Works as an array in NumPy."""

    columns: Marginal
    values: Floats
    categories: tuple[tuple[Any, ...], ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.values, dtype=dtype)

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with one row per cell: the columns' values, and ``value``; errors as ``Release.to_frame``."""
        labels = tuple(zip(self.columns, self.categories, strict=True))
        return long_frame({"value": self.values}, labels, backend)


@dataclass(frozen=True, repr=False)
class QueryRelease:
    """A query release problem. ``problem`` is an ordinary ``Problem``: classify, plan, solve and explain it.

    ``x`` : its variable, non-negative cells. ``over`` : "domain" when x is one table over the whole domain,
    "marginals" when it is one table per marginal of the workload (and per set of columns that two of them share).
    ``measured`` : the marginals whose cells are private right-hand sides, with their weights; ``()`` is the total.
    ``loss`` : the error that was asked to be small, "mean" or "max".
    """

    problem: Problem
    x: cp.Variable
    over: str
    domain: Domain
    workload: tuple[Marginal, ...]
    measured: Mapping[Marginal, float]
    queries: Any
    _tables: Tables
    loss: Loss = "mean"

    def __repr__(self) -> str:
        size = f"{len(self.workload)} marginals over {len(self.domain.columns)} columns"
        state = "nothing released yet" if self.problem.release is None else repr(self.problem.release)
        return f"<QueryRelease: {size}, x has {self.x.size} cells, {state}>"

    def _repr_html_(self) -> str:
        rows = [
            (" x ".join(m), self.domain.size(m), "in the workload" if m in self.workload else "measured for others")
            for m in dict.fromkeys([*self.workload, *self.measured])
        ]
        return TextTable(("marginal", "cells", ""), rows, title=repr(self))._repr_html_()

    def plan(self, epsilon: float, delta: float = 0.0, **options: Any) -> Plan:
        """``problem.plan`` with the same arguments, of what ``solve`` would do."""
        return self.problem.plan(epsilon, delta, **self._for_the_loss(epsilon, delta, options))

    def solve(self, epsilon: float, delta: float = 0.0, **options: Any) -> Release:
        """``problem.solve`` with the same arguments; returns the release.

        Plans compare the largest violation. Where they choose to measure every answer once and delta > 0 allows both
        distributions of noise, the answers are fitted by least squares (measure-and-fit), with the distribution that
        ``loss`` asks for: the least mean standard deviation, or the least largest error.
        """
        self.problem.solve(epsilon, delta, **self._for_the_loss(epsilon, delta, options))
        assert self.problem.release is not None
        return self.problem.release

    def _for_the_loss(self, epsilon: float, delta: float, options: dict[str, Any]) -> dict[str, Any]:
        if delta > 0 and options.get("mechanism", "auto") == "auto":
            of_plan = {k: v for k, v in options.items() if k not in _OF_SOLVE}
            plan = self.problem.plan(epsilon, delta, **of_plan)
            fits = any(c.mechanism == MEASURE_AND_FIT.name and c.eligible for c in plan.candidates)
            if fits and plan.chosen.mechanism in _ONCE:
                return {**options, "mechanism": MeasureAndFit(loss=self.loss)}
        return options

    def answers(self, marginal: Iterable[str] | str) -> MarginalAnswer:
        """The released counts of a marginal: sums of x, post-processing.

        Any marginal over the whole domain; over the marginals those of columns that one of the tables holds.

        Raises
        ------
        SpecificationError
            Before a release, for unknown columns, and for columns that no table holds together.
        """
        columns = marginal_named(self.domain, marginal, "marginal")
        x = self._released()
        if self._tables.holding(columns) is None:
            raise SpecificationError(
                f"no released table has the columns {', '.join(columns)} together",
                why="the domain is too large for one table, so x has a table per marginal of the workload only",
                remedy="name this marginal in the workload",
            )
        return MarginalAnswer(columns, self._tables.table(x, columns), self.domain.labels(columns))

    def query_answers(self) -> Floats:
        """(k,) released answers of the general linear queries."""
        if self.queries is None:
            raise SpecificationError("this problem has no general queries", remedy="queries= in query_release")
        return np.asarray(self.queries @ self._released())

    def _released(self) -> Floats:
        if self.x.value is None:
            raise SpecificationError("nothing was released yet", remedy="solve(epsilon=1, delta=1e-6) first")
        return np.asarray(self.x.value, dtype=np.float64)


def query_release(
    table: Any,
    marginals: Iterable[Any] = (),
    *,
    domain: Any = None,
    queries: Any = None,
    neighbors: Neighbors = "replace-one",
    total: float | None = None,
    weights: Any = "auto",
    loss: Loss = "mean",
    over: Over = "auto",
    outside: Outside = "error",
    name: str | None = None,
) -> QueryRelease:
    """The private linear program of a workload of linear queries on a table.

    Minimise 0 subject to ``W x == y``, x >= 0 and, if the number of records is public, sum(x) == n, where y are
    the true answers as ``Private`` parameters: HRRU14's example of a scalar-private, low-sensitivity program.

    Parameters
    ----------
    table : the records: a frame of any engine that ``Dataset`` takes, or {column: elements}; columns are called by
        name. Or an (n, columns) array of codes in the order of the domain. Or a ``Dataset`` whose rows are records: its
        domain (or ``domain=`` a list of its columns), neighbors and rule for rows outside hold. Cells of frames are
        counted where the table is. None writes the model without data (to classify and plan it).
    marginals : tuples of column names (or single names) whose cells are counted.
    domain : {column: number of values, or list of categories}. Required: it is public and never read off the data.
    queries : (k, cells) public matrix, dense or sparse, of more linear queries over the whole domain (cells in C
        order of the domain's columns); needs ``over="domain"``.
    neighbors : under "add-remove" a record sits in one cell of each of q marginals, so y moves by q in the 1-norm and
        sqrt(q) in the 2-norm; under "replace-one", the default, by twice and sqrt(2) times that, and the number of
        records is public.
    total : the number of records, if public.
    weights : what is measured: {marginal: weight}, beside the workload, whose weight is 1 where none is given; ``()``
        is the total, where it is private. Weights multiply rows: noise on a marginal is proportional to 1 / weight
        under "measure-and-fit" (so powers of two keep its numbers exact). "equal" is the workload with weight 1 and
        nothing else. "auto" takes weights whose forecast error is within 5 % of the least, "equal" among them:
        see ``automatic_weights``.
    loss : the error that "auto" and the choice of the noise's distribution make small: "mean" over the
        cells of the workload, or "max", the largest.
    over : "domain" makes x one table over all cells; "marginals" one table per marginal, which agree pairwise on
        the columns they share. For workloads without a cycle (decomposable ones) that is the same; otherwise a
        single table with these marginals need not exist. "auto" takes the domain up to ``MOST_CELLS`` cells.
    outside : what to do with records that have values outside the domain: "error", or "drop" (add-remove only).
    name : of the records, in guarantees.

    Raises
    ------
    SpecificationError
        For a missing domain, a workload outside it, values outside it, and arguments that do not fit together. Nothing
        is spent by building a model.
    """
    if isinstance(table, Dataset):
        domain, neighbors, outside = table.as_domain(domain), table.records.neighbors, "error"
    public = Domain.of(domain)
    workload = checked_marginals(public, marginals)
    _check(neighbors, total, over, outside)
    if loss not in ("mean", "max"):
        raise SpecificationError(f"loss={loss!r}", remedy="'mean' or 'max'")
    matrix = None if queries is None else _checked_queries(queries, public)
    if not workload and matrix is None:
        raise SpecificationError("an empty workload", remedy="marginals=[('age', 'sex')], or queries=")
    measured = _measured(public, workload, weights, loss, total is not None or neighbors == "replace-one")
    wide = _over(over, public, matrix)
    tables = Tables.whole(public) if wide == "domain" else Tables.local(public, measured)
    _refuse_too_many(tables, measured, matrix)
    needed = public.columns if matrix is not None else public.ordered({c for m in measured for c in m})
    if table is not None and not isinstance(table, Dataset | Mapping | np.ndarray | list | tuple):
        listed = dict(zip(needed, public.labels(needed), strict=True))
        table = Dataset(table, domain=listed, neighbors=neighbors, outside=outside, name=name)
    counted = None if table is None else _counted(table, public, needed, outside)
    if neighbors == "replace-one" and total is None and counted is not None:
        total = float(counted(()).sum())  # replacing a record does not change their number
    if counted is not None and neighbors == "replace-one" and total != counted(()).sum():
        raise SpecificationError(
            "total= is not the number of records",
            why="under replace-one the number of records is public, and this one would contradict the data",
            remedy="leave total out",
        )
    if neighbors == "replace-one" and total is None:
        raise SpecificationError("replace-one without a table needs total=", remedy="total=, the number of records")

    people = table.records if isinstance(table, Dataset) else Records.of_table(name, neighbors, None)
    x = cp.Variable(tables.size, nonneg=True, name="x")
    constraints = _public_rows(tables, wide, x, total)
    for marginal, weight in measured.items():
        value = None if counted is None else counted(marginal)
        label = " x ".join(marginal) or "total"
        answers = _private(value, public.size(marginal), f"counts of {label}", people)
        rows = cp.Constant(weight * tables.incidence(marginal), name=f"cells of {label}")
        constraints.append((rows @ x == weight * answers).set_label(label))
    if matrix is not None:
        constraints.append(_general(matrix, counted, public, people, x))
    problem = Problem(cp.Minimize(0), constraints)
    return QueryRelease(problem, x, wide, public, workload, dict(measured), matrix, tables, loss)


def _measured(
    domain: Domain, workload: tuple[Marginal, ...], weights: Any, loss: Loss, public_total: bool
) -> dict[Marginal, float]:
    if isinstance(weights, str):
        if weights not in ("auto", "equal"):
            raise SpecificationError(f"weights={weights!r}", remedy="'auto', 'equal' or {marginal: weight}")
        if weights == "auto":
            return automatic_weights(domain, workload, loss=loss, total=public_total)
        return dict.fromkeys(workload, 1.0)
    if not isinstance(weights, Mapping):
        raise SpecificationError(f"weights={type(weights).__name__}", remedy="'auto', 'equal' or {marginal: weight}")
    if () in weights and public_total:
        raise SpecificationError("a weight for the total, which is public", remedy="weights without ()")
    chosen: dict[Marginal, float] = {}
    for given, weight in weights.items():
        marginal = marginal_named(domain, given, "weights")
        good = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if not good or not 2.0**-20 <= float(weight) <= 2.0**20:
            raise SpecificationError(
                f"weights: that of {marginal} is not a number between 2^-20 and 2^20",
                why="weights say how many times an error counts",
                remedy="1 for most, 4 for one that matters more",
            )
        if marginal in chosen:
            raise SpecificationError(f"weights: {marginal} is there twice", remedy="each set of columns once")
        chosen[marginal] = float(weight)
    return dict.fromkeys(workload, 1.0) | chosen


def _check(neighbors: Any, total: Any, over: Any, outside: Any) -> None:
    if neighbors not in NEIGHBORS:
        raise SpecificationError(f"neighbors={neighbors!r}", remedy="'add-remove' or 'replace-one'")
    if over not in ("auto", "domain", "marginals"):
        raise SpecificationError(f"over={over!r}", remedy="'auto', 'domain' or 'marginals'")
    if outside not in ("error", "drop"):
        raise SpecificationError(f"outside={outside!r}", remedy="'error' or 'drop'")
    if outside == "drop" and neighbors != "add-remove":
        raise SpecificationError(
            "outside='drop' under replace-one",
            why="leaving records out changes their number, which replace-one takes as public",
            remedy="neighbors='add-remove', or a domain with a category for everything else",
        )
    good = isinstance(total, numbers.Real) and not isinstance(total, bool)
    if total is not None and (not good or not math.isfinite(float(total)) or float(total) < 0):
        raise SpecificationError("total= is not a number of records", remedy="a public number >= 0, or None")


def _over(over: Over, domain: Domain, matrix: Any) -> str:
    small = domain.cells <= MOST_CELLS
    if matrix is not None and (over == "marginals" or not small):
        raise SpecificationError(
            f"general queries over a domain of {domain.cells} cells",
            why="they are rows over the whole domain, which must be one table then",
            remedy=f"marginals instead, or a domain of at most {MOST_CELLS} cells",
        )
    if over == "domain" and not small:
        raise SpecificationError(
            f"over='domain' with {domain.cells} cells",
            why=f"x would have one entry per cell; served are {MOST_CELLS}",
            remedy="over='marginals' (tables that agree pairwise), or fewer or coarser columns",
        )
    return over if over != "auto" else ("domain" if small else "marginals")


def _refuse_too_many(tables: Tables, measured: Mapping[Marginal, float], matrix: Any) -> None:
    private = sum(tables.domain.size(m) for m in measured) + 1 + (0 if matrix is None else int(matrix.shape[0]))
    shared = tables.consistency_rows()
    # CVXPY numbers the coefficients of a model (rows x columns x parameters) in 64 bits.
    if (private + shared + tables.size + 1) * (tables.size + 1) * (private + 1) >= 2**63:
        raise SpecificationError(
            f"a workload of {private} cells over tables of {tables.size}",
            why="CVXPY cannot number the coefficients of a model of that size",
            remedy="fewer or smaller marginals (about a million cells in all), or coarser columns",
        )


def _public_rows(tables: Tables, over: str, x: cp.Variable, total: float | None) -> list[Any]:
    rows: list[Any] = []
    if over == "marginals":
        consistent = cp.Constant(tables.consistency(), name="sums of tables")
        rows.append((consistent @ x == 0).set_label("tables agree"))
    if total is not None:
        every = cp.Constant(tables.incidence(()), name="all cells")
        rows.append((every @ x == float(total)).set_label("number of records"))
    return rows


def _private(value: PrivateArray | None, size: int, name: str, people: Records) -> Private:
    """Counts of disjoint cells: a record is in one of them."""
    one = 1.0 if people.neighbors == "add-remove" else 2.0
    l1 = min(one, float(size)) if size > 1 else 1.0
    return Private(value, shape=(size,), name=name, unit="all", l1=l1, l2=math.sqrt(l1), linf=1.0, records=people)


def _counted(table: Any, domain: Domain, needed: Sequence[str], outside: Outside) -> Callable[[Marginal], PrivateArray]:
    """Marginal -> (cells,) how many records are in each: where the table is, or from their codes. PRIVATE."""
    if isinstance(table, Dataset):
        return lambda marginal: PrivateArray(table.cell_counts(marginal, needed).astype(np.float64))
    codes = domain.encode(table, needed, outside)
    return lambda marginal: counts(domain, codes, needed, marginal)


def _general(
    matrix: sp.csr_array,
    counted: Callable[[Marginal], PrivateArray] | None,
    domain: Domain,
    people: Records,
    x: cp.Variable,
) -> Any:
    """Rows ``Q x == Q h``. One record adds or takes a column of Q (its largest norms), or exchanges two.

    Exchanging columns a and b: ``|a - b|_1 <= |a|_1 + |b|_1``; ``|a - b|_2 <= |a|_2 + |b|_2``, and for non-negative
    columns, whose product is not negative, at most ``sqrt(|a|_2^2 + |b|_2^2)``; entry i by at most the range of row i.
    """
    size = abs(matrix)
    l1, l2 = float(size.sum(axis=0).max()), math.sqrt(float(size.multiply(size).sum(axis=0).max()))
    linf = float(size.max())
    if people.neighbors == "replace-one":
        low, high = matrix.min(axis=1).toarray().ravel(), matrix.max(axis=1).toarray().ravel()
        linf = float((high - low).max())
        l2 = l2 * (math.sqrt(2.0) if low.min() >= 0 else 2.0)
        l1 = 2 * l1
    k = matrix.shape[0]
    if linf == 0:
        raise SpecificationError("queries that no record can change", remedy="rows that differ between cells")
    value = None if counted is None else PrivateArray(np.asarray(matrix @ counted(domain.columns)))
    bounds = {"l1": min(l1, k * linf), "l2": min(l2, math.sqrt(k) * linf), "linf": linf}
    answers = Private(value, shape=(k,), name="answers", unit="all", records=people, **bounds)
    return (cp.Constant(matrix, name="queries") @ x == answers).set_label("queries")


def _checked_queries(queries: Any, domain: Domain) -> sp.csr_array:
    try:
        matrix = sp.csr_array(queries if sp.issparse(queries) else np.asarray(queries, dtype=np.float64))
        matrix = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise SpecificationError("queries is not a matrix of numbers", remedy="a (k, cells) array") from None
    if matrix.ndim != 2 or matrix.shape[1] != domain.cells or matrix.shape[0] == 0:
        raise SpecificationError(
            f"queries of shape {matrix.shape} over a domain of {domain.cells} cells",
            why="a query has one coefficient per cell of the domain; nothing was read and nothing was spent",
            remedy=f"a (k, {domain.cells}) matrix",
        )
    if not np.isfinite(matrix.data).all():
        raise SpecificationError("queries has NaN or infinite entries", remedy="finite coefficients")
    return matrix
