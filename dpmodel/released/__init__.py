"""Published numbers, post-processed at no cost in privacy, and how to publish them.

``tree_query``, ``hierarchy`` and ``consistent_table`` make noisy sums consistent; ``neg_log_likelihood`` and
``published`` write other models of them in CVXPY; ``standard_errors`` and ``intervals`` say how far a fit may be from
the truth; ``round_solution`` makes integers of it. ``measure`` and ``query_release`` publish.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "dpmodel.marks.domain": ("Domain",),
    "dpmodel.released.faces.consistent_table": ("consistent_table", "marginal_query"),
    "dpmodel.released.faces.errors": ("intervals", "standard_errors"),
    "dpmodel.released.faces.hierarchy": ("hierarchy",),
    "dpmodel.released.faces.measure": ("measure",),
    "dpmodel.released.faces.query_release": ("QueryRelease", "query_release"),
    "dpmodel.released.faces.marginal_release": ("MarginalAnswer", "MarginalRelease"),
    "dpmodel.released.faces.tree_query": ("tree_query",),
    "dpmodel.released.faces.consistent": ("round_solution",),
    "dpmodel.released.likelihood": ("neg_log_likelihood", "published"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """A public name, loaded when it is first asked for: mechanisms of this room need no faces."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
