"""What a noise-once mechanism measures: few linear functions of the private entries that determine a part.

A part of the standard form (c, b or the private entries of A) is ``R S theta``: the mechanism releases
``S theta`` with noise and rebuilds the part by the public matrix R. Three choices of S are built:

* *entries*: the distinct entries of the part; multiples of each other (a parameter reused in several constraints, both
  signs of an absolute value, the two halves of a symmetric matrix) are measured once;
* *inputs*: the private parameters' own entries, better when the part combines few of them many times;
* *factor*, under Gaussian noise, where rows add up the same entries: combinations between the two (``strategies.py``).

Parts into which the same private parameters enter may be rebuilt from the same numbers (``NoiseDesign``): then R S
theta is all of these parts below each other.

Rows of S are scaled so that one record moves each by the same amount at most: noise goes in proportion to that.

Rounding. The values are exact dot products rounded once (2^-53 of the value at most) and clamped at ``limit``:
2^40 times the least of their largest change, ``D_1 / t`` and ``D_2 / sqrt(t)``, where t numbers at most depend on the
data of one record. So rounding adds at most 2^-12 of D_1 to the 1-norm and of D_2 to the 2-norm sensitivity between two
neighbours, which ``ROUNDING`` (for up to three parts, and the sums behind the bounds) adds to every sensitivity.
Numbers that are one private entry times a power of two are not rounded at all; there the clamp is 2^40 times
their change. The clamp is public policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import chdtri, ndtri

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.affine_map import AffineMap, LinearMap, numbered
from dpmodel.compile.footprint import Sensitivity, entry_sensitivities, most_touched, sensitivity_of
from dpmodel.compile.form import value_range
from dpmodel.contract import Options
from dpmodel.kernels.direct_measurement import CLAMP, ROUNDING, exact_rows, never_rounded
from dpmodel.marks.layout import sum_by
from dpmodel.marks.records import Records
from dpmodel.memo import cached
from dpmodel.privacy import (
    Cost,
    Gaussian,
    Laplace,
    Truncated,
    TruncatedGaussian,
    TruncatedLaplace,
    gaussian_mu,
    truncated_gaussian_width,
    truncated_laplace_half_width,
)
from dpmodel.programs.model import Program
from dpmodel.programs.strategies import factored

Kind = Literal["laplace", "gaussian", "truncated", "truncated gaussian"]
Distribution = Laplace | Gaussian | TruncatedLaplace | TruncatedGaussian


@dataclass(frozen=True)
class Measurement:
    """``part = recover @ (queries theta)`` with public ``recover``.

    ``queries`` : (k, P) scaled functions S of theta; ``recover`` : (h, k) sparse, h = entries of the part, in
    increasing order of ``positions``. ``sensitivity`` : what one record does to the k numbers, per Records,
    rounding included. ``lower, upper`` : (k,) public range of the numbers; ``limit`` : where their absolute values
    are clamped.
    """

    part: str
    strategy: str
    queries: LinearMap
    recover: sp.csr_array
    positions: Integers
    sensitivity: Mapping[Records, Sensitivity]
    lower: Floats
    upper: Floats
    limit: float

    @property
    def mixes(self) -> bool:
        """Whether some entry of the part is a combination of several numbers."""
        return bool(self.recover.nnz > self.recover.shape[0])

    @property
    def one_each(self) -> bool:
        """Whether every entry of the part is one number, times a factor."""
        return not self.mixes and bool((np.diff(self.recover.indptr) == 1).all())

    @property
    def furthest(self) -> float:
        """Largest absolute value that the public ranges allow (inf where there is none)."""
        return float(np.maximum(np.abs(self.lower), np.abs(self.upper)).max(initial=0.0))

    @property
    def count(self) -> int:
        return self.queries.height

    @cached_property
    def used(self) -> int:
        """How many of the numbers this part is rebuilt from."""
        return int(np.unique(self.recover.indices).size)

    @property
    def l1(self) -> float:
        return max((sensitivity.l1 for sensitivity in self.sensitivity.values()), default=0.0)

    @property
    def l2(self) -> float:
        return max((sensitivity.l2 for sensitivity in self.sensitivity.values()), default=0.0)

    def gain(self, order: int) -> Floats:
        """(h,) 1-norm or 2-norm of the rows of ``recover``: how noise on the k numbers reaches each entry."""
        return self._gains[order - 1]

    @cached_property
    def _gains(self) -> tuple[Floats, Floats]:
        if self.one_each:
            alone = np.asarray(np.abs(self.recover.data), dtype=np.float64)
            return alone, alone
        size = abs(self.recover)
        one, squares = (np.asarray(each.sum(axis=1), dtype=np.float64).ravel() for each in (size, size.multiply(size)))
        return one, np.sqrt(squares)

    def values(self, theta: PrivateArray) -> PrivateArray:
        """(k,) the private numbers; for a mechanism's ``run`` only."""
        exact = exact_rows(self.queries, theta)
        return PrivateArray(np.clip(np.clip(exact, self.lower, self.upper), -self.limit, self.limit))

    def rebuild(self, released: Floats, clip: bool = True) -> Floats:
        """(h,) entries of the part from released numbers, moved into their public range first if ``clip``."""
        return np.asarray(self.recover @ (np.clip(released, self.lower, self.upper) if clip else released))


