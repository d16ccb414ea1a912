"""The registry: every mechanism the planner compares. Adding an algorithm is one file and one line here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple, cast

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.classify.private_outputs import PrivateOutputs
from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.contract import Forecast, Mechanism, Outcome, Verdict
from dpmodel.mechanisms.linalg.block_votes import BLOCK_VOTES
from dpmodel.mechanisms.linalg.dense_weights.mechanism import DENSE_WEIGHTS
from dpmodel.mechanisms.linalg.dp_lp.mechanism import DP_LP, DP_LP_PUBLISHED
from dpmodel.mechanisms.linalg.hinge_descent.mechanism import HINGE_DESCENT
from dpmodel.mechanisms.linalg.pin_hull.mechanism import PIN_HULL
from dpmodel.mechanisms.linalg.protocol import SystemMechanism
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
from dpmodel.mechanisms.postprocess.protocol import PostprocessMechanism
from dpmodel.mechanisms.published.adassp import ADASSP_PUBLISHED
from dpmodel.mechanisms.published.admm import ADMM_PUBLISHED
from dpmodel.mechanisms.published.algorithm_2 import ALGORITHM_2
from dpmodel.mechanisms.published.algorithm_4 import ALGORITHM_4
from dpmodel.mechanisms.published.algorithm_5 import ALGORITHM_5
from dpmodel.mechanisms.published.algorithm_6 import ALGORITHM_6
from dpmodel.mechanisms.published.algorithm_10 import ALGORITHM_10
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
from dpmodel.mechanisms.regression.protocol import RegressionMechanism
from dpmodel.mechanisms.regression.public_only import PUBLIC_ONLY_REGRESSION
from dpmodel.mechanisms.regression.sufficient_statistics.mechanism import SUFFICIENT_STATISTICS
from dpmodel.models.request import nearest

_LOG = logging.getLogger("dpmodel")

PORTFOLIO: tuple[Mechanism, ...] = (
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
    # As published, for study and as yardsticks.
    THEOREM_34,
    EngineMechanism(ALGORITHM_2),
    EngineMechanism(ALGORITHM_4),
    EngineMechanism(ALGORITHM_5),
    EngineMechanism(ALGORITHM_6),
)

REGRESSIONS: tuple[RegressionMechanism, ...] = (
    PUBLIC_ONLY_REGRESSION,  # first, so that it is taken where nothing is predicted to beat it
    SUFFICIENT_STATISTICS,
    FRANK_WOLFE,
    NOISY_DESCENT,
    MIRROR_DESCENT,
    OBJECTIVE_PERTURBATION,
    SUBSAMPLED_DESCENT,
    GAUSSIAN_FRANK_WOLFE,
    # As published, for study and as yardsticks.
    ADASSP_PUBLISHED,
    FRANK_WOLFE_PUBLISHED,
    STOCHASTIC_MIRROR_DESCENT,
)

POSTPROCESSING: tuple[PostprocessMechanism, ...] = (
    EXACT_TREE,
    LEAST_SQUARES_TREE,
    PROJECTION,
    ADMM_TREE,
    ADMM_TABLES,
    ADMM_STRATEGY,
    ADMM,
    GENERAL_SOLVER,
    # As published, for study and as a yardstick.
    ADMM_PUBLISHED,
)

VECTORS: tuple[SystemMechanism, ...] = (
    STABLE_SPAN,
    BLOCK_VOTES,
    # As published, for study and as a yardstick.
    STABLE_SPAN_PUBLISHED,
)

INEQUALITIES: tuple[SystemMechanism, ...] = (
    HINGE_DESCENT,
    RESCALING_PERCEPTRON,
    DENSE_WEIGHTS,
    DP_LP,
    # As published, for study and as yardsticks.
    ALGORITHM_10,
    DP_LP_PUBLISHED,
)

POINTS: tuple[SystemMechanism, ...] = (
    TUKEY_DEPTH,
    PIN_HULL,
)

AnyMechanism = Mechanism | RegressionMechanism | EachOutput | PostprocessMechanism | SystemMechanism


# The papers' algorithms with their own constants, which lose to the tightened ones: selectable by name, and compared by
# ``plan(published=True)`` only.
PUBLISHED = frozenset(
    {
        "theorem-34",
        "algorithm-2",
        "algorithm-4",
        "algorithm-5",
        "algorithm-6",
        "adassp-published",
        "frank-wolfe-published",
        "stochastic-mirror-descent",
        "admm-published",
        "stable-span-published",
        "algorithm-10",
        "dp-lp-published",
    }
)


class Kind(NamedTuple):
    """The mechanisms of one kind of model, and what they serve in words."""

    mechanisms: tuple[AnyMechanism, ...]
    words: str

    def compared(self, published: bool) -> tuple[AnyMechanism, ...]:
        """Those that a plan compares: all but the ``PUBLISHED``, or all."""
        return tuple(each for each in self.mechanisms if published or each.name not in PUBLISHED)


KINDS: dict[type, Kind] = {
    PrivateLP: Kind(PORTFOLIO, "linear and cone programs with private parameters"),
    PrivateRegression: Kind(REGRESSIONS, "regressions"),
    PrivateOutputs: Kind(tuple(map(EachOutput, REGRESSIONS)), "regressions of several outputs"),
    Postprocessing: Kind(POSTPROCESSING, "post-processing of published numbers"),
    PrivateVectors: Kind(VECTORS, "spans and equations, one vector per record"),
    PrivateInequalities: Kind(INEQUALITIES, "inequalities to be satisfied exactly, one per record"),
    PrivatePoints: Kind(POINTS, "points in a convex hull, one per record"),
}


# Names of the kinds for ``register_mechanism``.
_SERVES: dict[str, type] = {
    "program": PrivateLP,
    "regression": PrivateRegression,
    "post-processing": Postprocessing,
    "vectors": PrivateVectors,
    "inequalities": PrivateInequalities,
    "points": PrivatePoints,
}


def register_mechanism(mechanism: AnyMechanism, serves: str = "program") -> None:
    """Let every plan of one kind of model compare ``mechanism`` too, in this process.

    Parameters
    ----------
    mechanism : an object with ``name``, ``source``, ``eligible``, ``forecast``, ``run`` (docs/adding-a-mechanism.md).
        Whoever writes one vouches for its privacy: a plan holds its forecast to the budget and checks the form of what
        it hands back, and cannot check what its ``run`` does.
    serves : "program" (linear and cone programs), "regression", "post-processing", "vectors", "inequalities", "points".

    Raises
    ------
    SpecificationError
        For an unknown kind, an object without these methods, and a name that is taken among mechanisms of the kind.
    """
    if serves not in _SERVES:
        shown = repr(serves) if isinstance(serves, str) else type(serves).__name__
        raise SpecificationError(f"serves={shown}", remedy=", ".join(map(repr, _SERVES)))
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism) or not isinstance(mechanism.name, str):
        what = f"the class {mechanism.__name__}" if isinstance(mechanism, type) else f"{type(mechanism).__name__}"
        raise SpecificationError(
            f"{what} is no mechanism",
            why="a mechanism is an object with a name, a source and the methods eligible, forecast and run",
            remedy="an object of a class that has them all (docs/adding-a-mechanism.md)",
        )
    kind = KINDS[_SERVES[serves]]
    if mechanism.name in {"auto", *_names()}:
        raise SpecificationError(f"mechanism {mechanism.name!r} is there already", remedy="another name")
    KINDS[_SERVES[serves]] = kind._replace(mechanisms=(*kind.mechanisms, mechanism))
    if serves == "regression":
        several = KINDS[PrivateOutputs]
        each = EachOutput(cast(RegressionMechanism, mechanism))
        KINDS[PrivateOutputs] = several._replace(mechanisms=(*several.mechanisms, each))


@dataclass(frozen=True)
class Broken:
    """A line in every plan for an entry point that names no mechanism."""

    name: str
    source: str
    error: SpecificationError

    def eligible(self, model: object, request: object) -> Verdict:
        raise self.error

    def forecast(self, model: object, request: object) -> Forecast:
        raise self.error

    def run(self, model: object, request: object, noise: object, progress: object = None) -> Outcome:
        raise self.error


@cache
def load_entry_points() -> None:
    """Register what installed packages offer under the entry-point group ``dpmodel.mechanisms``, once per process.

    An entry point names a mechanism object; its attribute ``serves`` says what kind of model (``register_mechanism``),
    "program" without one. One that is none is a line in the plan and a log record, and stops nobody.
    """
    for entry in entry_points(group="dpmodel.mechanisms"):
        source = f"entry point {entry.name!r} of {entry.dist.name if entry.dist else 'a package'}"
        try:
            mechanism = entry.load()
            register_mechanism(mechanism, getattr(mechanism, "serves", "program"))
        except Exception as error:
            _LOG.warning("%s is not used", source, exc_info=error)
            what = error.what if isinstance(error, SpecificationError) else type(error).__name__
            name = f"entry point {entry.name}" if entry.name in _names() else entry.name
            broken = Broken(name, source, SpecificationError(f"{source}: {what}"))
            for kind, given in KINDS.items():
                KINDS[kind] = given._replace(mechanisms=(*given.mechanisms, broken))


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
        return EachOutput(cast(RegressionMechanism, mechanism))
    return mechanism
