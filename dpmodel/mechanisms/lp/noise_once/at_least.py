"""What noise once cannot do better than where the private numbers are coefficients of A that are all alike.

Then one number stands for all of them: what the forecast finds by passes over every entry is had without one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import chdtri, ndtri

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.footprint import AlikeView, record_blocks, sensitivity_under
from dpmodel.contract import Options
from dpmodel.forecast import Bound, Violation
from dpmodel.marks.layout import all_equal
from dpmodel.mechanisms.lp.noise_once.design import Kind, private_columns, x_bound
from dpmodel.mechanisms.lp.noise_once.measurement import ROUNDING
from dpmodel.privacy import Gaussian, Laplace, gaussian_mu
from dpmodel.programs.public import declared_range, largest_violation

# With fewer private entries a forecast takes less than the bounds of others, and tells what they have to beat.
FEW = 5_000
# Bounds are rounded another way than forecasts.
_ROUNDED = 1 - 1e-9
# Plans put what predicts nothing just below 1: no bound lies between that and 1.
_UNPREDICTED = 0.99


def at_least(model: PrivateLP, options: Options, kind: Kind) -> Iterator[Bound]:
    """One bound, or none where entries are few or differ.

    Every row that has a private entry of column j gives way by ``reach min(|x_j|, ||x||_1)`` at least, and for the
    largest of these columns there is such a row; or, where ``design._row_reach`` is better, by what it computes for
    the row with most entries.
    """
    form, affine = model.form, model.affine
    if form.matrix.nnz < FEW or model.private_parts() != ("matrix",):
        return
    if options.feasibility not in ("relaxed", "centred"):
        return
    if len(affine.private_blocks) != 1 or not affine.is_linear():
        return
    (group,) = record_blocks(affine)
    low, high = declared_range(model, "matrix")
    if AlikeView.of(group.blocks[0], form.matrix) is None or not (all_equal(low) and all_equal(high)):
        return
    moved = sensitivity_under(group, form.matrix, affine, matrix=True)
    if not 0 < moved.l1 < math.inf:
        return
    grow = (1 + ROUNDING) * _ROUNDED
    if kind == "gaussian":
        noise: Gaussian | Laplace = Gaussian(moved.l2 * grow / gaussian_mu(options.epsilon, options.delta))
    else:
        noise = Laplace(moved.l1 * grow / options.epsilon)
    norm, magnitudes = x_bound(model), model.public.magnitudes()[private_columns(model)]
    size = np.minimum(magnitudes, norm)
    way = for_all = noise.max_abs_quantile(form.matrix.nnz, options.beta) * float(size.max())
    both = 2 * way
    if kind == "gaussian":
        counts = model.form.entries_of_rows
        tail = options.beta / (2 * int(np.count_nonzero(counts)))
        unit = noise.standard_deviation * min(float(np.linalg.norm(size)), norm)
        for_all = unit * math.sqrt(chdtri(int(counts.max()), tail))
        both = min(both, for_all + min(for_all, unit * -float(ndtri(tail / 2))))
    violation = both if options.feasibility == "relaxed" else min(way, for_all)
    span, against = float(high[0] - low[0]), 0.0
    if math.isfinite(span) and span > 0 and np.isfinite(magnitudes).all() and magnitudes.any():
        against = noise.standard_deviation * math.sqrt(12) / span * _ROUNDED
        against = min(against, _UNPREDICTED) if against < 1 else against
    # On average a row is missed by half of the noise's mean size at the largest x (``treatment.missed_on_average``).
    deviation = noise.standard_deviation * np.sqrt(
        form.sums_by_column(np.minimum(model.public.magnitudes(), norm) ** 2)
    )
    average = deviation * math.sqrt(2 / math.pi) * np.where(affine.equalities(), 1.0, 0.5)
    expected = float(average[form.private_rows].mean())
    error = Violation(
        violation=min(violation, largest_violation(model)),
        against_public=against,
        expected=expected,
        centred=options.feasibility == "centred",
    )
    yield Bound(error, model.split_rows == 0)
