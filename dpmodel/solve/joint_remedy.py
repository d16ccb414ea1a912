"""The first remedy of an impossible cell: let each record own its variables, where the model has that shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.contract import Model, Options
from dpmodel.errors import DPModelError, ImpossibilityError, SpecificationError
from dpmodel.joint.read import read, shares_of
from dpmodel.marks.private import Private
from dpmodel.marks.shares import Shares
from dpmodel.programs.remedies import Remedy

_OWN = "let each record own its variables ({it} becomes dpm.Shares): "
_HAND_OUT = 'release="joint" hands each record its own part of {it}, and everybody else learns prices'


@dataclass(frozen=True, eq=False)
class JointRemedy(Remedy):
    """The same model, with a variable whose first axis is the record made into ``Shares``: planned and solved with
    ``release="joint"``, whatever one record changes. ``apply`` returns it; it has the same parameters."""

    def _changed(self, problem: Any, settings: Mapping[str, Any], sealed: bool = True) -> Any:
        if settings:
            raise SpecificationError(f"joint: {sorted(settings)[0]}=", why="it has no setting", remedy="apply()")
        found = with_shares(problem, self._parameter)
        if found is None:
            raise SpecificationError(
                "joint: no variable of this problem is owned by its records",
                why="its first axis has as many entries as there are records, which meet in sums alone",
                remedy="the problem that was refused, or a copy of it",
            )
        return found


@contextmanager
def joint_first(model: Model, options: Options) -> Iterator[None]:
    """Whatever theorem is raised inside offers joint privacy first, where the model can be read that way."""
    try:
        yield
    except ImpossibilityError as error:
        problem = getattr(model, "problem", None)
        changed = None if problem is None else with_shares(problem, error.parameter)
        if changed is None:
            raise
        request = {"epsilon": options.epsilon, "delta": options.delta or 1e-6, "beta": options.beta, "release": "joint"}
        (shares,) = shares_of(changed)
        statement = (_HAND_OUT if changed is problem else _OWN + _HAND_OUT).format(it=shares.name())
        raise error.with_first(JointRemedy("joint", statement, {}, request, problem, error.parameter)) from None


def with_shares(problem: Any, parameter: str) -> Any:
    """``problem`` with one variable made into shares of the records of this private parameter, and itself where it has
    some; None where it cannot be read so."""
    if shares_of(problem):
        return problem
    owners = [p for p in problem.parameters() if isinstance(p, Private) and p.name() == parameter and _by_record(p)]
    for owner in owners:
        for variable in problem.variables():
            if variable.ndim and variable.shape[0] == owner.shape[0] and _nonneg(problem, variable):
                try:
                    changed = _swapped(problem, variable, owner.records)
                    read(changed)
                except DPModelError:
                    continue
                return changed
    return None


def _by_record(parameter: Private) -> bool:
    return parameter.ndim > 0 and (parameter.unit == "row" or (parameter.unit == "entry" and parameter.ndim == 1))


def _declared(variable: cp.Variable) -> bool:
    """Whether the variable itself says that it is 0 or more."""
    bounds = variable.attributes["bounds"]
    return bool(variable.is_nonneg() or (bounds is not None and np.all(np.asarray(bounds[0]) >= 0)))


def _nonneg(problem: Any, variable: cp.Variable) -> bool:
    """Whether it, or a constraint ``variable >= 0``, says so."""
    rows = (each.args for each in problem.constraints if isinstance(each, cp.constraints.Inequality))
    return _declared(variable) or any(
        more is variable and less.is_constant() and not less.parameters() and less.is_nonneg() for less, more in rows
    )


def _swapped(problem: Any, variable: cp.Variable, records: Any) -> Any:
    kept = {name: given for name, given in variable.attributes.items() if given is not None and given is not False}
    named = {} if _declared(variable) else {"nonneg": True}
    shares = Shares(variable.shape, records=records, name=variable.name(), **kept, **named)
    swap = {id(variable): shares}
    objective = problem.objective.tree_copy(id_objects=swap)
    constraints = [each.tree_copy(id_objects=swap).set_label(each.label) for each in problem.constraints]
    return problem.copy([objective, constraints])
