"""What maximum-likelihood post-processing is compared with: Laplace, HTree, Privlet, MWEM. ``--check`` tests them.

Neighbours differ by one person present or absent: one cell by 1. Every linear baseline is a transform and one noise
scale per coefficient; it is epsilon-private when every cell moves the coefficients by at most epsilon in units of
their scales, and the check measures exactly that. Noise is NumPy's: these are simulations and release nothing.

- LM(L): Laplace noise on the bins. LM(H): on all nodes of a tree, a range is the sum of the fewest nodes.
- HTree: Hay, Rastogi, Miklau, Suciu 2010, two passes of least squares over LM(H).
- Privlet: Xiao, Wang, Gehrke 2011. Their weights make all noise equal on the plain (+1, -1) Haar sums; generalised
  sensitivity 1 + log2(m) per axis (they state twice that: they replace a record). Tables: Haar along every axis.
- MWEM: Hardt, Ligett, McSherry 2012, with the number of people public, all 1-, 2- and 3-way marginal cells as queries,
  half the budget for choosing, and 50 sweeps over all measurements so far after every round.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from tests.benchmarks.measuring import Expectations, header, parser

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def padded(x: Floats, axis: int, size: int) -> Floats:
    """Zeros at the end of one axis: public cells that hold nobody."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return np.pad(x, widths)


