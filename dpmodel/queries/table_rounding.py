"""Whole tables out of fitted ones, with the known margins kept."""

from __future__ import annotations

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.errors import DPModelError
from dpmodel.mechanisms.postprocess.rounding.mechanism import How, round_form, round_total
from dpmodel.text import number


def rounded_table(model: Postprocessing, x: Floats, round: str, seed: int) -> Floats:
    """(n,) integers near x. Without other constraints, the total of a table goes to its floor or ceiling.

    "controlled" and "nearest" are the same here: the nearest whole point that keeps every constraint, or one near it
    where the search for it ends before (``nearest_integer``).

    Raises
    ------
    SpecificationError
        Where no unbiased rounding keeps all constraints.
    InfeasibleError
        Where no integers do.
    DPModelError
        Where none were found before the search ended.
    """
    form = model.form
    assert form is not None
    how: How = "unbiased" if round == "unbiased" else "controlled"
    alone = form.equality.shape[0] == form.inequality.shape[0] == 0
    edges = np.concatenate([form.lower, form.upper])
    try:
        if alone and model.shape is not None and (edges[np.isfinite(edges)] % 1 == 0).all():
            return round_total(x, how=how, seed=seed)
        return round_form(form, x, how=how, seed=seed)
    except DPModelError as error:
        raise type(error)(error.what, why=error.why, remedy=error.remedy.replace("how=", "round=")) from None


def rounding_words(model: Postprocessing, round: str) -> str:
    """How rounding a table to integers is done and about how long it takes, for its plan."""
    form = model.form
    assert form is not None
    rows = form.equality.shape[0] + form.inequality.shape[0]
    if round == "unbiased" or not rows:
        return f"rounding ({round}): one pass over {form.size} cells, about {number(_second(1e-6 * form.size))} s"
    entries = form.equality.nnz + form.inequality.nnz
    seconds = number(_second(0.05 + 2e-5 * entries + 1e-9 * entries * rows))
    return (
        f"rounding ({round}): a linear program of {form.size} cells and {rows} sums, about {seconds} s, and a "
        "search of a bounded number of nodes where its vertex is not whole, which can take many times as long; "
        "more than two crossing margins may be refused: then no rounding, or two of them"
    )


def _second(seconds: float) -> float:
    return float(f"{max(seconds, 0.01):.1g}")
