"""The mechanisms, one file per algorithm, and the protocol they share.

Their classes are here by name, for solves with settings of one's own: ``mechanism=mechanisms.FrankWolfe(steps=40)``.
"""

from functools import wraps
from importlib import import_module
from typing import Any

from dpmodel.mechanisms.mechanism import Forecast, Mechanism, Outcome, Request, Verdict

__all__ = ["Forecast", "Mechanism", "Outcome", "Request", "Verdict"]

# Looked up when asked for: the mechanisms import their models, which import this room's protocol.
_CLASSES = {
    "AdaSSP": "regression.statistics_adassp",
    "Admm": "postprocess.admm_mechanisms",
    "AdmmStrategy": "postprocess.admm_mechanisms",
    "AdmmTables": "postprocess.admm_mechanisms",
    "AdmmTree": "postprocess.admm_mechanisms",
    "BlockVotes": "linalg.block_votes",
    "CheapestPoint": "lp.cheapest_point",
    "DPLinearProgram": "linalg.dp_lp",
    "DenseMultiplicativeWeights": "lp.dense_multiplicative_weights",
    "DenseWeights": "linalg.dense_weights",
    "ExactEquations": "lp.exact_equations",
    "ExactTree": "postprocess.exact_tree",
    "FrankWolfe": "regression.frank_wolfe",
    "GaussianFrankWolfe": "regression.gaussian_frank_wolfe",
    "GeneralSolver": "postprocess.general_solver",
    "HingeDescent": "linalg.hinge_descent",
    "LeastSquaresTree": "postprocess.least_squares_tree",
    "MeasureAndFit": "lp.measure_and_fit",
    "MirrorDescent": "regression.mirror_descent",
    "NoisyDescent": "regression.noisy_descent",
    "NoisyHingeDescent": "lp.noisy_hinge_descent",
    "ObjectivePerturbation": "regression.objective_perturbation",
    "PinHull": "linalg.pin_hull",
    "PointExponential": "lp.point_selection",
    "PrivateCuttingPlanes": "lp.private_cutting_planes",
    "Projection": "postprocess.projection",
    "RescalingPerceptron": "linalg.rescaling_perceptron",
    "StableSpan": "linalg.stable_span",
    "StochasticMirrorDescent": "regression.stochastic_mirror_descent",
    "StrictTruncatedLaplace": "lp.strict_truncated_laplace",
    "SubsampledDescent": "regression.subsampled_descent",
    "SufficientStatistics": "regression.sufficient_statistics",
    "TukeyDepth": "linalg.tukey_depth",
    "VertexExponential": "lp.vertex_selection",
}


def __getattr__(name: str) -> Any:
    """The class of a mechanism; of an engine for nearly feasible points, what makes a mechanism of it."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_CLASSES[name]}"), name)
    if not hasattr(found, "counts_rows"):
        return found

    @wraps(found, updated=())
    def of_engine(**settings: Any) -> Any:
        return import_module(f"{__name__}.lp.goal").EngineMechanism(found(**settings))

    return of_engine


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
