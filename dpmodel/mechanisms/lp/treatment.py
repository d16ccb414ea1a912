"""What is done to private constraints before the released program is solved: the four feasibilities, and their words.

Row i reads ``b_i - A_i x`` in a cone, of which ``b_i + e_i`` and ``A_i + N_i`` are released. "relaxed" moves every row
outwards by a public bound on the noise, so that the true optimum stays feasible; "centred" takes the released numbers
as they are; "safe" moves rows inwards by t_i such that with probability 1 - beta all true rows hold at every point of
the released program; "strict" does so with certainty, under noise that has a bound.

Safe, the argument. Let E be the event that ``e_i <= t_i`` in every private row (in cones: that the noise lies in the
box that ``margins.margin`` covers) and that every ``|N_ij|`` is within its reach r_ij, which the program multiplies by
``|x_j|``. E speaks of the noise alone, and under E, for every x at once, the true row is short by at most what x misses
the released one by: ``A_i x - b_i <= A~_i x + r_i |x| - (b~_i - t_i)``. Right-hand sides that are moved into their
declared range stay below the true ones. So with the probability of E

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.classify.private_lp import PrivateLP
from dpmodel.mechanisms.contract import Feasibility, Outcome, Request
from dpmodel.mechanisms.lp.noise_once.design import NoiseDesign, NoisyPart, reach_on_b, row_margins, x_bound
from dpmodel.mechanisms.lp.noise_once.margins import margin
from dpmodel.mechanisms.lp.public.points import middle_cost, middle_program, spread
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import Gaussian
from dpmodel.text import number

# So many constraints are told one by one.
_MOST_TOLD = 8
# And so many are drawn.
_MOST_MOVED = 40


@dataclass(frozen=True)
class Treatment:
    """``relax`` : (m,) how far rows move along their interior direction, inwards where negative. ``weights`` : (m x n)
    what is added to the left sides as ``weights |x|``, or None. ``violation`` : by how much a true row can be missed
    by a point of the released program, except with probability beta. ``tightening`` : by how much a right-hand side
    can end below the true one. ``words`` : the same for each private constraint. ``moved`` : for figures, see
    ``moved_by_label``; empty where ``weights`` are added. ``unit`` : (m,) size of the noise, by which rows give way."""

    relax: Floats
    weights: sp.csr_array | None
    violation: float
    tightening: float
    words: tuple[str, ...]
    moved: Mapping[str, Any]
    unit: Floats


def treat(model: PrivateLP, request: Request, noise: NoiseDesign) -> Treatment:
    """What ``request.feasibility`` does to the private rows under this noise."""
    mode, none = request.feasibility, np.zeros(model.affine.rows)
    if not model.form.private_rows.any():
        return Treatment(none, None, 0.0, np.nan, (), {"constraints": {}, "others": 0}, none)
    if mode in ("safe", "strict"):
        box, why = reach_on_b(model, noise), "so that it holds with certainty"
        if mode == "safe":
            why = f"which covers the noise with probability {number(1 - request.beta)}"
            if "scalar" in noise.parts:
                box[noise.parts["scalar"].measurement.positions] = _inwards(model, noise.parts["scalar"])
        shift, weights = tightened(model, noise, box)
        words = told(model, mode, shift, weights, why)
        moved = {} if weights is not None else moved_by_label(model, -shift)
        unit = shift if weights is None else shift + weights @ _finite(_sizes(model))
        return Treatment(-shift, weights, 0.0, furthest_inwards(model, noise, shift, weights), words, moved, unit)
    margins = row_margins(model, noise)
    if mode == "centred":
        violation = float((margins.violate - margins.relax).max(initial=0.0))
        words, moved = told(model, mode, none, None), moved_by_label(model, none)
        return Treatment(none, None, violation, np.nan, words, moved, _finite(margins.relax))
    words = told(model, "relaxed", margins.relax, None, "so that the true optimum stays feasible")
    moved = moved_by_label(model, margins.relax)
    return Treatment(margins.relax, None, margins.alpha, np.nan, words, moved, margins.relax)


def _sizes(model: PrivateLP) -> Floats:
    """(n,) public bounds on ``|x_j|`` where A is private; inf where there is none."""
    return np.minimum(model.public.magnitudes(), x_bound(model))


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


# ------------------------------------------------------------------ inwards
def tightened(model: PrivateLP, noise: NoiseDesign, box: Floats) -> tuple[Floats, sp.csr_array | None]:
    """(m,) tightening along the interior directions, and weights on |x| for linear rows with noised A.

    ``box`` : (m,) bounds on the noise on b.
    """
    if "matrix" not in noise.parts:
        return margin(model.affine, box), None
    on_a, in_cones = spread(model, noise.parts["matrix"].reach)
    return margin(model.affine, box + in_cones), on_a if on_a.nnz else None


def furthest_inwards(model: PrivateLP, noise: NoiseDesign, shift: Floats, weights: sp.csr_array | None) -> float:
    """Largest amount by which a right-hand side can end below the true one: the noise plus the shift."""
    total = shift + margin(model.affine, reach_on_b(model, noise))
    if weights is not None:
        size = _sizes(model)
        used = np.unique(sp.coo_array(weights).coords[1])
        if not np.isfinite(size[used]).all():
            return float("inf")
        total = total + 2 * (weights @ _finite(size))
    # Where right-hand sides are moved into their public range, none ends further inside than that is wide.
    return float(np.minimum(total, model.public.ceiling - model.public.lower_bound).max(initial=0.0))


def _inwards(model: PrivateLP, part: NoisyPart) -> Floats:
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


def _shares(model: PrivateLP, positions: Integers, event: Integers, gain: Floats) -> Floats:
    """(k,) shares of the risk of the events, which add up to one; public."""
    count = int(event.max(initial=-1)) + 1
    equal = np.full(count, 1 / max(count, 1))
    multipliers = model.cached("multipliers in the middle", lambda: _multipliers(model))
    if multipliers is None:
        return equal
    cost = np.bincount(event, weights=np.abs(multipliers[positions]) * gain, minlength=count)
    return equal if cost.sum() <= 0 else (equal + cost / cost.sum()) / 2


def _multipliers(model: PrivateLP) -> Floats | None:
    """(m,) of the program with c and b at the middle of their declared ranges; None where one is not declared."""
    program, c = middle_program(model), middle_cost(model)
    if model.form.matrix.nnz or program is None or c is None:
        return None
    return solve_cone_program(program.with_(c=c), solver=model.public.solver).dual


def cost_of(model: PrivateLP, treatment: Treatment, outcome: Outcome) -> str:
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


def has_integers(model: PrivateLP) -> bool:
    """Whether some variable is integer: then multipliers do not bound what a change of right-hand sides costs."""
    return bool(model.affine.boolean.size or model.affine.integer.size)


# ------------------------------------------------------------------ words
def told(
    model: PrivateLP, mode: Feasibility, moved: Floats, weights: sp.csr_array | None, why: str = ""
) -> tuple[str, ...]:
    """One line for each private constraint: by how much its rows were moved, in the user's units."""
    private = model.form.private_rows
    on_x = np.zeros(private.size) if weights is None else abs(weights).max(axis=1).toarray().ravel()
    lines: dict[str, list[str]] = {}
    for block in model.affine.cones:
        rows = np.arange(block.start, block.start + block.size)[private[block.rows]]
        if not rows.size:
            continue
        amount = _range(moved[rows])
        if mode == "centred":
            text = "solved with the released numbers as they are (centred)"
        elif mode == "relaxed":
            verb = "may miss the released numbers by" if block.kind == "zero" else "made easier by"
            text = f"{verb} {amount} (relaxed), {why}"
        else:
            more = f" and {_range(on_x[rows])} times the size of the variables" if on_x[rows].any() else ""
            text = f"made harder by {amount}{more} ({mode}), {why}"
        if block.kind not in ("zero", "nonneg") and mode != "centred":
            text += ", along the cone's interior direction"
        lines.setdefault(text, []).append(block.label)
    out = [f"{', '.join(dict.fromkeys(labels))}: {text}" for text, labels in lines.items()]
    more_lines = (f"and {len(out) - _MOST_TOLD} more private constraints alike",) if len(out) > _MOST_TOLD else ()
    return (*out[:_MOST_TOLD], *more_lines)


def moved_by_label(model: PrivateLP, relax: Floats) -> dict[str, Any]:
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
