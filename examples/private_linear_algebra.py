"""Exact linear algebra when every vector, equation, inequality or point is one person's record.

What is released satisfies all but a few of the records exactly: no tolerance, no "nearly". Four small systems: the span
of a questionnaire, equations modulo 7 of which some are wrong, a half-space between two classes, a point in a hull.

Run: python examples/private_linear_algebra.py
"""

from __future__ import annotations

import numpy as np

import dpmodel as dpm
from dpmodel import linalg


def questionnaire(rng: np.random.Generator, seed: int | None) -> None:
    """Three questions with 4, 3 and 5 answers as 12 columns of zeros and ones: a space of 12 - 2 dimensions."""
    people, answers = 4_000, (4, 3, 5)
    given = [np.eye(k, dtype=int)[rng.integers(k, size=people)] for k in answers]
    rows = np.hstack(given)
    print(linalg.plan("span", dimension=12, records=people, epsilon=1, delta=1e-6), end="\n\n")
    found = linalg.span(rows, field=linalg.QQ, epsilon=1, delta=1e-6, expected=people, rng=seed)
    print(found, end="\n\n")
    print(f"dimension {found.dimension} of 12; what all answers have in common:")
    print(found.basis.null_space(), end="\n\n")


def equations(rng: np.random.Generator, seed: int | None) -> None:
    """a'x = b modulo 7; everybody knows one equation, and 3 % of them are wrong."""
    field, people, secret = linalg.GF(7), 5_000, np.array([3, 1, 4, 1, 5, 2])
    A = rng.integers(7, size=(people, secret.size))
    b = A @ secret % 7
    wrong = rng.random(people) < 0.03
    b[wrong] = rng.integers(7, size=wrong.sum())
    found = linalg.solve_equations(A, b, field=field, epsilon=1, delta=1e-6, corrupted=0.03, expected=people, rng=seed)
    solved = int(np.sum(A @ np.asarray(found.x) % 7 == b))  # not part of the release
    print(f"equations by {found.mechanism}: x = {list(map(int, found.x))}; {solved} of {people} hold exactly")
    print(f"  {found.accuracy}\n")


def half_space(rng: np.random.Generator, seed: int | None) -> None:
    """Two classes with room between them: promised is the room, not where it is."""
    try:
        from dpmodel.learn import HalfspaceClassifier
    except dpm.errors.MissingExtraError as error:
        print(f"half-space left out: {error.what}\n")
        return
    X = rng.uniform(-1, 1, size=(4_000, 5))
    side = X @ np.array([1.0, -2.0, 0.0, 1.0, 0.5]) + 0.3
    X, side = X[np.abs(side) > 0.25], side[np.abs(side) > 0.25]
    classifier = HalfspaceClassifier(
        margin=0.04, epsilon=1, delta=1e-6, classes=(False, True), mechanism="rescaling-perceptron", random_state=seed
    ).fit(X, side > 0)
    print(f"half-space by {classifier.release_.mechanism}: {classifier.score(X, side > 0):.2%} on the right side")
    print(f"  {classifier.release_.accuracy}\n")


def hull(rng: np.random.Generator, seed: int | None) -> None:
    """Where people are, on a grid of 41 x 41: a point between them, not an average that an outlier could drag away."""
    people = 600
    places = np.clip(np.rint(rng.normal([12, 30], 3, size=(people, 2))), 0, 40).astype(int)
    found = linalg.point_in_hull(places, lower=0, upper=40, step=1, epsilon=1, expected=people, rng=seed)
    assert found.point is not None
    print(f"point in the hull by {found.mechanism}: ({', '.join(map(str, found.point))})")
    print(f"  {found.accuracy}\n")


def main(seed: int | None = None) -> None:
    rng = np.random.default_rng(4)  # synthetic data
    questionnaire(rng, seed)
    equations(rng, seed)
    half_space(rng, seed)
    hull(rng, seed)

    try:
        linalg.span(rng.integers(9, size=(20, 12)), field=linalg.QQ, epsilon=1, delta=1e-6, neighbors="replace-one")
    except dpm.errors.UnsupportedModelError as error:
        print(f"Twenty vectors: {error.what}")


if __name__ == "__main__":
    main()
