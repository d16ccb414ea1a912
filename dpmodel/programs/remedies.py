"""Remedies of impossible cells: each is a change of the problem that can be applied, with the forecast after it.

The theorems cannot be got around. Where a record changes a number arbitrarily, every database is within one record of
two whose sets of optima are disjoint (let the number go to either infinity), so no test of stability and no smooth
sensitivity helps. What can be weakened is the promise (how far a record moves the number), the part that is protected,
or what is asked of the answer. Nothing here reads a private value: twins share it in the vault (``Private.twin``), and
forecasts are plans, which see public facts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.errors import DPModelError, SpecificationError
from dpmodel.forecast import Forecast, Violation
from dpmodel.marks.private import Private
from dpmodel.requests import AllBut
from dpmodel.text import number, plain

if TYPE_CHECKING:
    from dpmodel.programs.classifier import Cell
    from dpmodel.programs.model import Program

_LOG = logging.getLogger("dpmodel")

# The change at which an answer drowns is found to a twentieth; where nothing is said, a smaller one is tried.
_CLOSE, _FACTOR, _TRIES = 1.05, 30.0, 5
# Seconds that a forecast may take for a printed error to look for that change, which takes a few of them.
_PATIENCE = 1.0

# What to do, by name. {it}: the parameter; {whose}: whose data are public then; {setting}: how far, large or many.
_STATEMENTS = {
    "declared-change": "declare how far one record moves {it}, which has to be true of your data: {setting}",
    "bounds": "declare how large the values of {it} can be, which are clipped to that: {setting}",
    "public": "make {it} a cvxpy.Parameter, if all that it tells of {whose} may be public; you give its value then",
    "leave-out": "let one record own one constraint, and accept that a few are violated (HRRU14, Theorems 11 and 12): "
    "{setting}",
    "worst-case": 'take feasibility="strict" with declared bounds: the best point for the worst values that they allow '
    "reads no data and costs no privacy: {setting}",
}
_JOINT = (
    "where every record has variables of its own, hand each its own part of the answer alone: dpm.Shares and "
    'release="joint"'
)
# By part, in the order in which they are offered, after joint privacy (``solve.joint_remedy``).
_OFFERED = {
    "objective": ("declared-change", "bounds", "public"),
    "scalar": ("worst-case", "leave-out", "declared-change", "bounds", "public"),
    "row": ("declared-change", "bounds", "public"),
    "column": ("declared-change", "bounds", "public"),
    "matrix": ("declared-change", "bounds", "public"),
}


def statements(part: str) -> tuple[str, ...]:
    """What would make a program with arbitrary changes in ``part`` solvable, in words, in order.
    Errors: SpecificationError, for an unknown part."""
    if part not in _OFFERED:
        raise SpecificationError(f"unknown part {part!r}", remedy=f"one of {', '.join(_OFFERED)}")
    settings = {"declared-change": "row_l1=1" if part == "column" else "linf=1", "leave-out": "dpm.AllBut(rows=...)"}
    return (
        *([_JOINT] if part != "row" else []),
        *(
            _STATEMENTS[name].format(it="it", whose="its records", setting=settings.get(name, "bounds=(lo, hi)"))
            for name in _OFFERED[part]
        ),
    )


@dataclass(frozen=True, eq=False)
class Remedy:
    """A change that makes an impossible problem solvable. Public facts only.

    ``name``, ``statement`` : what it is, in a word and in a sentence. ``settings`` : what ``apply`` takes, with what it
    takes by itself: examples, of which you know better ones. ``request`` : what to plan and solve the changed problem
    with: the refused request, and what the remedy itself needs.
    """

    name: str
    statement: str
    settings: Mapping[str, Any]
    request: Mapping[str, Any]
    _problem: Any = field(repr=False)
    _parameter: str = field(repr=False)

    def apply(self, problem: Any = None, **settings: Any) -> Any:
        """A new ``dpm.Problem``: ``problem`` (the refused one, if none is given) with this change. Its variables are
        the same objects; its private parameters are twins, which hold the values of the old ones unless made public.

        Raises
        ------
        SpecificationError
            For unknown settings, wrong ones, and problems without a private parameter of this name.
        """
        return self._changed(self._problem if problem is None else problem, settings)

    def plan(self, **settings: Any) -> Any:
        """The plan of the changed problem for ``request``: the forecast as a function of the settings. Spends nothing,
        and is without the private values.

        Raises
        ------
        DPModelError
            As ``apply`` and ``Problem.plan``; another impossible cell that stands in the way has remedies of its own.
        """
        return self._changed(self._problem, settings, sealed=False).plan(progress=False, **self.request)

    def _changed(self, problem: Any, settings: Mapping[str, Any], sealed: bool = True) -> Any:
        for name in settings:
            if name not in self.settings:
                known = ", ".join(f"{key}=" for key in self.settings)
                raise SpecificationError(
                    f"{self.name}: {name}=", why="no setting of this remedy", remedy=known or "apply() without settings"
                )
        found = [p for p in problem.parameters() if _named(p, self._parameter)]
        if not found:
            raise SpecificationError(
                f"{self.name}: no private parameter {self._parameter!r} in this problem",
                why="the remedy is about that parameter",
                remedy="the problem that was refused, or a copy of it",
            )
        change, asked = _CHANGES[self.name], {**self.settings, **settings}
        one = cp.Variable(name="one")
        swap = {id(each): change(each, asked, sealed, one) for each in found}
        objective = problem.objective.tree_copy(id_objects=swap)
        # A copy of a constraint has no label.
        constraints = [each.tree_copy(id_objects=swap).set_label(each.label) for each in problem.constraints]
        more = [(one == 1).set_label("one")] if self.name == "leave-out" else []
        return problem.copy([objective, [*constraints, *more]])

    @cached_property
    def forecast(self) -> Forecast | None:
        """Of the changed problem, with the settings as they stand here; None where there is none: nothing private is
        left, or another parameter stands in the way. Computed when it is first looked at."""
        return self._forecast()

    @cached_property
    def drowns(self) -> float:
        """The declared change beyond which the error is as large as what it is about can be, to a tenth: the objective
        or the left sides of private rows over the public set, at the public level (``Private(typical=)``).

        inf where no public level tells, 0 if it is so for every change that was tried, nan for a remedy without a
        declared change. Errors are proportional to the change while the best mechanism stays: a few forecasts."""
        if self.name != "declared-change":
            return math.nan
        ((norm, change),) = self.settings.items()
        for _ in range(_TRIES):
            share = self._share(**{norm: change})
            if share == 0:
                return math.inf
            if 1 / _CLOSE <= share <= _CLOSE:
                return float(change)
            change /= share if share < math.inf else _FACTOR
        return 0.0 if share == math.inf else float(change)

    def _share(self, **settings: Any) -> float:
        """The error over what it can be; inf where nothing is said."""
        forecast = self._forecast(**settings)
        if forecast is None or forecast.vacuous or not isinstance(forecast.error, Violation):
            return math.inf
        error, (span, width) = forecast.error, self._ranges
        violated = error.mean_proved if math.isnan(error.expected) else error.expected
        return max(0.0 if math.isnan(error.objective) else error.objective / span, violated / width)

    @cached_property
    def _ranges(self) -> tuple[float, float]:
        return _ranges(self.plan()._forecaster.model)

    def _forecast(self, **settings: Any) -> Forecast | None:
        try:
            forecast: Forecast | None = self.plan(**settings).chosen.forecast
        except (DPModelError, ArithmeticError) as error:
            _LOG.debug("no forecast of a remedy: %s", type(error).__name__)
            return None
        return forecast

    @cached_property
    def outlook(self) -> str:
        """The forecast in words, "" where there is none."""
        started = time.perf_counter()
        forecast = self.forecast
        if forecast is None:
            return ""
        columns = zip(forecast.error.columns, forecast.error.cells(forecast.proved), strict=True)
        told = ", ".join(f"{name} {value}" for name, value in columns if value != "-")
        average = forecast.error.expected if isinstance(forecast.error, Violation) else math.nan
        told += f", {number(average)} on average" if average > 0 else ""
        if not self.helps:
            return f"says nothing here ({told})"
        if self.name != "declared-change" or time.perf_counter() - started > _PATIENCE:
            return told
        if self.drowns == math.inf:
            guessed = any(_named(p, self._parameter) and p.typical is not None for p in self._problem.parameters())
            return told if guessed else f"{told}; Private(typical=), a public guess, tells where the answer drowns"
        ((norm, _),) = self.settings.items()
        return f"{told}, beyond {norm}={number(float(f'{self.drowns:.2g}'))} the answer drowns"

    @property
    def helps(self) -> bool:
        """Whether the forecast says something."""
        return self.forecast is not None and (not self.forecast.vacuous or self.name == "worst-case")

    def __str__(self) -> str:
        return f"{self.statement} -> {self.outlook}" if self.outlook else self.statement

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the forecast with it."""
        forecast = self.forecast
        out = {
            "name": self.name,
            "statement": self.statement,
            "settings": dict(self.settings),
            "forecast": None if forecast is None else forecast.to_dict(),
            "drowns": self.drowns,
            "outlook": self.outlook,
        }
        return plain(out)  # type: ignore[no-any-return]


