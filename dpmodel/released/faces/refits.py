"""Fits of numbers drawn again, by which errors are simulated and the form of a fit is chosen. They cost no privacy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError, SpecificationError, UnsupportedModelError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy import noise_source, public_generator
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.least_squares_tree import LeastSquaresTree
from dpmodel.released.likelihood import checked_setting, name_of
from dpmodel.released.model import FREE, Postprocessing, Solver
from dpmodel.solve.registry import KINDS, AnyMechanism, named

# What models keep that does not depend on the published numbers.
_OF_THE_CONSTRAINTS = ("consistent", "origins")
# Fits that choose a form: so many, of so many numbers together, where solvers have no more than so many coefficients.
_COUNT, _NUMBERS, _COEFFICIENTS = 5, 1_000_000, 20_000


def solver_of(model: Postprocessing) -> Solver:
    """The first of the decision table that serves."""
    solvers = [each for each in KINDS[Postprocessing].compared(False) if isinstance(each, Solver)]
    solvers.sort(key=lambda each: each.place(model))
    return next(each for each in solvers if each.eligible(model, FREE).eligible)


def solution(model: Postprocessing, mechanism: str | AnyMechanism = "auto") -> Floats | None:
    """(n,) the solution without plan and release; None where there is none."""
    solver: AnyMechanism = solver_of(model) if mechanism == "auto" else named(mechanism, Postprocessing)
    x = solver.run(model, FREE, noise_source(None)).x
    return None if x is None else np.asarray(x, dtype=np.float64)


def form_of(model: Postprocessing) -> LikelihoodForm:
    """The model in arrays.
    Errors: UnsupportedModelError, where it has none."""
    if model.form is None:
        raise UnsupportedModelError(
            "a problem with terms outside the likelihood form",
            why="its refits would need the problem itself with other numbers in it",
            remedy="linear constraints and neg_log_likelihood terms only",
        )
    return model.form


def solution_of(model: Postprocessing) -> Floats:
    """(n,) the values of the user's variables, in the order of the form."""
    x = np.zeros(form_of(model).size)
    for variable, where in model.columns:
        x[where] = np.ravel(variable.value, order="F")
    return x


def refits(model: Postprocessing, x: Floats, count: int, seed: int, mechanism: str | AnyMechanism) -> Iterator[Floats]:
    """``count`` solutions (n,) of the model with new noise around x.
    Errors: UnsupportedModelError, for a model without a form, and where published numbers enter in another way than by
    their likelihood."""
    form = form_of(model)
    generator = public_generator(seed)
    truth = form.value.copy()  # penalties keep what they pull towards
    for rows in measured_rows(model):
        truth[rows] = form.matrix[rows] @ x
    if is_separable(form):
        # One measurement per entry and bounds alone: the loss falls up to the measured value and rises from there.
        column, sign = form.matrix.indices, form.matrix.data
        for _ in range(count):
            again = np.empty(form.size)
            again[column] = sign * (truth + noise_of(model, generator))
            yield np.clip(again, form.lower, form.upper)
        return
    tree = model.tree_problem()
    # What is kept with a model speaks of its tree in the order of the form's rows, if that is the tree's own.
    same = tree is None or np.array_equal(tree.value, form.value)
    kept: dict[Any, Any] = {k: v for k, v in model._memo.items() if k in _OF_THE_CONSTRAINTS}
    for _ in range(count):
        value = truth + noise_of(model, generator)
        memo = kept | {"tree problem": None if tree is None else replace(tree, value=value)} if same else {}
        fresh = replace(model, form=replace(form, value=value), problem=None, _memo=memo)
        fitted = solution(fresh, mechanism)
        assert fitted is not None
        yield fitted


