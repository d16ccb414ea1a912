"""The one way from a recognised regression to its private rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.form import require_private_values
from dpmodel.compile.regression.blocks import BlockReader, BlockTable
from dpmodel.compile.regression.features import Features, Label
from dpmodel.compile.regression.recognise import Recognised
from dpmodel.compile.regression.rows import Reader, Rows, Table
from dpmodel.compile.rows import held_numbers
from dpmodel.marks import vault
from dpmodel.marks.private import Private


def reader(recognised: Recognised) -> Reader:
    """A function that reads the rows, for a mechanism's ``run`` only; MissingValueError where a value is missing."""
    read = reader_of_all([recognised])
    return lambda: read()[0]


def reader_of_all(parts: Sequence[Recognised]) -> Callable[[], tuple[Table, ...]]:
    """The same for regressions over the same records: every parameter is read once."""

    def read() -> tuple[Table, ...]:
        private = {id(p): p for part in parts for p in part.private}
        require_private_values(private.values())
        if any(p.in_blocks for p in private.values()):
            return tuple(map(_block_table, parts))
        owned = {key: _owned(parameter) for key, parameter in private.items()}
        return tuple(_rows(part, owned) for part in parts)

    return read


def _rows(recognised: Recognised, owned: dict[int, Any]) -> Rows:
    """The rows, made of the sealed numbers: a view of what is sealed where all entries are stored, public numbers as
    they are."""

    def matrix(features: Any) -> Any:
        return features.rows(owned[id(features.parameter)]) if isinstance(features, Features) else features

    blocks = tuple((matrix(features), start) for features, start in recognised.blocks)
    label: Any = recognised.label
    if label is None:
        label = np.ones(recognised.count)
    elif isinstance(label, Label):
        # What was sealed is within the declared bounds; the range of the labels follows from them up to rounding.
        label = np.clip(label.of(owned[id(label.parameter)]), *label.range)
    return Rows(blocks, PrivateArray(label), recognised.size, recognised.offset, recognised.weights)


def _block_table(recognised: Recognised) -> BlockTable:
    """The same of rows in blocks; public tables have the same row for all records."""
    private = recognised.private
    sealed: list[Any] = [vault.unseal(p) for p in private]
    place = {id(p): k for k, p in enumerate(private)}
    blocks = tuple(
        (place[id(f.parameter)], f.map, start) if isinstance(f, Features) else (None, _first_row(f), start)
        for f, start in recognised.blocks
    )
    label: Any = recognised.label
    if isinstance(label, Label):
        features, ends = label.features, (float(label.scale), float(label.shift))
        label = (place[id(features.parameter)], features.map, *ends, *label.range)
    else:
        label = 1.0 if label is None else float(label[0])
    reader = BlockReader(
        held=held_numbers(private, sealed),
        blocks=blocks,
        label=label,
        offset=0.0 if recognised.offset is None else float(recognised.offset[0]),
        size=recognised.size,
    )
    return BlockTable(sealed[0].source, reader)


def _first_row(table: Any) -> Floats:
    """(k,) the first row."""
    row = table[:1]
    return np.asarray(row.toarray() if sp.issparse(row) else row, dtype=np.float64).ravel()


def _owned(parameter: Private) -> Any:
    """What is sealed, in the shape of the parameter (a column for a vector), dense or CSR."""
    entries: Any = vault.unseal(parameter)
    if sp.issparse(entries):
        return entries
    shape = tuple(parameter.shape) if parameter.ndim == 2 else (int(parameter.size), 1)
    layout = parameter.layout
    if layout.size == parameter.size and parameter.sparse_idx is None:
        return entries.reshape(shape, order="F")
    return sp.csr_array((entries, (layout.rows, layout.columns)), shape=shape)
