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
    "AdaSSP": "published.adassp",
    "Admm": "postprocess.admm.mechanism",
    "AdmmStrategy": "postprocess.admm.mechanism",
    "AdmmTables": "postprocess.admm.mechanism",
    "AdmmTree": "postprocess.admm.mechanism",
    "BlockVotes": "linalg.block_votes",
    "CheapestPoint": "lp.cheapest_point",
    "DPLinearProgram": "linalg.dp_lp.mechanism",
    "DenseMultiplicativeWeights": "lp.dense_weights.mechanism",
    "DenseWeights": "linalg.dense_weights.mechanism",
    "ExactEquations": "lp.exact_equations",
    "ExactTree": "postprocess.exact_tree.mechanism",
    "FrankWolfe": "regression.frank_wolfe.vertices",
    "GaussianFrankWolfe": "regression.frank_wolfe.gaussian",
    "GeneralSolver": "postprocess.general_solver",
    "HingeDescent": "linalg.hinge_descent.mechanism",
    "LeastSquaresTree": "postprocess.least_squares_tree.mechanism",
    "MeasureAndFit": "lp.measure_and_fit",
    "MirrorDescent": "regression.mirror_descent.mechanism",
    "MultinomialDescent": "regression.multinomial",
    "MultinomialObjectivePerturbation": "regression.multinomial",
    "MultinomialSubsampled": "regression.multinomial",
    "NoisyDescent": "regression.descent.full_batch",
    "NoisyHingeDescent": "lp.hinge_descent.mechanism",
    "ObjectivePerturbation": "regression.objective_perturbation.mechanism",
    "PinHull": "linalg.pin_hull.mechanism",
    "PointExponential": "lp.point_exponential.mechanism",
    "PrivateCuttingPlanes": "lp.cutting_planes.mechanism",
    "Projection": "postprocess.projection.mechanism",
    "PureObjectivePerturbation": "regression.objective_perturbation.pure",
    "QuantileExponential": "regression.quantile_exponential",
    "RescalingPerceptron": "linalg.rescaling_perceptron.mechanism",
    "StableSpan": "linalg.stable_span.mechanism",
    "StochasticMirrorDescent": "published.stochastic_mirror_descent",
    "StrictTruncatedLaplace": "lp.strict_truncated_laplace",
    "SubsampledDescent": "regression.descent.subsampled",
    "SufficientStatistics": "regression.sufficient_statistics.mechanism",
    "TukeyDepth": "linalg.tukey_depth.mechanism",
    "VertexExponential": "lp.vertex_exponential.mechanism",
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
        return import_module(f"{__name__}.lp.engines.mechanism").EngineMechanism(found(**settings))

    return of_engine


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
