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


def warn_of_constants(problem: cp.Problem, warned: set[int]) -> None:
    """Warn of constants of a private shape and of public parameters in the memory of a private value.

    CVXPY copies constants, so memory says nothing of them. Values are not compared. ``warned`` : ids of leaves that
    were warned of already; it grows.
    """
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    for leaf in (*problem.constants(), *problem.parameters()):
        if id(leaf) in warned or leaf.size < 2 or isinstance(leaf, Private) or leaf.sparse_idx is not None:
            continue
        constant, value, shape = isinstance(leaf, cp.Constant), leaf.value, tuple(leaf.shape)
        same_shape = constant and any(shape == tuple(p.shape) for p in private)
        suspicious = same_shape and not has_name(leaf) and _varies(value)
        what = f"a plain constant of shape {shape}" if constant else f"public parameter {leaf.name()!r}"
        for parameter in private:
            same_memory = parameter.shares_memory(value)
            if same_memory or (suspicious and shape == tuple(parameter.shape)):
                warned.add(id(leaf))
                how = "shares the memory of" if same_memory else "has the shape of"
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
