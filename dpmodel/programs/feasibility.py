"""What is done to private constraints, the solution of the released program, and what happens where it has no point.

All of it reads public and released numbers only.

Row i reads ``b_i - A_i x`` in a cone, of which ``b_i + e_i`` and ``A_i + N_i`` are released. "relaxed" moves every row
outwards by a public bound on the noise, so that the true optimum stays feasible; "centred" takes the released numbers
as they are; "safe" moves rows inwards by t_i such that with probability 1 - beta all true rows hold at every point of
the released program; "strict" does so with certainty, under noise that has a bound.

Giving way. Where the released numbers leave no point, row i gives way by v_i (a cone along its interior direction, an
equality to either side); its unit w_i is public, the size of the noise in it. First the largest ``v_i / w_i`` is made
as small as possible; then, none being larger, their sum; then the cost, with these v_i. The first step alone would let
one row that nobody can satisfy weaken all others; the second alone would pile everything on few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask
from dpmodel.compile.affine_map import AffineMap
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options, Outcome
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, ConeSolution, solve_cone_program
from dpmodel.numerics.solvers import SOLVER_ERROR
from dpmodel.programs.inwards import inwards
from dpmodel.programs.margins import (
    giving_way,
    interior_direction,
    margin,
    mean_shortfalls,
    reach_at,
    reach_on_b,
    row_margins,
    shortfalls,
    simulated_margins,
)
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, x_bound
from dpmodel.programs.public import (
    declared_range,
    largest_violation,
    spread,
    spread_of_rows,
)
from dpmodel.requests import Feasibility
from dpmodel.text import number


@dataclass(frozen=True)
class Treatment:
    """``mode`` : the feasibility, and ``why`` rows move, in words. ``relax`` : (m,) how far they move along their
    interior direction, inwards where negative. ``weights`` : (m x n) what is added to the left sides as
    ``weights |x|``, or None. ``amount`` (m,) : how far rows are moved, or missed on average. ``unit`` : (m,) size of
    the noise, by which rows give way.

    ``violation`` : by how much a true row can be missed by a point of the released program, except with probability
    beta and if some point satisfies all true rows; ``alone`` : the same where no row had to give way. ``expected`` :
    mean violation of a row that binds. ``tightening`` : by how much a right-hand side can end below the true one; nan
    where rows are not tightened. ``priced`` : (m,) which rows have a price.

    Safe, the argument. Let E be the event that ``e_i <= t_i`` in every private row (in cones: that ``margin`` or
    ``simulated_margins`` cover it) and that every ``|N_ij|`` is within its reach r_ij, which the program multiplies by
    ``|x_j|``. E speaks of the noise alone, and under E, for every x at once, the true row is short by at most what x
    misses the released one by: ``A_i x - b_i <= A~_i x + r_i |x| - (b~_i - t_i)``. In a cone, if ``gap + v d`` lies in
    it for the gap of the released program at x, then so does the true one, since the cone is closed under addition.
    What is declared is true as well, and used beside it (``tightened_program``). So with the probability of E

    * a point of the released program satisfies every true row;
    * any other point, chosen after seeing the numbers or not, satisfies all but those that it misses in the released
      program, and is short of these by at most as much (``shortfall``): the release lists them.

    The first is promised before the release only where the released program is known to have a point, or a public point
    is released in its place that satisfies every database that is allowed (``public.leaves_a_point``).

    E fails with probability at most the sum of what its parts may fail with: part p of the noise (c, b, A) has beta_p,
    and these add up to beta. Within b, ``inwards`` shares beta_b among rows, or simulates those that miss together.
    """

    mode: Feasibility
    why: str
    relax: Floats
    amount: Floats
    unit: Floats
    weights: sp.csr_array | None = None
    violation: float = 0.0
    alone: float = 0.0
    expected: float = 0.0
    tightening: float = np.nan
    priced: Mask | None = None

    def words(self, model: Program, released: Floats | None = None, amount: Floats | None = None) -> tuple[str, ...]:
        """What is done to each private constraint, beside the size of its numbers: as declared, or ``released`` (m,).
        ``amount`` : where the released point tells more."""
        amount = self.amount if amount is None else amount
        if released is not None:
            return _row_words(model, self, amount, np.abs(released), "the released number")
        low, high = model.form.side_range
        with np.errstate(invalid="ignore"):  # nan where none is declared
            return _row_words(model, self, amount, np.abs((low + high) / 2), "the middle of the declared range")

    def moved(self, model: Program) -> dict[str, Any]:
        """For figures: ``constraints`` : label of a private one -> least and largest amount by which its rows are made
        easier, those that move furthest; ``others`` : how many more there are. Empty where ``weights`` are added."""
        found: dict[str, tuple[float, float]] = {}
        for block in model.affine.cones if self.weights is None else ():
            rows = self.relax[block.rows][model.form.private_rows[block.rows]] + 0.0  # no negative zero
            if rows.size:
                least, most = found.get(block.label, (np.inf, -np.inf))
                found[block.label] = (min(least, float(rows.min())), max(most, float(rows.max())))
        furthest = set(sorted(found, key=lambda label: -max(map(abs, found[label])))[:40])
        drawn = {label: pair for label, pair in found.items() if label in furthest}
        return {"constraints": drawn, "others": len(found) - len(drawn)} if self.weights is None else {}


def treat(model: Program, options: Options, noise: NoiseDesign) -> Treatment:
    """What ``options.feasibility`` does to the private rows under this noise."""
    mode, none = options.feasibility, np.zeros(model.affine.rows)
    if not model.form.private_rows.any():
        return Treatment(mode, "", none, none, none)
    if mode in ("safe", "strict"):
        box, why = reach_on_b(model, noise), "so that it holds with certainty"
        if mode == "safe":
            why = f"which covers the noise with probability {number(1 - options.beta)}"
            if "scalar" in noise.parts:
                box[noise.parts["scalar"].measurement.positions] = inwards(model, noise.parts["scalar"])
        weights, in_cones = None, none
        if "matrix" in noise.parts:
            on_a, in_cones = spread(model, noise.parts["matrix"].reach)
            weights = on_a if on_a.nnz else None
        on_b = simulated_margins(model, noise, sides=1) if mode == "safe" else None
        shift = margin(model.affine, box + in_cones) if on_b is None else on_b + margin(model.affine, in_cones)
        unit = shift if weights is None else shift + weights @ finite(_sizes(model))
        tightening = _furthest_inwards(model, noise, shift, weights)
        return Treatment(mode, why, -shift, shift, unit, weights, tightening=tightening)
    margins, missed = row_margins(model, noise), missed_on_average(model, noise)
    violation, why, relax, amount = float((margins.one + margins.all).max(initial=0.0)), "", none, missed
    alone = float(margins.all.max(initial=0.0))
    if mode == "relaxed":
        why, relax, alone = "so that the true optimum stays feasible", margins.one, violation
        amount, missed = relax, np.maximum(missed, relax)
    expected = float(missed[model.form.private_rows].mean())
    return Treatment(mode, why, relax, amount, finite(margins.one), None, violation, alone, expected)


def _sizes(model: Program) -> Floats:
    """(n,) public bounds on ``|x_j|`` where A is private; inf where there is none."""
    return np.minimum(model.public.magnitudes(), x_bound(model))


def missed_on_average(model: Program, noise: NoiseDesign, x: Floats | None = None) -> Floats:
    """(m,) by how much noise makes a point miss a row that it meets with equality, on average: half of its mean size,
    all of it in equalities. Noise on A counts with ``x`` (n,), or the largest that the public constraints allow (inf:
    none)."""
    size = np.zeros(model.affine.rows)
    if "scalar" in noise.parts:
        size[noise.parts["scalar"].measurement.positions] = noise.parts["scalar"].mean_size
    if "matrix" in noise.parts:
        variance = model.form.sums_over_rows(noise.parts["matrix"].sigma ** 2, (_sizes(model) if x is None else x) ** 2)
        size = np.sqrt(size**2 + 2 / np.pi * variance)
    size, in_cones = margin(model.affine, size), mean_shortfalls(model, noise)
    if in_cones is not None and "matrix" not in noise.parts:
        size = np.where(in_cones > 0, 2 * in_cones, size)
    return np.where(model.affine.equalities(), size, size / 2)


def violation_at(model: Program, noise: NoiseDesign, program: ConeProgram, outcome: Outcome) -> float | None:
    """By how much a true row can be missed at the released point, except with probability beta, as released numbers
    tell: what it misses of the released rows (``program``, with nothing made easier), and the noise. None without a
    point, and for rows in other cones than inequalities."""
    if outcome.x is None or not model.affine.is_linear():
        return None
    gap = program.A @ outcome.x - program.b  # below zero where there is room
    gap = np.where(model.affine.equalities(), np.abs(gap), gap)
    missed = float((gap + reach_at(model, noise, outcome.x))[model.form.private_rows].max(initial=0.0))
    return min(missed, largest_violation(model))


# ------------------------------------------------------------------ inwards
def tightened_program(
    model: Program, noise: NoiseDesign, treatment: Treatment, c: Floats | None, b: Floats | None,
    entries: Floats | None,
) -> tuple[ConeProgram, sp.csr_array | None]:  # fmt: skip
    """The released program of rows that were made harder, and its weights on |x|; post-processing.

    Of linear rows it uses what is declared beside what was released. Under E a coefficient lies within its reach of the
    released one, and in its declared range in any case: so in the interval that both leave, of which the row gets the
    middle, and |x| half the width. A right-hand side is at least the least declared one. So the module's argument stays
    as it is, no row is harder than for the worst data that are allowed, and every point that satisfies a row with all
    of its entries at their worst stays, whatever is drawn.
    """
    weights, form = treatment.weights, model.form
    if weights is not None:
        assert entries is not None
        low, high = declared_range(model, "matrix")
        (rows, columns), reach = form.matrix_positions(), noise.parts["matrix"].reach
        linear = model.affine.inequalities()[rows]
        near = np.clip(entries, low, high)
        below, above = np.maximum(near - reach, low), np.minimum(near + reach, high)
        entries = np.where(linear, (below + above) / 2, entries)
        half = ((above - below)[linear] / 2, (rows[linear], columns[linear]))
        weights = sp.csr_array(half, shape=weights.shape)
    program = relaxed_program(model, c, b, entries, treatment.relax)
    declared = np.where(form.private_rows & model.affine.inequalities(), form.b0 + form.side_range[0], -np.inf)
    return integer_sides(model, program.with_(b=np.maximum(program.b, declared)), treatment.relax), weights


def _furthest_inwards(model: Program, noise: NoiseDesign, shift: Floats, weights: sp.csr_array | None) -> float:
    """Largest amount by which a right-hand side can end below the true one: the noise plus the shift, and no more than
    the declared ranges of its row are wide (``tightened_program``)."""
    on_b = simulated_margins(model, noise, sides=1)  # the law is symmetric: it serves the other tail
    total = shift + (margin(model.affine, reach_on_b(model, noise)) if on_b is None else on_b)
    if weights is not None:
        size = _sizes(model)
        used = np.unique(sp.coo_array(weights).coords[1])
        if not np.isfinite(size[used]).all():
            return float("inf")
        total = total + 2 * (weights @ finite(size))
    linear = model.affine.inequalities()
    return float(np.where(linear, np.minimum(total, spread_of_rows(model)), total).max(initial=0.0))


def cost_of(model: Program, treatment: Treatment, outcome: Outcome) -> str:
    """What tightening cost, from the released multipliers y; "" where they do not tell: between integers v is not
    convex, and where rows gave way the released numbers may have no point of their own.

    The optimum v of the program is convex in its right-hand sides, with y a subgradient at the tightened ones, so
    ``v(b - t) - v(b) <= y't`` for the released b.
    """
    tells = outcome.dual is not None and outcome.status == "optimal" and treatment.weights is None
    if not tells or not model.affine.is_linear() or has_integers(model):
        return ""
    assert outcome.dual is not None
    cost = float(np.abs(outcome.dual) @ -treatment.relax)
    return f"tightening made the objective at most {number(cost)} worse than the released numbers alone"


def has_integers(model: Program) -> bool:
    """Whether some variable is integer: then multipliers do not bound what a change of right-hand sides costs."""
    return bool(model.affine.boolean.size or model.affine.integer.size)


# ------------------------------------------------------------------ words
# Kinds of constraints that are named one by one, and constraints of a kind that are named.
_MOST_KINDS = _MOST_NAMED = 4


def _row_words(model: Program, done: Treatment, amount: Floats, sizes: Floats, what: str) -> tuple[str, ...]:
    """One line for each private constraint: what is done to its rows, in the user's units and as a share of ``sizes``
    (m,), which are ``what``. ``amount`` (m,) : how far rows are moved, "centred": are missed on average. Where there
    are many constraints, one line for all that are treated alike."""
    private = model.form.private_rows
    on_x = np.zeros(private.size) if done.weights is None else abs(done.weights).max(axis=1).toarray().ravel()
    blocks = [(block, np.flatnonzero(private[block.rows]) + block.start) for block in model.affine.cones]
    groups: dict[Any, list[tuple[str, Integers]]] = {}
    for fine in (True, False):
        groups.clear()
        for block, rows in blocks:
            free = done.priced is not None and not done.priced[rows].any()
            kind = "cone" if free or block.kind not in ("zero", "nonneg") else block.kind
            if rows.size:
                key = (kind, _range(amount[rows]), _range(on_x[rows])) if fine else (kind,)
                groups.setdefault(key, []).append((block.label, rows))
        if len(groups) <= _MOST_KINDS:
            break
    lines = []
    for (kind, *_), members in groups.items():
        names = list(dict.fromkeys(label for label, _ in members))
        more = len(names) - _MOST_NAMED + 1 if len(names) > _MOST_NAMED else 0
        named = f"{', '.join(names[: _MOST_NAMED - 1])} and {more} more" if more else ", ".join(names)
        rows = np.concatenate([each for _, each in members])
        besides = f" and {_range(on_x[rows])} times the size of the variables" if on_x[rows].any() else ""
        told = _done(done, kind, _range(amount[rows]), besides)
        lines.append(f"{named}: {told}{_share(amount[rows], sizes[rows], what)}")
    return tuple(lines)


def _done(done: Treatment, kind: str, amount: str, besides: str) -> str:
    if done.mode == "centred":
        missed = "is off" if kind == "zero" else "that binds is short"
        average = f"by {amount} on average" if amount != "unbounded" else "by noise times the size of x"
        average += " (0 where it holds)" if kind != "zero" and amount != "unbounded" else ""
        return f"solved with the released numbers as they are (centred); a row {missed} {average}"
    if done.mode == "priced" and kind == "cone":
        return "no price, stands as released"
    if done.mode == "priced":
        return f"what noise makes a row {'off' if kind == 'zero' else 'short'} by is weighed against the cost (priced)"
    along = ", along the cone's interior direction" if kind == "cone" else ""
    verb = "made harder by"
    if done.mode == "relaxed":
        verb = "may miss the released numbers by" if kind == "zero" else "made easier by"
    return f"{verb} {amount}{besides} ({done.mode}), {done.why}{along}"


def _share(amount: Floats, size: Floats, what: str) -> str:
    """The amount as a share of the size of the numbers, where both are known."""
    known = np.isfinite(size) & (size > 0) & np.isfinite(amount)
    if not known.any():
        return ""
    typical = float(size[known].mean())
    share = float(f"{100 * float(amount[known].mean()) / typical:.2g}")
    return f"; {share:g} % of {what} ({number(typical)}{' on average' if known.sum() > 1 else ''})"


def _range(values: Floats) -> str:
    least, most = number(float(values.min())), number(float(values.max()))
    return most if least == most else f"{least} to {most}"


# ------------------------------------------------------------------ solving
# Rows that are missed by less hold as far as solvers tell: of linear ones, and of cones, relative to their numbers.
_LINEAR, _CURVED = 1e-6, 2e-5


def least_each(
    program: ConeProgram, direction: Floats, most: float, *, weights: Any = None, **how: Any
) -> Floats | None:
    """(m,) multiples of ``direction`` (m,), of least sum and none above ``most``, by which rows give way, the same in
    all rows of a cone; None where no solver has an answer.

    A variable for each row or cone (two for an equality, up and down). Released numbers only: post-processing.
    """
    m, n = program.b.size, program.c.size
    cone, equal = np.zeros(m, dtype=np.int64), np.zeros(m, dtype=bool)
    count = 0
    for block in program.cones:
        sizes = block.sizes or (1,) * block.size
        cone[block.rows] = count + np.repeat(np.arange(len(sizes)), sizes)
        equal[block.rows] = block.kind == "zero"
        count += len(sizes)
    rows = np.flatnonzero(direction)
    moving, column = np.unique(cone[rows], return_inverse=True)
    # Where there is a ceiling, the row does not give way beyond it.
    room = np.full(moving.size, float(most))
    if program.ceiling is not None:
        with np.errstate(invalid="ignore"):
            left = np.maximum(program.ceiling - program.b, 0.0)[rows] / direction[rows]
        np.minimum.at(room, column, np.where(np.isfinite(left), left, most))
    # Equalities come again, from below.
    again = np.flatnonzero(equal[rows])
    place = np.concatenate([rows, rows[again]])
    which = np.concatenate([column, moving.size + np.arange(again.size)])
    sign = np.concatenate([-direction[rows], direction[rows[again]]])
    size = moving.size + again.size
    slacks = sp.csr_array((sign, (place, which)), shape=(m, size))
    wide = program.with_(
        c=np.concatenate([np.zeros(n), np.ones(size)]),
        d=0.0,
        A=sp.hstack([sp.csr_array(program.A), slacks], format="csr"),
        lower=np.concatenate([program.lower, np.zeros(size)]),
        upper=np.concatenate([program.upper, room, np.full(again.size, float(most))]),
    )
    if weights is not None:
        weights = sp.hstack([sp.csr_array(weights), sp.csr_array((m, size))], format="csr")
    solution = solve_cone_program(wide, weights=weights, **how)
    if solution.x is None:
        return None
    out = np.zeros(m)
    np.add.at(out, place, np.maximum(solution.x[n:], 0.0)[which])
    return out


def shortfall(
    affine: AffineMap, program: ConeProgram, x: Floats, private: npt.NDArray[np.bool_], weights: Any = None
) -> Floats:
    """(m,) by how much x misses each of the ``private`` rows (m,) of ``program``, the same number in all rows of a
    cone; 0 up to a solver's tolerance."""
    left = program.A @ x
    size = np.abs(program.b) + abs(sp.csr_array(program.A)) @ np.abs(x)
    if weights is not None:
        left = left + weights @ np.abs(x)
    short = np.maximum(shortfalls(affine, np.asarray(program.b - left)) - program.band, 0.0)
    tolerance = np.zeros(affine.rows)
    for block in affine.cones:
        rows = slice(block.start, block.start + block.size)
        linear = block.kind in ("zero", "nonneg")
        tolerance[rows] = _LINEAR + 1e-9 * size[rows] if linear else _CURVED * (1 + size[rows].max(initial=0.0))
        if not linear and private[rows].any():
            continue
        short[rows] = np.where(private[rows], short[rows], 0.0)
    return np.where(short > tolerance, short, 0.0)


