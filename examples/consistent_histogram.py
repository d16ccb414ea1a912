"""Publish a histogram so that single bins and long ranges are both accurate.

1,024 five-minute bins of synthetic visits, most of them empty. Noise on every bin adds up over long ranges; noise on a
tree of sums does not, but the noisy tree contradicts itself and has negative counts. The most likely consistent tree
behind it costs no further privacy and lowers the error again.

    python examples/consistent_histogram.py
"""

import numpy as np

import dpmodel as dpm

BINS, EPSILON = 1024, 0.5


def visits(rng: np.random.Generator) -> np.ndarray:
    """Empty but for a few busy hours."""
    counts = np.zeros(BINS)
    for start in (120, 410, 700):
        counts[start : start + 24] = rng.poisson(60, 24)
    return counts


def main() -> None:
    rng = np.random.default_rng(8)
    counts = visits(rng)
    tree = dpm.released.tree_query(BINS, branching=4)
    # Somebody published this: with private data it is what measure(tree.private(counts), EPSILON) returns.
    distribution = dpm.noise.Laplace(tree.sensitivity / EPSILON)
    noisy = dpm.Noisy(
        tree.answers(counts) + distribution.sample((tree.size,), rng),
        noise=distribution,
        name="visits",
        epsilon=EPSILON,
    )
    print(f"{tree.size} noisy sums in {tree.height} levels; one visitor moves {tree.sensitivity} of them by one")

    likely, squares = tree.fit(noisy), tree.fit(noisy, form="least-squares")
    release = likely.solve()
    squares.solve()
    print(f"most likely tree by {release.mechanism}: {release.guarantee}")

    flat = counts + dpm.noise.Laplace(1 / EPSILON).sample((BINS,), rng)
    before = np.concatenate([[0], np.cumsum(counts)])
    flat_before = np.concatenate([[0], np.cumsum(flat)])
    print("\nroot mean squared error   bins alone  noisy tree  most likely  least squares")
    for width in (1, 16, 256):
        start = np.arange(0, BINS - width + 1)
        stop = start + width
        answers = (
            flat_before[stop] - flat_before[start],
            tree.read_raw(noisy, start, stop),
            likely.ranges(start, stop),
            squares.ranges(start, stop),
        )
        errors = [np.sqrt(np.mean((each - (before[stop] - before[start])) ** 2)) for each in answers]
        print("ranges of {:4} bins       {:10.1f}{:12.1f}{:13.1f}{:15.1f}".format(width, *errors))

    low, high = dpm.released.intervals(likely, slice(120, 144))
    busy = f"{likely.range(120, 144):.0f}, within {low[0]:.0f} to {high[0]:.0f} (95%)"
    print(f"\nvisits in the first busy time: {busy}; true: {counts[120:144].sum():.0f}")
    likely.solve(round="unbiased", rng=1)
    print(f"integers that add up: {likely.range(0, BINS):.0f} = {likely.histogram.sum():.0f}")


if __name__ == "__main__":
    main()
