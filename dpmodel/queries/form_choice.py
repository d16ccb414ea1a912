"""The fit of those who name no form, by published numbers alone, which is post-processing and costs no privacy."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.blocks import name_of
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.compile.likelihood.terms import checked_setting
from dpmodel.compile.likelihood.tree_of import tree_problem
from dpmodel.contract import Candidate
from dpmodel.errors import InfeasibleError, SpecificationError
from dpmodel.forecast import Seconds
from dpmodel.marks.noisy import Noisy
from dpmodel.mechanisms.postprocess.least_squares_tree.mechanism import LeastSquaresTree
from dpmodel.models.postprocessing import FREE, Published
from dpmodel.plan.planner import make_plan
from dpmodel.plan.registry import AnyMechanism
from dpmodel.privacy import public_generator
from dpmodel.queries.published import solve_published
from dpmodel.queries.refits import form_of, is_separable, measured_rows, noise_of, refits

# Simulated fits: at most so many, of so many numbers together, for about so many seconds by the solvers' forecasts.
# With fewer than the least nothing is simulated.
_MOST, _NUMBERS, _SECONDS, _LEAST = 5, 1_000_000, 0.5, 3
_SEED = 0
# A level is worse than published where its simulated error is larger by this factor: some fits tell no more.
_WORSE = 1.5

# The form of a fit that nobody named: see ``settled``.
AUTO = "auto"


@dataclass(frozen=True)
class Setting:
    """How the likelihood is spelled: ``alpha`` and ``form`` as in ``neg_log_likelihood``. Among several measurements,
    alpha concerns those with absolute errors only. ``top_down`` : squares on a tree, whose bounds are seen to level by
    level from the top where no solver is named."""

    alpha: float = 1.0
    form: str = "likelihood"
    top_down: bool = False

    def __post_init__(self) -> None:
        checked_setting(self.alpha, self.form)

    def alpha_for(self, noisy: Noisy) -> float:
        return 1.0 if np.any(noisy.noise.square) else float(self.alpha)

    def solver(self, named: str | AnyMechanism) -> str | AnyMechanism:
        """What solves: the one named, or that of the setting."""
        return LeastSquaresTree(top_down=True) if self.top_down and named == "auto" else named


Build = Callable[[Setting], Postprocessing]


def settled(build: Build, alpha: float, form: str) -> tuple[Postprocessing, Setting]:
    """The model of the form asked for, or of the one that is expected to be more accurate where none is.

    On trees least squares from the top down (``LeastSquaresTree``), whatever the noise: no level is expected to come
    out worse than it was published, which neither the likelihood nor least squares under x >= 0 promise. Elsewhere by a
    forecast: the least-squares fit of the published numbers is taken for the truth, noise is drawn from the declared
    distributions, and both forms are fitted to the same draws. The form with the smaller error is taken, each level (or
    measured marginal) counted relative to its error as published. Where the simulation would take too long it is least
    squares, whose error in the 2-norm weighted by the scales is never above that of the published numbers. The two are
    the same without Laplace noise, and for cells that were measured once each.
    """
    if form != AUTO:
        setting = Setting(alpha, form)
        return build(setting), setting
    likelihood, squares = Setting(alpha, "likelihood"), Setting(1.0, "least-squares")
    first = build(likelihood)
    if alpha == 1 and not is_separable(form_of(first)) and tree_problem(first) is not None:
        gaussian = not form_of(first).absolute.any()
        setting = Setting(1.0, "likelihood" if gaussian else "least-squares", top_down=True)
        with contextlib.suppress(SpecificationError):  # noise that is zero in practice has no weight
            return (first if gaussian else build(setting)), setting
    if alpha < 1 or not form_of(first).absolute.any() or is_separable(form_of(first)):
        return first, likelihood
    try:
        second = build(squares)
    except SpecificationError:  # noise that is zero in practice has no weight
        return first, likelihood
    count = _repetitions(first, second)
    if count < _LEAST:
        return second, squares
    try:
        x = _solution(second)
    except InfeasibleError:  # solve says so
        return second, squares
    if x is None:
        return first, likelihood
    errors = [ratios(model, x, count) for model in (first, second)]
    best = 0 if _mean(errors[0]) < _mean(errors[1]) else 1
    model, setting = ((first, likelihood), (second, squares))[best]
    model.cached("ratios", lambda: errors[best])
    return model, setting


def worse_than_published(model: Postprocessing, setting: Setting) -> tuple[str, ...]:
    """A line per level (or marginal) that the fit is forecast to leave with a larger error than it was published with;
    nothing where no simulation is affordable."""

    def simulated() -> Mapping[str, float]:
        count = 0 if setting.top_down else _repetitions(model)
        x = None if count < _LEAST or is_separable(form_of(model)) else _solution(model)
        return {} if x is None else ratios(model, x, count)

    found = model.cached("ratios", simulated)
    return tuple(
        f"{name}: the fit is forecast to have {ratio:.2g} times the error of the published numbers"
        for name, ratio in found.items()
        if ratio > _WORSE
    )


def ratios(model: Postprocessing, x: Floats, count: int) -> dict[str, float]:
    """{level or marginal: mean absolute error of simulated fits over that of the numbers as published}."""
    form = form_of(model)
    truth = form.matrix @ x
    groups = _groups(model)
    fitted, noise = np.zeros(truth.size), np.zeros(truth.size)
    same = public_generator(_SEED)  # the draws of the refits: both errors are those of the same numbers
    for again in refits(model, x, count, _SEED, _solver(model).mechanism):
        fitted += np.abs(form.matrix @ again - truth)
        noise += np.abs(noise_of(model, same))
    return {name: float(fitted[rows].sum()) / max(float(noise[rows].sum()), 1e-300) for name, rows in groups.items()}


def _groups(model: Postprocessing) -> dict[str, Integers]:
    """Rows by measurement, and on trees by level."""
    tree = tree_problem(model)
    found: dict[str, Integers] = {}
    for noisy, span in zip(model.measurements, measured_rows(model), strict=True):
        rows = np.arange(span.start, span.stop)
        if not rows.size:
            continue
        level = np.zeros(rows.size, dtype=np.int64)
        if tree is not None and np.array_equal(tree.value, form_of(model).value):
            level = np.searchsorted(tree.tree.bounds, tree.node[rows], side="right") - 1
        for each in np.unique(level).tolist():
            name = name_of(noisy) + (f", level {each}" if np.unique(level).size > 1 else "")
            found[name] = np.concatenate([found.get(name, np.zeros(0, dtype=np.int64)), rows[level == each]])
    return found


def _solver(model: Postprocessing) -> Candidate:
    return model.cached("solver", lambda: make_plan(Published(model), FREE).chosen)


def _solution(model: Postprocessing) -> Floats | None:
    x = solve_published(model, _solver(model).mechanism).outcome.x
    return None if x is None else np.asarray(x, dtype=np.float64)


def _repetitions(*models: Postprocessing) -> int:
    seconds, affordable = 0.0, _NUMBERS // max(form_of(models[0]).size, 1)
    if affordable < _LEAST:
        return 0
    for model in models:
        forecast = _solver(model).forecast
        assert forecast is not None and isinstance(forecast.error, Seconds)
        seconds += forecast.error.seconds
    return min(_MOST, affordable, math.floor(_SECONDS / max(seconds, 1e-9)))


def _mean(found: Mapping[str, float]) -> float:
    return float(np.mean(list(found.values())))
