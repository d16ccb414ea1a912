"""What every post-processing solver has: the three methods of a mechanism, over a ``Postprocessing``."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dpmodel.compile.likelihood.postprocessing import Postprocessing
from dpmodel.mechanisms.contract import Forecast, Outcome, Progress, Request, Verdict, no_progress
from dpmodel.privacy import NoiseSource


@runtime_checkable
class PostprocessMechanism(Protocol):
    """One algorithm. ``Outcome.x`` is (n,), ``Outcome.value`` the objective there.

    A forecast spends epsilon = delta = 0; ``objective_alpha`` is the relative error of the objective that the
    algorithm stops at (0: exact), ``seconds`` about how long it takes, by which plans choose among those that keep
    the accuracy.
    """

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def source(self) -> str:
        """Paper and theorem."""
        ...

    def eligible(self, model: Postprocessing, request: Request) -> Verdict:
        """Yes, or the reason why not."""
        ...

    def forecast(self, model: Postprocessing, request: Request) -> Forecast:
        """Predicted time and accuracy of the optimum."""
        ...

    def run(
        self, model: Postprocessing, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        """Solve. ``noise`` is not used: nothing private is read."""
        ...


def free_of_charge(
    statement: str, *, seconds: float, alpha: float, work: str, caveats: tuple[str, ...] = ()
) -> Forecast:
    """The forecast of a solver that spends nothing."""
    return Forecast(
        statement=statement,
        epsilon=0.0,
        delta=0.0,
        beta=0.0,
        objective_alpha=alpha,
        proved=alpha == 0,
        seconds=seconds,
        work=work,
        caveats=caveats,
    )
