"""The span of one-hot records: common categories by noisy counts, then stable spans of groups by rare category."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.stats import norm

from dpmodel._types import Array, Integers, Mask
from dpmodel.contract import Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.fields import largest
from dpmodel.exact.model import Found, PrivateVectors
from dpmodel.exact.stable_span import discrete, eligible, no_subspace, release_flag, thresholds
from dpmodel.exact.subspaces import Basis, ExactRows
from dpmodel.forecast import Forecast, RowsMissed
from dpmodel.privacy import NoiseSource, zcdp_rho
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpmodel.text import number

# Levels of the quotient of one category that are read: it has one where the common records span all there is.
_LEVELS = 2


@dataclass(frozen=True)
class CategorySpan(Mechanism[PrivateVectors]):
    """Find the span of one-hot records with common categories, and add what each rare one spans by itself.

    Algorithm. ``blocks`` are public sets of columns, each the one-hot encoding of one category. A record *has* the
    category of its only non-zero entry in a block, none where all entries are zero; records with two non-zero
    entries in a block are left out. (1) All categories are counted, with discrete noise; common are those with
    a noisy count of at least ``gap`` plus what one of m categories is about to pass by chance, and
    the largest of each block. (2) Records are put into disjoint groups: those without uncommon categories, those
    with a single one, a group for each; the others are left out. (3) V_0 is the largest subspace that
    ``StableSpan`` tells of the first group. (4) For each uncommon category u, ``StableSpan`` tells a subspace of the
    records of group u modulo V_0. Released is the sum of V_0 and of these.

    Why: sets of one dimension are as many as the difference between two neighbouring counts of rare categories, which
    is nearly never what a release needs; within a group there is one rare category, and its whole count.

    Source
        This package; KMMST24, Algorithms 1 and 2, in step (3) and (4).
    Privacy
        (1) A record has at most one category in each of b blocks, so it moves B = b counts by one (replaced: 2 b):
        discrete Laplace noise of scale B / e_1 is e_1-DP, discrete Gaussian noise of variance B / (2 rho), rho =
        ``zcdp_rho(e_1, delta / 2)``, is (e_1, delta / 2)-DP. Which is drawn is public. What is common is a function of
        the noisy counts. (2) To which group a record belongs is decided by that and by the record alone.
        (3, 4) *Add-remove*: one record lies in one group. If in group 0: its release is (e_2, delta)-DP by the
        argument of ``StableSpan``, and given V_0 all others read the same records. If in group u: V_0 has the same law,
        and given V_0, group u modulo V_0 is a file with one vector more, (e_2, delta)-DP, the other groups have the
        same. *Replace-one*: in one group, as ``StableSpan`` under replace-one. From group g to group h: each has one
        vector less or more. With scale 2 / e_2 the counts of each lose at most e_2 / 2, together e_2. Outside the event
        that in g or h a level passes which exists on one side only, all bases told are the same functions of
        the noisy counts (V_0 is told before the others, so this holds group after group); the event has at most
        probability T(gap - 1) + T(gap) in each group, and ``2 T(gap) + 2 T(gap - 1)`` is no more than the delta that
        ``thresholds`` pays for under replace-one. In sequence e_1 + e_2 = epsilon; deltas add up.
    Utility
        Every vector of the answer is a combination of records (probability 1 within the stable release), so a category
        that nobody has is in no answer. Missed are records with two uncommon categories that are not told, and those of
        categories with fewer records than ``gap``, about. What that comes to depends on the data: the
        forecast is a prediction, for records spread evenly over the categories of each block: all are common if each
        has ``least`` and what noise takes, and level d then passes if d times ``gap`` records, and what noise takes,
        make as many sets of d (simulated: that was enough). Not served: ``rank``, ``corrupted``, and tables with so few
        columns in blocks that the budget of their counts costs more dimensions than these can add.
    Cost
        One partition of most records, small ones of the rest, one draw per category and a few per uncommon one.

    Parameters
    ----------
    share : of epsilon for the counts of categories. Chosen on UCI Adult, at epsilon .5, 1 and 2.
    """

    serves: ClassVar[Serves] = Serves(PrivateVectors)
    name: str = "category-span"
    source: str = "KMMST24, Algorithms 1 and 2, by groups of records"
    share: float = 0.2

    def eligible(self, model: PrivateVectors, options: Options) -> Verdict:
        if not model.blocks:
            return Verdict(False, "needs blocks=: which columns are one category's one-hot encoding is public")
        if model.corrupted is not None:
            return Verdict(False, "corrupted= is for stable-span: here a subspace that stands out in part is not told")
        if model.rank < model.dimension:
            return Verdict(False, "rank= is for stable-span: the spans of groups add up, whatever the public bound")
        columns = sum(len(block) - 1 for block in model.blocks)
        if columns <= self.share * model.dimension:
            return Verdict(
                False,
                "too few columns are of categories: at best as many dimensions are found as the counts of categories "
                "make stable-span's threshold larger",
            )
        return eligible(model, replace(options, epsilon=(1 - self.share) * options.epsilon))

    def forecast(self, model: PrivateVectors, options: Options) -> Forecast:
        law, least, rest = self.counting(model, options)
        rule = thresholds(rest.epsilon, rest.delta, model.neighbors)
        twin = (Gaussian if isinstance(law, Gaussian) else Laplace)(law.scale)
        tail = twin.max_abs_quantile(sum(map(len, model.blocks)), options.beta)
        # All are common then, and sets of d records as many as a level needs to pass, but for the noise of two counts.
        sets = rule.gap + 2 * rule.scale * math.log(4 / options.beta)
        needed = math.ceil(max(max(map(len, model.blocks)) * (least + tail), model.dimension * sets))
        return model.forecast(
            options,
            f"predicted to miss no record if these are spread evenly over the categories and {number(needed)} or more; "
            f"else categories of fewer than about {rule.gap}, and records with two rare ones",
            RowsMissed(missed=0.0, needed=float(needed)),
            proved=False,
            work=f"one partition in dimension {model.dimension}, and one for every rare category",
            noise={"noise on a category's count": str(law), "scale": rule.scale, "threshold": rule.gap},
            caveats=("what is missed depends on how rare the categories are",),
        )

    def run(
        self, model: PrivateVectors, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        rows = model.read_rows()
        columns = np.concatenate([np.asarray(block) for block in model.blocks])
        has, regular = categories(rows, model.blocks)
        law, least, rest = self.counting(model, options)
        counts = np.bincount(has[regular][has[regular] >= 0], minlength=model.dimension)[columns].astype(np.int64)
        source = discrete(noise)
        draw = source.discrete_gaussian if isinstance(law, Gaussian) else source.discrete_laplace
        noisy = draw(counts, law.scale)
        common = noisy >= least
        ends = np.cumsum([len(block) for block in model.blocks])
        for first, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            common[first + int(np.argmax(noisy[first:stop]))] = True
        rare = columns[~common]
        is_rare = np.zeros(model.dimension + 1, dtype=bool)
        is_rare[rare] = True  # place -1, no category, is not
        uncommon = is_rare[has]
        alone = uncommon.sum(axis=1)
        keep = np.setdiff1d(np.arange(model.dimension), rare)
        progress("the span of records with common categories", 0.1)
        base = self._told(model, rows[regular & (alone == 0)][:, keep], rest, noise, keep.size)
        spanning = [np.asarray(_placed(base.field.integral(base.rows), keep, model.dimension))]
        normals = base.field.integral(base._normals())
        free = np.setdiff1d(np.arange(keep.size), base.pivots)
        single = regular & (alone == 1)
        own = np.where(uncommon, has, -1).max(axis=1, initial=-1)
        found = 0
        for category in rare.tolist():  # public by now; each has its draws, whether or not anyone has it
            group = rows[single & (own == category)]
            quotient = np.column_stack([_product(model, group[:, keep], normals), group[:, category]])
            told = self._told(model, quotient, rest, noise, _LEVELS)
            found += told.dimension > 0
            lifted = told.rows.copy()
            if model.field.order is None:  # normal i is its canonical one times its entry at the free column
                lifted[:, :-1] = lifted[:, :-1] / normals[np.arange(free.size), free].astype(object)
            back = model.field.integral(lifted)
            spanning.append(_placed(back, np.append(keep[free], category), model.dimension))
        progress("adding what the rare categories span", 0.9)
        answer = model.field.echelon(np.vstack(spanning))
        words = (
            f"{int(common.sum())} of {columns.size} categories are common by noisy counts, {found} of the others were "
            "found; records with two others are not looked at"
        )
        if not answer.dimension:
            return Found("nothing", no_subspace(model), notes=(words,))
        return Found("found", answer, notes=(words,))

    def counting(self, model: PrivateVectors, options: Options) -> tuple[Laplace | Gaussian, float, Options]:
        """The noise on a category's count, the noisy count from which it is common, and the budget that is left.

        The law with which less is enough to be common; Gaussian noise spends half of delta. Public.
        """
        m, moved = sum(map(len, model.blocks)), len(model.blocks) * (1 if model.neighbors == "add-remove" else 2)
        spent = self.share * options.epsilon
        pure = replace(options, epsilon=options.epsilon - spent)
        half = replace(pure, delta=options.delta / 2)
        laplace = moved / spent * (1 + 2.0**-50)
        gaussian = math.sqrt(moved / (2 * zcdp_rho(spent, options.delta / 2))) * (1 + 2.0**-50)
        found: list[tuple[Laplace | Gaussian, float, Options]] = []
        for law, beyond, rest in (
            (DiscreteLaplace(laplace), laplace * math.log(max(m / 2, 1.0)), pure),
            (DiscreteGaussian(gaussian), gaussian * max(float(norm.isf(min(1 / m, 0.5))), 0.0), half),
        ):
            found.append((law, thresholds(rest.epsilon, rest.delta, model.neighbors).gap + beyond, rest))
        return min(found, key=lambda each: each[1])

    def _told(self, model: PrivateVectors, rows: ExactRows, rest: Options, noise: NoiseSource, rank: int) -> Basis:
        """The largest subspace that the stable partition of a group tells; {0} if none."""
        d = rows.shape[1]
        group = PrivateVectors(model.field, d, "span", model.neighbors, min(rank, d), None, 0, lambda: rows)
        flag = release_flag(group, rest, noise)
        return flag[0] if flag else no_subspace(group)


CATEGORY_SPAN = CategorySpan()


def categories(rows: ExactRows, blocks: tuple[tuple[int, ...], ...]) -> tuple[Integers, Mask]:
    """(n, b) column of the category that each record has in each block, -1 for none; (n,) no block has two entries."""
    has = np.full((len(rows), len(blocks)), -1, dtype=np.int64)
    regular = np.ones(len(rows), dtype=bool)
    for place, block in enumerate(blocks):
        present = np.asarray(rows[:, block] != 0, dtype=bool)
        number_of = present.sum(axis=1)
        regular &= number_of <= 1
        has[:, place] = np.where(number_of > 0, np.asarray(block)[present.argmax(axis=1)], -1)
    return has, regular


def _product(model: PrivateVectors, rows: ExactRows, normals: ExactRows) -> Array:
    """(n, k) ``rows @ normals.T`` exactly."""
    small = largest(rows) * largest(normals) * max(rows.shape[1], 1) < 2**62
    if model.field.order is None and small:
        return np.asarray(rows.astype(np.int64) @ normals.astype(np.int64).T)
    return model.field.matmul(rows, normals.T)


def _placed(rows: ExactRows, columns: Integers, d: int) -> ExactRows:
    out = np.zeros((len(rows), d), dtype=rows.dtype)
    out[:, columns] = rows
    return out
