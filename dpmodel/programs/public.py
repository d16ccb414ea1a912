"""What is known of a program without data: how far its objective varies, points that are found from public facts, and
what these keep for every database that is allowed. Every statement is held against them here.

Private numbers enter as the ranges that their declarations give; where there are none, bounds are infinite and nothing
is capped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_map import LinearMap, ThetaBlock, joined
from dpmodel.compile.form import entry_ends, value_range, widened
from dpmodel.compile.public_set import PublicSet, base_program
from dpmodel.errors import InfeasibleError
from dpmodel.forecast import Forecast, Violation
from dpmodel.known import Known, capped, says_nothing
from dpmodel.marks.layout import each, same_for_all
from dpmodel.memo import cached
from dpmodel.numerics.cone_program import ConeProgram, SolverFailure, solve_cone_program
from dpmodel.numerics.polyhedron import Polyhedron
from dpmodel.programs.fewer_records import fewer_records
from dpmodel.programs.margins import giving_way, interior_direction, margin
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import box_reach, x_bound
from dpmodel.programs.rows import matrix_range, plain_linear, private_rows, public_polyhedron

# Violations up to this are a solver's own: HiGHS keeps rows to 1e-7, whatever the size of their numbers. It does not
# grow with declared bounds, whose size says nothing of how well a row is kept.
_SOLVER = 1e-6
# What sums of ten thousand numbers are rounded by, as a share of them; ranges are widened by as much.
_ROUNDING = 1e-12
MIDDLE = "the optimum for private numbers at the middle of their ranges"
ROBUST = "the public worst case, the optimum for the worst data that are allowed"


def private_objective(model: Program) -> bool:
    return "objective" in model.private_parts()


@cached
def objective_span(model: Program) -> float:
    """Public bound on ``max c'x - min c'x`` over the public set, so on what any public point loses (inf when there is
    none)."""
    if costs_are_open(model):
        return math.inf
    low, high = cost_range(model)
    polytope = _linear_set(model)
    bottom, top = polytope.box
    if np.array_equal(low, high) or (bottom >= 0).all():
        try:
            most = polytope.support(high)
        except SolverFailure:
            model.public.require_feasible()
            raise
        return most if math.isinf(most) else max(most + polytope.support(-low), 0.0)
    size = np.maximum(np.abs(low), np.abs(high))
    moving = size > 0
    return min(float(size[moving] @ (top - bottom)[moving]), 2 * model.public.weighted_norm(size))


@cached
def objective_ceiling(model: Program) -> float:
    """Public bound on ``c'x + d`` over the public set, in minimisation form: what no target is missed beyond (inf when
    there is none)."""
    if costs_are_open(model):
        return math.inf
    low, high = cost_range(model)
    polytope = _linear_set(model)
    bottom, top = polytope.box
    if np.array_equal(low, high) or (bottom >= 0).all():
        return polytope.support(high) + model.form.d0
    with np.errstate(invalid="ignore"):
        corners = np.array([low * bottom, low * top, high * bottom, high * top])
    most = float(np.where(np.isnan(corners), 0.0, corners).max(axis=0).sum())  # zero times infinity: no cost
    return most + model.form.d0


def _linear_set(model: Program) -> Polyhedron | PublicSet:
    """The public set, as a polyhedron where it is one."""
    return public_polyhedron(model) if plain_linear(model) is None else model.public


def cost_range(model: Program) -> tuple[Floats, Floats]:
    """(n,), (n,): public bounds of the objective's coefficients."""
    if not private_objective(model):
        return model.form.c0, model.form.c0
    below, above = model.form.cost_range
    return model.form.c0 + below, model.form.c0 + above


