"""How the budget is split over the noised parts of a problem, and what accuracy follows: public facts only.

One record belongs to one ``Records`` and moves part p by at most ``D_p`` (in the norm of the noise). With share
w_p, part p gets Laplace noise of scale ``D_p / (w_p epsilon)`` (costing a record ``w_p epsilon D_pg / D_p`` when its
Records g moves p by D_pg) or Gaussian noise of standard deviation ``D_p / (w_p mu)`` with the squares adding up. Basic
composition (pure epsilon) and exact Gaussian composition (mu adds in squares) bound the total per Records;
the shares are then scaled up until the largest total is the whole budget. So parts computed from
different people each get all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri, ndtri

from dpmodel._types import Floats
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.contract import Options
from dpmodel.marks.layout import sum_by
from dpmodel.mechanisms.lp.noise_once.margins import margin
from dpmodel.mechanisms.lp.noise_once.measurement import Measurement, best_measurement
from dpmodel.numerics.public_facts import cached
from dpmodel.privacy import (
    Gaussian,
    Laplace,
    TruncatedLaplace,
    gaussian_mu,
    truncated_laplace_half_width,
)

Kind = Literal["laplace", "gaussian", "truncated"]
Distribution = Laplace | Gaussian | TruncatedLaplace


@dataclass(frozen=True)
class NoisyPart:
    """One part's measurement, its noise distribution (None if no record can move it) and its share of the budget.

    ``beta`` : probability with which some entry may miss ``reach`` (h,), the public bound on its noise.
    ``clip`` : whether released numbers are moved into their public range. That never enlarges the error of one
    number, but it can move many of them the same way, so it is left out where the bound on a sum of draws relies on
    their independence and zero mean.
    """

    measurement: Measurement
    distribution: Distribution | None
    share: float
    beta: float
    reach: Floats
    clip: bool = True

    @property
    def sigma(self) -> Floats:
        """(h,) standard deviation of the noise in every entry."""
        return self.measurement.gain(2) * (0.0 if self.distribution is None else self.distribution.standard_deviation)

    @property
    def mean_size(self) -> Floats:
        """(h,) mean absolute value of the noise in every entry; where draws add up, that of Gaussian noise as wide."""
        shape = math.sqrt(
            0.5 if isinstance(self.distribution, Laplace) and not _mixes(self.measurement) else 2 / math.pi
        )
        return self.sigma * shape

    def to_dict(self) -> dict[str, Any]:
        return {
            "distribution": self.distribution.to_dict() if self.distribution is not None else None,
            "share": self.share,
            "measured": self.measurement.count,
            "measured_as": self.measurement.strategy,
            "largest_noise": float(self.reach.max(initial=0.0)),
            "beta": self.beta,
        }


@dataclass(frozen=True)
class NoiseDesign:
    """The noise of every private part, and the (epsilon, delta) it costs."""

    parts: Mapping[str, NoisyPart]
    epsilon: float
    delta: float

    @property
    def work(self) -> str:
        count = sum(part.measurement.count for part in self.parts.values())
        return f"{count} noise draw{'' if count == 1 else 's'}, one solve"

    def to_dict(self) -> dict[str, Any]:
        return {name: part.to_dict() for name, part in self.parts.items()}


@dataclass(frozen=True)
class RowMargins:
    """Public bounds on what the noise does to the rows (m,), along the interior direction (the same number in all rows
    of a cone): ``one`` at any fixed point, so that rows made easier by it keep every truly feasible one; ``all`` at
    every point at once, so at one that was chosen after the noise."""

    one: Floats
    all: Floats


def design(model: PrivateLP, options: Options, kinds: Mapping[str, Kind]) -> NoiseDesign:
    """Calibrate the noise of each part in ``kinds`` so that one record costs at most the request's budget."""
    # All that is read of the request: other fields take long to compare.
    key = "noise", options.epsilon, options.delta, options.beta, *kinds.items()
    return model.cached(key, lambda: _design(model, options, kinds))


def _design(model: PrivateLP, options: Options, kinds: Mapping[str, Kind]) -> NoiseDesign:
    chosen = {part: best_measurement(model, part, 2 if kind == "gaussian" else 1) for part, kind in kinds.items()}
    gaussian = all(kind == "gaussian" for kind in kinds.values())
    shares = _shares(model, chosen, gaussian)
    beta = options.beta / max(1, len(kinds))
    parts = {}
    for part, kind in kinds.items():
        distribution = distribution_of(chosen[part], kind, shares[part], options)
        noisy = NoisyPart(chosen[part], distribution, shares[part], beta, _reach(chosen[part], distribution, beta))
        sums = _mixes(chosen[part]) or (part == "matrix" and _row_reach(model, noisy) is not None)
        parts[part] = replace(noisy, clip=not (isinstance(distribution, Gaussian) and sums))
    uses_delta = any(kind != "laplace" for kind in kinds.values())
    return NoiseDesign(parts, options.epsilon, options.delta if uses_delta else 0.0)


