"""The objective from outside in: losses of single records, and what is public.

Every atom that is not affine is a *node* with entries of its own; all between nodes is read as monomials. The objective
is then a sum of weighted entries of nodes and an affine rest. Each entry is taken apart once more: what it is of its
arguments (a square, an absolute value, the largest of some parts), and of which record. Entries without a record are
penalties. Those with one become terms with an entry for each record, whether they were written as one expression or
record by record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_reader import Affine, Gather, NotAffine, Scale, group, spread
from dpmodel.compile.atoms import diagonal, exponent, is_number, is_private, kind, number_of, require_values
from dpmodel.compile.refusals import short
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.regressions.monomials import (
    NODE,
    WEIGHTS,
    Monomials,
    NotPerRecord,
    stacked,
    tidied,
    unfit,
)
from dpmodel.regressions.public_expressions import not_followed, summands, vector_of

_LOSSES = (
    "squares (cp.sum_squares), absolute values (cp.norm1, cp.abs), cp.huber, maxima of two affine parts (quantile, "
    "hinge), cp.logistic, and squared hinges of X @ w, summed over the records"
)
_LOOP = "X[i] @ w and y[i] of one record in each term, or one expression for all: cp.sum(cp.square(X @ w - y))"


@dataclass(frozen=True)
class Term:
    """``sum_i coefficient_i * label_i * atom(parts_i) ** power``.

    ``atom`` : "affine", "abs", "maximum", "huber" or "logistic"; ``threshold`` is Huber's. ``label`` : the block that
    multiplies the atom, or -1. ``parts`` : rows of monomials, one row for each record.
    """

    atom: str
    coefficient: Floats
    parts: tuple[Affine, ...]
    expression: Any
    label: int = -1
    power: int = 1
    threshold: float = float("nan")


@dataclass
class Entries:
    """Entries of one atom: ``weight`` and ``t`` (a private number, or 0 for the number 1) multiply each."""

    atom: str
    weight: Floats
    t: Integers
    parts: tuple[Affine, ...]
    expression: Any
    power: int = 1
    threshold: float = float("nan")
    record: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def size(self) -> int:
        return int(self.weight.size)

    @property
    def linear(self) -> bool:
        return self.atom == "affine" and self.power == 1

    def of(self, which: Integers) -> Entries:
        """Those of these numbers."""
        parts = tuple(_gathered(rows, which) for rows in self.parts)
        return replace(self, weight=self.weight[which], t=self.t[which], parts=parts, record=self.record[which])


@dataclass
class Objective:
    """``found`` : entries of records; ``public`` : (factor, scalar expression) without private parameters.

    ``classes`` : whether ``cp.log_sum_exp`` of the rows of a matrix is read, as ``cp.logistic`` of each of its columns:
    the caller knows that it is not. ``penalty`` : whether what is public is taken apart too, into ``found``.
    ``squared`` : what squares were taken of.
    """

    reader: Monomials
    expression: Any
    classes: bool = False
    penalty: bool = False
    found: list[Entries] = field(default_factory=list)
    public: list[tuple[float, cp.Expression]] = field(default_factory=list)
    squared: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.reader.count

    @cached_property
    def terms(self) -> list[Term]:
        """Losses with an entry for each record."""
        return _by_record(self)

    def require_one_output(self) -> None:
        """Raise UnsupportedModelError where squares are taken of a table with a column for each output."""
        for expression in self.squared:
            _require_entries(expression, self.count)


def take_apart(expression: Any, count: int, factor: float = 1.0, classes: bool = False) -> Objective:
    """Split ``factor * expression`` (a scalar).
    Errors: UnsupportedModelError, naming the term that is neither public nor a sum of losses of single records."""
    out = Objective(Monomials(count=count), expression, classes)
    require_values(expression.parameters())
    for times, term in summands(expression, factor, lambda e: not is_private(e)):
        if not is_private(term):
            out.public.append((times, term))
            continue
        try:
            _read(term, times, out)
        except NotAffine as error:
            unfit(term, f"it holds {error}, which is not followed beside private rows", _LOSSES)
    _take_records(out)
    return out


def entries_of(expression: Any, factor: float, reader: Monomials) -> list[Entries]:
    """The entries of ``factor * expression``, a public scalar; those of atoms that no loss has are "other".
    Errors: UnsupportedModelError, where it cannot be followed."""
    out = Objective(reader, expression, penalty=True)
    try:
        _read(expression, factor, out)
    except NotAffine as error:
        raise not_followed(expression, error) from None
    return out.found


# ------------------------------------------------------------------ sums of entries
def _read(term: Any, times: float, out: Objective) -> None:
    """The entries that a private term adds up, weighted."""
    reader, inner = out.reader, term
    if kind(term) == "sum" and term.size == 1:
        while kind(inner) == "sum":
            inner = inner.args[0]
        rows = reader.read(inner)
    elif kind(term) == "matmul" and all(arg.ndim == 1 for arg in term.args):
        left, right = term.args
        rows = reader.read(cp.multiply(left, right))
    else:
        rows = reader.read(term)
    rows = tidied(rows)
    if not (np.isfinite(rows.data).all() and np.isfinite(rows.offset).all()):
        raise SpecificationError(f"{short(term)} has NaN or infinite entries", remedy="finite numbers")
    _weighted(rows, times, term, inner, out)


def _weighted(rows: Affine, times: float, term: Any, inner: Any, out: Objective) -> None:
    reader = out.reader
    owner, entry, t = reader.parts_of(rows.column)
    nodes = reader.kinds[owner] == NODE
    for k in dict.fromkeys(owner[nodes].tolist()):
        mine = nodes & (owner == k)
        before, weight = len(out.found), times * rows.data[mine]
        try:
            _node(reader.owners[k], entry[mine], weight, t[mine], term, out)
        except UnsupportedModelError:
            if not out.penalty:
                raise
            other = Affine(np.zeros(weight.size), pick=rows.column[mine])
            out.found[before:] = [Entries("other", weight, np.zeros_like(t[mine]), (other,), reader.owners[k])]
    row, column, data = rows.row[~nodes], rows.column[~nodes], rows.data[~nodes]
    private = reader.records(column) != -1
    held = np.full(rows.size, out.penalty)
    held[row[private]] = True
    affine = Affine(rows.offset, row=row, column=column, data=data)
    free = _gathered(affine, np.flatnonzero(~held))
    if free.data.size or free.offset.any():
        out.public.append((times, cp.sum(_expression(free, reader))))
    if held.any():
        rest = _gathered(affine, np.flatnonzero(held))
        out.found.append(
            Entries("affine", np.full(rest.size, times), np.zeros(rest.size, np.int64), (rest,), _affine_part(inner))
        )


def _affine_part(inner: Any) -> Any:
    """What is affine and private in a sum, for messages."""
    if kind(inner) == "add":
        return next((arg for arg in inner.args if arg.is_affine() and is_private(arg)), inner)
    return inner


def _gathered(rows: Affine, index: Integers) -> Affine:
    return tidied(Gather(index, rows.size).forward(rows))


# ------------------------------------------------------------------ nodes
def _node(node: Any, entry: Integers, weight: Floats, t: Integers, term: Any, out: Objective) -> None:
    """``sum_k weight_k t_k node[entry_k]``."""
    if not (is_private(node) or out.penalty):
        if t.any():
            unfit(term, "a private number multiplies what is public", "public weights of penalties")
        if node.size == 1 or (entry.size == node.size and np.ptp(weight) == 0):
            out.public.append((float(weight[0]), node if node.ndim == 0 else cp.sum(node)))
        else:
            every = np.bincount(entry, weights=weight, minlength=node.size)
            out.public.append((1.0, every @ cp.vec(node, order="F")))
        return
    args, name, count = node.args, kind(node), out.count
    whole = args[0] if args else node
    match name:
        case "power" if exponent(node) == 1:
            if t.any():
                unfit(term, "a private label multiplies a loss", WEIGHTS)
            _weighted(Scale(weight).forward(_gathered(out.reader.read(whole), entry)), 1.0, term, whole, out)
        case "power" if exponent(node) == 2:
            _square(whole, entry, np.arange(node.size), weight, t, node, out)
        case "quad_over_lin" if is_number(args[1]):
            by = float(vector_of(args[1], 1))
            _square(whole, entry, group(tuple(whole.shape), _axis(node)).index, weight / by, t, node, out)
        case "quad_form" if is_number(args[1]) and (weights := diagonal(args[1])) is not None:
            _square(whole, entry, np.zeros(whole.size, dtype=np.int64), weight, t, node, out, weights)
        case "norm1":
            index, where = _members(group(tuple(whole.shape), _axis(node)).index, entry)
            _plain("abs", weight[where], t[where], [(whole, index)], node, out)
        case "abs" | "logistic":
            _plain(name, weight, t, [(whole, entry)], node, out)
        case "huber":
            if is_private(node.M):
                unfit(node, "Huber's threshold M is private", "a public number M")
            _plain(name, weight, t, [(whole, entry)], node, out, float(np.asarray(number_of(node.M)).reshape(())))
        case "log_sum_exp" if out.classes and is_row_wise(node):
            for part in _largest(node, entry, count):
                _plain("logistic", weight, t, [part], node, out)
        case "maximum" | "minimum" | "max" | "min":
            _plain(
                "maximum", -weight if name in ("minimum", "min") else weight, t, _largest(node, entry, count), node, out
            )
        case "pnorm" if node.p == 2 and node.size == 1:
            unfit(
                node,
                "a norm that is not squared is no sum over the records",
                "cp.sum_squares(...) or cp.norm(...) ** 2",
                NotPerRecord,
            )
        case "sum" | "power" | "" | "log_sum_exp" | "quad_form" | "quad_over_lin" if node.size == 1 < count:
            _no_sum(node)
        case _:
            unfit(node, "it is none of the losses that are recognised", _LOSSES)


def picks_rows(expression: Any) -> bool:
    """Whether some private entries or rows are picked by number."""
    if kind(expression) == "index" and isinstance(expression.args[0], Private):
        return True
    return any(picks_rows(arg) for arg in expression.args)


def _no_sum(node: Any) -> NoReturn:
    tables = any(isinstance(p, Private) and p.ndim == 2 for p in node.parameters()) and not picks_rows(node)
    unfit(node, "it is no sum over the records", _LOSSES, NotPerRecord if tables else UnsupportedModelError)


def is_row_wise(node: Any) -> bool:
    """Whether it is ``cp.log_sum_exp`` of the rows of a matrix."""
    return kind(node) == "log_sum_exp" and node.args[0].ndim == 2 and node.axis in (1, -1)


def _axis(node: Any) -> Any:
    return getattr(node, "axis", None)


def _members(index: Integers, entry: Integers) -> tuple[Integers, Integers]:
    """(argument entries, which of ``entry`` they belong to) of outputs of which ``index`` says who is in them."""
    order = np.argsort(index, kind="stable")
    counts = np.bincount(index, minlength=int(index.max(initial=0)) + 1)
    ends = np.cumsum(counts)
    times = counts[entry]
    where = np.repeat(np.arange(entry.size), times)
    within = np.arange(where.size) - np.repeat(np.cumsum(times) - times, times)
    return order[(ends - counts)[entry][where] + within], where


def _largest(node: Any, entry: Integers, count: int) -> list[tuple[Any, Integers, float]]:
    """(argument, its entries) by part of a maximum; minus them for a minimum."""
    sign = -1.0 if kind(node) in ("minimum", "min") else 1.0
    if kind(node) in ("maximum", "minimum"):
        out = []
        for arg in node.args:
            step = spread(tuple(arg.shape), tuple(node.shape))
            out.append((arg, step.index[entry] if isinstance(step, Gather) else entry, sign))
        return out
    index, _ = _members(group(tuple(node.args[0].shape), node.axis).index, entry)
    many = index.size // max(entry.size, 1)
    if many >= count > 1 and node.size == 1:
        _no_sum(node)
    table = index.reshape(entry.size, many)
    return [(node.args[0], table[:, k], sign) for k in range(many)]


def _plain(
    atom: str,
    weight: Floats,
    t: Integers,
    parts: list[Any],
    node: Any,
    out: Objective,
    threshold: float = float("nan"),
    power: int = 1,
) -> None:
    """Entries whose arguments are affine."""
    read = []
    for arg, index, *sign in parts:
        rows = _gathered(out.reader.read(arg), index)
        if (out.reader.kinds[out.reader.parts_of(rows.column)[0]] == NODE).any():
            unfit(arg, "the argument of a loss must be affine in the variables", _LOSSES)
        read.append(rows if not sign or sign[0] == 1 else Scale(sign[0]).forward(rows))
    out.found.append(Entries(atom, weight, t, tuple(read), node, power, threshold))


def _square(
    arg: Any, entry: Integers, index: Integers, weight: Floats, t: Integers, node: Any, out: Objective, by: Any = None
) -> None:
    """Sums of squares of the entries of ``arg`` that belong to each output; ``by`` : factors of the entries."""
    reader = out.reader
    which, where = _members(index, entry)
    weight, t = weight[where], t[where]
    weight = weight if by is None else weight * np.asarray(by)[which]
    rows = _gathered(reader.read(arg), which)
    owner, inner, own = reader.parts_of(rows.column)
    curved = reader.kinds[owner] == NODE
    if curved.any():
        alone = np.bincount(rows.row, minlength=rows.size) == 1
        at = rows.row[curved]
        if not alone[at].all() or rows.offset[at].any() or own[curved].any():
            unfit(arg, "squares are taken of residuals and of cp.pos(1 - margin)", _LOSSES)
        for k in dict.fromkeys(owner[curved].tolist()):
            mine = curved & (owner == k)
            at = rows.row[mine]
            _squared_node(reader.owners[k], inner[mine], weight[at] * rows.data[mine] ** 2, t[at], node, out)
    flat_rows = np.ones(rows.size, dtype=bool)
    flat_rows[rows.row[curved]] = False
    left = np.flatnonzero(flat_rows)
    if left.size:
        out.squared.append(arg)
        out.found.append(Entries("affine", weight[left], t[left], (_gathered(rows, left),), node, 2))


def _squared_node(inner: Any, entry: Integers, weight: Floats, t: Integers, node: Any, out: Objective) -> None:
    """``sum_k weight_k t_k inner[entry_k]^2``."""
    name = kind(inner)
    whole = inner.args[0]
    if name == "abs" or (name == "norm1" and whole.size == inner.size):
        _square(whole, entry, np.arange(inner.size), weight, t, node, out)
    elif name == "pnorm" and inner.p == 2:
        _square(whole, entry, group(tuple(whole.shape), _axis(inner)).index, weight, t, node, out)
    elif name in ("maximum", "minimum", "max", "min"):
        _plain("maximum", weight, t, _largest(inner, entry, out.count), node, out, power=2)
    else:
        unfit(inner, "squares are taken of residuals and of cp.pos(1 - margin)", _LOSSES)


def _require_entries(expression: Any, count: int) -> None:
    if expression.ndim == 2 and expression.shape[0] == count and expression.shape[1] > 1 and is_private(expression):
        unfit(
            expression,
            f"it has shape {tuple(expression.shape)}: several outputs of {count} records, all of which one record "
            "moves at once",
            "variables with a column (or one entry) for each output, as in X @ W + b - Y; or one problem for each "
            "output with a share of the budget, cp.sum_squares(X @ w - Y[:, 0]) say",
        )


# ------------------------------------------------------------------ records
def _take_records(out: Objective) -> None:
    """Say of which record each entry is; public ones become terms of their own."""
    found, out.found = out.found, []
    for each in found:
        record = _records(each, out)
        if (free := np.flatnonzero(record < 0)).size:
            _penalty(each, free, out)
        if (mine := np.flatnonzero(record >= 0)).size:
            each = replace(each, record=record)
            out.found.append(each if not free.size else each.of(mine))


def _by_record(out: Objective) -> list[Term]:
    """Entries of one kind become terms with an entry for each record."""
    kinds: dict[Any, list[tuple[Entries, Integers, Integers]]] = {}
    terms = []
    for each in out.found:
        block = out.reader.block_of(each.t)
        for label in np.unique(block):
            mine = np.flatnonzero(block == label)
            key = each.atom, each.power, each.threshold, int(label), len(each.parts)
            kinds.setdefault(key, []).append((each, mine, each.record[mine]))
    for (atom, power, threshold, label, parts), found in kinds.items():
        for group_ in _without_repeats(found, out.count):
            record = np.concatenate([r for _, _, r in group_])
            weight = np.concatenate([e.weight[mine] for e, mine, _ in group_])
            place = np.full(out.count, -1)
            place[record] = np.arange(record.size)
            coefficient = np.zeros(out.count)
            coefficient[record] = weight
            rows = tuple(
                Gather(place, record.size).forward(stacked([_gathered(e.parts[k], mine) for e, mine, _ in group_]))
                for k in range(parts)
            )
            terms.append(Term(atom, coefficient, rows, group_[0][0].expression, label, power, threshold))
    return terms


def _without_repeats(found: list[Any], count: int) -> list[list[Any]]:
    """Groups of entries in each of which a record stands once at most, in order."""
    groups: list[tuple[list[Any], np.ndarray]] = []
    for entries, mine, record in found:
        order = np.argsort(record, kind="stable")
        turn = np.zeros(record.size, dtype=np.int64)
        first = np.r_[True, np.diff(record[order]) != 0]
        turn[order] = np.arange(record.size) - np.maximum.accumulate(np.where(first, np.arange(record.size), 0))
        for number in range(int(turn.max(initial=0)) + 1):
            part, who = mine[turn == number], record[turn == number]
            for members, taken in groups:
                if not taken[who].any():
                    members.append((entries, part, who))
                    taken[who] = True
                    break
            else:
                taken = np.zeros(count, dtype=bool)
                taken[who] = True
                groups.append(([(entries, part, who)], taken))
    return [members for members, _ in groups]


def _records(each: Entries, out: Objective) -> Integers:
    """(entries,) the record of each; -1 for public ones.
    Errors: UnsupportedModelError, where an entry reads several records."""
    reader = out.reader
    low, high = np.full(each.size, out.count), np.full(each.size, -1)
    many = np.zeros(each.size, dtype=bool)
    for rows in each.parts:
        record = reader.records(rows.column)
        held = record >= 0
        np.minimum.at(low, rows.row[held], record[held])
        np.maximum.at(high, rows.row[held], record[held])
        many[rows.row[record == -2]] = True
    own = np.where(each.t > 0, (each.t - 1) % out.count, -1)
    low, high = np.where(own >= 0, np.minimum(low, own), low), np.maximum(high, own)
    many |= (high >= 0) & (low != high)
    if many.any():
        _refuse_several(each, out)
    return np.asarray(high)


def _refuse_several(each: Entries, out: Objective) -> None:
    node = each.expression
    whole = node.args[0] if node.args else node
    if each.power == 2 and whole.size == 1:
        unfit(
            whole,
            "the square of one number that all records share is no sum over them",
            "cp.sum_squares of a vector with one entry per record",
            NotPerRecord,
        )
    if each.atom == "affine" and each.power == 1 and node.is_affine():
        unfit(
            node,
            "this private term is no loss of single records: y @ (X @ w) is, or cp.sum(cp.multiply(y, X @ w))",
            f"{_LOSSES}; or a problem whose objective is affine in the private parameters",
        )
    if picks_rows(node):
        unfit(node, "rows are picked one by one, and this is no loss of one record", _LOOP)
    inner = next((arg for arg in _walk(node) if kind(arg) == "matmul" and _mixes(arg, out.count)), None)
    if inner is not None:
        unfit(
            inner,
            "a public matrix mixes the records",
            "cp.multiply(weights, ...) for weights; the product computed beforehand otherwise",
        )
    shape = tuple(node.shape if node.size not in (1, out.count) else whole.shape)
    why = f"it has shape {shape}: not one entry for each of {out.count} records"
    unfit(node, why, "losses with one entry per record")


def _walk(node: Any) -> Any:
    yield node
    for arg in node.args:
        yield from _walk(arg)


def _mixes(product: Any, count: int) -> bool:
    left = product.args[0]
    return is_private(product) and is_number(left) and left.shape == (count, count)


def _penalty(each: Entries, which: Integers, out: Objective) -> None:
    """Public entries of a private atom, as ``hstack([X @ w - y, sqrt(l) * w])`` has them, become terms of their own."""
    reader, weight = out.reader, each.weight[which]
    parts = [_expression(_gathered(rows, which), reader) for rows in each.parts]
    match each.atom:
        case "affine":
            entries = parts[0]
        case "maximum":
            entries = cp.maximum(*parts)
        case "huber":
            entries = cp.huber(parts[0], each.threshold)
        case _:
            entries = getattr(cp, each.atom)(parts[0])
    entries = cp.square(entries) if each.power == 2 else entries
    if np.ptp(weight) == 0:
        out.public.append((float(weight[0]), cp.sum(entries)))
    else:
        out.public.append((1.0, weight @ entries))


def _expression(rows: Affine, reader: Monomials) -> cp.Expression:
    """A CVXPY expression (m,) of the variables."""
    owner, entry, _ = reader.parts_of(rows.column)
    total: Any = cp.Constant(rows.offset)
    for k in np.unique(owner):
        variable, mine = reader.owners[k], owner == k
        matrix = sp.csr_array((rows.data[mine], (rows.row[mine], entry[mine])), shape=(rows.size, variable.size))
        total = total + matrix @ cp.vec(variable, order="F")
    return total
