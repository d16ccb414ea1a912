"""The only page here that knows the package: its public names, a source of noise that takes notes, and what is noted.

Everything is asked through the public face, so that the files outlive any change behind it.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dpmodel import (  # noqa: F401
    AllBut,
    DPModelError,
    Exact,
    Noisy,
    Penalty,
    Private,
    Problem,
    Records,
    Search,
    Target,
    linalg,
    measure,
    query_release,
)
from dpmodel.noise import DiscreteGaussian as RoundedGaussian  # noqa: F401
from dpmodel.noise import DiscreteLaplace as RoundedLaplace  # noqa: F401
from dpmodel.noise import Gaussian, Laplace  # noqa: F401
from dpmodel.released import consistent_table, hierarchy, neg_log_likelihood, tree_query  # noqa: F401

PINNED = ("cvxpy", "numpy", "scipy", "highspy", "clarabel", "osqp", "scs", "dp-accounting")
Noted = dict[str, Any]
# Of what is released: so many numbers, and the sum of all sizes. Of the draws: so many groups of the same scale.
_FIRST, _GROUPS = 6, 6


def versions() -> dict[str, str]:
    return {name: version(name) for name in PINNED}


@dataclass(frozen=True)
class Case:
    """``run(epsilon, delta, source)`` solves and returns what is noted; ``budgets`` : three pairs; ``quick`` : part of
    the default tests."""

    name: str
    run: Callable[[float, float, NotedSource], Noted]
    budgets: tuple[tuple[float, float], ...]
    quick: bool = True

    def observed(self) -> dict[str, Noted]:
        """Budget -> what is noted."""
        found = {}
        for epsilon, delta in self.budgets:
            source = NotedSource()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    noted = self.run(epsilon, delta, source)
                except DPModelError as refusal:
                    theorem = getattr(refusal, "theorem", "")
                    noted = {"refused": type(refusal).__name__, **({"theorem": str(theorem)} if theorem else {})}
            draws = source.draws()
            found[f"{epsilon:g}, {delta:g}"] = {**noted, **({"draws": draws} if draws else {})}
        return found


# ------------------------------------------------------------------ noise
@dataclass
class NotedSource:
    """A source of noise from one fixed seed that notes the distribution, scale and number of entries of each draw.

    The laws are nearly those of the package's sources: rounded continuous noise stands for discrete noise.
    """

    is_private = False
    _calls: list[tuple[str, float, int]] = field(default_factory=list)
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(30))

    def _note(self, distribution: str, values: Any, *arguments: float) -> np.ndarray:
        array = np.array(values, dtype=float)
        self._calls.append((distribution, *map(float, arguments), array.size))
        return array

    def laplace(self, values: Any, scale: float) -> np.ndarray:
        array = self._note("laplace", values, scale)
        return array + self._rng.laplace(scale=scale, size=array.shape)

    def gaussian(self, values: Any, scale: float) -> np.ndarray:
        array = self._note("gaussian", values, scale)
        return array + self._rng.normal(scale=scale, size=array.shape)

    def truncated_laplace(self, values: Any, scale: float, half_width: float) -> np.ndarray:
        array = self._note("truncated laplace", values, scale, half_width)
        size = -scale * np.log1p(self._rng.random(array.shape) * math.expm1(-half_width / scale))
        return array + np.where(self._rng.random(array.shape) < 0.5, -1, 1) * np.minimum(size, half_width)

    def truncated_gaussian(self, values: Any, scale: float, half_width: float) -> np.ndarray:
        array = self._note("truncated gaussian", values, scale, half_width)
        tail = ndtr(-half_width / scale)
        return array + scale * ndtri(tail + self._rng.random(array.shape) * (1 - 2 * tail))

    def discrete_laplace(self, values: Any, scale: float) -> np.ndarray:
        array = self._note("discrete laplace", values, scale)
        return np.rint(array + self._rng.laplace(scale=scale, size=array.shape)).astype(np.int64)

    def discrete_gaussian(self, values: Any, scale: float) -> np.ndarray:
        array = self._note("discrete gaussian", values, scale)
        return np.rint(array + self._rng.normal(scale=scale, size=array.shape)).astype(np.int64)

    def noisy_max(self, scores: Any, scale: float, *, kind: str) -> int:
        array = self._note(f"noisy max, {kind}", scores, scale)
        draw = self._rng.gumbel if kind == "exponential" else self._rng.exponential
        return int(np.argmax(array + draw(scale=scale, size=array.shape)))

    def draws(self) -> list[list[Any]]:
        """[distribution, scale (and half width), calls (of selections), entries] of draws that follow one another with
        the same scale; of many such groups, the first, and for the rest per distribution [distribution, "..", least
        scale, largest, sum over entries of 1/scale, entries]."""
        groups: list[list[Any]] = []
        for name, *arguments, size in self._calls:
            rounded = [significant(a) for a in arguments]
            if groups and groups[-1][0] == name and groups[-1][1:-1] == rounded:
                groups[-1][-1] += size
            else:
                groups.append([name, *rounded, size])
        if len(groups) <= _GROUPS:
            return groups
        rest: dict[str, list[list[Any]]] = {}
        for group in groups[_GROUPS - 2 :]:
            rest.setdefault(group[0], []).append(group)
        summed = []
        for name, several in rest.items():
            scales, sizes = ([each[at] for each in several] for at in (1, -1))
            inverse = sum(size / scale for size, scale in zip(sizes, scales, strict=True))
            summed.append([name, "..", min(scales), max(scales), significant(inverse), sum(sizes)])
        return groups[: _GROUPS - 2] + summed


# ------------------------------------------------------------------ what is noted
def significant(number: Any, digits: int = 6) -> Any:
    if number is None or isinstance(number, (bool, str)):
        return number
    number = float(f"{float(number):.{digits}g}")
    return str(number) if not math.isfinite(number) else int(number) if number == int(number) else number


_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?![\w])")


def skeleton(text: str) -> str:
    """The sentence with # for its numbers."""
    return _NUMBER.sub("#", text)


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in _NUMBER.findall(text)]


