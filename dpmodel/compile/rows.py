"""Rows of records that are read a part at a time: sums over blocks, and models written anew with fewer rows.

Sums: each block is read in parts, and no block counts twice. Models: ``A @ x >= b`` with one row of A and one entry
of b for each of n persons has a standard form of n rows that differ in private numbers alone. With n' < n rows the
same program is written anew (``CutRows``) and lowered; that all its records' rows are alike is then seen on the form.
So nothing as long as the data is made to plan, and what a record's rows are is a few small maps from its own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import count as counting
from typing import Any, Generic, Protocol, TypeVar

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.affine_map import AffineMap, coordinates_of
from dpmodel.compile.atoms import is_private, kind
from dpmodel.compile.bridge import Lowered, lower
from dpmodel.compile.form import StandardForm, require_private_values
from dpmodel.compile.refusals import refuse_blocks, short
from dpmodel.errors import DPModelError, SourceError, SpecificationError, UnsupportedModelError
from dpmodel.marks import vault
from dpmodel.marks.private import Private
from dpmodel.marks.rows import Limits, RowSource

_CACHED = 1 << 17  # entries of features in one part of the rows
T = TypeVar("T")
R = TypeVar("R", covariant=True)


def added(a: T, b: T) -> T:
    """The sum of two arrays, numbers, or tuples of them."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(map(added, a, b))  # type: ignore[return-value]
    return a + b  # type: ignore[operator, no-any-return]


