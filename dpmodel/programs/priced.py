"""``feasibility=Priced``: private rows may be missed, at a price, and the program weighs it against what serving costs.

Let row i be missed by its true gap ``g_i(x) = A_i x - b_i`` and cost ``above_i g^+ + below_i (-g)^+``. Minimised is
``c'x`` plus the mean of these costs given the released numbers (``prices.py``: the laws, and why this mean is a known
function of the released gap). Nothing but the noise's marginal laws enters. All of it is post-processing.

Public coefficients. The cost of row i is ``above Phi(r) + below (Phi(r) - r)``, convex in the gap
``r = A_i x - b~_i``, and piecewise linear once Phi is the largest of K + 2 lines. So r is written as the place of the
first kink plus one column for every piece, as long as the piece and as dear as its slope; slopes increase, so an
optimum fills pieces in order. The program has no row more and stays of its kind: an LP an LP, a MILP a MILP.

Sentence [proof, KKT]. The multiplier y_i of row i balances the cost of moving r_i: it is a subgradient,
``y_i = above_i F(r_i) - below_i (1 - F(r_i))``. So the row is short with probability ``F(r_i) = y_i / above_i``
(equalities: ``(y_i + below_i) / (above_i + below_i)``). Where F would have to be above 1 the row is not served at all.

Private coefficients [proof]. ``E((A~ - M)_i x - b~_i + N)^+`` is convex in x for every law, as a mean of convex
functions. Take the noise in row i at x to be Gaussian of its exact deviation t (exact for Gaussian noise):
``h(r, t) = r F(r/t) + t f(r/t) = max over u of F(u) r + f(u) t``, with the maximum at ``u = r / t`` (the derivative
``f(u) (r - u t)`` changes sign there). So h is jointly convex and increases with t, and the program needs K rows
``z >= F(u_k) r + f(u_k) t`` and one second-order cone ``t >= |M_i x + m_i|`` for a row. With integer variables the
program has to stay a MILP: the mean over ``DRAWS`` draws of the public law takes its place.

What it promises: nothing of a single row (``safe`` does), and nothing where prior beliefs matter much: of two-sided
rows no wider than the noise it forgets that the true data leave a point.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, Mask
from dpmodel.compile.public_set import base_program
from dpmodel.contract import YES, Options, Outcome, Verdict
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.privacy import public_generator
from dpmodel.programs.feasibility import LEAST_VIOLATION, has_integers, relaxed_program, shortfall, solve_released
from dpmodel.programs.margins import interior_direction
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign
from dpmodel.programs.prices import Laws, laws_of, noise_terms, priced_rows, unserved, usual_prices
from dpmodel.programs.public import Level, declared_range
from dpmodel.requests import Prices
from dpmodel.text import number

DRAWS = 60


class Shortage(NamedTuple):
    """(m,) each, 0 in rows without a price. Given the released numbers: ``chance_above``, ``chance_below`` : the
    probability that the left side lies above or below the true right-hand side; ``above``, ``below`` : by how much on
    average, rows that are met counted as 0. Estimates: means over the law of the noise."""

    chance_above: Floats
    chance_below: Floats
    above: Floats
    below: Floats

    def cost(self, prices: Prices) -> float:
        """The mean cost of what is missed, in units of the minimised objective."""
        return float(prices.above @ self.above + prices.below @ self.below)


class Cost(NamedTuple):
    """Expected ``cost`` above the optimum's, in money; how many of the rows that bind are ``short``, and the ``amount``
    in all."""

    cost: float
    short: float
    amount: float


def can_price(model: Program) -> Verdict:
    """Whether some private row can have a price, or why none can."""
    if not model.form.private_rows.any():
        return Verdict(False, "no constraint is private, so there is nothing to price", "feasibility")
    if not priced_rows(model).any():
        why = "private numbers are only in rows of split expressions or in other cones: these have no amount to price"
        return Verdict(False, why, "feasibility")
    return YES


def solve_priced(
    model: Program, options: Options, design: NoiseDesign, c: Floats | None, b: Floats | None, entries: Floats | None
) -> Outcome:
    """The answer at ``options.prices`` (None: ``usual_prices``) for released c (n,), b (m,) and private entries of A,
    as they were drawn: clipped to declared ranges, their noise has another law.

    ``value`` : the objective alone. Rows without a price stand as released; where they leave no point they give way
    as usual.
    """
    prices = usual_prices(model, options, c, b, entries)
    base, laws = _released(model, prices, c, b, entries), _laws(model, design, prices, b)
    status, extra = "", 0.0
    notes: tuple[str, ...] = ()
    wide = _wide(model, design, prices, base, laws)
    solution = solve_cone_program(wide, solver=options.solver, options=options.solver_options)
    if "infeasible" in solution.status:
        # Priced rows always leave a point, so it is others that do not.
        others = base.with_(c=np.zeros_like(base.c), keep=base.keep & ~prices.rows)
        first = solve_released(model, options, others)
        if first.x is None:
            return replace(first, value=None)
        standing = model.form.private_rows & ~prices.rows
        short = shortfall(model.affine, others, first.x, standing)
        base = _eased(model, base, short)
        wide = _wide(model, design, prices, base, laws)
        solution = solve_cone_program(wide, solver=options.solver, options=options.solver_options)
        status, extra, notes = LEAST_VIOLATION, float(short.max(initial=0.0)), first.notes
    if solution.x is None:
        why = () if "unbounded" not in solution.status else (
            "at these prices missing rows earns more than it costs without end: a price is below the cost of serving",
        )  # fmt: skip
        return Outcome(solution.status, None, None, None, solution.seconds, extra, (*notes, *why, *solution.notes))
    n, m = base.c.size, base.b.size
    x = solution.x[:n]
    has_dual = solution.dual is not None and not (_private_a(model)[prices.rows].any() and has_integers(model))
    dual = solution.dual[:m] if solution.dual is not None and has_dual else None
    missed = _shortage(model, design, prices, base.A @ x - base.b, x, laws)
    told = (*words(model, prices, missed), *laws[1].notes, *solution.notes)
    value = float(base.c @ x + base.d)
    return Outcome(status or solution.status, x, dual, value, solution.seconds, extra, (*notes, *told))


def _private_a(model: Program) -> Mask:
    """(m,) rows with private coefficients."""
    mask = np.zeros(model.affine.rows, dtype=bool)
    mask[model.form.matrix_positions()[0]] = True
    return mask


def _laws(model: Program, design: NoiseDesign, prices: Prices, b: Floats | None) -> tuple[Integers, Laws]:
    """Priced rows with public coefficients, and the laws of their noise."""
    rows = np.flatnonzero(prices.rows & ~_private_a(model))
    return rows, laws_of(model, design, rows, b)


def _released(
    model: Program, prices: Prices, c: Floats | None, b: Floats | None, entries: Floats | None
) -> ConeProgram:
    """Rows that stand are moved into the range that databases allow, priced ones are not: their law would change."""
    base = relaxed_program(model, c, b, entries, np.zeros(model.affine.rows))
    raw = model.form.with_noise(None, b, None)[1]
    return base.with_(b=np.where(prices.rows, raw, base.b), ceiling=None)


def _eased(model: Program, base: ConeProgram, short: Floats) -> ConeProgram:
    """``base`` with rows moved outwards by ``short`` (m,) and a solver's tolerance."""
    equal, more = model.affine.equalities(), np.where(short > 0, short + 1e-6 * (1 + short), 0.0)
    side = np.where(equal, 0.0, more * interior_direction(model.affine))
    return base.with_(b=base.b + side, band=base.band + np.where(equal, more, 0.0))


