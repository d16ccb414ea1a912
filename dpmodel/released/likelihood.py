"""Negative log-likelihoods of published numbers as CVXPY expressions."""

from __future__ import annotations

import numbers
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private

_FORMS = ("likelihood", "least-squares")


class Published(cp.Constant):  # type: ignore[misc]
    """A constant leaf that remembers which published data its numbers are: ``noisy``.

    However the tree around it is rearranged, the leaf stays, and with it the knowledge that the numbers are public.
    It prints as the published data's name.
    """

    def __init__(self, noisy: Noisy) -> None:
        super().__init__(noisy.value, name=noisy.name or f"published{list(noisy.shape) or ''}")
        self.noisy = noisy


def published(noisy: Noisy) -> Published:
    """The published numbers as a constant for losses written by hand: ``cp.norm1(x - published(noisy))``.

    Raises
    ------
    SpecificationError
        For anything but a ``Noisy``: numbers alone do not say which noise they bear.
    """
    return Published(_require_noisy(noisy))


def neg_log_likelihood(x: Any, noisy: Noisy, *, alpha: float = 1.0, form: str = "likelihood") -> cp.Expression:
    """-log P(noisy | truth = x) up to a constant, convex in ``x``. Add the terms of independent measurements.

    With residuals r = x - noisy.value and scales s (one per entry, or one for all):

    ===================================  ==========================================================
    Laplace(s), DiscreteLaplace(s)       ``sum |r| / s``
    Gaussian(s), DiscreteGaussian(s)     ``sum r^2 / (2 s^2)``
    the former two with alpha < 1        ``alpha sum |r| / s + (1 - alpha) sum (r / s)^2``
    form="least-squares", any noise      ``sum r^2 / (2 d^2)``, d the standard deviation of the noise
    ===================================  ==========================================================

    What is dropped is the logarithm of the normalising constant, which does not depend on x. The discrete distributions
    have mass on whole residuals only; between them this is the convex extension, equal to theirs at whole x.

    Parameters
    ----------
    x : affine CVXPY expression of the shape of ``noisy``.
    alpha : in (0, 1], Laplace distributions only: mixes in squares, which makes the optimum unique (elastic net).
    form : "likelihood", or "least-squares" for the least squares estimate weighted by the noise's variances, whatever
        its distribution.

    Raises
    ------
    SpecificationError
        For shapes that differ, an ``x`` that is not affine or is private data itself, an alpha outside (0, 1] or with
        a distribution or form that has no use for it, and data without a noise distribution.

    Notes
    -----
    Source: J. Lee, Y. Wang, D. Kifer, "Maximum Likelihood Postprocessing for Differential Privacy under Consistency
    Constraints", sections 4.1, 4.5 (elastic) and 4.6 (least squares). The paper has one scale for all and writes
    ``|r|`` for ``|r| / s``: with scales that differ, only the weighted sum is the likelihood.

    Examples
    --------
    >>> import cvxpy as cp
    >>> from dpmodel.marks.noisy import Noisy
    >>> from dpmodel.privacy.distributions import Laplace
    >>> x = cp.Variable(2, nonneg=True, name="x")
    >>> counts = Noisy([3.2, -1.4], noise=Laplace(2.0), name="counts")
    >>> print(neg_log_likelihood(x, counts))
    Sum(abs(x + -counts), None, False) / 2.0
    """
    noisy, x = _require_noisy(noisy), _checked(x, noisy)
    alpha = checked_setting(alpha, form)
    if alpha < 1 and np.any(noisy.noise.square):
        raise _squares_alone(alpha)
    residual = x - Published(noisy)
    absolute, square = (_spread(weights, noisy) for weights in distribution_weights(noisy, alpha, form))
    terms = []
    if np.any(absolute):
        terms.append(_weighted(cp.abs(residual), absolute))
    if np.any(square):
        terms.append(_squares(residual, square))
    return terms[0] if len(terms) == 1 else sum(terms[1:], terms[0])


def distribution_weights(noisy: Noisy, alpha: float = 1.0, form: str = "likelihood") -> tuple[Any, Any]:
    """Weights of |r| and of r^2, one number or one per entry; see ``neg_log_likelihood``.
    Errors: SpecificationError, for least squares where the noise of a discrete distribution is zero but for one draw in
    millions."""
    distribution = noisy.noise
    if form == "least-squares":
        # Of the scale: only discrete distributions of scales below 0.2 deviate so little.
        if np.min(distribution.standard_deviation) < 1e-3 * np.min(distribution.scale):
            raise SpecificationError(
                f"{noisy.name or 'published data'}: {distribution.name} noise of scale "
                f"{np.min(distribution.scale):g} is zero in practice",
                why="least squares divide by its variance",
                remedy="these numbers as a constraint: x == value",
            )
        absolute = 0.0 * np.asarray(distribution.absolute)
        return absolute, 0.5 / np.square(distribution.standard_deviation)
    if alpha < 1:
        return alpha * distribution.absolute, (1.0 - alpha) * np.square(distribution.absolute)
    return distribution.absolute, distribution.square


