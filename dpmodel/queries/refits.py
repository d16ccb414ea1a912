"""Simulated fits: the fit as the truth, noise from the declared distributions, everything fitted again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.likelihood.blocks import name_of
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.compile.likelihood.tree_of import tree_problem
from dpmodel.errors import UnsupportedModelError
from dpmodel.numerics.trees.tree import TreeProblem
from dpmodel.plan.registry import AnyMechanism
from dpmodel.privacy import public_generator
from dpmodel.queries.published import solve_published

# What models keep that does not depend on the published numbers.
_OF_THE_CONSTRAINTS = ("exact tree plan", "consistent", "origins")


def form_of(model: Postprocessing) -> LikelihoodForm:
    """The model in arrays.

    Raises
    ------
    UnsupportedModelError
        Where it has none.
    """
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

    Raises
    ------
    UnsupportedModelError
        For a model without a form, and where published numbers enter in another way than by their likelihood.
    """
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
    known = tree_problem(model)
    same = known is not None and np.array_equal(known.value, form.value)
    for _ in range(count):
        value = truth + noise_of(model, generator)
        fresh = with_values(model, value)
        if known is not None and not same:
            fresh._memo.clear()  # recognised in another order: everything is looked for again
        else:
            _tell(fresh, None if known is None else replace(known, value=value))
        outcome = solve_published(fresh, mechanism).outcome
        assert outcome.x is not None
        yield np.asarray(outcome.x, dtype=np.float64)


def with_values(model: Postprocessing, value: Floats) -> Postprocessing:
    """The model with other published numbers; what it keeps of constraints and weights alone is kept."""
    form = form_of(model)
    kept: dict[Hashable, Any] = {
        key: found
        for key, found in model._memo.items()
        if (key[0] if isinstance(key, tuple) else key) in _OF_THE_CONSTRAINTS
    }
    return replace(model, form=replace(form, value=value), problem=None, _memo=kept)


def measured_rows(model: Postprocessing) -> tuple[slice, ...]:
    """The rows of each measurement, its numbers column by column.

    Raises
    ------
    UnsupportedModelError
        Where published numbers enter in another way than once each in a residual: their noise has no rows.
    """
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


def _tell(model: Postprocessing, problem: TreeProblem | None) -> None:
    """What the model is as a tree, so that nobody looks for one."""
    model.cached("tree problem", lambda: problem)


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