def measurements(model: Program, part: str) -> tuple[Measurement, ...]:
    """The choices of S for one part."""
    return tuple(each[part] for each in joint_measurements(model, (part,)))


@cached
def joint_measurements(model: Program, parts: tuple[str, ...]) -> tuple[Mapping[str, Measurement], ...]:
    """The choices of S for ``parts`` together, by part; those of one choice share ``queries``. Once per problem."""
    dense = _stacked([model.form.private_part(part).compact() for part in parts])
    entries = _choice(model, parts, "entries", *_by_entries(dense))
    if dense.nnz == dense.height:
        return (entries,)
    return entries, _choice(model, parts, "inputs", *_by_inputs(dense))


@cached
def factored_measurement(model: Program, parts: tuple[str, ...]) -> Mapping[str, Measurement] | None:
    """The third choice, for Gaussian noise; None where rows have nothing to win. Not for A, whose rows have bounds of
    their own for entries with independent noise."""
    dense = _stacked([model.form.private_part(part).compact() for part in parts])
    if dense.nnz == dense.height or "matrix" in parts:
        return None
    inputs, change = _by_inputs(dense)[0], np.zeros(model.affine.theta_size)
    change[inputs.column] = entry_sensitivities(model.affine, inputs)
    found = factored(*_by_entries(dense), change) if np.isfinite(change).all() else None
    return None if found is None else _choice(model, parts, "factor", *found, factor=np.ones(found[0].height))


def _choice(
    model: Program, parts: tuple[str, ...], strategy: str, queries: LinearMap, recover: sp.csr_array,
    factor: Floats | None = None,
) -> Mapping[str, Measurement]:  # fmt: skip
    """The measurement of the parts' rows below each other, for each part with its own rows of ``recover``."""
    positions = [model.form.private_part(part).positions for part in parts]
    every = scaled(model, parts[0], strategy, queries, recover, positions[0], factor)
    if len(parts) == 1:
        return {parts[0]: every}
    ends = np.cumsum([each.size for each in positions])
    return {
        part: replace(every, part=part, recover=every.recover[end - own.size : end], positions=own)
        for part, own, end in zip(parts, positions, ends, strict=True)
    }


def _stacked(maps: Sequence[LinearMap]) -> LinearMap:
    """The maps below each other."""
    if len(maps) == 1:
        return maps[0]
    above = np.cumsum([0, *(each.height for each in maps)])
    row, column, coefficient = (
        np.concatenate(list(each))
        for each in zip(
            *((m.row + a, m.column, m.coefficient) for m, a in zip(maps, above[:-1], strict=True)), strict=True
        )
    )
    return LinearMap(row, column, coefficient, int(above[-1]))


def choices(model: Program, parts: tuple[str, ...], kind: Kind) -> tuple[Mapping[str, Measurement], ...]:
    """What may be measured of several parts together under noise of this kind."""
    third = factored_measurement(model, parts) if kind == "gaussian" else None
    return (*joint_measurements(model, parts), *([] if third is None else [third]))