# --------------------------------------------------------------------------------------- points
@dataclass(frozen=True)
class PublicPoint:
    """``x`` (n,), found from public facts; ``words`` : which point it is. ``cheapest`` : whether no public point costs
    less, whatever the data are."""

    model: Program = field(repr=False)
    x: Floats
    words: str
    cheapest: bool = False

    @cached_property
    def loss(self) -> float:
        """What it loses against the true optimum at most, for every database that the declarations allow."""
        return 0.0 if self.cheapest else regret(self.model, self.x)

    @cached_property
    def violation(self) -> float:
        """The largest violation of a private constraint, for all of these; 0 up to a solver's tolerance (an absolute
        one, and the rounding of the sums), inf for cones with private numbers."""
        return float(worst_violations(self.model, self.x).max(initial=0.0))


def held_against_public_points(model: Program, forecast: Forecast) -> Forecast:
    """``forecast`` held against what is known without data; with how far rows can be violated and the objective can
    vary, both public, to weigh one against the other: all compare alike."""
    error = forecast.error
    assert isinstance(error, Violation)
    if error.centred and math.isinf(error.violation) and not math.isfinite(x_bound(model)):
        # It is stated as a multiple of x. At every x, the declared ranges say more than noise that is wider.
        if error.against_public > 1 and not forecast.vacuous:
            return replace(forecast, vacuous=True, statement=says_nothing(forecast.statement))
        return capped(forecast, Known())
    loses = not math.isnan(error.objective)
    known = known_without_data(model, centred=error.centred, loses=loses)
    if forecast.spends_nothing or (sides_are_open(model) and not math.isinf(error.violation)):
        known = replace(known, points=())  # none keeps a number where sides are open
    without = math.isnan(error.width) and not math.isnan(error.violation)
    rows = model.form.private_rows.any()
    if without and math.isfinite(known.violation) and not (rows and private_rows(model).relative):
        span = known.objective if loses else math.nan
        forecast = replace(forecast, error=replace(error, width=known.violation, span=span))
    return capped(forecast, known)


def known_without_data(model: Program, *, centred: bool = False, loses: bool = True) -> Known:
    """What statements about ``model`` are held against; points are solved for one by one, until one keeps a statement.

    ``loses`` : whether statements state a loss. ``centred`` : a loss is one against the best that the released
    constraints allow. The point for the middle of the ranges has none under a public objective, and its promise is of
    the same kind as that of noise.
    """
    span = objective_span(model) if loses else math.inf  # which tells on its way whether there is a public point
    # Where no loss is stated, points that lose something keep nothing, as those that are solved for in cones do.
    few = not (loses or model.affine.is_linear()) and model.form.c0.any()

    def found() -> Iterator[tuple[float, float]]:
        model.public.require_feasible()
        for point in islice(public_points(model), 1 if few else None):
            yield point.loss, point.violation
            if centred and point.words == MIDDLE and not private_objective(model):
                yield 0.0, point.violation

    return Known(span, largest_violation(model), found(), tightening=float(spread_of_rows(model).max(initial=0.0)))


def public_points(model: Program) -> Iterator[PublicPoint]:
    """The cheapest public point, the one that violates least whatever the data are, and the optimum for the middle of
    the declared ranges; those of them that exist, each solved for when it is asked for."""
    for find in (_cheapest, _safest, middle_point) if model.form.private_rows.any() else (_cheapest,):
        try:
            point = find(model)
            if not model.public.feasible:
                return
        except SolverFailure:  # the other points stay
            continue
        except InfeasibleError:
            return
        if point is not None:
            yield point


@cached
def certain_point(model: Program) -> PublicPoint | None:
    """A public point that satisfies every private constraint whatever the data are, as far as solvers tell; the
    cheapest on average that is known."""
    found = [point for point in islice(public_points(model), 2) if point.violation == 0 and point.words != MIDDLE]
    return found[-1] if found else None


# A way out of the public set that no row stops: missed by less than this by a way of size 1, and gains at least that.
_MISSED, _GAINED = 1e-9, 1e-3


