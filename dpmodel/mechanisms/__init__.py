"""The mechanisms, one file per algorithm, and the protocol they share."""

from dpmodel.mechanisms.mechanism import Forecast, Mechanism, Outcome, Request, Verdict

__all__ = ["Forecast", "Mechanism", "Outcome", "Request", "Verdict"]
