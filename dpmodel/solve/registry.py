"""The registry: every mechanism the planner compares. Adding an algorithm is one file and one line here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from itertools import chain
from typing import Any, ClassVar

from dpmodel.compile.form import public_key
from dpmodel.compile.refusals import warn_of_leaves
from dpmodel.contract import Mechanism, Model, Outcome, Serves, Verdict
from dpmodel.errors import SpecificationError
from dpmodel.exact.model import PrivateInequalities, PrivatePoints, PrivateVectors
from dpmodel.forecast import Forecast
from dpmodel.joint.model import JointModel
from dpmodel.memo import latest
from dpmodel.options import nearest
from dpmodel.programs.model import Program
from dpmodel.programs.taxonomy import CELLS, Taxonomy
from dpmodel.regressions.model import AnyRegression, PrivateOutputs, PrivateRegression
from dpmodel.released.model import Postprocessing

_LOG = logging.getLogger("dpmodel")

AnyMechanism = Mechanism[Any]

# The families that a problem may be of, tried in order; what no other reads is a program.
FAMILIES: tuple[type[Model], ...] = (Postprocessing, JointModel, AnyRegression, Program)


def family_of(problem: Any) -> type[Model]:
    """The first of ``FAMILIES`` that recognises a ``Problem``; kept with it while its public parameters stay. Warns of
    what looks like private data among its public leaves.
    Errors: SpecificationError, for a ``clip`` where no loss has derivatives to cut; UnsupportedModelError, as
    ``Model.recognise``."""
    return latest(problem, "family", public_key(problem), lambda: _first_that_recognises(problem))


def _first_that_recognises(problem: Any) -> type[Model]:
    *first, last = FAMILIES
    family = next((each for each in first if each.recognise(problem) is not None), last)
    warn_of_leaves(problem, by_record=family.by_record)
    if problem.clip is not None and not family.clips:
        raise SpecificationError(
            f"clip={problem.clip!r}",
            why="only the losses of a regression have derivatives to cut, and this problem is not a regression",
            remedy="leave it out",
        )
    return family


# Where the mechanisms of each kind of model are: they are loaded when such a model is first planned. In each kind the
# order decides among equals; those as printed stand last.
_HOMES: dict[type, tuple[str, ...]] = {
    Program: (
        "programs.measure_and_fit:MEASURE_AND_FIT",
        "programs.noise_once:LAPLACE_ONCE",
        "programs.noise_once:GAUSSIAN_ONCE",
        "programs.vertex:VERTEX_EXPONENTIAL",
        "programs.strict:STRICT_TRUNCATED_LAPLACE",
        "programs.strict:STRICT_TRUNCATED_GAUSSIAN",
        "programs.hinge:NOISY_HINGE_DESCENT",
        "programs.dense_weights:DENSE_MULTIPLICATIVE_WEIGHTS",
        "programs.split_votes:SPLIT_VOTES",
        "programs.points:POINT_EXPONENTIAL",
        "programs.points:CHEAPEST_POINT",
        "programs.weights:MULTIPLICATIVE_WEIGHTS",
        "programs.equations:EXACT_EQUATIONS",
        "programs.weights:NOISY_MULTIPLICATIVE_WEIGHTS",
        "programs.public_only:PUBLIC_ONLY",
        "as_printed.theorem_34:THEOREM_34",
        "as_printed.algorithm_2:ALGORITHM_2",
        "as_printed.algorithms_4_to_6:ALGORITHM_4",
        "as_printed.algorithms_4_to_6:ALGORITHM_5",
        "as_printed.algorithms_4_to_6:ALGORITHM_6",
    ),
    PrivateRegression: (
        # First, so that it is taken where nothing is predicted to beat it:
        "regressions.excess:PUBLIC_ONLY_REGRESSION",
        "regressions.sufficient_statistics:SUFFICIENT_STATISTICS",
        "regressions.private_constant:PRIVATE_CONSTANT",
        "regressions.frank_wolfe:FRANK_WOLFE",
        "regressions.descent:NOISY_DESCENT",
        "regressions.mirror_descent:MIRROR_DESCENT",
        "regressions.objective_perturbation:OBJECTIVE_PERTURBATION",
        "regressions.pure_objective_perturbation:PURE_OBJECTIVE_PERTURBATION",
        "regressions.gaussian_frank_wolfe:GAUSSIAN_FRANK_WOLFE",
        "as_printed.adassp:ADASSP_AS_PRINTED",
        "as_printed.frank_wolfe:FRANK_WOLFE_AS_PRINTED",
        "as_printed.stochastic_mirror_descent:STOCHASTIC_MIRROR_DESCENT",
    ),
    Postprocessing: (
        "released.exact_tree:EXACT_TREE",
        "released.least_squares_tree:LEAST_SQUARES_TREE",
        "released.projection:PROJECTION",
        "released.admm:ADMM",
        "released.general_solver:GENERAL_SOLVER",
        "as_printed.algorithm_1:ADMM_AS_PRINTED",
    ),
    JointModel: (
        "joint.noisy_prices:NOISY_PRICES",
        "joint.even_shares:EVEN_SHARES",
        "as_printed.jointly_private_programming:JOINTLY_PRIVATE_PROGRAMMING",
        "as_printed.noisy_dual_mirror_descent:NOISY_DUAL_MIRROR_DESCENT",
        "as_printed.noisy_dual_mirror_descent:NOISY_DUAL_GRADIENT_DESCENT",
    ),
    PrivateVectors: (
        "exact.stable_span:STABLE_SPAN",
        "exact.category_span:CATEGORY_SPAN",
        "as_printed.stable_span:STABLE_SPAN_AS_PRINTED",
    ),
    PrivateInequalities: (
        "exact.hinge_descent:HINGE_DESCENT",
        "exact.rescaling_perceptron:RESCALING_PERCEPTRON",
        "exact.dp_lp:DP_LP",
    ),
    PrivatePoints: (
        "exact.tukey_depth:TUKEY_DEPTH",
        "exact.pin_hull:PIN_HULL",
    ),
}
_HOMES[PrivateOutputs] = _HOMES[PrivateRegression]  # several outputs are one regression each


@cache
def _load(home: str, outputs: bool) -> AnyMechanism:
    """The mechanism of this name in its module. ``outputs`` : for each of several outputs."""
    module, _, name = home.partition(":")
    found = getattr(import_module(f"dpmodel.{module}"), name)
    mechanism: AnyMechanism = _of_outputs(found) if outputs else found
    return mechanism


def _of_outputs(mechanism: AnyMechanism) -> AnyMechanism:
    each: AnyMechanism = import_module("dpmodel.regressions.each_output").EachOutput(mechanism)
    return each


@dataclass(frozen=True)
class Kind:
    """The mechanisms of one kind of model, and what they serve in words; ``added`` : those of other packages."""

    model: type
    words: str
    added: tuple[AnyMechanism, ...] = ()

    @cached_property
    def mechanisms(self) -> tuple[AnyMechanism, ...]:
        outputs = self.model is PrivateOutputs
        return (*(_load(home, outputs) for home in _HOMES[self.model]), *self.added)

    def compared(self, as_printed: bool) -> tuple[AnyMechanism, ...]:
        """Those that a plan compares: all but the papers' own constants, or all."""
        return tuple(each for each in self.mechanisms if as_printed or not each.serves.as_printed)