def best_measurements(model: Program, parts: tuple[str, ...], kind: Kind) -> Mapping[str, Measurement]:
    """The choice with the least noise of this kind: the least product of the parts' largest standard deviations (of
    noise with a bound: of their largest bounds), and of these the least product of their means."""

    def noise(choice: Mapping[str, Measurement]) -> tuple[float, float]:
        sensitivity = [m.l2 if "gaussian" in kind else m.l1 for m in choice.values()]
        gains = [m.gain(1 if "truncated" in kind else 2) for m in choice.values()]
        sizes = [s * g for s, g in zip(sensitivity, gains, strict=True)]
        return float(f"{math.prod(float(s.max(initial=0.0)) for s in sizes):.9g}"), math.prod(s.mean() for s in sizes)

    return min(choices(model, parts, kind), key=noise)


def scaled(
    model: Program,
    part: str,
    strategy: str,
    queries: LinearMap,
    recover: sp.csr_array,
    positions: Integers,
    factor: Floats | None = None,
) -> Measurement:
    """The measurement with its rows scaled by ``factor``, or to equal change; change and range attached."""
    moves = entry_sensitivities(model.affine, queries)
    if factor is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where((moves > 0) & np.isfinite(moves), moves.max(initial=0.0) / moves, 1.0)
        factor = np.where(np.abs(factor - 1.0) < 1e-12, 1.0, factor)
    if (factor != 1.0).any():
        queries = LinearMap(queries.row, queries.column, queries.coefficient * factor[queries.row], queries.height)
        recover = sp.csr_array(recover @ sp.diags_array(1.0 / factor))
    sensitivity = {
        records: value.scaled_for_rounding(ROUNDING) for records, value in sensitivity_of(model.affine, queries).items()
    }
    lower, upper = value_range(model.affine, queries)
    limit = clamp(model.affine, queries, sensitivity, moves * factor, rounded=not never_rounded(queries))
    return Measurement(part, strategy, queries, recover, positions, sensitivity, lower, upper, limit)


def clamp(
    affine: AffineMap, queries: LinearMap, sensitivity: Mapping[Records, Sensitivity], moves: Floats, *, rounded: bool
) -> float:
    """Where numbers that one record moves by ``moves`` (k,) are clamped (the module's docstring); inf where bounds fix
    every number. ``rounded`` : whether they are rounded at all."""
    if not moves.any():
        return math.inf
    step = float(moves[moves > 0].min())
    if not rounded:
        return CLAMP * step
    touched = max(most_touched(affine, queries.row, queries.column), 1)
    l1, l2 = max(c.l1 for c in sensitivity.values()), max(c.l2 for c in sensitivity.values())
    return CLAMP * min(step, l1 / touched, l2 / math.sqrt(touched))


def _by_entries(part: LinearMap) -> tuple[LinearMap, sp.csr_array]:
    """Distinct rows up to a factor, and the factors. Few parts get as far as the loop."""
    height = part.height
    counts = np.bincount(part.row, minlength=height)
    if (counts == 1).all():
        return _by_inputs(part)
    first = np.r_[0, np.cumsum(counts)[:-1]]
    lead = part.coefficient[first]
    normal = part.coefficient / lead[part.row]
    distinct: Integers = np.arange(height)
    if np.unique(counts * (int(part.column.max()) + 1) + part.column[first]).size < height:
        # Rows that are multiples of each other have the same columns and, to 12 digits, the same numbers over a lead.
        mantissa, exponent = np.frexp(normal)
        alike = np.ldexp(np.round(mantissa, 12), exponent)
        keys = ((part.column[a:b].tobytes(), alike[a:b].tobytes()) for a, b in zip(first, first + counts, strict=True))
        seen: dict[tuple[bytes, bytes], int] = {}
        distinct = np.array([seen.setdefault(key, row) for row, key in enumerate(keys)])
    chosen, group = np.unique(distinct, return_inverse=True)
    keep = np.isin(part.row, chosen)
    queries = LinearMap(group[part.row[keep]], part.column[keep], normal[keep], int(chosen.size))
    return queries, sp.csr_array((lead, group, np.arange(height + 1)), shape=(height, int(chosen.size)))


