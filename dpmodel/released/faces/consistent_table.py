"""Consistent tables: noisy marginals that overlap, known margins and structural zeros, fitted together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Labels
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.marks.domain import Domain, key
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Laplace
from dpmodel.released.faces.consistent import (
    Consistent,
    Round,
    assembled,
    box,
    checked_noisy,
    flattened,
    public_array,
    refuse_contradiction,
    rounded_table,
)
from dpmodel.released.faces.marginal_release import MarginalAnswer
from dpmodel.released.faces.query_release import MOST_CELLS
from dpmodel.released.faces.refits import AUTO, Setting, settled
from dpmodel.released.faces.workload import Marginal, Tables, allowed_cells, marginal_named, sums, zero_cells
from dpmodel.released.model import Postprocessing

# Columns along one axis, and their values there (None: in the order of the domain).
Axis = tuple[tuple[str, ...], tuple[Any, ...] | None]


def axis_names(noisy: Noisy) -> Marginal:
    """Axis names of labelled numbers, index levels included."""
    names = tuple(n for name, _ in noisy.labels for n in (name if isinstance(name, tuple) else (name,)))
    if not names or not all(isinstance(name, str) for name in names):
        raise SpecificationError(
            "measured: numbers without names of their axes",
            remedy="{('age', 'sex'): Noisy(...)}, or a pandas Series whose index levels have names",
        )
    return names


def placed(given: Noisy, key: Any, marginal: Marginal, domain: Domain) -> tuple[Integers, Integers]:
    """Which cells of the marginal the numbers are: (k,) order of the flat numbers, and (k,) their cells, ascending.

    Labelled numbers may leave cells out.
    Errors: SpecificationError, for sizes that do not fit, labels outside the domain, and cells that are there twice.
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    said = f"the marginal {' x '.join(names) or 'total'}"
    axes = _labelled(given, names)
    if axes is None:
        shape = domain.shape(names)
        if given.shape not in (shape, (domain.size(names),)) and not (given.size == 1 and not names):
            raise SpecificationError(
                f"{said} has {shape or 'one'} cells, its numbers have the shape {given.shape}",
                why="axes follow the order in which the columns are named",
                remedy="one number per cell of the domain, or flat in C order",
            )
        codes = dict(zip(names, np.unravel_index(np.arange(given.size), shape), strict=True)) if names else {}
    else:
        codes = _codes(given, axes, domain, said)
    if not marginal:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    cells = np.ravel_multi_index(tuple(codes[c] for c in marginal), domain.shape(marginal)).astype(np.int64)
    order = np.argsort(cells, kind="stable")
    cells = cells[order]
    if (cells[1:] == cells[:-1]).any():
        raise SpecificationError(f"{said} has a cell twice", remedy="a list of two measurements, where it is one")
    return order, cells


def _labelled(given: Noisy, names: tuple[str, ...]) -> list[Axis] | None:
    """The labels' axes if they are those of ``names``: by name, and one after the other where they have none."""
    spread = [name if isinstance(name, tuple) else (name,) for name, _ in given.labels]
    flat = [name for each in spread for name in each]
    if not names or len(flat) != len(names):
        return None
    other = next((name for name in flat if name is not None and name not in names), None)
    if other is not None:
        raise SpecificationError(
            f"the marginal {' x '.join(names)} has an axis called {other!r}",
            why="columns are called by name",
            remedy="axes with the names of the columns, or without names",
        )
    rest, out = iter([name for name in names if name not in flat]), []
    for each, (_, labels) in zip(spread, given.labels, strict=True):
        mine = tuple(next(rest) if name is None else name for name in each)
        # pandas numbers rows and columns when nobody named them.
        numbered = None in each and labels == tuple(range(len(labels)))
        out.append((mine, None if numbered else labels))
    return out


def _codes(given: Noisy, axes: list[Axis], domain: Domain, said: str) -> dict[str, Integers]:
    """(size,) codes of each column for the flat numbers."""
    out = {}
    for axis, (columns, labels) in enumerate(axes):
        view = [1] * given.ndim
        view[axis] = -1
        if labels is None and given.shape[axis] != domain.size(columns):
            raise SpecificationError(
                f"{said}: {given.shape[axis]} values of {columns[0]!r}, not {domain.size(columns)}",
                why="without labels, numbers are put into cells by their places",
                remedy="one number for every category of the domain, or a pandas Series with labels",
            )
        for place, column in enumerate(columns):
            if labels is None:
                code = np.arange(given.shape[axis])
            else:
                values = labels if len(columns) == 1 else tuple(label[place] for label in labels)
                number = domain.numbers(column)
                absent = next((each for each in values if key(each) not in number), None)
                if absent is not None:
                    raise SpecificationError(
                        f"{said}: {column!r} has the label {absent!r}, which is not in the domain",
                        why="the numbers are put into the cells of the domain by their labels",
                        remedy=f"a domain that lists {absent!r}, or labels among its values",
                    )
                code = np.array([number[key(each)] for each in values], dtype=np.int64)
            out[column] = np.broadcast_to(code.reshape(view), given.shape).ravel()
    return out


