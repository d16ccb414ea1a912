"""What a missed row costs under the law of the noise: tangents of that cost, a prior learnt from released numbers,
and default prices. Public and released numbers only.

A row. ``A_i x <= b_i`` is short by ``(A_i x - b_i)^+``. Released are ``b_i + N`` and, with private coefficients,
``A_i + M``. So the true gap is ``A_i x - b_i = r + N - M x``, with ``r`` the gap in the released numbers: what the row
is short by is ``(r + noise)^+``, and the noise has a public law, symmetric about 0.

Flat prior [proof]. Give the true ``b_i`` the constant density. By Bayes' rule its density given ``b~_i`` is that of
``b~_i - N``. So for every x, chosen after seeing ``b~`` too, the mean of the shortage given ``b~`` is
``Phi(r) = E(r + N)^+``. It is convex and increasing in r, as a mean of such functions, and its derivative is
``F(r) = P(N > -r)``, the probability of being short. Sums over rows need the marginal law of each row alone, since
means add up: correlated noise changes nothing. This is an average over databases, not a statement about one.

Laws. Noise in a row is a public scale times Z. One number times a factor: Z has the law of the mechanism. Several
numbers: Z is taken to be Gaussian with the exact standard deviation of the sum, which is exact for Gaussian noise and
an approximation for others. For symmetric Z, ``E(r + Z)^+ = r^+ + E(Z - |r|)^+``, with
``E(Z - u)^+ = e^-u / 2`` (Laplace) and ``f(u) - u F(-u)`` (Gaussian; both by integration by parts). Laws on whole
numbers and posteriors are tables of masses, of which the same function is piecewise linear, so exact at every value.

Tangents [proof]. Every tangent lies below a convex function, so the largest of K lines does. Between two touching
points u apart the gap is largest where they meet, about ``Phi'' u^2 / 8``; it is the same everywhere where touching
points have a density in proportion to ``sqrt(Phi'')``, that is to the root of the density of Z: Laplace of scale 2,
Gaussian of deviation sqrt 2. The gap is then ``(integral of sqrt(Phi''))^2 / (8 K^2)``: ``s / K^2`` and
``.627 sigma / K^2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammainc, gammaincinv, ndtr, ndtri

from dpmodel._types import Floats, Integers, Mask
from dpmodel.contract import Options, Outcome
from dpmodel.privacy import Gaussian, Laplace, Truncated, TruncatedGaussian
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace
from dpmodel.programs.feasibility import relaxed_program, solve_released
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign
from dpmodel.programs.public import level
from dpmodel.requests import Prices
from dpmodel.text import number

# Twelve leave .7 per cent of the noise in money, but steps of a twelfth in the chance of being short. Twice as many
# take hardly longer in some hundred rows; of thousands, time goes with their number, and five a row are left.
TANGENTS, _FEWEST_TANGENTS, _MOST_PIECES = 24, 5, 12_000
# Beside the noise that solvers make, less is none: rows are held to 1e-7.
_LEAST_SCALE = 1e-9
# Scales up to which whole numbers are counted one by one; beyond, they lie close enough to be a continuum.
_MOST_WHOLE = 200.0


# ------------------------------------------------------------------ laws
@dataclass(frozen=True)
class Table:
    """Z takes ``values`` (g,), increasing, plus ``shift`` (p,), with ``masses`` (p, g) in p rows, or (1, g) in all of
    them; ``rows`` (p,) : which of ``Laws`` they are."""

    rows: Integers
    values: Floats
    masses: Floats
    shift: Floats | float = 0.0

    def tails(self) -> tuple[Floats, Floats]:
        """(p, g), (p, g): mass of, and mean over, each value and all larger ones."""
        means = self.masses * (self.values + np.reshape(self.shift, (-1, 1)))
        above, mean = (np.cumsum(each[:, ::-1], axis=1)[:, ::-1] for each in (self.masses, means))
        shape = (self.rows.size, self.values.size)
        return np.broadcast_to(above, shape), np.broadcast_to(mean, shape)

    def first_above(self, r: Floats) -> Integers:
        """(p,) the first value v with ``r + v > 0``; g where there is none."""
        # Solvers end near kinks, which is where whole numbers lie.
        return np.searchsorted(self.values, -r - self.shift + 1e-7 * (1 + np.abs(r)), side="right")

    def at(self, r: Floats) -> tuple[Floats, Floats, Floats]:
        """(p,) each: ``E(r + Z)^+``, ``P(r + Z > 0)`` and ``P(r + Z < 0)``."""
        above, mean = (np.concatenate([each, np.zeros((each.shape[0], 1))], axis=1) for each in self.tails())
        first, line = self.first_above(r), np.arange(self.rows.size)
        below = np.searchsorted(self.values, -r - self.shift - 1e-7 * (1 + np.abs(r)), side="left")
        # With the larger of two lines near a kink: the tail of the values above -r, exactly.
        exact = np.searchsorted(self.values, -r - self.shift, side="right")
        amount = r * above[line, exact] + mean[line, exact]
        return amount, above[line, first], above[line, 0] - above[line, below]

    def quantile(self, share: Floats) -> Floats:
        """(p,) the least r with ``P(r + Z >= 0) >= share``."""
        above = self.tails()[0]
        last = np.maximum((above >= share[:, None] - 1e-12).sum(axis=1) - 1, 0)
        found: Floats = -self.values[last] - self.shift
        return found

    def lines(self, count: int) -> tuple[Floats, Floats]:
        """(p, count), (p, count): slopes and intercepts, where ``sqrt(mass)`` adds up to (k - .5) / count of all."""
        above, mean = self.tails()
        root = np.cumsum(np.sqrt(self.masses), axis=1)
        share = (np.arange(count) + 0.5) / count
        place = np.stack([(root < each * root[:, -1:]).sum(axis=1) for each in share], axis=1)[:, ::-1]
        place = np.broadcast_to(place, (self.rows.size, count))
        line = np.arange(self.rows.size)[:, None]
        return above[line, place], mean[line, place]


@dataclass(frozen=True)
class Laws:
    """Noise in p rows: ``scale`` (p,) times Z, which is standard Laplace where ``laplace`` (p,) says so, one of
    ``tables`` where these name the row, else standard Gaussian. ``notes`` : which priors were learnt."""

    scale: Floats
    laplace: Mask
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def amounts(self, r: Floats) -> tuple[Floats, Floats]:
        """(p,), (p,): ``E(r + N)^+`` and ``E(-r - N)^+`` at the released gaps ``r`` (p,)."""
        z = r / self.scale
        size = np.abs(z)
        tail = np.where(self.laplace, np.exp(-size) / 2, _normal(size) - size * ndtr(-size))
        above, below = np.maximum(z, 0) + tail, np.maximum(-z, 0) + tail
        for table in self.tables:
            rows = table.rows
            above[rows] = table.at(z[rows])[0]
            below[rows] = above[rows] - z[rows] - table.tails()[1][:, 0]
        return self.scale * np.maximum(above, 0.0), self.scale * np.maximum(below, 0.0)

    def chances(self, r: Floats) -> tuple[Floats, Floats]:
        """(p,), (p,): ``P(r + N > 0)`` and ``P(r + N < 0)``."""
        z = r / self.scale
        half = np.exp(-np.abs(z)) / 2
        above = np.where(self.laplace, np.where(z < 0, half, 1 - half), ndtr(z))
        below = 1 - above
        for table in self.tables:
            _, above[table.rows], below[table.rows] = table.at(z[table.rows])
        return above, below

    def gaps(self, share: Floats) -> Floats:
        """(p,) the gap r at which ``P(r + N > 0)`` is ``share`` (p,), -inf to inf."""
        with np.errstate(divide="ignore"):
            side = np.where(share < 0.5, np.log(2 * share), -np.log(2 * (1 - share)))
            z = np.where(self.laplace, side, ndtri(share))
        for table in self.tables:
            z[table.rows] = table.quantile(share[table.rows])
        return self.scale * z

    def lines(self) -> tuple[Floats, Floats]:
        """(p, K + 2), (p, K + 2): slopes, increasing, and intercepts of lines below ``E(r + N)^+``: K tangents between
        the two asymptotes."""
        count = max(min(TANGENTS, _MOST_PIECES // max(self.scale.size, 1)), _FEWEST_TANGENTS)
        share = (np.arange(count) + 0.5) / count
        laplace, gaussian = (_tangents(share, sharp) for sharp in (True, False))
        slopes, intercepts = (
            np.where(self.laplace[:, None], one, other) for one, other in zip(laplace, gaussian, strict=True)
        )
        last = np.zeros(self.scale.size)
        for table in self.tables:
            slopes[table.rows], intercepts[table.rows] = table.lines(count)
            last[table.rows] = table.tails()[1][:, 0]
        none, one = np.zeros((self.scale.size, 1)), np.ones((self.scale.size, 1))
        intercepts = np.hstack([none, intercepts, last[:, None]]) * self.scale[:, None]
        return np.hstack([none, slopes, one]), intercepts

    def kinks(self) -> tuple[Floats, Floats]:
        """(p, K + 2), (p, K + 1): the slopes, and where each of the lines meets the next; lines that are the same meet
        nowhere, and get the next place."""
        slopes, intercepts = self.lines()
        with np.errstate(divide="ignore", invalid="ignore"):
            place = -np.diff(intercepts, axis=1) / np.diff(slopes, axis=1)
        place[np.diff(slopes, axis=1) < 1e-12] = np.nan
        place = np.fmax.accumulate(place, axis=1)
        first = np.fmin.accumulate(place[:, ::-1], axis=1)[:, ::-1]
        return slopes, np.where(np.isnan(place), first, place)


def _normal(z: Floats) -> Floats:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _tangents(share: Floats, laplace: bool) -> tuple[Floats, Floats]:
    """Slopes and intercepts of the tangents of ``E(r + Z)^+``, Z standard, that touch at these quantiles of the law
    whose density is in proportion to the root of Z's."""
    if laplace:
        u = 2 * np.where(share < 0.5, np.log(2 * share), -np.log(2 * (1 - share)))
        half = np.exp(-np.abs(u)) / 2
        slope = np.where(u < 0, half, 1 - half)
        return slope, np.maximum(u, 0) + half - slope * u
    u = math.sqrt(2) * ndtri(share)
    return ndtr(u), _normal(u)