_WORDS: dict[type, str] = {
    Program: "linear and cone programs with private parameters",
    PrivateRegression: "regressions",
    PrivateOutputs: "regressions of several outputs",
    Postprocessing: "post-processing of published numbers",
    JointModel: "shares of people who own their variables",
    PrivateVectors: "spans and equations, one vector per record",
    PrivateInequalities: "inequalities to be satisfied exactly, one per record",
    PrivatePoints: "points in a convex hull, one per record",
}
KINDS: dict[type, Kind] = {model: Kind(model, words) for model, words in _WORDS.items()}


def _add(mechanism: AnyMechanism, model: type) -> None:
    KINDS[model] = replace(KINDS[model], added=(*KINDS[model].added, mechanism))
    if model is PrivateRegression:
        _add(_of_outputs(mechanism), PrivateOutputs)


def register_mechanism(mechanism: AnyMechanism) -> None:
    """Let every plan of the kind of model that ``mechanism`` serves compare it too, in this process.

    Parameters
    ----------
    mechanism : an object of a class that inherits from ``dpmodel.mechanisms.Mechanism``
        (docs/develop/adding-a-mechanism.md). Whoever writes one vouches for its privacy: a plan holds its forecast to
        the budget and checks the form of what it hands back, and cannot check what its ``run`` does.

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
            remedy="an object whose class inherits dpmodel.mechanisms.Mechanism (docs/develop/adding-a-mechanism.md)",
        )
    if not isinstance(mechanism.name, str) or mechanism.name in {"auto", *_names()}:
        raise SpecificationError(f"mechanism {mechanism.name!r} is there already", remedy="another name")
    model = getattr(mechanism.serves, "model", None)
    if model not in KINDS:
        shown = getattr(model, "__name__", type(mechanism.serves).__name__)
        known = ", ".join(f"Serves({each.__name__})" for each in KINDS)
        raise SpecificationError(f"{mechanism.name!r} serves {shown}, which no plan compares", remedy=f"serves={known}")
    _add(mechanism, model)


_METHODS = ("name", "source", "serves", "eligible", "bound", "forecast", "run")


@dataclass(frozen=True)
class Broken(Mechanism[Any]):
    """A line in every plan for an entry point that names no mechanism."""

    serves: ClassVar[Serves] = Serves(object)
    name: str = ""
    source: str = ""
    error: SpecificationError | None = None

    def eligible(self, model: object, options: object) -> Verdict:
        raise self.error or TypeError

    def forecast(self, model: object, options: object) -> Forecast:
        raise self.error or TypeError

    def run(self, model: object, options: object, noise: object, progress: object = None) -> Outcome:
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
    Errors: SpecificationError, for an unknown name, with the names that would do (for the ``kind`` of model, if one is
    given)."""
    everything = (mechanism for each in KINDS.values() for mechanism in each.mechanisms)
    fitting: Sequence[AnyMechanism] = () if kind is None else KINDS[kind].mechanisms
    for mechanism in chain(fitting, everything):  # a name may stand for one mechanism of each kind
        if mechanism.name == name:
            return mechanism
    fitting = fitting if kind else [mechanism for each in KINDS.values() for mechanism in each.mechanisms]
    names = list(dict.fromkeys(mechanism.name for mechanism in fitting))
    remedy = f"{nearest(name, names)}'auto', {', '.join(map(repr, names))}"
    raise SpecificationError(f"mechanism={name!r}", why="no such mechanism", remedy=remedy)


