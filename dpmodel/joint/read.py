"""From a CVXPY problem with ``Shares`` to one person's problem (``Form``) and what all share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.refusals import constraint_label, refuse_undisciplined
from dpmodel.errors import UnsupportedModelError
from dpmodel.joint.declared import bounds_of, largest_use, most_value, ranges_of, synthetic_rows, uses_nothing
from dpmodel.joint.expressions import Reader
from dpmodel.joint.form import Affine, Form
from dpmodel.joint.leaves import Public
from dpmodel.joint.terms import ALL, PERSON, Terms, Unread, joined
from dpmodel.marks.private import Private
from dpmodel.marks.records import Records, refuse_unnamed
from dpmodel.marks.shares import Shares
from dpmodel.privacy import PublicGenerator


@dataclass(frozen=True, eq=False)
class Read:
    """A problem whose records own its variables, at the present values of its public parameters.

    ``count`` : n records. ``capacity`` (m,) : public, nan where private numbers stand in it; ``labels`` (m,) : of what
    all share. Where private: ``limits_constant + limits_map @ entries`` of the ``limits``, their entries one after the
    other, each in the order of its layout. ``private`` : parameters with a row for each record; ``public`` : arrays
    with one (n, width); in the order of ``form.data`` together. ``ranges`` : (width,), (width,) public bounds of the
    numbers in a row of data.
    """

    form: Form
    count: int
    capacity: Floats
    labels: tuple[str, ...]
    limits: tuple[Private, ...]
    limits_map: Any
    limits_constant: Floats
    private: tuple[Private, ...]
    public: tuple[Floats, ...]
    ranges: tuple[Floats, Floats]
    records: Records
    minimise: bool
    shares: Shares

    @cached_property
    def largest_use(self) -> float:
        """Bound on the 2-norm of one person's use that follows from what was declared; inf for none."""
        return largest_use(self.form, self.ranges)

    def synthetic_rows(self, rng: PublicGenerator, count: int) -> Floats:
        """(count, width) rows of data of people drawn from declarations."""
        return synthetic_rows(self.private, self.public, self.count, rng, count)

    @cached_property
    def absent_uses_nothing(self) -> bool:
        """Whether a person whose private numbers are all 0 uses nothing at any prices."""
        return uses_nothing(self.form, self.ranges)

    @cached_property
    def most_value(self) -> float:
        """Bound on the size of one person's value; inf for none."""
        return most_value(self.form, self.ranges)


def shares_of(problem: cp.Problem) -> list[Shares]:
    return [variable for variable in problem.variables() if isinstance(variable, Shares)]


def read(problem: cp.Problem) -> Read:
    """Errors: SpecificationError, UnsupportedModelError, MissingValueError, with the row, the rule and what to write
    instead."""
    shares = shares_of(problem)
    if len(shares) != 1:
        raise UnsupportedModelError(
            f"shares {', '.join(each.name() for each in shares)} in one problem",
            why="a person is handed one share",
            remedy="one Shares with more entries, and slices of it: both = dpm.Shares((n, 48), ...), both[:, :24]",
        )
    refuse_unnamed([*shares, *(p for p in problem.parameters() if isinstance(p, Private))])
    refuse_undisciplined(problem)
    return _Reading(problem, shares[0]).done()


