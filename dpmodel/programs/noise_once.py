"""Noise once, then solve: Laplace or Gaussian noise on the private entries of c, b and A, and ordinary solving."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Expected, Forecast, Violation
from dpmodel.privacy import NoiseSource
from dpmodel.programs.answer import measured_numbers, namesakes
from dpmodel.programs.feasibility import (
    LEAST_VIOLATION,
    Treatment,
    cost_of,
    has_integers,
    integer_sides,
    missed_on_average,
    relaxed_program,
    short_rows,
    shortfall,
    solve_most_inside,
    solve_released,
    tightened_program,
    treat,
    violation_at,
)
from dpmodel.programs.margins import reach_on_b, row_margins
from dpmodel.programs.model import Program, refuse_high
from dpmodel.programs.noise_design import Kind, NoiseDesign, NoisyPart, design_noise, x_bound
from dpmodel.programs.priced import (
    can_price,
    expected_cost,
    lost_to_noise_on_costs,
    price_range,
    shortage,
    solve_priced,
    without_price,
)
from dpmodel.programs.prices import priced_rows, usual_prices
from dpmodel.programs.public import (
    certain_point,
    costs_alike,
    costs_are_guessed,
    declared_range,
    largest_violation,
    leaves_a_point,
    level,
    no_level,
    objective_span,
)
from dpmodel.requests import Prices
from dpmodel.text import number, shortened

Rows = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class NoiseOnce(Mechanism[Program]):
    """Measure the private entries of c, b and A once with noise, then solve the noised program.

    Source
        HRRU14, sections 4.2 to 4.5 (the remark that noise on the data suffices; Theorem 34 for the
        objective, with plain Laplace noise in place of its over-large scale).
    Privacy
        Private values theta are read only as ``S_p theta``, for each group p of parts that are rebuilt from the same
        numbers, with its public matrix S_p (``noise_design.py``); mostly a group is one part. One record moves
        ``S_p theta`` by at most D_1 in 1-norm and D_2 in 2-norm, by ``footprint.sensitivity_of`` from the affine map
        and the declared bounds, plus the rounding allowance. With w_p the group's share of the budget, it is released
        once, with Laplace noise of scale ``D_1 / (w_p epsilon)`` or Gaussian noise of standard deviation
        ``D_2 / (w_p mu)``. The Laplace mechanism with scale D_1 / e is e-DP, and these add up over groups. Gaussian
        releases compose to mu (the squares of D_2 / sigma add up), the largest value for which
        the Gaussian mechanism is (epsilon, delta)-DP (exact, Balle and Wang 2018). Shares are such that no record's
        total exceeds the budget (``noise_design.py``). Everything after reads released and public numbers only; so
        infeasible and unbounded are decided on these.
    Utility (each with probability at least 1 - beta)
        Objective. The noised optimum x and the true one x* both satisfy the same constraints, so
        ``c'x - c'x* <= 2 sup |noise'x| <= 2 q max sum r_j |x_j|`` with q the quantile of the largest draw, r_j its
        gain at entry j, and the maximum taken over the public constraints.
        Relaxed. Rows give way by tau, a public bound on the noise in the row (for A: times the public bound on x). So
        every truly feasible point stays feasible, the objective is at least as good as the true optimum, and no true
        constraint is violated by more than about 2 tau. Noisy equalities become bands of half-width tau. In cones the
        same holds along the interior direction. Without an objective, the point that misses the released rows least is
        taken, under the same statement.
        Centred. Rows do not move. A point that meets the released rows violates the true ones by at most the noise,
        tau. Where no point meets them, a truly feasible one misses each by tau at most, so none gives way by more: 2
        tau holds in any case. At the released x the bound is what x misses of the released rows plus the noise's bound
        there, for A that on ``|N_i x|`` for all x at once: it needs no public bound on x.
        Safe. Rows move inwards by the quantile of the noise. So all true ones hold but those that the release lists,
        each short by at most the listed amount (proof: ``feasibility.py``).
        Centred and safe promise nothing of the true optimum, which may be cut off. If the released program is
        infeasible (relaxed: probability below beta when the true one is feasible), rows give way (``feasibility.py``)
        and the status says so; under safe a public point that satisfies every database is taken instead, if there is
        one. All this is about the standard form. Where CVXPY split an expression (a norm, say) into several rows with
        private numbers, their errors add up in it; the forecast then says so and is not called proved.
    Cost
        One noise draw per private number, one solve (a second when the first is infeasible).
    """

    serves: ClassVar[Serves] = Serves(
        Program, ("objective low", "scalar low", "row low", "matrix low", "column low"), over_all=True
    )
    kind: Kind = "laplace"
    name: str = "laplace-once"
    source: str = "HRRU14, sections 4.2-4.5; Laplace mechanism"

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        design = self.design(model, options)
        numbers = measure(model, design, noise, progress)
        progress("solving the noised program", 0.5)
        return replace(self.answer(model, options, design, numbers), measured=measured_numbers(model, design, numbers))

    def design(self, model: Program, options: Options) -> NoiseDesign:
        """The noise on every private part."""
        return design_noise(model, options, dict.fromkeys(model.private_parts(), self.kind))

    def answer(self, model: Program, options: Options, design: NoiseDesign, numbers: Mapping[str, Floats]) -> Outcome:
        """The answer from released ``numbers``, part by part: post-processing."""
        c, b, entries = rebuilt(model, design, numbers)
        if options.feasibility == "priced":
            out = self._answer_priced(model, options, design, numbers, c)
        else:
            out = self._answer_as(model, options, design, c, b, entries)
        expected = (
            {} if out.x is None else expected_at(model, design, out.x, *rebuilt(model, design, numbers, raw=True))
        )
        return replace(out, expected=expected)

    def _answer_as(
        self, model: Program, options: Options, design: NoiseDesign, c: Floats | None, b: Floats | None,
        entries: Floats | None,
    ) -> Outcome:  # fmt: skip
        treatment = treat(model, options, design)
        private, mode = model.form.private_rows, options.feasibility
        released, amount = relaxed_program(model, c, b, entries, treatment.relax), None
        inside = {"relaxed": 2.0, "centred": 0.0 if model.affine.equalities()[private].any() else 1.0}.get(mode)
        if inside and c is None and not model.form.c0.any() and model.affine.is_linear():
            out = solve_most_inside(model, options, b, entries, relax=row_margins(model, design).one, inside=inside)
        elif mode == "safe" and private.any():
            out = self._solve_safely(model, options, design, treatment, c, b, entries)
        else:
            program = integer_sides(model, released, treatment.relax)
            out = solve_released(model, options, program, unit=treatment.unit)
        if mode == "centred" and private.any():
            out = replace(out, violation=violation_at(model, design, released, out))
            amount = None if entries is None or out.x is None else missed_on_average(model, design, out.x)
        notes = (*treatment.words(model, b, amount), *out.notes)
        return replace(out, notes=notes, constant=released_constant(model, c, b))

    def eligible(self, model: Program, options: Options) -> Verdict:
        if not model.private_parts():
            return Verdict(False, "no private parameter changes c, b or A")
        high = refuse_high(model) or (can_price(model) if options.feasibility == "priced" else YES)
        if not high.eligible:
            return high
        if self.kind == "gaussian" and options.delta == 0:
            return Verdict(False, "Gaussian noise needs delta > 0")
        if options.feasibility == "strict" and model.form.private_rows.any():
            why = 'feasibility="strict" was asked for: this noise has no bound that always holds'
            return Verdict(False, why, "feasibility")
        if options.feasibility == "safe" and (model.form.private_rows & model.affine.equalities()).any():
            return Verdict(False, "an equality with private numbers cannot be made harder, so none is safe")
        if "matrix" not in model.private_parts() or (options.feasibility == "centred" and model.linear_where_private):
            return YES
        return _bounded_x(model)

    def forecast(self, model: Program, options: Options) -> Forecast:
        return self.forecast_of(model, options, self.design(model, options))

    def forecast_of(self, model: Program, options: Options, design: NoiseDesign) -> Forecast:
        """The forecast under this noise."""
        if options.feasibility == "priced":
            return self._forecast_priced(model, options, design)
        treatment, rows = treat(model, options, design), bool(model.form.private_rows.any())
        expected, remark = expectations(model, options, design)
        safe = options.feasibility == "safe" and rows
        split = model.splits_objective if safe else model.split_rows > 0
        return Forecast(
            statement=statement(model, options, design, treatment),
            epsilon=design.epsilon,
            delta=design.delta,
            beta=options.beta,
            proved=not split,
            caveats=caveats(model, design, split=split),
            rows=treatment.words(model),
            work=design.work,
            noise=design.to_dict(),
            moved=treatment.moved(model),
            error=Violation(
                objective=objective_loss(model, design),
                violation=min(treatment.violation, largest_violation(model)) if rows else math.nan,
                tightening=treatment.tightening,
                against_public=noise_against_ignorance(model, design),
                expected=treatment.expected if rows and not safe else math.nan,
                alone=treatment.alone if treatment.alone < treatment.violation else math.nan,
                centred=options.feasibility == "centred" and rows,
                cost=expected[options.feasibility].cost if expected else math.nan,
            ),
            expected=expected,
            remark=remark,
            event=design.event,
        )

    def _forecast_priced(self, model: Program, options: Options, design: NoiseDesign) -> Forecast:
        (expected, remark), against = expectations(model, options, design), noise_against_ignorance(model, design)
        objective, none = objective_loss(model, design), np.zeros(model.affine.rows)
        at, prices = level(model), options.prices
        if prices is None and at is not None:
            prices = usual_prices(model, options, *at.numbers)
        rows = Treatment(
            "priced", "", none, none + np.inf, none, priced=priced_rows(model) if prices is None else prices.rows
        ).words(model)
        if prices is not None:
            remark = "; ".join(filter(None, (remark, f"prices: {price_range(prices, prices.rows)} a unit")))
        return Forecast(
            statement=f"with probability {number(1 - options.beta)}, no private constraint is missed by more than the "
            f"release says; the least expected cost at {_price_words(model, options)}",
            epsilon=design.epsilon,
            delta=design.delta,
            beta=options.beta,
            proved=model.split_rows == 0,
            vacuous=against > 1,
            caveats=caveats(model, design, split=model.split_rows > 0),
            rows=rows,
            work=design.work,
            noise=design.to_dict(),
            error=Violation(
                objective=objective,
                against_public=against,
                cost=expected["priced"].cost if expected else math.nan,
                expected=float(missed_on_average(model, design)[model.form.private_rows].mean()),
            ),
            expected=expected,
            remark=remark,
            event=design.event,
        )

    def _answer_priced(
        self, model: Program, options: Options, design: NoiseDesign, numbers: Mapping[str, Floats], c: Floats | None
    ) -> Outcome:
        """The least expected cost, given the released numbers as they are: in their ranges, the noise would have
        another law."""
        _, b, entries = rebuilt(model, design, numbers, raw=True)
        out = solve_priced(model, options, design, c, b, entries)
        if out.x is None:
            return out
        program = relaxed_program(model, c, b, entries, np.zeros(model.affine.rows))
        violation = violation_at(model, design, program, out)
        bound = "an amount that is not known" if violation is None else number(violation)
        statement = (
            f"with probability {number(1 - options.beta)}, no private constraint is violated by more than {bound}"
        )
        statement += f"; the least expected cost at {_price_words(model, options)}"
        return replace(out, violation=violation, constant=released_constant(model, c, b), statement=statement)

    def _solve_safely(
        self, model: Program, options: Options, design: NoiseDesign, treatment: Treatment, c: Floats | None,
        b: Floats | None, entries: Floats | None,
    ) -> Outcome:  # fmt: skip
        """The outcome, with the rows that may be violated (proof: ``feasibility.py``) and what tightening cost."""
        program, weights = tightened_program(model, design, treatment, c, b, entries)
        out = solve_released(model, options, program, weights=weights, unit=treatment.unit)
        if out.x is None:
            return out
        certain = certain_point(model) if out.status == LEAST_VIOLATION else None
        if certain is not None:
            value = float(program.c @ certain.x + program.d)
            notes = ("the released rows leave no point: this public one satisfies them whatever the data are",)
            return Outcome("optimal", np.array(certain.x), None, value, out.seconds, notes=notes)
        short = shortfall(model.affine, program, out.x, model.form.private_rows, weights)
        rows, cost = short_rows(model.affine, short), cost_of(model, treatment, out)
        text = statement(model, options, design, treatment, rows)
        notes = (*([cost] if cost else ()), *out.notes)
        return replace(out, extra_violation=float(short.max(initial=0.0)), short=rows, statement=text, notes=notes)


def measure(
    model: Program, design: NoiseDesign, source: NoiseSource, progress: Progress = no_progress
) -> dict[str, Floats]:
    """Part -> its numbers after noise was added to them: a release.

    This is where private values enter: ``read_private`` gives theta, and ``released_numbers`` measures its numbers
    through the noise source, once for all parts that are rebuilt from them.
    """
    theta = PrivateArray(model.read_private())
    numbers: dict[str, Floats] = {}
    for i, group in enumerate(design.numbers):
        lead = design.parts[group[0]]
        what = " and ".join(group) + (" part" if len(group) == 1 else " parts")
        progress(f"noise on the {what} ({lead.measurement.count} numbers)", i / (2 * len(design.numbers)))
        numbers |= dict.fromkeys(group, released_numbers(lead, theta, source))
    return numbers


def rebuilt(
    model: Program, design: NoiseDesign, numbers: Mapping[str, Floats], raw: bool = False
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Noised c (n,), b (m,) and private A entries, None for parts that are public: post-processing. ``raw`` : numbers
    are not moved into their declared ranges."""
    c = b = entries = None
    for name, part in design.parts.items():
        found = part.measurement.rebuild(numbers[name], clip=part.clip and not raw)
        if name == "matrix":
            entries = found
            continue
        full = np.zeros(model.affine.variables if name == "objective" else model.affine.rows)
        if name == "objective" and not raw:
            # Clipping brings entries no further from the true ones, and keeps signs that bound the optimum.
            found = np.clip(found, *declared_range(model, name))
        full[part.measurement.positions] = found
        c, b = (full, b) if name == "objective" else (c, full)
    return c, b, entries