@cached
def leaves_a_point(model: Program) -> bool:
    """Whether public facts prove that tightened rows leave a point whatever is released, or that a ``certain_point``
    can be released instead.

    Let A be public and all rows linear. Released sides that have a public lower bound are moved up to it. So a public
    point x0 satisfies the rows with such a bound if it satisfies them at the bound; and a direction d that no public
    row and no bound stops, with ``A_i d <= 0`` in these rows and ``A_i d < 0`` in all other private ones, leads from
    x0 to a point of every released program (in integers too: coefficients are rational, so a multiple of d is whole).
    """
    if certain_point(model) is not None:
        return True
    private, lowest = model.form.private_rows, model.public.least_sides
    if model.form.matrix.nnz or not model.affine.is_linear() or (private & model.affine.equalities()).any():
        return False
    base, open_ = base_program(model.form), private & ~np.isfinite(lowest)
    none, size = np.zeros(0, dtype=np.int64), np.zeros(base.b.size)
    np.maximum.at(size, np.repeat(np.arange(base.b.size), np.diff(base.A.indptr)), np.abs(base.A.data))
    scaled = sp.csr_array(sp.diags_array(1 / np.where(size > 0, size, 1.0)) @ base.A)
    lower, upper = (np.where(np.isfinite(end), 0.0, side) for end, side in ((base.lower, -1.0), (base.upper, 1.0)))
    still = np.zeros(model.affine.variables)
    away = base.with_(c=still, d=0.0, b=np.where(open_, -_GAINED, 0.0), A=scaled, lower=lower, upper=upper,
                      boolean=none, integer=none)  # fmt: skip
    way = solve_cone_program(away, solver=model.public.solver).x
    if way is None:
        return False
    moved = scaled @ way
    missed = np.where(base.keep, np.where(model.affine.equalities(), np.abs(moved), moved), 0.0)
    if (missed > np.where(open_, -_GAINED / 2, _MISSED)).any():
        return False
    start = base.with_(c=still, d=0.0, b=np.where(np.isfinite(lowest), lowest, base.b), keep=base.keep & ~open_)
    return solve_cone_program(start, solver=model.public.solver).solved


@cached
def _cheapest(model: Program) -> PublicPoint | None:
    """The optimum over the public set for the middle of the objective's range."""
    c, private = middle_cost(model), private_objective(model)
    x = None if c is None else model.public.cheapest(c)
    words = "the cheapest public point" + (" for the middle of the objective's range" if private else "")
    return None if x is None else PublicPoint(model, x, words, not private)


@cached
def _safest(model: Program) -> PublicPoint | None:
    """The point that violates private constraints least on the worst data; among several, the cheapest on average."""
    # Of more private entries no point is sought that serves every database.
    robust = robust_program(model) if model.form.matrix.nnz <= 200_000 else None
    if robust is None:
        return None
    program, weights = robust
    c = middle_cost(model)
    program = program.with_(c=np.zeros(model.affine.variables) if c is None else c, d=0.0)
    solve = partial(solve_cone_program, program, weights=weights, solver=model.public.solver)
    best = first = solve()
    if not first.solved:  # else nothing is violated, whatever the data
        direction = giving_way(model.affine, model.form.private_rows)
        best = solve(direction=direction, minimise_slack=True)
        if best.solved and program.c.any():
            second = solve(direction=direction, slack_limit=best.slack * (1 + _SOLVER) + 1e-9)
            best = second if second.solved else best
    words = ROBUST if best is first else "the point that violates least on the worst data"
    return None if best.x is None else PublicPoint(model, best.x, words)


@cached
def middle_point(model: Program) -> PublicPoint | None:
    """The optimum if every private number were at the middle of its range; of large problems, of some of the records:
    what it loses and violates is bounded for all of them."""
    program, c = middle_program(fewer_records(model) or model), middle_cost(model)
    if program is None or c is None:
        return None
    x = solve_cone_program(program.with_(c=c, d=0.0), solver=model.public.solver).x
    return None if x is None else PublicPoint(model, x, MIDDLE)