class _Reading:
    """Rows as they are met: ``use`` of what all share, ``personal`` limits of one share."""

    def __init__(self, problem: cp.Problem, shares: Shares) -> None:
        self.problem, self.shares = problem, shares
        self.reader = Reader(shares)
        self.use: list[Terms] = []
        self.labels: list[str] = []
        self.personal: list[tuple[Terms, str]] = []

    def done(self) -> Read:
        values = self._objective()
        self._attributes()
        for number, constraint in enumerate(self.problem.constraints):
            label = constraint_label(constraint, number)
            try:
                self._constraint(constraint, label)
            except Unread as refused:
                raise UnsupportedModelError(label, why=refused.why, remedy=refused.remedy) from None
            except UnsupportedModelError as refused:
                if refused.what.startswith(label):
                    raise
                raise UnsupportedModelError(
                    f"{label}: {refused.what}", why=refused.why, remedy=refused.remedy
                ) from None
        if not self.labels:
            raise UnsupportedModelError(
                "a problem with shares in which nothing is shared",
                why="without a sum over people that is limited, each person's problem is their own",
                remedy="a row such as cp.sum(x, axis=0) <= capacity; or solve each person's problem by itself",
            )
        return self._assembled(values)

    # ------------------------------------------------------------------ objective and constraints
    def _objective(self) -> Terms:
        node = self.problem.objective.args[0]
        try:
            value = self.reader.read(node)
            if not isinstance(value, Terms) or value.axis is not None:
                raise Unread("the objective is no sum over people of their own values", "cp.sum(cp.multiply(v, x))")
        except Unread as refused:
            raise UnsupportedModelError("the objective", why=refused.why, remedy=refused.remedy) from None
        except UnsupportedModelError as refused:
            raise UnsupportedModelError(
                f"the objective: {refused.what}", why=refused.why, remedy=refused.remedy
            ) from None
        sign = -1.0 if isinstance(self.problem.objective, cp.Minimize) else 1.0
        return value.some(value.share >= 0).times(sign)  # what no share moves decides nothing

    def _attributes(self) -> None:
        attributes, shape = self.shares.attributes, tuple(self.shares.shape)
        highest: list[Any] = [1.0] if attributes["boolean"] else []
        highest += [] if attributes["bounds"] is None else [attributes["bounds"][1]]
        for end in highest:
            array, label = np.asarray(end, dtype=np.float64), f"bounds of {self.shares.name()}"
            if np.isfinite(array).all():
                x, most = self.reader.aligned([self.reader.read(self.shares), Public(array)], shape)
                self._owned(joined([x, most.times(-1.0)], shape, 0), label)
            elif not np.isinf(array).all():
                raise UnsupportedModelError(
                    label,
                    why="some entries have a bound and others none",
                    remedy="nonneg=True, and a constraint such as x[:, :3] <= 1",
                )

    def _constraint(self, constraint: Any, label: str) -> None:
        if type(constraint) is cp.constraints.Inequality:
            left, right = (self.reader.read(arg) for arg in constraint.args)
            parts = self.reader.aligned([left, right], tuple(constraint.shape))
            terms = joined([parts[0], parts[1].times(-1.0)], tuple(constraint.shape), parts[0].axis)
        elif type(constraint) in (cp.constraints.NonNeg, cp.constraints.NonPos):
            (terms,) = self.reader.aligned([self.reader.read(constraint.args[0])], tuple(constraint.shape))
            terms = terms.times(-1.0 if type(constraint) is cp.constraints.NonNeg else 1.0)
        else:
            equal = type(constraint) in (cp.constraints.Equality, cp.constraints.Zero)
            raise Unread(
                "an equality over shares: where something runs short shares are scaled down, so that a share of 0 "
                "must be allowed"
                if equal
                else f"a {type(constraint).__name__} constraint over shares",
                "<= in place of ==" if equal else "linear limits",
            )
        if not (terms.share >= 0).any():
            raise Unread("it limits no share", "public facts are checked before the model is written")
        if terms.axis is None:
            self._shared(terms, label)
        else:
            self._owned(terms, label)

    def _shared(self, terms: Terms, label: str) -> None:
        """Sums over all people <= a capacity."""
        shares = terms.share >= 0
        if (terms.share[shares] >= self.reader.size).any():
            raise Unread("what all share is used piecewise linearly", "use that is linear in a share")
        if (terms.share == PERSON).any():
            raise Unread(
                "a sum of private numbers of all people stands beside shares",
                "the sum declared as one Private of its own: dpm.Private(total, unit='all', linf=...)",
            )
        self.use.append(terms.at((terms.places,), None, terms.place + len(self.labels)))
        self.labels += _entries(label, terms.shape)

    def _owned(self, terms: Terms, label: str) -> None:
        """Limits of one person's share."""
        self.personal.append((terms.at((terms.places,), None, terms.place), label))

    # ------------------------------------------------------------------ into arrays
    def _assembled(self, values: Terms) -> Read:
        reader = self.reader
        terms = [values, *self.use, *reader.rows, *(each for each, _ in self.personal)]
        used = np.concatenate([each.datum[each.share != ALL] for each in terms])
        columns = [c for c in reader.columns if ((used >= c.first) & (used < c.first + c.width)).any()]
        columns.sort(key=lambda column: not isinstance(column.source, Private))
        names = _unlike([column.name for column in columns])
        order = np.concatenate([np.arange(c.first, c.first + c.width) for c in columns] or [np.zeros(0, dtype=int)])
        self._datum = np.full(sum(column.width for column in reader.columns), -1)
        self._datum[order] = np.arange(order.size)
        self._private = sum(column.width for column in columns if isinstance(column.source, Private))
        self._ends = ranges_of([(column.source, column.width) for column in columns])
        size = reader.size + reader.extra
        caps, rows, signed = self._limits()
        use = joined(self.use, (len(self.labels),), None)
        pieces = [(piece, False) for piece in reader.rows] + [(piece, True) for piece in rows]
        starts = np.cumsum([0, *(piece.shape[0] for piece, _ in pieces)]).tolist()
        height = starts[-1]
        table = [p.at((height,), None, p.place + s) for (p, _), s in zip(pieces, starts[:-1], strict=True)]
        limits = joined(table, (height,), None) if table else values.some(slice(0, 0))
        limits_at, coefficients = self._at(limits.some(limits.share >= 0), size)
        use_at, amounts = self._at(use.some(use.share >= 0), reader.size)
        self._refuse_negative(amounts, use_at)
        capacity, limits_map, constant = self._capacities(use)
        form = Form(
            data=tuple((name, column.width) for name, column in zip(names, columns, strict=True)),
            private=frozenset(names[: sum(isinstance(column.source, Private) for column in columns)]),
            shape=tuple(int(n) for n in self.shares.shape[1:]),
            extra=reader.extra,
            resources=len(self.labels),
            use_at=use_at,
            limits_at=limits_at,
            values=self._affine(values.share, values.datum, values.number, size),
            caps=caps,
            use=amounts,
            coefficients=coefficients,
            limits=self._affine(*_at_zero(limits, -1.0), height),
            personal=np.repeat([own for _, own in pieces], [piece.shape[0] for piece, _ in pieces]).astype(bool),
            signed=signed,
            integral=bool(self.shares.attributes["boolean"] or self.shares.attributes["integer"]),
        )
        return Read(
            form=form,
            count=reader.count,
            capacity=capacity,
            labels=tuple(self.labels),
            limits=tuple(parameter for parameter, _ in reader.aside),
            limits_map=limits_map,
            limits_constant=constant,
            private=tuple(c.source for c in columns if isinstance(c.source, Private)),
            public=tuple(c.source for c in columns if not isinstance(c.source, Private)),
            ranges=self._ends,
            records=self.shares.records,
            minimise=isinstance(self.problem.objective, cp.Minimize),
            shares=self.shares,
        )

    def _affine(self, entry: Integers, datum: Integers, number: Floats, size: int) -> Affine:
        width = self._ends[0].size
        constant = np.zeros(size)
        public = datum < 0
        np.add.at(constant, entry[public], number[public])
        places = self._datum[datum[~public]], entry[~public]
        matrix = sp.csr_array((number[~public], places), shape=(width, size))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return Affine(matrix, constant)

    def _at(self, terms: Terms, size: int) -> tuple[tuple[Any, Any], Affine]:
        """Where coefficients stand (rows, columns), and the numbers there."""
        cells, which = np.unique(terms.place * size + terms.share, return_inverse=True)
        return np.divmod(cells, max(size, 1)), self._affine(which, terms.datum, terms.number, cells.size)

    def _range(self, numbers: Affine) -> tuple[Floats, Floats]:
        """(q,), (q,) public bounds of numbers of a person."""
        return bounds_of(numbers, self._ends)

    def _refuse_negative(self, amounts: Affine, at: tuple[Any, Any]) -> None:
        low, _ = self._range(amounts)
        wrong = np.flatnonzero(low < 0)
        if not wrong.size:
            return
        row = int(at[0][wrong[0]])
        names = self._names(amounts, int(wrong[0]))
        negative = "a sum is to reach something, or a coefficient is negative"
        raise UnsupportedModelError(
            self.labels[row],
            why=f"{f'{names} may be negative' if names else negative}, and shares must use what all "
            "share and never give it back: where something runs short they are scaled down",
            remedy=f"bounds=[0, most] of {names}"
            if names
            else "sums <= a capacity, with coefficients that are 0 or more",
        )

    def _names(self, numbers: Affine, entry: int) -> str:
        """The private parameters that stand in a number."""
        data = sp.csc_array(numbers.matrix)[:, [entry]].indices
        found = []
        for column in self.reader.columns:
            mine = self._datum[column.first : column.first + column.width]
            if np.isin(mine, data).any():
                found.append(column.name)
        return ", ".join(found)

    def _capacities(self, use: Terms) -> tuple[Floats, Any, Floats]:
        sides = use.some(use.share == ALL).times(-1.0)
        height = len(self.labels)
        public = sides.datum < 0
        constant = np.zeros(height)
        np.add.at(constant, sides.place[public], sides.number[public])
        sizes = sum(int(parameter.size) for parameter, _ in self.reader.aside)
        places = sides.place[~public], sides.datum[~public]
        limits = sp.csr_array((sides.number[~public], places), shape=(height, sizes))
        limits.sum_duplicates()
        private = np.diff(limits.indptr) > 0
        wrong = np.flatnonzero((constant < 0) & ~private)
        if wrong.size:
            raise UnsupportedModelError(
                self.labels[wrong[0]],
                why="its capacity is negative, or it asks for a least sum: a share of 0 for everybody must be allowed, "
                "because shares are scaled down where something runs short",
                remedy="sums over people <= a capacity that is 0 or more",
            )
        return np.where(private, np.nan, constant), limits, constant

    # ------------------------------------------------------------------ limits of one share
    def _limits(self) -> tuple[tuple[Affine, ...], list[Terms], bool]:
        """Bounds of single entries, the other rows, and whether these may have negative coefficients."""
        size = self.reader.size + self.reader.extra
        caps: list[Affine] = []
        rows: list[Terms] = []
        signed = False
        for terms, label in self.personal:
            height = terms.shape[0]
            (row, entry), numbers = self._at(terms.some(terms.share >= 0), size)
            side = self._affine(*_at_zero(terms, -1.0), height)
            low, high = self._range(numbers)
            entries = np.bincount(row, minlength=height)
            most = np.full(height, -np.inf)
            np.maximum.at(most, row, high)
            piecewise = np.bincount(row[entry >= self.reader.size], minlength=height) > 0
            # Nothing but what every share of 0 or more does.
            idle = (most <= 0) & ~piecewise & ((self._range(side)[0] >= 0) | (entries == 0))
            self._refuse_personal(label, (most <= 0) & ~idle & ~piecewise, side, entry)
            # One entry of the share with a public coefficient is a bound.
            fixed = np.diff(sp.csc_array(numbers.matrix).indptr) == 0
            alone = np.zeros(height, dtype=bool)
            alone[row] = (entries[row] == 1) & fixed & (entry < self.reader.size) & (low > 0)
            cells = np.flatnonzero(alone[row])
            caps += _bounds(side, row[cells], entry[cells], numbers.constant[cells], self.reader.size)
            rest = ~alone & ~idle
            if rest.any():
                part = terms.some(rest[terms.place])
                rows.append(part.at((int(rest.sum()),), None, (np.cumsum(rest) - 1)[part.place]))
                signed |= bool((low[rest[row]] < 0).any() or piecewise[rest].any())
        public = [cap for cap in caps if cap.public]
        least = [replace(public[0], constant=np.min([cap.constant for cap in public], axis=0))] if public else []
        return (*least, *(cap for cap in caps if not cap.public)), rows, signed

    def _refuse_personal(self, label: str, lower: Any, side: Affine, entry: Integers) -> None:
        """What does not allow a share of 0; private limits are cut to at least 0, so that they do."""
        if lower.any():
            raise UnsupportedModelError(
                label,
                why="it is a lower limit of shares: where something runs short shares are scaled down, so that a share "
                "of 0 must be allowed",
                remedy="upper limits alone (<=); what everybody must get comes off the capacity, or is valued highly",
            )
        low, high = self._range(side)
        known = np.diff(sp.csc_array(side.matrix[: self._private]).indptr) == 0
        moved = np.isin(entry, np.array([*self.reader.off_zero], dtype=np.int64)).any()
        if moved or ((high < 0) | (known & (low < 0))).any():
            raise UnsupportedModelError(
                label,
                why="it does not allow a share of 0, to which shares are scaled down where something runs short",
                remedy="a limit that holds where the share is 0",
            )