def listed(measured: Any) -> Iterable[tuple[Any, Any]]:
    """(columns, Noisy) pairs of everything that ``consistent_table`` takes."""
    if isinstance(measured, Noisy):
        measured = [measured]
    if isinstance(measured, Mapping):
        return [(k, each) for k, v in measured.items() for each in (v if isinstance(v, list | tuple) else [v])]
    return [(axis_names(each) if isinstance(each, Noisy) else None, each) for each in measured]


# ------------------------------------------------------------------ the tables


# A marginal, the cells of it that were measured, and the flat numbers.
Part = tuple[Marginal, Integers, Noisy]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedTable(Consistent):
    """Consistent tables fitted to noisy marginals: ``solve()``, then read any marginal of them.

    ``over`` : "domain" when x is one table over all cells (or over those that are no structural zeros: (n, columns)
    codes in ``tables.cells``), "marginals" when it is one table per measured or known marginal (and per set of columns
    that two of them share), which agree with each other.
    """

    domain: Domain
    over: str
    tables: Tables

    def marginal(self, columns: Iterable[str] | str, *more: Any) -> MarginalAnswer:
        """A marginal with its names and categories; ``()`` is the total.

        Raises
        ------
        SpecificationError
            Before ``solve``, for unknown columns, for columns that no fitted table holds together, and for more than
            ``10 * MOST_CELLS`` cells (``to_series()`` lists those that are no structural zeros).
        """
        if more:
            together = ", ".join(map(repr, (columns, *more)))
            raise SpecificationError(
                f"marginal({together})",
                why="the columns of a marginal are one argument",
                remedy=f"marginal(({together}))",
            )
        marginal = marginal_named(self.domain, columns, "marginal")
        x = self.x
        self._require_held(marginal)
        return MarginalAnswer(marginal, self.tables.table(x, marginal), self.domain.labels(marginal))

    @property
    def table(self) -> MarginalAnswer:
        """The table over all columns."""
        return self.marginal(self.domain.columns)

    def marginal_matrix(self, columns: Iterable[str] | str) -> sp.csr_array:
        """(cells of the marginal, n) matrix that sums x, for ``of=`` of ``standard_errors`` and ``intervals``."""
        marginal = marginal_named(self.domain, columns, "marginal")
        self._require_held(marginal)
        return self.tables.incidence(marginal)

    def functions(self, of: Any) -> tuple[sp.csr_array, tuple[int, ...]] | None:
        """The columns of a marginal."""
        if not isinstance(of, str | tuple):
            return None
        marginal = marginal_named(self.domain, of, "of")
        return self.marginal_matrix(marginal), self.domain.shape(marginal)

    def to_series(self, columns: Iterable[str] | str | None = None) -> Any:
        """A marginal (the whole table by default) as a pandas Series with one index level per column. Of a table that
        lists a part of its cells, by default these."""
        try:
            pd = import_module("pandas")
        except ImportError:
            raise SpecificationError("pandas is not installed", remedy="marginal(...), which needs none") from None
        if columns is None and self.tables.cells is not None:
            codes = zip(self.domain.labels(self.domain.columns), self.tables.cells.T, strict=True)
            named = [[values[int(i)] for i in code] for values, code in codes]
            return pd.Series(self.x, index=pd.MultiIndex.from_arrays(named, names=self.domain.columns))
        answer = self.table if columns is None else self.marginal(columns)
        if not answer.columns:
            return pd.Series([float(answer.values)], name="total")
        index = pd.MultiIndex.from_product(answer.categories, names=answer.columns)
        if len(answer.columns) == 1:
            index = pd.Index(list(answer.categories[0]), name=answer.columns[0])
        return pd.Series(answer.values.ravel(), index=index)

    def _require_held(self, marginal: Marginal) -> None:
        if self.tables.holding(marginal) is None:
            raise SpecificationError(
                f"no fitted table has the columns {', '.join(marginal)} together",
                why="over the marginals there is one table for each that was measured or known",
                remedy="over='domain' where the domain is small enough, or a marginal that was measured",
            )
        if self.domain.size(marginal) > 10 * MOST_CELLS:
            raise SpecificationError(
                f"a marginal of {self.domain.size(marginal)} cells",
                why=f"its array would hold the structural zeros too; served are {10 * MOST_CELLS}",
                remedy="to_series(), which lists the other cells, or fewer columns",
            )

    def _variables(self, x: Floats) -> Mapping[str, Any]:
        if self.tables.cells is not None:
            return {"cells " + " x ".join(self.domain.columns): x}
        shape = self.domain.shape
        return {" x ".join(t) or "total": x[self.tables.span(t)].reshape(shape(t)) for t in self.tables.offset}

    def _labels(self) -> Mapping[str, Labels]:
        if self.tables.cells is not None:
            return {}
        return {" x ".join(t): tuple(zip(t, self.domain.labels(t), strict=True)) for t in self.tables.offset if t}

    def _rounded(self, x: Floats, round: Round, seed: int) -> Floats:
        return rounded_table(self.model, x, round, seed)

    def _agreement(self) -> tuple[str, ...]:
        if self.tables.cells is not None:
            return (f"one table of the {self.tables.size} cells that are no structural zeros: all its marginals agree",)
        if self.over == "domain":
            return ()
        shown = ", ".join(" x ".join(t) or "total" for t in self.tables.offset)
        return (
            f"tables {shown}: two of them agree on the columns they share and on nothing else; one table with all of "
            "them need not exist, and of nested columns (such as a district's region) the outer one is no sum of the "
            "inner one unless a table has both (structural zeros that leave few cells make one table of all)",
        )

    @property
    def _near(self) -> str:
        if not self._form.equality.shape[0]:
            return ""
        return ": all sums agree; the nearest such table, or one near it where the bounded search ended before"