def remedies(problem: Any, cells: Sequence[Cell], request: Mapping[str, Any]) -> tuple[Remedy, ...]:
    """The remedies of ``cells[0]``, an impossible one, that apply to ``problem``, in order.

    ``cells`` : all that the same parameter is in. ``request`` : what was asked for, as arguments of ``plan``.
    """
    first = cells[0]
    private = next((p for p in problem.parameters() if _named(p, first.parameter)), None)
    if private is None:
        return ()
    low, high = float(private.entry_range[0].min()), float(private.entry_range[1].max())
    open_ends = math.isinf(low) and math.isinf(high)
    # Where one end is declared, the other stands beside it, or at twice the public level.
    far = 1.0 if private.typical is None else max(2 * float(np.abs(private.typical).max()), 1.0)
    bounds = (low, max(low + 1, far)) if math.isfinite(low) else (min(high - 1, -far), high)
    bounds = (0.0, far) if open_ends else bounds
    norm = "row_l1" if first.part == "column" and private.ndim == 2 else "linf"
    size, only = private.size, {cell.part for cell in cells} == {first.part}
    settings: dict[str, dict[str, Any]] = {"declared-change": {norm: 1.0}}
    settings |= {name: {"bounds": bounds} for name in ("bounds", "worst-case")}
    besides: dict[str, dict[str, Any]] = {
        "leave-out": {"feasibility": AllBut(rows=math.ceil(size / 10))},
        "worst-case": {"feasibility": "strict", "mechanism": "public-only"},
    }
    applies = {"leave-out": only and first.spare, "worst-case": not first.equality}
    names = [name for name in _OFFERED[first.part] if applies.get(name, True)]
    if open_ends:
        names.sort(key=lambda name: name == "worst-case")  # nothing is declared that it could stand on
    said = {name: _settings(settings.get(name, {})) for name in names}
    said["leave-out"] = f"feasibility=dpm.AllBut(rows={math.ceil(size / 10)})"
    whose = private.records.name or "its records"
    return tuple(
        Remedy(
            name,
            _STATEMENTS[name].format(it=first.parameter, whose=whose, setting=said[name]),
            settings.get(name, {}),
            {**request, **besides.get(name, {})},
            problem,
            first.parameter,
        )
        for name in names
    )