def _by_inputs(part: LinearMap) -> tuple[LinearMap, sp.csr_array]:
    columns, number = numbered(part.column)
    k = int(columns.size)
    queries = LinearMap(np.arange(k, dtype=np.int64), columns, np.ones(k), k)
    ends = np.cumsum(np.bincount(part.row, minlength=part.height))  # rows are in order
    return queries, sp.csr_array((part.coefficient, number, np.append(0, ends)), shape=(part.height, k))


@dataclass(frozen=True)
class NoisyPart:
    """One part's measurement, its noise distribution (None if no record can move it) and its share of the budget.

    ``beta`` : probability with which some entry may miss ``reach`` (h,), the public bound on its noise.
    ``clip`` : whether released numbers are moved into their public range. That never enlarges the error of one
    number, but it can move many of them the same way, so it is left out where the bound on a sum of draws relies on
    their independence and zero mean.
    ``draws`` : 0, or how many numbers were released by this law, where the program may have been chosen after they were
    seen: then one event, no draw beyond its quantile, bounds all combinations (``answer.py``).
    """

    measurement: Measurement
    distribution: Distribution | None
    share: float
    beta: float
    reach: Floats
    clip: bool = True
    draws: int = 0

    @property
    def sigma(self) -> Floats:
        """(h,) standard deviation of the noise in every entry."""
        return self.measurement.gain(2) * (0.0 if self.distribution is None else self.distribution.standard_deviation)

    @property
    def mean_size(self) -> Floats:
        """(h,) mean absolute value of the noise in every entry; where draws add up, that of Gaussian noise as wide."""
        shape = math.sqrt(0.5 if isinstance(self.distribution, Laplace) and not self.measurement.mixes else 2 / math.pi)
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
    """The noise of every private part, and the (epsilon, delta) it costs.

    How the budget is split over the noised numbers of a problem, and what accuracy follows: public facts only.

    Numbers. Parts into which no common private parameter enters have numbers of their own. Parts that share one are
    measured apart, or together: one S whose numbers rebuild all of them (``numbers``). Those numbers are drawn once, so
    they are one release of ``S theta``, whatever is rebuilt of it; a share of the budget is spent on it once.

    One record belongs to one ``Records`` and moves group p of numbers by at most ``D_p`` (in the norm of the noise).
    With share w_p, group p gets Laplace noise of scale ``D_p / (w_p epsilon)`` (costing a record
    ``w_p epsilon D_pg / D_p`` when its Records g moves p by D_pg) or Gaussian noise of standard deviation
    ``D_p / (w_p mu)`` with the squares adding up. Basic composition (pure epsilon) and exact Gaussian composition (mu
    adds in squares) bound the total per Records; the shares are then scaled up until the largest total is the whole
    budget. So numbers computed from different people each get all of it. Truncated Gaussian noise is that Gaussian
    vector, given that its truncated draws lie in their windows (``privacy.truncated_gaussian_width``).
    """

    parts: Mapping[str, NoisyPart]
    epsilon: float
    delta: float

    @property
    def numbers(self) -> tuple[tuple[str, ...], ...]:
        """The parts, in groups that are rebuilt from the same released numbers. These are drawn once for a group, with
        the distribution of any of its parts."""
        groups: dict[int, list[str]] = {}
        for name, part in self.parts.items():
            groups.setdefault(id(part.measurement.queries), []).append(name)
        return tuple(map(tuple, groups.values()))

    @property
    def event(self) -> Cost | None:
        """Mu of Gaussian noise, or Laplace noise of scales D_p / (w_p epsilon), which costs a record at most
        ``laplace_rho(epsilon)``: it is convex in what each entry takes of epsilon. None for other noise."""
        drawn = {type(part.distribution) for part in self.parts.values()} - {type(None)}
        if drawn == {Laplace} and not self.delta:
            return Cost.laplace(self.epsilon)
        return Cost.all_gaussian(self.epsilon, self.delta) if drawn == {Gaussian} else None

    @property
    def work(self) -> str:
        count = sum(self.parts[group[0]].measurement.count for group in self.numbers)
        return f"{count} noise draw{'' if count == 1 else 's'}, one solve"

    def to_dict(self) -> dict[str, Any]:
        return {name: part.to_dict() for name, part in self.parts.items()}