def release(part: NoisyPart, theta: PrivateArray, source: NoiseSource) -> Floats:
    """(h,) the part's entries, rebuilt from its numbers after noise was added to them: a release."""
    return part.measurement.rebuild(released_numbers(part, theta, source), clip=part.clip)


def released_numbers(part: NoisyPart, theta: PrivateArray, source: NoiseSource) -> Floats:
    """(k,) the part's numbers with noise: a release."""
    exact = part.measurement.values(theta)
    return part.distribution.add_to(exact, source) if part.distribution is not None else exact


def released_parts(
    model: Program, design: NoiseDesign, source: NoiseSource, progress: Progress
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """Noised c (n,), b (m,) and private A entries, None for parts that are public (``measure``, ``rebuilt``)."""
    return rebuilt(model, design, measure(model, design, source, progress))


def expected_at(
    model: Program, design: NoiseDesign, x: Floats, c: Floats | None, b: Floats | None, entries: Floats | None
) -> dict[str, float]:
    """How many of the inequalities that can have a price are short at ``x`` (n,), and by how much in all, over the law
    of the noise. Equalities are missed to either side, whatever is done."""
    rows = priced_rows(model) & model.affine.inequalities()
    if not rows.any() or not model.affine.is_linear():
        return {}
    missed = shortage(model, design, Prices(np.where(rows, 1.0, 0.0), np.zeros(rows.size)), x, b, entries)
    return {"rows": float(rows.sum()), "short": float(missed.chance_above.sum()), "shortage": float(missed.above.sum())}


# Solvers hold rows to this, and a cost below this share of the optimum is none.
_EQUAL = 1e-7


def expectations(model: Program, options: Options, design: NoiseDesign) -> tuple[dict[str, Expected], str]:
    """Treatment -> what it is expected to cost at the public level, the one of ``options`` first; empty where there is
    no level, or neither a row that can have a price nor noise on costs. And a remark on it (``Forecast.remark``)."""
    rows, costs = can_price(model).eligible, "objective" in design.parts
    if not (rows or costs):
        return {}, ""
    if not model.affine.is_linear():
        return {}, "unknown before the release: it is estimated for linear programs"
    at, guessed = level(model), costs_are_guessed(model)
    if at is None or (costs and not guessed and not rows):
        why = no_level(model) or costs_alike(model)
        return {}, f"unknown before the release: {why}"
    lost = lost_to_noise_on_costs(model, design, at) if costs and guessed else 0.0
    remark = f"without what noise on costs loses: {costs_alike(model)}" if costs and not guessed else ""
    size, found, modes = abs(at.value), dict[str, Expected](), [options.feasibility]
    prices = usual_prices(model, options, *at.numbers)
    for mode in dict.fromkeys((*modes, "priced", "centred", "safe", "relaxed") if rows else modes):
        # Without a public bound on x, noise on A can be lived with but not guarded against or priced.
        if mode == "strict" or not LAPLACE_ONCE.eligible(model, replace(options, feasibility=mode)).eligible:
            continue
        moved = None if mode == "priced" else _moved(model, options, design, mode, at.x)
        cost, short, amount = expected_cost(model, design, prices, at.dual, moved, at.x)
        cost, count = cost + lost, max(int(prices.rows.sum()), 1)
        cost = cost if abs(cost) > _EQUAL * size else 0.0
        share = cost / size if size > 0 else math.nan
        each = amount / short if short > 0 else 0.0
        found[mode] = Expected(cost, share, short / count, each, model.affine.maximize)
    if options.by_cost and options.feasibility == "centred" and "priced" in found and model.slow_to_price:
        cheaper = found["priced"].cost < found["centred"].cost
        remark = "; ".join(filter(None, (remark, model.slow_to_price if cheaper else "")))
    return found, remark


def _moved(model: Program, options: Options, design: NoiseDesign, mode: Any, x: Floats) -> Floats:
    """(m,) how far the treatment moves rows outwards at ``x`` (n,)."""
    if mode == "centred":
        return np.zeros(model.affine.rows)
    treatment = treat(model, replace(options, feasibility=mode), design)
    return treatment.relax - (0.0 if treatment.weights is None else treatment.weights @ np.abs(x))


def _price_words(model: Program, options: Options) -> str:
    if options.prices is not None:
        free = without_price(model, options.prices)
        return "the given prices" + ", which leave out what constraints without one are missed by" * bool(free)
    return f"prices at which a row is short in {number(100 * (1 - options.service))} % of the cases"


def released_constant(model: Program, c: Floats | None, b: Floats | None) -> float | None:
    """The private constant term of the objective computed from the released c (n,) and b (m,); None where it is no
    linear function of their numbers. Post-processing."""
    factors = _constant_factors(model)
    if factors is None:
        return None
    n = model.affine.variables
    parts = np.concatenate(
        [part if part is not None else np.zeros(size) for part, size in ((c, n), (b, model.affine.rows))]
    )
    return float(factors @ parts)


def _constant_factors(model: Program) -> Floats | None:
    """(n + m,) public z with ``z' [C; B] = o`` on theta, where c, b and the constant term are ``C theta``, ``B theta``
    and ``o' theta`` plus public numbers."""
    form, size = model.form, model.affine.theta_size
    if not form.offset.nnz:
        return None
    o = form.offset.tocsr(size).toarray().ravel()
    parts = sp.vstack([form.objective.tocsr(size), form.scalar.tocsr(size)])
    if np.setdiff1d(form.offset.column, parts.indices).size:
        return None
    z: Floats = sp.linalg.lsqr(parts.T, o, atol=1e-14, btol=1e-14)[0]
    return z if np.abs(parts.T @ z - o).max() <= 1e-9 * np.abs(o).max() else None


def objective_loss(model: Program, design: NoiseDesign) -> float:
    """Public bound on the loss in objective value from noise on c, capped by what any public point can lose; nan if c
    is not noised."""
    loss = objective_noise(model, design)
    return min(loss, objective_span(model)) if loss > 0 else loss


def objective_noise(model: Program, design: NoiseDesign) -> float:
    """Twice a public bound on ``|noise'x|`` over the public set, which holds except with the noise's beta; nan if c is
    not noised. It is not capped: noise may exceed the largest difference between points."""
    if "objective" not in design.parts:
        return math.nan
    part = design.parts["objective"]
    largest = float(part.reach.max(initial=0.0))
    if largest == 0:
        return 0.0
    weights: Floats = np.zeros(model.affine.variables)
    weights[part.measurement.positions] = part.reach / largest
    # The same for every distribution whose draws reach the entries by the same gains, so usually solved once.
    key = ("norm of x", weights.tobytes())
    return 2 * largest * model.cached(key, lambda: model.public.weighted_norm(weights))


def noise_against_ignorance(model: Program, design: NoiseDesign) -> float:
    """Root mean square of the noise over that of the error of guessing the middles of the declared ranges.

    Private numbers are taken to be uniform on their declared ranges: the middle of a range has a root mean square error
    of ``range / sqrt(12)``, a noised number that of the noise. Above 1, the guess, which costs nothing, is better. 0
    where some range is not declared.
    Errors in A count times the size of x; where x has no bound, in its open directions.
    """
    shares = []
    lower, upper = model.public.box
    for name, part in design.parts.items():
        low, high = declared_range(model, name)
        size = np.ones(low.size)
        if name == "objective":
            size = (upper - lower)[part.measurement.positions]
        elif name == "matrix":
            size = model.public.magnitudes()[model.form.matrix_positions()[1]]
            open_ends = np.isinf(size)
            size = np.where(open_ends.any(), open_ends, size)
        shares.append(against_ignorance(part.sigma, high - low, size))
    return math.sqrt(sum(share**2 for share in shares) / max(len(shares), 1))


def against_ignorance(sigma: Floats, span: Floats, size: Floats | float = 1.0) -> float:
    """Noise of these standard deviations (k,) over what is unknown of numbers whose ranges are ``span`` (k,) wide; see
    ``noise_against_ignorance``. ``size`` : how much each number counts."""
    with np.errstate(invalid="ignore"):
        unknown = span * size / math.sqrt(12)
    if not np.isfinite(unknown).all() or not unknown.any():
        return 0.0
    return float(np.linalg.norm(sigma * size) / np.linalg.norm(unknown))


def _bounded_x(model: Program) -> Verdict:
    """Yes, if public constraints bound x, by which noise on A is multiplied."""
    if math.isfinite(x_bound(model)):
        return YES
    _, columns = model.form.matrix_positions()
    loose = columns[~np.isfinite(model.public.magnitudes()[columns])]
    names = list(dict.fromkeys(model.affine.column_names[j] for j in loose))
    return Verdict(
        False,
        f"no public bound on {', '.join(names[:3]) or 'x'}: noise on A is multiplied by it; "
        "give bounds=[lo, hi] or a public constraint that bounds it",
    )


def statement(
    model: Program, options: Options, design: NoiseDesign, treatment: Treatment, short: Rows | None = None
) -> str:
    """The utility statement in words. ``short`` : of a release under "safe", rows that may be short and by how much."""
    loss, tightening = objective_loss(model, design), treatment.tightening
    parts, cost = [], ""
    rows, mode = model.form.private_rows.any(), options.feasibility
    if not math.isnan(loss):
        bound = number(loss) if math.isfinite(loss) else "an amount without a public bound (x is not bounded)"
        what = "the true optimum" if not rows or mode == "relaxed" else "the best that the released constraints allow"
        far = f"at most {bound} worse than" if rows else f"within {bound} of"
        parts.append(f"the objective is {far} {what}")
    along = "" if model.affine.is_linear() else " (in cones: along the interior direction)"
    if rows and mode == "safe":
        every = "every private row of the standard form" if model.split_rows else "every true private constraint"
        if short:
            parts.append(f"{every} holds except {listed(short)}{along}")
        elif short is not None or leaves_a_point(model):
            parts.append(f"{every} holds{along}")
        else:
            parts.append(f"{every} holds but those that the release lists, with how much each can be short (none where "
                         f"the tightened ones leave a point){along}")  # fmt: skip
        # A statement with a probability of its own: it is about the other tail of the noise.
        amount = number(tightening) if math.isfinite(tightening) else "an amount without a public bound (x has none)"
        cost = f"; as likely, right-hand sides lie at most {amount} inside the true ones{along}"
        # Multipliers bound the cost where the optimum is convex in right-hand sides and the program has a point.
        if not (has_integers(model) or short):
            cost += ", which costs that times their multipliers in objective value"
    elif rows:
        if mode == "relaxed" and math.isnan(loss) and not model.splits_objective and model.form.c0.any():
            parts.append("the objective is at least as good as the true optimum")
        what = "no row of the standard form" if model.split_rows else "no private constraint"
        where = " where the true ones leave a point" if mode == "relaxed" and not leaves_a_point(model) else ""
        parts.append(f"{what} is violated by more than {_at_most(model, design, treatment)}{along}{where}")
        if mode == "centred" and math.isnan(loss) and model.form.c0.any():
            cost = "; nothing is promised of the objective"
    else:
        parts.append("all constraints hold exactly")
    return f"with probability {number(1 - options.beta)}, {' and '.join(parts)}{cost}"


def listed(short: Rows) -> str:
    """The first four rows that may be violated, and how many more there are."""
    named = [f"{shortened(label, 40)} (short by at most {number(amount)})" for label, amount in short[:4]]
    more = len(short) - len(named)
    named += [f"{more} more, by no more than that (listed in accuracy.short)"] if more else []
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]


