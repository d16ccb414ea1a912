"""Released marginals: non-negative tables that agree, with standard errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks.domain import Domain
from dpmodel.privacy import public_generator
from dpmodel.release import Release
from dpmodel.released.faces.workload import Marginal, column_names
from dpmodel.released.pinned_fit import Fit, fitted_tables
from dpmodel.released.residuals import Residuals
from dpmodel.released.sampled_rows import drawn, moved
from dpmodel.text import frame_of, long_frame


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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MarginalRelease(Release):
    """The release of a workload of marginals: a ``Release`` whose variables are the tables.

    All tables are non-negative and have the same total and the same table of every column. ``residual_variances`` : of
    every released residual, in the order of ``Residuals.parts``; ``public_total`` : the number of records where it is
    public; ``fit`` : whether it pulled towards independent columns, or took them ("independent"); ``columns`` : of the
    workload, in the order of the domain.
    """

    _spread: ClassVar[float] = 10.0  # counts are printed in full

    columns: tuple[str, ...] = ()
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
        residuals, order = self._geometry()
        truth = np.concatenate([self.marginals[m].values.ravel() for m in order])
        at = residuals.parts.which
        parts = residuals.residuals_of(truth)
        generator, square = public_generator(seed), np.zeros(truth.size)
        for _ in range(draws):
            noise = residuals.parts.centred(generator.normal(size=parts.size) * np.sqrt(self.residual_variances)[at])
            found = fitted_tables(residuals, parts + noise, self.residual_variances, self.public_total, self.fit)
            square += (found - truth) ** 2
        mean = np.bincount(residuals.tables.which, square / draws) / residuals.tables.cells
        return dict(zip(order, np.sqrt(mean).tolist(), strict=True))

    def _geometry(self) -> tuple[Residuals, list[Marginal]]:
        numbers = {tuple(self.columns.index(c) for c in m): m for m in self.marginals}
        residuals = Residuals.of(numbers, self.domain.sizes)
        return residuals, [numbers[each] for each in residuals.tables.sets]