def _wide(
    model: Program, design: NoiseDesign, prices: Prices, base: ConeProgram, laws: tuple[Integers, Laws]
) -> ConeProgram:
    wide = _with_pieces(prices, base, *laws)
    rows = np.flatnonzero(prices.rows & _private_a(model))
    if not rows.size:
        return wide
    return (_with_draws if has_integers(model) else _with_cones)(model, design, prices, wide, rows)


def _with_pieces(prices: Prices, base: ConeProgram, rows: Integers, laws: Laws) -> ConeProgram:
    """With a column for every piece of the cost of ``rows`` (p,), which have public coefficients."""
    if not rows.size:
        return base
    slopes, kinks = laws.kinks()
    above, below = prices.above[rows, None], prices.below[rows, None]
    cost = above * slopes + below * (slopes - 1)
    infinite = np.full((rows.size, 1), np.inf)
    upper = np.hstack([np.zeros((rows.size, 1)), np.diff(kinks, axis=1), infinite])
    lower = np.hstack([-infinite, np.zeros((rows.size, slopes.shape[1] - 1))])
    # Inequalities have slack anyway: the first piece of theirs costs nothing.
    used = np.hstack([below > 0, upper[:, 1:] > 0])
    which = np.nonzero(used)[0]
    side = base.b.copy()
    side[rows] += kinks[:, 0]
    entries = sp.csr_array(
        (-np.ones(which.size), (rows[which], np.arange(which.size))), shape=(base.b.size, which.size)
    )
    return _joined(base.with_(b=side), cost[used], lower[used], upper[used], entries)


