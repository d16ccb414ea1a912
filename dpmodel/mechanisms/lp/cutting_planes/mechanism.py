"""Cutting planes for private right-hand sides: choose the most violated row, measure its side, add it, re-solve."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.classify.private_lp import PrivateLP, refuse_high
from dpmodel.contract import (
    YES,
    Mechanism,
    Options,
    Outcome,
    Progress,
    Serves,
    Verdict,
    no_progress,
    refuse_feasibility,
)
from dpmodel.forecast import Bound, Forecast, Violation
from dpmodel.mechanisms.lp.cutting_planes.rounds import Cuts, Rounds, add_cuts, cuts_of, plan_of, width_of
from dpmodel.mechanisms.lp.noise_once.measurement import CLAMP
from dpmodel.mechanisms.lp.noise_once.solve_released import LEAST_VIOLATION
from dpmodel.mechanisms.lp.private_rows import plain_rows, public_polyhedron
from dpmodel.numerics.cut_program import CutProgram
from dpmodel.privacy import NoiseSource, exponential_mechanism, permute_and_flip
from dpmodel.programs.public import largest_violation
from dpmodel.text import number


@dataclass(frozen=True)
class PrivateCuttingPlanes(Mechanism[PrivateLP]):
    """Solve without the private constraints; then choose a most violated one privately, measure it, add it, repeat.

    Source
        The cutting-plane method (Kelley 1960) with a private choice of the cut; HRRU14, section 4.2, is the cell.
    Privacy
        Round t chooses among the rows that are not yet measured by the exponential mechanism (permute-and-flip when
        delta = 0) with scores ``A_i x_t - b_i``, x_t being a function of what was released before. One record moves
        b by a vector d, so scores move apart by at most R = sup max_ij (d_i - d_j). ``reach`` is the least of: the sum
        of the two largest |d_i|; ||d||_1 (over the rows, because |d_i| + |d_j| <= ||d||_1); and ||d||_inf where
        neighbors are add-remove, one record owns its unit, private entries are non-negative and all rows have
        coefficients of one sign, so that d has one sign. Scores are clipped to 2^40 R, which only shrinks every d_i
        towards 0 and keeps each of these bounds; rounding adds at most 12 * 2^-13 R, which the factor 1 + 2^-8
        covers. A selection costs epsilon_t (pure) or epsilon_t^2 / 8 (zCDP).
        The number behind the chosen row is then released with noise, and never again. So along every run different
        numbers are measured, and for fixed neighbours the noise costs sum_t |d_jt| / scale <= min(T ||d||_inf,
        ||d||_1) / scale (pure) or sum_t d_jt^2 / (2 sigma^2) <= min(T ||d||_inf^2, ||d||_2^2) / (2 sigma^2) (zCDP),
        whatever is chosen. Costs that stay below a bound along every run compose adaptively to that bound: at each step
        the (Renyi) divergence of the rest is bounded by what is left, by induction from the last step.
        The number of rounds T and the split are public. Everything else reads released numbers.
    Utility
        Let q bound all noise (in units of b) and e all misses of selections, together with probability 1 - beta. Cuts
        give way by q, so every truly feasible point stays, and x_t is at least as good as the true optimum (proved). At
        x_t measured rows are violated by at most 2 q, the others by at most e + q + (how far x_t misses the number
        released in round t). Each x_t so has a released bound on its violation, proved in every run; the x_t with the
        least bound is returned, and the bound is told in the notes. Before the run, the violation that T rounds leave
        is predicted by running them without noise on synthetic right-hand sides inside the public ranges (fixed ones,
        not random): the forecast 2 q + e + that is a prediction. Against noise once the standard deviation has
        ||d||_inf sqrt(T) in the place of ||d||_2: it wins where one record moves many rows and few of them bind. With
        unit="entry" the two norms agree and it cannot win: it is not eligible.
    Cost
        T linear programs, warm-started; as many per synthetic right-hand side in the forecast.
    Errors
        SolverFailure when HiGHS stops early (on released data).
    """

    serves: ClassVar[Serves] = Serves(PrivateLP, ("scalar low",))
    name: str = "private-cutting-planes"
    source: str = "Kelley 1960 with exponential mechanism; HRRU14, section 4.2 (the cell)"

    def eligible(self, model: PrivateLP, options: Options) -> Verdict:
        if model.private_parts() != ("scalar",):
            return Verdict(False, "serves problems in which only right-hand sides are private")
        refused = refuse_high(model) or refuse_feasibility(options, "centred", "relaxed") or plain_rows(model)
        if refused is not None:
            return refused
        if not model.form.c0.any():
            return Verdict(False, "there is no objective whose optimum would leave most constraints slack")
        return YES

    def at_least(self, model: PrivateLP, options: Options) -> tuple[Bound]:
        """A prediction comes after all that is proved."""
        return (Bound(Violation(violation=0.0), proved=False),)

    def forecast(self, model: PrivateLP, options: Options) -> Forecast | Verdict:
        polytope, cuts = public_polyhedron(model), cuts_of(model)
        if not polytope.empty and polytope.minimise(model.form.c0) is None:
            why = "the public constraints do not bound the objective; give bounds=[lo, hi] or a constraint that does"
            return Verdict(False, why)
        if cuts.step == 0:
            return Verdict(False, "no record can move the right-hand sides: nothing needs noise")
        plan = plan_of(model, options)
        if plan.count == 0:
            return Verdict(False, "choosing rows costs more here than measuring every right-hand side once")
        width = width_of(model, cuts)
        alpha = min(plan.alpha(cuts), width, largest_violation(model))
        work = f"{plan.count} rounds of choosing, measuring and solving, among {cuts.measurement.count} numbers"
        return Forecast(
            statement=f"with probability {number(1 - options.beta)}, the objective is at least as good as the true "
            f"optimum and, as predicted, no private constraint is violated by more than {number(alpha)}",
            epsilon=options.epsilon,
            delta=options.delta,
            beta=options.beta,
            error=Violation(violation=alpha, private_rows=cuts.gain.size, width=width),
            proved=False,
            work=work,
            noise={
                "rounds": plan.count,
                "distribution": plan.distribution.to_dict(),
                "selection_epsilon": plan.selection_epsilon,
                "score_range": cuts.reach,
                "largest_noise": plan.quantile * cuts.largest_gain,
                "largest_miss_of_a_choice": plan.miss,
                "predicted_to_be_left": plan.left,
                "all_at_once": plan.once,
            },
            caveats=_caveats(cuts, plan),
        )

    def run(self, model: PrivateLP, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        cuts, plan = cuts_of(model), plan_of(model, options)
        exact = cuts.measurement.values(PrivateArray(model.read_private()))
        return _run(model, cuts, plan, exact, noise, progress)


def _run(
    model: PrivateLP,
    cuts: Cuts,
    plan: Rounds,
    exact: PrivateArray,
    noise: NoiseSource,
    progress: Progress,
) -> Outcome:
    """The rounds; ``exact`` (numbers,) are the private ones and touched by selections and measurements only."""
    program = CutProgram(public_polyhedron(model), model.form.c0)
    seconds = 0.0  # of the solves on released numbers alone: the time of choosing and drawing is not told
    m, margin = cuts.measurement, plan.quantile
    measured = np.zeros(m.count, dtype=bool)
    best: tuple[float, Floats, float] | None = None
    private_side = PrivateArray(cuts.gain * exact[cuts.number])
    for t in range(plan.count):
        progress(f"cutting planes, {plan.count} rounds", t / plan.count)
        started = time.perf_counter()
        x = program.solve()
        seconds += time.perf_counter() - started
        open_rows = np.flatnonzero(~measured[cuts.number])
        public = cuts.A @ x - cuts.side
        limit = CLAMP * cuts.reach
        scores = PrivateArray(np.clip(public[open_rows] - private_side[open_rows], -limit, limit))
        if plan.pure:
            chosen = permute_and_flip(scores, cuts.reach, epsilon=plan.selection_epsilon, source=noise)
        else:
            chosen = exponential_mechanism(scores, cuts.reach, rho=plan.selection_epsilon**2 / 8, source=noise)
        row = int(open_rows[chosen])
        j = int(cuts.number[row])
        measured[j] = True
        told = float(plan.distribution.add_to(exact[[j]], noise)[0])
        told = min(max(told, float(m.lower[j])), float(m.upper[j]))
        known = 2 * margin * cuts.largest_gain + program.give if t else 0.0
        others = max(float(public[row] - cuts.gain[row] * told + abs(cuts.gain[row]) * margin), 0.0) + plan.miss
        bound = max(known, others)
        if best is None or bound < best[0]:
            best = bound, x, program.give
        twins = np.flatnonzero(cuts.number == j)
        gain = cuts.gain[twins]
        add_cuts(program, cuts, twins, cuts.side[twins] + gain * told + np.abs(gain) * margin)
    assert best is not None
    bound, x, give = best
    notes = [
        f"with the probability of the forecast, no private constraint is violated by more than {number(bound)} in this "
        "release: proved, from released numbers",
    ]
    if give > 0:
        notes.append("the measured cuts leave no point of the public set; they give way by the least amount")
    value = float(model.form.c0 @ x) + model.form.d0
    status = LEAST_VIOLATION if give > 0 else "optimal"
    return Outcome(status, x, None, value, seconds, give, tuple(notes))


def _caveats(cuts: Cuts, plan: Rounds) -> tuple[str, ...]:
    out = [
        f"the violation that {plan.count} rounds leave is predicted from synthetic right-hand sides inside the "
        "public ranges; the release comes with a bound of its own that is proved"
    ]
    m = cuts.measurement
    if m.furthest > m.limit:
        out.append(f"statements are for private numbers up to {number(m.limit)} in size; beyond, they are clamped")
    return tuple(out)


PRIVATE_CUTTING_PLANES = PrivateCuttingPlanes()
