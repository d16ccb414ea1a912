"""The registry: every mechanism the planner compares. Adding an algorithm is one file and one line here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, NamedTuple

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.classify.private_outputs import PrivateOutputs
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.contract import Mechanism, Outcome, Serves, Verdict
from dpmodel.mechanisms.forecast import Forecast
from dpmodel.mechanisms.linalg.block_votes import BLOCK_VOTES
from dpmodel.mechanisms.linalg.dense_weights.mechanism import DENSE_WEIGHTS
from dpmodel.mechanisms.linalg.dp_lp.mechanism import DP_LP
from dpmodel.mechanisms.linalg.hinge_descent.mechanism import HINGE_DESCENT
from dpmodel.mechanisms.linalg.pin_hull.mechanism import PIN_HULL
from dpmodel.mechanisms.linalg.rescaling_perceptron.mechanism import RESCALING_PERCEPTRON
from dpmodel.mechanisms.linalg.stable_span.mechanism import STABLE_SPAN
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, PrivatePoints, PrivateVectors
from dpmodel.mechanisms.linalg.tukey_depth.mechanism import TUKEY_DEPTH
from dpmodel.mechanisms.lp.cheapest_point import CHEAPEST_POINT
from dpmodel.mechanisms.lp.cutting_planes.mechanism import PRIVATE_CUTTING_PLANES
from dpmodel.mechanisms.lp.dense_weights.mechanism import DENSE_MULTIPLICATIVE_WEIGHTS
from dpmodel.mechanisms.lp.engines.mechanism import EngineMechanism
from dpmodel.mechanisms.lp.exact_equations import EXACT_EQUATIONS
from dpmodel.mechanisms.lp.hinge_descent.mechanism import NOISY_HINGE_DESCENT
from dpmodel.mechanisms.lp.measure_and_fit import MEASURE_AND_FIT
from dpmodel.mechanisms.lp.multiplicative_weights.coefficients import NOISY_MULTIPLICATIVE_WEIGHTS
from dpmodel.mechanisms.lp.multiplicative_weights.right_hand_sides import MULTIPLICATIVE_WEIGHTS
from dpmodel.mechanisms.lp.noise_once.mechanism import GAUSSIAN_ONCE, LAPLACE_ONCE
from dpmodel.mechanisms.lp.point_exponential.mechanism import POINT_EXPONENTIAL
from dpmodel.mechanisms.lp.public.mechanism import PUBLIC_ONLY
from dpmodel.mechanisms.lp.strict_truncated_laplace import STRICT_TRUNCATED_LAPLACE
from dpmodel.mechanisms.lp.vertex_exponential.mechanism import VERTEX_EXPONENTIAL
from dpmodel.mechanisms.postprocess.admm.mechanism import ADMM, ADMM_STRATEGY, ADMM_TABLES, ADMM_TREE
from dpmodel.mechanisms.postprocess.exact_tree.mechanism import EXACT_TREE
from dpmodel.mechanisms.postprocess.general_solver import GENERAL_SOLVER
from dpmodel.mechanisms.postprocess.least_squares_tree.mechanism import LEAST_SQUARES_TREE
from dpmodel.mechanisms.postprocess.projection.mechanism import PROJECTION
from dpmodel.mechanisms.published.adassp import ADASSP_PUBLISHED
from dpmodel.mechanisms.published.admm import ADMM_PUBLISHED
from dpmodel.mechanisms.published.algorithm_2 import ALGORITHM_2
from dpmodel.mechanisms.published.algorithm_4 import ALGORITHM_4
from dpmodel.mechanisms.published.algorithm_5 import ALGORITHM_5
from dpmodel.mechanisms.published.algorithm_6 import ALGORITHM_6
from dpmodel.mechanisms.published.algorithm_10 import ALGORITHM_10
from dpmodel.mechanisms.published.dp_lp import DP_LP_PUBLISHED
from dpmodel.mechanisms.published.frank_wolfe import FRANK_WOLFE_PUBLISHED
from dpmodel.mechanisms.published.stable_span import STABLE_SPAN_PUBLISHED
from dpmodel.mechanisms.published.stochastic_mirror_descent import STOCHASTIC_MIRROR_DESCENT
from dpmodel.mechanisms.published.theorem_34 import THEOREM_34
from dpmodel.mechanisms.regression.descent.full_batch import NOISY_DESCENT
from dpmodel.mechanisms.regression.descent.subsampled import SUBSAMPLED_DESCENT
from dpmodel.mechanisms.regression.each_output import EachOutput
from dpmodel.mechanisms.regression.frank_wolfe.gaussian import GAUSSIAN_FRANK_WOLFE
from dpmodel.mechanisms.regression.frank_wolfe.vertices import FRANK_WOLFE
from dpmodel.mechanisms.regression.mirror_descent.mechanism import MIRROR_DESCENT
from dpmodel.mechanisms.regression.objective_perturbation.mechanism import OBJECTIVE_PERTURBATION
from dpmodel.mechanisms.regression.public_only import PUBLIC_ONLY_REGRESSION
from dpmodel.mechanisms.regression.sufficient_statistics.mechanism import SUFFICIENT_STATISTICS
from dpmodel.models.request import nearest

_LOG = logging.getLogger("dpmodel")

AnyMechanism = Mechanism[Any]

# In each family the order decides among equals. Published variants stand last.
MECHANISMS: tuple[AnyMechanism, ...] = (
    MEASURE_AND_FIT,
    LAPLACE_ONCE,
    GAUSSIAN_ONCE,
    VERTEX_EXPONENTIAL,
    STRICT_TRUNCATED_LAPLACE,
    EngineMechanism(NOISY_HINGE_DESCENT),
    EngineMechanism(DENSE_MULTIPLICATIVE_WEIGHTS),
    EngineMechanism(POINT_EXPONENTIAL),
    CHEAPEST_POINT,
    EngineMechanism(MULTIPLICATIVE_WEIGHTS),
    PRIVATE_CUTTING_PLANES,
    EXACT_EQUATIONS,
    EngineMechanism(NOISY_MULTIPLICATIVE_WEIGHTS),
    PUBLIC_ONLY,
    THEOREM_34,
    EngineMechanism(ALGORITHM_2),
    EngineMechanism(ALGORITHM_4),
    EngineMechanism(ALGORITHM_5),
    EngineMechanism(ALGORITHM_6),
    # Regressions. First, so that it is taken where nothing is predicted to beat it:
    PUBLIC_ONLY_REGRESSION,
    SUFFICIENT_STATISTICS,
    FRANK_WOLFE,
    NOISY_DESCENT,
    MIRROR_DESCENT,
    OBJECTIVE_PERTURBATION,
    SUBSAMPLED_DESCENT,
    GAUSSIAN_FRANK_WOLFE,
    ADASSP_PUBLISHED,
    FRANK_WOLFE_PUBLISHED,
    STOCHASTIC_MIRROR_DESCENT,
    # Post-processing.
    EXACT_TREE,
    LEAST_SQUARES_TREE,
    PROJECTION,
    ADMM_TREE,
    ADMM_TABLES,
    ADMM_STRATEGY,
    ADMM,
    GENERAL_SOLVER,
    ADMM_PUBLISHED,
    # Exact systems: vectors, inequalities, points.
    STABLE_SPAN,
    BLOCK_VOTES,
    STABLE_SPAN_PUBLISHED,
    HINGE_DESCENT,
    RESCALING_PERCEPTRON,
    DENSE_WEIGHTS,
    DP_LP,
    ALGORITHM_10,
    DP_LP_PUBLISHED,
    TUKEY_DEPTH,
    PIN_HULL,
)


class Kind(NamedTuple):
    """The mechanisms of one kind of model, and what they serve in words."""

    mechanisms: tuple[AnyMechanism, ...]
    words: str

    def compared(self, published: bool) -> tuple[AnyMechanism, ...]:
        """Those that a plan compares: all but the papers' own constants, or all."""
        return tuple(each for each in self.mechanisms if published or not each.published)


