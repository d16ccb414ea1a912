"""dpmodel: private linear programs and cone programs, written in CVXPY.

Write the model in CVXPY, mark what is private with ``Private``, and let ``Problem`` find out which private
problem it is, whether it can be solved, by which mechanism and how well, and solve it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpmodel import audit, errors, linalg, losses, mechanisms, noise, released, teach
    from dpmodel.errors import DPModelError, ImpossibilityError
    from dpmodel.marks import Private, Records
    from dpmodel.marks.dataset import Dataset
    from dpmodel.marks.noisy import Noisy
    from dpmodel.marks.shares import Shares
    from dpmodel.privacy import Budget
    from dpmodel.problem import Problem
    from dpmodel.programs.classifier import Classification
    from dpmodel.programs.expressions import sensitivity
    from dpmodel.release import Release
    from dpmodel.released.faces.measure import measure
    from dpmodel.released.faces.query_release import query_release
    from dpmodel.requests import AllBut, Exact, Penalty, Priced, Search, Target
    from dpmodel.solve.plan import Plan
    from dpmodel.solve.registry import register_mechanism, taxonomy

__version__ = "0.1.0"

__all__ = [
    "AllBut",
    "Budget",
    "Classification",
    "DPModelError",
    "Dataset",
    "Exact",
    "ImpossibilityError",
    "Noisy",
    "Penalty",
    "Plan",
    "Priced",
    "Private",
    "Problem",
    "Records",
    "Release",
    "Search",
    "Shares",
    "Target",
    "audit",
    "errors",
    "linalg",
    "losses",
    "measure",
    "mechanisms",
    "noise",
    "query_release",
    "register_mechanism",
    "released",
    "sensitivity",
    "taxonomy",
    "teach",
]


# Where the public names live. A module is imported when a name of it is first asked for: a program that uses CVXPY
# and declares data does not load a hundred mechanisms.
_HOMES = {
    "dpmodel.marks": ("Private", "Records"),
    "dpmodel.marks.dataset": ("Dataset",),
    "dpmodel.marks.noisy": ("Noisy",),
    "dpmodel.marks.shares": ("Shares",),
    "dpmodel.programs.classifier": ("Classification",),
    "dpmodel.programs.expressions": ("sensitivity",),
    "dpmodel.errors": ("DPModelError", "ImpossibilityError"),
    "dpmodel.requests": ("AllBut", "Exact", "Penalty", "Priced", "Search", "Target"),
    "dpmodel.solve.plan": ("Plan",),
    "dpmodel.solve.registry": ("register_mechanism", "taxonomy"),
    "dpmodel.privacy": ("Budget",),
    "dpmodel.problem": ("Problem",),
    "dpmodel.released.faces.query_release": ("query_release",),
    "dpmodel.released.faces.measure": ("measure",),
    "dpmodel.release": ("Release",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("audit", "errors", "learn", "linalg", "losses", "mechanisms", "noise", "released", "teach")


def __getattr__(name: str) -> Any:
    """A public name or a module, when it is first asked for (``dpmodel.learn`` needs scikit-learn, an extra)."""
    home = _HOME.get(name)
    if name in _MODULES:
        value: Any = import_module(f"dpmodel.{name}")
    elif home is not None:
        value = getattr(import_module(home), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__doc__", "__file__", "__name__", "__version__"})