def short_rows(affine: AffineMap, short: Floats) -> tuple[tuple[str, float], ...]:
    """Names and amounts of the rows with a shortfall, the largest first; a cone is one row."""
    found: list[tuple[str, float]] = []
    for block in affine.cones:
        part = short[block.rows]
        if block.sizes:
            part = part[np.r_[0, np.cumsum(block.sizes)[:-1]].astype(np.int64)]
        found += [(_name(block, int(k), part.size), float(part[k])) for k in np.flatnonzero(part)]
    return tuple(sorted(found, key=lambda pair: -float(f"{pair[1]:.4g}")))


def _name(block: ConeBlock, row: int, rows: int) -> str:
    """The label and the index in the user's constraint, counted as CVXPY does: column by column."""
    if rows == 1:
        return block.label
    shape = block.shape if int(np.prod(block.shape)) == rows else (rows,)
    index = ", ".join(str(int(k)) for k in np.unravel_index(row, shape, order="F"))
    return f"{block.label}[{index}]"


# A solver's own tolerance: the least violation is kept to this when the objective is minimised after it.
_TOLERANCE = 1e-6

LEAST_VIOLATION = "least_violation"
_GIVES_WAY = ("the released program has no point; in this one private rows give way by the least further amount",)


def relaxed_program(
    model: Program, c: Floats | None, b: Floats | None, entries: Floats | None, relax: Floats
) -> ConeProgram:
    """The released program with rows moved by ``relax`` (m,) along their interior direction.

    Bands for equalities. Right-hand sides of inequalities with public coefficients are moved into the range
    that databases allow, which can only bring them nearer to the true ones; nor do they give way beyond it, so what is
    released is a public point, whatever is done to the rows.
    """
    total_c, total_b, A = model.form.with_noise(c, b, entries)
    direction = interior_direction(model.affine)
    equality = model.affine.equalities()
    moved = np.where(equality, total_b, total_b + relax * direction)
    moved = np.maximum(np.minimum(moved, model.public.largest_sides), model.public.least_sides)
    band = np.where(equality, np.maximum(relax, 0.0), 0.0)
    return base_program(model.form).with_(c=total_c, b=moved, A=A, band=band, ceiling=model.public.largest_sides)


