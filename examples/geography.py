"""Counts for a nation, its states and their counties that add up.

Counties and states were published with noise of different scales; the nation's total is public. The hierarchy comes as
a parent column, as in a gazetteer. The most likely consistent counts cost no privacy.

    python examples/geography.py
"""

import numpy as np

import dpmodel as dpm

STATES = {"Avon": 6, "Brill": 9, "Corse": 4, "Dorn": 12}  # counties of each


def gazetteer() -> dict[str, list[str | None]]:
    """A table with the columns name and parent."""
    names, parents = ["nation", *STATES], [None, *["nation"] * len(STATES)]
    for state, count in STATES.items():
        names += [f"{state} {number}" for number in range(1, count + 1)]
        parents += [state] * count
    return {"name": names, "parent": parents}


def main() -> None:
    rng = np.random.default_rng(11)
    places = dpm.released.hierarchy(gazetteer(), levels=("nation", "state", "county"))
    print(f"{places.size} places in the levels {', '.join(places.levels)}")
    true = places.answers(rng.poisson(rng.choice([0.2, 3, 40, 150], len(places.leaves))))
    counts = dict(zip(places.names, true, strict=True))

    def published(level: str, scale: float) -> dpm.Noisy:
        values = np.array([counts[name] for name in places.level(level)])
        distribution = dpm.noise.DiscreteLaplace(scale)
        return dpm.Noisy(values + distribution.sample(values.shape, rng), noise=distribution, name=f"{level} counts")

    noisy = {"state": published("state", 2.0), "county": published("county", 8.0)}
    fit = places.fit(
        noisy, known={"nation": counts["nation"]}, structural_zeros=["Corse 4"] if not counts["Corse 4"] else []
    )
    release = fit.solve()
    print(f"by {release.mechanism}: {release.guarantee}")

    low, high = dpm.released.intervals(fit, "state")
    print("\nstate      truth   published   its counties   consistent   95% interval")
    counties = places.level("county")
    for place, state in enumerate(STATES):
        own = noisy["state"].value[place]
        parts = sum(v for c, v in zip(counties, noisy["county"].value, strict=True) if c.startswith(state))
        ends = f"{low[place]:8.0f} to {high[place]:.0f}"
        print(f"{state:8}{counts[state]:8.0f}{own:12.0f}{parts:15.0f}{fit.read(state):13.0f}{ends}")
    errors = [np.abs(v - [counts[c] for c in counties]).mean() for v in (noisy["county"].value, fit.level("county"))]
    print(f"\nmean absolute error of a county: published {errors[0]:.1f}, consistent {errors[1]:.1f}")
    print(f"the states sum to {fit.level('state').sum():.0f}, the nation has {fit.read('nation'):.0f}")


if __name__ == "__main__":
    main()
