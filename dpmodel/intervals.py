"""Intervals for what a regression's noisy sums of squares and products say of the people behind its rows.

The law. Released are G~ = G + N_G, g~ = g + n_g, t~ = t + n_t, h~ = h + n_h (``regressions/moments.py``), independent
noise of mean 0 and public deviations: ``pair`` off the diagonal of N_G, ``own`` on it, ``first``, ``cross``, ``labels``
on each entry of n_g, n_t, n_h. With b = (v, b0) the coefficients in these units, the true sums have
``e = (t - G v - g b0, h - g'v - n b0) = sum_i (u_i, 1) residual_i``. The released ones miss that by noise alone, which
is linear in b: for any alpha = (a, a0)

    alpha'(n_t - N_G v - n_g b0, n_h - n_g'v) = a'n_t + a0 n_h - a'N_G v - n_g'(b0 a + a0 v),
    variance  cross^2 |a|^2 + labels^2 a0^2 + pair^2 (|a|^2 |v|^2 + (a'v)^2) + (own^2 - 2 pair^2) sum a_j^2 v_j^2
              + first^2 |b0 a + a0 v|^2                                                                     (exact).

Proof. (N_G v)_j has variance own^2 v_j^2 + pair^2 (|v|^2 - v_j^2); (N_G v)_i and (N_G v)_j share N_ij alone, so their
covariance is pair^2 v_i v_j. The rest are independent sums. The rows are drawn from a population: at its coefficients e
has mean 0 and variance s^2 A, A the matrix (G, g; g', n), if the residual variance s^2 is the same for all rows.

Fieller. For a function c'b, take alpha = A^-1 c / (c'A^-1 c), A the released matrix with eigenvalues lifted to the size
of the noise, and b(tau) = estimate + tau alpha: the least squares where c'b is tau more. Then alpha'e~(b(tau)) is
linear in tau, its variance quadratic, and the interval is where it is within z deviations of 0. Two roots; where the
noise could be all of the slope, the data say nothing and the interval is the line. The covariance of the estimate adds
to the variance (``doubt``). Alpha depends on the noise too: the level is asymptotic, and tested. Without an intercept
b0 is a public function of v, and all is projected on these b. A public ridge is added to A. Laplace noise takes the
larger of the normal and the Laplace quantile, because sums of few such draws have longer tails.

Directions that drown. At the true b, alpha'e~(b(tau)) is the noise at b(tau) plus alpha'A (b - b(tau)), A the true
matrix. Where no eigenvalue was lifted this is small, of second order. A direction d that was lifted (below ``lowest``)
acts like a variable that was left out: with x = d'A d it adds at most |alpha'd| x |d'b| <= |alpha'd| sqrt(x R), R the
squares of all labels around their mean, because coefficients explain no more: x |d'b|^2 <= R. That is added to the z
deviations, with ``lowest`` for x: a bound to first order in the noise.

The residual variance is that of the released sums: ``s - 2 b'q + b'A b``, raised by what the fit takes up of the noise
(tr A^-1 B, B the covariance of the noise in e, to first order) and by the p degrees of freedom; at least a deviation of
the noise in s and at most 1, the largest there can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpmodel._types import Floats, Labels, Mask
from dpmodel.errors import SpecificationError
from dpmodel.figures import entry_names
from dpmodel.marks.measured import Moments
from dpmodel.text import PlainData, TextTable, long_frame, rounded, screenful

_SHOWN = 25  # printed rows of a table


@dataclass(frozen=True, eq=False, repr=False)
class IntervalTable(PlainData):
    """Estimates with intervals, (k,) each; it unpacks as the pair ``low, high``. All is computed from released numbers.

    ``names`` : of the k numbers. ``released`` : what the release has there, nan for what it does not hold.
    ``estimate``, ``error`` : an estimate and its standard error, inf where ``low`` and ``high`` are infinite: there
    noise drowns what the data say; nan where none follows. ``privacy`` : the share of an interval's width that is due
    to the noise; nan where all is. Each interval holds its truth with probability ``level``, one at a time, infinite
    ones counted: where most are infinite, the few finite ones hold it less often, and ``notes`` say so. ``of`` : what
    is estimated. ``notes`` : what else to know. Columns of nan are not printed.
    """

    names: tuple[str, ...]
    released: Floats
    estimate: Floats
    error: Floats
    low: Floats
    high: Floats
    privacy: Floats
    level: float
    of: str
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.low, self.high))

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with a row for each number. ``backend`` : "pandas", "polars" or "pyarrow"."""
        columns = {name: getattr(self, name) for name in ("released", "estimate", "error")}
        columns |= {"lower": self.low, "upper": self.high, "privacy": self.privacy}  # as Estimates has them
        return long_frame(columns, (("name", self.names),), backend)

    def table(self, title: str = "") -> TextTable:
        """As it prints."""
        ends = f"[{(1 - self.level) / 2:.4g}", f"{(1 + self.level) / 2:.4g}]"
        shown = slice(0, _SHOWN)
        columns: dict[str, list[str]] = {}
        for head, values, rounding in (
            ("released", self.released, ROUND_HALF_EVEN),
            ("estimate", self.estimate, ROUND_HALF_EVEN),
            ("std err", self.error, ROUND_HALF_EVEN),
            (ends[0], self.low, ROUND_FLOOR),  # outwards
            (ends[1], self.high, ROUND_CEILING),
        ):
            # Two digits of the error, or of the width where there is none, and one more.
            spread = np.where(np.isnan(self.error), (self.high - self.low) / 10, self.error / 10)[shown]
            texts = [
                rounded(x, size, rounding) if math.isfinite(x) else str(x)
                for x, size in zip(values[shown].tolist(), spread.tolist(), strict=True)
            ]
            columns[head] = [text.rjust(max(map(len, [head, *texts]))) for text in texts]
        columns["privacy"] = [f"{100 * share:5.0f} %" for share in self.privacy[shown]]
        for head, values in (
            ("released", self.released), ("estimate", self.estimate), ("std err", self.error), ("privacy", self.privacy)
        ):  # fmt: skip
            if np.isnan(values).all():
                del columns[head]
        heads = ["", *(head.rjust(len(texts[0])) if texts else head for head, texts in columns.items())]
        rows = list(zip(self.names[shown], *columns.values(), strict=True))
        left = len(self.names) - len(rows)
        more = [f"... and {left} more: .to_frame()"] if left else []
        share = [] if "privacy" not in columns else ["privacy: the share of the interval's width that is due to noise."]
        about = [f"Of {self.of}.", *share, *self.notes]
        return TextTable(heads, rows, title or f"Intervals at level {self.level:g}", [*more, *about], width=80)

    def __str__(self) -> str:
        return screenful(str(self.table()), "to_frame()")

    def __repr__(self) -> str:
        return f"<IntervalTable: {len(self.names)} intervals at level {self.level:g}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