def design_noise(model: Program, options: Options, kinds: Mapping[str, Kind]) -> NoiseDesign:
    """Calibrate the noise of each part in ``kinds`` so that one record costs at most the request's budget."""
    # All that is read of the request: other fields take long to compare.
    key = "noise", options.epsilon, options.delta, options.beta, *kinds.items()
    return model.cached(key, lambda: _design(model, options, kinds))


def _design(model: Program, options: Options, kinds: Mapping[str, Kind]) -> NoiseDesign:
    """Parts with a common private parameter are measured apart or together: as the product of their largest noises is
    less. A tie goes to apart."""
    designs = [_grouped(model, options, kinds, tuple((part,) for part in kinds))]
    together = sharing(model, tuple(kinds))
    if len(together) < len(kinds):
        designs.append(_grouped(model, options, kinds, together))
    return min(designs, key=lambda d: math.prod(float(part.reach.max(initial=0.0)) for part in d.parts.values()))


def sharing(model: Program, parts: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The parts, in groups that are connected by private parameters which enter several of them."""
    if len(parts) == 1:
        return (parts,)
    parameter = np.zeros(model.affine.theta_size, dtype=np.int64)
    for number, block in enumerate(model.affine.private_blocks):
        parameter[block.columns] = number
    enters = np.zeros((len(parts), len(model.affine.private_blocks)), dtype=bool)
    for row, part in enumerate(parts):
        enters[row, parameter[model.form.private_part(part).column]] = True
    label = sp.csgraph.connected_components(sp.csr_array(enters @ enters.T), directed=False)[1]
    return tuple(tuple(p for p, g in zip(parts, label, strict=True) if g == k) for k in dict.fromkeys(label))


def _grouped(
    model: Program, options: Options, kinds: Mapping[str, Kind], groups: tuple[tuple[str, ...], ...]
) -> NoiseDesign:
    """The design in which the parts of a group are rebuilt from the same numbers."""
    gaussian = all("gaussian" in kind for kind in kinds.values())
    # Noise that has a bound serves parts that can do without one.
    kind_of = {group: max((kinds[part] for part in group), key=lambda kind: "truncated" in kind) for group in groups}
    chosen = {group: best_measurements(model, group, kind_of[group]) for group in groups}
    shares = _shares(model, chosen, gaussian)
    cut = sum(chosen[g][g[0]].count for g in groups if kind_of[g] == "truncated gaussian")
    beta = options.beta / max(1, len(kinds))
    parts = {}
    for group in groups:
        distribution = distribution_of(chosen[group][group[0]], kind_of[group], shares[group], options, cut)
        for part in group:
            parts[part] = part_of(model, chosen[group][part], distribution, shares[group], beta)
    uses_delta = any(kind != "laplace" for kind in kinds.values())
    return NoiseDesign({p: parts[p] for p in kinds}, options.epsilon, options.delta if uses_delta else 0.0)


def part_of(
    model: Program, m: Measurement, distribution: Distribution | None, share: float, beta: float, draws: int = 0
) -> NoisyPart:
    """The part that is rebuilt from these numbers under this noise. ``draws`` : see ``NoisyPart``."""
    if draws and isinstance(distribution, Laplace | Gaussian):
        reach = m.gain(1) * distribution.max_abs_quantile(draws, beta)
        return NoisyPart(m, distribution, share, beta, reach, draws=draws)
    reach, sums = _reach(m, distribution, beta)
    noisy = NoisyPart(m, distribution, share, beta, reach)
    if m.part == "matrix":
        sums = sums or row_reach(model, noisy) is not None
    elif m.part == "scalar" and not isinstance(distribution, TruncatedLaplace):
        sums = sums or bool(curved_rows(model)[m.positions].any())  # their margins are those of independent draws
    return replace(noisy, clip=not sums)


def distribution_of(m: Measurement, kind: Kind, share: float, options: Options, cut: int = 0) -> Distribution | None:
    """The noise that spends ``share`` of the budget on these numbers; None if no record can move them. ``cut`` : how
    many Gaussian draws of the whole design are truncated: with all others, they are one vector that is released."""
    if m.l1 == 0:
        return None
    if "gaussian" in kind:
        mu, width = gaussian_mu(options.epsilon, options.delta), 0.0
        if cut:
            mu, width = truncated_gaussian_width(options.epsilon, options.delta, cut)
        scale = m.l2 / (share * mu)
        return TruncatedGaussian(scale, width * scale) if kind == "truncated gaussian" else Gaussian(scale)
    scale = m.l1 / (share * options.epsilon)
    if kind == "laplace":
        return Laplace(scale)
    width = truncated_laplace_half_width(scale, share * options.epsilon, share * options.delta)
    return TruncatedLaplace(scale, width)


def _shares(
    model: Program, chosen: Mapping[tuple[str, ...], Mapping[str, Measurement]], gaussian: bool
) -> dict[tuple[str, ...], float]:
    """Weights between objective and constraints half and half (a group of both is a third family), between b and A by
    what each adds to the violation; then scaled up to the budget of the most exposed Records.

    A group is one release of the numbers ``queries theta``, whose sensitivity its parts have in common: its cost counts
    once, however many parts are rebuilt.
    """
    power = 2.0 if gaussian else 1.0
    families: dict[tuple[bool, bool], list[tuple[str, ...]]] = {}
    for group in chosen:
        families.setdefault(("objective" in group, group != ("objective",)), []).append(group)
    weight = {}
    for family in families.values():
        # Noise t_g / w_g with sum of w_g^power fixed: least total at w_g proportional to t_g^(1 / (power + 1)).
        noise = {g: sum(_effect(model, m, gaussian) for m in chosen[g].values()) for g in family}
        effect = {g: value ** (1 / (power + 1)) for g, value in noise.items()}
        total = sum(value**power for value in effect.values())
        for g in family:
            weight[g] = effect[g] / (total * len(families)) ** (1 / power) if total > 0 else 1.0
    numbers, worst = {group: next(iter(each.values())) for group, each in chosen.items()}, 0.0
    for r in {r for m in numbers.values() for r in m.sensitivity}:
        cost = 0.0
        for g, m in numbers.items():
            norm = m.l2 if gaussian else m.l1
            moved = m.sensitivity[r].l2 if gaussian else m.sensitivity[r].l1
            if norm > 0:
                cost += (weight[g] * moved / norm) ** power
        worst = max(worst, cost)
    scale = worst ** (-1 / power) if worst > 0 else 1.0
    # A share never exceeds 1 by rounding: that would spend more than the budget.
    return {g: min(1.0, w * scale * (1 - 1e-12)) for g, w in weight.items()}


def _effect(model: Program, m: Measurement, gaussian: bool) -> float:
    """Size of the noise at full budget, up to a common factor; for A times the public size of x."""
    size = (m.l2 if gaussian else m.l1) * float(m.gain(2 if gaussian else 1).max(initial=0.0))
    if m.part != "matrix":
        return size
    reach = x_bound(model)
    return size * reach if math.isfinite(reach) and reach > 0 else size


def _reach(m: Measurement, distribution: Distribution | None, beta: float) -> tuple[Floats, bool]:
    """(h,) bounds on every entry's noise that hold together with probability 1 - beta, and whether they rely on sums of
    independent draws of mean zero.

    Each entry is a combination of independent draws. With one draw per entry, the k distinct draws count; with several,
    Gaussian entries are jointly Gaussian and Sidak's inequality lets their count h stand for independent ones. Noise
    with a bound is bounded draw by draw. Laplace noise is, too, or by Chernoff's inequality for each entry, whichever
    is less at its largest: ``E exp(u sum r_k N_k) = prod 1 / (1 - (u s r_k)^2)`` for ``u s max |r_k| < 1``, so every
    such u gives ``P(|sum r_k N_k| > t) <= 2 exp(-u t) prod 1 / (1 - (u s r_k)^2)``, which is beta / h at
    ``t = (ln(2 h / beta) - sum ln(1 - (u s r_k)^2)) / u``.
    """
    if distribution is None:
        return np.zeros(m.recover.shape[0]), False
    if isinstance(distribution, Gaussian):
        count = m.recover.shape[0] if m.mixes else min(m.recover.shape[0], m.used)
        return m.gain(2) * distribution.max_abs_quantile(count, beta), m.mixes
    if isinstance(distribution, Truncated):
        return m.gain(1) * distribution.half_width, False
    by_draws: Floats = m.gain(1) * distribution.max_abs_quantile(m.used, beta)
    if not m.mixes:
        return by_draws, False
    largest = abs(m.recover).max(axis=1).toarray().ravel()
    ratio = sp.csr_array(sp.diags_array(1 / largest) @ m.recover)
    sums, log = np.full(largest.size, math.inf), math.log(2 * largest.size / beta)
    for u in np.linspace(0.05, 0.95, 19):
        powers = sp.csr_array((-np.log1p(-((u * ratio.data) ** 2)), ratio.indices, ratio.indptr), shape=ratio.shape)
        sums = np.minimum(sums, (log + powers.sum(axis=1)) * largest * distribution.scale / u)
    return (sums, True) if sums.max() < by_draws.max() else (by_draws, False)


@cached
def curved_rows(model: Program) -> npt.NDArray[np.bool_]:
    """(m,) the rows in other cones than inequalities and equations."""
    return ~(model.affine.inequalities() | model.affine.equalities())


@cached
def x_bound(model: Program) -> float:
    """Public bound on the 1-norm of x over the columns in which A is private (inf when there is none)."""
    return model.public.weighted_norm(private_columns(model).astype(np.float64))


@cached
def private_columns(model: Program) -> npt.NDArray[np.bool_]:
    """(n,) the columns in which A is private."""
    return np.bincount(model.form.matrix_positions()[1], minlength=model.affine.variables) > 0


def box_reach(model: Program, reach: Floats) -> Floats:
    """(m,) bounds on ``|N_i x|`` for all x in the public set at once and ``|N| <= reach`` (in the order of
    ``matrix_positions``), entry by entry or in the 1-norm."""
    m, norm = model.affine.rows, x_bound(model)
    rows, columns = model.form.matrix_positions()
    size = np.minimum(model.public.magnitudes()[columns], norm)
    moved = reach > 0
    entrywise = sum_by(rows[moved], weights=reach[moved] * size[moved], minlength=m)
    largest = _largest_per_row(reach, rows, m)
    return np.minimum(entrywise, np.where(largest > 0, norm, 0.0) * largest if math.isfinite(norm) else entrywise)


def row_reach(model: Program, part: NoisyPart) -> tuple[Floats, Floats] | None:
    """(m,), (m,): bounds on ``|N_i x|`` for one fixed x, and for all x, from sums of independent Gaussian entries; None
    where that is not possible or not better."""
    columns = model.form.matrix_positions()[1]
    norm, largest = x_bound(model), np.zeros(model.affine.variables)
    np.maximum.at(largest, columns, np.minimum(model.public.magnitudes()[columns], norm))
    tails = row_tails(model, part, min(float(np.linalg.norm(largest)), norm))
    if tails is None or not tails[0].max(initial=0.0) + tails[1].max(initial=0.0) < math.inf:
        return None
    return tails if (tails[0] + tails[1]).max(initial=0.0) < 2 * box_reach(model, part.reach).max(initial=0.0) else None


def row_tails(model: Program, part: NoisyPart, two_norm: float) -> tuple[Floats, Floats] | None:
    """The same for x of this 2-norm over the columns with private entries; None where entries are not independent.

    Each half with beta / 2: for all x the 2-norm of a row's noise (chi) times that of x, and for one x a single
    Gaussian per row. The noise must not be clipped: clipped draws have a mean.
    """
    distribution, measured = part.distribution, part.measurement
    own = measured.one_each and measured.used == measured.recover.nnz
    if not isinstance(distribution, Gaussian) or not own:
        return None
    m, rows = model.affine.rows, model.form.matrix_positions()[0]
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
