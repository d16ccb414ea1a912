"""Two offices published noisy tables about the same people. They disagree; make them one table.

One office published age by sex with Laplace noise, the other sex by district and age by district with Gaussian noise;
the number of people is public, and nobody under fifteen is retired. The most likely table behind all of it is
non-negative, has every margin in agreement, and is closer to the truth. It reads published numbers only: no privacy is
spent.

    python examples/consistent_tables.py
"""

import numpy as np

import dpmodel as dpm

DOMAIN = {
    "age": ["0-14", "15-39", "40-64", "65+"],
    "works": ["no", "yes", "retired"],
    "district": ["north", "east", "south", "west", "centre"],
}


def truth(rng: np.random.Generator) -> np.ndarray:
    """Synthetic people."""
    share = np.array([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.2, 0.75, 0.05], [0.03, 0.07, 0.9]])
    size = np.array([[30, 60, 12, 5, 2], [45, 90, 20, 9, 8], [50, 80, 30, 12, 6], [40, 30, 25, 2, 1]])
    table = rng.poisson(share[:, :, None] * size[:, None, :]).astype(float)
    table[0, 2] = 0
    return table


def main() -> None:
    rng = np.random.default_rng(3)
    people = truth(rng)
    laplace, gaussian = dpm.noise.Laplace(4.0), dpm.noise.Gaussian(6.0)
    published = {
        ("age", "works"): dpm.Noisy(people.sum(2) + laplace.sample((4, 3), rng), noise=laplace, name="office A"),
        ("district", "works"): dpm.Noisy(
            people.sum(0).T + gaussian.sample((5, 3), rng), noise=gaussian, name="office B"
        ),
        ("age", "district"): dpm.Noisy(
            people.sum(1) + gaussian.sample((4, 5), rng), noise=gaussian, name="office B again"
        ),
    }
    said = [published["age", "works"].value.sum(0), published["district", "works"].value.sum(0)]
    print("who works, by office A:", said[0].round(1), " by office B:", said[1].round(1))

    fit = dpm.released.consistent_table(
        published,
        domain=DOMAIN,
        known={(): people.sum()},
        structural_zeros=[{"age": "0-14", "works": "retired"}],
    )
    release = fit.solve()
    print(f"one table, by {release.mechanism}: {release.guarantee}")
    works = fit.marginal("works")
    print("who works, consistent:", dict(zip(works.categories[0], works.values.round(1).tolist(), strict=True)))
    print(f"total {fit.marginal(()).values:.0f}, smallest cell {fit.table.values.min():.1f}")

    print("\nmean absolute error of  published  consistent")
    for columns, noisy in published.items():
        axes = tuple(i for i, name in enumerate(DOMAIN) if name not in columns)
        true = people.sum(axis=axes)
        value = noisy.value if columns != ("district", "works") else noisy.value.T
        errors = [np.abs(each - true).mean() for each in (value, fit.marginal(columns).values)]
        print(f"{' x '.join(columns):22}{errors[0]:11.2f}{errors[1]:12.2f}")

    low, high = dpm.released.intervals(fit, "works")
    inside = (low <= people.sum((0, 2))) & (people.sum((0, 2)) <= high)
    print(f"\n95% intervals of who works: {np.c_[low, high].round(0).tolist()}; truth inside: {inside.tolist()}")


if __name__ == "__main__":
    main()
