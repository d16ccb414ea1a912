"""Solving a post-processing that no CVXPY problem stands behind."""

from __future__ import annotations

from typing import Any

from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.execute import Executed, execute
from dpmodel.models.postprocessing import FREE, Published
from dpmodel.plan.registry import AnyMechanism


def solve_published(model: Postprocessing, mechanism: str | AnyMechanism = "auto", progress: Any = None) -> Executed:
    """Plan (a named mechanism alone) and solve; nothing is spent.

    Raises
    ------
    SpecificationError, UnsupportedModelError
        For a mechanism that does not exist or does not serve this model.
    InfeasibleError
        When no point satisfies the public constraints.
    """
    done = execute(Published(model), FREE, mechanism, label="post-processing", progress=progress)
    if done.failure is not None:
        raise done.failure
    return done
