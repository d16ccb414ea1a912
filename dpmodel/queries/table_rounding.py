"""Whole tables out of fitted ones, with the known margins kept."""

from __future__ import annotations

import numpy as np

from dpmodel.compile.affine_map import Floats
from dpmodel.compile.postprocessing import Postprocessing
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.postprocess.rounding import round_form, round_table


def rounded_table(model: Postprocessing, x: Floats, round: str, seed: int) -> Floats:
    """(n,) whole numbers near x. Without other constraints, the total of a table goes to its floor or ceiling.

    "controlled" and "nearest" are the same here: the nearest whole point that keeps every constraint.

    Raises
    ------
    SpecificationError
        Where no unbiased rounding keeps all constraints.
    """
    form = model.form
    assert form is not None
    how = "unbiased" if round == "unbiased" else "controlled"
    alone = form.equality.shape[0] == form.inequality.shape[0] == 0
    edges = np.concatenate([form.lower, form.upper])
    try:
        if alone and model.shape is not None and (edges[np.isfinite(edges)] % 1 == 0).all():
            return round_table(x, [()], how=how, seed=seed)  # type: ignore[arg-type]
        return round_form(form, x, how=how, seed=seed)  # type: ignore[arg-type]
    except SpecificationError as error:
        raise SpecificationError(error.what, why=error.why, remedy=error.remedy.replace("how=", "round=")) from None
