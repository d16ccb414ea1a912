"""Several outputs: a mechanism for one regression, run on each of them with a share of the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.errors import UnsupportedModelError
from dpmodel.forecast import ExcessRisk, Forecast
from dpmodel.known import Known, capped
from dpmodel.privacy import NoiseSource, gaussian_epsilon, gaussian_mu
from dpmodel.regressions.excess import PureToo, excess_words, known_of, predicted_by
from dpmodel.regressions.model import PrivateOutputs, PrivateRegression
from dpmodel.regressions.rows import Reader, Table

_DOWN = 1 - 1e-9  # shares are rounded down


@dataclass(frozen=True)
class EachOutput(Mechanism[PrivateOutputs]):
    """``engine`` on every output of a regression with several, an equal share of the budget for each.

    Source
        That of ``engine``; composition: Dwork, Kenthapadi, McSherry, Mironov and Naor 2006 (basic); Dong, Roth and Su
        2022, corollary 3.3 (Gaussian).
    Privacy
        A record owns its features and all of its labels, and output j reads a function of these. So the run on output j
        is, about the whole record, as private as ``engine`` is about a record with one label: (epsilon_j, delta_j), or
        mu_j-GDP where all that it releases is Gaussian noise (``PureToo`` as given, where it is ``mu_gdp``). Runs
        follow each other; shares and settings are public facts. They compose to (sum epsilon_j, sum delta_j), the
        shares being epsilon / k and delta / k; or, mu_j-GDP each, to ``sqrt(k) mu_j <= mu`` with the mu of (epsilon,
        delta) (Balle and Wang 2018), a larger share, left only where Laplace noise with epsilon / k is predicted to do
        better. The rows are read once for all runs. Constraints and penalties are public and of one output each.
    Utility
        The objective is the sum of the outputs', each over coefficients of its own: so are excess risks and their
        predictions. Bounds for any data, each with probability 1 - beta / k, add up with probability 1 - beta.
    Cost
        k times that of ``engine``. Outputs of equal public facts share one forecast.
    """

    engine: Mechanism[PrivateRegression]

    @property
    def serves(self) -> Serves:
        return replace(self.engine.serves, model=PrivateOutputs)

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def source(self) -> str:
        return self.engine.source

    def eligible(self, model: PrivateOutputs, options: Options) -> Verdict:
        share = _basic(model, options)
        verdicts = [self.engine.eligible(part, share) for part in model.parts]
        return next((verdict for verdict in verdicts if not verdict.eligible), YES)

    def forecast(self, model: PrivateOutputs, options: Options) -> Forecast:
        share, found = self._shared(model, options)
        known = [known_of(part) for part in model.parts]
        # Infinite where nothing is known of one of them.
        together = Known(objective=sum(k.objective for k in known), predicted=sum(k.predicted for k in known))
        predicted, proved = sum(map(predicted_by, found)), all(f.proved for f in found)
        at_most = sum(f.error.alpha for f in found) if proved else math.inf
        first, free = found[0], all(f.spends_nothing for f in found)
        words = excess_words(predicted, together, at_most if proved else None, 0.0 if free else options.beta)
        whole = Forecast(
            statement=f"{words}; all {len(found)} outputs together" + ("; it is the same for all data" if free else ""),
            epsilon=_total([f.epsilon for f in found], share.epsilon, options.epsilon),
            delta=_total([f.delta for f in found], share.delta, options.delta),
            beta=0.0 if free else options.beta,
            error=ExcessRisk(predicted, at_most),
            proved=proved,
            work=first.work if free else f"for each of {len(found)} outputs: {first.work}",
            noise={
                "epsilon of each output": share.epsilon,
                "delta of each output": share.delta,
                "composition": "Gaussian" if _composes(share, options) else "basic",
                "outputs": [dict(f.noise) for f in found],
            },
            caveats=tuple(dict.fromkeys(line for f in found for line in f.caveats)),
            event=sum((f.cost for f in found[1:]), first.cost),
        )
        return capped(whole, together)

    def run(
        self, model: PrivateOutputs, options: Options, noise: NoiseSource, progress: Progress = no_progress
    ) -> Outcome:
        share, found = self._shared(model, options)
        count = len(model.parts)
        run: Callable[[PrivateRegression, Options, NoiseSource, Progress], Outcome] = self.engine.run
        if isinstance(self.engine, PureToo) and self.engine.mu_gdp and _composes(share, options):
            run = self.engine.run_as_given
        rows: Sequence[Table | None] = [None] * count if all(f.spends_nothing for f in found) else model.read()
        outcomes = []
        for j, (part, mine) in enumerate(zip(model.parts, rows, strict=True)):

            def report(stage: str, done: float, j: int = j) -> None:
                progress(f"output {j + 1} of {count}: {stage}", (j + done) / count)

            own = part if mine is None else replace(part, read=_handing(mine))
            outcomes.append(run(own, share, noise, report))
        points = [outcome.x for outcome in outcomes if outcome.x is not None]
        times = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
        worst = next((o.status for o in outcomes if o.x is None), None)
        worst = worst or next((o.status for o in outcomes if o.status != "optimal"), "optimal")
        return Outcome(
            worst,
            np.concatenate(points) if len(points) == count else None,
            None,
            None,
            seconds=sum(times) if len(times) == count else None,
            notes=tuple(dict.fromkeys(note for outcome in outcomes for note in outcome.notes)),
        )

    def _forecast(self, part: PrivateRegression, options: Options) -> Forecast:
        forecast = self.engine.forecast(part, options)
        if isinstance(forecast, Verdict):
            raise UnsupportedModelError(forecast.reason)
        return forecast

    def _shared(self, model: PrivateOutputs, options: Options) -> tuple[Options, list[Forecast]]:
        """The options of each output, and the forecasts at it."""
        basic, gaussian = _basic(model, options), _gaussian(model, options)
        if not isinstance(self.engine, PureToo) or not self.engine.mu_gdp or gaussian is None:
            return basic, [self._forecast(part, basic) for part in model.parts]
        found = [self.engine.forecast_as_given(part, gaussian) for part in model.parts]
        if not all(self.engine.spent(part, basic).delta for part in model.parts):
            pure = [self._forecast(part, basic) for part in model.parts]
            if sum(map(predicted_by, pure)) < sum(map(predicted_by, found)):
                return basic, pure
        return gaussian, found


def _basic(model: PrivateOutputs, options: Options) -> Options:
    count = len(model.parts)
    share = _DOWN / count
    return replace(options, epsilon=options.epsilon * share, delta=options.delta * share, beta=options.beta / count)


def _gaussian(model: PrivateOutputs, options: Options) -> Options | None:
    """The whole delta and the epsilon at which Gaussian noise has mu / sqrt(k)."""
    if options.delta == 0:
        return None
    count = len(model.parts)
    wanted = gaussian_mu(options.epsilon, options.delta) / math.sqrt(count)
    epsilon = gaussian_epsilon(wanted, options.delta) * _DOWN
    if epsilon <= 0 or gaussian_mu(epsilon, options.delta) > wanted:
        return None
    return replace(options, epsilon=epsilon, beta=options.beta / count)


def _total(spent: list[float], share: float, whole: float) -> float:
    """What all outputs spend: the whole where each spends its share, else the sum."""
    return whole if all(each == share for each in spent) else sum(spent)


def _composes(share: Options, options: Options) -> bool:
    """Whether ``share`` is one of Gaussian composition, which leaves delta as it is."""
    return share.delta == options.delta > 0


def _handing(rows: Table) -> Reader:
    return lambda: rows


__all__ = ["EachOutput"]