def integer_sides(model: Program, program: ConeProgram, relax: Floats) -> ConeProgram:
    """``program`` with right-hand sides rounded in rows whose private part is an integer by public declaration.

    Row i is ``A_i x <= b_i``. Tightened (``relax_i < 0``), its side is at most b_i when the statement holds. With b_i
    an integer (plus a public number) it is so rounded up, too: up to 1 of the tightening is won back.
    Relaxed, its side is at least b_i, so it is so rounded down, too, but in rows with private coefficients, where it
    covers the noise on these as well. Whether x is integer plays no part; where it is, a side just beyond an integer
    would cost a whole step.
    """
    whole = _integer_rows(model)
    if not whole.any():
        return program
    public, tightened, relaxed = model.form.b0, whole & (relax < 0), whole & (relax > 0)
    relaxed[model.form.matrix_positions()[0]] = False
    part = program.b - public
    near = 1e-9 * (1 + np.abs(part))  # so near to an integer, a number is one but for rounding
    b = np.where(tightened, np.ceil(part - near), np.where(relaxed, np.floor(part + near), part)) + public
    return program.with_(b=np.where(tightened | relaxed, b, program.b))


def _integer_rows(model: Program) -> npt.NDArray[np.bool_]:
    """(m,) inequalities whose right-hand side is a public number and an integer combination of private integers. Not
    kept: a run writes nothing into the model."""
    scalar, mask = model.form.scalar, np.zeros(model.affine.rows, dtype=bool)
    if not scalar.nnz:
        return mask
    integer = np.zeros(model.affine.theta_size, dtype=bool)
    for block in model.affine.private_blocks:
        integer[block.columns] = not block.why_not_integer
    mask[scalar.row] = True
    mask[scalar.row[~integer[scalar.column] | (scalar.coefficient != np.rint(scalar.coefficient))]] = False
    return mask & model.affine.inequalities()


