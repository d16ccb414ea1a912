"""Closed-form solutions: entrywise measurements under boxes, known totals, monotone chains or table margins."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.compile.likelihood.structure import Kind, Margins, Separable, Structure, Sums, structure
from dpmodel.compile.likelihood.structure_chains import Chains
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import InfeasibleError
from dpmodel.forecast import Forecast
from dpmodel.mechanisms.postprocess.free_of_charge import free_of_charge
from dpmodel.mechanisms.postprocess.projection.chain import project_chains
from dpmodel.mechanisms.postprocess.projection.sums import loss, project_sums, start
from dpmodel.numerics.projections.margins import MarginProjector
from dpmodel.privacy import NoiseSource

_WORDS: dict[Kind, str] = {
    "box": "one entry at a time",
    "sums": "known totals, by the breakpoints of their multipliers",
    "chains": "monotone regression",
    "margins": "margins replaced effect by effect",
}
# Seconds per n log2 n (box, sums), per chain and measurement (chains), per cell and axis (margins), on one core.
_SECONDS: dict[Kind, float] = {"box": 2e-8, "sums": 1e-7, "chains": 1e-8, "margins": 5e-9}
_HEAP, _CHAIN, _CALL = 1e-5, 6e-5, 5e-4


@dataclass(frozen=True)
class Projection(Mechanism[Postprocessing]):
    """Solve in closed form where every measurement is of one entry and the constraints have a simple structure.

    Structures (``structure.py``), always with bounds on single entries: nothing else; sums of disjoint sets of
    entries, = or <=, with any coefficients (simplex, known totals); chains x_1 <= x_2 <= ..., with gaps, whose bounds
    are the same all along or pin entries (cumulative histograms); whole margins of a table, for least
    squares with equal weights and no bounds. Losses may be absolute, square or both, several per entry, or none.

    Source
        Textbook: weighted medians and means; the breakpoint method for the continuous knapsack; pool adjacent violators
        and its dynamic program; orthogonal effects of a table. LWK15, section 4.6 for the square loss.
    Privacy
        Reads published numbers only: post-processing, costs nothing.
    Utility
        The exact optimum, to rounding. If the truth meets the constraints, the least-squares solution is
        never further from it in L2 than the noisy data were (projections on convex sets shrink distances, in the
        norm of the weights). The solution for absolute losses x^ has ``|x^ - x|_1 <= 2 |x~ - x|_1`` only:
        |x^ - x| <= |x^ - x~| + |x~ - x|, and x^ is no further from x~ than x is. Non-negativity biases totals upwards:
        negative noise is cut and positive noise is kept; where the total is known, ask for it as a constraint.
        Ties: see ``sums.start`` and ``chain.project_chains``.
    Cost
        Vectorised, O(r log r) for r measurements and entries; chains with absolute losses run a heap in Python.
    Errors
        InfeasibleError where the constraints contradict, with the totals that the bounds can reach.
    """

    serves: ClassVar[Serves] = Serves(Postprocessing)
    name: str = "projection"
    source: str = "closed forms (LWK15, section 4.6; weighted medians; pool adjacent violators)"

    def eligible(self, model: Postprocessing, options: Options) -> Verdict:
        found = structure(model)
        if found.infeasible is not None:
            raise found.infeasible
        if found.kind is None:
            return Verdict(False, found.reason)
        _projector(model)
        return YES

    def forecast(self, model: Postprocessing, options: Options) -> Forecast:
        found = structure(model)
        if found.kind is None or found.separable is None:
            return free_of_charge(f"not eligible: {found.reason}", seconds=math.inf, alpha=math.inf, work="none")
        return free_of_charge(
            "the optimum, exactly (to rounding)",
            seconds=_seconds(found),
            alpha=0.0,
            work=_WORDS[found.kind],
        )

    def run(
        self, model: Postprocessing, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        begin = time.perf_counter()
        found = structure(model)
        if found.infeasible is not None:
            return Outcome("infeasible", None, None, None, notes=(str(found.infeasible),))
        progress(_WORDS[found.kind] if found.kind else "no structure", 0.0)
        try:
            projector = _projector(model)
            whole = None if model.form is None else np.flatnonzero(model.form.integer)
            x = solve(found, whole) if projector is None else _onto_margins(found, projector)
        except InfeasibleError as error:
            return Outcome("infeasible", None, None, None, notes=(str(error),))
        seconds = time.perf_counter() - begin
        if not np.isfinite(x).all():
            return Outcome("unbounded", None, None, None, seconds)
        return Outcome("optimal", x, None, model.form.objective(x) if model.form else None, seconds)


def solve(found: Structure, whole: Integers | None = None) -> Floats:
    """The solution of a recognised form. ``whole`` : variables that must be integers (boxes only)."""
    single, lower, upper = found.separable, found.lower, found.upper
    assert found.kind is not None and single is not None and lower is not None and upper is not None, found.reason
    rest = found.coupling
    if isinstance(rest, Sums):
        return project_sums(single, rest, lower, upper)
    if isinstance(rest, Chains):
        return project_chains(single, rest, start(single, lower, upper))
    if isinstance(rest, Margins):
        return _onto_margins(found, MarginProjector(rest.shape, rest.axes, rest.targets))
    x = start(single, lower, upper)
    return x if whole is None or not whole.size else _whole(single, x, lower, upper, whole)


def _projector(model: Postprocessing) -> MarginProjector | None:
    """That of a table with margins, kept with the model. InfeasibleError where the margins contradict."""
    rest = structure(model).coupling
    if not isinstance(rest, Margins):
        return None
    return model.cached("margin projector", lambda: MarginProjector(rest.shape, rest.axes, rest.targets))


def _onto_margins(found: Structure, projector: MarginProjector) -> Floats:
    assert found.separable is not None
    return projector.project(found.separable.centre)


def _whole(single: Separable, x: Floats, lower: Floats, upper: Floats, whole: Integers) -> Floats:
    """Some variables to integers: next to a minimiser of a convex function of one variable lies its best whole
    number. Ties go down."""
    down, up = x.copy(), x.copy()
    least, most = np.ceil(lower[whole] - 1e-9), np.floor(upper[whole] + 1e-9)
    if (least > most).any():
        j = int(whole[np.flatnonzero(least > most)[0]])
        raise InfeasibleError(f"entry {j} must be whole", why=f"there is none in [{lower[j]:.9g}, {upper[j]:.9g}]")
    down[whole] = np.clip(np.floor(x[whole]), least, most)
    up[whole] = np.clip(np.ceil(x[whole]), least, most)
    finite = np.isfinite(x)
    a, b = (loss(single, np.where(finite, point, 0.0)) for point in (down, up))
    return np.where(b < a, up, down)


def _seconds(found: Structure) -> float:
    """From sizes; constants measured on one core of a 2020s server."""
    single, rest = found.separable, found.coupling
    assert found.kind is not None and single is not None
    n = single.curvature.size
    size = (n + single.owner.size) * math.log2(n + single.owner.size + 2)
    if isinstance(rest, Chains):
        heaped = int(np.isin(single.owner, rest.order).sum())
        passes: int = 1 if (single.curvature > 0).all() else 2
        return _CALL + _SECONDS["chains"] * size + _CHAIN * rest.lower.size + _HEAP * (passes / 2) * heaped
    if isinstance(rest, Margins):
        return _CALL + _SECONDS["margins"] * n * len(rest.shape) + 1e-4 * len(rest.axes)
    return _CALL + _SECONDS[found.kind] * size


PROJECTION = Projection()
