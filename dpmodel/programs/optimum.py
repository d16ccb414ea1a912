"""An interval for the optimum of the true program, from released numbers alone.

The program. With G x <= h + e the private rows (an equality is two of them), h = S u the numbers that are released as
h~ = S (u + N), N the noise on what was measured, and p_k >= 0 the price of a unit by which row k is short,

    V(h) = min c'x + sum_k p_k (G_k x - h_k)^+  over x in the public set X (its rows, bounds and integers)

is the optimum at the prices: finite wherever X has a point, and not unbounded. Rows without a price stay hard: there
the sum reads inf, and V(h) is inf where no point meets them. It is never above the true optimum OPT(h), in which all
rows are hard, for every point of that program has the same value in V. So **the lower end holds for OPT too.** V is
non-increasing in h, and ``V(h) <= V(h') + sum p_k (h'_k - h_k)^+``: the optimum x' at h' misses h by that much more.
Without integers V is convex. Below, alpha is the risk of one end; each is proved for every h, whatever the data are.

*box.* With probability 1 - alpha all ``|h~ - h| <= tau``; then ``V(h~ + tau) <= V(h) <= V(h~ - tau)``, both ends in one
event (in other cones along their interior direction, as ``margins.py`` proves). Declared ranges of h cut both. If the
point at the upper end is short in no row, it meets all true ones, and the end bounds OPT.

*tilt.* For any public t >= 0, ``V(h~ + t) - Q <= V(h) <= V(h~ - t) + Q`` with Q the (1 - alpha)-quantile of
``sum p_k (N'_k - t_k)^+``, N' = S N (symmetric, so one Q serves both ends): put h' = h~ -+ t into the inequality above.
Integers change nothing.

*fixed dual* (above). A subgradient g of V(S u) at the true u depends on u alone, and ``V(S(u + N)) >= V(S u) + g'N``, V
being convex: so ``V(h) <= V(h~) - g'N``. Multipliers y of V lie in [0, p] (more than p_k is never paid), and
``g_j = -sum_k y_k S_kj``; so ``|g_j| <= w_j``, the larger of ``sum p_k S_kj^+`` and ``sum p_k S_kj^-``: what a number
does that enters several rows, with one sign or both. Claim: ``P(-g'N > q) <= P(w'N > q)`` for q >= 0, N independent,
symmetric, unimodal, with a density. Change one weight at a time: the others' sum Z is symmetric and unimodal (Wintner),
so ``P(|v + Z| > q)`` is even in v and grows with |v|, hence ``P(|c N_j + Z| > q)`` grows with |c|; both sums are
symmetric, so half of that is one tail (Birnbaum's peakedness). The bound is a quantile of w'N: it grows like the root
of the number of rows. It needs numbers as released (moved ones are not symmetric), rows that all have a price, and no
integers.

*fission* (below, Gaussian noise). Let Z be another draw of N's law. ``u~ + Z`` and ``u~ - Z`` are jointly Gaussian and
uncorrelated, so independent. The first gives h1 and multipliers y with ``V(h) >= V(h1) - y'(h - h1)`` for all h (V is
convex); the second, h2 = S(u~ - Z), gives ``h = h2 - S(N - Z)``. So ``V(h) >= V(h1) - y'(h2 - h1) + y'S(N - Z)``, and
the last term is Gaussian of deviation ``sqrt(2) sigma |S'y|`` around 0 given y. Z is drawn afresh for every interval.

**Which form.** Every choice reads public facts: with a public level of the numbers each form is tried on these, and the
narrowest pair gets all of the risk (box both ends, any other end half each). Without one, all forms share the risk, and
the best ends of all hold together. What the released numbers make of a form never decides.

**Private c.** V is concave in c for fixed rows (a minimum of linear functions), with integers too. Upper end: under
``|c~ - c| <= r`` the cost of x is at most ``c~'x + r'|x|``, so one more program, with that cost, is an upper bound.
Lower: with ``- r'|x|`` in its place, |x_j| replaced where its sign is open by its chord over the public bounds, which
lies above it; no bound where there are none. Or *fixed point*: the true optimum x* does not depend on the noise M on c,
and ``V(c~) <= c~'x* + ... = V(c) + M'x*``, so ``V(c) >= V(c~) - q``, q a quantile of M'x*: for Gaussian M its deviation
is at most ``sigma |g x*|_2``, for Laplace ``E exp(l w N) = 1 / (1 - l^2 w^2 s^2)`` and ``-ln(1 - l^2 a)`` is convex in
a, so with ``|w_j| <= W`` and ``sum w_j^2 <= T W^2`` Chernoff's bound is that of T draws of weight W; public bounds on
|x| give W and T (where rows have prices, those of single columns). The smaller of the two, by public numbers, is taken.
**Private A.** Under ``|A~_ij - A_ij| <= r_ij`` row i gets ``+- r_i |x|`` on its left side, in the same way: box alone.
These come first, and the forms for h above are about the program that they leave: it has the same p and is convex in
h. Fixed dual and fission need its noise to be independent of N, so numbers that h alone is rebuilt from.

The parts of the noise (c, b, A) share beta equally, as in ``design_noise``. Quantiles without a closed form are order
statistics of simulated sums, so high that chance leaves them below the quantile with probability 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, ndtri

from dpmodel._types import Floats, Integers
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.numerics.solvers import SameRows
from dpmodel.privacy import Gaussian, Laplace, PublicGenerator, public_coins, public_generator
from dpmodel.programs.feasibility import has_integers
from dpmodel.programs.margins import contents, interior_direction, margin
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart, box_reach, part_of
from dpmodel.programs.public import cost_range, declared_range
from dpmodel.requests import Prices
from dpmodel.text import interval_ends, number

Released = tuple[Floats | None, Floats | None, Floats | None]
Form = Literal["box", "tilt", "fixed dual", "fission"]

# Optima are widened by what solvers stop short of: HiGHS leaves a gap of 1e-4 between integers.
_TOLERANCE, _GAP = 1e-6, 1e-4
# Chance with which a simulated quantile may be too small; sums simulated at most, and numbers drawn for them.
_UNLUCKY, _SUMS, _DRAWN = 1e-9, 20_000, 20_000_000
# The share of a price that a multiplier is taken for where no public level tells: rows are short with that chance.
_SHARE = 0.1


@dataclass(frozen=True)
class Interval:
    """``[lower, upper]`` covers the optimum with probability ``level`` at least.

    ``of`` : "the optimum", or "the optimum at the prices", in which a row may be missed at its price: the two are the
    same where prices exceed multipliers, and ``lower`` holds for both; it says where the objective's private constant
    term is left out. ``form`` : how each end was found; ``proved`` : whether it holds for all data; ``statement`` : in
    words, which it prints. In units of the objective, infinite where nothing bounds an end.
    """

    lower: float
    upper: float
    level: float
    of: str
    form: str
    proved: bool
    statement: str

    def __str__(self) -> str:
        return self.statement


def optimum(
    model: Program,
    design: NoiseDesign,
    options: Options,
    c: Floats | None,
    b: Floats | None,
    entries: Floats | None,
    prices: Prices | None,
    *,
    level: Released | None = None,
    coins: PublicGenerator | None = None,
    box_only: bool = False,
) -> Interval:
    """The interval for the true optimum (proof: the module's docstring). Reads released and public numbers only.

    Parameters
    ----------
    c, b, entries : (n,), (m,) and the private entries of A, rebuilt from the numbers as released, not moved into their
        public ranges (``noise_once.rebuilt`` with ``raw``); None: public. ``prices`` : None leaves every row hard.
    level : public guesses of the same, by which forms are chosen. ``coins`` : for fission, independent of all noise;
        None: from a seed of the system's. ``box_only`` : for prices that were chosen after the noise.
    """
    released = (c, b, entries)
    bounds = _Bounds.of(model, design, options, prices, coins)
    plan, y = (bounds.both if box_only else bounds.shared()), None
    if not box_only and level is not None:
        plan, y = bounds.narrowest(level)
    low, high = bounds.ends(plan, released, y)
    exact = bounds.exact(released) or (high.meets_rows and high.form == "box")
    lower, upper = low.value, high.value
    form = low.form if low.form == high.form else f"{low.form} below, {high.form} above"
    if model.affine.maximize:
        lower, upper = -upper, -lower
    of = "the optimum" if exact else "the optimum at the prices"
    of += " but for the objective's private constant term" * bool(model.form.offset.nnz)
    return Interval(lower, upper, 1 - options.beta, of, form, True, _words(model, options, lower, upper, of, exact))


def value_at(model: Program, options: Options, numbers: Released, prices: Prices | None) -> float:
    """V where c, b and A have these ``numbers``; inf where rows without a price leave no point."""
    return _Bounds.of(model, NoiseDesign({}, 0.0, 0.0), options, prices, None).solve(numbers, 0.0, 0, None).value


def cost_at(model: Program, numbers: Released, prices: Prices | None, x: Floats) -> float:
    """J(x) at these ``numbers``: the cost of x (n,), with what it misses of priced rows at their prices."""
    c, b, A = model.form.with_noise(*numbers)
    sides = _Sides.of(model, None, prices)
    soft = np.isfinite(sides.price)
    missed = np.maximum(sides.sign * (A @ x - b)[sides.row], 0.0)
    return float(c @ x + model.form.d0 + sides.price[soft] @ missed[soft])


def _words(model: Program, options: Options, lower: float, upper: float, of: str, exact: bool) -> str:
    """The statement. An end without a bound says why."""
    what = of.replace("the", "the true", 1) if exact else of
    low, high = interval_ends(lower, upper)
    ends = f"lies between {low} and {high}"
    if math.isinf(lower) or math.isinf(upper):
        one = f"is at least {low}" if math.isfinite(lower) else f"is at most {high}"
        why = "a private row without a price, or a variable without public bounds, leaves the other end open"
        ends = f"{one} ({why})" if math.isfinite(lower) or math.isfinite(upper) else f"has no bound: {why}"
    elif not exact:
        best = f"no more than {high}" if model.affine.maximize else f"no less than {low}"
        ends += f"; the true one is {best}, and the same where no multiplier exceeds its price"
    return f"with probability {number(1 - options.beta)}, {what} {ends}"


# ------------------------------------------------------------------ rows that noise moves or prices soften
@dataclass(frozen=True)
class _Sides:
    """Sides ``sign (A_i x - b_i) <= 0`` of rows: ``row``, ``sign``, ``price`` (K,), inf for those that stay hard.

    ``spread`` (K x k) : S, from the measured numbers' noise to that of ``sign b``. ``least``, ``most`` : (K,) declared
    range of ``sign b``.
    """

    row: Integers
    sign: Floats
    price: Floats
    spread: sp.csr_array
    least: Floats
    most: Floats

    @staticmethod
    def of(model: Program, part: NoisyPart | None, prices: Prices | None) -> _Sides:
        affine, form, none = model.affine, model.form, np.zeros(model.affine.rows)
        above, below = (none, none) if prices is None else (prices.above, prices.below)
        priced = ((above > 0) | (below > 0)) & form.private_rows
        equal = affine.equalities()
        hard = form.private_rows & ~priced & (equal | affine.inequalities())
        groups = [(priced & (above > 0), 1.0, above), (priced & (below > 0), -1.0, below)]
        groups += [(hard, 1.0, none + np.inf), (hard & equal, -1.0, none + np.inf)]
        row = np.concatenate([np.flatnonzero(mask) for mask, _, _ in groups])
        sign = np.concatenate([np.full(int(mask.sum()), way) for mask, way, _ in groups])
        price = np.concatenate([cost[mask] for mask, _, cost in groups])
        low, high = form.side_range
        ends = form.b0[row] + low[row], form.b0[row] + high[row]
        width = 1 if part is None else part.measurement.count
        spread = sp.csr_array((row.size, width))
        if part is not None:
            place, h = part.measurement.positions, part.measurement.positions.size
            on_rows = sp.csr_array((np.ones(h), (place, np.arange(h))), shape=(affine.rows, h))
            spread = sp.csr_array(sp.diags_array(sign) @ (on_rows @ part.measurement.recover)[row])
        least, most = (np.where(sign > 0, ends[0], -ends[1]), np.where(sign > 0, ends[1], -ends[0]))
        return _Sides(row, sign, price, spread, least, most)

    @property
    def noised(self) -> Any:
        """(K,) whether noise moves it."""
        return np.diff(self.spread.indptr) > 0


@dataclass(frozen=True)
class _End:
    """One end: ``value``, and ``meets_rows`` : whether its point is short in no row."""

    value: float
    form: str = "box"
    y: Floats | None = None
    meets_rows: bool = False


# Form of an end -> its risk. "box" stands in both mappings with the same one.
Plan = tuple[Mapping[Form, float], Mapping[Form, float]]


@dataclass(frozen=True)
class _Bounds:
    """All that is public about the interval. ``beta`` : of the noise on b."""

    model: Program
    design: NoiseDesign
    options: Options
    sides: _Sides
    part: NoisyPart | None
    beta: float
    fixed_point: float
    coins: PublicGenerator | None
    same_rows: SameRows = field(default_factory=SameRows)

    @staticmethod
    def of(
        model: Program, design: NoiseDesign, options: Options, prices: Prices | None, coins: PublicGenerator | None
    ) -> _Bounds:
        part = design.parts.get("scalar")
        part = None if part is None or part.distribution is None else part
        sides = _Sides.of(model, part, prices)
        beta = min((each.beta for each in design.parts.values()), default=options.beta)
        fixed_point = _fixed_point(model, design, beta / 2, bool(np.isfinite(sides.price).any()))
        return _Bounds(model, design, options, sides, part, beta, fixed_point, coins)

    # -------------------------------------------------------------- which forms, and their risks
    @property
    def _forms(self) -> tuple[list[Form], list[Form]]:
        """Those beside box that apply, below and above."""
        part, sides = self.part, self.sides
        soft = bool(np.isfinite(sides.price[sides.noised]).all())
        if part is None or not isinstance(part.distribution, Laplace | Gaussian) or not self.model.linear_where_private:
            return [], []
        below: list[Form] = ["tilt"] if soft else []
        above = below.copy()
        # Their multipliers may depend on all noise but that on h.
        if not has_integers(self.model) and ("scalar",) in self.design.numbers:
            above += ["fixed dual"] if soft else []
            below += ["fission"] if isinstance(part.distribution, Gaussian) else []
        return below, above

    @property
    def both(self) -> Plan:
        """Box at both ends, one event with all of the risk."""
        return {"box": self.beta}, {"box": self.beta}

    def shared(self) -> Plan:
        """All forms, for numbers without a public level: box a third of the risk, the others at each end a third."""
        ends = []
        for others in self._forms:
            ends.append({"box": self.beta / 3, **{form: self.beta / 3 / len(others) for form in others}})
        if not any(self._forms):
            return self.both
        return ends[0], ends[1]

    def narrowest(self, level: Released) -> tuple[Plan, Floats | None]:
        """The pair of forms that is narrowest where the released numbers are the ``level``, and multipliers there."""
        below, above = ({"box": self.beta / 2, **dict.fromkeys(each, self.beta / 2)} for each in self._forms)
        if len(below) == len(above) == 1:
            return self.both, None
        y = self.solve(level, 0.0, 0, None).y
        low = max(below, key=lambda form: self._lower(form, self.beta / 2, level, y, still=True).value)
        high = min(above, key=lambda form: self._upper(form, self.beta / 2, level, y).value)
        plans: list[Plan] = [self.both, ({low: self.beta / 2}, {high: self.beta / 2})]
        ends = [self.ends(plan, level, y, still=True) for plan in plans]
        widths = [above.value - below.value for below, above in ends]
        return plans[0 if widths[0] <= widths[1] or (low == high == "box") else 1], y

    def ends(self, plan: Plan, released: Released, y: Floats | None = None, still: bool = False) -> tuple[_End, _End]:
        """The best ends of ``plan``. ``still`` : a forecast, in which fission draws nothing."""
        below, above = plan
        low = max((self._lower(form, risk, released, y, still) for form, risk in below.items()), key=lambda e: e.value)
        high = min((self._upper(form, risk, released, y) for form, risk in above.items()), key=lambda e: e.value)
        return low, high

    # -------------------------------------------------------------- the ends
    def _lower(self, form: Form, risk: float, released: Released, y: Floats | None, still: bool = False) -> _End:
        if form == "fission":
            found = self._fission(risk, released, still)
        elif form == "tilt":
            t = self._tilted(y)
            end = self.solve(released, t, -1, self._cut)
            found = replace(end, value=end.value - self._quantile(t, risk)[0])
        else:
            found = self.solve(released, self._box(risk), -1, self._cut)
        return replace(found, form=form, value=found.value - self.fixed_point)

    def _upper(self, form: Form, risk: float, released: Released, y: Floats | None) -> _End:
        if form == "box":
            return replace(self.solve(released, self._box(risk), 1, self._cut), form=form)
        t = self._tilted(y) if form == "tilt" else 0.0
        end = self.solve(released, t, 1, self._cut if form == "tilt" else None)
        more = self._quantile(self._tilted(y), risk)[0 if form == "tilt" else 1]
        return replace(end, form=form, value=end.value + more, meets_rows=False)

    def _fission(self, risk: float, released: Released, still: bool) -> _End:
        assert self.part is not None and isinstance(self.part.distribution, Gaussian)
        c, b, entries = released
        assert b is not None
        sigma, spread, m = self.part.distribution.scale, self.sides.spread, self.part.measurement
        draw = np.zeros(m.count) if still else self.part.distribution.sample((m.count,), self.coins or public_coins())
        moved = b.copy()
        moved[m.positions] += m.recover @ draw
        end = self.solve((c, moved, entries), 0.0, -1, None)
        if end.y is None or not math.isfinite(end.value):
            return _End(-math.inf)
        y = np.clip(end.y, 0.0, self.sides.price)
        across = float(y @ (spread @ draw))  # y'(h2 - h1) is minus twice that
        noise = math.sqrt(2) * sigma * float(np.linalg.norm(spread.T @ y))
        return _End(end.value + 2 * across + float(ndtri(risk)) * noise)

    def _box(self, risk: float) -> Floats | float:
        if self.part is None:
            return 0.0
        m = self.part.measurement
        out = np.zeros(self.model.affine.rows)
        out[m.positions] = _largest_noise(self.model, self.part, risk)
        return out[self.sides.row]

    def _tilted(self, y: Floats | None) -> Floats:
        """(K,) t >= 0: where a row of that multiplier would be put if its noise were its own."""
        price = np.where(np.isfinite(self.sides.price), self.sides.price, 1.0)
        share = np.full(price.size, _SHARE) if y is None else np.clip(y / price, 1e-3, 0.5)
        assert self.part is not None
        distribution = self.part.distribution
        sigma = np.sqrt(np.asarray(self.sides.spread.multiply(self.sides.spread).sum(axis=1))).ravel()
        if isinstance(distribution, Gaussian):
            return np.asarray(-ndtri(share) * sigma * distribution.scale)
        return np.asarray(-np.log(2 * share) * sigma * distribution.scale)  # type: ignore[union-attr]

    def _cut(self, h: Floats, way: float) -> Floats:
        """Sides within what is declared: no harder than the least, at an upper end; no easier than the most."""
        return np.maximum(h, self.sides.least) if way > 0 else np.minimum(h, self.sides.most)

    def _quantile(self, t: Floats, risk: float) -> tuple[float, float]:
        """The (1 - risk)-quantiles of ``sum p (S N - t)^+`` and of w'N, from above."""
        part = self.part
        assert part is not None
        live = self.sides.noised
        spread, price, t = self.sides.spread[live], self.sides.price[live], t[live]
        sizes = [np.asarray(spread.multiply(spread > 0).T @ price), np.asarray(-spread.multiply(spread < 0).T @ price)]
        weight = np.maximum(*sizes)
        key = "quantiles", risk, t.tobytes(), price.tobytes(), contents(spread), repr(part.distribution)
        return self.model.cached(key, lambda: _simulated(part, spread, price, t, weight, risk))

    # -------------------------------------------------------------- one program
    def solve(
        self, released: Released, shift: Floats | float, way: int, cut: Callable[[Floats, float], Floats] | None
    ) -> _End:
        """The optimum with sides made harder (``way`` 1) or easier (-1) by ``shift`` (K,), and c and A by their boxes;
        way 0: as they are."""
        model, sides, form = self.model, self.sides, self.model.form
        c, b, entries = released
        cost, half = self._costs(c, way)
        total_c, total_b, A, on_a, in_cones = self._coefficients(cost, b, entries, way)
        h = sides.sign * total_b[sides.row] - way * np.asarray(shift)
        if cut is not None:
            h = cut(h, way)
        direction, cones = interior_direction(model.affine), np.zeros(model.affine.rows)
        if not model.linear_where_private:
            curved = ~(model.affine.equalities() | model.affine.inequalities())
            noise = np.zeros(model.affine.rows)
            if self.part is not None:
                m = self.part.measurement
                noise[m.positions] = _largest_noise(model, self.part, self.beta)
            cones = np.where(curved, margin(model.affine, np.where(curved, noise + in_cones, 0.0)), 0.0)
        base = base_program(form)
        program = base.with_(c=total_c, b=total_b - way * cones * direction, A=A)
        return _elastic(model, self.options, program, sides, h, half, on_a, way, self.same_rows)

    def _costs(self, c: Floats | None, way: int) -> tuple[Floats | None, Floats]:
        """(n,) private costs and what they are off by: the middle and half the width of what noise and declared range
        leave."""
        none = np.zeros(self.model.affine.variables)
        part = self.design.parts.get("objective")
        if c is None or part is None or way == 0 or (way < 0 and self.fixed_point > 0):
            return c, none
        off = none.copy()
        risk = self.beta / 2 if self.fixed_point > 0 else self.beta
        off[part.measurement.positions] = _largest_noise(self.model, part, risk)
        return _within(c, off, *(end - self.model.form.c0 for end in cost_range(self.model)))

    def _coefficients(
        self, c: Floats | None, b: Floats | None, entries: Floats | None, way: int
    ) -> tuple[Floats, Floats, sp.csr_array, sp.csr_array, Floats]:
        """c, b and A, the weights (K x n) on |x| of the sides, and (m,) what A adds in cones."""
        model, part = self.model, self.design.parts.get("matrix")
        none = sp.csr_array((self.sides.row.size, model.affine.variables))
        in_cones = np.zeros(model.affine.rows)
        if entries is None or part is None or way == 0:
            return (*model.form.with_noise(c, b, entries), none, in_cones)
        reach = _largest_noise(model, part, self.beta)
        (rows, columns), linear = model.form.matrix_positions(), model.affine.equalities() | model.affine.inequalities()
        middle, half = _within(entries, reach, *declared_range(model, "matrix"))
        flat = linear[rows]
        entries = np.where(flat, middle, entries)
        if not flat.all():
            in_cones = box_reach(model, np.where(flat, 0.0, reach))
        shape = (model.affine.rows, model.affine.variables)
        weights = sp.csr_array((half[flat], (rows[flat], columns[flat])), shape=shape)
        return (*model.form.with_noise(c, b, entries), sp.csr_array(weights[self.sides.row]), in_cones)

    # -------------------------------------------------------------- prices above all multipliers
    def exact(self, released: Released) -> bool:
        """Whether no price is below what its row can cost: then a row is never missed at its price, and V is OPT.

        A multiplier y of hard rows has ``y'1 <= c'd`` for every direction d of the public set (no public row and no
        bound stops it) with ``G d <= -1``: a step along d makes all rows one easier for that cost, and weak duality
        bounds y'1 by it. So prices of at least ``min c'd`` exceed every multiplier, whatever b is. One program; private
        A and integers prove nothing here, and rows without a price none of their own.
        """
        model, sides = self.model, self.sides
        soft = np.isfinite(sides.price)
        if not soft.any():
            return True
        if model.form.matrix.nnz or has_integers(model) or not model.affine.is_linear():
            return False
        base = base_program(model.form)
        c, half = self._costs(released[0], 1)
        total_c = model.form.with_noise(c, None, None)[0]
        lower, upper = (
            np.where(np.isfinite(end), 0.0, side) for end, side in zip(model.public.box, (-np.inf, np.inf), strict=True)
        )
        if half.any():
            if not ((lower >= 0) | (upper <= 0) | (half == 0)).all():
                return False
            total_c = total_c + half * np.where(upper <= 0, -1.0, 1.0)
        base = base.with_(c=total_c, d=0.0, b=np.zeros(model.affine.rows), lower=lower, upper=upper)
        hard = replace(sides, price=np.full(sides.price.size, np.inf))
        none = sp.csr_array((sides.row.size, model.affine.variables))
        end = _elastic(model, self.options, base, hard, -np.ones(sides.row.size), np.zeros(lower.size), none, 1)
        return end.value <= float(sides.price[soft].min())


def _largest_noise(model: Program, part: NoisyPart, risk: float) -> Floats:
    """(h,) bounds on the noise of the part's entries that all hold but with probability ``risk``."""
    return part_of(model, part.measurement, part.distribution, part.share, risk, part.draws).reach


def _within(values: Floats, off: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The middle and half the width of ``values +- off`` cut to [low, high]."""
    near = np.clip(values, low, high)
    below, above = np.maximum(near - off, low), np.minimum(near + off, high)
    return (below + above) / 2, (above - below) / 2


def _elastic(
    model: Program, options: Options, program: ConeProgram, sides: _Sides, h: Floats, half: Floats,
    on_a: sp.csr_array, way: int, same_rows: SameRows | None = None,
) -> _End:  # fmt: skip
    """The optimum with ``sides`` at ``h`` (K,) in place of their rows: short at their prices, or hard.

    ``half`` (n,) and ``on_a`` (K x n) : weights of |x| in the cost and on the left of the sides, added (``way`` 1) or
    taken away (-1: by the chord). Columns: x, sizes of those whose sign is open, shortages.
    """
    (n, m, count), soft = (program.c.size, program.b.size, sides.row.size), np.flatnonzero(np.isfinite(sides.price))
    lower, upper = model.public.box
    used = (half > 0) | (np.bincount(on_a.indices, weights=on_a.data, minlength=n) > 0)
    slope = np.where(lower >= 0, 1.0, np.where(upper <= 0, -1.0, 0.0))
    open_ = np.flatnonzero(used & (slope == 0))
    constant = np.zeros(n)
    if way < 0 and open_.size:
        a, z = lower[open_], upper[open_]
        if not np.isfinite(z - a).all():
            return _End(-math.inf)
        slope[open_], constant[open_] = (z + a) / (z - a), -2 * a * z / (z - a)
        open_ = open_[:0]
    sign = 1.0 if way > 0 else -1.0
    c, h = program.c + sign * half * slope, h - sign * (on_a @ constant)
    A = sp.csr_array(program.A)
    G = sp.diags_array(sides.sign) @ A[sides.row] + sign * on_a @ sp.diags_array(slope)
    sizes, short = open_.size, soft.size
    slacks = sp.csr_array((-np.ones(short), (soft, np.arange(short))), shape=(count, short))
    unit = sp.csr_array((np.ones(sizes), (np.arange(sizes), open_)), shape=(sizes, n))
    minus = -sp.eye_array(sizes, format="csr")
    rows = sp.block_array(
        [
            [A, sp.csr_array((m, sizes)), sp.csr_array((m, short))],
            [G, on_a[:, open_], slacks],
            [unit, minus, sp.csr_array((sizes, short))],
            [-unit, minus, sp.csr_array((sizes, short))],
        ],
        format="csr",
    )
    more = count + 2 * sizes
    keep = program.keep.copy()
    keep[sides.row] = False
    block = ConeBlock("nonneg", m, more, (), (), -1, -1, "")
    wide = program.with_(
        c=np.concatenate([c, half[open_], sides.price[soft]]),
        d=program.d + sign * float(half @ constant),
        A=rows,
        b=np.concatenate([program.b, h, np.zeros(2 * sizes)]),
        cones=(*program.cones, block),
        band=np.concatenate([program.band, np.zeros(more)]),
        keep=np.concatenate([keep, np.ones(more, dtype=bool)]),
        lower=np.concatenate([program.lower, np.zeros(sizes + short)]),
        upper=np.concatenate([program.upper, np.full(sizes + short, np.inf)]),
    )
    found = solve_cone_program(wide, solver=options.solver, same_rows=same_rows)
    if found.x is None or found.value is None or (way <= 0 and found.status != "optimal"):
        return _End(math.inf if way > 0 else -math.inf)
    room = (_GAP if has_integers(model) else _TOLERANCE) * (1 + abs(found.value))
    missed = float(found.x[n + sizes :].max(initial=0.0))
    y = None if found.dual is None else found.dual[m : m + count]
    return _End(found.value + way * room, y=y, meets_rows=missed <= _TOLERANCE)


# ------------------------------------------------------------------ quantiles
def _simulated(
    part: NoisyPart, spread: sp.csr_array, price: Floats, t: Floats, weight: Floats, risk: float
) -> tuple[float, float]:
    """``_Bounds._quantile``: order statistics, the k-th of M with ``P(k of M below the quantile) <= _UNLUCKY``."""
    distribution, size = part.distribution, weight.size
    assert isinstance(distribution, Laplace | Gaussian)
    sums = max(min(_SUMS, _DRAWN // max(size, 1)), math.ceil(40 / risk))
    if sums > 50 * _SUMS or risk <= 10 * _UNLUCKY:
        return math.inf, math.inf
    generator, step = public_generator(0), max(min(sums, 2_000_000 // max(size, 1)), 1)
    found: list[Floats] = []
    while step * len(found) < sums:
        block = distribution.sample((step, size), generator)
        found.append(np.column_stack([price @ np.maximum(spread @ block.T - t[:, None], 0.0), block @ weight]))
    drawn = np.sort(np.concatenate(found), axis=0)
    places = np.arange(1, len(drawn) + 1)
    enough = betainc(places, len(drawn) + 1 - places, 1 - risk + _UNLUCKY) <= _UNLUCKY
    if not enough.any():
        return math.inf, math.inf
    tilt, dual = drawn[int(np.argmax(enough))]
    if isinstance(distribution, Gaussian):
        dual = -float(ndtri(risk)) * distribution.scale * float(np.linalg.norm(weight))
    return float(tilt), float(dual)


def _fixed_point(model: Program, design: NoiseDesign, risk: float, soft: bool) -> float:
    """q of the fixed point: public; 0 where c is not noised, or the box is narrower. ``soft`` : whether private rows
    have prices, so that they bound no x."""
    part = design.parts.get("objective")
    if part is None or part.draws or not isinstance(part.distribution, Laplace | Gaussian):
        return 0.0
    m = part.measurement
    if not (m.one_each and m.used == m.recover.nnz):
        return 0.0
    gain: Floats = np.zeros(model.affine.variables)
    gain[m.positions] = m.gain(1)
    largest = float((gain * np.where(gain > 0, model.public.magnitudes(), 0.0)).max())
    if not 0 < largest < math.inf:
        return 0.0
    norm = float((gain * model.public.magnitudes())[gain > 0].sum()) if soft else model.public.weighted_norm(gain)
    draws = norm / largest
    if isinstance(part.distribution, Gaussian):
        found = -float(ndtri(risk)) * part.distribution.scale * largest * math.sqrt(draws)
    else:
        rate = np.linspace(0.0, 1.0, 400)[1:-1]
        chernoff = (math.log(1 / risk) - draws * np.log1p(-(rate**2))) / rate
        found = largest * part.distribution.scale * float(chernoff.min())
    return found if found < float(part.reach.max()) / float(m.gain(1).max()) * norm else 0.0