def _named(parameter: Any, name: str) -> bool:
    return isinstance(parameter, Private) and str(parameter.name()) == name


def _settings(settings: Mapping[str, Any]) -> str:
    said = {n: f"({', '.join(map(number, v))})" if isinstance(v, tuple) else number(v) for n, v in settings.items()}
    return ", ".join(f"{name}={value}" for name, value in said.items())


def _ranges(model: Program) -> tuple[float, float]:
    """How far the objective, and the left side of a private row, can vary over the box around the public set, at the
    public level; no more than right-hand sides are there. inf where no level tells."""
    from dpmodel.programs.public import typical_numbers
    from dpmodel.programs.rows import plain_linear, public_polyhedron

    form, level = model.form, typical_numbers(model)
    bottom, top = (public_polyhedron(model) if plain_linear(model) is None else model.public).box
    rows, A, costs, sides = form.private_rows, form.A0, form.c0, np.full(form.b0.size, math.inf)
    if level is not None:
        costs, sides = costs + level[0], np.abs(form.b0 + level[1])
        if level[2] is not None:
            A = A + sp.csr_array((level[2], form.matrix_positions()), shape=A.shape)
    span = width = math.inf
    if level is not None or not form.objective.nnz:
        costs = np.abs(costs)
        span = float(costs[costs > 0] @ (top - bottom)[costs > 0])
    if rows.any() and (level is not None or not form.matrix.nnz):
        A = abs(A[rows])
        A.eliminate_zeros()  # zero times infinity
        width = float((A @ (top - bottom)).max())
        # A right-hand side that is known to be smaller is lost before.
        width = min(width, float(sides[rows].max()) or math.inf)
    return span, width


# ------------------------------------------------------------------- what stands in a parameter's place, by name
Settings = Mapping[str, Any]


def _declared(private: Private, settings: Settings, sealed: bool, one: Any) -> Any:
    return private.twin(sealed=sealed, **settings)


def _public(private: Private, settings: Settings, sealed: bool, one: Any) -> Any:
    """Without a value: making it public is its owner's act."""
    attributes = {name: value for name, value in private.attributes.items() if value is not None and value is not False}
    return cp.Parameter(private.shape, name=private.name(), **attributes)


def _leave_out(private: Private, settings: Settings, sealed: bool, one: Any) -> Any:
    """A right-hand side b_i is the coefficient of a variable that is 1: then row i of A and its right-hand side are one
    record's, which is the setting of Theorems 11 and 12."""
    return cp.multiply(private.twin(sealed=sealed), one)


_CHANGES: dict[str, Callable[[Private, Settings, bool, Any], Any]] = {
    "declared-change": _declared,
    "bounds": _declared,
    "worst-case": _declared,
    "public": _public,
    "leave-out": _leave_out,
}