def _bounds(side: Affine, row: Integers, entry: Integers, factor: Floats, size: int) -> list[Affine]:
    """Of shares (size,) by rows ``factor * x[entry] <= side[row]``; inf for other entries. A second bound of the same
    entry is one more."""
    out = []
    while row.size:
        _, first = np.unique(entry, return_index=True)
        scale = sp.csr_array((1.0 / factor[first], (row[first], entry[first])), shape=(side.constant.size, size))
        constant = np.full(size, np.inf)
        constant[entry[first]] = side.constant[row[first]] / factor[first]
        out.append(Affine(sp.csr_array(side.matrix @ scale), constant))
        left = np.setdiff1d(np.arange(row.size), first)
        row, entry, factor = row[left], entry[left], factor[left]
    return out


def _at_zero(terms: Terms, factor: float) -> tuple[Integers, Integers, Floats]:
    """Place, datum and number of what stands beside the shares, times ``factor``."""
    beside = terms.some(terms.share == PERSON)
    return beside.place, beside.datum, beside.number * factor


def _unlike(names: list[str]) -> list[str]:
    """The names, those that stood before with a number."""
    out: list[str] = []
    for name in names:
        places = (name, *(f"{name} ({k})" for k in range(2, len(names) + 2)))
        out.append(next(each for each in places if each not in out))
    return out


def _entries(label: str, shape: tuple[int, ...]) -> list[str]:
    """A name for every entry."""
    if not shape:
        return [label]
    return [f"{label}[{', '.join(map(str, at))}]" for at in np.ndindex(*shape)]