def _joined(
    base: ConeProgram,
    c: Floats,
    lower: Floats,
    upper: Floats,
    right: Any,
    below: Any = None,
    b: Floats | None = None,
    cones: tuple[ConeBlock, ...] = (),
) -> ConeProgram:
    """``base`` with columns (``right`` : their entries in its rows) and rows (``below`` : over all columns, in
    ``cones``)."""
    A = sp.hstack([sp.csr_array(base.A), right], format="csr")
    more = 0 if b is None else b.size
    if b is not None:
        A = sp.vstack([A, below], format="csr")
    return base.with_(
        c=np.concatenate([base.c, c]),
        lower=np.concatenate([base.lower, lower]),
        upper=np.concatenate([base.upper, upper]),
        A=A,
        b=base.b if b is None else np.concatenate([base.b, b]),
        band=np.concatenate([base.band, np.zeros(more)]),
        keep=np.concatenate([np.asarray(base.keep, dtype=bool), np.ones(more, dtype=bool)]),
        cones=(*base.cones, *cones),
    )


def _block(kind: Any, start: int, size: int, sizes: tuple[int, ...] = ()) -> ConeBlock:
    return ConeBlock(kind, start, size, sizes, (), -1, -1, "price")


def _with_cones(model: Program, design: NoiseDesign, prices: Prices, base: ConeProgram, rows: Integers) -> ConeProgram:
    """With the gap r, the deviation t and the shortage z of each of ``rows`` (p,) as columns."""
    terms, p, n, m = noise_terms(model, design, rows), rows.size, base.c.size, base.b.size
    slopes, heights = (part[0, 1:] for part in Laws(np.ones(1), np.zeros(1, dtype=bool)).lines())
    above, below = prices.above[rows], prices.below[rows]
    r, t, z = (n + k * p + np.arange(p) for k in range(3))
    # z >= slope r + height t, for every line but the first, which is z >= 0.
    lines, each = slopes.size, np.arange(p * slopes.size)
    of = np.repeat(np.arange(p), lines)
    data = np.concatenate([np.tile(slopes, p), np.tile(heights, p), -np.ones(each.size)])
    where = np.concatenate([each, each, each]), np.concatenate([r[of], t[of], z[of]])
    tangents = sp.csr_array((data, where), shape=(each.size, n + 3 * p))
    # A cone for each row: t, then its draws.
    order = np.argsort(terms.owner, kind="stable")
    sizes = 1 + np.bincount(terms.owner, minlength=p)
    heads = np.cumsum(sizes) - sizes
    tails = np.setdiff1d(np.arange(int(sizes.sum())), heads)
    M = terms.M[order].tocoo()
    where = np.concatenate([heads, tails[M.coords[0]]]), np.concatenate([t, M.coords[1]])
    cone = sp.csr_array((np.concatenate([-np.ones(p), -M.data]), where), shape=(int(sizes.sum()), n + 3 * p))
    side = np.zeros(cone.shape[0])
    side[tails] = terms.m[order]
    right = sp.csr_array((-np.ones(p), (rows, np.arange(p))), shape=(m, 3 * p))
    blocks = (
        _block("nonneg", m, each.size),
        _block("soc", m + each.size, cone.shape[0], tuple(sizes.tolist())),
    )
    return _joined(
        base,
        np.concatenate([-below, np.zeros(p), above + below]),
        np.concatenate([np.full(p, -np.inf), np.zeros(2 * p)]),
        np.full(3 * p, np.inf),
        right,
        sp.vstack([tangents, cone]),
        np.concatenate([np.zeros(each.size), side]),
        blocks,
    )


