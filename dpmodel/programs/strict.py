"""No violated constraint, with certainty: truncated noise on b and A, and rows tightened by its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dpmodel._types import Floats
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.footprint import entry_sensitivities
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast, Violation
from dpmodel.marks.private import Private
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import NoiseSource, truncated_laplace_half_width
from dpmodel.programs.answer import measured_numbers
from dpmodel.programs.feasibility import solve_released, tightened_program, treat
from dpmodel.programs.margins import interior_direction
from dpmodel.programs.model import Program, refuse_high
from dpmodel.programs.noise_design import Kind, clamp, design_noise
from dpmodel.programs.noise_once import caveats, measure, objective_loss, rebuilt, released_constant
from dpmodel.programs.public import robust_program, spread_of_rows
from dpmodel.text import number


@dataclass(frozen=True)
class StrictTruncated(Mechanism[Program]):
    """Every true constraint holds at the released point, for every draw of the noise.

    Source
        Munoz, Syed, Vassilvitskii, Vitercik: Private optimization without constraint violations (2021), for b;
        here for b and A, without its factor m.
    Privacy (Laplace)
        Each private part p of the constraints is released as ``S_p theta`` plus Laplace noise of scale
        ``D_1 / (w_p epsilon)`` conditioned on every entry staying within ``s_p`` (``TruncatedLaplace``), with
        ``s_p = (D_1 / (w_p eps)) ln(1 + (e^(w_p eps) - 1) / (2 w_p delta))``. Let two neighbours' numbers differ by
        d_i with ``sum |d_i| <= D_1``. Where both have positive density the ratio is at most
        ``e^(sum |d_i| / scale) <= e^(w eps)``. The mass of one outside the other's support is at most the sum over
        i of ``(e^(|d_i| / scale) - 1) e^(-s/scale) / (2 (1 - e^(-s/scale)))``, and since ``e^x - 1`` is
        superadditive this is at most ``(e^(w eps) - 1) / (2 (e^(s/scale) - 1)) = w delta``. So each part is
        (w eps, w delta)-DP with no factor for the number of entries. A private objective gets plain Laplace noise, or
        the truncated noise of the numbers that it shares with a constraint (``NoiseDesign``). Parts add up by basic
        composition. D_1 is the 1-norm sensitivity of ``S_p theta`` from the footprint. The tightening is a public
        number; clipping to public ranges and solving are post-processing.
    Privacy (Gaussian)
        All numbers that are measured are one vector with Gaussian noise of standard deviation ``D_2 / (w_p mu)``, the
        squares of whose losses add up to mu^2 for the most exposed record: (epsilon, delta_0)-DP. It is conditioned on
        the event that all numbers of the constraints have noise of at most r standard deviations, ``s_p`` in size,
        which does not depend on data. That makes it (epsilon, delta)-DP with
        ``delta = (delta_0 + e^eps K p) / (1 - 2 K p)``, K the number of these draws and p = P(N(0, 1) > r); the proof
        is that of ``privacy.truncated_gaussian_width``. A private objective gets plain Gaussian noise in that vector.
        Where one record moves k numbers by 1 each, s_p grows as sqrt(k), and as k for Laplace noise: it is better
        from about k = 3.
    Utility
        ``|released - true| <= s_p`` entrywise with certainty (true means clipped to the public bounds, and holding
        means up to the solver's tolerance). Linear rows are tightened by the bound of the noise on b, and by its
        bound on A times |x|, but never beyond the worst data that are allowed (``tightened_program``); other cones
        along their interior direction (``margin``). So the released program's feasible set lies in the true one: no
        violation, probability 1. The right-hand sides are tightened by at most alpha; what that costs in
        objective depends on the multipliers (reported with the release). The released program always has a feasible
        point, because ``eligible`` demands one for the worst data that the public bounds allow (in cones, and the worst
        noise). Should a solver call it infeasible all the same, no point is released: rows never give way here.
    Cost
        One noise draw per measured number, one solve, and one public solve beforehand.
    """

    serves: ClassVar[Serves] = Serves(
        Program, ("scalar low", "row low", "matrix low", "column low"), strict=True, over_all=True
    )
    kind: Kind = "truncated"
    name: str = "strict-truncated-laplace"
    source: str = "Munoz, Syed, Vassilvitskii, Vitercik 2021; HRRU14 sections 4.2-4.4"

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        plan = design_noise(model, options, self._kinds(model))
        numbers = measure(model, plan, noise, progress)
        c, b, entries = rebuilt(model, plan, numbers)
        progress("solving the tightened program", 0.5)
        done = treat(model, options, plan)
        program, weights = tightened_program(model, plan, done, c, b, entries)
        out = solve_released(model, options, program, weights=weights, may_give_way=False)
        notes, constant = (*done.words(model, b), *out.notes), released_constant(model, c, b)
        return replace(out, notes=notes, constant=constant, measured=measured_numbers(model, plan, numbers))

    def _kinds(self, model: Program) -> dict[str, Kind]:
        plain: Kind = "laplace" if self.kind == "truncated" else "gaussian"
        return {p: plain if p == "objective" else self.kind for p in model.private_parts()}

    def eligible(self, model: Program, options: Options) -> Verdict:
        parts = model.private_parts()
        if not ("scalar" in parts or "matrix" in parts):
            return Verdict(False, "no private parameter in the constraints: they hold exactly in any case")
        high = refuse_high(model)
        if high is not None:
            return high
        if options.feasibility != "strict":
            given = "auto" if options.by_cost else options.feasibility
            return Verdict(False, f'serves feasibility="strict"; "{given}" was asked for', "feasibility")
        if options.delta == 0:
            why = (
                "with certainty and delta=0 a release satisfies every database that is allowed, as a public point does"
            )
            return Verdict(False, f"{why}; to read any data takes delta > 0")
        private = model.form.private_rows
        for block in model.affine.cones:
            if block.kind == "zero" and private[block.rows].any():
                return Verdict(False, f"{block.label}: an equality with private numbers cannot be tightened")
        clamped = self._clamped(model, options)
        if clamped is not None:
            return clamped
        key = ("strict feasible", self.kind, options.epsilon, options.delta, options.beta)
        if model.public.feasible and model.cached(key, lambda: self._feasible_for_all(model, options)):
            return YES
        return Verdict(False, self._why_not(model), "infeasible")

    def _clamped(self, model: Program, options: Options) -> Verdict | None:
        """No, where allowed values lie beyond the clamp, by which others would be released."""
        noise = design_noise(model, options, self._kinds(model))
        for name, part in noise.parts.items():
            m = part.measurement
            moves = entry_sensitivities(model.affine, m.queries)
            # Where doubles are coarse beside a record's change, the ends of the window are coarse too.
            limit = clamp(model.affine, m.queries, m.sensitivity, moves, rounded=True)
            if name != "objective" and limit < m.furthest < math.inf:
                return Verdict(
                    False,
                    f"the public bounds of the {name} part reach {number(m.furthest)}, beyond {number(limit)}, where "
                    "measured numbers are clamped because a record's change would drown in rounding",
                )
        return None

    def _why_not(self, model: Program) -> str:
        loose = []
        for block in model.affine.private_blocks:
            low, high = block.parameter.entry_range
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                loose.append(block.name)
        missing = f" ({', '.join(loose)} has no public bounds=[lo, hi])" if loose else ""
        cones = "" if model.affine.is_linear() else " and every draw of the noise"
        return f"the public bounds do not leave a point that is feasible for every allowed database{cones}{missing}"

    def forecast(self, model: Program, options: Options) -> Forecast:
        noise = design_noise(model, options, self._kinds(model))
        loss = objective_loss(model, noise)
        done, most = treat(model, options, noise), float(spread_of_rows(model).max(initial=0.0))
        # Then right-hand sides end at their public lower bounds, as in the robust optimum, which takes no budget.
        useless = done.tightening >= most * (1 - 1e-9)
        finite = math.isfinite(done.tightening)
        amount = number(done.tightening) if finite else "an amount without a public bound (x has none)"
        text = (
            f"every true constraint holds with certainty; right-hand sides are tightened by at most {amount}, "
            "which costs that times their multipliers in objective value"
        )
        if not math.isnan(loss):
            bound = number(loss) if math.isfinite(loss) else "an amount without a public bound"
            text += f", and noise on the objective costs at most {bound} with probability {number(1 - options.beta)}"
        return Forecast(
            statement=text,
            epsilon=noise.epsilon,
            delta=noise.delta,
            beta=options.beta if not math.isnan(loss) else 0.0,
            proved=not model.splits_objective,
            caveats=caveats(model, noise, split=model.splits_objective),
            rows=done.words(model),
            work=noise.work,
            noise={**noise.to_dict(), "tightening": done.tightening},
            moved=done.moved(model),
            error=Violation(
                objective=loss,
                violation=0.0,
                tightening=done.tightening,
                against_public=math.inf if useless else math.nan,
            ),
        )

    def _feasible_for_all(self, model: Program, options: Options) -> bool:
        """Whether one public point satisfies the released program for every allowed data and every draw.

        The released numbers are clipped to their public range [low, high]; its middle and half-width give the worst
        case of each row. Linear rows are never harder than that (``tightened_program``); in cones the tightening comes
        on top, along their direction.
        """
        robust = robust_program(model)
        if robust is None:
            return False
        program, weights = robust
        done = treat(model, options, design_noise(model, options, self._kinds(model)))
        on_top = np.where(model.affine.inequalities(), 0.0, done.relax * interior_direction(model.affine))
        if not np.isfinite(on_top).all():
            return False
        program = program.with_(c=np.zeros(model.affine.variables), d=0.0, b=program.b + on_top)
        solver, how = options.solver, options.solver_options
        return solve_cone_program(program, weights=weights, solver=solver, options=how).solved


STRICT_TRUNCATED_LAPLACE = StrictTruncated()
STRICT_TRUNCATED_GAUSSIAN = StrictTruncated(
    "truncated gaussian", "strict-truncated-gaussian", "Munoz, Syed, Vassilvitskii, Vitercik 2021, with Gaussian noise"
)


# ------------------------------------------------------------------------------------------ what no release can beat
def strict_lower_bounds(model: Program, options: Options) -> tuple[str, ...]:
    """What is left to any release that satisfies every private constraint with certainty, in words.

    Let M be (epsilon, delta)-DP and let M(D) satisfy all constraints of D with certainty, for every allowed D. Let
    D = D_0, ..., D_k be allowed, each a neighbor of the next, and E an event. ``P_j(E) <= e^eps P_(j+1)(E) + delta``
    along the chain gives ``P_0(E) <= e^(k eps) P_k(E) + F_k`` with ``F_k = delta (e^(k eps) - 1) / (e^eps - 1)``.

    One row. It reads ``A_i x <= b_i`` where b_i is a public number plus one private number, which enters no
    coefficient and which one record moves by Delta. Let D_j have ``b_i - j Delta`` in its place, no less than the least
    declared, and E be ``A_i x > b_i - k Delta``. Then P_k(E) = 0, so ``P_0(E) <= F_k``: at most 1/2 for
    ``k <= ln(1 + (e^eps - 1) / (2 delta)) / eps``. So with probability 1/2 at least, x lies ``k Delta`` inside the true
    right-hand side. Truncated Laplace noise on this number alone has a half-width of less than ``(k + 1) Delta``, by
    which it is inside in the median.

    delta = 0. Then F_k = 0 for every k. Where chains lead from any allowed database to any other, let E be that x does
    not satisfy some D': it has probability 0. So with probability 1 a release satisfies all of countably many D', which
    lie dense among the allowed ones, and hence all, as constraints are closed: it is a point of the robust program. Of
    these the robust optimum, which reads nothing, is best on the worst data.
    Chains. Private numbers that are declared one by one, by bounds or not at all, are changed one at a time, in steps
    of what one record moves one of them by; integers in whole steps. Where all that a record does is to be there or
    not, a number goes from one value to another by way of its absence: two neighbors for a change by Delta, so that
    ``floor(k / 2) Delta`` is claimed (the proof asks nothing of rows of databases in between). Where a declaration
    ties them together (symmetric and semidefinite matrices, limits on norms), nothing is claimed.
    """
    moves = _moves(model)
    read = np.union1d(model.form.scalar.column, model.form.matrix.column)
    if options.delta == 0 and read.size and (moves[read] > 0).all():
        return (
            "lower bound: with delta 0, what holds with certainty holds for every database that is allowed (F_k = 0 "
            "for all k), so no strict release does better than the public worst case, which reads nothing",
        )
    lines = []
    for name, amount, step in _least_inwards(model, options, moves):
        far = f"at least {number(amount)}" if math.isfinite(amount) else "without end"
        lines.append(
            f"lower bound for {name}: with probability at least 1/2 any strict release lies {far} inside a true "
            f"right-hand side (one record moves it by {number(step)}), or as far as its declared range goes"
        )
    return tuple(lines)


def strict_least(model: Program, options: Options) -> dict[str, float]:
    """The largest of these as a number, for figures."""
    amounts = [amount for _, amount, _ in _least_inwards(model, options, _moves(model))]
    return {"tightened by": max(amounts)} if amounts else {}


def _least_inwards(model: Program, options: Options, moves: Floats) -> list[tuple[str, float, float]]:
    """Of each private parameter that is a right-hand side by itself: its name, the largest ``k Delta`` of its rows, no
    more than their declared ranges, and that row's Delta."""
    scalar, found = model.form.scalar, []
    steps = math.inf
    if options.delta > 0:  # the width is rounded up by 1e-9
        width = truncated_laplace_half_width(1 / options.epsilon, options.epsilon, options.delta)
        steps = math.floor(width * (1 - 2e-9))
    alone = (np.bincount(scalar.row, minlength=scalar.height) == 1) & model.affine.inequalities()
    use = alone[scalar.row] & ~np.isin(scalar.column, model.form.matrix.column) & (moves[scalar.column] > 0)
    low, high = model.form.side_range
    for block in model.affine.private_blocks:
        of = use & (scalar.column >= block.columns.start) & (scalar.column < block.columns.stop)
        if steps > 0 and of.any():
            size = np.abs(scalar.coefficient[of]) * moves[scalar.column[of]]
            amount = np.minimum(
                (np.floor(steps / 2) if _by_absence(block.parameter) else steps) * size,
                (1 - 1e-9) * (high - low)[scalar.row[of]],
            )  # ranges are widened by less
            if amount.any():
                found.append((block.name, float(amount.max()), float(size[np.argmax(amount)])))
    return found


def _by_absence(parameter: Private) -> bool:
    """Whether a number goes from one value to another by way of its absence: where it becomes zero, or is moved
    further than its range is wide, which does not hold zero then."""
    low, high = parameter.entry_range
    return parameter.vanishes or bool((parameter.entry_caps > high - low).any())


def _moves(model: Program) -> Floats:
    """(P,) by how much a chain of neighbors changes one number of theta at a time; 0 where none is claimed."""
    size = model.affine.theta_size
    moves = np.zeros(size)
    for block in model.affine.private_blocks:
        parameter, at = block.parameter, np.arange(block.offset, block.offset + block.size)
        tied = any(parameter.attributes[key] for key in ("symmetric", "PSD", "NSD", "hermitian", "diag"))
        if tied or any(math.isfinite(parameter.magnitude[key]) for key in ("max_l1", "max_l2")):
            continue
        step = entry_sensitivities(model.affine, LinearMap(np.arange(at.size), at, np.ones(at.size), at.size))
        whole = bool(parameter.attributes["integer"] or parameter.attributes["boolean"])
        moves[at] = np.floor(step) if whole else step
    return moves