@cached
def typical_numbers(model: Program) -> tuple[Floats, Floats, Floats | None] | None:
    """Private parts of c (n,), b (m,) and the entries of A (None: public) at the public level: ``Private(typical=)``,
    else the middle of the declared range. None where an entry has neither. It is for forecasts and default prices."""
    form, affine = model.form, model.affine
    theta = np.zeros(affine.theta_size)
    for block in affine.private_blocks:
        guess = block.parameter.typical
        if guess is None:
            low, high = block.parameter.entry_range
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                return None
            guess = (low + high) / 2
        theta[block.columns] = guess
    c, b, entries = (each.apply(theta) for each in (form.objective, form.scalar, form.matrix.compact()))
    return c, b, entries if form.matrix.nnz else None


@dataclass(frozen=True)
class Level:
    """The program at a public level of its private numbers, ``numbers`` as ``typical_numbers``: its optimum ``x`` (n,)
    without integrality, multipliers ``dual`` (m,) and ``value``."""

    numbers: tuple[Floats, Floats, Floats | None]
    x: Floats
    dual: Floats
    value: float


def level(model: Program) -> Level | None:
    """None where no public level is known, or the program has no optimum there."""
    found = _level(model)
    return found if isinstance(found, Level) else None


def costs_are_guessed(model: Program) -> bool:
    """Whether the public level tells private costs apart: ``Private(typical=)`` with unlike numbers is a guess of them;
    one number for several is none, nor are ranges that are all the same: there any answer is as good."""
    for block in _costs(model):
        guess, (low, high) = block.parameter.typical, block.parameter.entry_range
        if guess is not None:
            if block.size > 1 and np.ptp(guess) == 0:
                return False
        elif not (np.isfinite(low).all() and np.isfinite(high).all() and np.ptp(low + high) > 0):
            return False
    return True


def _costs(model: Program) -> list[ThetaBlock]:
    """The private parameters that enter the objective's coefficients."""
    column, blocks = model.form.objective.column, model.affine.private_blocks
    return [b for b in blocks if ((column >= b.offset) & (column < b.offset + b.size)).any()]


def costs_alike(model: Program) -> str:
    """Why costs are not guessed (``costs_are_guessed``), and what would tell them; public."""
    one = any(block.parameter.typical is not None for block in _costs(model))
    what = "one guess for all" if one else "the middle of declared bounds"
    return f"{what} tells no costs apart; Private(typical=) with a number for each would tell"


def no_level(model: Program) -> str:
    """Why there is no ``level``, and what would tell it; public."""
    found = _level(model)
    return found if isinstance(found, str) else ""


@cached
def _level(model: Program) -> Level | str:
    numbers = typical_numbers(model)
    blocks = model.affine.private_blocks
    if numbers is None:
        open_ends = (b for b in blocks if not np.isfinite(b.parameter.entry_range).all())
        names = [block.name for block in open_ends if block.parameter.typical is None]
        return f"no public level of {_few(names)} is declared; Private(typical=) would tell"
    c, b, A = model.form.with_noise(*numbers)
    none = np.zeros(0, dtype=np.int64)
    program = base_program(model.form).with_(c=c, b=b, A=A, boolean=none, integer=none)
    solution = solve_cone_program(program, solver=model.public.solver)
    if solution.x is None or solution.dual is None or solution.value is None:
        guessed = [block.name for block in blocks if block.parameter.typical is not None]
        at = f"Private(typical=) of {_few(guessed)}" if guessed else "the middle of the declared bounds"
        why = "no point" if "infeasible" in solution.status else f"no optimum ({solution.status})"
        would = "another typical=" if guessed else "Private(typical=)"
        return f"at {at} the program has {why}; {would} would tell"
    return Level(numbers, solution.x, solution.dual, solution.value)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)