def _with_draws(model: Program, design: NoiseDesign, prices: Prices, base: ConeProgram, rows: Integers) -> ConeProgram:
    """With ``rows`` (p,) once for each of ``DRAWS`` draws of the public law, each missed on its own. The draws have a
    seed of their own: they say nothing of the noise that was drawn."""
    generator, p, m = public_generator(0), rows.size, base.b.size
    place = np.full(m, -1)
    place[rows] = np.arange(p)
    A = sp.csr_array(base.A)[rows]
    sides = np.tile(base.b[rows], (DRAWS, 1))
    moved = [A] * DRAWS
    at = model.form.matrix_positions()
    for group in design.numbers:
        lead = design.parts[group[0]]
        if lead.distribution is None:
            continue
        numbers = lead.distribution.sample((DRAWS, lead.measurement.count), generator)
        for name in group:
            measured = design.parts[name].measurement
            if name == "objective":
                continue
            owner = place[at[0] if name == "matrix" else measured.positions]
            mine = np.flatnonzero(owner >= 0)
            drawn = (measured.recover[mine] @ numbers.T).T
            if name == "scalar":
                sides[:, owner[mine]] -= drawn
            else:
                where = owner[mine], at[1][mine]
                moved = [
                    each - sp.csr_array((draw, where), shape=A.shape) for each, draw in zip(moved, drawn, strict=True)
                ]
    count = p * DRAWS
    eye = sp.eye_array(count, format="csr")
    above, below = (np.tile(each[rows] / DRAWS, DRAWS) for each in (prices.above, prices.below))
    keep = np.asarray(base.keep, dtype=bool).copy()
    keep[rows] = False
    return _joined(
        base.with_(keep=keep),
        np.concatenate([above, below]),
        np.zeros(2 * count),
        np.full(2 * count, np.inf),
        sp.csr_array((m, 2 * count)),
        sp.hstack([sp.vstack(moved), -eye, eye]),
        sides.ravel(),
        (_block("zero", m, count),),
    )


# ------------------------------------------------------------------ what is missed
def shortage(
    model: Program, design: NoiseDesign, prices: Prices, x: Floats, b: Floats | None, entries: Floats | None
) -> Shortage:
    """What priced rows are missed by at ``x`` (n,), by the law of the noise at the released gaps; with the learnt prior
    where one is used."""
    _, side, A = model.form.with_noise(None, b, entries)
    return _shortage(model, design, prices, np.asarray(A @ x - side), x, _laws(model, design, prices, b))


