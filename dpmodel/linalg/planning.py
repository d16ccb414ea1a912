"""Plans without data: which mechanism, how many records, how many rows missed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

from dpmodel.errors import SpecificationError
from dpmodel.linalg.inequalities_input import public_inequalities
from dpmodel.linalg.point_in_hull import require_levels
from dpmodel.linalg.public_facts import EXPECTED, each_of, field_of, is_integer, require_neighbors
from dpmodel.linalg.vectors import vectors_model
from dpmodel.marks.records import Neighbors
from dpmodel.mechanisms.linalg.systems import PrivatePoints, PrivateSystem
from dpmodel.models.request import basic_request
from dpmodel.models.systems import system as model_of
from dpmodel.numerics.fields.field import QQ, Field
from dpmodel.plan.comparison import Plan
from dpmodel.plan.planner import Compared, make_plan

_WHERE = "plan"
Task = Literal["span", "affine span", "equations", "inequalities", "hull"]
TASKS: tuple[Task, ...] = get_args(Task)


def plan(
    task: Task,
    *,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    records: int | None = None,
    neighbors: Neighbors = "replace-one",
    field: Field = QQ,
    rank: int | None = None,
    corrupted: float | None = None,
    margin: Any = None,
    public: Any = None,
    bound: int | None = None,
    nonneg: bool = False,
    homogeneous: bool = False,
    levels: int | Sequence[int] = 101,
    beta: float = 0.05,
    mechanism: Any = "auto",
    compare: Compared = "needed",
    published: bool = False,
) -> Plan:
    """Compare the mechanisms for a task before there are data: rows missed, records needed. Spends nothing.

    Parameters
    ----------
    task : "span", "affine span", "equations", "inequalities" or "hull" (a point in a convex hull).
    dimension : of the vectors or points, or the number of variables.
    epsilon, delta : the budget; ``beta``: probability with which a statement may fail.
    records : how many records there are, or about how many: ``expected`` of the functions. None: 10,000 where some
        number is needed (under "add-remove", plans of spans and equations then do without).
    neighbors : "replace-one" or "add-remove".
    field, rank, corrupted : of vectors, as in the function.
    margin, public, bound, nonneg : of inequalities, as in ``feasible_point``; ``homogeneous``: there is no b.
    levels : of points: values of the public grid, one number for all coordinates or one each.
    mechanism : "auto", the name of one, or an object. ``compare`` : as in ``Problem.plan``.
    published : compare the papers' own constants too.

    Returns
    -------
    Plan
        Prints as a table, with what no mechanism can beat below it.

    Raises
    ------
    SpecificationError, UnsupportedModelError
        For wrong arguments; where no mechanism applies; and under "replace-one" where the records are too few for any
        statement, with the number needed.
    """
    if task not in TASKS:
        raise SpecificationError(
            f"task={task!r}" if isinstance(task, str) else f"task={type(task).__name__}",
            why="no such task",
            remedy=", ".join(map(repr, TASKS)),
        )
    size = _whole("dimension", dimension)
    given = None if records is None else _whole("records", records)
    public_records = (given or EXPECTED) if neighbors == "replace-one" else None
    request = basic_request(epsilon, delta, beta)
    system: PrivateSystem
    if task == "hull":
        require_neighbors(neighbors, _WHERE)
        counts = tuple(_whole("levels", level) for level in each_of(levels, size, f"{_WHERE}: levels"))
        require_levels(counts, _WHERE)
        system = PrivatePoints(
            (Fraction(0),) * size, Fraction(1), counts, neighbors, public_records, given or EXPECTED, _no_data
        )
    elif task == "inequalities":
        facts = {"margin": margin, "public": public, "nonneg": nonneg, "bound": bound, "expected": given}
        system = public_inequalities(
            size, not homogeneous, public_records, _no_data, neighbors=neighbors, where=_WHERE, **facts
        ).model
    else:
        shape, numbers = (given or EXPECTED, size + (task != "span")), field_of(field, _WHERE)
        facts = {"neighbors": neighbors, "rank": rank, "corrupted": corrupted, "expected": given}
        system = vectors_model(numbers, shape, _no_data, task=task, where=_WHERE, **facts)
    return make_plan(model_of(system), request, mechanism, compare=compare, published=published)


def _no_data(*_: Any) -> Any:
    raise AssertionError("a plan reads no data")


def _whole(name: str, value: Any) -> int:
    if not is_integer(value, 1):
        raise SpecificationError(
            f"{_WHERE}: {name} is no positive integer", why="it counts things", remedy=f"{name}=10, say"
        )
    return int(value)
