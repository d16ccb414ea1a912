"""Measure the marginals of a workload once: Gaussian noise on residuals, or Laplace noise on the marginals."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpmodel._types import Floats, Integers, Mask, PrivateArray
from dpmodel.errors import SpecificationError
from dpmodel.kernels.direct_measurement import ROUNDING
from dpmodel.marks.records import Neighbors
from dpmodel.privacy import NoiseSource, gaussian_mu
from dpmodel.privacy.distributions import DiscreteLaplace
from dpmodel.privacy.noise import DiscreteNoiseSource
from dpmodel.released.pinned_fit import Fit
from dpmodel.released.residuals import Loss, Residuals, best_variances, from_tables, largest_change

# Coordinates are cut at this many times what one record moves all of them, over the root of their number.
_CUT = 2.0**36
_LARGEST_COUNT = 2**52
# Of mu^2, for the number of records where it is private.
_SHARE = 0.005
# What is better after the fit, chosen on pairs of titanic and adult. From this ``drowned`` on all marginals alike; for
# the mean these with a share for columns, from another on; and for fewer records than these standard deviations of a
# cell columns alone, all but independent; with Laplace noise, for the mean, also from the last ``drowned`` on. A fit
# that shrinks, for the mean, is better before that.
_EVEN = {"mean": 0.2, "max": 1.0}
_COLUMNS, _COLUMN_SHARE = 1.5, 0.4
_ALONE, _ALONE_SHARE = {"mean": 20.0, "max": 12.0}, 0.95
_PURE_ALONE = 2.5
_SHRUNK = 0.02


def drowned(noise: MarginalNoise, total: float) -> float:
    """Standard deviation of a cell over the records in a cell, in the mean; 0 for noise of less than 5 records, which
    the fit copes with in sparse tables."""
    cells = noise.residuals.tables.cells
    deviation = float(noise.deviations @ cells / cells.sum())
    return deviation * float(cells.mean()) / max(total, 1.0) if deviation >= 5 else 0.0


@dataclass(frozen=True)
class MarginalNoise:
    """How the marginals of a workload are measured, from public facts.

    Source
        ResidualPlanner (Xiao, He, Zhang and Kifer 2023) with Gaussian noise; Laplace noise on marginals (Dwork,
        McSherry, Nissim and Smith 2006), as a residual of k columns moves by up to 2^k times as much in the 1-norm.
    Privacy
        The only reading of private values is in ``run``: tables of counts, in which a record adds 1 to one cell each.

        *"residuals".* f has the coordinates of all residuals, each divided by sqrt(s_A). Helmert's basis is
        orthonormal, so one record moves f by at most D = sqrt(``largest_change``), for the neighbors that hold. Noise
        of standard deviation D (1 + 2^-10) / mu is added, mu the largest for which the Gaussian mechanism is (epsilon,
        delta)-DP (Balle and Wang 2018).

        Rounding: counts are cut at ``Residuals.most``, so that all brackets of the basis are exact 64-bit integers. A
        coordinate then has at most three relative roundings of 2^-53, and is cut at L = 2^36 D / sqrt(t), t
        coordinates: between two neighbours rounding adds at most 2 sqrt(t) 6 2^-53 L < 2^-13 D to the 2-norm. That, and
        the last digits of the public factors of the basis, is inside 2^-10 D. Cuts of coordinates move no two values
        apart. Where a count is cut, a record that is added moves each part by what it moved before or not at all. One
        that is replaced could move only one of two cells, which may be further: there no count is cut, as tables of
        more records than that, a public number, are refused.

        Where the number n of records is private, half a per cent of mu^2 goes to a noisy n first, unless the noise is
        too small to drown anything: it says whether it drowns the cells, and then residuals get the variances that they
        have when all marginals are measured alike, or mostly columns. Gaussian mechanisms compose as the sum of mu^2,
        also where the second is chosen by the answer of the first (Dong, Roth and Su 2022, theorem 3.2).

        *"marginals".* Only marginals that no other has in it are measured. A record moves each by 1 in the 1-norm (by 2
        where it is replaced), so discrete Laplace noise of scale b_M on counts costs the sum of that over b_M, which is
        epsilon (2^-40 of it is left for the rounding of the scales). Counts are integers, cut like those above, and
        sums at 2^52: neither moves neighbours further. Where noise drowns what columns share, the counts of columns are
        measured in place of the marginals, by the same rule: a record moves each of them likewise. Where the number of
        records is private, a noisy one comes first, half as precise as a marginal, by which that is chosen: epsilons
        add up, also where the second mechanism is chosen by the answer of the first.

        All that follows reads released and public numbers only.
    Utility
        Unbiased with the variances ``s`` of residuals, below the cuts.
    Cost
        One draw per cell; the basis is linear in the cells.

    Parameters
    ----------
    importance : (tables,) how many times an error counts.
    scale : "marginals": (tables,) of the noise, or of columns ``alone`` (parts,), inf where not measured. "residuals":
        (parts,) what a residual's coordinates are divided by, 0 where not measured. sigma : of the noise on the divided
        coordinates.
    s : (parts,) variance of each released residual. change : D above. mu : of all; first : share of
        mu^2, or of epsilon, for the number of records. alone : whether it is for columns, which the fit takes as
        independent: Laplace noise leaves the rest at 0 then.
    """

    residuals: Residuals
    kind: Literal["residuals", "marginals"]
    importance: Floats
    loss: Loss
    neighbors: Neighbors
    scale: Floats
    sigma: float
    s: Floats
    delta: float
    change: float = 0.0
    mu: float = 0.0
    first: float = 0.0
    alone: bool = False

    @property
    def deviations(self) -> Floats:
        """(tables,) exact standard deviation of a cell before the fit."""
        return np.asarray(np.sqrt(self.residuals.variance @ self.s))

    @property
    def expected(self) -> float:
        """The loss before the fit, in counts."""
        weighted, cells = self.importance * self.deviations, self.residuals.tables.cells
        return float(weighted.max() if self.loss == "max" else weighted @ cells / cells.sum())

    def at(self, mu: float, first: float, total: float | None) -> MarginalNoise:
        """Residual noise for this mu: with even marginals where ``total`` records drown in it; all but the share
        ``first`` of mu^2, which is left for a first number of records."""
        left = mu * math.sqrt(1 - first)

        def of(s: Floats) -> MarginalNoise:
            change = math.sqrt(largest_change(self.residuals, s, self.neighbors))
            sigma = change * (1 + ROUNDING) / left
            return replace(self, scale=np.sqrt(s), change=change, sigma=sigma, s=s * sigma**2, mu=mu, first=first)

        best = of(self.scale**2)
        deep = 0.0 if total is None else drowned(best, total)
        if total is None or deep < _EVEN[self.loss]:
            return best
        residuals, tables = self.residuals, self.residuals.tables
        precision = 1 / from_tables(residuals, np.zeros(int(tables.start[-1])), 1 / self.importance**2)[1]
        even = of((self.scale > 0) / precision)
        column = residuals.order == 1
        alone = even._few(total)
        if not column.any() or (deep < _COLUMNS if self.loss == "mean" else not alone):
            return even
        share = _ALONE_SHARE if alone else _COLUMN_SHARE
        each = share / (1 - share) * (self.importance**2).sum() / column.sum()
        precision[column] += each
        # The number of records is in every column, and pays for less than noisy tables of columns would have of it.
        precision[0] += 0.3 * each * (1 / residuals.parts.cells[column]).sum()
        return replace(of((self.scale > 0) / precision), alone=alone)

    def _few(self, total: float) -> bool:
        cells = self.residuals.tables.cells
        return float(self.deviations @ cells / cells.sum()) * _ALONE[self.loss] > total

    def columns_alone(self, total: float) -> MarginalNoise:
        """Laplace noise on columns for the same epsilon where so few records drown in that of the marginals."""
        column, precision = self.residuals.order == 1, float((1 / self.scale).sum())
        few = self._few(total) or (self.loss == "mean" and drowned(self, total) >= _PURE_ALONE)
        if not 0 < column.sum() < np.isfinite(self.scale).sum() or not few:
            return self
        scale = np.where(column, column.sum() / precision, np.inf)
        s = np.where(column, _variances(scale), 0.0)
        s[0] = (self.s[0] > 0) / (1 / (s * self.residuals.parts.cells)[column]).sum()
        return replace(self, scale=scale, s=s, alone=True)

    def fit(self, total: float) -> Fit:
        """The fit that is better with this noise, at a public or released number of records."""
        if self.alone:
            return "independent"
        return "shrunk" if self.loss == "mean" and drowned(self, total) >= _SHRUNK else "plain"

    def run(self, counts: PrivateArray, source: NoiseSource) -> tuple[Floats, MarginalNoise]:
        """(entries of parts,) released residuals, and the noise they have. ``counts`` : (entries of tables,)."""
        exact: Integers = np.minimum(counts.astype(np.int64), self.residuals.most)
        pure = self.kind == "marginals"
        if not self.first:
            return (self._of_marginals if pure else self._of_residuals)(exact, source), self
        records = np.minimum(exact[: self.residuals.tables.cells[0]].sum(keepdims=True), _LARGEST_COUNT)
        if pure:
            assert isinstance(source, DiscreteNoiseSource)
            scale = (1 - self.first) / self.first / float((1 / self.scale).sum())
            total, variance = float(source.discrete_laplace(records, scale)[0]), _variances(np.array([scale]))[0]
            then = self.columns_alone(total)
            released = then._of_marginals(exact, source)
        else:
            deviation = (1 + ROUNDING) / (self.mu * math.sqrt(self.first))
            total, variance = float(source.gaussian(records.astype(float), deviation)[0]), deviation**2
            then = self.at(self.mu, self.first, total)
            released = then._of_residuals(exact, source)
        s, share = then.s.copy(), variance / (variance + then.s[0])  # of the second, by precision
        released[0], s[0] = share * released[0] + (1 - share) * total, share * s[0]
        return released, replace(then, s=s)

    def _of_residuals(self, exact: Integers, source: NoiseSource) -> Floats:
        every, which = self.residuals.coordinates(exact)
        measured = self.scale[which] > 0
        divisor = self.scale[which][measured]
        f = every[measured] / divisor
        most = _CUT * self.change / math.sqrt(max(f.size, 1))
        released = np.zeros(measured.size)
        released[measured] = source.gaussian(np.clip(f, -most, most), self.sigma) * divisor
        return self.residuals.rebuilt(released)

    def _of_marginals(self, counts: Integers, source: NoiseSource) -> Floats:
        assert isinstance(source, DiscreteNoiseSource)
        tables, noisy = self.residuals.tables, np.zeros(counts.size)
        if self.alone:
            return self._of_columns(counts, source)
        for scale in np.unique(self.scale[np.isfinite(self.scale)]):
            at = (self.scale == scale)[tables.which]
            noisy[at] = source.discrete_laplace(counts[at], float(scale))
        return from_tables(self.residuals, noisy, _variances(self.scale))[0]

    def _of_columns(self, counts: Integers, source: DiscreteNoiseSource) -> Floats:
        parts = self.residuals.parts
        column = np.isfinite(self.scale)[parts.which]
        noisy, exact = np.zeros(column.size), np.minimum(self.residuals.summed(counts)[column], _LARGEST_COUNT)
        noisy[column] = source.discrete_laplace(exact, float(self.scale.min()))
        per_cell = 1 / parts.cells[parts.which[column]]  # the sum of a column by its precision, and one a column
        total = float(noisy[column] @ per_cell / (per_cell @ per_cell))
        released = parts.centred(noisy)
        released[0] = total
        return released


def design(
    residuals: Residuals,
    epsilon: float,
    delta: float,
    importance: Floats,
    loss: Loss,
    neighbors: Neighbors,
    total: float | None,
) -> MarginalNoise:
    """How to measure under this budget, ``total`` where public: the way of the least expected loss before the fit, of
    columns where noise drowns the rest.

    Raises
    ------
    SpecificationError
        Where no record moves any cell, for more records than counts are cut at, and where no noise can be drawn.
    """
    if neighbors == "replace-one" and total is not None and total > residuals.most:
        raise SpecificationError(
            f"marginals of {total:.4g} records",
            why=f"counts are cut at {residuals.most:.4g}, and a record that is replaced may not move a cut cell alone",
            remedy="neighbors='add-remove', or smaller marginals",
        )
    measured = np.ones(len(residuals.parts.sets), dtype=bool)
    measured[0] = total is None
    if not residuals.order.any() and not measured[0]:
        raise SpecificationError("marginals that no record can change", remedy="columns of two values or more")
    pure = None
    with suppress(SpecificationError):  # of a scale that cannot be drawn
        pure = _laplace(residuals, epsilon, importance, loss, neighbors, measured, delta == 0 and total is None)
    if delta > 0:
        s, mu = best_variances(residuals, importance, loss, measured), gaussian_mu(epsilon, delta)
        fixed = MarginalNoise(residuals, "residuals", importance, loss, neighbors, np.sqrt(s), 1.0, s, delta)
        plain = fixed.at(mu, 0.0, None)
        first = _SHARE if total is None and drowned(plain, 1.0) else 0.0
        then = plain.at(mu, first, total)
        if pure is None:
            return then
        if total is not None and (then.alone or (loss == "mean" and drowned(plain, total) >= _COLUMNS)):
            return min(then, pure.columns_alone(total), key=_column_deviation)
        if plain.expected <= pure.expected:
            return then
    if pure is None:
        raise SpecificationError(
            f"discrete Laplace noise for epsilon = {epsilon:.4g}",
            why="its scale, one over epsilon and by the weights of marginals, is beyond what can be drawn",
            remedy="a larger epsilon, weights that are closer to each other, or delta=1e-6 for Gaussian noise",
        )
    return pure if total is None else pure.columns_alone(total)


def _column_deviation(noise: MarginalNoise) -> float:
    """Standard deviation of a cell of a column, in the mean: what counts where noise drowns all that columns share."""
    column = noise.residuals.order == 1
    return float(np.sqrt(noise.residuals.p * noise.s)[column] @ noise.residuals.parts.cells[column])


def _laplace(
    residuals: Residuals,
    epsilon: float,
    importance: Floats,
    loss: Loss,
    neighbors: Neighbors,
    measured: Mask,
    count: bool,
) -> MarginalNoise:
    """Scales: ``sum importance^2 (cells) b^2`` at a given sum of 1 / b is least at the power -1/3 of the coefficient,
    the largest ``importance b`` at equal ones. ``count`` : first the records, where columns alone may be the choice."""
    sets = [frozenset(i for i in m if residuals.tables.sizes[i] > 1) for m in residuals.tables.sets]
    inner = {frozenset(a) for m in sets for k in range(len(m)) for a in itertools.combinations(m, k)}
    largest = np.array([m not in inner and m not in sets[:k] for k, m in enumerate(sets)])
    wish = (importance**2 * residuals.tables.cells) ** (-1 / 3) if loss == "mean" else 1 / importance
    moves = 1.0 if neighbors == "add-remove" else 2.0
    first = 1 / (2 * largest.sum() + 1) if count and 0 < (residuals.order == 1).sum() < largest.sum() else 0.0
    scale = wish * (1 / wish[largest]).sum() * moves / (epsilon * (1 - first)) * (1 + 2.0**-40)
    scale = np.where(largest, scale, np.inf)
    s = from_tables(residuals, np.zeros(int(residuals.tables.start[-1])), _variances(scale))[1] * measured
    if first:
        _variances(np.array([(1 - first) / first / (1 / scale).sum()]))  # refused here where it cannot be drawn
    return MarginalNoise(residuals, "marginals", importance, loss, neighbors, scale, 1.0, s, 0.0, first=first)


def _variances(scale: Floats) -> Floats:
    """(tables,) of discrete Laplace noise; not zero, where it is so small that it never is anything else."""
    return np.array(
        [max(DiscreteLaplace(b).standard_deviation ** 2, 1e-12) if np.isfinite(b) else np.inf for b in scale]
    )
