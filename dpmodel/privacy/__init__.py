"""Privacy: the only home of randomness and budget.

`distributions` describe, `noise` draws, `selection` picks, `conversions`, `accounting` and `events` count, `ledger` and
`budget` refuse. Of the package it knows errors, tables and figures alone.

What is private by default is drawn in two files, to be read in this order: `sampling` (digits of uniform numbers,
integers, selection), `noise` (real numbers, and what is refused).
"""

from dpmodel.privacy.accounting import (
    LEAST_DELTA,
    PerStep,
    PoissonCoins,
    StepKind,
    per_step,
    poisson_coins,
    poisson_sample,
    pure_composition_delta,
    subsampled_epsilon,
    subsampled_multiplier,
)
from dpmodel.privacy.budget import Budget
from dpmodel.privacy.conversions import (
    PrivacyLoss,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    laplace_rho,
    pure_mu,
    pure_rho,
    truncated_gaussian_width,
    truncated_laplace_half_width,
    validate_privacy,
    zcdp_epsilon,
    zcdp_rho,
)
from dpmodel.privacy.distributions import (
    Distribution,
    Gaussian,
    Laplace,
    Truncated,
    TruncatedGaussian,
    TruncatedLaplace,
)
from dpmodel.privacy.events import Cost
from dpmodel.privacy.ledger import Charge
from dpmodel.privacy.noise import (
    DiscreteNoiseSource,
    ExactSource,
    NoiseSource,
    PublicGenerator,
    SeededSource,
    SelectionKind,
    noise_source,
    public_coins,
    public_generator,
)
from dpmodel.privacy.selection import (
    AboveThreshold,
    above_threshold_error,
    exponential_mechanism,
    exponential_mechanism_error,
    permute_and_flip,
    permute_and_flip_error,
)

__all__ = [
    "LEAST_DELTA",
    "AboveThreshold",
    "Budget",
    "Charge",
    "Cost",
    "DiscreteNoiseSource",
    "Distribution",
    "ExactSource",
    "Gaussian",
    "Laplace",
    "NoiseSource",
    "PerStep",
    "PoissonCoins",
    "PrivacyLoss",
    "PublicGenerator",
    "SeededSource",
    "SelectionKind",
    "StepKind",
    "Truncated",
    "TruncatedGaussian",
    "TruncatedLaplace",
    "above_threshold_error",
    "exponential_mechanism",
    "exponential_mechanism_error",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "laplace_rho",
    "noise_source",
    "per_step",
    "permute_and_flip",
    "permute_and_flip_error",
    "poisson_coins",
    "poisson_sample",
    "public_coins",
    "public_generator",
    "pure_composition_delta",
    "pure_mu",
    "pure_rho",
    "subsampled_epsilon",
    "subsampled_multiplier",
    "truncated_gaussian_width",
    "truncated_laplace_half_width",
    "validate_privacy",
    "zcdp_epsilon",
    "zcdp_rho",
]
