"""The first remedy of an impossible cell: let each record own its variables, where the model has that shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cvxpy as cp

from dpmodel.contract import Model, Options
from dpmodel.errors import DPModelError, ImpossibilityError, SpecificationError
from dpmodel.joint.read import read, shares_of
from dpmodel.marks.private import Private
from dpmodel.marks.shares import Shares
from dpmodel.programs.remedies import Remedy

_STATEMENT = (
    "let each record own its variables: {it} becomes dpm.Shares, each person is handed their own part, and everybody "
    'else learns prices (release="joint")'
)


@dataclass(frozen=True, eq=False)
class JointRemedy(Remedy):
    """The same model, with a variable whose first axis is the record made into ``Shares``; planned and solved with
    ``release="joint"``. Private numbers of a record may then be of any size."""

    def _changed(self, problem: Any, settings: Mapping[str, Any], sealed: bool = True) -> Any:
        if settings:
            raise SpecificationError(f"joint: {sorted(settings)[0]}=", why="it has no setting", remedy="apply()")
        found = with_shares(problem)
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
        changed = None if problem is None else with_shares(problem)
        if changed is None:
            raise
        delta = options.delta or 1e-6
        request = {"epsilon": options.epsilon, "delta": delta, "beta": options.beta, "release": "joint"}
        names = ", ".join(each.name() for each in shares_of(changed))
        remedy = JointRemedy("joint", _STATEMENT.format(it=names), {}, request, problem, "")
        raise error.with_first(remedy) from None


def with_shares(problem: Any) -> Any:
    """``problem`` with one variable made into shares, itself where it has some; None where it cannot be read so."""
    if shares_of(problem):
        return problem
    owners = {(p.shape[0], p.records) for p in problem.parameters() if isinstance(p, Private) and _by_record(p)}
    for variable in problem.variables():
        for count, records in owners:
            if variable.ndim and variable.shape[0] == count:
                try:
                    changed = _swapped(problem, variable, records)
                    read(changed)
                except DPModelError:
                    continue
                return changed
    return None


def _by_record(parameter: Private) -> bool:
    return parameter.ndim > 0 and (parameter.unit == "row" or (parameter.unit == "entry" and parameter.ndim == 1))


def _swapped(problem: Any, variable: cp.Variable, records: Any) -> Any:
    kept = {name: given for name, given in variable.attributes.items() if given is not None and given is not False}
    name = variable.name()
    shares = Shares(variable.shape, records=records, name=name, **(kept or {"nonneg": True}))
    swap = {id(variable): shares}
    objective = problem.objective.tree_copy(id_objects=swap)
    constraints = [each.tree_copy(id_objects=swap).set_label(each.label) for each in problem.constraints]
    return problem.copy([objective, constraints])