def distribution_of(m: Measurement, kind: Kind, share: float, options: Options) -> Distribution | None:
    """The noise that spends ``share`` of the budget on these numbers; None if no record can move them."""
    if m.l1 == 0:
        return None
    if kind == "gaussian":
        return Gaussian(m.l2 / (share * gaussian_mu(options.epsilon, options.delta)))
    scale = m.l1 / (share * options.epsilon)
    if kind == "laplace":
        return Laplace(scale)
    width = truncated_laplace_half_width(scale, share * options.epsilon, share * options.delta)
    return TruncatedLaplace(scale, width)


def _shares(model: PrivateLP, chosen: Mapping[str, Measurement], gaussian: bool) -> dict[str, float]:
    """Weights between objective and constraints half and half, between b and A by what each adds to the
    violation; then scaled up to the budget of the most exposed Records."""
    power = 2.0 if gaussian else 1.0
    families = [[p for p in chosen if p == "objective"], [p for p in chosen if p != "objective"]]
    families = [family for family in families if family]
    weight = {}
    for family in families:
        # Noise t_p / w_p with sum of w_p^power fixed: least total at w_p proportional to t_p^(1 / (power + 1)).
        effect = {p: _effect(model, chosen[p], gaussian) ** (1 / (power + 1)) for p in family}
        total = sum(value**power for value in effect.values())
        for p in family:
            weight[p] = effect[p] / (total * len(families)) ** (1 / power) if total > 0 else 1.0
    records = {r for m in chosen.values() for r in m.sensitivity}
    worst = 0.0
    for r in records:
        cost = 0.0
        for p, m in chosen.items():
            norm = m.l2 if gaussian else m.l1
            moved = m.sensitivity[r].l2 if gaussian else m.sensitivity[r].l1
            if norm > 0:
                cost += (weight[p] * moved / norm) ** power
        worst = max(worst, cost)
    scale = worst ** (-1 / power) if worst > 0 else 1.0
    # A share never exceeds 1 by rounding: that would spend more than the budget.
    return {p: min(1.0, w * scale * (1 - 1e-12)) for p, w in weight.items()}


def _effect(model: PrivateLP, m: Measurement, gaussian: bool) -> float:
    """Size of the noise at full budget, up to a common factor; for A times the public size of x."""
    size = (m.l2 if gaussian else m.l1) * float(m.gain(2 if gaussian else 1).max(initial=0.0))
    if m.part != "matrix":
        return size
    reach = x_bound(model)
    return size * reach if math.isfinite(reach) and reach > 0 else size


def _reach(m: Measurement, distribution: Distribution | None, beta: float) -> Floats:
    """(h,) bounds on every entry's noise that hold together with probability 1 - beta.

    Each entry is a combination of independent draws. With one draw per entry, the k distinct draws count;
    with several, Gaussian entries are jointly Gaussian and Sidak's inequality lets their count h stand for
    independent ones, and other distributions are bounded draw by draw.
    """
    if distribution is None:
        return np.zeros(m.recover.shape[0])
    if isinstance(distribution, Gaussian):
        count = m.recover.shape[0] if _mixes(m) else min(m.recover.shape[0], m.count)
        return m.gain(2) * distribution.max_abs_quantile(count, beta)
    bound = (
        distribution.half_width
        if isinstance(distribution, TruncatedLaplace)
        else distribution.max_abs_quantile(m.count, beta)
    )
    return m.gain(1) * bound


def _mixes(m: Measurement) -> bool:
    """Whether some entry of the part is a combination of several numbers."""
    return bool(m.recover.nnz > m.recover.shape[0])


@cached
def x_bound(model: PrivateLP) -> float:
    """Public bound on the 1-norm of x over the columns in which A is private (inf when there is none)."""
    return model.public.weighted_norm(private_columns(model).astype(np.float64))


@cached
def private_columns(model: PrivateLP) -> npt.NDArray[np.bool_]:
    """(n,) the columns in which A is private."""
    used = np.zeros(model.affine.variables, dtype=bool)
    used[model.form.matrix_positions()[1]] = True
    return used


