"""What every regression mechanism has: the three methods of a mechanism, over a ``PrivateRegression``."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dpmodel.classify.private_regression import PrivateRegression
from dpmodel.mechanisms.contract import Forecast, Outcome, Progress, Request, Verdict, no_progress
from dpmodel.privacy import NoiseSource


@runtime_checkable
class RegressionMechanism(Protocol):
    """One algorithm. ``Outcome.x`` is the vector of coefficients (p,); its value is None unless it was released."""

    @property
    def name(self) -> str:
        """Name in the registry."""
        ...

    @property
    def source(self) -> str:
        """Paper and theorem."""
        ...

    def eligible(self, model: PrivateRegression, request: Request) -> Verdict:
        """Yes, or the reason why not; public facts only."""
        ...

    def forecast(self, model: PrivateRegression, request: Request) -> Forecast:
        """Predicted excess risk; public facts only."""
        ...

    def run(
        self, model: PrivateRegression, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        """The only method that reads private rows."""
        ...
