"""A package from elsewhere: Laplace noise once more, under another name, and entry points that name no mechanism."""

from dataclasses import dataclass, replace
from typing import ClassVar

from dpmodel.mechanisms import Forecast, Mechanism, Options, Outcome, Serves, Verdict
from dpmodel.programs.model import Program
from dpmodel.programs.noise_once import LAPLACE_ONCE


@dataclass(frozen=True)
class Again(Mechanism[Program]):
    """The privacy argument is ``laplace-once``'s; the error it tells is a little smaller, so that plans take it."""

    name: str = "again"
    source: str = "a test"
    serves: ClassVar[Serves] = Serves(Program, ("scalar low",))

    def eligible(self, model: object, options: Options) -> Verdict:
        return LAPLACE_ONCE.eligible(model, options)

    def forecast(self, model: object, options: Options) -> Forecast:
        told = LAPLACE_ONCE.forecast(model, options)
        return replace(told, error=replace(told.error, expected=0.9 * told.error.expected))

    def run(self, model: object, options: Options, noise: object, progress: object = None) -> Outcome:
        return LAPLACE_ONCE.run(model, options, noise)


class Incomplete:
    name, source = "incomplete", "a test"


AGAIN, INCOMPLETE = Again(), Incomplete()