def _spread(weights: Any, noisy: Noisy) -> Any:
    """One number, or an array of the value's shape."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim == 0 or (weights == weights.flat[0]).all():
        return float(weights.flat[0]) if weights.size else 1.0
    return np.broadcast_to(weights, noisy.shape)


def _squares(residual: Any, weights: Any) -> Any:
    if isinstance(weights, float):
        return _scaled(cp.sum_squares(residual), weights)
    return _weighted(cp.square(residual), weights)


def _weighted(terms: Any, weights: Any) -> Any:
    if isinstance(weights, float):
        return _scaled(cp.sum(terms), weights)
    return cp.sum(cp.multiply(np.asarray(weights), terms))


def _scaled(term: Any, weight: float) -> Any:
    """Divided where that reads better: sum |r| / 2 rather than 0.5 sum |r|."""
    if weight == 1.0:
        return term
    divisor = round(1.0 / weight, 9) if weight < 1.0 else 0.0
    return term / divisor if divisor and abs(weight * divisor - 1.0) <= 4e-16 else weight * term


# ------------------------------------------------------------------ checks
def _require_noisy(noisy: Any) -> Noisy:
    if isinstance(noisy, Noisy):
        return noisy
    raise SpecificationError(
        f"published data given as {type(noisy).__name__}",
        why="the likelihood is that of the noise, whose distribution the numbers alone do not tell",
        remedy="Noisy(value, noise=Laplace(scale)), or Gaussian(scale), ...",
    )


def _checked(x: Any, noisy: Noisy) -> Any:
    if isinstance(x, Noisy):
        raise SpecificationError(
            "x is published data itself",
            why="the likelihood is a function of what is looked for",
            remedy="neg_log_likelihood(cp.Variable(...), noisy)",
        )
    x = cp.Constant(x) if not isinstance(x, cp.Expression) else x
    if not x.variables() and any(isinstance(parameter, Private) for parameter in x.parameters()):
        raise SpecificationError(
            "x is private data",
            why="how likely published numbers are under the private ones is itself a private number",
            remedy="measure it first: measure(private, epsilon, delta) gives published data",
        )
    if tuple(x.shape) != noisy.shape:
        raise SpecificationError(
            f"x has shape {tuple(x.shape)}, the published data {noisy.name or ''} has shape {noisy.shape}".replace(
                "  ", " "
            ),
            why="every published number is that of one entry",
            remedy="x[...], cp.reshape(...), or A @ x with one row per published number",
        )
    if not x.is_affine() or x.is_complex():
        raise SpecificationError(
            "x is not an affine real expression of the variables",
            why="only of those is the negative log-likelihood convex",
            remedy="a variable for it, tied to the others by constraints",
        )
    return x


def checked_setting(alpha: Any, form: Any) -> float:
    """``alpha`` as a float.
    Errors: SpecificationError, for an unknown form, an alpha outside (0, 1], and one below 1 with least squares."""
    if form not in _FORMS:
        raise SpecificationError(
            f"form={form!r}",
            why="published numbers are fitted by their likelihood or by weighted least squares",
            remedy=f"{' or '.join(map(repr, _FORMS))}, or leave it out",
        )
    number = isinstance(alpha, numbers.Real) and not isinstance(alpha, bool)
    if not number or not 0 < alpha <= 1:
        raise SpecificationError(
            f"alpha={alpha!r}" if number else f"alpha={type(alpha).__name__}",
            why="the share of the absolute errors is in (0, 1]",
            remedy='form="least-squares" for squares alone',
        )
    if alpha < 1 and form == "least-squares":
        raise _squares_alone(alpha)
    return float(alpha)


def _squares_alone(alpha: Any) -> SpecificationError:
    return SpecificationError(
        f"alpha={alpha!r} with squared errors",
        why="squares are mixed in to make the optimum of absolute errors unique; squares alone need none",
        remedy="alpha=1",
    )


# ------------------------------------------------------------------ publications
def require_one_publication(noisy: Noisy, others: list[Noisy]) -> None:
    """Two publications of the same cells that agree in every number are one, unless that may be chance."""
    for other in others:
        if other is noisy or not np.array_equal(other.value, noisy.value):
            continue
        if (noisy.value == np.rint(noisy.value)).all() and _agreement(noisy) > 1e-6:
            continue
        same = type(other.noise) is type(noisy.noise) and np.array_equal(other.scale, noisy.scale)
        if same:
            raise twice(noisy)
        raise SpecificationError(
            f"{name_of(noisy)}: the same published numbers are declared with two distributions of noise, "
            f"{_distribution(other)} and {_distribution(noisy)}",
            why="numbers published once bear one noise; two measurements of the same cells would differ",
            remedy="one Noisy with the distribution that was published",
        )
    others.append(noisy)


def _agreement(noisy: Noisy) -> float:
    """About how likely noise of this distribution, on integers, is the same in another draw: an entry at most as likely
    as its likeliest value, tanh(1 / (2 scale)) <= 0.71 / standard deviation for Laplace distributions, near 0.4 /
    standard deviation for Gaussian ones."""
    sigma = np.maximum(noisy.standard_deviation, 0.71)
    return float(np.exp(np.log(0.71 / sigma).sum()))


def twice(noisy: Noisy) -> SpecificationError:
    return SpecificationError(
        f"{name_of(noisy)} enters the objective twice for the same cells",
        why="its likelihood would count double",
        remedy="one term, times a number where more weight is meant; other measurements of the same cells are "
        "Noisy values of their own",
    )


def name_of(noisy: Noisy) -> str:
    """The publication's name, or its shape."""
    return noisy.name or f"published data of shape {noisy.shape}"


def _distribution(noisy: Noisy) -> str:
    low, high = float(noisy.scale.min(initial=np.inf)), float(noisy.scale.max(initial=-np.inf))
    return f"{noisy.noise.name} noise of scale {low:.4g}" + (f" to {high:.4g}" if high > low else "")
