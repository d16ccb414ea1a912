"""What is done to private constraints before the released program is solved: the four feasibilities, and their words.

Row i reads ``b_i - A_i x`` in a cone, of which ``b_i + e_i`` and ``A_i + N_i`` are released. "relaxed" moves every row
outwards by a public bound on the noise, so that the true optimum stays feasible; "centred" takes the released numbers
as they are; "safe" moves rows inwards by t_i such that with probability 1 - beta all true rows hold at every point of
the released program; "strict" does so with certainty, under noise that has a bound.

Safe, the argument. Let E be the event that ``e_i <= t_i`` in every private row (in cones: that the noise lies in the
box that ``margins.margin`` covers) and that every ``|N_ij|`` is within its reach r_ij, which the program multiplies by
``|x_j|``. E speaks of the noise alone, and under E, for every x at once, the true row is short by at most what x misses
the released one by: ``A_i x - b_i <= A~_i x + r_i |x| - (b~_i - t_i)``. What is declared is true as well, and used
beside it (``tightened_program``). So with the probability of E

* a point of the released program satisfies every true row;
* any other point, chosen after seeing the numbers or not, satisfies all but those that it misses in the released
  program, and is short of these by at most as much: the release lists them (``give_way.shortfall``).

The first is promised before the release only where the released program is known to have a point, or a public point is
released in its place that satisfies every database that is allowed (``points.leaves_a_point``).

E fails with probability at most the sum
of what its parts may fail with: part p of the noise (c, b, A) has beta_p, and these add up to beta. Within b, one draw
that reaches rows with one sign is one event ``{draw > t}``; event k gets risk ``beta_b s_k`` with shares s_k that add
up to one, and the quantile at that risk times its row's gain is t_i (union bound). Only one side matters, because
noise that makes a row harder than it is violates nothing.

The shares. Half is equal. Half goes by ``y_i gain_i``, the multipliers of the program with all private numbers at the
middle of their declared ranges: at ``risk_k`` in proportion to that the first-order cost ``sum y_i t_i`` is least
(``t_i`` falls as ``gain_i ln(1 / risk_k)``). They are public, so the bound holds as it stands. Shares chosen after the
noise, from what rows cost in the released program, would not do: whichever row is given the whole risk can be the one
whose draw is large, and a bound that holds for all choices at once is the equal split with k-fold risk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.contract import Feasibility, Options, Outcome
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.privacy import Gaussian
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart, reach_at, reach_on_b, row_margins, x_bound
from dpmodel.programs.public import (
    declared_range,
    largest_violation,
    middle_cost,
    middle_program,
    spread,
    spread_of_rows,
)
from dpmodel.programs.released_program import finite, integer_sides, margin, relaxed_program
from dpmodel.text import number

# So many kinds of constraints are named one by one, and so many constraints of a kind by name.
_MOST_TOLD, _MOST_NAMED = 4, 4
# And so many are drawn.
_MOST_MOVED = 40


@dataclass(frozen=True)
class Treatment:
    """``relax`` : (m,) how far rows move along their interior direction, inwards where negative. ``weights`` : (m x n)
    what is added to the left sides as ``weights |x|``, or None. ``violation`` : by how much a true row can be missed
    by a point of the released program, except with probability beta and if some point satisfies all true rows;
    ``alone`` : the same where no row had to give way. ``expected`` : mean violation of a row that binds. ``tightening``
    : by how much a right-hand side can end below the true one. ``amount`` (m,) : how far rows are moved, or missed on
    average; ``tell`` : the words for it, given the sizes (m,) of the numbers in the rows and what these are. ``moved``
    : for figures, see ``moved_by_label``; empty where ``weights`` are added. ``unit`` : (m,) size of the noise, by
    which rows give way."""

    relax: Floats
    weights: sp.csr_array | None
    violation: float
    alone: float
    expected: float
    tightening: float
    amount: Floats
    tell: Callable[[Floats, Floats, str], tuple[str, ...]]
    moved: Mapping[str, Any]
    unit: Floats

    def words(self, model: Program, released: Floats | None = None, amount: Floats | None = None) -> tuple[str, ...]:
        """What is done to each private constraint, beside the size of its numbers: as declared, or ``released`` (m,).
        ``amount`` : where the released point tells more."""
        amount = self.amount if amount is None else amount
        if released is None:
            return self.tell(amount, _declared_sizes(model), "the middle of the declared range")
        return self.tell(amount, np.abs(released), "as released")


def treat(model: Program, options: Options, noise: NoiseDesign) -> Treatment:
    """What ``options.feasibility`` does to the private rows under this noise."""
    mode, none = options.feasibility, np.zeros(model.affine.rows)
    if not model.form.private_rows.any():
        nothing = {"constraints": {}, "others": 0}
        return Treatment(none, None, 0.0, 0.0, 0.0, np.nan, none, lambda *told: (), nothing, none)
    if mode in ("safe", "strict"):
        box, why = reach_on_b(model, noise), "so that it holds with certainty"
        if mode == "safe":
            why = f"which covers the noise with probability {number(1 - options.beta)}"
            if "scalar" in noise.parts:
                box[noise.parts["scalar"].measurement.positions] = _inwards(model, noise.parts["scalar"])
        shift, weights = tightened(model, noise, box)
        words = partial(row_words, model, mode, weights, why)
        moved = {} if weights is not None else moved_by_label(model, -shift)
        unit = shift if weights is None else shift + weights @ finite(_sizes(model))
        tightening = furthest_inwards(model, noise, shift, weights)
        return Treatment(-shift, weights, 0.0, 0.0, 0.0, tightening, shift, words, moved, unit)
    margins, missed = row_margins(model, noise), missed_on_average(model, noise)
    violation, why, relax, amount = float((margins.one + margins.all).max(initial=0.0)), "", none, missed
    alone = float(margins.all.max(initial=0.0))
    if mode == "relaxed":
        why, relax, alone = "so that the true optimum stays feasible", margins.one, violation
        amount, missed = relax, np.maximum(missed, relax)
    expected = float(missed[model.form.private_rows].mean())
    words, moved = partial(row_words, model, mode, None, why), moved_by_label(model, relax)
    return Treatment(relax, None, violation, alone, expected, np.nan, amount, words, moved, finite(margins.one))


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
    size = margin(model.affine, size)
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
def tightened(model: Program, noise: NoiseDesign, box: Floats) -> tuple[Floats, sp.csr_array | None]:
    """(m,) tightening along the interior directions, and weights on |x| for linear rows with noised A.

    ``box`` : (m,) bounds on the noise on b.
    """
    if "matrix" not in noise.parts:
        return margin(model.affine, box), None
    on_a, in_cones = spread(model, noise.parts["matrix"].reach)
    return margin(model.affine, box + in_cones), on_a if on_a.nnz else None


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


def furthest_inwards(model: Program, noise: NoiseDesign, shift: Floats, weights: sp.csr_array | None) -> float:
    """Largest amount by which a right-hand side can end below the true one: the noise plus the shift, and no more than
    the declared ranges of its row are wide (``tightened_program``)."""
    total = shift + margin(model.affine, reach_on_b(model, noise))
    if weights is not None:
        size = _sizes(model)
        used = np.unique(sp.coo_array(weights).coords[1])
        if not np.isfinite(size[used]).all():
            return float("inf")
        total = total + 2 * (weights @ finite(size))
    linear = model.affine.inequalities()
    return float(np.where(linear, np.minimum(total, spread_of_rows(model)), total).max(initial=0.0))


def _inwards(model: Program, part: NoisyPart) -> Floats:
    """(h,) t of the module's docstring for the entries of b; the two-sided ``reach`` where rows lie in other cones than
    inequalities or combine several Laplace draws."""
    distribution, m = part.distribution, part.measurement
    linear = np.zeros(model.affine.rows, dtype=bool)
    for block in model.affine.cones:
        linear[block.rows] = block.kind == "nonneg"
    one_draw_each = m.recover.nnz == m.recover.shape[0] == np.count_nonzero(np.diff(m.recover.indptr))
    if (
        distribution is None
        or not linear[m.positions].all()
        or not (one_draw_each or isinstance(distribution, Gaussian))
    ):
        return part.reach
    event = np.arange(m.recover.shape[0])
    if one_draw_each:
        event = np.unique(2 * m.recover.indices + (m.recover.data > 0), return_inverse=True)[1]
    gain = m.gain(2)
    risks = part.beta * _shares(model, m.positions, event, gain)
    # Symmetric noise passes one end with half the probability of passing either; beyond one half that end is 0.
    ends = np.array([distribution.max_abs_quantile(1, 2 * risk) if 2 * risk < 1 else 0.0 for risk in risks])
    inwards: Floats = gain * ends[event]
    return inwards


def _shares(model: Program, positions: Integers, event: Integers, gain: Floats) -> Floats:
    """(k,) shares of the risk of the events, which add up to one; public."""
    count = int(event.max(initial=-1)) + 1
    equal = np.full(count, 1 / max(count, 1))
    multipliers = model.cached("multipliers in the middle", lambda: _multipliers(model))
    if multipliers is None:
        return equal
    cost = np.bincount(event, weights=np.abs(multipliers[positions]) * gain, minlength=count)
    return equal if cost.sum() <= 0 else (equal + cost / cost.sum()) / 2


def _multipliers(model: Program) -> Floats | None:
    """(m,) of the program with c and b at the middle of their declared ranges; None where one is not declared."""
    program, c = middle_program(model), middle_cost(model)
    if model.form.matrix.nnz or program is None or c is None:
        return None
    return solve_cone_program(program.with_(c=c), solver=model.public.solver).dual


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
def row_words(
    model: Program,
    mode: Feasibility,
    weights: sp.csr_array | None,
    why: str,
    amount: Floats,
    sizes: Floats,
    what: str,
) -> tuple[str, ...]:
    """One line for each private constraint: what is done to its rows, in the user's units and as a share of ``sizes``
    (m,), which are ``what``. ``amount`` (m,) : how far rows are moved, "centred": are missed on average. Where there
    are many constraints, one line for all that are treated alike."""
    private = model.form.private_rows
    on_x = np.zeros(private.size) if weights is None else abs(weights).max(axis=1).toarray().ravel()
    found: list[tuple[str, str, Integers]] = []
    for block in model.affine.cones:
        rows = np.arange(block.start, block.start + block.size)[private[block.rows]]
        if rows.size:
            found.append((block.kind if block.kind in ("zero", "nonneg") else "cone", block.label, rows))
    for keys in ([(kind, _range(amount[rows]), _range(on_x[rows])) for kind, _, rows in found], [k for k, *_ in found]):
        groups: dict[Any, list[int]] = {}
        for place, key in enumerate(keys):
            groups.setdefault(key, []).append(place)
        if len(groups) <= _MOST_TOLD:
            break
    lines = []
    for places in groups.values():
        kind, rows = found[places[0]][0], np.concatenate([found[place][2] for place in places])
        labels = list(dict.fromkeys(found[place][1] for place in places))
        more = f" and {_range(on_x[rows])} times the size of the variables" if on_x[rows].any() else ""
        lines.append(f"{_listed(labels)}: {_done(mode, kind, _range(amount[rows]), more, why)}"
                     f"{_share(amount[rows], sizes[rows], what)}")  # fmt: skip
    return tuple(lines)


def _done(mode: Feasibility, kind: str, amount: str, more: str, why: str) -> str:
    if mode == "centred":
        missed = "is off" if kind == "zero" else "that binds is short"
        average = f"by {amount} on average" if amount != "unbounded" else "by noise times the size of x"
        return f"solved with the released numbers as they are (centred); a row {missed} {average}"
    along = ", along the cone's interior direction" if kind == "cone" else ""
    if mode == "relaxed":
        verb = "may miss the released numbers by" if kind == "zero" else "made easier by"
        return f"{verb} {amount} (relaxed), {why}{along}"
    return f"made harder by {amount}{more} ({mode}), {why}{along}"


def _share(amount: Floats, size: Floats, what: str) -> str:
    """The amount as a share of the size of the numbers, where both are known."""
    known = np.isfinite(size) & (size > 0) & np.isfinite(amount)
    if not known.any():
        return ""
    typical = float(size[known].mean())
    return f"; {float(f'{100 * float(amount[known].mean()) / typical:.2g}'):g} % of {number(typical)}, {what}"


def _listed(labels: list[str]) -> str:
    if len(labels) <= _MOST_NAMED:
        return ", ".join(labels)
    return f"{', '.join(labels[: _MOST_NAMED - 1])} and {len(labels) - _MOST_NAMED + 1} more"


def _declared_sizes(model: Program) -> Floats:
    """(m,) of the private numbers in the right-hand side of every row the middle of their range, nan where none is
    declared. Public."""
    low, high = model.form.side_range
    with np.errstate(invalid="ignore"):
        return np.abs((low + high) / 2)


def moved_by_label(model: Program, relax: Floats) -> dict[str, Any]:
    """``constraints`` : label of a private one -> least and largest amount by which its rows are made easier, those
    that move furthest; ``others`` : how many more there are."""
    private = model.form.private_rows
    found: dict[str, tuple[float, float]] = {}
    for block in model.affine.cones:
        rows = relax[block.rows][private[block.rows]]
        if rows.size:
            least, most = found.get(block.label, (np.inf, -np.inf))
            # 0.0 + : no negative zero.
            found[block.label] = (min(least, 0.0 + float(rows.min())), max(most, 0.0 + float(rows.max())))
    furthest = sorted(found, key=lambda label: -max(map(abs, found[label])))[:_MOST_MOVED]
    kept = {label: pair for label, pair in found.items() if label in furthest}
    return {"constraints": kept, "others": len(found) - len(kept)}


def _range(values: Floats) -> str:
    least, most = number(float(values.min())), number(float(values.max()))
    return most if least == most else f"{least} to {most}"
