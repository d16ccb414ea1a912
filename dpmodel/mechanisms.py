"""The classes of all mechanisms by name, and the protocol that they share.

For solves with settings of one's own: ``mechanism=mechanisms.FrankWolfe(steps=40)``.
"""

from typing import Any

from dpmodel.contract import Mechanism, Options, Outcome, Serves, Verdict
from dpmodel.forecast import ExcessRisk, Forecast, Place, RowsMissed, ShareOfOptimum, Violation

__all__ = [
    "ExcessRisk",
    "Forecast",
    "Mechanism",
    "Options",
    "Outcome",
    "Place",
    "RowsMissed",
    "Serves",
    "ShareOfOptimum",
    "Verdict",
    "Violation",
]


def _classes() -> dict[str, type]:
    """Classes of all registered mechanisms by name; those of several outputs are of one."""
    from dpmodel.regressions.model import PrivateOutputs
    from dpmodel.solve.registry import KINDS  # which loads all of them

    found = (each for model, kind in KINDS.items() if model is not PrivateOutputs for each in kind.mechanisms)
    return {type(each).__name__: type(each) for each in found}


def __getattr__(name: str) -> Any:
    """The class of a mechanism."""
    if name.startswith("_") or name not in (classes := _classes()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return classes[name]


def __dir__() -> list[str]:
    return sorted([*__all__, *_classes()])
