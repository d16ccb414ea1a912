"""The distributions of noise, as data: what ``Noisy(..., noise=)`` is told, and what plans compare.

``Geometric`` has its scale in epsilon; the others have the scale or the standard deviation in the unit of the numbers.
"""

from dpmodel.privacy.distributions import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Geometric,
    Laplace,
)

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "Gaussian", "Geometric", "Laplace"]
