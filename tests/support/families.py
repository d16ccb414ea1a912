"""The registered mechanisms by what they serve, for tables of tests."""

from typing import Any

from dpmodel.contract import YES, Options, Verdict
from dpmodel.exact.model import PrivateInequalities, PrivatePoints, PrivateVectors
from dpmodel.programs.model import Program
from dpmodel.regressions.model import PrivateRegression
from dpmodel.released.model import Postprocessing
from dpmodel.solve.registry import KINDS

PORTFOLIO, REGRESSIONS, POSTPROCESSING, VECTORS, INEQUALITIES, POINTS = (
    KINDS[model].mechanisms
    for model in (Program, PrivateRegression, Postprocessing, PrivateVectors, PrivateInequalities, PrivatePoints)
)
AS_PRINTED = {each.name for kind in KINDS.values() for each in kind.mechanisms if each.serves.as_printed}


def verdict(mechanism: Any, model: Any, options: Options) -> Verdict:
    """Whether ``mechanism`` serves: by what it says at once, or with its forecast."""
    found: Verdict = mechanism.eligible(model, options)
    told = mechanism.forecast(model, options) if found.eligible else found
    return told if isinstance(told, Verdict) else YES