def robust_program(model: Program) -> tuple[ConeProgram, sp.csr_array | None] | None:
    """The program whose points satisfy every private constraint for every allowed database, and weights on |x|.

    Equalities with private numbers are bands that miss the middle of the allowed numbers by as much as the widest of
    them does, so one slack on all rows measures the largest violation. None where ranges are not declared.
    """
    affine, form, middle = model.affine, model.form, middle_program(model)
    half, weights = half_ranges(model)
    if middle is None or not np.isfinite(half).all():
        return None
    zero = affine.equalities() & form.private_rows
    if zero.any() and weights is not None and weights[np.flatnonzero(zero)].nnz:
        return None  # |x| in equalities is not convex
    need = margin(affine, np.where(zero, 0.0, half))
    widest = float(half[zero].max(initial=0.0))
    b = middle.b - need * interior_direction(affine)
    if widest > 0:
        b = b + np.where(form.private_rows & ~zero, widest * interior_direction(affine), 0.0)
    band = np.where(zero, widest - half, 0.0)
    return middle.with_(b=b, band=band), weights


def middle_cost(model: Program) -> Floats | None:
    """(n,) c with private numbers at the middle of their ranges; None where some have none."""
    low, high = cost_range(model)
    return (low + high) / 2 if np.isfinite(low).all() and np.isfinite(high).all() else None


@cached
def middle_program(model: Program) -> ConeProgram | None:
    """The model with private numbers of its constraints at the middle of their ranges; None where some have none."""
    form = model.form
    low, high = form.side_range
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    A = form.A0
    if form.matrix.nnz:
        below, above = declared_range(model, "matrix")
        if not np.isfinite(above - below).all():
            return None
        A = form.with_noise(None, None, (below + above) / 2)[2]
    return base_program(form).with_(b=form.b0 + (low + high) / 2, A=A)


@cached
def half_ranges(model: Program) -> tuple[Floats, sp.csr_array | None]:
    """How far b and A may be from that middle: (m,) for right-hand sides, what A adds in cones included, and weights on
    |x| in linear rows (None: A is public)."""
    low, high = model.form.side_range
    half = (high - low) / 2
    if not model.form.matrix.nnz:
        return half, None
    below, above = declared_range(model, "matrix")
    weights, in_cones = spread(model, (above - below) / 2)
    return half + in_cones, weights


def spread(model: Program, half: Floats) -> tuple[sp.csr_array, Floats]:
    """Half ranges of entries of A as weights on |x| in linear rows, and as public bounds on ``|N_i x|`` in cones."""
    rows, columns = model.form.matrix_positions()
    keep = (model.affine.equalities() | model.affine.inequalities())[rows]
    shape = (model.affine.rows, model.affine.variables)
    weights = sp.csr_array((half[keep], (rows[keep], columns[keep])), shape=shape)
    return weights, np.zeros(model.affine.rows) if keep.all() else box_reach(model, np.where(keep, 0.0, half))


def regret(model: Program, x: Floats) -> float:
    """Upper bound on ``c'x - c'y`` over the public points y and the objectives c that declarations allow.

    For each entry ``max over c_j of c_j (x_j - y_j)`` is convex in y_j, so it lies below its chord over the box of y_j;
    the sum of the chords is linear and one public linear program bounds it.
    """
    if costs_are_open(model):
        return math.inf
    low, high = cost_range(model)
    lower, upper = model.public.box
    loose = low < high
    if not (np.isfinite(lower[loose]).all() and np.isfinite(upper[loose]).all()):
        return objective_span(model)
    derivative, constant = -low.copy(), float((low * x)[~loose].sum())
    a, z = lower[loose], upper[loose]
    at_a, at_z = (np.maximum(low[loose] * d, high[loose] * d) for d in (x[loose] - a, x[loose] - z))
    derivative[loose] = np.divide(at_z - at_a, z - a, out=np.zeros_like(a), where=z > a)
    constant += float((at_a - derivative[loose] * a).sum())
    return max(model.public.support(derivative) + constant, 0.0)