def _shortage(
    model: Program, design: NoiseDesign, prices: Prices, gap: Floats, x: Floats, laws: tuple[Integers, Laws]
) -> Shortage:
    found, groups = np.zeros((4, gap.size)), [laws]
    noisy = np.flatnonzero(prices.rows & _private_a(model))
    if noisy.size:
        sigma = np.maximum(noise_terms(model, design, noisy).sigma(x), 1e-9)
        groups.append((noisy, Laws(sigma, np.zeros(noisy.size, dtype=bool))))
    for rows, law in groups:
        found[:, rows] = *law.chances(gap[rows]), *law.amounts(gap[rows])
    inequality = model.affine.inequalities()
    found[1:4:2, inequality] = 0.0
    return Shortage(*found)


# Constraints that get a line each; of more, those of a kind share one.
_MOST_NAMED = 4


def words(model: Program, prices: Prices, missed: Shortage) -> tuple[str, ...]:
    """A line for each priced constraint, amounts in its own units; one for rows that are not served; those without a
    price."""
    parts: dict[tuple[str, bool], list[Integers]] = {}
    for block in model.affine.cones:
        rows = block.start + np.flatnonzero(prices.rows[block.rows])
        if rows.size:
            parts.setdefault((block.label, block.kind == "zero"), []).append(rows)
    groups = {(label, equal): np.concatenate(rows) for (label, equal), rows in parts.items()}
    if len(groups) > _MOST_NAMED:
        few: dict[bool, list[tuple[str, Integers]]] = {}
        for (label, equal), rows in groups.items():
            few.setdefault(equal, []).append((label, rows))
        groups = {
            (f"{members[0][0]} and {len(members) - 1} more", equal): np.concatenate([rows for _, rows in members])
            for equal, members in few.items()
        }
    lines: list[str] = []
    given_up = unserved(prices, prices.above * missed.chance_above - prices.below * missed.chance_below)
    for (label, equal), rows in groups.items():
        chance, above, below = missed.chance_above[rows], missed.above[rows], missed.below[rows]
        many = rows.size > 1
        count = f"{rows.size} rows" if rows.size > 1 else "1 row"
        if equal:
            lines.append(
                f"{label}: {count}, off by {number(float((above + below).mean()))}{' each' * many} on average "
                f"({number(float(above.sum()))} above and {number(float(below.sum()))} below in all), expected"
            )
        else:
            most = f" (at most {number(float(chance.max()))})" if many else ""
            short, amount = float(chance.sum()), float(above.sum())
            each = f", by {number(amount / short)}{' each' * many} where short" if short > 0 else ""
            lines.append(
                f"{label}: {count}, short with probability {number(float(chance.mean()))}{most}{each}; "
                f"by {number(amount)}{' in all' * many}, expected"
            )
        if given_up[rows].any():
            lines.append(
                f"{label}: {int(given_up[rows].sum())} of {count} not served: a unit costs more than its price. A "
                "higher price serves them"
            )
    return (*lines, *without_price(model, prices))


def price_range(prices: Prices, rows: Integers | Mask) -> str:
    """The prices of ``rows``, of equalities those of the dear side."""
    dear = np.maximum(prices.above, prices.below)[rows]
    least, most = number(float(dear.min(initial=np.inf))), number(float(dear.max(initial=0.0)))
    return most if least == most else f"{least} to {most}"


def without_price(model: Program, prices: Prices) -> tuple[str, ...]:
    """A line that names the private constraints without a price, if any: nothing weighs what they are missed by."""
    free = model.form.private_rows & ~prices.rows
    names = list(dict.fromkeys(block.label for block in model.affine.cones if free[block.rows].any()))
    more = f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED)
    return (f"{', '.join(names[:_MOST_NAMED])}{more}: no price, stands as released",) if names else ()