def solve_released(
    model: Program,
    options: Options,
    program: ConeProgram,
    *,
    weights: Any = None,
    unit: Floats | None = None,
    may_give_way: bool = True,
) -> Outcome:
    """Solve a released program; if it is infeasible (or no solver has an answer) and ``may_give_way``, let private rows
    give way by the least further amounts (``least_each``), multiples of the public ``unit`` (m,), by default 1."""
    private = model.form.private_rows
    solve = partial(solve_cone_program, solver=options.solver, options=options.solver_options, weights=weights)
    solution = solve(program)
    stays = not (may_give_way and private.any())
    without_point = "infeasible" in solution.status or solution.status == SOLVER_ERROR
    if solution.solved or not without_point or stays:
        return _outcome(solution, solution.status)
    direction = giving_way(model.affine, private)
    if unit is not None and (unit[private] > 0).any():
        # Rows that no noise moves count like the one that it moves most.
        most = float(unit[private].max())
        direction = direction * np.where(unit > 0, unit, most) / most
    first = solve(program, direction=direction, minimise_slack=True)
    if not first.solved:
        return _outcome(first, first.status)
    most = first.slack * (1 + _TOLERANCE) + _TOLERANCE
    each = least_each(program, direction, most, weights=weights, solver=options.solver, options=options.solver_options)
    best = first  # every row gives way alike: only where no solver has an answer to more
    if each is not None:
        amount = each * direction
        eased = amount + np.where(each > 0, np.sign(direction) * _TOLERANCE * (1 + np.abs(amount)), 0.0)
        equality = model.affine.equalities()
        sides = program.b + np.where(equality, 0.0, eased)
        if program.ceiling is not None:
            sides = np.minimum(sides, np.maximum(program.ceiling, program.b))
        by_row = solve(program.with_(b=sides, band=program.band + np.where(equality, eased, 0.0)))
        if "unbounded" in by_row.status and first.slack <= _TOLERANCE:
            return _outcome(by_row, "unbounded")  # the solver could not tell the two apart at first
        best = by_row if by_row.solved else first
    assert best.x is not None
    short = shortfall(model.affine, program, best.x, private, weights)
    earlier = solution.seconds + (first.seconds if best is not first else 0.0)
    extra = float(short.max(initial=0.0))
    return _outcome(best, LEAST_VIOLATION, extra=extra, notes=_GIVES_WAY, seconds=earlier)