def cached_rows(width: int) -> int:
    """Rows of so many features that stay in a processor's cache."""
    return max(256, _CACHED // max(width, 1))


class PartReader(Protocol[R]):
    """What a block of rows is for a model, from public facts alone; it travels to where the block lies."""

    def parts(self, block: Any, number: int, step: int | None) -> Iterator[R]:
        """One part at least, each of at most ``step`` rows (None: as many as fit into a processor's cache)."""
        ...


@dataclass(frozen=True)
class HeldNumbers:
    """The numbers of every private parameter of a block, within their bounds.

    ``numbers``, ``limits`` : one each per parameter: what a block gives, and the bounds it is held to. ``firsts`` :
    number of each block's first row, and of the row after the last.
    """

    numbers: tuple[Callable[[Any], Any], ...]
    limits: tuple[Limits, ...]
    firsts: Integers

    def parts(self, block: Any, number: int, step: int) -> Iterator[tuple[list[PrivateArray], int]]:
        """Parts of at most ``step`` rows and the number of their first, made when they are asked for; one at least.
        They lie in the same memory, one after the other: memory that is asked for anew costs more than the sums."""
        start, stop = int(self.firsts[number]), int(self.firsts[number + 1])
        count = len(block)
        if count != stop - start:
            raise SourceError(
                f"block {number} has another number of rows than when the source was made",
                why="sizes of blocks are public and fixed",
                remedy="a source made anew, of data that stay as they are",
            )
        pairs = list(zip(self.numbers, self.limits, strict=True))
        with np.errstate(all="ignore"):  # a warning would tell of an odd record
            raw = [limit.checked(numbers(block) if count else limit.none, count, number) for numbers, limit in pairs]
        step = min(step, max(count, 1))
        room = [np.empty((step, each.shape[1]), order="F") for each in raw]
        for at in range(0, max(count, 1), step):
            triples = zip(raw, self.limits, room, strict=True)
            yield [limit.hold(each[at : at + step], out) for each, limit, out in triples], start + at


def firsts_of(source: RowSource) -> Integers:
    """(blocks + 1,) number of each block's first row, and of all rows."""
    return np.concatenate([[0], np.cumsum(source.sizes, dtype=np.int64)])


def summed(
    source: RowSource,
    reader: PartReader[R],
    function: Callable[[R], T],
    combine: Callable[[T, T], T],
    step: int | None = None,
) -> T:
    """``function`` of every part of the rows, combined, in one pass.

    Sensitivity rests on every record being in a sum once: a sum that says otherwise is not handed out.
    """
    found: Counted[T] = source.map_reduce(
        partial(_of_block, reader, function, combine, step), partial(_together, combine)
    )
    if found.blocks != (1 << len(source.sizes)) - 1:
        raise SourceError("blocks are missing from a sum", why="the source left them out", remedy="another source")
    return found.value


@dataclass(frozen=True)
class Counted(Generic[T]):
    """A sum and what it is a sum of: bit k of ``blocks`` says that block k is in it."""

    value: T
    blocks: int


def _of_block(
    reader: PartReader[R],
    function: Callable[[R], T],
    combine: Callable[[T, T], T],
    step: int | None,
    block: Any,
    number: int,
) -> Counted[T]:
    return Counted(reduce(combine, map(function, reader.parts(block, number, step))), 1 << number)


def _together(combine: Callable[[T, T], T], a: Counted[T], b: Counted[T]) -> Counted[T]:
    if a.blocks & b.blocks:
        raise SourceError("a block counted twice", why="then one record would move a sum twice as far")
    return Counted(combine(a.value, b.value), a.blocks | b.blocks)


def held_numbers(private: Sequence[Any], sealed: Sequence[Any]) -> HeldNumbers:
    """Of parameters ``in_blocks`` and what is sealed of each."""
    return HeldNumbers(
        tuple(rows.numbers for rows in sealed), tuple(p.limits for p in private), firsts_of(sealed[0].source)
    )


# Rows that are left: enough for records that are not alike to show it (sums of neighbouring ones, a first or last one).
FEWEST = 11
_SHAPED = ("promote", "broadcast", "reshape")


def rows_of_one_source(private: Sequence[Private]) -> int:
    """How many rows all of ``private`` have, some of which have them in blocks.
    Errors: SpecificationError, where they lie in different places, or are not as many."""
    rows = {p.shape[0] if p.ndim else 0 for p in private}
    sources = [vault.source_of(p) for p in private if p.has_value or not p.in_blocks]
    if any(source is not sources[0] for source in sources) or not all(p.in_blocks for p in private) or len(rows) != 1:
        name = next(p.name() for p in private if p.in_blocks)
        raise SpecificationError(
            f"{name} has its rows in blocks, and other private parameters are elsewhere",
            why="row i of every private parameter is read in one pass over one source",
            remedy="SourceRows(...) of the same source for each, or arrays in memory for all",
        )
    return rows.pop()


class CutRows:
    """Expressions over ``private`` parameters of ``count`` rows, of which ``few`` are left.

    Private parameters are declared alike, public tables that are the same for all records cut, shapes and full slices
    along the records adapted. Whatever the tree does is then the same function of the number of rows, or it is refused.

    ``fewest`` : rows wanted; ``few`` is that or more, so that it is the size of nothing else in ``expressions``; all of
    them where there are no more.

    Errors: UnsupportedModelError, for what is another function of the number of rows.
    """

    def __init__(
        self, expressions: Iterable[Any], private: Sequence[Private], count: int, fewest: int = FEWEST
    ) -> None:
        self.count = count
        roots = list(expressions)
        if any(count in p.shape[1:] for p in private) or any(
            count in variable.shape for root in roots for variable in root.variables()
        ):
            self.refuse(roots[0], "its coefficients are as many as its rows")
        sizes = {size for root in roots for node in _walk(root) for size in node.shape}
        few = next(size for size in counting(fewest) if size not in sizes)
        self.few = min(few, count)
        self._made = {id(p): p.with_rows(self.few) for p in private}
        self._large = {id(self._made[id(p)]): p for p in private}

    def original(self, parameter: Any) -> Private:
        """The parameter that a cut one stands for."""
        return self._large[id(parameter)]

    def cut(self, node: Any) -> Any:
        """``node`` with few rows."""
        if id(node) not in self._made:
            try:
                made = self._made[id(node)] = self._rebuilt(node)
                follows = tuple(made.shape) == self._fewer(node.shape)
            except (ValueError, TypeError) as error:
                if isinstance(error, DPModelError):
                    raise
                follows = False
            if not follows:
                self.refuse(node, "its shape does not follow the number of rows")
        return self._made[id(node)]

    def _rebuilt(self, node: Any) -> Any:
        if self.count not in node.shape and not is_private(node):
            return node  # a public number of all rows, such as their count written as a sum, stays what it is
        if not node.args:
            return self._leaf(node)
        args = [self.cut(arg) for arg in node.args]
        if kind(node) in _SHAPED:
            data = [self._fewer(each) if isinstance(each, tuple) else each for each in node.get_data()]
            return type(node)(*args, *data)
        if kind(node) == "index" and self.count in node.args[0].shape:
            return args[0][self._key(node)]
        return node.copy(args)

    def _leaf(self, node: Any) -> Any:
        if not isinstance(node, cp.Constant) or sp.issparse(node.value):
            self.refuse(node, "it holds a number for every row")
        value = np.asarray(node.value)
        for axis, size in enumerate(value.shape):
            if size == self.count:
                first = value.take([0], axis=axis)
                if not (value == first).all():
                    self.refuse(node, "it holds another number for every row")
                value = np.repeat(first, self.few, axis=axis)
        return cp.Constant(value)

    def _key(self, node: Any) -> tuple[Any, ...]:
        """The slices of an index, all of which take all rows."""
        keys = getattr(node, "_orig_key", None)
        keys = keys if isinstance(keys, tuple) else (keys,)
        out, shape = [], node.args[0].shape
        for key, size in zip((*keys, *[slice(None)] * (len(shape) - len(keys))), shape, strict=False):
            plain = isinstance(key, slice | int | np.integer)
            if not plain or (size == self.count and (not isinstance(key, slice) or key.indices(size) != (0, size, 1))):
                self.refuse(node, "it takes some of the rows")
            out.append(slice(None) if size == self.count else key)
        return tuple(out)

    def _fewer(self, shape: Any) -> tuple[int, ...]:
        return tuple(self.few if size == self.count else size for size in shape)

    def refuse(self, node: Any, why: str) -> None:
        """Say why ``node`` is no function of rows that are read alike."""
        raise UnsupportedModelError(
            f"{short(node)} in a model of rows in blocks",
            why=f"{why}, and rows in blocks are read alike, a block at a time",
            remedy="public numbers of a record as columns of the table; or the rows as arrays in memory",
        )


def _walk(expression: Any) -> Iterator[Any]:
    stack, seen = [expression], set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack.extend(node.args)


# Private numbers of the small program, from which on one of more records says nothing else.
ENTRIES = 100_000
# Entries of a sparse table beyond which it is not written out: with the coordinates of each that is a gigabyte.
_SPARSE = 1 << 24


@dataclass(frozen=True)
class FewRows:
    """``problem`` written anew with ``few`` of ``count`` rows, and ``lowered``.

    ``originals`` : the parameters that those of the small problem stand for, by id. ``table`` (few, r) : the private
    rows of every record, which are alike.
    """

    problem: cp.Problem
    lowered: Lowered
    count: int
    few: int
    originals: dict[int, Private]
    table: Integers

    @property
    def in_blocks(self) -> bool:
        return any(parameter.in_blocks for parameter in self.originals.values())


def few_rows(problem: cp.Problem) -> FewRows | None:
    """The problem with few rows, where its private rows lie in blocks, or in one large sparse table; None for others.
    Errors: UnsupportedModelError, SpecificationError, for rows in blocks that are not read alike."""
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    in_blocks = any(p.in_blocks for p in private)
    if not in_blocks and not _one_large_table(private):
        return None
    count = rows_of_one_source(private) if in_blocks else int(private[0].shape[0])
    try:
        return _written_anew(problem, private, count)
    except DPModelError:
        if in_blocks:
            raise
        return None  # it is written out


def _one_large_table(private: Sequence[Private]) -> bool:
    if len(private) != 1 or private[0].positions == "public" or private[0].unit != "row":
        return False
    return private[0].size > _SPARSE and private[0].has_alike_rows


def _written_anew(problem: cp.Problem, private: Sequence[Private], count: int) -> FewRows:
    if any(isinstance(p, Private) for p in problem.objective.parameters()):
        refuse_blocks(private)
    width = sum(p.size // count for p in private)
    constraints = problem.constraints
    roots = [arg for each in [problem.objective, *constraints] for arg in each.args]
    rows = CutRows(roots, private, count, max(FEWEST, ENTRIES // width))

    def cut(constraint: Any) -> Any:
        if not any(isinstance(p, Private) for p in constraint.parameters()):
            return constraint
        if type(constraint) not in (cp.constraints.Inequality, cp.constraints.Equality):
            rows.refuse(constraint, "it is no inequality or equality for every record")
        return type(constraint)(*map(rows.cut, constraint.args), constr_id=constraint.id).set_label(constraint.label)

    small = cp.Problem(problem.objective, [cut(each) for each in constraints])
    originals = {id(p): rows.original(p) for p in small.parameters() if isinstance(p, Private)}
    lowered = lower(small)
    return FewRows(small, lowered, count, rows.few, originals, _alike(lowered.affine, rows.few))


# ---------------------------------------------------------------------- what the rows of one record are
@dataclass(frozen=True)
class RowKind:
    """One of the rows that every record owns: ``a'x <= b`` (or ``=``, where ``equality``).

    ``blocks`` : (parameter, map, factor, start): a has ``factor * numbers @ map`` in the columns from ``start`` on (map
    None: the numbers as they are). ``shared`` (n,) : public part of a, or None. ``sides`` : (parameter, map (k,)), sums
    of which are added to ``side``, the public part of b. ``owned`` : per parameter the numbers that the row depends on.
    """

    equality: bool
    blocks: tuple[tuple[int, Any, float, int], ...]
    shared: Floats | None
    sides: tuple[tuple[int, Floats], ...]
    side: float
    owned: tuple[Integers, ...]


@dataclass(frozen=True)
class RecordRows:
    """One kind of row of some records, as computed from their numbers: private.

    ``blocks`` : (matrix (k, w), factor, start); ``sides`` (k,) : b. ``numbers`` : all that the rows depend on.
    """

    kind: int
    blocks: tuple[tuple[Any, float, int], ...]
    shared: Floats | None
    sides: PrivateArray
    numbers: tuple[Any, ...]


@dataclass(frozen=True)
class RowMaker:
    """``kinds`` of rows of every record over ``size`` columns."""

    kinds: tuple[RowKind, ...]
    size: int

    def of(self, owned: Sequence[Any]) -> Iterator[RecordRows]:
        """Every kind of row of the records whose numbers ``owned`` has, (k, w) for each parameter, dense or CSR."""
        for number, row in enumerate(self.kinds):
            sides = np.full(owned[0].shape[0], row.side)
            for which, weights in row.sides:
                sides += np.asarray(owned[which] @ weights)
            blocks = tuple(
                (owned[which] if map is None else owned[which] @ map, factor, start)
                for which, map, factor, start in row.blocks
            )
            numbers = tuple(
                each if columns.size == each.shape[1] else each[:, columns]
                for each, columns in zip(owned, row.owned, strict=True)
                if columns.size
            )
            yield RecordRows(number, blocks, row.shared, PrivateArray(sides), numbers)


@dataclass(frozen=True)
class BlockRows:
    """Rows in blocks: a ``PartReader``, and where it reads."""

    source: RowSource
    held: HeldNumbers
    maker: RowMaker

    def parts(self, block: Any, number: int, step: int | None) -> Iterator[RecordRows]:
        """As ``HeldNumbers`` has them, one kind of row after the other."""
        for owned, _ in self.held.parts(block, number, cached_rows(self.maker.size) if step is None else step):
            yield from self.maker.of(owned)


@dataclass(frozen=True)
class MemoryRows:
    """The same of one sparse table in memory, which is not copied."""

    owned: tuple[Any, ...]
    maker: RowMaker

    def all(self) -> tuple[RecordRows, ...]:
        return tuple(self.maker.of(self.owned))


def rows_read(few: FewRows, maker: RowMaker) -> BlockRows | MemoryRows:
    """The private rows, for a mechanism's ``run`` only."""
    private = [few.originals[id(block.parameter)] for block in few.lowered.affine.private_blocks]
    require_private_values(private)
    sealed: list[Any] = [vault.unseal(p) for p in private]
    if private[0].in_blocks:
        return BlockRows(sealed[0].source, held_numbers(private, sealed), maker)
    return MemoryRows(tuple(sealed), maker)


def row_maker(form: StandardForm, few: FewRows) -> RowMaker:
    """What the rows of every record are, read off those of the first."""
    rows, kinds = few.table[0], np.full(form.affine.rows, -1)
    kinds[rows] = np.arange(rows.size)
    found = _coefficients(form.affine, few.few)
    mine = [each[(kinds[found[0]] >= 0) & (found[2] >= 0)] for each in found]
    equality, widths = form.affine.equalities(), [block.size // few.few for block in form.affine.private_blocks]
    return RowMaker(
        tuple(
            _kind(form, int(row), [each[mine[0] == row] for each in mine[2:]], widths, equality[row]) for row in rows
        ),
        form.affine.variables,
    )


def _coefficients(affine: AffineMap, few: int) -> list[Any]:
    """Every coefficient of A, and of b (in column n): row; record, -1 for public ones; parameter, -1 for public ones;
    number in the record's part of it, for public ones entry of theta; column; size."""
    parts = [affine.private_matrix, affine.public_matrix]
    rows, columns = (
        np.concatenate(each) for each in zip(*(coordinates_of(p.row, affine.rows) for p in parts), strict=True)
    )
    rows = np.concatenate([rows, affine.scalar.row])
    columns = np.concatenate([columns, np.full(affine.scalar.nnz, affine.variables)])
    theta = np.concatenate([*(p.column for p in parts), affine.scalar.column])
    sizes = np.concatenate([*(p.coefficient for p in parts), affine.scalar.coefficient])
    which, record, number = np.full(theta.size, -1), np.full(theta.size, -1), theta.copy()
    for k, block in enumerate(affine.private_blocks):
        inside = (theta >= block.offset) & (theta < block.offset + block.size)
        entry = theta[inside] - block.offset  # columns one after the other
        which[inside], record[inside], number[inside] = k, entry % few, entry // few
    return [rows, record, which, number, columns, sizes]


def _alike(affine: AffineMap, few: int) -> Integers:
    """(few, r) the private rows of every record, in order.
    Errors: UnsupportedModelError, where rows hold numbers of several records, or the rows of one record are not those
    of another."""
    rows, record, which, number, columns, sizes = _coefficients(affine, few)
    owner = np.full(affine.rows, -1)
    owner[rows[which >= 0]] = record[which >= 0]
    private = np.flatnonzero(owner >= 0)
    table = private[np.argsort(owner[private], kind="stable")]
    inside = owner[rows] >= 0
    alone = (owner[rows] == record)[which >= 0].all() and (
        np.bincount(owner[private], minlength=few) * few == private.size
    ).all()
    if not alone or not private.size or np.count_nonzero(inside) % few:
        _refuse()
    table = table.reshape(few, -1)
    kind = np.empty(affine.rows, dtype=np.int64)
    kind[table] = np.arange(table.shape[1])
    order = np.lexsort((columns, number, which, kind[rows], owner[rows]))[np.count_nonzero(~inside) :]
    facts = [each[order].reshape(few, -1) for each in (owner[rows], kind[rows], which, number, columns, sizes)]
    alike = all((each == each[0]).all() for each in [*facts[1:], affine.equalities()[table]])
    if not alike or not (facts[0] == np.arange(few)[:, None]).all():
        _refuse()
    return table


def _kind(form: StandardForm, row: int, facts: list[Any], widths: list[int], equality: bool) -> RowKind:
    """``facts`` : parameter, number, column and size of the private coefficients of a row."""
    n, (which, number, columns, sizes) = form.affine.variables, facts
    blocks: list[tuple[int, Any, float, int]] = []
    sides: list[tuple[int, Floats]] = []
    owned: list[Integers] = []
    for k, width in enumerate(widths):
        mine = which == k
        owned.append(np.unique(number[mine]))
        inside, beside = mine & (columns < n), mine & (columns == n)
        if inside.any():
            blocks.append((k, *_map(number[inside], columns[inside], sizes[inside], width)))
        if beside.any():
            weights = np.zeros(width)
            weights[number[beside]] = sizes[beside]
            sides.append((k, weights))
    shared = form.A0[[row]].toarray().ravel()
    return RowKind(
        bool(equality), tuple(blocks), shared if shared.any() else None, tuple(sides), float(form.b0[row]), tuple(owned)
    )


def _map(number: Integers, column: Integers, size: Floats, width: int) -> tuple[Any, float, int]:
    """(map, factor, first column) of the coefficients; no map where all numbers are taken as they are, up to one
    factor."""
    start, stop = int(column.min()), int(column.max()) + 1
    plain = number.size == width == stop - start and (column - start == number).all() and (size == size[0]).all()
    if plain:
        return None, float(size[0]), start
    return sp.csr_array((size, (number, column - start)), shape=(width, stop - start)), 1.0, start


def _refuse() -> None:
    raise UnsupportedModelError(
        "constraints over rows in blocks that are not one record's each",
        why="rows are read a block at a time, and each must be the same function of the numbers of one record",
        remedy="A @ x <= b with one row of A (and entry of b) for each record; sums of a Dataset for other constraints",
    )