# ------------------------------------------------------------------ before the release
def expected_cost(
    model: Program,
    design: NoiseDesign,
    prices: Prices,
    dual: Floats,
    moved: Floats | None = None,
    x: Floats | None = None,
) -> Cost:
    """Mean of penalised cost minus its optimum, before the release: an estimate from multipliers ``dual`` (m,) at a
    public level.

    Near the optimum, moving the right-hand side of row i by a costs ``y_i a`` elsewhere. A row that the released
    program holds at the gap r has the true gap ``r + N``. So it costs on average

        ``above Phi(r) + below (Phi(r) - r) - y r``.

    Priced, r is where this is least: ``F(r) = (y + below) / (above + below)``. For Laplace noise this is
    ``y s (1 + ln(above / 2 y))`` where y is at most half the price, for Gaussian noise
    ``above sigma f(F^-1(y / above))``.
    Released as they are, r is 0 (``above s / 2``, ``above sigma / sqrt(2 pi)``). Made harder by t, -t (``y t`` and
    hardly a shortage); made easier, t in the direction in which missing saves cost (``(above - y) t``). Rows without a
    multiplier do not bind, and count as 0. Exact where the same rows bind for all noise; with integers a guide.

    ``moved`` (m,) : how far a treatment moves rows outwards (``Treatment.relax``, less what it adds as weights times
    ``|x|``); None: priced. ``x`` (n,) : the answer at that level, for rows with private coefficients.
    """
    dual = np.clip(dual, -prices.below, prices.above)
    binds = prices.rows & (np.abs(dual) > 1e-9 * np.abs(dual).max(initial=0.0))
    cost = short = amount = 0.0
    for private_a in (False, True):
        rows = np.flatnonzero(binds & (_private_a(model) == private_a))
        if not rows.size:
            continue
        if private_a:
            at = np.zeros(model.affine.variables) if x is None else x
            laws = Laws(np.maximum(noise_terms(model, design, rows).sigma(at), 1e-9), np.zeros(rows.size, dtype=bool))
        else:
            laws = laws_of(model, design, rows)
        y, above, below = dual[rows], prices.above[rows], prices.below[rows]
        if moved is None:
            # At a multiplier as large as the price any gap is as good: a row that is not served costs nothing more.
            gap = laws.gaps(np.clip((y + below) / (above + below), 1e-12, 1 - 1e-12))
        else:
            gap = np.where(model.affine.equalities()[rows], np.sign(y) * np.abs(moved[rows]), moved[rows])
        over, under = laws.amounts(gap)
        cost += float((above * over + below * under - y * gap).sum())
        dear = above >= below  # the side that is dear is the shortage
        short += float(np.where(dear, *laws.chances(gap)).sum())
        amount += float(np.where(dear, over, under).sum())
    return Cost(cost, short, amount)


# Draws of the noise on costs in a forecast.
_COST_DRAWS = 8


def lost_to_noise_on_costs(model: Program, design: NoiseDesign, at: Level) -> float:
    """Mean of ``c'x(c + N) - c'x(c)``, where x(c) is optimal for the costs c: an estimate, at the public level of all
    private numbers, without integrality. nan where no draw has an answer. The draws are public and the same for all
    that are compared."""
    part = design.parts["objective"]
    if part.distribution is None:
        return 0.0
    law, measured = part.distribution, part.measurement

    def build() -> float:
        none, found = np.zeros(0, dtype=np.int64), []
        c, b, A = model.form.with_noise(*at.numbers)
        generator, (low, high) = public_generator(0), declared_range(model, "objective")
        for _ in range(_COST_DRAWS):
            private = at.numbers[0].copy()
            noise = measured.recover @ law.sample((measured.count,), generator)
            private[measured.positions] = np.clip(private[measured.positions] + noise, low, high)
            noised = model.form.with_noise(private, *at.numbers[1:])[0]
            program = base_program(model.form).with_(c=noised, b=b, A=A, boolean=none, integer=none)
            x = solve_cone_program(program, solver=model.public.solver).x
            if x is not None:
                found.append(float(c @ x - c @ at.x))
        return max(float(np.mean(found)), 0.0) if found else math.nan

    lost: float = model.cached(("lost to noise on costs", type(law), float(law.scale), measured.strategy), build)
    return lost