def laws_of(model: Program, noise: NoiseDesign, rows: Integers, b: Floats | None = None) -> Laws:
    """The laws of the noise in ``rows`` (p,) with public coefficients. ``b`` (m,) : the released private part of
    right-hand sides, from which a prior is learnt; None: the flat one, and nothing is learnt."""
    part = noise.parts.get("scalar")
    if part is None or part.distribution is None:
        return Laws(np.full(rows.size, _LEAST_SCALE), np.zeros(rows.size, dtype=bool))
    measured, law = part.measurement, part.distribution
    if isinstance(law, Truncated):
        plain = Gaussian(law.scale) if isinstance(law, TruncatedGaussian) else Laplace(law.scale)
        law = plain if law.standard_deviation > 0.99 * plain.standard_deviation else law
    place = np.searchsorted(measured.positions, rows)
    inside = measured.positions[np.minimum(place, measured.positions.size - 1)] == rows
    place = np.where(inside, place, 0)
    alone = inside & (np.diff(measured.recover.indptr)[place] == 1)
    gain = np.where(inside, measured.gain(2)[place], 0.0)
    laplace = alone & (type(law) in (Laplace, DiscreteLaplace))
    exact = laplace | (alone & isinstance(law, Gaussian))
    scale = np.where(exact, float(law.scale), float(law.standard_deviation)) * gain
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    if isinstance(law, DiscreteLaplace | DiscreteGaussian) and alone.any() and law.scale <= _MOST_WHOLE:
        tables = (_whole(np.flatnonzero(alone), law),)
    elif b is not None and exact.any():
        first = measured.recover.indptr[place]
        tables, notes = _learnt(model, noise, rows, np.flatnonzero(exact), first, b, laplace)
    return Laws(np.maximum(scale, _LEAST_SCALE), laplace, tables, notes)