def consistent_table(
    measured: Mapping[Any, Any] | Iterable[Noisy],
    *,
    domain: Any,
    known: Mapping[Any, Any] | None = None,
    structural_zeros: Any = None,
    nonneg: bool = True,
    bounds: Any = None,
    alpha: float = 1.0,
    form: str = AUTO,
    over: Literal["auto", "domain", "marginals"] = "auto",
) -> FittedTable:
    """A table fitted to noisy marginals of it, whatever overlaps.

    Parameters
    ----------
    measured : {columns: Noisy}, or a list of Noisy for columns that were measured more than once; scales and
    distributions may
        differ. Axes follow the key's order; values may be flat. Labelled ones (a pandas Series whose index levels are
        named, an xarray array) may come as a plain list: their names and categories say what they are.
    domain : {column: number of values, or list of categories}.
    known : {columns: numbers}, public margins that hold exactly; ``()`` is the total.
    structural_zeros : cells that are 0 for a public reason: a boolean array of the domain's shape, or a list of
        {column: value} that rule out every cell with these values together.
    nonneg : cells are at least 0. bounds : (low, high) of the cells, numbers or arrays of the domain's shape.
    alpha, form : as in ``neg_log_likelihood``; "auto" takes the likelihood or least squares, whichever is forecast
        to be more accurate; the plan warns of marginals that come out worse than published (``refits.settled``).
    over : "domain" fits one table over all cells, "marginals" one table per marginal, which agree pairwise on the
        columns they share; where these form no cycle that is the same, otherwise a single table with these marginals
        need not exist. "auto" takes the domain up to ``MOST_CELLS`` cells; where there are more and structural zeros
        leave so few, x lists these. So nested columns (region, district, block), with the combinations that do not
        occur as structural zeros, are one table, in which a district is the sum of its blocks.

    Raises
    ------
    SpecificationError
        For columns outside the domain, sizes that do not fit, missing noise distributions.
    InfeasibleError
        For known numbers that contradict each other, the bounds or the structural zeros.

    Examples
    --------
    >>> import dpmodel as dpm
    >>> from dpmodel.noise import Laplace
    >>> noisy = {"sex": dpm.Noisy([6.0, 3.0], noise=Laplace(1.0)), (): dpm.Noisy(12.0, noise=Laplace(10.0))}
    >>> fit = dpm.released.consistent_table(noisy, domain={"sex": ["f", "m"]})
    >>> fit.solve().guarantee.epsilon
    0.0
    >>> fit.marginal("sex").values.round(6) + 0.0
    array([6., 3.])
    """
    public = Domain.of(domain)
    parts = _parts(measured, public)
    if not parts:
        raise SpecificationError("nothing was measured", remedy="{('age', 'sex'): Noisy(...)}")
    margins = _margins(known or {}, public)
    wide, allowed = _over(over, public, structural_zeros)
    wanted = [m for m, *_ in parts] + list(margins)
    tables = Tables.whole(public, allowed) if wide == "domain" else Tables.local(public, wanted)
    parts = _with_cells(tables, parts)
    _refuse_too_many(tables)
    low, high = _cells(tables, wide, nonneg, bounds)
    zero = zero_cells(structural_zeros, tables, wide)
    _fix_zeros(low, high, zero)
    equality, value = _equalities(tables, wide, margins, low, high)
    words = f"post-processing: {len(parts)} noisy marginals over {tables.size} cells; it costs no privacy"
    whole = public.sizes if allowed is None else (tables.size,)
    shape = whole if wide == "domain" else None

    def build(setting: Setting) -> Postprocessing:
        form_, measurements, rows = assembled(
            [(noisy, _rows(tables, marginal, cells)) for marginal, cells, noisy in parts],
            setting,
            tables.size,
            equality=equality,
            equality_value=value,
            lower=low,
            upper=high,
        )
        return Postprocessing(form_, measurements, rows, shape=shape, description=words)

    return FittedTable(*settled(build, alpha, form), domain=public, over=wide, tables=tables)


