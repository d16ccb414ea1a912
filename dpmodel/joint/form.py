"""One person's problem, the same for all: what is public of it (``Form``), and people's private numbers (``People``).

Person i chooses a share x >= 0 of k entries that maximises ``values_i' x`` within limits of their own, and uses
``A_i x >= 0`` of m resources that all share. The private numbers are affine in the person's row of data (DPP), so a
form is plain data: it can be sent to a person, whose machine then computes the share at home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray


def by_row(array: Any) -> Floats:
    """``array`` with a person's numbers beside each other, and so in one order added up, whoever else is there: NumPy
    adds a row of an array in another order to the last bit where the array lies by columns."""
    return array if array.strides[-1] == array.itemsize else np.ascontiguousarray(array)


@dataclass(frozen=True, eq=False)
class Affine:
    """Numbers (q,) of a person: ``row @ matrix + constant`` for the person's row of data (w,).

    ``matrix`` : (w, q) CSR. ``constant`` : (q,). Where the matrix is empty, the numbers are public and shared by all.
    """

    matrix: Any
    constant: Floats

    def of(self, rows: Floats) -> Floats:
        """(B, q) of rows (B, w); (1, q) where all people share the numbers."""
        if self.public:
            return self.constant[None, :]
        if self._columns is not None:
            return by_row(rows[:, self._columns])
        return by_row(rows @ self.matrix) + self.constant

    @property
    def public(self) -> bool:
        return bool(self.matrix.nnz == 0)

    @cached_property
    def _columns(self) -> Any:
        """The columns of the data that the numbers are, where they are nothing else."""
        by_column = sp.csc_array(self.matrix)
        alone = (np.diff(by_column.indptr) == 1).all() and (by_column.data == 1).all()
        if not alone or self.constant.any():
            return None
        first, count = int(by_column.indices[0]), by_column.indices.size
        if (by_column.indices == np.arange(first, first + count)).all():
            return slice(first, first + count)
        return by_column.indices

    def to_dict(self) -> dict[str, Any]:
        places = sp.coo_array(self.matrix)
        row, column = places.coords
        return {
            "width": int(self.matrix.shape[0]),
            "row": row.tolist(),
            "column": column.tolist(),
            "number": places.data.tolist(),
            "constant": self.constant.tolist(),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Affine:
        constant = np.asarray(plain["constant"], dtype=np.float64)
        shape = int(plain["width"]), constant.size
        places = np.asarray(plain["row"], dtype=np.intp), np.asarray(plain["column"], dtype=np.intp)
        return cls(sp.csr_array((np.asarray(plain["number"], dtype=np.float64), places), shape=shape), constant)


_AFFINE = ("values", "use", "coefficients", "limits")


@dataclass(frozen=True, eq=False)
class Form:
    """The public side of one person's problem.

    maximise ``values' z`` over z = (x, t): ``0 <= x <= caps``, ``W z <= limits``, t free; x uses ``A x`` of what all
    share.

    ``data`` : (name, width) of what a row of data consists of, in order: private parameters, and public arrays with a
    row for each person. ``private`` : the names among these that are private. ``shape`` : of one share, with k entries
    (C order). ``extra`` : how many t there are; concave piecewise linear objectives need them. ``resources`` : m.
    ``use_at`` : (rows, columns) of the entries of A that can be other than 0; ``limits_at`` : of W.
    ``values`` (k + extra,), ``caps`` (k,), ``use`` (one number for each place in ``use_at``), ``coefficients`` (for
    each place in ``limits_at``), ``limits`` (one for each row of W) : affine in the row of data. ``caps`` : some such
    bounds, the least of which holds; inf where one bounds nothing. ``personal`` : (rows of W,) whether a row is a limit
    of the person, whose right-hand side is cut to at least 0, so that x = 0 is allowed; others define t.
    ``signed`` : whether personal rows of W may have negative numbers or t, so that less of one entry may break them.
    ``integral`` : shares are whole: one of the answers to prices is drawn for each person, and not their mean handed
    out.
    """

    data: tuple[tuple[str, int], ...]
    private: frozenset[str]
    shape: tuple[int, ...]
    extra: int
    resources: int
    use_at: tuple[Any, Any]
    limits_at: tuple[Any, Any]
    values: Affine
    caps: tuple[Affine, ...]
    use: Affine
    coefficients: Affine
    limits: Affine
    personal: Any
    signed: bool = False
    integral: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "data": [list(each) for each in self.data],
            "private": sorted(self.private),
            "shape": list(self.shape),
            "extra": self.extra,
            "resources": self.resources,
            "use_at": [np.asarray(each).tolist() for each in self.use_at],
            "limits_at": [np.asarray(each).tolist() for each in self.limits_at],
            **{name: getattr(self, name).to_dict() for name in _AFFINE},
            "caps": [each.to_dict() for each in self.caps],
            "personal": np.asarray(self.personal).tolist(),
            "signed": self.signed,
            "integral": self.integral,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Form:
        """What ``to_dict`` gave."""
        return cls(
            data=tuple((str(name), int(width)) for name, width in plain["data"]),
            private=frozenset(plain["private"]),
            shape=tuple(map(int, plain["shape"])),
            extra=int(plain["extra"]),
            resources=int(plain["resources"]),
            use_at=_places(plain["use_at"]),
            limits_at=_places(plain["limits_at"]),
            values=Affine.from_dict(plain["values"]),
            use=Affine.from_dict(plain["use"]),
            coefficients=Affine.from_dict(plain["coefficients"]),
            limits=Affine.from_dict(plain["limits"]),
            caps=tuple(map(Affine.from_dict, plain["caps"])),
            personal=np.asarray(plain["personal"], dtype=bool),
            signed=bool(plain["signed"]),
            integral=bool(plain["integral"]),
        )

    @property
    def size(self) -> int:
        """k, the number of entries of a share."""
        return int(np.prod(self.shape, dtype=np.intp))

    @property
    def width(self) -> int:
        """Numbers in a row of data."""
        return sum(width for _, width in self.data)

    @np.errstate(all="ignore")  # a warning would tell of an odd record
    def people(self, rows: Floats) -> People:
        """The people with these rows of data (B, ``width``). What is no number was made one before."""
        limits, caps = self.limits.of(rows), [each.of(rows) for each in self.caps]
        limits = np.where(self.personal, np.maximum(limits, 0.0), limits)
        return People(
            PrivateArray(self.values.of(rows)),
            PrivateArray(np.maximum(reduce(np.minimum, caps), 0.0)) if caps else None,
            PrivateArray(np.maximum(self.use.of(rows), 0.0)),
            PrivateArray(self.coefficients.of(rows)),
            PrivateArray(limits),
            len(rows),
        )

    # ------------------------------------------------------------------ what is public of A
    @cached_property
    def separate(self) -> bool:
        """Whether each entry of x uses one resource at most, and each resource has one entry at most."""
        rows, columns = self.use_at
        return bool(np.unique(rows).size == rows.size and np.unique(columns).size == columns.size)

    @cached_property
    def aligned(self) -> bool:
        """Whether entry j of x uses resource j, and no other: then A is a row of numbers."""
        return all(np.array_equal(each, np.arange(self.size)) for each in (*self.use_at, range(self.resources)))

    @cached_property
    def single(self) -> bool:
        """Whether a person's best answer is found by sorting: at most one limit, of numbers >= 0, and no t."""
        return self.extra == 0 and len(self.personal) <= 1 and not self.signed

    @cached_property
    def _to_resource(self) -> Any:
        rows, _ = self.use_at
        return sp.csr_array((np.ones(rows.size), (np.arange(rows.size), rows)), shape=(rows.size, self.resources))

    @cached_property
    def _to_entry(self) -> Any:
        rows, columns = self.use_at
        return sp.csr_array((np.ones(rows.size), (np.arange(rows.size), columns)), shape=(rows.size, self.size))

    @cached_property
    def _public_use(self) -> Any:
        """(m, k) A where all share it."""
        return sp.csr_array((self.use.constant, self.use_at), shape=(self.resources, self.size))

    def used(self, people: People, x: Floats) -> Floats:
        """(B, m) what shares x (B, k) use."""
        if self.aligned:
            return np.asarray(people.use * x)
        if self.use.public:
            return by_row((self._public_use @ x.T).T)
        return by_row((people.use * x[:, self.use_at[1]]) @ self._to_resource)

    def squares(self, people: People) -> Floats:
        """(B, k) the square of the length of what one unit of each entry uses; (1, k) where all share A."""
        return by_row(np.square(people.use) @ self._to_entry)

    def charged(self, people: People, prices: Floats) -> Floats:
        """(B, k) what one unit of each entry costs at these prices (m,); (1, k) where all share A."""
        if self.aligned:
            return np.asarray(people.use * prices)
        if self.use.public:
            return np.asarray((prices @ self._public_use)[None, :])
        return by_row((people.use * prices[self.use_at[0]]) @ self._to_entry)

    def scaled(self, scales: Floats) -> Floats:
        """(k,) the least of the scales (m,) of the resources that an entry may use; 1 where it uses none. Where less of
        one entry may break a personal limit (``signed``), one scale for all."""
        out = np.ones(self.size)
        if self.signed:
            return np.full(self.size, scales[self.use_at[0]].min(initial=1.0))
        np.minimum.at(out, self.use_at[1], scales[self.use_at[0]])
        return out


def _places(plain: Any) -> tuple[Any, Any]:
    rows, columns = (np.asarray(each, dtype=np.intp) for each in plain)
    return rows, columns


@dataclass(frozen=True, eq=False)
class People:
    """The private numbers of B people, (B, .) each; (1, .) where all share them. Names as in ``Form``."""

    values: PrivateArray
    caps: PrivateArray | None
    use: PrivateArray
    coefficients: PrivateArray
    limits: PrivateArray
    count: int

    def part(self, which: Any) -> People:
        """The people of these numbers."""

        def of(array: PrivateArray) -> PrivateArray:
            return array if array.shape[0] == 1 else PrivateArray(array[which])

        caps = None if self.caps is None else of(self.caps)
        return People(of(self.values), caps, of(self.use), of(self.coefficients), of(self.limits), len(which))