def _at_most(model: Program, design: NoiseDesign, treatment: Treatment) -> str:
    """The bound on the violation of a private constraint, in words."""
    if math.isinf(treatment.alone):
        fixed = float(reach_on_b(model, design).max(initial=0.0))
        factor = number(float(design.parts["matrix"].reach.max()))
        times = f"{factor} times the sum of |x|, on which there is no public bound"
        return f"{number(fixed)} and {times}" if fixed > 0 else times
    known = largest_violation(model)
    alone, most = min(treatment.alone, known), min(treatment.violation, known)
    if most <= alone:
        return number(alone)
    return (
        f"{number(alone)}, or {number(most)} where no point meets the released constraints but one meets the true ones"
    )


def caveats(model: Program, design: NoiseDesign, *, split: bool) -> tuple[str, ...]:
    """What the statement leaves out: numbers beyond the clamp, with ``split`` expressions split into rows; and whether
    parameters share a name."""
    out = []
    clamps = [p.measurement.limit for p in design.parts.values() if p.measurement.furthest > p.measurement.limit]
    if clamps:
        out.append(f"statements are for private numbers up to {number(min(clamps))} in size; beyond, they are clamped")
    if split:
        out.append(
            f"CVXPY split expressions (norms, absolute values, maxima, ...) into rows, {model.split_rows} of them with "
            "noise; the errors of the rows of one expression add up in it, so the statement is about single rows only"
        )
    if shared := namesakes(model):
        out.append(
            f"more than one private parameter has the name {shared[0]!r}: resolve, optimum and compare, which find "
            "numbers by names, have none"
        )
    return tuple(out)


LAPLACE_ONCE = NoiseOnce()
GAUSSIAN_ONCE = NoiseOnce("gaussian", "gaussian-once", "HRRU14, sections 4.2-4.5; Gaussian mechanism")
