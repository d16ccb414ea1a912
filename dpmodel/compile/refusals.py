"""What is refused and warned of while a problem is read.

A problem that cannot be compiled is refused with the innermost expression, the rule, and how to rewrite it. Warnings
are of what looks like private data among the public leaves of a problem, and of private data forgotten.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy import constraints

from dpmodel.compile.written import written
from dpmodel.errors import PossibleLeakWarning, UnsupportedModelError, users_line
from dpmodel.marks.private import Private
from dpmodel.text import shortened

_CONSTRAINTS = (
    constraints.Zero,
    constraints.Equality,
    constraints.NonPos,
    constraints.NonNeg,
    constraints.Inequality,
    constraints.SOC,
    constraints.PSD,
    constraints.ExpCone,
    constraints.PowCone3D,
    constraints.PowConeND,
)


def constraint_label(constraint: Any, number: int) -> str:
    """The user's label, or the constraint's number and text."""
    label = getattr(constraint, "label", None)
    return str(label) if label else f"constraint {number} ({short(constraint)})"


def short(expression: Any) -> str:
    """The expression's text (parameters by name, tables of numbers left out), cut to a line."""
    return shortened(written(expression), 80)


def where_used(problem: cp.Problem, parameter: Any, labels: Mapping[int, str] | None = None) -> tuple[str, ...]:
    """Labels of the objective and constraints in which ``parameter`` stands; ``labels`` : those that are known, by the
    constraint's number."""
    places = []
    if any(p.id == parameter.id for p in problem.objective.parameters()):
        places.append("the objective")
    for number, constraint in enumerate(problem.constraints):
        if any(p.id == parameter.id for p in constraint.parameters()):
            places.append((labels or {}).get(number) or constraint_label(constraint, number))
    return tuple(places)


def refuse_unserved(problem: cp.Problem) -> None:
    """Raise UnsupportedModelError for leaves and constraints that no reading serves."""
    _refuse_shared_ids(problem)
    for number, constraint in enumerate(problem.constraints):
        if not isinstance(constraint, _CONSTRAINTS):
            raise UnsupportedModelError(
                f"{constraint_label(constraint, number)}: a {type(constraint).__name__} constraint",
                why="served are linear, second-order, exponential, power and semidefinite constraints",
                remedy="rewrite it with those, or with integer variables",
            )
    for variable in problem.variables():
        if variable.is_complex() or variable.attributes["hermitian"]:
            raise UnsupportedModelError(
                f"complex variable {variable.name()}",
                why="standard forms here are real",
                remedy="two real variables",
            )
        for bound in variable.attributes["bounds"] or ():
            if isinstance(bound, cp.Expression) and bound.parameters():
                raise UnsupportedModelError(
                    f"variable {variable.name()} has a parameter in its bounds attribute",
                    why="such bounds are applied outside the constraints, where changes cannot be followed",
                    remedy=f"plain constraints, e.g. {variable.name()} <= {short(bound)}",
                )


def refuse_undisciplined(problem: cp.Problem) -> None:
    """Raise UnsupportedModelError unless the problem is convex (DCP) and affine in its parameters (DPP)."""
    if problem.is_dpp():
        return
    if not problem.is_dcp():
        place, culprit = _innermost(problem, lambda e: bool(e.is_dcp()))
        raise UnsupportedModelError(
            f"{place}: {short(culprit)} is not convex by CVXPY's rules",
            why="mechanisms solve convex (DCP) problems",
            remedy="rewrite it with DCP atoms; a parameter whose sign matters needs nonneg=True or a like attribute",
        )
    place, culprit = _innermost(problem, lambda e: bool(e.is_dpp()))
    names = sorted({p.name() for p in culprit.parameters()})
    raise UnsupportedModelError(
        f"{place}: {short(culprit)} is not affine in its parameters (not DPP)",
        why="the exact change that one record makes is read off a map that must be affine in the parameters",
        remedy=_dpp_remedy(culprit, names),
    )


def square_of_norm(problem: cp.Problem) -> str:
    """Advice where the objective has a norm of residuals, whose square would be a sum over the records; else ""."""
    nodes = [problem.objective.args[0]]
    while nodes:
        node = nodes.pop()
        residuals = node.args[0] if isinstance(node, cp.Pnorm) and node.p == 2 and node.size == 1 else None
        if residuals is not None and residuals.variables() and any(isinstance(p, Private) for p in node.parameters()):
            squares = f"cp.sum_squares({short(residuals)})"
            return f"{squares}, which has the norm's minimiser where nothing is added, and is a regression; or "
        nodes += [each for each in getattr(node, "args", ()) if isinstance(each, cp.Expression)]
    return ""


