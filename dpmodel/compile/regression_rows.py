"""The one way from a recognised regression to its private rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.annotate import vault
from dpmodel.annotate.private import Private
from dpmodel.compile.regression import Recognised
from dpmodel.compile.regression_features import Features, Label
from dpmodel.compile.rows import Reader, Rows
from dpmodel.errors import MissingValueError


def reader(recognised: Recognised) -> Reader:
    """A function that reads the rows, for a mechanism's ``run`` only; MissingValueError where a value is missing."""

    def read() -> Rows:
        missing = [parameter.name() for parameter in recognised.private if not parameter.has_value]
        if missing:
            raise MissingValueError(
                f"private parameter{'s' if len(missing) > 1 else ''} {', '.join(missing)} without a value",
                why="planning needs none, solving does",
                remedy=f"{missing[0]}.value = ... (it is checked, copied and sealed)",
            )
        blocks = tuple((_matrix(features), start) for features, start in recognised.blocks)
        label: Any = recognised.label
        if label is None:
            label = np.ones(recognised.count)
        elif isinstance(label, Label):
            # What was sealed is within the declared bounds; the range of the labels follows from them up to rounding.
            label = np.clip(label.of(_owned(label.parameter)), *label.range)
        return Rows(blocks, label, recognised.size, recognised.offset, recognised.weights)

    return read


def _matrix(features: Any) -> Any:
    """(n, k) dense or CSR: a view of what is sealed where all entries are stored, public numbers as they are."""
    return features.rows(_owned(features.parameter)) if isinstance(features, Features) else features


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