def named(mechanism: str | AnyMechanism, kind: type | None = None) -> AnyMechanism:
    """The mechanism itself, given its name or an object that has the methods of one. ``kind`` as in ``by_name``.
    Errors: SpecificationError, for an unknown name, or anything else."""
    if callable(mechanism) and not isinstance(mechanism, Mechanism):
        name = getattr(mechanism, "__name__", "a function")
        raise SpecificationError(f"mechanism={name}", why="it makes mechanisms", remedy=f"call it: mechanism={name}()")
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism):
        return by_name(mechanism if isinstance(mechanism, str) else type(mechanism).__name__, kind)
    if kind is PrivateOutputs and mechanism.serves.model is not PrivateOutputs:
        return _of_outputs(mechanism)
    return mechanism


# Groups of kinds beside programs, as documents name them.
BEYOND: dict[str, tuple[type, ...]] = {
    "regressions": (PrivateRegression,),
    "postprocessing": (Postprocessing,),
    "shares": (JointModel,),
    "systems": (PrivateVectors, PrivateInequalities, PrivatePoints),
}


def taxonomy() -> Taxonomy:
    """Return Table 1 of HRRU14: objective, scalar, row (or all of A) and column, each high and low."""
    load_entry_points()
    programs = KINDS[Program].mechanisms
    cells = [
        replace(cell, mechanisms=tuple(m.name for m in programs if f"{cell.part} {cell.level}" in m.serves.cells))
        for cell in CELLS
    ]
    beyond = {name: tuple(m.name for kind in kinds for m in KINDS[kind].mechanisms) for name, kinds in BEYOND.items()}
    table = Taxonomy(cells)
    table.beyond = beyond
    return table