_WORDS: dict[type, str] = {
    PrivateLP: "linear and cone programs with private parameters",
    PrivateRegression: "regressions",
    PrivateOutputs: "regressions of several outputs",
    Postprocessing: "post-processing of published numbers",
    PrivateVectors: "spans and equations, one vector per record",
    PrivateInequalities: "inequalities to be satisfied exactly, one per record",
    PrivatePoints: "points in a convex hull, one per record",
}
KINDS: dict[type, Kind] = {model: Kind((), words) for model, words in _WORDS.items()}


def _add(mechanism: AnyMechanism, model: type) -> None:
    KINDS[model] = KINDS[model]._replace(mechanisms=(*KINDS[model].mechanisms, mechanism))
    if model is PrivateRegression:  # several outputs are one regression each
        _add(EachOutput(mechanism), PrivateOutputs)


for _each in MECHANISMS:
    _add(_each, _each.serves.model)


def register_mechanism(mechanism: AnyMechanism) -> None:
    """Let every plan of the kind of model that ``mechanism`` serves compare it too, in this process.

    Parameters
    ----------
    mechanism : an object of a class that inherits from ``dpmodel.mechanisms.Mechanism`` (docs/adding-a-mechanism.md).
        Whoever writes one vouches for its privacy: a plan holds its forecast to the budget and checks the form of what
        it hands back, and cannot check what its ``run`` does.

    Raises
    ------
    SpecificationError
        For an object that is no mechanism, a model that no plan knows, and a name that is taken.
    """
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism):
        what = f"the class {mechanism.__name__}" if isinstance(mechanism, type) else f"{type(mechanism).__name__}"
        missing = [each for each in _METHODS if not hasattr(mechanism, each)]
        raise SpecificationError(
            f"{what} is no mechanism",
            why=f"it has no {', '.join(missing)}" if missing else "an object is asked for, not a class",
            remedy="an object of a class that inherits from dpmodel.mechanisms.Mechanism (docs/adding-a-mechanism.md)",
        )
    if not isinstance(mechanism.name, str) or mechanism.name in {"auto", *_names()}:
        raise SpecificationError(f"mechanism {mechanism.name!r} is there already", remedy="another name")
    model = getattr(mechanism.serves, "model", None)
    if model not in KINDS:
        shown = getattr(model, "__name__", type(mechanism.serves).__name__)
        known = ", ".join(f"Serves({each.__name__})" for each in KINDS)
        raise SpecificationError(f"{mechanism.name!r} serves {shown}, which no plan compares", remedy=f"serves={known}")
    _add(mechanism, model)