def measured_rows(model: Postprocessing) -> tuple[slice, ...]:
    """The rows of each measurement, its numbers column by column.
    Errors: UnsupportedModelError, where published numbers enter in another way than once each in a residual: their
    noise has no rows."""
    for noisy, rows in zip(model.measurements, model.rows, strict=True):
        if rows.stop - rows.start != noisy.size:
            raise UnsupportedModelError(
                f"{name_of(noisy)} enters in another way than by its likelihood",
                why="in constraints, in part or rearranged, what its noise does to the fit cannot be simulated",
                remedy="neg_log_likelihood(x, noisy); a part of the numbers is noisy[...], a Noisy of its own",
            )
    return model.rows


def noise_of(model: Postprocessing, generator: Any) -> Floats:
    """(rows of the form,) one draw of the noise of every measurement; nothing where no published numbers stand."""
    out = np.zeros(form_of(model).value.size)
    for noisy, rows in zip(model.measurements, measured_rows(model), strict=True):
        out[rows] = noisy.noise.sample(noisy.shape, generator).ravel(order="F")
    return out


def is_separable(form: LikelihoodForm) -> bool:
    """Whether every entry was measured once and bounds alone restrict it."""
    M = form.matrix
    return (
        form.equality.shape[0] == form.inequality.shape[0] == 0
        and M.shape[0] == M.shape[1] == M.nnz
        and bool((np.diff(M.indptr) == 1).all())
        and bool((np.abs(M.data) == 1).all())
        and np.unique(M.indices).size == form.size
        and not form.linear.any()
        and not form.integer.any()
        and bool((form.absolute + form.square > 0).all())
    )


# ------------------------------------------------------------------ the form of a fit


AUTO = "auto"  # the form of a fit that nobody named: see ``settled``


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
    if alpha == 1 and not is_separable(form_of(first)) and first.tree_problem() is not None:
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
    if not _affordable(first):
        return second, squares
    try:
        x = solution(second)
    except InfeasibleError:  # solve says so
        return second, squares
    if x is None:
        return first, likelihood
    found = [
        (float(np.mean(list(errors.values()))), model, setting, errors)
        for model, setting in ((second, squares), (first, likelihood))
        for errors in [ratios(model, x)]
    ]
    _, model, setting, errors = min(found, key=lambda each: each[0])
    model.cached("ratios", lambda: errors)
    return model, setting


def worse_than_published(model: Postprocessing, setting: Setting) -> tuple[str, ...]:
    """A line per level (or marginal) that the fit is forecast to leave with a larger error than it was published with;
    nothing where no simulation is affordable."""

    def simulated() -> Mapping[str, float]:
        if setting.top_down or is_separable(form_of(model)) or not _affordable(model):
            return {}
        x = solution(model)
        return {} if x is None else ratios(model, x)

    found = model.cached("ratios", simulated)
    return tuple(
        f"{name}: the fit is forecast to have {ratio:.2g} times the error of the published numbers"
        for name, ratio in found.items()
        if ratio > 1.5  # five fits tell no more
    )


def ratios(model: Postprocessing, x: Floats) -> dict[str, float]:
    """{level or marginal: mean absolute error of simulated fits over that of the numbers as published}."""
    form = form_of(model)
    truth = form.matrix @ x
    groups = _groups(model)
    fitted, noise = np.zeros(truth.size), np.zeros(truth.size)
    same = public_generator(0)  # the draws of the refits: both errors are those of the same numbers
    for again in refits(model, x, _COUNT, 0, "auto"):
        fitted += np.abs(form.matrix @ again - truth)
        noise += np.abs(noise_of(model, same))
    return {name: float(fitted[rows].sum()) / max(float(noise[rows].sum()), 1e-300) for name, rows in groups.items()}


def _groups(model: Postprocessing) -> dict[str, Integers]:
    """Rows by measurement, and on trees by level."""
    tree = model.tree_problem()
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


def _affordable(model: Postprocessing) -> bool:
    """Whether a few simulated fits take a second or so: of closed forms by their size, else of few coefficients."""
    form = form_of(model)
    closed = solver_of(model).place(model) <= 4
    return _COUNT * form.size <= _NUMBERS and (closed or form.coefficients <= _COEFFICIENTS)