def row_margins(model: PrivateLP, noise: NoiseDesign) -> RowMargins:
    """What the noise on b and A can do to each row, and how far to relax."""
    fixed = uniform = reach_on_b(model, noise)
    if "matrix" in noise.parts:
        # Box: the largest noise times the public size of x; it serves one x and all. The rows' own way where it is
        # better, which the design decided.
        part = noise.parts["matrix"]
        for_one, for_all = (None if part.clip else _row_reach(model, part)) or (box_reach(model, part.reach),) * 2
        fixed, uniform = fixed + for_one, uniform + for_all
    return RowMargins(margin(model.affine, fixed), margin(model.affine, uniform))


def reach_at(model: PrivateLP, noise: NoiseDesign, x: Floats) -> Floats:
    """(m,) the bounds of ``RowMargins.all`` before cones are looked at, at the point ``x`` (n,): they hold for all
    points at once, so for one that was chosen after the noise."""
    reach = reach_on_b(model, noise)
    if "matrix" not in noise.parts:
        return reach
    part = noise.parts["matrix"]
    # The rows' own way where the design decided that it is better, and where entries do not mix what was measured.
    tails = None if part.clip else _row_tails(model, part, float(np.linalg.norm(x[private_columns(model)])))
    return reach + (model.form.sums_over_rows(part.reach, np.abs(x)) if tails is None else tails[1])


def reach_on_b(model: PrivateLP, noise: NoiseDesign) -> Floats:
    """(m,) bounds on the noise on b, on both sides."""
    reach = np.zeros(model.affine.rows)
    if "scalar" in noise.parts:
        reach[noise.parts["scalar"].measurement.positions] = noise.parts["scalar"].reach
    return reach


def box_reach(model: PrivateLP, reach: Floats) -> Floats:
    """(m,) bounds on ``|N_i x|`` for all x in the public set at once and ``|N| <= reach`` (in the order of
    ``matrix_positions``), entry by entry or in the 1-norm."""
    m = model.affine.rows
    rows, columns = model.form.matrix_positions()
    norm = x_bound(model)
    size = np.minimum(model.public.magnitudes()[columns], norm)
    moved = reach > 0
    entrywise = sum_by(rows[moved], weights=reach[moved] * size[moved], minlength=m)
    largest = _largest_per_row(reach, rows, m)
    return np.minimum(entrywise, np.where(largest > 0, norm, 0.0) * largest if math.isfinite(norm) else entrywise)


def _row_reach(model: PrivateLP, part: NoisyPart) -> tuple[Floats, Floats] | None:
    """(m,), (m,): bounds on ``|N_i x|`` for one fixed x, and for all x, from sums of independent Gaussian entries; None
    where that is not possible or not better."""
    columns = model.form.matrix_positions()[1]
    norm, largest = x_bound(model), np.zeros(model.affine.variables)
    np.maximum.at(largest, columns, np.minimum(model.public.magnitudes()[columns], norm))
    tails = _row_tails(model, part, min(float(np.linalg.norm(largest)), norm))
    if tails is None or not tails[0].max(initial=0.0) + tails[1].max(initial=0.0) < math.inf:
        return None
    return tails if (tails[0] + tails[1]).max(initial=0.0) < 2 * box_reach(model, part.reach).max(initial=0.0) else None


def _row_tails(model: PrivateLP, part: NoisyPart, two_norm: float) -> tuple[Floats, Floats] | None:
    """The same for x of this 2-norm over the columns with private entries; None where entries are not independent.

    Each half with beta / 2: for all x the 2-norm of a row's noise (chi) times that of x, and for one x a single
    Gaussian per row. The noise must not be clipped: clipped draws have a mean.
    """
    distribution, measured = part.distribution, part.measurement
    one_draw_each = measured.recover.nnz == measured.recover.shape[0] == measured.count
    if not isinstance(distribution, Gaussian) or not one_draw_each:
        return None
    m = model.affine.rows
    rows = model.form.matrix_positions()[0]
    sigma = _largest_per_row(measured.gain(2) * distribution.scale, rows, m)
    noised = np.bincount(rows, minlength=m)
    live = noised > 0
    tail = part.beta / (2 * int(live.sum()))
    for_all, for_one = np.zeros(m), np.zeros(m)
    for_all[live] = sigma[live] * two_norm * np.sqrt(chdtri(noised[live], tail))
    for_one[live] = sigma[live] * two_norm * -float(ndtri(tail / 2))
    return np.minimum(for_one, for_all), for_all


def _largest_per_row(values: Floats, rows: np.ndarray, m: int) -> Floats:
    out = np.zeros(m)
    np.maximum.at(out, rows, values)
    return out
