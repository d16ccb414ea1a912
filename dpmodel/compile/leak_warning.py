"""A warning of what looks like private data among the public leaves of a problem."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.annotate.private import Private
from dpmodel.compile.standard_form.cvxpy_bridge import has_name
from dpmodel.users_line import users_line


class PossibleLeakWarning(UserWarning):
    """A constant of the model looks like private data."""


def warn_of_constants(problem: cp.Problem, warned: set[int], *, by_record: bool) -> None:
    """Warn of constants of a private shape and of public parameters in the memory of a private value.

    CVXPY copies constants, so memory says nothing of them. Values are not compared. ``warned`` : ids of leaves that
    were warned of already; it grows. ``by_record`` : whether row i of a private parameter is record i, as in
    regressions: then constants of as many rows are warned of, such as labels that were not marked.
    """
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    for leaf in (*problem.constants(), *problem.parameters()):
        if id(leaf) in warned or leaf.size < 2 or isinstance(leaf, Private) or leaf.sparse_idx is not None:
            continue
        constant, value, shape = isinstance(leaf, cp.Constant), leaf.value, tuple(leaf.shape)
        for parameter in private:
            same_memory = not constant and parameter.shares_memory(value)
            same_shape, same_rows = shape == parameter.shape, by_record and shape[:1] == parameter.shape[:1]
            alike = constant and (same_shape or same_rows)
            if same_memory or (alike and not has_name(leaf) and _varies(value)):
                warned.add(id(leaf))
                what = f"a plain constant of shape {shape}" if constant else f"public parameter {leaf.name()!r}"
                how = "has the shape of" if same_shape else "has as many rows as"
                how = "shares the memory of" if same_memory else how
                warnings.warn(
                    f"{what} {how} private parameter {parameter.name()!r}. If it was computed from the same "
                    "records, it must enter as a Private; if it is public, say so with "
                    'cp.Constant(..., name="...").',
                    PossibleLeakWarning,
                    stacklevel=users_line(),
                )
                break


def _varies(value: Any) -> bool:
    """Whether the entries differ: all zeros or all ones hold nobody's data."""
    data = value.data if hasattr(value, "tocoo") else np.asarray(value)
    return bool(data.size and np.ptp(data) > 0)