def _whole(rows: Integers, law: Any) -> Table:
    """The law on whole numbers, in units of its scale; what lies beyond has mass below 1e-16."""
    far = math.ceil(40 * law.scale if isinstance(law, DiscreteLaplace) else 10 * law.scale) + 2
    whole = np.arange(-far, far + 1.0)
    weight = np.exp(-np.abs(whole) * law.absolute - whole**2 * law.square)
    return Table(rows, whole / law.scale, (weight / weight.sum())[None, :])


# ------------------------------------------------------------------ a prior learnt from the released numbers
#
# Rows of one parameter are taken to be drawn from one law: a gamma where the parameter is declared to be at least 0,
# else a normal one. Its mean is that of the released numbers, its variance theirs less the noise's. Given a released
# number, the true one has the posterior, prior times the law of the noise; everything above stays as it is, with
# that in place of the law of the noise. It is free, as post-processing.
#
# A parameter of whole numbers has its mass there alone, with a prior and without one: the posterior of a whole number k
# is in proportion to the density of the noise at the released number less k, times the prior's mass within 1/2 of k.
#
# Off where there are few numbers, where noise is small beside the spread (nothing to win), and where the released
# numbers contradict it: shares of the fitted law below each of them have to be spread evenly (the Kolmogorov distance).
# A few numbers far from all others would fail that, and a gamma of their variance cost half as much again as none. The
# variance is at least its standard error: a prior that is too wide only wins less.
_FEWEST, _MOST_LEARNT = 12, 5000
_SMALL = 0.03
_CELLS = 320
_FAR = 16.0
# Up to this scale whole numbers lie further from each other than cells do.
_MOST_APART = 10.0