@dataclass(frozen=True, eq=False)
class Fit:
    """What the intervals are computed from: ``moments`` of released numbers."""

    moments: Moments

    @cached_property
    def sums(self) -> tuple[Floats, Floats, float]:
        """(k+1, k+1) the matrix of (G, g; g', n), (k+1,) (t, h), and s: as released."""
        m, k = self.moments, self.count
        alpha, beta, gamma, kappa, less = m.weights
        upper, values = np.triu_indices(k), m.values
        triangle, rest = values[: upper[0].size], values[upper[0].size :]
        if not self.pure:
            triangle = np.where(upper[0] == upper[1], triangle, triangle / math.sqrt(2))
        gram, right = np.zeros((k + 1, k + 1)), np.zeros(k + 1)
        gram[upper] = triangle
        right[:k], gram[k, k] = rest[:k] / beta, m.total
        if alpha:
            gram[:k, k], right[k] = rest[k : 2 * k] / alpha, rest[2 * k] / gamma
        gram = gram + np.triu(gram, 1).T
        squares = rest[-1] / kappa + less * float(np.trace(gram[:k, :k])) if kappa else math.inf
        return gram, right, float(squares)

    @property
    def count(self) -> int:
        return int(self.moments.width.size)

    @property
    def pure(self) -> bool:
        return self.moments.law == "laplace"

    @cached_property
    def spread(self) -> tuple[float, float, float, float, float, float]:
        """Deviations of noise: pair, own, first, cross, labels, and of s."""
        alpha, beta, gamma, kappa, less = self.moments.weights
        s = self.moments.scale * (math.sqrt(2) if self.pure else 1.0)
        pair = s if self.pure else s / math.sqrt(2)
        squares = s * math.hypot(1 / kappa, less * math.sqrt(self.count)) if kappa else math.inf
        return pair, s, s / alpha if alpha else 0.0, s / beta, s / gamma if gamma else 0.0, squares

    @cached_property
    def free(self) -> tuple[Floats, Floats]:
        """(k+1, p) E and (k+1,) f: b is E x + f, x what is estimated."""
        m, k = self.moments, self.count
        if m.constant:
            return np.eye(k + 1), np.zeros(k + 1)
        shift, f = m.middle / m.width, np.zeros(k + 1)
        f[k] = -m.label_middle / m.label_width
        return np.vstack([np.eye(k), shift]), f

    @cached_property
    def normal(self) -> tuple[Floats, Floats, Floats, Floats]:
        """(p, p) the released A, and lifted; (p,) the right-hand side; (p, r) the r directions that were lifted."""
        (gram, right, _), (E, f), m = self.sums, self.free, self.moments
        A, q = E.T @ gram @ E, E.T @ (right - gram @ f)
        at = np.arange(self.count)
        A[at, at] += m.ridge
        q[at] -= m.linear / 2
        values, V = np.linalg.eigh(A)
        lifted = (V * np.maximum(values, max(self.lowest, 1e-12 * m.total))) @ V.T
        return A, lifted, q, V[:, values < self.lowest]

    @cached_property
    def lowest(self) -> float:
        """The size of the noise in an eigenvalue, about."""
        return math.sqrt(max(self.count, 1)) * math.hypot(self.spread[0], self.spread[2])

    @property
    def explained(self) -> float:
        """The most that any coefficients can explain: the squares of the labels, around their mean."""
        (gram, right, squares), m = self.sums, self.moments
        mean = right[-1] ** 2 / gram[-1, -1] if m.constant and m.weights[0] else 0.0
        return min(max(squares - mean, self.spread[-1]), m.total)

    @cached_property
    def inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(self.normal[1]))

    @cached_property
    def point(self) -> Floats:
        """(k+1,) b of the least squares."""
        E, f = self.free
        return np.asarray(E @ (self.inverse @ self.normal[2]) + f)

    def noise(self, alpha: Floats, b: Floats, other: Floats) -> Floats:
        """(m,) covariance of the noise in alpha'e at b and at ``other``; all (k+1, m)."""
        pair, own, first, cross, labels, _ = self.spread
        (a, a0), (v, b0), (w, c0) = ((each[:-1], each[-1]) for each in (alpha, b, other))
        size = (a * a).sum(0)
        out = cross**2 * size + labels**2 * a0 * a0
        out = out + pair**2 * (size * (v * w).sum(0) + (a * v).sum(0) * (a * w).sum(0))
        out = out + (own**2 - 2 * pair**2) * (a * a * v * w).sum(0)
        return np.asarray(out + first**2 * ((b0 * a + a0 * v) * (c0 * a + a0 * w)).sum(0))

    def doubt(self, alpha: Floats) -> Floats:
        """(m,) what the error of b adds to the variance of the noise in alpha'e: its mean over b, less at the mean."""
        pair, own, first, *_ = self.spread
        a, a0, S = alpha[:-1], alpha[-1], self.covariance
        inner, size, trace = S[:-1, :-1], (a * a).sum(0), float(np.trace(S[:-1, :-1]))
        out = pair**2 * (size * trace + (a * (inner @ a)).sum(0)) + (own**2 - 2 * pair**2) * (np.diag(inner) @ (a * a))
        return np.asarray(out + first**2 * (S[-1, -1] * size + 2 * a0 * (S[-1, :-1] @ a) + a0**2 * trace))

    @cached_property
    def covariance(self) -> Floats:
        """(k+1, k+1) of b, Wald's: A^-1 (s^2 A + B) A^-1 for what is estimated."""
        pair, own, first, cross, labels, _ = self.spread
        E, inverse, v, b0 = self.free[0], self.inverse, self.point[:-1], float(self.point[-1])
        B = np.zeros((v.size + 1,) * 2)
        B[:-1, :-1] = pair**2 * np.outer(v, v) + (own**2 - 2 * pair**2) * np.diag(v * v)
        B[np.arange(v.size), np.arange(v.size)] += cross**2 + pair**2 * float(v @ v) + first**2 * b0**2
        B[:-1, -1] = B[-1, :-1] = first**2 * b0 * v
        B[-1, -1] = labels**2 + first**2 * float(v @ v)
        half = E @ inverse
        return np.asarray(self.variance * half @ E.T + half @ E.T @ B @ E @ half.T)

    @cached_property
    def variance(self) -> float:
        """The residual variance, in units of label_width^2."""
        (gram, right, squares), b, m = self.sums, self.point, self.moments
        size = self.inverse.shape[0]
        values, V = np.linalg.eigh(self.inverse)
        root = self.free[0] @ (V * np.sqrt(np.maximum(values, 0.0)))
        taken = float(self.noise(root, *(np.repeat(b[:, None], size, 1),) * 2).sum())
        rows = max(m.count - size, 1)
        found = (squares - 2 * float(b @ right) + float(b @ gram @ b) + taken) / rows
        return min(max(found, self.spread[-1] / m.count), 1.0) if math.isfinite(found) else 1.0

    def nearly_drowned(self, functions: Floats) -> Mask:
        """(m,) which functions rest, by a hundredth of the squares, on directions with less than twice ``lowest``: in
        simulations nearly all finite intervals that missed the truth where most were infinite."""
        E, (A, *_) = self.free[0], self.normal
        values, V = np.linalg.eigh(A)
        a = self.inverse @ (functions @ E).T
        few = V[:, values < 2 * self.lowest].T @ a
        return np.asarray((few * few).sum(0) > 0.01 * (a * a).sum(0))

    def of(self, functions: Floats, level: float) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Estimate, error, low, high and privacy of functions (m, k+1) of b, (m,) each."""
        (E, f), (A, _, q, drowned), inverse = self.free, self.normal, self.inverse
        c = functions @ E  # (m, p)
        D = inverse @ c.T
        size = np.maximum((c.T * D).sum(0), 1e-300)
        a = D / size
        x = inverse @ q
        middle = functions @ (E @ x + f)
        alpha = E @ a
        b = np.repeat(self.point[:, None], middle.size, 1)
        start, slope = a.T @ (q - A @ x), (a * (A @ a)).sum(0)
        normal = float(ndtri((1 + level) / 2))
        noisy = max(normal, -math.log1p(-level) / math.sqrt(2)) if self.pure else normal
        sampling = self.variance / size
        fixed, mixed, square = self.noise(alpha, b, b), self.noise(alpha, b, alpha), self.noise(alpha, alpha, alpha)
        # cross^2 |a|^2 + labels^2 a0^2 is no function of b: it belongs to the constant term alone.
        _, _, _, cross, labels, _ = self.spread
        still = cross**2 * (alpha[:-1] ** 2).sum(0) + labels**2 * alpha[-1] ** 2
        mixed, square, fixed = mixed - still, square - still, fixed + self.doubt(alpha)
        # (start - tau slope)^2 <= normal^2 sampling + noisy^2 (fixed + 2 mixed tau + square tau^2)
        two = slope**2 - noisy**2 * square
        one = start * slope + noisy**2 * mixed
        far = np.sqrt(normal**2 * sampling + noisy**2 * fixed)
        far = far + np.sqrt(((drowned.T @ a) ** 2).sum(0) * self.lowest * self.explained)
        zero = start**2 - far**2
        inside = one**2 - two * zero
        bounded = (slope > 0) & (two > 0) & (inside >= 0)
        with np.errstate(all="ignore"):
            half = np.sqrt(np.maximum(inside, 0.0))
            low = np.where(bounded, middle + (one - half) / two, -np.inf)
            high = np.where(bounded, middle + (one + half) / two, np.inf)
            estimate = np.where(bounded, middle + start / slope, middle)
            error = np.where(bounded, np.sqrt(sampling + fixed) / slope, np.inf)
            privacy = np.where(bounded, 1 - np.sqrt(sampling / (sampling + fixed)), 1.0)
        return estimate, error, low, high, privacy


def table_of(
    moments: Moments,
    level: float,
    variables: Mapping[str, Any],
    labels: Mapping[str, Labels],
    at: Any = None,
) -> IntervalTable:
    """Intervals for the coefficients, or for predictions ``at`` rows; ``variables``, ``labels`` : of the release."""
    m, k = moments, int(moments.width.size)
    fit, notes = Fit(m), []
    if at is None:
        names = tuple(place_names(m.variable, m.place.tolist(), variables, labels))
        places = zip(m.variable, m.place.tolist(), strict=True)
        released = np.array([float(np.ravel(variables[name], order="F")[place]) for name, place in places])
        functions, base = np.zeros((k, k + 1)), np.zeros(k)
        functions[np.arange(k), np.arange(k)] = 1 / m.width
        if m.constant:
            functions = np.vstack([functions, np.r_[-m.middle / m.width, 1.0] / m.constant])
            base = np.r_[base, m.label_middle / m.constant / m.label_width]
        of = "coefficients"
    else:
        rows = _rows(at, k)
        names, released = tuple(f"row {r}" for r in range(len(rows))), np.full(len(rows), np.nan)
        functions = np.c_[(rows - m.middle) / m.width, np.ones(len(rows))]
        base = np.full(len(rows), m.label_middle / m.label_width)
        of = "predictions (means of the label given the row)"
    estimate, error, low, high, privacy = fit.of(functions, level)
    unit = m.label_width
    estimate, low, high = (unit * (each + base) for each in (estimate, low, high))
    if m.ridge.any() or m.linear.any():
        of += " under the public penalty"
    if np.isinf(error).any():
        notes.append("inf: the noise may be all that the data say there. More epsilon, more records, fewer columns.")
    if (np.isfinite(error) & fit.nearly_drowned(functions)).any():
        notes.append(
            "Noise nearly drowns some directions: there a finite interval may be chance, and hold its truth less often."
        )
    of += " in the population of the records, labels and columns clipped to their bounds"
    return IntervalTable(names, released, estimate, unit * error, low, high, privacy, level, of, tuple(notes))


def table_without(
    variables: Mapping[str, Floats], labels: Mapping[str, Labels], title: str, below: Sequence[str]
) -> TextTable:
    """The released numbers alone, with the lines ``below`` them."""
    rows: list[tuple[str, float]] = []
    for key, item in variables.items():
        places = [", ".join(map(str, at)) for at in np.ndindex(item.shape)]
        names = entry_names(item, labels.get(key, ())) or places
        rows += zip([f"{key}[{at}]" if at else key for at in names], item.ravel().tolist(), strict=True)
    left = [f"... and {len(rows) - _SHOWN} more: release.variables"] * (len(rows) > _SHOWN)
    return TextTable(("", "released"), rows[:_SHOWN], title, [*left, *below], width=80)


def place_names(
    variable: Sequence[str], place: Sequence[int], variables: Mapping[str, Any], labels: Mapping[str, Labels]
) -> Iterator[str]:
    """As a release names entry ``place`` (columns first) of each ``variable``: by category, or by place."""
    known = {name: entry_names(np.asarray(variables[name]).T, labels.get(name, ())[::-1]) for name in set(variable)}
    several = sum(map(bool, known.values())) > 1
    for name, at in zip(variable, place, strict=True):
        shape = np.shape(variables[name])
        index = ", ".join(map(str, np.unravel_index(at, shape, order="F"))) if shape else ""
        own = known[name][at] if known[name] else ""
        yield (f"{name}[{own}]" if several else own) or (f"{name}[{index}]" if shape else name)


def _rows(at: Any, k: int) -> Floats:
    try:
        rows = np.asarray(at, dtype=np.float64)
    except (TypeError, ValueError):
        rows = np.zeros(0)
    rows = rows[None] if rows.ndim == 1 and rows.size == k else rows
    if rows.ndim != 2 or rows.shape[1] != k or not np.isfinite(rows).all():
        raise SpecificationError(
            f"intervals: at= is no array of finite numbers with {k} columns",
            why="a prediction needs a number for each coefficient but the intercept",
            remedy=f"at=rows of shape (r, {k}), as the model was fitted to",
        )
    return rows