def released(release: Any, variables: Mapping[str, Any] | None = None) -> Noted:
    """Of a release, or of a result of ``linalg`` or of a query, whose ``variables`` are given."""
    accuracy = release.accuracy
    numbers = {
        "alpha": accuracy.alpha,
        "objective": accuracy.objective_alpha,
        "violation": accuracy.violation_alpha,
        "beta": accuracy.beta,
        "rows": accuracy.slack_rows,
    }
    said = {name: significant(value) for name, value in numbers.items() if value}
    said |= {name: 1 for name in ("proved", "vacuous") if getattr(accuracy, name)}
    if getattr(accuracy, "short", ()):
        said["short"] = [significant(amount) for _, amount in accuracy.short][:_FIRST]
    guarantee = release.guarantee
    noted = {
        "mechanism": release.mechanism,
        "spent": [significant(guarantee.epsilon), significant(guarantee.delta)],
        "says": said,
        "statement": accuracy.statement,
        "x": numbers_of(release.variables if variables is None else variables),
    }
    if getattr(release, "value", None) is not None:
        noted["value"] = significant(release.value, 5)
    if getattr(release, "status", "optimal") != "optimal":
        noted["status"] = release.status
    return noted


def numbers_of(variables: Mapping[str, Any]) -> list[Any]:
    """The first numbers of all variables, and the sum of all sizes."""
    flat = np.concatenate([np.ravel(np.asarray(v, dtype=float)) for v in variables.values()] or [np.zeros(0)])
    return [significant(round(each, 6), 5) for each in flat[:_FIRST]] + [significant(np.abs(flat).sum(), 5)]


def solved(problem: Any, epsilon: float, delta: float, source: NotedSource, **options: Any) -> Noted:
    problem.solve(epsilon, delta, rng=source, **options)
    return released(problem.release)
