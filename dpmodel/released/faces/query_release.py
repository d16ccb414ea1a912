"""Query release: marginals of a table by residuals, and the same workload as a private linear program."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.form import private_entries, require_private_values
from dpmodel.contract import no_progress
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset import Dataset
from dpmodel.marks.domain import Domain, Outside
from dpmodel.marks.private import Private
from dpmodel.marks.records import NEIGHBORS, Neighbors, Records, public_count, record_words
from dpmodel.privacy import Budget, Cost, NoiseSource, noise_source, validate_privacy
from dpmodel.problem import Problem
from dpmodel.release import Accuracy, Guarantee, Release
from dpmodel.released.faces.marginal_release import MarginalAnswer, MarginalRelease
from dpmodel.released.faces.workload import Marginal, Tables, checked_marginals, counts, marginal_named
from dpmodel.released.marginal_noise import MarginalNoise, design, drowned
from dpmodel.released.pinned_fit import fitted_tables
from dpmodel.released.residuals import Loss, Residuals
from dpmodel.solve.wall import charge_then_run, check_budget
from dpmodel.text import TextTable, number, wrapped

# Up to this many cells the linear program over the domain is written.
MOST_CELLS = 1_000_000
# Up to this many cells marginals are measured.
_MOST_MEASURED = 20_000_000
# From this share of noise in a cell the other loss is closer in the mean, by 8 to 24 % on titanic and adult.
_DROWNS = 0.2


@dataclass(frozen=True)
class MarginalPlan:
    """What ``solve`` would do, from public facts: the noise, and what is expected before the fit."""

    mechanism: str
    epsilon: float
    delta: float
    statement: str
    noise: MarginalNoise = field(repr=False)

    def __str__(self) -> str:
        return wrapped(f"{self.mechanism}: {self.statement}")


@dataclass(frozen=True, eq=False, repr=False)
class QueryRelease:
    """A workload of marginals of a table, or of linear queries over its domain.

    ``solve`` measures the residuals of the marginals and fits tables that are non-negative and agree; it never forms
    the domain. ``problem`` is the same workload as HRRU14 has it, an ordinary ``Problem`` over the domain: to classify,
    plan, explain and solve by any mechanism. General queries are answered by it alone.

    ``release`` : the last one, or None.
    """

    domain: Domain
    workload: tuple[Marginal, ...]
    weights: Mapping[Marginal, float]
    loss: Loss
    total: float | None
    queries: Any
    _counts: Private | None
    _answers: Private | None
    _made: dict[str, Any]

    def __repr__(self) -> str:
        size = f"{len(self.workload)} marginals over {len(self.domain.columns)} columns"
        state = "nothing released yet" if self.release is None else repr(self.release)
        return f"<QueryRelease: {size}, {self._residuals.tables.start[-1]} cells, {state}>"

    def _repr_html_(self) -> str:
        rows = [(" x ".join(m), self.domain.size(m), number(self.weights[m])) for m in self.workload]
        return TextTable(("marginal", "cells", "weight"), rows, title=repr(self))._repr_html_()

    @property
    def release(self) -> Release | None:
        """The last release of ``solve``, or of ``problem``."""
        return self._made.get("release") or ("problem" in self.__dict__ and self.problem.release) or None

    @cached_property
    def problem(self) -> Problem:
        """Minimise 0 over the tables x >= 0 of the whole domain, subject to ``W x == answers``, and to ``sum(x) == n``
        where the number n of records is public: HRRU14's example of a scalar-private program of low sensitivity.

        Raises
        ------
        SpecificationError
            For more than ``MOST_CELLS`` cells.
        """
        if self.domain.cells > MOST_CELLS:
            raise SpecificationError(
                f"a linear program over {self.domain.cells} cells",
                why=f"x would have one entry per cell; served are {MOST_CELLS}",
                remedy="solve() of the query release, which never forms the domain, or fewer or coarser columns",
            )
        tables = Tables.whole(self.domain)
        x = cp.Variable(tables.size, nonneg=True, name="x")
        rows: list[Any] = []
        if self.total is not None:
            every = cp.Constant(tables.incidence(()), name="all cells")
            rows.append((every @ x == self.total).set_label("number of records"))
        if self._counts is not None:
            sets = [self._named(m) for m in self._residuals.tables.sets]
            W = cp.Constant(sp.csr_array(sp.vstack([tables.incidence(m) for m in sets])), name="cells of marginals")
            rows.append((W @ x == self._counts).set_label("marginals"))
        if self._answers is not None:
            rows.append((cp.Constant(self.queries, name="queries") @ x == self._answers).set_label("queries"))
        return Problem(cp.Minimize(0), rows)

    def plan(self, epsilon: float, delta: float = 0.0) -> MarginalPlan:
        """What ``solve`` would do and how far cells are expected to be off; of general queries ``problem.plan``.

        Gaussian noise on residuals or Laplace noise on marginals, whichever has the less expected ``loss`` before the
        fit: the mean standard deviation of a cell, or the largest, each times the marginal's weight.
        """
        loss = validate_privacy(epsilon, delta)
        if self.queries is not None:
            raise SpecificationError("a plan of general queries", remedy="query.problem.plan(epsilon, delta)")
        assert self._counts is not None
        residuals = self._residuals
        importance = np.array([self.weights[self._named(m)] for m in residuals.tables.sets])
        best = design(residuals, *loss, importance, self.loss, self._counts.records.neighbors, self.total)
        statement = _statement(best, self.total)
        if best.first:
            statement += "; others where a first noisy number of records tells that noise drowns the cells"
        return MarginalPlan(_NAMES[best.kind], loss.epsilon, best.delta, statement, best)

    def solve(
        self, epsilon: float, delta: float = 0.0, *, budget: Budget | None = None, rng: Any = None, **options: Any
    ) -> Release:
        """Measure once, fit, and return the release: for marginals a ``MarginalRelease``.

        Parameters
        ----------
        epsilon, delta : the most to spend; Laplace noise spends no delta. ``budget`` : charged before data is read.
        rng : None for secure noise; an int for repeatable noise in tests, which is not private and says so.
        options : of ``Problem.solve``, where there are general queries.

        Raises
        ------
        SpecificationError, BudgetExceededError
            Before anything is spent.
        """
        if self.queries is not None:
            self.problem.solve(epsilon, delta, budget=budget, rng=rng, **options)
            assert self.problem.release is not None
            return self.problem.release
        if options:
            raise SpecificationError(
                f"solve of marginals: {next(iter(options))}=",
                why="marginals are measured once and fitted; options are those of linear programs",
                remedy="query.problem.solve(...) has them",
            )
        plan = self.plan(epsilon, delta)
        check_budget(budget)
        source = noise_source(rng)
        assert self._counts is not None
        require_private_values([self._counts])
        measured, failure = charge_then_run(
            lambda report: plan.noise.run(private_entries(self._counts), source),
            name=plan.mechanism,
            budget=budget,
            cost=Cost.all_gaussian(plan.epsilon, plan.delta),
            label=f"query release of {len(self.workload)} marginals",
            report=no_progress,
            records=public_count([self._counts]),
            remedy="rng=None",
        )
        if measured is None:
            assert failure is not None
            raise failure
        release = self._made["release"] = self._released(plan, *measured, source)
        return release

    def _released(
        self, plan: MarginalPlan, noisy: Floats, noise: MarginalNoise, source: NoiseSource
    ) -> MarginalRelease:
        residuals, people = self._residuals, self._counts
        assert people is not None
        total = float(noisy[0]) if self.total is None else self.total
        fit = noise.fit(total)
        values = fitted_tables(residuals, noisy, noise.s, self.total, fit)
        at = residuals.tables.place
        variables, labels = {}, {}
        for marginal in self.workload:
            k = at[self._numbers(marginal)]
            name = " x ".join(marginal)
            table = values[residuals.tables.start[k] : residuals.tables.start[k + 1]]
            variables[name] = table.reshape(self.domain.shape(marginal))
            labels[name] = tuple(zip(marginal, self.domain.labels(marginal), strict=True))
        record = record_words([people])
        if not source.is_private:
            record = f"NOT PRIVATE (seeded noise for tests); {record}"
        return MarginalRelease(
            mechanism=plan.mechanism,
            guarantee=Guarantee(plan.epsilon, plan.delta, people.records.neighbors, record),
            accuracy=Accuracy(
                None, None, statement=f"{_statement(noise, total)}; release.intervals() has them by marginal"
            ),
            status="optimal",
            variables=variables,
            labels=labels,
            spent=(plan.epsilon, plan.delta),
            plan={"noise": plan.noise.kind, "expected before the fit": noise.expected},
            residual_values=np.concatenate([noisy[:1] if self.total is None else [self.total], noisy[1:]]),
            residual_variances=noise.s,
            public_total=self.total,
            fit=fit,
            columns=self._columns,
        )

    def answers(self, marginal: Iterable[str] | str) -> MarginalAnswer:
        """``answers`` of the last release."""
        if not isinstance(self.release, MarginalRelease):
            raise SpecificationError("no marginals were released yet", remedy="solve(epsilon=1, delta=1e-6) first")
        return self.release.answers(marginal)

    def query_answers(self) -> Floats:
        """(k,) released answers of the general linear queries."""
        if self.queries is None:
            raise SpecificationError("this problem has no general queries", remedy="queries= in query_release")
        if self.problem.release is None:
            raise SpecificationError("nothing was released yet", remedy="solve(epsilon=1, delta=1e-6) first")
        return np.asarray(self.queries @ self.problem.variables()[0].value)

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return self.domain.ordered({c for m in self.workload for c in m})

    @cached_property
    def _residuals(self) -> Residuals:
        return Residuals.of(map(self._numbers, self.workload), self.domain.shape(self._columns))

    def _numbers(self, marginal: Marginal) -> tuple[int, ...]:
        return tuple(self._columns.index(c) for c in marginal)

    def _named(self, numbers: tuple[int, ...]) -> Marginal:
        return tuple(self._columns[i] for i in numbers)


def _statement(noise: MarginalNoise, total: float | None) -> str:
    cells = noise.residuals.tables.cells
    if noise.alone:
        exact = math.sqrt(float((noise.residuals.p * noise.s)[noise.residuals.order == 1].max()))
        return (
            f"columns alone, as noise would drown what they share: tables are those of independent columns; standard "
            f"deviation of a column's cell at most {number(exact)} before the fit (exact), of what is shared unknown"
        )
    mean, most = float(noise.deviations @ cells / cells.sum()), float(noise.deviations.max())
    said = (
        f"for the {'largest' if noise.loss == 'max' else 'mean'} error (loss={noise.loss!r}): standard deviation of a "
        f"cell before the fit {number(mean)} in the mean, {number(most)} at most (exact); fitted cells are usually "
        f"closer in the mean, single ones may be further off"
    )
    if noise.loss == "max" and total is not None and drowned(noise, total) >= _DROWNS:
        said += "; noise drowns many of these counts: in the mean loss='mean' is closer, products of columns may be"
    if total is not None and noise.fit(total) == "shrunk":
        said += "; the fit pulls towards independent columns, and what that takes away standard errors do not count"
    return said


_NAMES = {"residuals": "residual-gaussian", "marginals": "marginal-laplace"}


def query_release(
    table: Any,
    marginals: Iterable[Any] = (),
    *,
    domain: Any = None,
    queries: Any = None,
    neighbors: Neighbors = "replace-one",
    total: float | None = None,
    weights: Mapping[Any, float] | None = None,
    loss: Loss = "max",
    outside: Outside = "error",
    name: str | None = None,
) -> QueryRelease:
    """Marginals of a table, released together: non-negative tables that agree.

    ``solve`` measures the orthogonal residuals of the marginals with Gaussian noise of optimal variances (delta > 0),
    or the marginals with Laplace noise, and fits: the total, then every column, then all larger tables. A hundred
    columns of ten values, all pairs, take less than a minute. ``problem`` is the same as a private linear program.

    Parameters
    ----------
    table : the records: a frame of any engine that ``Dataset`` takes, or {column: elements}; columns are called by
        name. Or an (n, columns) array of codes in the order of the domain. Or a ``Dataset`` whose rows are records: its
        domain (or ``domain=`` a list of its columns), neighbors and rule for rows outside hold. Cells of frames are
        counted where the table is. None plans without data.
    marginals : tuples of column names (or single names) whose cells are counted.
    domain : {column: number of values, or list of categories}. Required: it is public and never read off the data.
    queries : (k, cells) public matrix, dense or sparse, of linear queries over the whole domain (cells in C order of
        the domain's columns): answered through ``problem``, up to ``MOST_CELLS`` cells, with the marginals, if any.
    neighbors : under "add-remove" a record sits in one cell of each of q marginals, so they move by q in the 1-norm;
        under "replace-one", the default, by up to twice that, and the number of records is public.
    total : the number of records, if public.
    weights : {marginal of the workload: weight}: how many times an error in it counts; 1 where none is given.
    loss : the error to make small: "max", the largest of all cells, or "mean". "max" costs some 5 % in the mean and
        saves a quarter or more in the largest; where noise drowns most cells, "mean" is closer by more, as it shrinks.
    outside : what to do with records that have values outside the domain: "error", or "drop" (add-remove only).
    name : of the records, in guarantees.

    Raises
    ------
    SpecificationError
        For a missing domain, a workload outside it, values outside it, and arguments that do not fit together. Nothing
        is spent by building it.
    """
    if isinstance(table, Dataset):
        domain, neighbors, outside = table.as_domain(domain), table.records.neighbors, "error"
    public = Domain.of(domain)
    workload = checked_marginals(public, marginals)
    _check(neighbors, total, outside, loss)
    matrix = None if queries is None else _checked_queries(queries, public)
    if not workload and matrix is None:
        raise SpecificationError("an empty workload", remedy="marginals=[('age', 'sex')], or queries=")
    _refuse_too_many(public, workload)
    importance = dict.fromkeys(workload, 1.0) | _weights(public, workload, weights)
    needed = public.columns if matrix is not None else public.ordered({c for m in workload for c in m})
    if table is not None and not isinstance(table, Dataset | Mapping | np.ndarray | list | tuple):
        listed = dict(zip(needed, public.labels(needed), strict=True))
        table = Dataset(table, domain=listed, neighbors=neighbors, outside=outside, name=name)
    counted = None if table is None else _counted(table, public, needed, outside)
    if neighbors == "replace-one":
        records = None if counted is None else float(counted(()).sum())  # replacing one does not change their number
        if total is None and records is None:
            raise SpecificationError("replace-one without a table needs total=", remedy="total=, the number of records")
        if total is not None and records is not None and total != records:
            raise SpecificationError(
                "total= is not the number of records",
                why="under replace-one the number of records is public, and this one would contradict the data",
                remedy="leave total out",
            )
        total = records if total is None else total
    people = table.records if isinstance(table, Dataset) else Records.of_table(name, neighbors, None)
    made = QueryRelease(
        public,
        workload,
        importance,
        loss,
        None if total is None else float(total),
        matrix,
        None,
        None if matrix is None else _general(matrix, counted, public, people),
        {},
    )
    if workload:
        object.__setattr__(made, "_counts", _of_marginals(made, counted, people))
    return made


def _weights(domain: Domain, workload: tuple[Marginal, ...], weights: Any) -> dict[Marginal, float]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        raise SpecificationError(f"weights={type(weights).__name__}", remedy="{marginal: weight}")
    chosen: dict[Marginal, float] = {}
    for given, weight in weights.items():
        marginal = marginal_named(domain, given, "weights")
        if marginal not in workload or marginal in chosen:
            raise SpecificationError(
                f"weights: {marginal} is {'there twice' if marginal in chosen else 'not in the workload'}",
                why="weights say how many times an error in a released marginal counts",
                remedy="name the marginal in marginals= too, each set of columns once",
            )
        good = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if not good or not 2.0**-20 <= float(weight) <= 2.0**20:
            raise SpecificationError(
                f"weights: that of {marginal} is not a number between 2^-20 and 2^20",
                why="weights say how many times an error counts",
                remedy="1 for most, 4 for one that matters more",
            )
        chosen[marginal] = float(weight)
    return chosen


def _check(neighbors: Any, total: Any, outside: Any, loss: Any) -> None:
    if neighbors not in NEIGHBORS:
        raise SpecificationError(f"neighbors={neighbors!r}", remedy="'add-remove' or 'replace-one'")
    if loss not in ("mean", "max"):
        raise SpecificationError(f"loss={loss!r}", remedy="'mean' or 'max'")
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


def _refuse_too_many(domain: Domain, workload: tuple[Marginal, ...]) -> None:
    cells = sum(domain.size(m) * 2 ** len(m) for m in workload)
    if cells > _MOST_MEASURED:
        raise SpecificationError(
            f"a workload of {sum(domain.size(m) for m in workload)} cells",
            why=f"a marginal of k columns has 2^k parts, which have {cells} cells in all; served are {_MOST_MEASURED}",
            remedy="fewer or smaller marginals, or coarser columns",
        )


def _of_marginals(made: QueryRelease, counted: Callable[[Marginal], PrivateArray] | None, people: Records) -> Private:
    """All cells of the workload: a record is in one of each marginal."""
    sets = [made._named(m) for m in made._residuals.tables.sets]
    value = None if counted is None else PrivateArray(np.concatenate([counted(m) for m in sets]))
    one = 1.0 if people.neighbors == "add-remove" else 2.0
    l1 = sum(one if made.domain.size(m) > 1 else 1.0 for m in sets)
    size = int(made._residuals.tables.start[-1])
    return Private(value, shape=(size,), name="counts", unit="all", l1=l1, l2=math.sqrt(l1), linf=1.0, records=people)


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
) -> Private:
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
    return Private(value, shape=(k,), name="answers", unit="all", records=people, **bounds)


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