def worst_violations(model: Program, x: Floats) -> Floats:
    """(m,) largest violation of every private row at ``x`` over all allowed databases, see ``PublicPoint``."""
    form, affine = model.form, model.affine
    private = form.private_rows
    if not private.any():
        return np.zeros(affine.rows)
    if not model.linear_where_private:
        return np.where(private, np.inf, 0.0)
    low, high = _ranges_at(model, x)
    public = form.A0 @ x - form.b0
    over = np.where(affine.equalities(), np.maximum(public + high, -(public + low)), public + high)
    size = abs(form.A0) @ np.abs(x) + np.abs(form.b0) + np.where(np.isfinite(high), np.abs(high), 0)
    return np.where(private & (over > _SOLVER + _ROUNDING * size), over, 0.0)


def _ranges_at(model: Program, x: Floats) -> tuple[Floats, Floats]:
    """(m,), (m,): public range of the private numbers of every row at ``x``."""
    form, affine = model.form, model.affine
    (row, column), matrix = form.matrix_coordinates(), form.matrix
    if matrix.single and not form.scalar.nnz:
        ends = entry_ends(affine, matrix)
        if matrix.nnz > 1 and all(map(same_for_all, (matrix.coefficient, *ends))):
            gain = matrix.coefficient[0] * x  # zero times any number is zero, whatever its range
            at = [np.multiply(gain, end[0], out=np.zeros_like(gain), where=gain != 0) for end in ends]
            by_column = np.minimum(*at), np.maximum(*at)
            return widened(*map(form.sums_by_column, by_column))
    gap = LinearMap(row, matrix.column, matrix.coefficient * x[column], affine.rows)
    if not gap.coefficient.all():
        gap = gap.select(gap.coefficient != 0)
    if matrix.repeats or form.scalar.nnz:  # coefficients of the same private number in a row add up
        gap = joined([gap, LinearMap(form.scalar.row, form.scalar.column, -form.scalar.coefficient, affine.rows)])
        gap = LinearMap.of(gap.row, gap.column, gap.coefficient, gap.height)
    return value_range(affine, gap)


@cached
def sides_are_open(model: Program) -> bool:
    """Whether declarations allow some private right-hand side to be so tight that every public point violates it, by
    any amount: then no such point keeps a statement with a number in it."""
    low, high = model.form.side_range
    return bool((np.isneginf(low) | (np.isposinf(high) & model.affine.equalities())).any())


@cached
def costs_are_open(model: Program) -> bool:
    """Whether declarations leave some coefficient of the objective without a range: then nothing bounds what a point
    loses that reads no data."""
    low, high = cost_range(model)
    return not (np.isfinite(low).all() and np.isfinite(high).all())


@cached
def largest_violation(model: Program) -> float:
    """How far a private constraint can be violated in the public set, by any allowed data."""
    if not model.form.private_rows.any():
        return 0.0
    if sides_are_open(model) or plain_linear(model) is not None or public_polyhedron(model).empty:
        return math.inf
    rows = private_rows(model)
    return math.inf if rows.relative else rows.residual_range(public_polyhedron(model))[1]


@cached
def spread_of_rows(model: Program) -> Floats:
    """(m,) how far the right-hand side of every private row lies apart between the best and the worst data, in cones
    along the interior direction; inf where ranges are not declared."""
    if not model.form.private_rows.any():
        return np.zeros(model.affine.rows)
    low, high = model.form.side_range
    half = (high - low) / 2
    if model.form.matrix.nnz:
        below, above = declared_range(model, "matrix")
        halves = each(lambda a, b: (b - a) / 2, below, above)
        half = half + model.form.sums_over_rows(halves, model.public.magnitudes())
    if not np.isfinite(half).all():
        return np.where(model.affine.inequalities(), 2 * half, np.inf)
    return 2 * margin(model.affine, half)


@cached
def declared_range(model: Program, part: str) -> tuple[Floats, Floats]:
    """Least and largest private contribution to every entry of c, b or A that has one, in increasing order of position
    (for A, of ``row + m * column``, as ``matrix_positions``)."""
    form = model.form
    if part == "matrix":
        return matrix_range(model)
    low, high = form.cost_range if part == "objective" else form.side_range
    positions = form.private_part(part).positions
    return low[positions], high[positions]