def solve_most_inside(
    model: Program, options: Options, b: Floats | None, entries: Floats | None, *, relax: Floats, inside: float
) -> Outcome:
    """For linear programs without an objective: the point that meets the released rows best.

    Rows start tightened by ``relax`` and give way by ``t relax`` (bands of equalities grow from nothing by
    ``t relax / 2``) with the least t >= 0. At t = 1 rows are as released, at t = 2 this is the relaxed program: the
    statements of the two hold up to there, which is ``inside``.
    """
    program = relaxed_program(model, None, b, entries, -relax)
    direction = np.where(model.affine.equalities(), relax / 2, relax)
    moves = np.where(direction > 0, direction, 0.0)
    if not moves.any() or not np.isfinite(moves).all():
        still = relax if inside > 1 else np.zeros(model.affine.rows)
        return solve_released(model, options, relaxed_program(model, None, b, entries, still), unit=finite(relax))
    solution = solve_cone_program(
        program, direction=moves, minimise_slack=True, solver=options.solver, options=options.solver_options
    )
    beyond = max(solution.slack - inside, 0.0) * float(relax.max()) if solution.solved else 0.0
    value = program.d if solution.solved else None
    status = LEAST_VIOLATION if beyond > _TOLERANCE * float(relax.max()) else solution.status
    notes = _GIVES_WAY if status == LEAST_VIOLATION else ()
    extra = beyond if status == LEAST_VIOLATION else 0.0
    return Outcome(status, solution.x, solution.dual, value, solution.seconds, extra, (*notes, *solution.notes))


def finite(values: Floats) -> Floats:
    """``values`` with 0 for what is not finite."""
    return np.where(np.isfinite(values), values, 0.0)


def _outcome(
    solution: ConeSolution, status: str, *, extra: float = 0.0, notes: tuple[str, ...] = (), seconds: float = 0.0
) -> Outcome:
    seconds += solution.seconds
    return Outcome(status, solution.x, solution.dual, solution.value, seconds, extra, (*notes, *solution.notes))
