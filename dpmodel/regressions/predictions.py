"""The one prediction of all terms: every part as ``plain z + signed y z + label y + constant``, record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import Affine as Rows
from dpmodel.regressions.features import Features, tidy
from dpmodel.regressions.monomials import FEATURES, TABLE, Monomials, Product, Table, unfit
from dpmodel.regressions.terms import Objective, Term

# Numbers that should agree do so to this relative accuracy.
CLOSE = 1e-9


_DENSE = 0.5  # share of entries that are not zero from which a public table is dense


@dataclass(frozen=True)
class Affine:
    """(n,) each: the coefficients of the prediction z, of label times prediction, of the label, and the rest."""

    plain: Floats
    signed: Floats
    label: Floats
    constant: Floats

    @property
    def is_zero(self) -> bool:
        return not (self.plain.any() or self.signed.any() or self.label.any() or self.constant.any())


@dataclass(frozen=True)
class Prediction:
    """z: ``blocks`` of (private features or public matrix (n, k); public expression (k,) or scalar) and ``intercept``,
    a scalar expression or None."""

    blocks: tuple[tuple[Any, cp.Expression], ...]
    intercept: cp.Expression | None


@dataclass(frozen=True)
class Read:
    """A term whose forms were read: ``coefficient`` (n,), ``times_label`` whether the label multiplies the atom."""

    term: Term
    coefficient: Floats
    times_label: bool
    parts: tuple[Affine, ...]


def close(a: Any, b: Any, size: float = 0.0) -> bool:
    """Whether two public arrays agree up to rounding (relative to their largest entry and ``size``)."""
    a, b = np.asarray(a), np.asarray(b)
    scale = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), size)
    return float(np.abs(a - b).max(initial=0.0)) <= CLOSE * scale


def read_predictions(objective: Objective) -> tuple[list[Read], Prediction, Features | None]:
    """Read all parts as functions of one prediction and at most one private label.
    Errors: UnsupportedModelError, when there are two labels, two predictions, or no prediction."""
    terms, reader = objective.terms, objective.reader
    if not terms:
        unfit(objective.expression, "no variable stands in a prediction", "X @ w with w a variable")
    label = _label(objective)
    splits = [[_Split.of(rows, label, term, reader) for rows in term.parts] for term in terms]
    target = _target(splits, objective)
    reads = []
    for term, split in zip(terms, splits, strict=True):
        parts = tuple(
            Affine(target.multiple(p.plain, term), target.multiple(p.signed, term), p.label, p.constant) for p in split
        )
        reads.append(Read(term, term.coefficient, term.label >= 0, parts))
    return reads, target.prediction(), None if label is None else reader.blocks[label].features


# ------------------------------------------------------------------ the label
def _label(objective: Objective) -> int | None:
    """The block of private numbers that are no features: they stand alone, or multiply features or a loss."""
    reader = objective.reader
    found: dict[int, Any] = {}
    pairs: list[int] = []
    for term in objective.terms:
        if term.label >= 0:
            found.setdefault(term.label, term.expression)
        for rows in term.parts:
            owner, _, t = reader.parts_of(rows.column)
            block = reader.block_of(t)
            for b in dict.fromkeys(block[block >= 0].tolist()):
                owners = {reader.owners[k] for k in np.unique(owner[block == b])}
                factors, products = reader.blocks[b].factors, any(isinstance(each, Product) for each in owners)
                if factors and (products or None in owners):
                    one, other = (reader.blocks[f].name() for f in factors)
                    why = f"{one} and {other} both multiply the features"
                    why = why if products else f"{one} is neither the label nor a feature column"
                    unfit(term.expression, why, "one Private that holds the product")
                if factors:
                    pairs.append(b)
                elif products or None in owners or _differs(rows, block == b, reader.radix):
                    found.setdefault(b, term.expression)
    if len(found) > 1:
        unfit(
            list(found.values())[1],
            f"{' and '.join(reader.blocks[b].name() for b in found)} both stand where a label does",
            "one private label; a private feature column multiplies its own variable; several outputs are columns "
            "of one variable, X @ W[:, 0] - Y[:, 0]",
        )
    if found or not pairs:
        return next(iter(found), None)
    # y * x * w: which of the two is the label is a matter of names; the one that may be a sign
    factors = reader.blocks[pairs[0]].factors
    ranges = [np.abs(np.concatenate(reader.blocks[f].features.column_range)).max() for f in factors]
    return next((f for f, largest in zip(factors, ranges, strict=True) if largest <= 1), factors[0])


def _differs(rows: Rows, mine: np.ndarray, radix: int) -> bool:
    """Whether the coefficients beside a private number have another direction in another record: then it multiplies
    public features, and is no feature."""
    row, column = (np.unique(each[mine], return_inverse=True)[1] for each in (rows.row, rows.column // radix))
    table = sp.csr_array((rows.data[mine], (row.ravel(), column.ravel())))
    first = np.asarray(table[[0]].toarray()).ravel()
    ratio = table @ first / (first @ first)
    rest = table - sp.csr_array(ratio[:, None]) @ sp.csr_array(first[None, :])
    return _top(rest) > CLOSE * _top(table)


# ------------------------------------------------------------------ the parts
@dataclass(frozen=True)
class _Linear:
    """Coefficients by record: ``key`` says which variables and private numbers are multiplied, as ``w * radix + block +
    1`` (w: the first of a product); ``public`` (n, w) those of variables alone."""

    row: Integers
    key: Integers
    data: Floats
    public: Any

    @property
    def used(self) -> np.ndarray:
        """(n,) bool"""
        out: np.ndarray = np.diff(self.public.indptr) > 0
        out[self.row] = True
        return out

    def table(self, keys: Integers) -> Floats:
        """(n, keys)"""
        out, order = np.zeros((self.public.shape[0], keys.size)), np.argsort(keys)
        np.add.at(out, (self.row, order[np.searchsorted(keys[order], self.key)]), self.data)
        return out


@dataclass(frozen=True)
class _Split:
    """A part by the label: with variables (plain, times label), and without."""

    plain: _Linear
    signed: _Linear
    label: Floats
    constant: Floats

    @staticmethod
    def of(rows: Rows, label: int | None, term: Term, reader: Monomials) -> _Split:
        owner, entry, t = reader.parts_of(rows.column)
        block = reader.block_of(t)
        has, other = np.zeros(block.size, dtype=bool), np.full(block.size, -1)
        for b in np.unique(block[block >= 0]).tolist():
            factors, mine = reader.blocks[b].factors or (b,), block == b
            rest = [f for f in factors if f != label]
            if len(rest) > 1 or (rest and (mine & (owner == 0)).any()):
                name = reader.blocks[rest[0]].name()
                unfit(term.expression, f"{name} is neither the label nor a feature column", "one label")
            has[mine] = len(rest) < len(factors)
            other[mine] = rest[0] if rest else -1
        alone = owner == 0
        products = np.isin(reader.kinds[owner], (FEATURES, TABLE))
        w = reader.firsts[owner] + np.where(products, 0, entry)
        private = products | (other >= 0)
        key, shape = w * (len(reader.blocks) + 1) + other + 1, (rows.size, reader.width)

        def linear(which: np.ndarray) -> _Linear:
            mine, free = which & private, which & ~private
            public = sp.csr_array((rows.data[free], (rows.row[free], w[free])), shape=shape)
            return _Linear(rows.row[mine], key[mine], rows.data[mine], public)

        labels = np.bincount(rows.row[alone], weights=rows.data[alone], minlength=rows.size).astype(np.float64)
        return _Split(linear(~alone & ~has), linear(~alone & has), labels, rows.offset)


# ------------------------------------------------------------------ the prediction
def _target(splits: list[list[_Split]], objective: Objective) -> _Target:
    """The first prediction that stands anywhere; one with private features before others, and of most records."""
    found = [
        (part, term)
        for term, split in zip(objective.terms, splits, strict=True)
        for each in split
        for part in (each.plain, each.signed)
        if part.used.any()
    ]
    if not found:
        unfit(objective.terms[0].expression, "no variable stands in a prediction", "X @ w with w a variable")
    part, term = max(found, key=lambda each: (each[0].row.size > 0, int(each[0].used.sum())))
    reader, used = objective.reader, part.used
    keys = np.array(list(dict.fromkeys(part.key.tolist())), dtype=np.int64)
    factor, direction = np.ones(objective.count), np.zeros(0)
    if keys.size:
        owners = [_owner(reader, key)[0] for key in keys]
        lead = next((k for k, owner in enumerate(owners) if isinstance(owner, Product)), 0)
        table = part.table(keys)
        factor = table[:, lead]
        direction = table[np.argmax(factor != 0)] / factor[np.argmax(factor != 0)]
        off = np.abs(table - factor[:, None] * direction).max(axis=0)
        if off.max() > CLOSE * np.abs(table).max():
            features = _features(reader, keys[np.argmax(off)])
            unfit(
                term.expression,
                f"{features.name()} is weighted unlike the other features of the record",
                "the same public weights on the whole prediction; X @ cp.multiply(scales, w) for scales of columns",
            )
    else:  # an intercept is 1 or -1
        for w in np.unique(part.public.indices).tolist():
            column = np.asarray(part.public[:, [w]].toarray()).ravel()
            if reader.owners[reader.parts_of(np.array([w * reader.radix]))[0][0]].size == 1 and column[used].all():
                factor = np.abs(column)
                break
    if part.public[factor == 0].nnz:
        unfit(term.expression, _OTHER, _ONE)
    inverse = np.divide(1.0, factor, out=np.zeros(factor.size), where=factor != 0)
    return _Target(reader, term, keys, direction, sp.csr_array(sp.diags_array(inverse) @ part.public), used)


_OTHER = "it uses another prediction than the rest of the objective"
_ONE = "one prediction X @ w + b in all terms that hold private parameters"


def _owner(reader: Monomials, key: int) -> tuple[Any, int]:
    """(owner, entry of it) of the w of a key."""
    owner, entry, _ = reader.parts_of(np.array([int(key) // (len(reader.blocks) + 1) * reader.radix]))
    return reader.owners[owner[0]], int(entry[0])


def _features(reader: Monomials, key: int) -> Any:
    owner = _owner(reader, key)[0]
    block = int(key) % (len(reader.blocks) + 1) - 1
    return owner.features if isinstance(owner, Product) else reader.blocks[block].features


@dataclass(frozen=True)
class _Target:
    """z: ``direction`` (keys,) of what is private, ``public`` (n, w) of the rest, for the records ``used``."""

    reader: Monomials
    term: Term
    keys: Integers
    direction: Floats
    public: Any
    used: np.ndarray

    def multiple(self, part: _Linear, term: Term) -> Floats:
        """(n,) the number that this part is of the target, record by record; 0 for none."""
        if not part.used.any():
            return np.zeros(self.used.size)
        if set(part.key.tolist()) != set(self.keys.tolist()):
            unfit(term.expression, _OTHER, _ONE)
        if self.keys.size:
            table = part.table(self.keys)
            out = np.asarray(table @ self.direction / (self.direction @ self.direction))
            fits = close(table, out[:, None] * self.direction)
        else:
            square = np.asarray(self.public.multiply(self.public).sum(axis=1)).ravel()
            out = np.asarray(self.public.multiply(part.public).sum(axis=1)).ravel()
            out, fits = np.divide(out, square, out=np.zeros(out.size), where=square > 0), True
        size = float(np.abs(out).max(initial=0.0))
        scale = max(_top(part.public), _top(self.public) * size, size if self.keys.size else 0.0)
        if not fits or _top(part.public - sp.diags_array(out) @ self.public) > CLOSE * scale:
            unfit(term.expression, _OTHER, _ONE)
        return out

    def prediction(self) -> Prediction:
        """Features of one private matrix are joined, constant columns of single entries are one intercept."""
        tables: list[tuple[Any, cp.Expression]] = []
        sources: dict[Any, list[tuple[Features, Any]]] = {}
        for key, factor in zip(self.keys, self.direction, strict=True):
            owner, entry = _owner(self.reader, key)
            expression = owner.expression if isinstance(owner, Product) else _entry(owner, entry)
            features, expression = _features(self.reader, key), _times(expression, float(factor))
            if isinstance(features, Table):
                tables.append((features.matrix, expression))
            else:
                sources.setdefault(features.source, []).append((features, expression))
        public, intercept = self._public()
        return Prediction((*map(_joined, sources.values()), *tables, *public), intercept)

    def _public(self) -> tuple[list[tuple[Any, cp.Expression]], Any]:
        """Blocks of public columns, by variable, and the intercept."""
        out: list[tuple[Any, cp.Expression]] = []
        intercept: Any = None
        columns = np.unique(self.public.indices)
        owner, entry, _ = self.reader.parts_of(columns.astype(np.int64) * self.reader.radix)
        for k in dict.fromkeys(owner.tolist()):
            variable, entries = self.reader.owners[k], entry[owner == k]
            table = sp.csr_array(self.public[:, columns[owner == k]])
            if entries.size == 1:
                column = np.asarray(table.toarray()).ravel()[self.used]
                if close(column, column[0]):
                    part = _times(_entry(variable, int(entries[0])), float(column[0]))
                    intercept = part if intercept is None else intercept + part
                    continue
            if table.shape[0] == table.shape[1] == table.nnz:
                unfit(
                    self.term.expression,
                    f"variable {variable.name()} has a coefficient of its own for every record",
                    "coefficients that many records share",
                )
            whole = variable if variable.ndim == 1 else cp.vec(variable, order="F")
            whole = whole if entries.size == variable.size else whole[entries]
            dense = table.nnz >= _DENSE * table.shape[0] * table.shape[1]
            out.append((table.toarray() if dense else table, whole))
        return out, intercept


def _entry(variable: Any, entry: int) -> Any:
    return variable if variable.ndim == 0 else cp.vec(variable, order="F")[entry]


def _top(matrix: Any) -> float:
    return float(abs(matrix).max()) if matrix.nnz else 0.0


def _times(expression: Any, factor: float) -> Any:
    return expression if factor == 1 else factor * expression


def _joined(parts: list[tuple[Features, Any]]) -> tuple[Features, Any]:
    """One block of all features that are made of the same owned numbers: no record's numbers count twice.

    The rows are the mixed columns where these are no more than the owned numbers, else the owned numbers themselves,
    with the mixing on the side of the coefficients.
    """
    same: dict[Any, tuple[Features, Any]] = {}
    for features, expression in parts:
        known = same.get(features.key)
        same[features.key] = (features, expression if known is None else known[1] + expression)
    found = list(same.values())
    first, owned = found[0][0], found[0][0].owned
    if len(found) == 1 and first.size <= owned:
        return found[0]
    mixed = sp.hstack([sp.eye_array(owned) if f.map is None else f.map for f, _ in found], format="csr")
    stacked = cp.hstack([expression for _, expression in found])
    if mixed.shape[1] <= owned:
        return Features(first.parameter, tidy(mixed), first.turned), stacked
    return Features(first.parameter, None, first.turned), cp.Constant(mixed) @ stacked
