"""Warnings of what looks like private data among the public leaves of a problem, and of private data forgotten."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.compile.standard_form.cvxpy_bridge import has_name
from dpmodel.marks.private import Private
from dpmodel.users_line import users_line

_hinted = False


class PossibleLeakWarning(UserWarning):
    """Private data may stand in the model as if they were public."""


def warn_of_leaves(problem: cp.Problem, warned: set[int], *, by_record: bool) -> None:
    """Warn of public numbers in the memory of a private value; once a process, hint at constants of a private shape.

    Numbers are not compared: a warning that depends on them would tell something. CVXPY copies arrays that enter as
    constants (not pandas' columns, and not values of parameters), so most forgotten ones show by their shape alone, as
    do most public ones: a hint that came with each of these would not be read.

    ``warned`` : ids of leaves that were warned of already; it grows. ``by_record`` : whether row i of a private
    parameter is record i, as in regressions: then constants of as many rows are hinted at, such as labels that were not
    marked.
    """
    private = [p for p in problem.parameters() if isinstance(p, Private)]
    for leaf in (*problem.constants(), *problem.parameters()):
        if id(leaf) in warned or leaf.size < 2 or isinstance(leaf, Private) or leaf.sparse_idx is not None:
            continue
        shared = next((p for p in private if p.shares_memory(leaf.value)), None)
        if shared is not None:
            warned.add(id(leaf))
            what = f"parameter {leaf.name()!r}" if isinstance(leaf, cp.Parameter) else f"constant of shape {leaf.shape}"
            _warn(
                f"public {what} is in the memory of private parameter {shared.name()!r}: the same numbers stand in the "
                "model without noise. Use the Private there, too"
            )
        elif not _hinted and isinstance(leaf, cp.Constant) and not has_name(leaf) and _varies(leaf.value):
            _hint(leaf, private, by_record)


def _hint(leaf: cp.Constant, private: list[Private], by_record: bool) -> None:
    global _hinted
    for parameter in private:
        if leaf.shape == parameter.shape or (by_record and leaf.shape[:1] == parameter.shape[:1]):
            _hinted = True
            how = "the shape of" if leaf.shape == parameter.shape else "as many rows as"
            _warn(
                f"a plain constant of shape {leaf.shape} has {how} private parameter {parameter.name()!r}. If it was "
                "computed from the same records, it must enter as a Private; if it is public, all is well "
                '(cp.Constant(..., name="...") says so). This is said once a process'
            )
            return


def warn_of_no_private() -> None:
    """Warn that a problem without private parameters is solved exactly, though a budget was given."""
    _warn(
        "nothing in this problem is Private: it is solved exactly, without noise, and the budget protects nobody. "
        "Data of people must enter as Private(values, unit=..., linf=...); if all is public, solve() without epsilon"
    )


def _warn(text: str) -> None:
    warnings.warn(text, PossibleLeakWarning, stacklevel=users_line())


def _varies(value: Any) -> bool:
    """Whether the entries differ: all zeros or all ones hold nobody's data."""
    data = value.data if hasattr(value, "tocoo") else np.asarray(value)
    return bool(data.size and np.ptp(data) > 0)
