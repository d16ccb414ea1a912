"""The family's model: people who own their variables, as plans and mechanisms see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.collect import guarantee_of, private_parameters
from dpmodel.compile.form import public_key, public_values, require_private_values
from dpmodel.compile.rows import rows_of_one_source
from dpmodel.contract import STOPPED, Candidate, Model, Options, Ran, Serves, WrongOutcome
from dpmodel.errors import SpecificationError
from dpmodel.forecast import ShareOfOptimum
from dpmodel.joint.capacity import PrivateCapacity
from dpmodel.joint.cells import classified, refuse_public
from dpmodel.joint.declared import bounds_of
from dpmodel.joint.form import Form
from dpmodel.joint.lower_bound import least_loss
from dpmodel.joint.outcome import Prices
from dpmodel.joint.read import Read, read, shares_of
from dpmodel.joint.release import SharesRelease, joint_guarantee
from dpmodel.joint.rule import Rule
from dpmodel.joint.table import PeopleTable, people_table
from dpmodel.marks.private import Private
from dpmodel.marks.records import listed, record_words
from dpmodel.memo import latest
from dpmodel.options import public_options
from dpmodel.privacy import NoiseSource, PublicGenerator
from dpmodel.programs.classifier import Classification
from dpmodel.release import Accuracy, Certificate
from dpmodel.text import number

# Of Table 1: where records own the variables, numbers of every part may be of any size.
CELLS = tuple(f"{part} {level}" for part in ("objective", "scalar", "row", "column") for level in ("high", "low"))


@dataclass(frozen=True, eq=False)
class JointModel(Model):
    """maximise ``sum_i v_i(x_i)`` over shares x_i of person i within limits of their own, ``sum_i A_i x_i <= b``.

    ``given`` : what was read of the problem, all public. ``problem`` : the caller's, None where people are synthetic.
    ``times`` : how many people there are, as a multiple of those that were read; forecasts vary it, and with it
    capacities.
    """

    words = "model of people with shares"
    error = ShareOfOptimum
    hands_out = True
    remedy = 'delta > 0, such as 1e-6: solve(epsilon, delta=1e-6, release="joint")'
    halvings = 0

    given: Read
    problem: Any = field(default=None, repr=False)
    times: float = 1.0

    # ------------------------------------------------------------------ public facts
    @property
    def form(self) -> Form:
        """One person's problem."""
        return self.given.form

    @property
    def count(self) -> int:
        """n, the number of people; where they may be absent the number of places."""
        return round(self.given.count * self.times)

    @property
    def capacity(self) -> Floats:
        """(m,) b; nan where it is private."""
        return self.given.capacity * self.times

    @property
    def labels(self) -> tuple[str, ...]:
        """(m,) what all share, in words."""
        return self.given.labels

    @cached_property
    def planned_capacity(self) -> Floats:
        """(m,) b, and where it is private its public level: a guess (``typical=``) or the middle of its bounds."""
        public = np.isfinite(self.capacity)
        return self.capacity if public.all() else np.where(public, self.capacity, self._capacity.level)

    @property
    def capacity_sensitivity(self) -> float:
        """How far one record moves the private capacities, in the 2-norm; 0 where all are public."""
        return 0.0 if np.isfinite(self.capacity).all() else self._capacity.sensitivity

    @cached_property
    def _capacity(self) -> PrivateCapacity:
        return PrivateCapacity(self.given.limits, self.given.limits_map, self.given.limits_constant)

    def read_capacity(self) -> PrivateArray:
        """(m,) b. Only a mechanism's ``run`` may call this."""
        return self._capacity.read()

    @property
    def largest_use(self) -> float:
        """Bound on the 2-norm of one person's use, by what is declared; inf for none."""
        return self.given.largest_use

    @property
    def most_value(self) -> float:
        """Bound on what a share is worth to one person; inf for none."""
        return self.given.most_value

    @property
    def neighbors(self) -> str:
        return self.given.records.neighbors

    def sensitivity(self, radius: float) -> float:
        """How far one record moves the demand of all, in the 2-norm, where a person's use has one of ``radius`` at
        most; with the rounding of two sums of n numbers (``NoisyPrices``)."""
        vanishes = self.neighbors == "add-remove" and self.given.absent_uses_nothing
        exact = radius if vanishes else math.sqrt(2) * radius
        return (
            exact * (1 + 1e-12) + 2 * math.sqrt(self.capacity.size) * (self.count + 4) * 2.0**-53 * self.count * radius
        )

    def read_table(self) -> PeopleTable:
        """The people. Only a mechanism's ``run``, and a release that hands out shares, may call this."""
        return people_table(self.given)

    def synthetic_rows(self, rng: PublicGenerator, count: int) -> Floats:
        """(count, width) rows of data of people drawn from declarations."""
        return self.given.synthetic_rows(rng, count)

    # ------------------------------------------------------------------ from a problem
    @classmethod
    def recognise(cls, problem: Any) -> Any:
        return latest(problem, "shares", public_key(problem), lambda: tuple(shares_of(problem)) or None)

    @classmethod
    def of(cls, problem: Any, solver: str | None = None) -> JointModel:
        key = cls, public_values(problem.parameters())
        return latest(problem, "model", key, lambda: cls(read(problem), problem))

    @classmethod
    def classified(cls, problem: Any) -> Classification:
        return cls.of(problem).classification

    @cached_property
    def classification(self) -> Classification:
        """The cells that the private parameters would be in if all variables were published, and what is joint."""
        return classified(self.given)

    def check(self, given: Options) -> tuple[Model, Options]:
        if not self._private:
            raise SpecificationError(
                "shares of people of whom nothing is private",
                why="shares are handed out one by one so that others do not learn a person's data",
                remedy="cp.Variable in place of dpm.Shares, solved as it is; or Private data of the people",
            )
        if self.form.integral and self.form.signed:
            raise SpecificationError(
                "whole shares with limits in which less of one entry leaves less room for another",
                why="whole shares are rounded down, which such a limit need not allow",
                remedy="limits with coefficients that are 0 or more, or shares that need not be whole",
            )
        if not self.form.extra and (bounds_of(self.form.values, self.given.ranges)[1] <= 0).all():
            raise SpecificationError(
                "shares of people to whom no share is worth anything",
                why="by what is declared more of a share is worth nothing or less, so that 0 is the best for everybody",
                remedy="cp.Maximize, or other bounds",
            )
        _ = self.planned_capacity  # refuses private capacities without a public level
        for name, value, wrong in (
            ("feasibility", given.feasibility, given.feasibility != "auto"),
            ("goal", given.goal, given.goal != "auto"),
            ("solver", given.solver, given.solver is not None),
            ("solver_options", "", bool(given.solver_options)),
        ):
            if wrong:
                raise SpecificationError(
                    f"{name}={value!r}" if isinstance(value, str) and value else f"{name}=",
                    why="a person's own limits hold exactly and capacities with probability 1 - beta, by answers of "
                    "each person to prices",
                    remedy=f"leave {name} out" + ", and choose beta" * (name == "feasibility"),
                )
        return self, replace(public_options(given, self.words), release=given.release)

    @property
    def _private(self) -> tuple[Private, ...]:
        return (*self.given.private, *self.given.limits)

    @property
    def protects(self) -> str:
        return record_words(self._private)

    # ------------------------------------------------------------------ planning
    def told(self, share: float, needed: float = math.nan) -> str:
        """What is expected of a mechanism, in words. ``share`` : of the optimum on synthetic people, nan where none are
        simulated; ``needed`` : how many people would get .95 of it."""
        if math.isnan(share):
            return "unknown: people whose answers are linear programs of their own are not simulated"
        guessed = [p.name() for p in self.given.private if p.typical is None and not _bounded(p)]
        text = f"{100 * share:.3g} % of the optimum, on synthetic people drawn from the declarations"
        if math.isfinite(needed):
            text += f"; about {float(f'{needed:.2g}'):,.0f} of the same kind would get 95 %"
        if not guessed:
            return text
        return f"{text}; a guess: nothing says how large the numbers in {listed(guessed)} are (bounds=, typical=)"

    def refuse(self, options: Options) -> None:
        if options.release != "joint":
            refuse_public(self.given, options)

    @property
    def varies(self) -> tuple[str, ...]:
        return ("records",) if np.isfinite(self.capacity).all() else ()

    def varied(self, what: str, factor: float, parameter: str = "") -> Model:
        if what not in self.varies:
            return super().varied(what, factor, parameter)
        return JointModel(self.given, times=self.times * factor)

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        least = max(self.least(options).values(), default=0.0)
        return (
            f"on some data any jointly private release that never overloads leaves at least {number(least)} of each "
            "capacity unused (proved for people who want a unit each)",
        )

    def least(self, options: Options) -> Mapping[str, float]:
        capacity = float(np.median(self.planned_capacity))
        return {"unused": least_loss(capacity, options.epsilon, options.delta) if capacity >= 1 else 0.0}

    def certificate(self, epsilon: float, beta: float) -> str | Callable[[Prices, NoiseSource], Certificate]:
        from dpmodel.joint.certificate import certify, why_not

        return why_not(self) or partial(certify, self, epsilon, beta)

    # ------------------------------------------------------------------ executing
    def ready(self, chosen: Candidate, serves: Serves) -> None:
        require_private_values(private_parameters(self.problem))
        if any(parameter.in_blocks for parameter in self.given.private):
            rows_of_one_source(self.given.private)

    def checked(self, outcome: Any) -> Prices:
        if not isinstance(outcome, Prices):
            raise WrongOutcome(f"{type(outcome).__name__} instead of Prices")
        if fault := outcome.fault(self.capacity.size):
            raise WrongOutcome(fault)
        return outcome

    def stopped(self, status: str, note: str) -> Prices:
        return Prices.none(self.capacity.size, status, note)

    def finish(self, ran: Ran) -> SharesRelease:
        outcome: Prices = ran.outcome
        guarantee = joint_guarantee(guarantee_of(self._private, ran.forecast.epsilon, ran.forecast.delta))
        notes = outcome.notes
        if not ran.private:
            notes = ("NOT PRIVATE: seeded noise for tests was used", *notes)
            guarantee = replace(guarantee, record=f"NOT PRIVATE (seeded noise for tests); {guarantee.record}")
        accuracy = Accuracy(
            alpha=outcome.lost if math.isfinite(outcome.lost) else None,
            beta=outcome.beta,
            proved=outcome.status != STOPPED,
            statement=outcome.statement or f"no shares: {outcome.status}",
            objective_alpha=outcome.lost if math.isfinite(outcome.lost) else None,
            violation_alpha=0.0,
        )
        return SharesRelease(
            mechanism=ran.mechanism,
            guarantee=guarantee,
            accuracy=accuracy,
            status=outcome.status,
            spent=(ran.forecast.epsilon, ran.forecast.delta),
            timings=ran.timings,
            classification=self.classification.told(),
            plan=ran.plan,
            notes=notes,
            rule=Rule(self.form, outcome),
            resources=self.labels,
            capacity=self.capacity,
            people=self.count,
        )


def _bounded(parameter: Private) -> bool:
    """Whether something is declared of how large its numbers are."""
    within = all(np.isfinite(end).all() for end in parameter.column_range)
    return within or any(math.isfinite(most) for most in parameter.magnitude.values())