def marginal_query(table: Any, columns: Iterable[str] | str, *, domain: Any) -> cp.Expression:
    """The cells of a marginal as an affine expression (flat, in the order of the domain) of a Private table over the
    whole domain (flat, or of the domain's shape), for ``measure``. One record is in one cell of it."""
    public = Domain.of(domain)
    marginal = marginal_named(public, columns, "columns")
    shape = tuple(table.shape)
    if shape not in ((public.cells,), public.sizes):
        raise SpecificationError(f"a table of shape {shape}", remedy=f"shape {public.sizes} or ({public.cells},)")
    flat = table if shape == (public.cells,) else cp.vec(table, order="C")
    name = "cells of " + (" x ".join(marginal) or "the total")
    return cp.Constant(Tables.whole(public).incidence(marginal), name=name) @ flat


# ------------------------------------------------------------------ what was given
def _parts(measured: Any, domain: Domain) -> list[Part]:
    """Marginals, the cells of them that were measured, and the flat numbers."""
    out = []
    for given, noisy in listed(measured):
        noisy = checked_noisy(noisy, "measured" if given is None else f"measured[{given!r}]")
        marginal = marginal_named(domain, given, "measured")
        order, cells = placed(noisy, given, marginal, domain)
        out.append((marginal, cells, flattened(noisy, order, name=_name(marginal))))
    return out


def _margins(known: Mapping[Any, Any], domain: Domain) -> dict[Marginal, tuple[Integers, Floats]]:
    """Known margins: cells and their numbers."""
    out: dict[Marginal, tuple[Integers, Floats]] = {}
    for given, value in known.items():
        marginal = marginal_named(domain, given, "known")
        if marginal in out:
            raise SpecificationError(f"known[{given!r}] is given twice", remedy="each set of columns once")
        public_array(value, f"known[{given!r}]")
        exact = Noisy(value, noise=Laplace(1.0))  # for its labels: known numbers bear no noise
        order, cells = placed(exact, given, marginal, domain)
        out[marginal] = cells, exact.value.ravel()[order]
    return out


def _over(over: Any, domain: Domain, zeros: Any) -> tuple[str, Integers | None]:
    """ "domain" or "marginals", and the cells of the domain that x lists (None: all)."""
    if over not in ("auto", "domain", "marginals"):
        raise SpecificationError(f"over={over!r}", remedy="'auto', 'domain' or 'marginals'")
    if over == "marginals" or domain.cells <= MOST_CELLS:
        return "domain" if over == "auto" else str(over), None
    allowed = None if zeros is None else allowed_cells(zeros, domain, MOST_CELLS)
    if over == "domain" and allowed is None:
        raise SpecificationError(
            f"over='domain' with {domain.cells} cells",
            why=f"x would have one entry per cell that is no structural zero; served are {MOST_CELLS}",
            remedy="over='marginals' (tables that agree pairwise), more structural zeros, or coarser columns",
        )
    if allowed is not None and not allowed.size:
        raise InfeasibleError(
            "structural zeros leave no cell", remedy="structural zeros that leave the cells that occur"
        )
    return ("marginals" if allowed is None else "domain"), allowed