def _learnt(
    model: Program, noise: NoiseDesign, rows: Integers, some: Integers, first: Integers, b: Floats, laplace: Mask
) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Tables for those of ``rows`` whose number is one entry of a parameter that a prior could be learnt of.

    ``some`` : which of ``rows`` (p,) are one number times a factor; ``first`` (p,) : where it stands in ``recover``.
    """
    part = noise.parts["scalar"]
    measured, law = part.measurement, part.distribution
    queries = measured.queries
    assert law is not None
    terms = np.bincount(queries.row, minlength=queries.height)
    entry, factor = np.zeros(queries.height, dtype=np.int64), np.zeros(queries.height)
    entry[queries.row], factor[queries.row] = queries.column, queries.coefficient
    number = measured.recover.indices[first[some]]
    single = terms[number] == 1
    some, number = some[single], number[single]
    gain = measured.recover.data[first[some]] * factor[number]
    theta = b[rows[some]] / gain
    scale = float(law.scale) / np.abs(factor[number])
    sigma = float(law.standard_deviation) / np.abs(factor[number])
    tables: list[Table] = []
    notes: list[str] = []
    for block in model.affine.private_blocks:
        mine = np.flatnonzero((entry[number] >= block.offset) & (entry[number] < block.offset + block.size))
        once = mine[np.unique(entry[number][mine], return_index=True)[1]]
        low = float(np.min(block.parameter.entry_range[0], initial=np.inf))
        prior = _fitted(theta[once], scale[once], sigma[once], laplace[some[once]], low)
        size = float(np.max(scale[mine], initial=0.0))
        whole = not block.why_not_integer and size <= _MOST_APART and bool((scale[mine] > (1 - 1e-9) * size).all())
        if not (prior or whole) or not 0 < mine.size <= _MOST_LEARNT:
            continue
        # The row's noise is the released number less the true one, times the factor.
        sign = np.where(gain[mine] > 0, -1.0, 1.0)
        if whole:
            places, posterior = _on_whole_numbers(theta[mine], size, laplace[some[mine]], prior)
            values, shift = places / size, sign * (np.rint(theta[mine]) - theta[mine]) / size
        else:
            assert prior is not None
            posterior, values, shift = _posterior(theta[mine], scale[mine], laplace[some[mine]], prior), _cells(), 0.0
        tables.append(Table(some[mine], values, np.where(sign[:, None] < 0, posterior[:, ::-1], posterior), shift))
        if prior is None:
            continue
        notes.append(f"{block.name}: {prior.words} was learnt from the released numbers")
    return tuple(tables), tuple(notes)


def _cells() -> Floats:
    """(g,) middles of the cells of a standard law."""
    edges = np.linspace(-_FAR, _FAR, _CELLS + 1)
    return (edges[1:] + edges[:-1]) / 2


@dataclass(frozen=True)
class _Prior:
    """A gamma or a normal law of this mean and variance."""

    mean: float
    variance: float
    gamma: bool

    def below(self, theta: Floats) -> Floats:
        if self.gamma:
            return np.asarray(gammainc(self._shape, np.maximum(theta, 0.0) * self.mean / self.variance))
        return np.asarray(ndtr((theta - self.mean) / math.sqrt(self.variance)))

    def quantile(self, share: Floats) -> Floats:
        if self.gamma:
            return np.asarray(gammaincinv(self._shape, share) * self.variance / self.mean)
        return self.mean + math.sqrt(self.variance) * np.asarray(ndtri(share))

    @property
    def _shape(self) -> float:
        return self.mean**2 / self.variance

    @property
    def words(self) -> str:
        kind = "gamma" if self.gamma else "normal"
        return f"a {kind} prior (mean {number(self.mean)}, deviation {number(math.sqrt(self.variance))})"


def _fitted(theta: Floats, scale: Floats, sigma: Floats, laplace: Mask, low: float) -> _Prior | None:
    """The prior by moments of released numbers ``theta`` (k,); None where it is off."""
    count = theta.size
    if count < _FEWEST:
        return None
    mean, total, noisy = float(theta.mean()), float(theta.var(ddof=1)), float((sigma**2).mean())
    # The standard error of a variance, for tails as heavy as Laplace's.
    variance = max(total - noisy, total * math.sqrt(5 / count))
    prior = _Prior(mean, variance, low >= 0)
    if noisy < _SMALL * variance or (prior.gamma and mean <= 0):
        return None
    draws = prior.quantile((np.arange(200) + 0.5) / 200)
    gap = (theta[:, None] - draws) / scale[:, None]
    half = np.exp(-np.abs(gap)) / 2
    shares = np.sort(np.where(laplace[:, None], np.where(gap < 0, half, 1 - half), ndtr(gap)).mean(axis=1))
    ends = np.arange(count + 1) / count
    distance = float(np.maximum(ends[1:] - shares, shares - ends[:-1]).max())
    return prior if distance < 1 / math.sqrt(count) else None


def _posterior(theta: Floats, scale: Floats, laplace: Mask, prior: _Prior) -> Floats:
    """(p, g) masses of the true number at ``theta + scale z`` for the cells z, each row adding up to one: the prior's
    mass in the cell (a density would be infinite at 0) times the density of the noise."""
    z = _cells()
    edges = theta[:, None] + scale[:, None] * np.linspace(-_FAR, _FAR, _CELLS + 1)
    noise = np.where(laplace[:, None], np.exp(-np.abs(z)), np.exp(-0.5 * z * z))
    masses = np.diff(prior.below(edges), axis=1) * noise
    total = masses.sum(axis=1, keepdims=True)
    flat = noise / noise.sum(axis=1, keepdims=True)
    return np.where(total > 1e-200, masses / np.where(total > 1e-200, total, 1.0), flat)


def _on_whole_numbers(theta: Floats, scale: float, laplace: Mask, prior: _Prior | None) -> tuple[Floats, Floats]:
    """(g,) whole numbers i, and (p, g) masses of the true number at the whole number next to ``theta`` plus i, each row
    adding up to one."""
    far = math.ceil(_FAR * scale) + 1
    places, nearest = np.arange(-far, far + 1.0), np.rint(theta)[:, None]
    z = (nearest + places - theta[:, None]) / scale
    noise = np.where(laplace[:, None], np.exp(-np.abs(z)), np.exp(-0.5 * z * z))
    masses = (
        noise if prior is None else noise * np.diff(prior.below(nearest + np.append(places, far + 1) - 0.5), axis=1)
    )
    total = masses.sum(axis=1, keepdims=True)
    masses = np.where(total > 1e-200, masses, noise)
    return places, masses / masses.sum(axis=1, keepdims=True)


# ------------------------------------------------------------------ noise in rows with private coefficients
@dataclass(frozen=True)
class NoiseTerms:
    """The noise in each of p rows at x is a sum of independent draws, of standard deviations ``|M x + m|`` (l,): draw k
    is in row ``owner`` (l,), 0 to p - 1. ``M`` (l x n) sparse."""

    M: sp.csr_array
    m: Floats
    owner: Integers
    rows: int

    def sigma(self, x: Floats) -> Floats:
        """(p,) exact standard deviation of each row's noise at ``x`` (n,)."""
        square = (self.M @ x + self.m) ** 2
        return np.sqrt(np.bincount(self.owner, weights=square, minlength=self.rows))


