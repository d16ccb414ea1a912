"""The registered mechanisms by what they serve, for tables of tests."""

from typing import Any

from dpmodel.classify.private_lp import PrivateLP
from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.exact.model import PrivateInequalities, PrivatePoints, PrivateVectors
from dpmodel.mechanisms.contract import YES, Request, Verdict
from dpmodel.plan.registry import KINDS
from dpmodel.regressions.model import PrivateRegression

PORTFOLIO, REGRESSIONS, POSTPROCESSING, VECTORS, INEQUALITIES, POINTS = (
    KINDS[model].mechanisms
    for model in (PrivateLP, PrivateRegression, Postprocessing, PrivateVectors, PrivateInequalities, PrivatePoints)
)
PUBLISHED = {each.name for kind in KINDS.values() for each in kind.mechanisms if each.published}


def verdict(mechanism: Any, model: Any, request: Request) -> Verdict:
    """Whether ``mechanism`` serves: by what it says at once, or with its forecast."""
    found: Verdict = mechanism.eligible(model, request)
    told = mechanism.forecast(model, request) if found.eligible else found
    return told if isinstance(told, Verdict) else YES
