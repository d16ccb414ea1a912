"""Integer programs with equalities hidden in inequalities: solve, sanitise the tight rows, reduce, repeat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from scipy.optimize import linprog

from dpmodel._types import Floats
from dpmodel.errors import InfeasibleError, UnsupportedModelError
from dpmodel.mechanisms.contract import YES, Mechanism, Progress, Request, Serves, Verdict, no_progress
from dpmodel.mechanisms.forecast import Forecast, RowsMissed
from dpmodel.mechanisms.known import capped
from dpmodel.mechanisms.linalg.dp_lp.descent import Schedule
from dpmodel.mechanisms.linalg.dp_lp.forecast import Setting, simulated_misses, simulated_need
from dpmodel.mechanisms.linalg.dp_lp.rounds import Spending, search, spending
from dpmodel.mechanisms.linalg.found import Found
from dpmodel.mechanisms.linalg.stable_span.tails import thresholds
from dpmodel.mechanisms.linalg.systems import PrivateInequalities, known_of
from dpmodel.mechanisms.published.dp_lp import published
from dpmodel.numerics.fields.integer_flat import FractionRows, Region, fractions, region_of
from dpmodel.numerics.fields.integer_rows import slack_rows
from dpmodel.privacy import NoiseSource
from dpmodel.text import number

# Rows expected at most; variables (there forecasts take 3 s); size of whole numbers that machine integers hold.
_MOST_RECORDS, _MOST_VARIABLES, _LARGEST = 2**25, 20, 2**53


@dataclass(frozen=True)
class DPLinearProgram(Mechanism[PrivateInequalities]):
    """A rational point that satisfies nearly all rows of an integer system exactly, hidden equalities included.

    Source
        KMMST24, Algorithm 5 (DP-LP) with Lemmas 7 and 36, on the stable partition of Algorithm 1. Changed where the
        paper is not private or not usable: no branch on exact counts; a perturbation that doubles can hold; noisy
        descent for the inner solver; one selection per round.
    What it does
        ``rounds`` times, in the current flat (at first the whole space, or the flat of public equalities):

        1. Noisy descent (``dp_lp_descent``) to a point x* that is deep in the rows where they allow it, and about the
           last step length from the flat of a hidden equality. The perturbation eta is ``window`` of the radius of the
           public region, in distance, instead of 1 / (2 (d+1) ((d+1) U)^(d+1)).
        2. The rows within eta of x* are J2, tight; the paper's J2 is the half of them that x* violates.
        3. The stable partition of their equations in the coordinates of the flat; the spans of all levels that have
           noisily enough sets are released (``dp_lp_spans``). Not in the last round.
        4. Each released span is a flat of fewer dimensions. Where it meets the public constraints, it gives a
           candidate: the nearest point to x*, rational, exactly on it. Candidates are compared by how many rows they
           satisfy exactly; the exponential mechanism chooses one of them, x* itself and the best so far, and the next
           round works in its flat. Later descents leave out rows that this point violates by more than ``drop``; they
           still count in selections.

        In the end a noisy count of the rows missed.
    Privacy
        No branch reads the data: the paper's tests of |J1| and |J2| are gone. A level that does not pass gives no
        equations, which is the test of |J2| with a margin; a flat with few rows left needs no test, since the selection
        compares it with the point before. The number of rounds and the split of the budget are public (``spending``);
        rounds end early only when the released flat is a point.

        Each row is reduced, scaled and tested for tightness by itself, given released points (a filter of rows: the
        filtered data of neighbours are neighbours), on integers or elementwise, never by a tolerance rank. Per step of
        the descent: a sum of vectors of norm at most 1, multiples of 2^-26, added up exactly,
        so D2 = 1 under add-remove and 2 under replace-one: Gaussian noise of deviation ``D2 sqrt(T / (2 rho))`` in each
        of T steps costs rho. Levels: (epsilon_r, delta_r), see ``supported_levels``; replace-one may change two tight
        rows into each other, one into none, or one more, all covered there. Selection: scores are counts, which move by
        0 or 1 all the same way (range 1; replace-one: 2), rho each. Count: D = 1, discrete Gaussian.
        Total: the (epsilon_r, delta_r) add up to a quarter of epsilon and half of delta; the zCDP parts to the rho
        that (3/4 epsilon, delta / 2) allows; the two groups add up, interleaved as they are (Vadhan and Zhang 2023).
        Rows are checked to be integers of size at most U when they are read.
    Utility
        Predicted by simulation on made-up programs, not proved. Lemma 36, by which tight rows may be made equations,
        needs the published eta. With a larger one a released equation may be wrong: a row that is repeated often and is
        tight at x* without being an equality. Then the answer is the best point of that flat, or the selection keeps
        the point before. Equations of few records are not found: each direction needs about ``threshold_sets`` tight
        rows. ``constants="published"`` computes the published numbers, which rule out any run.
    Cost
        rounds x steps products with the rows, exact products of the rows with each candidate, and the partition of
        the tight rows.

    Parameters
    ----------
    rounds : R >= 1, capped at d (the paper's bound). ``window``, ``drop`` : shares of the radius. ``reach`` : answers
    are looked for with |x_j| at most so large where the public constraints do not bound x_j; None is U.
    """

    serves: ClassVar[Serves] = Serves(PrivateInequalities)
    name: str = "dp-lp"
    source: str = "KMMST24, Algorithm 5, without its exact branches"
    rounds: int = 3
    window: float = 1.5e-3
    drop: float = 0.01
    schedule: Schedule = field(default_factory=Schedule)
    reach: float | None = None
    constants: Literal["practical", "published"] = "practical"

    @property
    def published(self) -> bool:
        return self.constants == "published"

    def eligible(self, model: PrivateInequalities, request: Request) -> Verdict:
        if not isinstance(model, PrivateInequalities):
            return Verdict(False, "serves inequalities, one per record")
        if model.homogeneous:
            return Verdict(False, "serves A x <= b; a homogeneous system has no largest point to perturb")
        if model.largest is None:
            return Verdict(False, "needs integers of a declared largest size U")
        if model.largest > _LARGEST:
            return Verdict(False, f"needs integers of size at most {_LARGEST:,}")
        if request.delta <= 0:
            return Verdict(False, "needs delta > 0: spans are released except with a small probability")
        if model.variables > _MOST_VARIABLES:
            return Verdict(False, f"serves up to {_MOST_VARIABLES} variables")
        if (model.records or model.expected) > _MOST_RECORDS:
            return Verdict(False, f"serves up to {_MOST_RECORDS} records")
        if self.constants == "published":
            facts = published(model.variables, model.largest, request.epsilon, request.delta, request.beta)
            return Verdict(False, f"the published constants cannot be run: {facts.words()} of {model.expected}")
        return YES

    def forecast(self, model: PrivateInequalities, request: Request) -> Forecast:
        assert model.largest is not None
        d, U, n = model.variables, model.largest, model.expected
        if self.constants == "published":
            facts = published(d, U, request.epsilon, request.delta, request.beta)
            words = f"all but {number(facts.missed)} rows hold, hidden constants set to 1"
            forecast = Forecast(
                statement=words,
                epsilon=request.epsilon,
                delta=request.delta,
                beta=request.beta,
                proved=False,
                error=RowsMissed(facts.missed, facts.missed),
                noise={"eta": str(facts.eta), "roundness": str(facts.roundness), "rescalings": facts.rescalings},
            )
            return capped(forecast, known_of(model))
        first_region(model, self.reach)  # an empty public part is an error before anything is spent
        setting = self._setting(model, request)
        found = simulated_misses(setting, n)
        rule = thresholds(*self._split(d, request).spans[0], model.neighbors) if self._rounds(d) > 1 else None
        words = (
            f"all but {number(found.missed)} of about {n} rows hold exactly, at worst over made-up programs of this "
            f"size with {', '.join(str(h) for h, _ in found.by_hidden)} hidden equalities"
        )
        forecast = Forecast(
            statement=words,
            epsilon=request.epsilon,
            delta=request.delta,
            beta=request.beta,
            proved=False,
            error=RowsMissed(found.missed, simulated_need(setting)),
            work=f"{self._rounds(d)} rounds of {self.schedule.steps} steps",
            noise={
                "rounds": self._rounds(d),
                "steps": self.schedule.steps,
                "threshold_sets": rule.gap if rule else None,
                "missed_by_hidden": [list(pair) for pair in found.by_hidden],
            },
            caveats=(
                "a prediction on made-up rows in a box: rows with thinner margins are missed more often",
                "equations owned by fewer records than the threshold are not found",
            ),
        )
        return capped(forecast, known_of(model))

    def run(
        self, model: PrivateInequalities, request: Request, noise: NoiseSource, progress: Progress = no_progress
    ) -> Found:
        assert model.largest is not None
        if self.constants == "published":
            raise UnsupportedModelError(
                "the published constants cannot be run",
                why=self.eligible(model, request).reason,
                remedy="dp-lp, with practical constants",
            )
        public = public_rows(model, self.reach)
        first = first_region(model, self.reach)
        rows = slack_rows(*model.read_rows(), model.largest)
        found = search(
            rows,
            first,
            public,
            self._split(model.variables, request),
            self.schedule,
            self.window,
            self.drop,
            model.largest,
            model.neighbors,
            noise,
            progress,
        )
        removed = first.flat.dimension - found.best.region.flat.dimension
        notes = [f"{removed} of {first.flat.dimension} dimensions removed by sanitised equations"]
        return Found("found", found.best.x, float(max(found.missed, 0)), tuple(notes))

    def _rounds(self, variables: int) -> int:
        return max(1, min(self.rounds, variables))

    def _split(self, variables: int, request: Request) -> Spending:
        return spending(request.epsilon, request.delta, self._rounds(variables))

    def _setting(self, model: PrivateInequalities, request: Request) -> Setting:
        assert model.largest is not None
        return Setting(
            model.variables,
            model.largest,
            request.epsilon,
            request.delta,
            model.neighbors,
            self._rounds(model.variables),
            self.schedule,
            self.window,
            self.drop,
        )


def public_rows(model: PrivateInequalities, reach: float | None) -> FractionRows:
    """(k, d + 1) Fractions (h, -g) of ``G x <= h``, and of ``|x_j| <= reach`` where those do not bound x_j."""

    def build() -> FractionRows:
        d = model.variables
        G, h = (
            np.asarray(model.public_rows, dtype=np.float64).reshape(-1, d),
            np.asarray(model.public_sides, dtype=np.float64),
        )
        limit = float(model.largest or 1) if reach is None else float(reach)
        extra = []
        for j in range(d):
            for sign in (1.0, -1.0):
                side = np.zeros(d)
                side[j] = sign
                if not _bounded(G, h, side):
                    extra.append(np.r_[limit, -side])
        rows = np.hstack([h[:, None], -G])
        return fractions(np.vstack([rows, *extra]) if extra else rows)

    return model.remember(("dp-lp public rows", reach), build)


def _bounded(G: Floats, h: Floats, side: Floats) -> bool:
    """Whether ``side'x`` is bounded above on ``G x <= h``; an empty set counts as bounded."""
    if G.shape[0] == 0:
        return False
    found = linprog(-side, A_ub=G, b_ub=h, bounds=[(None, None)] * side.size, method="highs")
    return found.status in (0, 2)


def first_region(model: PrivateInequalities, reach: float | None) -> Region:
    """Where the search begins: the public constraints.

    Raises
    ------
    InfeasibleError
        If they have no common point (or one that doubles cannot find).
    """

    def build() -> Region | None:
        rows = public_rows(model, reach)
        return region_of(rows[:0], rows, model.variables)

    region = model.remember(("dp-lp region", reach), build)
    if region is None:
        raise InfeasibleError(
            "the public constraints have no common point",
            why="the answer must satisfy all of them exactly",
            remedy="check the public rows and right-hand sides; nothing was spent",
        )
    return region


DP_LP = DPLinearProgram()
DP_LP_PUBLISHED = DPLinearProgram(name="dp-lp-published", source="KMMST24, Algorithm 5", constants="published")
__all__ = ["DP_LP", "DP_LP_PUBLISHED", "DPLinearProgram", "first_region", "public_rows"]