def noise_terms(model: Program, noise: NoiseDesign, rows: Integers) -> NoiseTerms:
    """Of ``rows`` (p,), from ``recover``: a number that several coefficients of a row are made of is one draw."""
    place = np.full(model.affine.rows, -1)
    place[rows] = np.arange(rows.size)
    at, n = model.form.matrix_positions(), model.affine.variables
    lines: list[sp.csr_array] = [sp.csr_array((0, n))]
    sides, owners = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    for group in noise.numbers:
        lead = noise.parts[group[0]]
        if lead.distribution is None:
            continue
        # Entry by entry: the row it is in, the number it takes, its column (n for the right-hand side), its size.
        found: list[tuple[Integers, Integers, Integers, Floats]] = []
        for name in group:
            part = noise.parts[name].measurement
            entry, number = (recover := part.recover.tocoo()).coords
            if name == "matrix":
                found.append((place[at[0]][entry], number, at[1][entry], recover.data))
            elif name == "scalar":
                side = np.full(entry.size, n)
                found.append((place[part.positions][entry], number, side, -recover.data))
        if not found:
            continue
        owner, number, column, size = (np.concatenate(each) for each in zip(*found, strict=True))
        mine, count = owner >= 0, lead.measurement.count
        pairs, line = np.unique((owner * count + number)[mine], return_inverse=True)
        deviation = float(lead.distribution.standard_deviation)
        both = sp.csr_array(sp.coo_array((deviation * size[mine], (line, column[mine])), shape=(pairs.size, n + 1)))
        lines.append(both[:, :n])
        sides.append(both[:, [n]].toarray().ravel())
        owners.append(pairs // count)
    return NoiseTerms(sp.csr_array(sp.vstack(lines)), np.concatenate(sides), np.concatenate(owners), rows.size)


# ------------------------------------------------------------------ default prices
def usual_prices(
    model: Program, options: Options, c: Floats | None, b: Floats | None, entries: Floats | None
) -> Prices:
    """``options.prices``; where there are none, those that ``options.service`` makes at the public level, or at these
    released numbers where there is no public level or it leaves no point."""
    if options.prices is not None:
        return options.prices
    at = level(model)
    return default_prices(model, options, c, b, entries) if at is None else _made_of(model, options.service, at.dual)


def default_prices(
    model: Program, options: Options, c: Floats | None, b: Floats | None, entries: Floats | None
) -> Prices:
    """Prices at which a row is short with probability ``1 - options.service``: its multiplier y over ``1 - service``.

    By the condition of optimality (``priced.py``) ``y = price F``, so that F is ``1 - service`` where y stays what it
    is. ``c`` (n,), ``b`` (m,), ``entries`` : private parts at a public level, or as released; None: public. Multipliers
    are those of the program without integrality, with private rows giving way where they leave no point. A row without
    a multiplier gets the median of the others.

    Equalities: missing one on the side that saves cost has the price of a shortage, on the other side y; without a
    multiplier, that side is where it is ``short_below``. Equal prices would give back the released numbers as they are:
    ``F = (y + p) / 2 p`` is about a half.
    """
    return _made_of(model, options.service, multipliers(model, options, (c, b, entries)).dual)


def multipliers(
    model: Program, options: Options, numbers: tuple[Floats | None, Floats | None, Floats | None]
) -> Outcome:
    """The outcome of the program at these private parts (as ``default_prices``), without integrality and prices: what a
    unit of every row costs, and the point, of which ``priced.expected_cost`` makes a forecast."""
    none = np.zeros(0, dtype=np.int64)
    program = relaxed_program(model, *numbers, np.zeros(model.affine.rows)).with_(boolean=none, integer=none)
    return solve_released(model, options, program)


def _made_of(model: Program, service: float, found: Floats | None) -> Prices:
    rows, equal = priced_rows(model), model.affine.equalities()
    dual = np.where(rows, 0.0 if found is None else found, 0.0)
    size = np.abs(dual)
    some = size > 1e-9 * size.max(initial=0.0)
    if not some.any():  # no private row binds: any price keeps them
        size, some = np.where(rows, max(float(np.abs(model.form.c0).max(initial=0.0)), 1.0), 0.0), rows
    usual = float(np.median(size[some])) if some.any() else 0.0
    size = np.where(rows & ~some, usual, size)
    short, surplus = size / (1 - service), np.where(equal, size, 0.0)
    saves_above = ~equal | np.where(some, dual > 0, ~short_below(model))
    return Prices(np.where(saves_above, short, surplus), np.where(saves_above, surplus, short))


def short_below(model: Program) -> Mask:
    """(m,) equalities ``A_i x = b_i`` that are short where ``A_i x`` is below b_i: those in which private numbers count
    positively in b_i, or in none."""
    scalar = model.form.scalar
    return np.bincount(scalar.row, weights=scalar.coefficient, minlength=model.affine.rows) >= 0


def priced_rows(model: Program) -> Mask:
    """(m,) the private rows that can have a price: inequalities and equalities that the user wrote. Rows of a split
    expression are not constraints of the user's, and other cones have no amount in the user's units."""
    mask = model.form.private_rows.copy()
    for block in model.affine.cones:
        if block.constraint < 0 or block.kind not in ("zero", "nonneg"):
            mask[block.rows] = False
    return mask


def unserved(prices: Prices, dual: Floats) -> Mask:
    """(m,) rows that it does not pay to serve: their price is at or below their multiplier ``dual`` (m,).

    By the condition of optimality the multiplier of a priced row lies between ``-below`` and ``above``. A row whose
    multiplier without slack is as large costs as much to meet as to miss, so it is not met at all.
    """
    near = 1 - 1e-6
    return ((prices.above > 0) & (dual >= near * prices.above)) | ((prices.below > 0) & (-dual >= near * prices.below))
