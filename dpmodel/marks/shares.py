"""Shares: a variable whose first axis is the record, and whose value only its owners are handed."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.marks.records import Records

_ATTRIBUTES = ("nonneg", "boolean", "integer", "bounds")


class Shares(cp.Variable):  # type: ignore[misc]
    """A ``cvxpy.Variable`` of which record i owns ``[i]``: what one person gets, and nobody else is told.

    A problem with shares is solved with ``problem.solve(epsilon, delta, release="joint")``: prices are published, and
    ``problem.release.share(i)`` is handed to person i. Private data of a person may then stand in their own part of
    the objective and of the constraints without any bound.

    It fails closed: ``value`` reads as None for ever, so neither CVXPY nor a printed expression, residual or objective
    can show it. Copies and pickles are as empty.

    Parameters
    ----------
    shape : (records, ...): one share has the shape that is left.
    records : whose shares they are; the private parameters of these people name the same ``Records``. Needed.
    name : shown in messages.
    **attributes : ``nonneg=True``, or ``bounds=[0, most]``, numbers or arrays; ``boolean=True`` or ``integer=True`` for
        shares in whole units.

    Raises
    ------
    SpecificationError
        For no records, a shape without an axis for them, shares that may be negative, and other attributes.

    Examples
    --------
    >>> import dpmodel as dpm
    >>> charge = dpm.Shares((1000, 24), records=dpm.Records("households"), nonneg=True, name="charge")
    >>> print(charge.value)
    None
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        *,
        records: Records | None = None,
        name: str | None = None,
        **attributes: Any,
    ) -> None:
        where = f"Shares({name!r})" if isinstance(name, str) else "Shares"
        if name is not None and not isinstance(name, str):
            raise SpecificationError(f"Shares: name=<{type(name).__name__}>", remedy="name='charge'")
        if not isinstance(records, Records):
            raise SpecificationError(
                f"{where}: {'no records=' if records is None else f'records={type(records).__name__}'}",
                why="row i is handed to the person whose data stand in row i of the private parameters",
                remedy="people = dpm.Records('people'), and records=people here and in each Private of their data "
                "(records=data.records of a Dataset)",
            )
        sizes = shape if isinstance(shape, tuple | list) else (shape,)
        if not sizes or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in sizes):
            raise SpecificationError(
                f"{where}: shape is not a tuple of positive integers",
                why="the first axis says whose share it is, the others what a share is made of",
                remedy="Shares((people, hours), ...)",
            )
        unknown = sorted(key for key, given in attributes.items() if key not in _ATTRIBUTES and given is not None)
        if unknown:
            raise SpecificationError(
                f"{where}: {unknown[0]}=",
                why="a share is a row of numbers that its owner gets, and the owner is known by its place alone",
                remedy="nonneg=True, bounds=[0, most], boolean=True or integer=True; limits as constraints",
            )
        super().__init__(tuple(int(n) for n in sizes), name=name, **_checked(attributes, where))
        self._records = records

    @property
    def records(self) -> Records:
        """Whose shares these are."""
        return self._records

    # ------------------------------------------------------------------ nothing goes in, nothing comes out
    @property
    def value(self) -> None:
        """None, always: ``problem.release.share(i)`` is what one person is handed."""
        return None

    @value.setter
    def value(self, value: Any) -> None:
        self.save_value(value)

    @property
    def value_sparse(self) -> None:
        """None, always."""
        return None

    @value_sparse.setter
    def value_sparse(self, value: Any) -> None:
        self.save_value(value)

    def save_value(self, val: Any, sparse_path: bool = False) -> None:
        """CVXPY's way of storing a value: nothing is stored.
        Errors: SpecificationError, for anything but None."""
        if val is not None:
            raise SpecificationError(
                f"a value for the shares {self.name()}",
                why="everybody who holds the model would see what each person gets",
                remedy='dpm.Problem(...).solve(epsilon, delta, release="joint"), then problem.release.share(i)',
            )

    def project_and_assign(self, val: Any) -> None:
        self.save_value(val)

    def __repr__(self) -> str:
        return f"Shares({self.name()!r}, shape={self.shape})"


def _checked(attributes: dict[str, Any], where: str) -> dict[str, Any]:
    """The attributes; shares are scaled down where a resource is short, so that 0 must be allowed and nothing less."""
    bounds = attributes.get("bounds")
    low: Any = None
    if bounds is not None:
        ends = list(bounds) if isinstance(bounds, tuple | list) else []
        if len(ends) != 2 or any(isinstance(end, cp.Expression) for end in ends):
            raise SpecificationError(
                f"{where}: bounds= is no pair of numbers or arrays", remedy="bounds=[0, most]; limits as constraints"
            )
        low = ends[0]
        attributes = {**attributes, "bounds": ends}
    from_zero = low is not None and bool(np.all(np.asarray(low) == 0))
    above = low is not None and not from_zero and bool(np.all(np.asarray(low) >= 0))
    if not (attributes.get("nonneg") or attributes.get("boolean") or from_zero or above):
        raise SpecificationError(
            f"{where}: shares that may be negative",
            why="where something runs short shares are scaled down to what is there, and a share of nothing is 0",
            remedy="nonneg=True",
        )
    if low is not None and not from_zero and not bool(np.all(np.asarray(low) <= 0)):
        raise SpecificationError(
            f"{where}: bounds above 0",
            why="where something runs short shares are scaled down, so that a share of 0 must be allowed",
            remedy="bounds=[0, most]; what is given to everybody comes off the capacity",
        )
    return attributes
