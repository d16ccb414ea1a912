"""The mechanisms, one file per algorithm, and the protocol they share.

Their classes are here by name, for solves with settings of one's own: ``mechanism=mechanisms.FrankWolfe(steps=40)``.
"""

from functools import wraps
from importlib import import_module
from typing import Any

from dpmodel.mechanisms.contract import Mechanism, Outcome, Request, Serves, Verdict
from dpmodel.mechanisms.forecast import ExcessRisk, Forecast, RowsMissed, Seconds, Violation

__all__ = [
    "ExcessRisk",
    "Forecast",
    "Mechanism",
    "Outcome",
    "Request",
    "RowsMissed",
    "Seconds",
    "Serves",
    "Verdict",
    "Violation",
]

# Looked up when asked for: the mechanisms import their models, which import this room's protocol.
_CLASSES = {
    "AdaSSP": "mechanisms.published.adassp",
    "Admm": "mechanisms.postprocess.admm.mechanism",
    "AdmmStrategy": "mechanisms.postprocess.admm.mechanism",
    "AdmmTables": "mechanisms.postprocess.admm.mechanism",
    "AdmmTree": "mechanisms.postprocess.admm.mechanism",
    "BlockVotes": "mechanisms.linalg.block_votes",
    "CheapestPoint": "mechanisms.lp.cheapest_point",
    "DPLinearProgram": "mechanisms.linalg.dp_lp.mechanism",
    "DenseMultiplicativeWeights": "mechanisms.lp.dense_weights.mechanism",
    "DenseWeights": "mechanisms.linalg.dense_weights.mechanism",
    "ExactEquations": "mechanisms.lp.exact_equations",
    "ExactTree": "mechanisms.postprocess.exact_tree.mechanism",
    "FrankWolfe": "mechanisms.regression.frank_wolfe.vertices",
    "GaussianFrankWolfe": "mechanisms.regression.frank_wolfe.gaussian",
    "GeneralSolver": "mechanisms.postprocess.general_solver",
    "HingeDescent": "mechanisms.linalg.hinge_descent.mechanism",
    "LeastSquaresTree": "mechanisms.postprocess.least_squares_tree.mechanism",
    "MeasureAndFit": "mechanisms.lp.measure_and_fit",
    "MirrorDescent": "mechanisms.regression.mirror_descent.mechanism",
    "MultinomialDescent": "mechanisms.regression.multinomial",
    "MultinomialObjectivePerturbation": "mechanisms.regression.multinomial",
    "MultinomialSubsampled": "mechanisms.regression.multinomial",
    "NoisyDescent": "mechanisms.regression.descent.full_batch",
    "NoisyHingeDescent": "mechanisms.lp.hinge_descent.mechanism",
    "ObjectivePerturbation": "mechanisms.regression.objective_perturbation.mechanism",
    "PinHull": "mechanisms.linalg.pin_hull.mechanism",
    "PointExponential": "mechanisms.lp.point_exponential.mechanism",
    "PrivateCuttingPlanes": "mechanisms.lp.cutting_planes.mechanism",
    "Projection": "mechanisms.postprocess.projection.mechanism",
    "PureObjectivePerturbation": "mechanisms.regression.objective_perturbation.pure",
    "QuantileExponential": "mechanisms.regression.quantile_exponential",
    "RescalingPerceptron": "mechanisms.linalg.rescaling_perceptron.mechanism",
    "StableSpan": "mechanisms.linalg.stable_span.mechanism",
    "StochasticMirrorDescent": "mechanisms.published.stochastic_mirror_descent",
    "StrictTruncatedLaplace": "mechanisms.lp.strict_truncated_laplace",
    "SubsampledDescent": "mechanisms.regression.descent.subsampled",
    "SufficientStatistics": "mechanisms.regression.sufficient_statistics.mechanism",
    "TukeyDepth": "mechanisms.linalg.tukey_depth.mechanism",
    "VertexExponential": "mechanisms.lp.vertex_exponential.mechanism",
}


def __getattr__(name: str) -> Any:
    """The class of a mechanism; of an engine for nearly feasible points, what makes a mechanism of it."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"dpmodel.{_CLASSES[name]}"), name)
    if not hasattr(found, "counts_rows"):
        return found

    @wraps(found, updated=())
    def of_engine(**settings: Any) -> Any:
        return import_module("dpmodel.mechanisms.lp.engines.mechanism").EngineMechanism(found(**settings))

    return of_engine


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
