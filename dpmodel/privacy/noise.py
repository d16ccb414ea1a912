"""Noise: the two sources that draw it.

`OpenDPSource` is the private one; `SeededSource` is numpy's generator for tests, which is reproducible and
therefore not private.

Noise is never added to a value by us: ``value + noise`` in floating point has gaps that depend on the
value (Mironov 2012), so the value goes through OpenDP's mechanism, which rounds it to a grid and adds
discrete noise in exact integer arithmetic. What no noise can mend is rounding that happened before:
callers put the rounding error of their own sums into the sensitivity.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, check_half_width, check_scale, count_of, finite_array, score_vector
from dpmodel.privacy.discrete import (
    IntArray,
    check_discrete_scale,
    discrete_normal,
    two_sided_geometric,
    whole_array,
)

SelectionKind = Literal["exponential", "permute_and_flip"]
_Array = TypeVar("_Array", FloatArray, IntArray)

_GRID_BITS = 80  # grid = scale * 2^-80 or finer: see OpenDPSource
# Entries per OpenDP call: at most so many, which bounds its memory, and at least so many, below which a thread
# costs more than it saves. Calls run on several cores.
_CHUNK, _LEAST = 8192, 512


class NotPrivateWarning(UserWarning):
    """The noise is reproducible: whoever knows the seed can subtract it."""


@runtime_checkable
class NoiseSource(Protocol):
    """Where randomness comes from. Arrays keep their shape; entries must be finite floats."""

    @property
    def is_private(self) -> bool:
        """Whether the draws are unpredictable, so that a privacy guarantee may be stated."""

    def laplace(self, values: object, scale: float) -> FloatArray:
        """``values`` plus independent Laplace(scale) noise."""

    def gaussian(self, values: object, scale: float) -> FloatArray:
        """``values`` plus independent N(0, scale^2) noise."""

    def truncated_laplace(self, values: object, scale: float, half_width: float) -> FloatArray:
        """``values`` plus independent Laplace(scale) noise conditioned on |z| <= half_width."""

    def noisy_max(self, scores: object, scale: float, *, kind: SelectionKind) -> int:
        """Index drawn by the exponential mechanism, ~ exp(score/scale), or by permute-and-flip."""


@runtime_checkable
class DiscreteNoiseSource(Protocol):
    """A source that can also add integer noise. Entries must be whole, at most 2^53 in size; results are int64."""

    def discrete_laplace(self, values: object, scale: float) -> IntArray:
        """``values`` plus independent noise of P(k) ~ exp(-|k| / scale): D1/scale-DP for whole changes of size D1."""

    def discrete_gaussian(self, values: object, scale: float) -> IntArray:
        """``values`` plus independent noise of P(k) ~ exp(-k^2 / (2 scale^2)): rho = D2^2 / (2 scale^2) in zCDP."""


@lru_cache(maxsize=1)
def _opendp() -> Any:
    import opendp.prelude as odp  # 1.7 s and 265 MB: only when noise is really drawn

    odp.enable_features("contrib")
    return odp


@lru_cache(maxsize=64)
def _noisy_max(exponential: bool, scale: float, thread: int) -> Any:
    """The measurement for one scale; building costs more than drawing. Not shared between threads."""
    odp = _opendp()
    measure = odp.zero_concentrated_divergence() if exponential else odp.max_divergence()
    space = odp.vector_domain(odp.atom_domain(T=float, nan=False)), odp.linf_distance(T=float)
    measurement = space >> odp.m.then_noisy_max(measure, scale=scale)
    # Scores that move by at most scale/2 have range at most scale: epsilon 1, rho 1/8.
    _require_map(float(measurement.map(scale / 2.0)), 0.125 if exponential else 1.0)
    return measurement


class _Source:
    """What both sources check before they draw, in the words of `NoiseSource` and `DiscreteNoiseSource`."""

    def laplace(self, values: object, scale: float) -> FloatArray:
        return self._noisy("laplace", finite_array(values, "values"), check_scale(scale))

    def gaussian(self, values: object, scale: float) -> FloatArray:
        return self._noisy("gaussian", finite_array(values, "values"), check_scale(scale))

    def discrete_laplace(self, values: object, scale: float) -> IntArray:
        return self._noisy("discrete laplace", whole_array(values), check_discrete_scale(scale))

    def discrete_gaussian(self, values: object, scale: float) -> IntArray:
        return self._noisy("discrete gaussian", whole_array(values), check_discrete_scale(scale))

    def truncated_laplace(self, values: object, scale: float, half_width: float) -> FloatArray:
        scale = check_scale(scale)
        half_width = check_half_width(scale, half_width)
        return self._truncated(finite_array(values, "values"), scale, half_width)

    def noisy_max(self, scores: object, scale: float, *, kind: SelectionKind) -> int:
        vector, scale = score_vector(scores), check_scale(scale)
        if kind not in ("exponential", "permute_and_flip"):
            raise SpecificationError(
                f"unknown kind of selection {kind!r}",
                why="two kinds of selection are known",
                remedy="pass kind='exponential' or kind='permute_and_flip'",
            )
        return self._selected(vector, scale, kind == "exponential")

    def _noisy(self, kind: str, array: _Array, scale: float) -> _Array:
        raise NotImplementedError

    def _truncated(self, array: FloatArray, scale: float, half_width: float) -> FloatArray:
        raise NotImplementedError

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        raise NotImplementedError


class OpenDPSource(_Source):
    """Noise and selection through OpenDP: discrete distributions, exact arithmetic, the system's randomness.

    Notes
    -----
    Grid. OpenDP rounds a value to a multiple of 2^k before it adds discrete noise. Its default,
    k = -1074, makes the integers 1074 bits long; with 2^k <= scale * 2^-80 it is three times faster.
    The rounding adds at most n 2^k to the l1 (sqrt(n) 2^k to the l2) distance of two vectors of n
    entries, so epsilon rises by at most n 2^-80: 1e-15 for n = 10^9. Every measurement built here is
    asked for its privacy map, which must stay within a relative 1e-6 of d/scale (d^2/(2 scale^2) for
    Gaussian) at d = scale and at d = scale * 1e-6, or else OpenDP's default grid is used.

    Discrete Gaussian noise this fine is a rounded Gaussian up to relative changes of 2^-70 in its tails,
    far inside the margin that `accounting.gaussian_mu` leaves.

    Vectors are cut into chunks of 8192 entries, which bounds memory, and chunks run on several threads
    (OpenDP releases the interpreter lock). Chunks are independent, so their distances add up.
    """

    is_private = True

    def _noisy(self, kind: str, array: _Array, scale: float) -> _Array:
        """Cost: linear in the entries (docs/measurements.md); discrete noise takes a quarter."""
        flat = array.ravel()
        if flat.size == 0:
            return array.copy()
        cores = min(os.cpu_count() or 1, 8)
        size = min(_CHUNK, max(_LEAST, -(-flat.size // cores)))
        chunks = [flat[start : start + size] for start in range(0, flat.size, size)]
        _opendp()  # imported once, before the threads ask for it together
        if len(chunks) == 1 or cores == 1:
            parts = [_chunk(kind, chunk, scale) for chunk in chunks]
        else:
            with ThreadPoolExecutor(min(len(chunks), cores)) as pool:
                parts = list(pool.map(lambda chunk: _chunk(kind, chunk, scale), chunks))
        return np.concatenate(parts).reshape(array.shape)

    def _truncated(self, array: FloatArray, scale: float, half_width: float) -> FloatArray:
        """Entries whose noise left [-half_width, half_width] are drawn again, each time with the value
        inside the mechanism, until none is left; nothing is clamped. A draw that is accepted has exactly
        the Laplace distribution centred on the value, conditioned on the window. Whether a draw is accepted
        depends on the noise y - value alone, whose distribution does not involve the value, so the number of
        rounds tells nothing about the data. The expected number of rounds for n entries is about
        1 + ln(n) scale/half_width or less.

        y - value is rounded correctly, so the window of the floats y is symmetric to half an ulp of
        half_width. y itself is rounded to a float, which shifts its window by at most half an ulp of y;
        like all rounding it belongs in the sensitivity, and the relative 1e-9 by which
        `truncated_laplace_half_width` rounds up leaves room for it at ordinary magnitudes.
        """
        flat = array.ravel()
        noisy = self.laplace(flat, scale)
        outside = np.flatnonzero(np.abs(noisy - flat) > half_width)
        while outside.size:
            noisy[outside] = self.laplace(flat[outside], scale)
            outside = outside[np.abs(noisy[outside] - flat[outside]) > half_width]
        return noisy.reshape(array.shape)

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        return int(_noisy_max(exponential, scale, threading.get_ident())(scores))


def _require_map(found: float, expected: float) -> None:
    if not found <= expected * (1.0 + 1e-6):
        raise RuntimeError(
            f"OpenDP's privacy map gives {found} where {expected} was relied on; this version of OpenDP "
            "does not keep the promise that dpmodel needs, so nothing is released"
        )


def _chunk(kind: str, values: Any, scale: float) -> Any:
    """``values`` (k,) with noise, after the privacy map of the measurement was checked."""
    odp = _opendp()
    whole, gaussian = kind.startswith("discrete"), kind.endswith("gaussian")
    atoms = odp.atom_domain(T="i64") if whole else odp.atom_domain(T=float, nan=False)
    metric = odp.l2_distance(T=float) if gaussian else odp.l1_distance(T="i64" if whole else float)
    space = odp.vector_domain(atoms, size=values.size), metric
    then = odp.m.then_gaussian if gaussian else odp.m.then_laplace

    def cost(ratio: float) -> float:
        return ratio**2 / 2.0 if gaussian else ratio

    if not whole:
        return _draw(lambda k: space >> then(scale=scale, k=k), values, scale, cost)
    measurement = space >> then(scale=scale)
    for distance in (1.0, scale) if gaussian else (1, max(1, int(scale))):
        _require_map(float(measurement.map(distance)), cost(distance / scale))
    return np.asarray(measurement(values), dtype=np.int64)


def _draw(
    build: Callable[[int | None], Any], values: FloatArray, scale: float, cost: Callable[[float], float]
) -> FloatArray:
    """Build on the coarse grid if its privacy map allows, on the default grid otherwise; then draw."""
    measurement = build(max(-1074, math.frexp(scale)[1] - 1 - _GRID_BITS))
    ratios = (1.0, 1e-6)
    if any(float(measurement.map(t * scale)) > cost(t) * (1.0 + 1e-6) for t in ratios):
        measurement = build(None)
        for t in ratios:
            _require_map(float(measurement.map(t * scale)), cost(t))
    return np.asarray(measurement(values), dtype=np.float64)


class SeededSource(_Source):
    """Reproducible noise from a numpy generator, for tests and teaching. NOT private.

    Parameters
    ----------
    seed : int or numpy Generator.
    """

    is_private = False

    def __init__(self, seed: int | np.random.Generator) -> None:
        # default_rng(None) would be an unseeded generator, which is not private either.
        if not isinstance(seed, np.random.Generator):
            seed = np.random.default_rng(count_of(seed, "seed", least=0))
        self._rng = seed
        warnings.warn(
            "SeededSource is NOT private: its noise can be recomputed and subtracted. Use it for tests only; "
            "leave rng=None for a release.",
            NotPrivateWarning,
            stacklevel=2,
        )

    def _noisy(self, kind: str, array: _Array, scale: float) -> _Array:
        draw: dict[str, Callable[[], Any]] = {
            "laplace": lambda: self._rng.laplace(scale=scale, size=array.shape),
            "gaussian": lambda: self._rng.normal(scale=scale, size=array.shape),
            "discrete laplace": lambda: two_sided_geometric(scale, array.shape, self._rng),
            "discrete gaussian": lambda: discrete_normal(scale, array.shape, self._rng),
        }
        out: _Array = array + draw[kind]()
        return out

    def _truncated(self, array: FloatArray, scale: float, half_width: float) -> FloatArray:
        inside = -math.expm1(-half_width / scale)  # mass of the window before truncation
        size = np.minimum(-scale * np.log1p(-self._rng.random(array.shape) * inside), half_width)
        return array + np.where(self._rng.random(array.shape) < 0.5, -size, size)

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        """Gumbel noise gives the exponential mechanism, exponential noise permute-and-flip (Ding et al.
        2021, "The Permute-and-Flip Mechanism Is Identical to Report-Noisy-Max with Exponential Noise").
        """
        draw = self._rng.gumbel if exponential else self._rng.exponential
        return int(np.argmax(scores + draw(scale=scale, size=scores.shape)))


def noise_source(rng: int | np.random.Generator | NoiseSource | None = None) -> NoiseSource:
    """Return the source that ``rng`` asks for.

    Parameters
    ----------
    rng : None for OpenDP (private); an int or numpy Generator for a `SeededSource` (not private, with a
        warning); a source for itself.
    """
    if rng is None:
        return OpenDPSource()
    if isinstance(rng, (np.random.Generator, int, np.integer)) and not isinstance(rng, bool):
        return SeededSource(rng if isinstance(rng, np.random.Generator) else int(rng))
    if isinstance(rng, NoiseSource):
        return rng
    raise SpecificationError(
        f"rng of type {type(rng).__name__} is not a source of noise",
        why="noise is drawn through dpmodel.privacy only",
        remedy="pass None (private), an int seed (tests only), or an object with the methods of NoiseSource",
    )


# What forecasts draw synthetic data and noise from.
PublicGenerator = np.random.Generator


def public_generator(seed: int) -> PublicGenerator:
    """A generator for simulations on public facts (forecasts). Never for noise on private numbers."""
    return np.random.default_rng(seed)