# Trees ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CompleteTree:
    """All nodes over ``bins`` bins with branching k; bins are padded to a power of k. Levels from root to leaves."""

    bins: int
    branching: int

    @cached_property
    def height(self) -> int:
        """Number of levels."""
        levels, size = 1, 1
        while size < self.bins:
            size *= self.branching
            levels += 1
        return levels

    def levels(self, x: Floats) -> list[Floats]:
        """Exact sums (..., k^l) for l = 0..height-1 of x (..., bins)."""
        found = [padded(x, x.ndim - 1, self.branching ** (self.height - 1))]
        for _ in range(self.height - 1):
            found.append(found[-1].reshape(*x.shape[:-1], -1, self.branching).sum(axis=-1))
        return found[::-1]

    def noisy(self, x: Floats, epsilon: float, rng: np.random.Generator) -> list[Floats]:
        """Laplace noise of scale height/epsilon on every node."""
        return [level + rng.laplace(scale=self.height / epsilon, size=level.shape) for level in self.levels(x)]

    def answers(self, noisy: list[Floats], low: Integers, high: Integers) -> Floats:
        """(..., q) sums of bins low..high-1, each from the fewest nodes (no more than 2 (k - 1) a level)."""
        a, b, k = low.copy(), high.copy(), self.branching
        total = np.zeros((*noisy[0].shape[:-1], low.size))
        for level in reversed(noisy):
            up, down = np.minimum(-(-a // k) * k, b), np.maximum((b // k) * k, a)
            if level.shape[-1] == 1:
                up, down = b, b
            up = np.where(up > down, b, up)  # both ends in one block: the nodes between them
            down = np.where(up == b, b, down)
            running = np.concatenate([np.zeros((*level.shape[:-1], 1)), np.cumsum(level, axis=-1)], axis=-1)
            total += running[..., up] - running[..., a] + running[..., b] - running[..., down]
            a, b = up // k, np.maximum(down, up) // k
        return total

    def least_squares(self, noisy: list[Floats]) -> Floats:
        """(..., bins) the two passes of Hay et al.: the closest consistent tree, its leaves."""
        k = self.branching
        z = [noisy[-1]]
        for step, level in enumerate(reversed(noisy[:-1]), start=2):
            below = z[-1].reshape(*level.shape, k).sum(axis=-1)
            whole = float(k) ** step
            z.append(((whole - whole / k) * level + (whole / k - 1.0) * below) / (whole - 1.0))
        x = z[-1]
        for level in reversed(z[:-1]):
            children = level.reshape(*x.shape, k)
            x = (children + ((x - children.sum(axis=-1)) / k)[..., None]).reshape(level.shape)
        return x[..., : self.bins]


# Wavelets -------------------------------------------------------------------------------------------------------------


def haar(x: Floats, axis: int = -1) -> Floats:
    """Total and (left - right) sums along one axis; a length that is a power of two."""
    rest, parts = np.moveaxis(x, axis, -1), []
    while rest.shape[-1] > 1:
        parts.append(rest[..., 0::2] - rest[..., 1::2])
        rest = rest[..., 0::2] + rest[..., 1::2]
    return np.moveaxis(np.concatenate([rest, *parts[::-1]], axis=-1), -1, axis)


def unhaar(c: Floats, axis: int = -1) -> Floats:
    c = np.moveaxis(c, axis, -1)
    x = c[..., :1]
    while x.shape[-1] < c.shape[-1]:
        differences = c[..., x.shape[-1] : 2 * x.shape[-1]]
        x = np.stack([(x + differences) / 2, (x - differences) / 2], axis=-1).reshape(*x.shape[:-1], -1)
    return np.moveaxis(x, -1, axis)


@dataclass(frozen=True)
class Privlet:
    """Along every axis of a table (one axis: a histogram)."""

    shape: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(1 << (d - 1).bit_length() for d in self.shape)

    @property
    def sensitivity(self) -> float:
        return float(np.prod([1 + np.log2(size) for size in self.sizes]))

    def transform(self, x: Floats) -> Floats:
        for axis, size in enumerate(self.sizes, start=x.ndim - len(self.shape)):
            x = haar(padded(x, axis, size), axis)
        return x

    def release(self, x: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
        """x (..., *shape) -> noisy copies; leading axes are repetitions."""
        c = self.transform(x)
        c = c + rng.laplace(scale=self.sensitivity / epsilon, size=c.shape)
        for axis, size in enumerate(self.shape, start=x.ndim - len(self.shape)):
            c = np.take(unhaar(c, axis), np.arange(size), axis=axis)
        return c


# Multiplicative weights -----------------------------------------------------------------------------------------------


def margin_matrix(shape: tuple[int, ...], order: int) -> sp.csr_array:
    """(rows, cells) 0/1: every cell of every marginal over ``order`` axes (order 0: the total)."""
    grids = np.indices(shape).reshape(len(shape), -1)
    n, blocks = grids.shape[1], []
    for axes in itertools.combinations(range(len(shape)), order):
        sizes = [shape[axis] for axis in axes]
        row = np.ravel_multi_index([grids[axis] for axis in axes], sizes) if axes else np.zeros(n, dtype=np.int64)
        blocks.append(sp.csr_array((np.ones(n), (row, np.arange(n))), shape=(int(np.prod(sizes)), n)))
    return sp.csr_array(sp.vstack(blocks))


def choice_logits(scores: Floats, epsilon: float) -> Floats:
    """Exponential mechanism over scores of sensitivity 1."""
    return epsilon * scores / 2


def mwem(
    x: Floats,
    queries: Floats,
    epsilon: float,
    rounds: int,
    repetitions: int,
    rng: np.random.Generator,
    sweeps: int = 50,
) -> Floats:
    """(repetitions, cells) mean of the rounds' distributions times the public number of people; queries 0/1."""
    people, part = float(x.sum()), epsilon / (2 * rounds)
    truth, n = queries @ x, x.size
    current, mean = np.full((repetitions, n), people / n), np.zeros((repetitions, n))
    chosen: list[tuple[Floats, Floats]] = []
    taken = np.zeros((repetitions, truth.size), dtype=bool)
    row = np.arange(repetitions)
    for _ in range(rounds):
        logits = choice_logits(np.abs(current @ queries.T - truth), part)
        logits = np.where(taken, -np.inf, logits)  # measured ones are public: not chosen again
        index = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        taken[row, index] = True
        chosen.append((queries[index], truth[index] + rng.laplace(scale=1 / part, size=repetitions)))
        for _ in range(sweeps):
            for query, answer in chosen:
                error = answer - np.einsum("rn,rn->r", query, current)
                current *= np.exp(query * (np.clip(error / (2 * people), -50, 50))[:, None])
                current *= people / current.sum(axis=1, keepdims=True)
        mean += current / rounds
    return mean


# Checks ---------------------------------------------------------------------------------------------------------------


def worst_cost(transform: Callable[[Floats], Floats], cells: int, scale: float) -> float:
    """Largest sum of |change|/scale over coefficients for one person in any cell: the epsilon spent."""
    return max(float(np.abs(transform(unit)).sum()) for unit in np.eye(cells)) / scale


def check_mwem(expected: Expectations, rng: np.random.Generator) -> None:
    shape, epsilon, rounds = (2, 2, 3), 1.0, 4
    queries = np.vstack([margin_matrix(shape, order).toarray() for order in (1, 2, 3)])
    x = rng.integers(0, 5, 12).astype(float)
    start = np.full(12, x.sum() / 12)  # the number of people is public, so one person more is one elsewhere less
    worst_choice, worst_answer = 0.0, 0.0

    def probabilities(table: Floats) -> Floats:
        logits = choice_logits(np.abs(queries @ (start - table)), epsilon / (2 * rounds))
        return np.asarray(logits - np.log(np.exp(logits).sum()))

    for cell in range(12):
        other = x.copy()
        other[cell] += 1
        worst_choice = max(worst_choice, float(np.abs(probabilities(x) - probabilities(other)).max()))
        worst_answer = max(worst_answer, float(np.abs(queries @ (other - x)).max()))
    part = epsilon / (2 * rounds)
    expected.expect(worst_choice <= part + 1e-12, f"MWEM: a choice costs {worst_choice:.4f} of {part:.4f}")
    expected.expect(worst_answer <= 1, f"MWEM: one query moves by {worst_answer:g}, noise of scale 1/{part:.4f}")
    released = mwem(50 * x, queries, 1e6, rounds=40, repetitions=2, rng=rng)
    error = np.abs(released @ queries.T - 50 * queries @ x).max() / (50 * x.sum())
    expected.expect(error < 0.1, f"MWEM without noise: largest query error {error:.4f} of all people")


def check() -> Expectations:
    expected, rng, epsilon = Expectations(), np.random.default_rng(0), 0.7
    for bins, k in ((64, 2), (64, 16), (27, 3), (50, 7)):
        tree = CompleteTree(bins, k)
        cost = worst_cost(lambda unit, t=tree: np.concatenate(t.levels(unit)), bins, tree.height / epsilon)  # type: ignore[misc]
        expected.expect(abs(cost - epsilon) < 1e-12, f"LM(H), HTree with {bins} bins, branching {k}: costs {cost:.12g}")
        x = rng.integers(0, 9, bins).astype(float)
        low = rng.integers(0, bins, 300)
        high = np.array([rng.integers(a, bins) + 1 for a in low])
        running = np.concatenate([[0.0], np.cumsum(x)])
        wrong = np.abs(tree.answers(tree.levels(x), low, high) - running[high] + running[low]).max()
        expected.expect(wrong < 1e-9, f"ranges from nodes, {bins} bins, branching {k}: off by {wrong:.1e}")
        noisy = tree.noisy(x, 1.0, rng)
        if bins == k ** (tree.height - 1):
            M = np.hstack(tree.levels(np.eye(bins))).T
            direct = np.linalg.lstsq(M, np.concatenate(noisy), rcond=None)[0]
            off = np.abs(direct - tree.least_squares(noisy)).max()
            expected.expect(off < 1e-8, f"HTree with {bins} bins, branching {k}: off least squares by {off:.1e}")
    for shape in ((64,), (50,), (2, 2, 2), (3, 4, 2)):
        wavelet, cells = Privlet(shape), int(np.prod(shape))
        transform = lambda unit, w=wavelet, s=shape: w.transform(unit.reshape(s))  # noqa: E731
        cost = worst_cost(transform, cells, wavelet.sensitivity / epsilon)
        expected.expect(abs(cost - epsilon) < 1e-12, f"Privlet {shape}: costs {cost:.12g} of {epsilon}")
        x = rng.normal(size=(2, *shape))
        off = np.abs(wavelet.release(x, 1e15, rng) - x).max()
        expected.expect(off < 1e-9, f"Privlet {shape}: gives the data back without noise, off by {off:.1e}")
    check_mwem(expected, rng)
    return expected


def main() -> int:
    reading = parser(__doc__)
    reading.add_argument("--check", action="store_true", help="measure sensitivities and known answers")
    options = reading.parse_args()
    header(("numpy", "scipy"))
    return check().close() if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