def refuse_blocks(parameters: Iterable[Any]) -> None:
    """Of rows in blocks sums are read, and no form of the whole can be written."""
    name = next((p.name() for p in parameters if isinstance(p, Private) and p.in_blocks), None)
    if name is not None:
        raise UnsupportedModelError(
            f"{name}: rows in blocks where the rows themselves are needed",
            why="regressions, and constraints that are one record's each, need sums over records alone; nothing else "
            "reads rows in blocks",
            remedy="counts and sums of the data (Dataset.count, Dataset.sum), or the rows as arrays in memory",
        )


def _refuse_shared_ids(problem: cp.Problem) -> None:
    """CVXPY tells leaves apart by number: of two with the same one, a private parameter might vanish."""
    owners: dict[int, Any] = {}
    for leaf in [*problem.parameters(), *problem.variables()]:
        other = owners.setdefault(leaf.id, leaf)
        if other is not leaf:
            raise UnsupportedModelError(
                f"{other.name()} and {leaf.name()} have the same CVXPY id",
                why="CVXPY would take them for one; it happens when a pickled parameter is loaded in another session",
                remedy="make the parameter anew, or copy.deepcopy it, which gives it an id of its own",
            )


def _dpp_remedy(culprit: Any, names: list[str]) -> str:
    private = [p.name() for p in culprit.parameters() if isinstance(p, Private)]
    listed = ", ".join(names)
    if isinstance(culprit, cp.QuadForm):
        x, matrix = map(short, culprit.args)
        return (
            f"declare a root R of it, {matrix} = R.T @ R (the centred rows of the data, say), and write "
            f"cp.sum_squares(R @ {x}), which is the same number"
        )
    if isinstance(culprit, (cp.atoms.affine.binary_operators.MulExpression, cp.multiply)):
        product = f"the product of {listed}" if len(names) > 1 else f"the nonlinear expression in {listed}"
        beforehand = f"compute {product} beforehand and declare it as one Private with its own bounds"
        if not culprit.variables():
            return beforehand
        return f"{beforehand}, or give the inner product its own variable: z == W @ x, then P @ z"
    return (
        f"compute this function of {', '.join(private) or listed} beforehand and declare the result as one "
        "Private with its own bounds, so that it enters linearly"
    )


def _innermost(problem: cp.Problem, disciplined: Any) -> tuple[str, Any]:
    """The place and the deepest expression that fails while all its arguments pass."""
    for place, root in _roots(problem):
        node = root
        if disciplined(node):
            continue
        while True:
            failing = [arg for arg in getattr(node, "args", []) if not disciplined(arg)]
            if not failing:
                return place, node
            node = failing[0]
    return "the problem", problem.objective


def _roots(problem: cp.Problem) -> Iterator[tuple[str, Any]]:
    yield "the objective", problem.objective
    for number, constraint in enumerate(problem.constraints):
        yield constraint_label(constraint, number), constraint


_hinted = False


def warn_of_leaves(problem: Any, *, by_record: bool) -> None:
    """Warn of public numbers in the memory of a private value; once a process, hint at constants of a private shape.

    Numbers are not compared: a warning that depends on them would tell something. CVXPY copies arrays that enter as
    constants (not pandas' columns, and not values of parameters), so most forgotten ones show by their shape alone, as
    do most public ones: a hint that came with each of these would not be read.

    ``problem.warned`` : ids of leaves that were warned of already; it grows. ``by_record`` : whether row i of a private
    parameter is record i, as in regressions: then constants of as many rows are hinted at, such as labels that were not
    marked.
    """
    private, warned = [p for p in problem.parameters() if isinstance(p, Private)], problem.warned
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
        elif (
            not _hinted
            and isinstance(leaf, cp.Constant)
            and getattr(leaf, "_name", None) is None
            and _varies(leaf.value)
        ):
            _hint(problem, leaf, private, by_record)


def _hint(problem: Any, leaf: cp.Constant, private: list[Private], by_record: bool) -> None:
    global _hinted
    for parameter in private:
        if leaf.shape == parameter.shape or (by_record and leaf.shape[:1] == parameter.shape[:1]):
            _hinted = True
            how = "the shape of" if leaf.shape == parameter.shape else "as many rows as"
            parts = [("the objective", problem.objective)]
            parts += [(constraint_label(each, number), each) for number, each in enumerate(problem.constraints)]
            where = next((label for label, part in parts if any(c is leaf for c in part.constants())), "the model")
            _warn(
                f"in {where}: a plain constant of shape {leaf.shape} has {how} private parameter {parameter.name()!r}. "
                "If it was computed from the same records, it must enter as a Private; if it is public, all is well "
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
