"""Any post-processing problem by a general solver."""

from __future__ import annotations

from dataclasses import dataclass

from dpmodel.compile.postprocessing import Postprocessing
from dpmodel.mechanisms.mechanism import Forecast, Outcome, Progress, Request, Verdict, no_progress
from dpmodel.privacy import NoiseSource


@dataclass(frozen=True)
class GeneralSolver:
    """Stub."""

    solver: str | None = None
    name: str = "general-solver"
    source: str = "HiGHS, Clarabel, OSQP or SCS through CVXPY"

    def eligible(self, model: Postprocessing, request: Request) -> Verdict:
        raise NotImplementedError

    def forecast(self, model: Postprocessing, request: Request) -> Forecast:
        raise NotImplementedError

    def run(
        self, model: Postprocessing, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        raise NotImplementedError


GENERAL_SOLVER = GeneralSolver()
