"""Block votes: random disjoint groups of records vote for the subspace that they span."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import scipy.stats as stats

from dpmodel._types import Integers
from dpmodel.contract import Mechanism, Options, Progress, Serves, Verdict, no_progress
from dpmodel.exact.model import Found, PrivateVectors, known_of
from dpmodel.exact.stable_span import consistent, discrete, eligible, no_subspace
from dpmodel.exact.subspaces import Basis, ExactRows, Field
from dpmodel.forecast import Forecast, RowsMissed, capped
from dpmodel.privacy import NoiseSource, random_labels
from dpmodel.text import number

# Rows beyond the dimension in a block, so that random rows over any field span it but for one time in 2^4.
_SPARE = 4
_FULL_RANK = 1 - 2.0**-_SPARE
# Votes may come by this many standard deviations short of their expectation before the forecast is in doubt.
_SHORT = 3.0


@dataclass(frozen=True)
class Blocks:
    """How to vote, from public facts alone: ``count`` blocks, of which those with ``size`` rows vote (with their
    first ``size`` rows) for subspaces of ``dimension``; ``scale`` of the noise and the ``threshold`` of the winner."""

    count: int
    size: int
    dimension: int
    scale: float
    threshold: int

    @property
    def turnout(self) -> float:
        """Share of the blocks that get ``size`` rows, when there are as many records as expected."""
        return float(stats.poisson.sf(self.size - 1, self.size * _mean_over_size(self.size)))


@dataclass(frozen=True)
class BlockVotes(Mechanism[PrivateVectors]):
    """Every record goes to a random block; full blocks vote for the subspace that their rows span; the winner is told.

    Source
        Sample and aggregate (Nissim, Raskhodnikova and Smith 2007) over a stability histogram (Korolova, Kenthapadi,
        Mishra and Ntoulas 2009): the simple alternative to KMMST24 where a share of the vectors is corrupted.
    Privacy
        Labels 0 .. B - 1 of the records are independent, uniform and secret. Take the labels of all records but the one
        in question as given: what they are has the same distribution on both databases (leaving a record out of a list
        of independent labels leaves independent labels), so it suffices to argue for fixed ones. The record then enters
        one block and, through "the first ``size`` rows in the order of the records", no other. So the histogram of
        votes changes in one vote, which moves from one subspace a to another a', appears, or goes, under add-remove and
        replace-one alike. Released is the subspace with the largest count plus discrete Laplace noise of scale
        2/epsilon, among those with a vote, if that is at least the threshold t, together with its noisy count; ties go
        to the least canonical basis. Compare the run restricted to subspaces that have votes on both databases: their
        counts move by at most 2 in the 1-norm, by at most 1 where one of a, a' has votes on one side only, and not at
        all where both have. A subspace with votes on one side only has exactly one vote, and it changes the outcome
        only if its noisy count reaches t, which has probability ``q = Pr[1 + noise >= t]``. So for every set of
        outcomes, P <= (e^epsilon' P' + extra), where (epsilon', extra) is (epsilon, 0), (epsilon/2, max(1,
        e^(epsilon/2)) q) or (0, 2 q): (epsilon, delta)-DP for ``delta = max(2, e^(epsilon/2)) q``. t is the least
        integer for which this is at most delta.
    Utility
        With a share c of corrupted vectors a block of s rows is clean with probability (1 - c)^s. If about
        ``B turnout (1 - c)^s`` clean votes exceed t by three standard deviations and the noise, the subspace is found.
        That blocks of clean vectors span it is assumed (random vectors do; a subspace with rare directions is not found
        this way), so the statement is a prediction.
    Cost
        One echelon form per block: n / (d + 4) forms of (d + 4) x d matrices.
    """

    serves: ClassVar[Serves] = Serves(PrivateVectors)
    name: str = "block-votes"
    source: str = "sample and aggregate (Nissim, Raskhodnikova and Smith 2007), stability histogram"

    def eligible(self, model: PrivateVectors, options: Options) -> Verdict:
        verdict = eligible(model, options)
        if verdict.eligible and model.corrupted is None:
            words = "for vectors of which a share is corrupted: give corrupted=, a public guess of that share"
            return Verdict(False, words)
        return verdict

    def forecast(self, model: PrivateVectors, options: Options) -> Forecast:
        blocks = plan_blocks(model, options)
        share = model.corrupted or 0.0
        each = blocks.turnout * _FULL_RANK * (1 - share) ** blocks.size / (blocks.size * _mean_over_size(blocks.size))
        wanted = blocks.threshold + blocks.scale * math.log(1 / options.beta)
        # votes - 3 sqrt(votes) >= wanted
        votes = (_SHORT / 2 + math.sqrt(_SHORT**2 / 4 + wanted)) ** 2
        needed = votes / each if each > 0 else math.inf
        missed, known = share * model.expected, known_of(model)
        found = model.expected >= needed
        begin = f"nothing is likely to be found among {model.expected} vectors:"
        if found:
            begin = f"predicted to miss only the corrupted vectors, {number(missed)} of {model.expected};"
        words = (
            f"{begin} blocks of {blocks.size} vectors vote, a share of {number((1 - share) ** blocks.size)} of them "
            f"clean; {number(needed)} vectors are needed for a winner"
        )
        forecast = Forecast(
            statement=words,
            epsilon=options.epsilon,
            delta=options.delta,
            beta=options.beta,
            proved=False,
            work=f"{blocks.count} echelon forms",
            noise={
                "blocks": blocks.count,
                "block_size": blocks.size,
                "scale": blocks.scale,
                "threshold": blocks.threshold,
            },
            caveats=("blocks of vectors outside the corrupted ones are assumed to span the subspace",),
            error=RowsMissed(missed=missed if found else known.missed, needed=needed),
        )
        return capped(forecast, known)

    def run(
        self, model: PrivateVectors, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        source, blocks = discrete(noise), plan_blocks(model, options)
        rows = model.read_rows()
        rows = rows[(rows != 0).any(axis=1)]
        labels = random_labels(noise, rows.shape[0], blocks.count)
        votes = count_votes(model.field, rows, labels, blocks, solvable=model.task == "equations", progress=progress)
        bases = sorted(votes, key=lambda basis: (basis.pivots, basis.rows.ravel().tolist()))
        if bases:
            counts = source.discrete_laplace(np.array([votes[basis] for basis in bases]), blocks.scale)
            best = int(np.argmax(counts))
            if counts[best] >= blocks.threshold:
                return Found("found", bases[best], notes=(f"{int(counts[best])} blocks voted for it (noisy count)",))
        return Found("nothing", no_subspace(model), notes=(f"no subspace got {blocks.threshold} votes (noisy counts)",))


def plan_blocks(model: PrivateVectors, options: Options) -> Blocks:
    """Blocks of as many rows as the wanted dimension and four more."""
    dimension = min(model.rank, model.dimension - 1) if model.task == "equations" else model.rank
    size = dimension + _SPARE
    count = max(int(model.expected / (size * _mean_over_size(size))), 1)
    scale = 2.0 / options.epsilon * (1 + 2.0**-50)  # rounded up
    return Blocks(count, size, dimension, scale, threshold_of(options.epsilon, options.delta))


def threshold_of(epsilon: float, delta: float) -> int:
    """Least t with ``max(2, e^(epsilon/2)) Pr[1 + Z >= t] <= delta``, Z discrete Laplace of scale 2/epsilon.

    For k >= 1, ``Pr[Z >= k] = e^(-k epsilon/2) / (1 + e^(-epsilon/2))``.
    """
    log_tail = math.log(delta) - max(math.log(2.0), epsilon / 2)
    k = -(log_tail + math.log1p(math.exp(-epsilon / 2))) / (epsilon / 2)
    return max(math.ceil(k * (1 + 1e-12)) + 1, 2)


def count_votes(
    field: Field,
    rows: ExactRows,
    labels: Integers,
    blocks: Blocks,
    *,
    solvable: bool = False,
    progress: Progress = no_progress,
) -> dict[Basis, int]:
    """Votes of the full blocks. ``solvable`` : blocks whose equations contradict each other do not vote."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(blocks.count + 1))
    votes: dict[Basis, int] = {}
    for block in range(blocks.count):
        members = order[starts[block] : starts[block + 1]][: blocks.size]
        if block % 256 == 0:
            progress(f"votes of {blocks.count} blocks", block / blocks.count)
        if members.size < blocks.size:
            continue
        basis = field.echelon(rows[members])
        if not solvable or consistent(basis):
            votes[basis] = votes.get(basis, 0) + 1
    return votes


@lru_cache(maxsize=256)
def _mean_over_size(size: int) -> float:
    """Mean rows per block, over ``size``, with which the most blocks get ``size`` rows of a given number of rows."""
    factors = np.linspace(1.0, 3.0, 81)
    return float(factors[np.argmax(stats.poisson.sf(size - 1, size * factors) / factors)])


BLOCK_VOTES = BlockVotes()