def _with_cells(tables: Tables, parts: list[Part]) -> list[Part]:
    """What was measured, without sums over no cell that x lists: nothing but noise."""
    if tables.cells is None:
        return parts
    out = []
    for marginal, cells, noisy in parts:
        kept = np.diff(_rows(tables, marginal, cells).indptr) > 0
        out.append((marginal, cells[kept], flattened(noisy, np.flatnonzero(kept))))
    return [part for part in out if part[1].size]


def _refuse_too_many(tables: Tables) -> None:
    most = 10 * MOST_CELLS
    if tables.size > most:
        raise SpecificationError(
            f"marginals of {tables.size} cells", why=f"served are {most}", remedy="smaller marginals or coarser columns"
        )


def _cells(tables: Tables, over: str, nonneg: bool, bounds: Any) -> tuple[Floats, Floats]:
    if tables.cells is not None and isinstance(bounds, list | tuple):
        at = tuple(tables.cells.T)
        whole = tables.domain.sizes, (tables.domain.cells,)
        bounds = [np.reshape(b, whole[0])[at] if np.shape(b) in whole else b for b in bounds]
    if over == "domain" or bounds is None:
        return box(tables.size, nonneg, bounds)
    raise SpecificationError(
        "bounds over the marginals",
        why="they concern the cells of the whole domain, which has no table here",
        remedy="over='domain', or constraints added to problem()",
    )


def _fix_zeros(low: Floats, high: Floats, zero: Any) -> None:
    wrong = zero & ((low > 0) | (high < 0))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InfeasibleError(
            f"cell {at} is a structural zero, and between {low[at]:g} and {high[at]:g} by its bounds",
            why="no number satisfies both",
        )
    low[zero] = high[zero] = 0.0


def _equalities(
    tables: Tables, over: str, margins: Mapping[Marginal, tuple[Integers, Floats]], low: Floats, high: Floats
) -> tuple[sp.csr_array | None, Floats]:
    """Sums of tables, and known margins: in the bounds where a table is the margin itself, else as rows."""
    _refuse_disagreement(tables.domain, margins)
    blocks, values = [], []
    if over == "marginals":
        agree = tables.consistency()
        blocks.append(agree)
        values.append(np.zeros(agree.shape[0]))
    for marginal, (cells, known) in margins.items():
        rows = _rows(tables, marginal, cells)
        # The rows hold ones only: sums of bounds.
        least, most = rows @ low, rows @ high
        at = int(np.argmax(np.maximum(least - known, known - most)))
        said = _cell(tables.domain, marginal, int(cells[at]))
        refuse_contradiction(said, float(known[at]), "its cells can sum to", float(least[at]), float(most[at]))
        if tables.cells is not None:
            kept = np.diff(rows.indptr) > 0  # sums over no cell are known to be 0, as was checked
            blocks.append(rows[kept])
            values.append(known[kept])
        elif tables.holding(marginal) == marginal:
            place = tables.span(marginal).start + cells
            low[place] = high[place] = known
        else:
            blocks.append(rows)
            values.append(known)
    if not blocks:
        return None, np.zeros(0)
    return sp.csr_array(sp.vstack(blocks, format="csr")), np.concatenate(values)


def _refuse_disagreement(domain: Domain, margins: Mapping[Marginal, tuple[Integers, Floats]]) -> None:
    """Two known margins, each known as a whole, have to agree on the columns that they share."""
    whole = [(m, known) for m, (cells, known) in margins.items() if cells.size == domain.size(m)]
    for place, (first, one) in enumerate(whole):
        for second, two in whole[place + 1 :]:
            shared = domain.ordered(set(first) & set(second))
            k = domain.size(shared)
            a = np.bincount(sums(domain, first, shared), weights=one, minlength=k)
            b = np.bincount(sums(domain, second, shared), weights=two, minlength=k)
            at = int(np.argmax(np.abs(a - b)))
            said = f"{_cell(domain, shared, at)} (margin {_name(first)})"
            other = float(b[at])
            refuse_contradiction(said, float(a[at]), f"by {_name(second)} it is", other, other)


def _rows(tables: Tables, marginal: Marginal, cells: Integers) -> sp.csr_array:
    rows = tables.incidence(marginal)
    return rows if cells.size == rows.shape[0] else rows[cells]


def _name(marginal: Sequence[str]) -> str:
    return " x ".join(marginal) or "total"


def _cell(domain: Domain, marginal: Marginal, at: int) -> str:
    if not marginal:
        return "the total"
    codes = np.unravel_index(at, domain.shape(marginal))
    labels = domain.labels(marginal)
    return ", ".join(f"{c}={values[int(k)]}" for c, values, k in zip(marginal, labels, codes, strict=True))
