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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import scipy.sparse as sp
from scipy.special import betainc, ndtri

from dpmodel._types import Floats
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options
from dpmodel.privacy import Gaussian, Laplace, PublicGenerator, public_coins, public_generator
from dpmodel.programs.elastic import Elastic, End, Released, Sides, solved, widened
from dpmodel.programs.feasibility import has_integers
from dpmodel.programs.margins import contents
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart
from dpmodel.release import Interval
from dpmodel.requests import Prices
from dpmodel.text import interval_ends, number

Form = Literal["box", "tilt", "fixed dual", "fission"]

# Chance with which a simulated quantile may be too small; sums simulated at most, and numbers drawn for them.
_UNLUCKY, _SUMS, _DRAWN = 1e-9, 20_000, 20_000_000
# The share of a price that a multiplier is taken for where no public level tells: rows are short with that chance.
_SHARE = 0.1


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

    ``c, b, entries`` : (n,), (m,) and the private entries of A, rebuilt from the numbers as released, not moved into
        their public ranges (``noise_once.rebuilt`` with ``raw``); None: public. ``prices`` : None leaves every row
        hard.
    ``level`` : public guesses of the same, by which forms are chosen. ``coins`` : for fission, independent of all
        noise; None: from a seed of the system's. ``box_only`` : for prices that were chosen after the noise.
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
    sides = Sides.of(model, None, prices)
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


# Form of an end -> its risk. "box" stands in both mappings with the same one.
Plan = tuple[Mapping[Form, float], Mapping[Form, float]]


@dataclass(frozen=True)
class _Bounds(Elastic):
    """All that is public about the interval. ``coins`` : for fission."""

    coins: PublicGenerator | None = None

    @classmethod
    def of(
        cls,
        model: Program,
        design: NoiseDesign,
        options: Options,
        prices: Prices | None,
        coins: PublicGenerator | None = None,
    ) -> Self:
        made = super().of(model, design, options, prices)
        soft = bool(np.isfinite(made.sides.price).any())
        return replace(made, coins=coins, fixed_point=_fixed_point(model, design, made.beta / 2, soft))

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

    def ends(self, plan: Plan, released: Released, y: Floats | None = None, still: bool = False) -> tuple[End, End]:
        """The best ends of ``plan``. ``still`` : a forecast, in which fission draws nothing."""
        below, above = plan
        low = max((self._lower(form, risk, released, y, still) for form, risk in below.items()), key=lambda e: e.value)
        high = min((self._upper(form, risk, released, y) for form, risk in above.items()), key=lambda e: e.value)
        return low, high

    # -------------------------------------------------------------- the ends
    def _lower(self, form: Form, risk: float, released: Released, y: Floats | None, still: bool = False) -> End:
        if form == "fission":
            found = self._fission(risk, released, still)
        elif form == "tilt":
            t = self._tilted(y)
            end = self.solve(released, t, -1, self.cut)
            found = replace(end, value=end.value - self._quantile(t, risk)[0])
        else:
            found = self.solve(released, self.box(risk), -1, self.cut)
        return replace(found, form=form, value=found.value - self.fixed_point)

    def _upper(self, form: Form, risk: float, released: Released, y: Floats | None) -> End:
        if form == "box":
            return replace(self.solve(released, self.box(risk), 1, self.cut), form=form)
        t = self._tilted(y) if form == "tilt" else 0.0
        end = self.solve(released, t, 1, self.cut if form == "tilt" else None)
        more = self._quantile(self._tilted(y), risk)[0 if form == "tilt" else 1]
        return replace(end, form=form, value=end.value + more, meets_rows=False)

    def _fission(self, risk: float, released: Released, still: bool) -> End:
        assert self.part is not None and isinstance(self.part.distribution, Gaussian)
        c, b, entries = released
        assert b is not None
        sigma, spread, m = self.part.distribution.scale, self.sides.spread, self.part.measurement
        draw = np.zeros(m.count) if still else self.part.distribution.sample((m.count,), self.coins or public_coins())
        moved = b.copy()
        moved[m.positions] += m.recover @ draw
        end = self.solve((c, moved, entries), 0.0, -1, None)
        if end.y is None or not math.isfinite(end.value):
            return End(-math.inf)
        y = np.clip(end.y, 0.0, self.sides.price)
        across = float(y @ (spread @ draw))  # y'(h2 - h1) is minus twice that
        noise = math.sqrt(2) * sigma * float(np.linalg.norm(spread.T @ y))
        return End(end.value + 2 * across + float(ndtri(risk)) * noise)

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
        wide = widened(model, base, hard, -np.ones(sides.row.size), np.zeros(lower.size), none, 1)
        end = solved(model, self.options, wide, hard, 1)
        return end.value <= float(sides.price[soft].min())


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
    place = order_place(len(drawn), risk)
    if place is None:
        return math.inf, math.inf
    tilt, dual = drawn[place]
    if isinstance(distribution, Gaussian):
        dual = -float(ndtri(risk)) * distribution.scale * float(np.linalg.norm(weight))
    return float(tilt), float(dual)


def order_place(count: int, risk: float) -> int | None:
    """Which of ``count`` sorted draws is below the (1 - risk)-quantile with probability 1e-9 at most; None: none."""
    places = np.arange(1, count + 1)
    enough = betainc(places, count + 1 - places, 1 - risk + _UNLUCKY) <= _UNLUCKY
    return int(np.argmax(enough)) if enough.any() else None


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
