"""Noise and selection by OpenDP: the cross-check of `ExactSource`, and an option (``rng="opendp"``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dpmodel.errors import MissingExtraError, install
from dpmodel.privacy._checks import FloatArray
from dpmodel.privacy.noise import CheckedSource
from dpmodel.privacy.sampling import IntArray

_GRID_BITS = 80  # grid = scale * 2^-80 or finer


class OpenDPSource(CheckedSource):
    """OpenDP: discrete distributions, exact arithmetic, the system's randomness.

    OpenDP rounds a value to a multiple of 2^k before it adds discrete noise. Its default, k = -1074, makes the integers
    1074 bits long; with 2^k <= scale * 2^-80 it is three times faster. What the rounding adds to epsilon is what
    `ExactSource` says of the same grid. Every measurement built here is asked for its privacy map, which must stay
    within a relative 1e-6 of d/scale (d^2/(2 scale^2) for Gaussian) at d = scale and at d = scale * 1e-6, or else
    OpenDP's default grid is used.
    """

    is_private = True

    def _real(self, array: FloatArray, scale: float, gaussian: bool) -> FloatArray:
        return np.asarray(_drawn(array, scale, gaussian, integer=False), dtype=np.float64)

    def _integer(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        return np.asarray(_drawn(array, scale, gaussian, integer=True), dtype=np.int64)

    def _truncated(self, array: FloatArray, scale: float, half_width: float, gaussian: bool) -> FloatArray:
        """Entries whose noise left [-half_width, half_width] are drawn again, each time with the value
        inside the mechanism, until none is left; nothing is clamped. A draw that is accepted has exactly
        the stated distribution centred on the value, conditioned on the window. Whether a draw is accepted
        depends on the noise y - value alone, whose distribution does not involve the value, so the number of
        rounds tells nothing about the data. The expected number of rounds for n entries is about
        1 + ln(n) scale/half_width or less.

        y - value is rounded correctly, so the window of the floats y is symmetric to half an ulp of
        half_width. y itself is rounded to a float, which shifts its window by at most half an ulp of y;
        like all rounding it belongs in the sensitivity, and the relative 1e-9 by which
        `truncated_laplace_half_width` rounds up leaves room for it at ordinary magnitudes.
        """
        flat = array.ravel()
        noisy = self._real(flat, scale, gaussian)
        outside = np.flatnonzero(np.abs(noisy - flat) > half_width)
        while outside.size:
            noisy[outside] = self._real(flat[outside], scale, gaussian)
            outside = outside[np.abs(noisy[outside] - flat[outside]) > half_width]
        return noisy.reshape(array.shape)

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        odp = _opendp()
        measure = odp.zero_concentrated_divergence() if exponential else odp.max_divergence()
        space = odp.vector_domain(odp.atom_domain(T=float, nan=False)), odp.linf_distance(T=float)
        measurement = space >> odp.m.then_noisy_max(measure, scale=scale)
        # Scores that move by at most scale/2 have range at most scale: epsilon 1, rho 1/8.
        _require_map(float(measurement.map(scale / 2.0)), 0.125 if exponential else 1.0)
        return int(measurement(scores))


@lru_cache(maxsize=1)
def _opendp() -> Any:
    try:
        import opendp.prelude as odp  # 1.7 s and 265 MB: only where it is wanted
    except ImportError:
        odp = None
    if odp is None:
        raise MissingExtraError("opendp is not installed", why="rng='opendp' draws from it", remedy=install("opendp"))

    odp.enable_features("contrib")
    return odp


def _require_map(found: float, expected: float) -> None:
    if not found <= expected * (1.0 + 1e-6):
        raise RuntimeError(
            f"OpenDP's privacy map gives {found} where {expected} was relied on; this version of OpenDP "
            "does not keep the promise that dpmodel needs, so nothing is released"
        )


def _drawn(array: Any, scale: float, gaussian: bool, *, integer: bool) -> Any:
    """``array`` with noise, after the privacy map of the measurement was checked."""
    if array.size == 0:
        return array
    odp = _opendp()
    atoms = odp.atom_domain(T="i64") if integer else odp.atom_domain(T=float, nan=False)
    metric = odp.l2_distance(T=float) if gaussian else odp.l1_distance(T="i64" if integer else float)
    space = odp.vector_domain(atoms, size=array.size), metric
    then = odp.m.then_gaussian if gaussian else odp.m.then_laplace

    def cost(ratio: float) -> float:
        return ratio**2 / 2.0 if gaussian else ratio

    if integer:
        measurement = space >> then(scale=scale)
        for distance in (1.0, scale) if gaussian else (1, max(1, int(scale))):
            _require_map(float(measurement.map(distance)), cost(distance / scale))
    else:
        measurement = _measurement(lambda k: space >> then(scale=scale, k=k), scale, cost)
    return np.reshape(measurement(array.ravel()), array.shape)


def _measurement(build: Callable[[int | None], Any], scale: float, cost: Callable[[float], float]) -> Any:
    """The measurement on the coarse grid if its privacy map allows, on the default grid otherwise."""
    measurement = build(max(-1074, math.frexp(scale)[1] - 1 - _GRID_BITS))
    ratios = (1.0, 1e-6)
    if any(float(measurement.map(t * scale)) > cost(t) * (1.0 + 1e-6) for t in ratios):
        measurement = build(None)
        for t in ratios:
            _require_map(float(measurement.map(t * scale)), cost(t))
    return measurement
