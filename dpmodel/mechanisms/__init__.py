"""The mechanisms, one file per algorithm, and the protocol they share.

Their classes are here by name, for solves with settings of one's own: ``mechanism=mechanisms.FrankWolfe(steps=40)``.
"""

from importlib import import_module
from typing import Any

from dpmodel.contract import Mechanism, Options, Outcome, Serves, Verdict
from dpmodel.forecast import ExcessRisk, Forecast, Place, RowsMissed, Violation

__all__ = [
    "ExcessRisk",
    "Forecast",
    "Mechanism",
    "Options",
    "Outcome",
    "Place",
    "RowsMissed",
    "Serves",
    "Verdict",
    "Violation",
]

# Looked up when asked for: the mechanisms import their models, which import this room's protocol.
_CLASSES = {
    "AdaSSP": "as_printed.adassp",
    "Admm": "released.admm",
    "DPLinearProgram": "exact.dp_lp",
    "DenseMultiplicativeWeights": "programs.dense_weights",
    "ExactEquations": "programs.equations",
    "ExactTree": "released.exact_tree",
    "FrankWolfe": "regressions.frank_wolfe",
    "GaussianFrankWolfe": "regressions.gaussian_frank_wolfe",
    "GeneralSolver": "released.general_solver",
    "HingeDescent": "exact.hinge_descent",
    "LeastSquaresTree": "released.least_squares_tree",
    "MeasureAndFit": "programs.measure_and_fit",
    "MirrorDescent": "regressions.mirror_descent",
    "NoisyDescent": "regressions.descent",
    "NoisyHingeDescent": "programs.hinge",
    "ObjectivePerturbation": "regressions.objective_perturbation",
    "PinHull": "exact.pin_hull",
    "PointExponential": "programs.points",
    "Projection": "released.projection",
    "PureObjectivePerturbation": "regressions.pure_objective_perturbation",
    "QuantileExponential": "regressions.quantile_exponential",
    "RescalingPerceptron": "exact.rescaling_perceptron",
    "StableSpan": "exact.stable_span",
    "StochasticMirrorDescent": "as_printed.stochastic_mirror_descent",
    "StrictTruncatedLaplace": "programs.strict",
    "SufficientStatistics": "regressions.sufficient_statistics",
    "TukeyDepth": "exact.tukey_depth",
    "VertexExponential": "programs.vertex",
}


def __getattr__(name: str) -> Any:
    """The class of a mechanism."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"dpmodel.{_CLASSES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_CLASSES])