_METHODS = ("name", "source", "serves", "published", "eligible", "at_least", "forecast", "run")


@dataclass(frozen=True)
class Broken(Mechanism[Any]):
    """A line in every plan for an entry point that names no mechanism."""

    serves: ClassVar[Serves] = Serves(object)
    name: str = ""
    source: str = ""
    error: SpecificationError | None = None

    def eligible(self, model: object, request: object) -> Verdict:
        raise self.error or TypeError

    def forecast(self, model: object, request: object) -> Forecast:
        raise self.error or TypeError

    def run(self, model: object, request: object, noise: object, progress: object = None) -> Outcome:
        raise self.error or TypeError


@cache
def load_entry_points() -> None:
    """Register what installed packages offer under the entry-point group ``dpmodel.mechanisms``, once per process.

    An entry point names a mechanism (``register_mechanism``). What is none is a line in the plan and a log record, and
    stops nobody.
    """
    for entry in entry_points(group="dpmodel.mechanisms"):
        source = f"entry point {entry.name!r} of {entry.dist.name if entry.dist else 'a package'}"
        try:
            register_mechanism(entry.load())
        except Exception as error:
            _LOG.warning("%s is not used", source, exc_info=error)
            what = error.what if isinstance(error, SpecificationError) else type(error).__name__
            name = f"entry point {entry.name}" if entry.name in _names() else entry.name
            broken = Broken(name, source, SpecificationError(f"{source}: {what}"))
            for model in _WORDS:
                if model is not PrivateOutputs:
                    _add(broken, model)


def _names() -> set[str]:
    return {each.name for kind in KINDS.values() for each in kind.mechanisms}


def by_name(name: str, kind: type | None = None) -> AnyMechanism:
    """The mechanism called ``name``.

    Raises
    ------
    SpecificationError
        For an unknown name, with the names that would do (for the ``kind`` of model, if one is given).
    """
    everything: list[AnyMechanism] = [mechanism for each in KINDS.values() for mechanism in each.mechanisms]
    fitting: Sequence[AnyMechanism] = everything if kind is None else KINDS[kind].mechanisms
    for mechanism in (*fitting, *everything):  # a name may stand for one mechanism of each kind
        if mechanism.name == name:
            return mechanism
    names = ", ".join(repr(mechanism.name) for mechanism in fitting)
    near = nearest(name, [mechanism.name for mechanism in fitting])
    raise SpecificationError(f"mechanism={name!r}", why="no such mechanism", remedy=f"{near}'auto', {names}")


def named(mechanism: str | AnyMechanism, kind: type | None = None) -> AnyMechanism:
    """The mechanism itself, given its name or an object that has the methods of one. ``kind`` as in ``by_name``.

    Raises
    ------
    SpecificationError
        For an unknown name, or anything else.
    """
    if callable(mechanism) and not isinstance(mechanism, Mechanism):
        name = getattr(mechanism, "__name__", "a function")
        raise SpecificationError(f"mechanism={name}", why="it makes mechanisms", remedy=f"call it: mechanism={name}()")
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism):
        return by_name(mechanism if isinstance(mechanism, str) else type(mechanism).__name__, kind)
    if kind is PrivateOutputs and not isinstance(mechanism, EachOutput):
        return EachOutput(mechanism)
    return mechanism
