"""dpmodel: private linear programs and cone programs, written in CVXPY.

Write the model in CVXPY, mark what is private with ``Private``, and let ``Problem`` find out which private
problem it is, whether it can be solved, by which mechanism and how well, and solve it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpmodel import linalg, mechanisms
    from dpmodel.compile.likelihood.face import neg_log_likelihood, published
    from dpmodel.compile.refusals import PossibleLeakWarning
    from dpmodel.errors import (
        BudgetExceededError,
        DPModelError,
        ImpossibilityError,
        InfeasibleError,
        MissingExtraError,
        MissingValueError,
        SpecificationError,
        UnsupportedModelError,
    )
    from dpmodel.marks import Private, PublicPatternWarning, Records
    from dpmodel.marks.dataset import Dataset
    from dpmodel.marks.noisy import Noisy
    from dpmodel.plan import Plan, register_mechanism, select_mechanism
    from dpmodel.plan.no_guarantee import NoGuaranteeWarning
    from dpmodel.plan.tables import taxonomy
    from dpmodel.privacy import Budget, NotPrivateWarning
    from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Gaussian, Geometric, Laplace
    from dpmodel.problem import Problem
    from dpmodel.programs.classifier import Classification
    from dpmodel.programs.expressions import sensitivity
    from dpmodel.queries import QueryRelease, query_release
    from dpmodel.queries.hierarchy import hierarchy
    from dpmodel.queries.measure import measure
    from dpmodel.queries.tables_fit import consistent_table, marginal_query
    from dpmodel.queries.tree_query import tree_query
    from dpmodel.queries.uncertainty import intervals, standard_errors
    from dpmodel.queries.whole import round_solution
    from dpmodel.release.release import Release
    from dpmodel.teach import gadgets

__version__ = "0.1.0"

__all__ = [
    "AllBut",
    "Budget",
    "BudgetExceededError",
    "Classification",
    "DPModelError",
    "Dataset",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "Gaussian",
    "Geometric",
    "ImpossibilityError",
    "InfeasibleError",
    "Laplace",
    "MissingExtraError",
    "MissingValueError",
    "NoGuaranteeWarning",
    "Noisy",
    "NotPrivateWarning",
    "Penalty",
    "Plan",
    "PossibleLeakWarning",
    "Private",
    "Problem",
    "PublicPatternWarning",
    "QueryRelease",
    "Records",
    "Release",
    "Search",
    "SpecificationError",
    "Target",
    "UnsupportedModelError",
    "consistent_table",
    "gadgets",
    "hierarchy",
    "intervals",
    "linalg",
    "marginal_query",
    "measure",
    "mechanisms",
    "neg_log_likelihood",
    "published",
    "query_release",
    "register_mechanism",
    "round_solution",
    "select_mechanism",
    "sensitivity",
    "standard_errors",
    "taxonomy",
    "tree_query",
]


# Where the public names live. A module is imported when a name of it is first asked for: a program that uses CVXPY
# and declares data does not load a hundred mechanisms.
_HOMES = {
    "dpmodel": ("linalg", "mechanisms"),
    "dpmodel.marks": ("Private", "PublicPatternWarning", "Records"),
    "dpmodel.marks.dataset": ("Dataset",),
    "dpmodel.marks.noisy": ("Noisy",),
    "dpmodel.programs.classifier": ("Classification",),
    "dpmodel.programs.expressions": ("sensitivity",),
    "dpmodel.compile.refusals": ("PossibleLeakWarning",),
    "dpmodel.compile.likelihood.face": ("neg_log_likelihood", "published"),
    "dpmodel.errors": (
        "BudgetExceededError",
        "DPModelError",
        "ImpossibilityError",
        "InfeasibleError",
        "MissingExtraError",
        "MissingValueError",
        "SpecificationError",
        "UnsupportedModelError",
    ),
    "dpmodel.contract": ("AllBut", "Exact", "Penalty", "Search", "Target"),
    "dpmodel.plan": ("Plan", "register_mechanism", "select_mechanism"),
    "dpmodel.plan.no_guarantee": ("NoGuaranteeWarning",),
    "dpmodel.plan.tables": ("taxonomy",),
    "dpmodel.privacy": ("Budget", "NotPrivateWarning"),
    "dpmodel.privacy.distributions": ("DiscreteGaussian", "DiscreteLaplace", "Gaussian", "Geometric", "Laplace"),
    "dpmodel.problem": ("Problem",),
    "dpmodel.queries": ("QueryRelease", "query_release"),
    "dpmodel.queries.hierarchy": ("hierarchy",),
    "dpmodel.queries.measure": ("measure",),
    "dpmodel.queries.tables_fit": ("consistent_table", "marginal_query"),
    "dpmodel.queries.tree_query": ("tree_query",),
    "dpmodel.queries.uncertainty": ("intervals", "standard_errors"),
    "dpmodel.queries.whole": ("round_solution",),
    "dpmodel.release.release": ("Release",),
    "dpmodel.teach": ("gadgets",),
}
_MODULES = {
    "learn": "dpmodel.learn",
    "teach": "dpmodel.teach",
    **{name: f"{home}.{name}" for home in ("dpmodel", "dpmodel.teach") for name in _HOMES[home]},
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A public name or a module, when it is first asked for (``dpmodel.learn`` needs scikit-learn, an extra)."""
    home = _HOME.get(name)
    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif home is not None:
        value = getattr(import_module(home), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__doc__", "__file__", "__name__", "__version__"})
