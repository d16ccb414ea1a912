"""Released marginals: non-negative tables that agree, with standard errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.estimates import Estimates, check_level
from dpmodel.marks.domain import Domain
from dpmodel.privacy import public_generator
from dpmodel.release import Release
from dpmodel.released.faces.workload import Marginal, column_names
from dpmodel.released.pinned_fit import Fit, fitted_tables
from dpmodel.released.residuals import Residuals
from dpmodel.released.sampled_rows import drawn, moved
from dpmodel.text import TextTable, frame_of, long_frame, rounded, screenful

_PRINTED = 25  # marginals


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


@dataclass(frozen=True, eq=False, repr=False)
class MarginalIntervals:
    """Intervals for the cells of released marginals, as plain data: ``found["age", "sex"].lower``.

    ``tables`` : columns -> counts and ends, an ``Estimates``; ``errors`` : columns -> standard error of every cell.
    Each interval holds its count with probability ``level``. ``of`` : what they are of.
    """

    tables: Mapping[Marginal, Estimates]
    errors: Mapping[Marginal, Floats]
    level: float
    of: str

    def __getitem__(self, marginal: Iterable[str] | str) -> Estimates:
        """Of a marginal of the workload, with the axes as named."""
        columns = (marginal,) if isinstance(marginal, str) else tuple(marginal)
        for each, table in self.tables.items():
            if sorted(each) == sorted(map(str, columns)):
                order = [each.index(c) for c in columns]
                ends = {name: getattr(table, name).transpose(order) for name in ("value", "lower", "upper")}
                return replace(table, **ends, labels=tuple(table.labels[k] for k in order))
        raise SpecificationError(
            f"no released table of the columns {', '.join(map(str, columns))}",
            why="intervals are of the marginals of the workload; of their sums none are simulated",
            remedy=f"one of {', '.join(map(repr, itertools.islice(self.tables, 3)))}, ...",
        )

    def to_dict(self) -> dict[str, Any]:
        """Name of a marginal -> ``value``, ``lower``, ``upper`` and ``error`` as nested lists; ``level`` and ``of``."""
        tables = {
            " x ".join(m): {name: getattr(table, name).tolist() for name in ("value", "lower", "upper")}
            | {"error": self.errors[m].tolist()}
            for m, table in self.tables.items()
        }
        return {"tables": tables, "level": self.level, "of": self.of}

    def table(self, title: str = "") -> TextTable:
        """As it prints: a line for each marginal."""
        rows = []
        for marginal, table in itertools.islice(self.tables.items(), _PRINTED):
            error = math.sqrt(float(np.square(self.errors[marginal]).mean()))
            half = float((table.upper - table.value).mean())
            rows.append((" x ".join(marginal), table.value.size, rounded(error, error / 10), rounded(half, error / 10)))
        left = len(self.tables) - len(rows)
        more = [f"... and {left} more, in .tables"] if left else []
        if any(np.isnan(each).any() for each in self.errors.values()):
            more.append("nan: not measured, so few records. Between 0 and what the columns have.")
        about = f"Of {self.of}. Each is of one cell, in the mean over the marginal: ['column', ...] has the arrays."
        columns = ("marginal", "cells", "std err", "half width")
        return TextTable(columns, rows, title or f"Intervals at level {self.level:g}", [*more, about], width=80)

    def __str__(self) -> str:
        return screenful(str(self.table()), "to_dict()")

    def __repr__(self) -> str:
        return f"<MarginalIntervals: {len(self.tables)} marginals at level {self.level:g}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MarginalRelease(Release):
    """The release of a workload of marginals: a ``Release`` whose variables are the tables.

    All tables are non-negative and have the same total and the same table of every column. ``residual_values`` : the
    residuals as they were measured, before the fit, and ``residual_variances`` : of each, by ``Residuals.parts``;
    ``public_total`` : the number of records where it is public; ``fit`` : whether it pulled towards independent
    columns, or took them ("independent"); ``columns`` : of the workload, in the order of the domain.
    """

    _spread: ClassVar[float] = 10.0  # counts are printed in full

    columns: tuple[str, ...] = ()
    residual_values: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    residual_variances: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    public_total: float | None = None
    fit: Fit = "plain"

    @cached_property
    def marginals(self) -> Mapping[Marginal, MarginalAnswer]:
        """Columns -> fitted table, in the order of the workload."""
        out = {}
        for name, values in self.variables.items():
            columns, categories = zip(*self.labels[name], strict=True)
            out[columns] = MarginalAnswer(columns, np.asarray(values), categories)
        return out

    @cached_property
    def domain(self) -> Domain:
        """Of the columns of the workload."""
        values = {c: v for m in self.marginals.values() for c, v in zip(m.columns, m.categories, strict=True)}
        return Domain.of({column: values[column] for column in self.columns})

    def answers(self, marginal: Iterable[str] | str) -> MarginalAnswer:
        """The released counts of a marginal of columns that one of the tables has: its sums, with an axis for each
        column in the order of ``marginal``.

        Raises
        ------
        SpecificationError
            For unknown columns, and for columns that no table has together.
        """
        why = "what was not measured is not released; this answer would cost another release"
        columns = column_names(self.domain, marginal, "marginal", "the workload", why)
        fits = [each for each in self.marginals.values() if set(columns) <= set(each.columns)]
        if not fits:
            raise SpecificationError(
                f"no released table has the columns {', '.join(columns)} together",
                why="what was not measured together is not released",
                remedy="name this marginal in the workload",
            )
        table = min(fits, key=lambda each: each.values.size)
        axes = [table.columns.index(c) for c in columns]
        rest = [i for i in range(len(table.columns)) if i not in axes]
        summed = table.values.transpose(*axes, *rest).sum(axis=tuple(range(len(axes), len(table.columns))))
        return MarginalAnswer(columns, np.asarray(summed), self.domain.labels(columns))

    def to_frame(self, name: Iterable[str] | str | None = None, *, backend: str = "pandas") -> Any:
        """As `Release.to_frame`; ``name`` may be a tuple of columns, as of `answers`."""
        if name is None or isinstance(name, str):
            return super().to_frame(name, backend=backend)
        return self.answers(name).to_frame(backend=backend)

    def sample(self, n: int | None = None, *, seed: int = 0, backend: str = "pandas") -> Any:
        """Synthetic rows, which cost no privacy: a frame with a column for each of ``columns``, of its categories.

        The rows have about the released tables (``dpmodel/released/sampled_rows.py``). Of columns that are in no table
        together they have what the tables imply, which may be far from the data. A row is nobody's; for numbers take
        the released tables, which have errors that are told.

        Parameters
        ----------
        n : number of rows; None: the released total. ``seed`` : a public number, as the rows follow from the release.
        backend : "pandas", "polars" or "pyarrow".

        Raises
        ------
        SpecificationError, MissingExtraError
            For an n that is no number of rows, and a frame that cannot be made.
        """
        at = {column: place for place, column in enumerate(self.columns)}
        tables = {tuple(at[c] for c in columns): each.values for columns, each in self.marginals.items()}
        rows = max(round(float(next(iter(tables.values())).sum())), 0) if n is None else n
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
            raise SpecificationError("sample: n is no number of rows", remedy="n=1000, or None for the released total")
        joined = {pair for columns in tables for pair in itertools.combinations(sorted(columns), 2)}
        pairs = {(a, b): self.answers((self.columns[a], self.columns[b])).values for a, b in sorted(joined)}
        singles = [self.answers(column).values for column in self.columns]
        generator = public_generator(seed)
        codes = moved(drawn(pairs, singles, int(rows), generator), tables, generator)
        listed = zip(self.columns, self.domain.labels(self.columns), codes.T.tolist(), strict=True)
        return frame_of({column: [values[code] for code in mine] for column, values, mine in listed}, backend)

    def standard_errors(self, *, draws: int = 20, seed: int = 0) -> dict[Marginal, float]:
        """Root mean square error of a cell of every marginal, by simulation: an estimate that costs no privacy.

        The released tables stand for the truth; noise of the variances of the measurement is added to their residuals,
        and the tables are fitted again. Fitted tables are smoother than data, so errors of empty and rare cells may be
        larger than this where noise drowns the cells. They are of noise only: where ``fit`` is "shrunk" or
        "independent", what columns truly share and the fit took away is not in them (of two equal columns half of the
        error), and cannot be told from the released numbers, whose noise is larger.
        """
        square, residuals, order = self._simulated(draws, seed)
        mean = np.bincount(residuals.tables.which, square) / residuals.tables.cells
        return dict(zip(order, np.sqrt(mean).tolist(), strict=True))

    def intervals(  # type: ignore[override]
        self, level: float = 0.95, *, fitted: bool = True, draws: int = 20, seed: int = 0
    ) -> MarginalIntervals:
        """Intervals for the cells of every marginal, one at a time: they cost no privacy. Noise is all they cover.

        Before the fit (``fitted=False``): around the counts as they were measured, which are unbiased and may be below
        0. Exact for Gaussian noise, as every cell has Gaussian noise of a deviation that follows from the variances of
        the residuals. Laplace noise, on counts, takes the larger of the normal and the Laplace quantile and one count
        more: a close estimate for sums of a few draws.

        After it: around the released tables. No law is known of a fit that cuts at 0, so the half width is an estimate.
        It is the quantile times the deviation before the fit, or times the root of the sum of two squares where that is
        less: the simulated error of the cell, and of a cell of its marginal in the mean (``standard_errors``, which
        each alone are too small in rare cells). On pairs of titanic and adult, epsilon .1 to 10, both losses, 95 %
        intervals hold 95 to 99 % of the cells; cells with a record among many empty ones, where noise drowns
        them, 89 %. Refits take as long as the release did, ``draws`` times.

        Where few records had their columns measured alone, the fit takes these as independent, and no number says how
        far they are: larger tables get the ends 0 and the least upper end of their columns, and no standard error.

        Raises
        ------
        SpecificationError
            For a level outside (0, 1), and draws that are no number.
        """
        level = check_level(level)
        if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 2:
            raise SpecificationError("intervals: draws is no number from 2 on", remedy="draws=20")
        pure = self.plan.get("noise") == "marginals"
        times = self._times(level)
        residuals, order = self._geometry()
        tables, before = residuals.tables, np.sqrt(residuals.variance @ self.residual_variances)
        noise, half = before[tables.which], times * before[tables.which] + pure
        if fitted:
            square, *_ = self._simulated(draws, seed)
            mean = (np.bincount(tables.which, square) / tables.cells)[tables.which]
            noise = np.minimum(np.sqrt(mean + square), noise)
            half = np.minimum(times * noise + pure, half)
            value = np.concatenate([self.marginals[m].values.ravel() for m in order])
        else:
            spread = self.residual_values * residuals.parts.cells[residuals.parts.which]
            value = (residuals.sums.T @ spread) / tables.cells[tables.which]
        high = value + half
        low = np.maximum(value - half, 0.0) if fitted else value - half
        for k in self._columns_alone(residuals):
            here = slice(tables.start[k], tables.start[k + 1])
            low[here], high[here], noise[here] = 0.0, self._most(residuals, tables.sets[k], level), np.nan
            value[here] = value[here] if fitted else np.nan
        law = "close for Laplace noise" if pure else "exact for Gaussian noise"
        of = "the fitted counts: half widths are an estimate" if fitted else f"the counts before the fit: {law}"
        found, errors = {}, {}
        for marginal, table in self.marginals.items():
            k, shape = order.index(marginal), table.values.shape
            here = slice(tables.start[k], tables.start[k + 1])
            found[marginal] = Estimates(
                " x ".join(marginal),
                value[here].reshape(shape),
                low[here].reshape(shape),
                high[here].reshape(shape),
                level=level,
                statement=f"of {of}",
                epsilon=self.guarantee.epsilon,
                delta=self.guarantee.delta,
                neighbors=self.guarantee.neighbors,
                record=self.guarantee.record,
                labels=tuple(zip(table.columns, table.categories, strict=True)),
            )
            errors[marginal] = noise[here].reshape(shape)
        return MarginalIntervals(found, errors, level, of)

    def _times(self, level: float) -> float:
        """How many deviations of the noise an interval takes to either side."""
        normal = float(ndtri((1 + level) / 2))
        return max(normal, -math.log1p(-level) / math.sqrt(2)) if self.plan.get("noise") == "marginals" else normal

    def _columns_alone(self, residuals: Residuals) -> list[int]:
        """Tables with a part that was not measured, as its noise would drown so few records."""
        part, table, _ = residuals.within
        unseen = (self.residual_variances == 0) & (residuals.order > 1)
        return [int(k) for k in np.unique(table[unseen[part]])]

    def _most(self, residuals: Residuals, columns: tuple[int, ...], level: float) -> Floats:
        """(cells,) a bound that holds with probability ``level``: no cell has more records than its columns, whose
        upper ends share the risk."""
        parts, sizes = residuals.parts, residuals.parts.sizes
        times = self._times(1 - 2 * (1 - level) / len(columns))
        most = np.full(parts.shape(columns), np.inf)
        for axis, i in enumerate(columns):
            count, variance = self.residual_values[0] / sizes[i], self.residual_variances[0] / sizes[i] ** 2
            if (i,) in parts.place:
                k = parts.place[i,]
                count = count + self.residual_values[parts.start[k] : parts.start[k + 1]]
                variance = variance + self.residual_variances[k] * residuals.p[k]
            end = np.atleast_1d(count + times * math.sqrt(variance) + (self.plan.get("noise") == "marginals"))
            most = np.minimum(most, end.reshape([-1 if j == axis else 1 for j in range(len(columns))]))
        return np.asarray(np.maximum(most, 0.0).ravel())

    def _simulated(self, draws: int, seed: int) -> tuple[Floats, Residuals, list[Marginal]]:
        """(entries of tables,) the mean squared error of a cell in a simulation, in the order of ``_geometry``."""
        residuals, order = self._geometry()
        truth = np.concatenate([self.marginals[m].values.ravel() for m in order])
        at = residuals.parts.which
        parts = residuals.residuals_of(truth)
        generator, square = public_generator(seed), np.zeros(truth.size)
        for _ in range(draws):
            noise = residuals.parts.centred(generator.normal(size=parts.size) * np.sqrt(self.residual_variances)[at])
            found = fitted_tables(residuals, parts + noise, self.residual_variances, self.public_total, self.fit)
            square += (found - truth) ** 2
        return square / draws, residuals, order

    def _geometry(self) -> tuple[Residuals, list[Marginal]]:
        numbers = {tuple(self.columns.index(c) for c in m): m for m in self.marginals}
        residuals = Residuals.of(numbers, self.domain.sizes)
        return residuals, [numbers[each] for each in residuals.tables.sets]
