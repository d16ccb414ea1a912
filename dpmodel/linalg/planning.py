"""Plans without data: which mechanism, how many records, how many rows missed."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np

from dpmodel.annotate.records import NEIGHBORS, Neighbors
from dpmodel.errors import SpecificationError
from dpmodel.linalg.inequalities_input import EXPECTED
from dpmodel.mechanisms.linalg.fields import QQ, Field
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, PrivatePoints, PrivateSystem, PrivateVectors
from dpmodel.plan.comparison import Plan
from dpmodel.plan.planner import make_plan
from dpmodel.plan.request import basic_request
from dpmodel.problem_exact import checked_margin

Task = Literal["span", "affine span", "equations", "inequalities", "hull"]
TASKS: tuple[Task, ...] = get_args(Task)


def plan(
    task: Task,
    *,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    records: int | None = None,
    neighbors: Neighbors = "add-remove",
    field: Field = QQ,
    rank: int | None = None,
    corrupted: float | None = None,
    margin: float | None = None,
    bound: int | None = None,
    nonneg: bool = False,
    homogeneous: bool = False,
    levels: int | Sequence[int] = 101,
    beta: float = 0.05,
    mechanism: Any = "auto",
) -> Plan:
    """Compare the mechanisms for a task before there are data: rows missed, records needed. Spends nothing.

    Parameters
    ----------
    task : "span", "affine span", "equations", "inequalities" or "hull" (a point in a convex hull).
    dimension : of the vectors or points, or the number of variables.
    epsilon, delta : the budget; ``beta``: probability with which a statement may fail.
    records : how many records there are, or about how many (the forecasts use it; under add-remove it is a guess).
    neighbors : "add-remove" or "replace-one".
    field, rank, corrupted : of vectors, as in ``span``.
    margin, bound, nonneg, homogeneous : of inequalities: the promised margin, the largest size of the (whole) numbers,
        whether x >= 0 is public, whether all right-hand sides are zero.
    levels : of points: values per coordinate of the public grid.
    mechanism : "auto", or the name of one.

    Returns
    -------
    Plan
        Prints as a table, with what no mechanism can beat below it.

    Raises
    ------
    SpecificationError, UnsupportedModelError
        For wrong arguments, and where no mechanism applies.
    """
    if task not in TASKS:
        raise SpecificationError(
            f"task={task!r}" if isinstance(task, str) else f"task={type(task).__name__}",
            remedy=", ".join(map(repr, TASKS)),
        )
    if neighbors not in NEIGHBORS:
        raise SpecificationError(f"neighbors={neighbors!r}", remedy="'add-remove' or 'replace-one'")
    size = _whole("dimension", dimension)
    expected = EXPECTED if records is None else _whole("records", records)
    public = expected if neighbors == "replace-one" else None
    request = basic_request(epsilon, delta, beta)
    system: PrivateSystem
    if task == "hull":
        each = [levels] * size if isinstance(levels, numbers.Integral) else list(levels)  # type: ignore[arg-type]
        counts = tuple(_whole("levels", level) for level in each)
        if len(counts) != size:
            raise SpecificationError(f"levels has {len(counts)} numbers", why=f"there are {size} coordinates")
        system = PrivatePoints((Fraction(0),) * size, Fraction(1), counts, neighbors, public, expected, _no_data)
    elif task == "inequalities":
        rho = None if margin is None else checked_margin(margin)
        largest = None if bound is None else _whole("bound", bound)
        rows = -np.eye(size) if nonneg else np.zeros((0, size))
        system = PrivateInequalities(
            size, homogeneous, rows, np.zeros(len(rows)), rho, largest, neighbors, public, expected, _no_data
        )
    else:
        if not isinstance(field, Field) or isinstance(field, type):
            raise SpecificationError(f"field={type(field).__name__} is no field", remedy="linalg.QQ or linalg.GF(7)")
        size += task != "span"
        most = size if rank is None else min(_whole("rank", rank) + (task != "span"), size)
        system = PrivateVectors(field, size, task, neighbors, most, public, expected, _no_data, corrupted)
    return make_plan(system, request, mechanism)


def _no_data() -> Any:
    raise AssertionError("a plan reads no data")


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < 1:
        raise SpecificationError(f"{name} is no positive whole number", remedy=f"{name}=10, say")
    return int(value)
