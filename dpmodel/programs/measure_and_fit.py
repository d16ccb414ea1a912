"""Measure the private right-hand sides of equalities once, then fit x by weighted least squares over the public set."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers, PrivateArray
from dpmodel.compile.public_set import base_program
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
from dpmodel.forecast import Forecast, Violation
from dpmodel.memo import cached
from dpmodel.numerics.nearest_point import DiagonalQP, solve_diagonal_qp
from dpmodel.privacy import Gaussian, NoiseSource
from dpmodel.programs.answer import measured_numbers
from dpmodel.programs.model import Program, refuse_high
from dpmodel.programs.noise_design import (
    Kind,
    Measurement,
    NoiseDesign,
    NoisyPart,
    design_noise,
    distribution_of,
    measurements,
    scaled,
)
from dpmodel.programs.noise_once import against_ignorance, released_numbers
from dpmodel.programs.public import declared_range, largest_violation
from dpmodel.text import number

# The fit stops at residuals of this share of the least noise; public rows are then met to the finer one.
_PRECISION = 3e-3


@dataclass(frozen=True)
class MeasureAndFit(Mechanism[Program]):
    """Feasibility problems with equalities ``A_i x = b_i``, b private: measure b, then find the x that fits it best.

    Source
        The matrix mechanism's two steps (Li, Hay, Rastogi, Miklau and McGregor 2010) with the non-negative least
        squares of later work on query release; HRRU14, section 4.2, for the problem.
    Privacy
        The only reading of private values is ``S b``, released once with Laplace noise of scale D_1 / epsilon or
        Gaussian noise of standard deviation D_2 / mu, mu the largest for which the Gaussian mechanism is (epsilon,
        delta)-DP (Balle and Wang 2018). D_1 and D_2 are the largest 1-norm and 2-norm sensitivity of S b by one record,
        from the affine map and the declared bounds (``footprint.sensitivity_of``), rounding allowance included. S is
        public: the distinct private numbers, scaled either to equal change or so that equal noise on them is equal
        noise on the rows as they were written; the better by forecast is taken. So a row that the model multiplies by w
        gets noise 1/w times as large. The fit reads released and public numbers only.
    Utility (with probability at least 1 - beta)
        All noise lies within ``reach``, and then the truth lies in the band ``|A_i x - b~_i| <= reach_i``. The fit is
        the least-squares point (rows weighted by 1 / variance) of the public set; if it leaves the band, the
        least-squares point inside the band is taken. So every private row is missed by at most
        ``|A_i x - b~_i| + |b~_i - b_i| <= 2 reach_i``. Non-negativity and the sums that rows share make the error
        far smaller as a rule; that part is not proved. When no point inside the band is found (probability at most
        beta if the true program is feasible, or a solve that stopped early) the outcome says by how much it was left.
    Cost
        One noise draw per distinct number; some hundred products with A, twice when the band binds.
    """

    serves: ClassVar[Serves] = Serves(Program, ("scalar low",))
    name: str = "measure-and-fit"
    source: str = "matrix mechanism, Li et al. 2010; least squares over the public set"
    # Which distribution is drawn where delta > 0 allows two: that of the least reach, or of the least mean standard
    # deviation.
    loss: Literal["max", "mean"] = "max"

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        noised = measured(model, options, self.loss)
        progress(f"noise on {noised.measurement.count} numbers", 0.0)
        numbers = {"scalar": released_numbers(noised, PrivateArray(model.read_private()), noise)}
        b = model.form.b0.copy()
        b[noised.measurement.positions] += noised.measurement.rebuild(numbers["scalar"], clip=noised.clip)
        progress("fitting", 0.3)
        delta = options.delta if isinstance(noised.distribution, Gaussian) else 0.0
        design = NoiseDesign({"scalar": noised}, options.epsilon, delta)
        return replace(_fit(model, noised, b), measured=measured_numbers(model, design, numbers))

    def eligible(self, model: Program, options: Options) -> Verdict:
        if model.private_parts() != ("scalar",):
            return Verdict(False, "serves problems whose right-hand sides alone are private")
        high = refuse_high(model)
        if high is not None:
            return high
        affine = model.affine
        if not affine.is_linear() or affine.boolean.size or affine.integer.size:
            return Verdict(False, "serves linear constraints in continuous variables")
        if not model.affine.equalities()[model.form.private_rows].all():
            return Verdict(False, "serves equalities: a private inequality is not measured by a fit")
        if model.form.c0.any():
            return Verdict(False, "there is an objective to optimise: a fit would ignore it")
        return refuse_feasibility(options, "centred", "relaxed") or YES

    def forecast(self, model: Program, options: Options) -> Forecast:
        noised = measured(model, options, self.loss)
        distribution = noised.distribution
        split = model.split_rows > 0
        what = "no row of the standard form" if split else "no private constraint"
        caveats = []
        if noised.measurement.furthest > noised.measurement.limit:
            caveats.append(f"for private numbers up to {number(noised.measurement.limit)} in size; beyond, clamped")
        count = noised.measurement.count
        alpha = min(2 * float(noised.reach.max(initial=0.0)), largest_violation(model))
        delta = options.delta if isinstance(distribution, Gaussian) else 0.0
        return Forecast(
            statement=f"with probability {number(1 - options.beta)}, {what} is violated by more than "
            f"{number(alpha)}; least squares over the public constraints usually does far better",
            epsilon=options.epsilon,
            delta=delta,
            event=NoiseDesign({"scalar": noised}, options.epsilon, delta).event,
            beta=options.beta,
            proved=not split,
            work=f"{count} noise draw{'' if count == 1 else 's'}, one or two fits",
            noise={"scalar": noised.to_dict()},
            caveats=tuple(caveats),
            error=Violation(
                violation=alpha,
                expected=float(noised.mean_size.mean()),
                against_public=against_ignorance(noised.sigma, np.subtract(*declared_range(model, "scalar")[::-1])),
            ),
        )


# ------------------------------------------------------------------ the noise
@cached
def measured(model: Program, options: Options, loss: Literal["max", "mean"] = "max") -> NoisyPart:
    """The noise to draw, from public facts only: of each distribution the scaling with the least largest reach, and of
    these the distribution with the least largest reach or the least mean standard deviation. Pure noise is always among
    them."""
    kinds: tuple[Kind, ...] = ("gaussian", "laplace") if options.delta > 0 else ("laplace",)
    candidates = [min(_scalings(model, options, kind), key=_largest) for kind in kinds]
    return min(candidates, key=_largest if loss == "max" else lambda option: float(option.sigma.mean()))


def _largest(option: NoisyPart) -> float:
    return float(option.reach.max(initial=0.0))


def _scalings(model: Program, options: Options, kind: Kind) -> tuple[NoisyPart, ...]:
    """Numbers scaled to equal change, and numbers in the units of the rows."""
    order = 2 if kind == "gaussian" else 1
    equal = replace(design_noise(model, options, {"scalar": kind}).parts["scalar"], clip=False)
    own = in_row_units(model, measurements(model, "scalar")[0])
    distribution = distribution_of(own, kind, 1.0, options) if own is not None else None
    if own is None or distribution is None:
        return (equal,)
    # One draw reaches each row, so the distinct draws count.
    reach = own.gain(order) * distribution.max_abs_quantile(own.count, options.beta)
    return equal, NoisyPart(own, distribution, 1.0, options.beta, reach, clip=False)


def in_row_units(model: Program, m: Measurement) -> Measurement | None:
    """The same numbers, each scaled so that noise of size one on it is of size one in the row that it reaches most.

    None where a row combines several numbers.
    """
    if m.recover.nnz != m.recover.shape[0]:
        return None
    gain = np.zeros(m.count)
    np.maximum.at(gain, m.recover.indices, np.abs(m.recover.data))
    factor = np.where(gain > 0, gain, 1.0)
    return scaled(model, m.part, f"{m.strategy}, in row units", m.queries, m.recover, m.positions, factor)


# ------------------------------------------------------------------ the fit: released and public numbers only
def _fit(model: Program, noised: NoisyPart, b: Floats) -> Outcome:
    """Least squares over the public set, inside the band if the plain one leaves it. ``b`` : (m,) released."""
    started = time.perf_counter()
    n = model.affine.variables
    setup = _Setup(model, noised, b)
    z, ended = setup.solve(band=False, start=None)
    if setup.excess(z) > setup.tolerance:
        inside, inside_ended = setup.solve(band=True, start=z)
        if inside_ended or setup.excess(inside) < setup.excess(z):
            z, ended = inside, inside_ended
    x = np.clip(z[:n], setup.lower, setup.upper)
    excess = setup.excess(z)
    dual = np.zeros(model.affine.rows)
    dual[setup.rows] = setup.precision * (b[setup.rows] - setup.W @ x)
    notes: tuple[str, ...] = ()
    if not ended:
        notes += ("the fit stopped at its step limit: public constraints hold approximately",)
    if excess > setup.tolerance:
        notes += ("some released numbers are further from the fit than the noise is expected to reach",)
    return Outcome(
        status="optimal" if ended else "optimal_inaccurate",
        x=x,
        dual=dual,
        value=model.form.d0,
        seconds=time.perf_counter() - started,
        extra_violation=excess if excess > setup.tolerance else 0.0,
        notes=notes,
    )


class _Setup:
    """The fit as a diagonal program: columns are x, the residuals of rows with several entries, and slacks.

    A private row with a single entry is a weight and a target on that entry of x; others get a column
    ``r = A_i x - b~_i``. ``precision`` (h,) : 1 / variance, relative to the largest.
    """

    def __init__(self, model: Program, noised: NoisyPart, b: Floats) -> None:
        base = base_program(model.form)
        self.n = model.affine.variables
        self.lower, self.upper = base.lower, base.upper
        self.rows: Integers = noised.measurement.positions
        self.W = sp.csr_array(model.form.A0[self.rows])
        self.b, self.reach = b[self.rows], noised.reach
        least = float(noised.sigma[noised.sigma > 0].min(initial=math.inf))
        self.scale = least if math.isfinite(least) else 1.0
        # Rows that no record moves are known exactly; a weight far above the others keeps them all but exact.
        self.precision = (self.scale / np.where(noised.sigma > 0, noised.sigma, 1e-3 * self.scale)) ** 2
        self.tolerance = 2 * _PRECISION * self.scale
        self.single = np.diff(self.W.indptr) == 1
        public = base.keep & ~model.form.private_rows
        equal = model.affine.equalities()
        self.equal, self.unequal = np.flatnonzero(public & equal), np.flatnonzero(public & ~equal)
        self.A, self.right = model.form.A0, base.b

    def excess(self, z: Floats) -> float:
        """How far the fit leaves the band at most."""
        return max(0.0, float((np.abs(self.W @ z[: self.n] - self.b) - self.reach).max(initial=0.0)))

    def solve(self, *, band: bool, start: Floats | None) -> tuple[Floats, bool]:
        several = np.flatnonzero(~self.single)
        h, k, n = several.size, self.unequal.size, self.n
        weight, target = np.zeros(n), np.zeros(n)
        lower, upper = self.lower.copy(), self.upper.copy()
        one = np.flatnonzero(self.single)
        if one.size:
            column = self.W.indices[self.W.indptr[one]]
            derivative = self.W.data[self.W.indptr[one]]
            np.add.at(weight, column, self.precision[one] * derivative**2)
            np.add.at(target, column, self.precision[one] * derivative * self.b[one])
            target[weight > 0] /= weight[weight > 0]
            if band:
                half = self.reach[one] / np.abs(derivative)
                np.maximum.at(lower, column, self.b[one] / derivative - half)
                np.minimum.at(upper, column, self.b[one] / derivative + half)
                crossed = lower > upper  # no point inside: the band gives way to the bounds
                lower[crossed], upper[crossed] = self.lower[crossed], self.upper[crossed]
        wide = self.reach[several] if band else np.full(h, np.inf)
        none = sp.csr_array((self.equal.size, h)), sp.csr_array((self.equal.size, k))
        blocks = [
            [self.W[several], -sp.eye_array(h), None],
            [self.A[self.equal], *none],
            [self.A[self.unequal], None, sp.eye_array(k)],
        ]
        program = DiagonalQP(
            A=sp.csr_array(sp.block_array(blocks, format="csr")),
            b=np.concatenate([self.b[several], self.right[self.equal], self.right[self.unequal]]),
            weight=np.concatenate([weight, self.precision[several], np.zeros(k)]),
            target=np.concatenate([target, np.zeros(h), np.zeros(k)]),
            lower=np.concatenate([lower, -wide, np.zeros(k)]),
            upper=np.concatenate([upper, wide, np.full(k, np.inf)]),
        )
        start = np.zeros(n + h + k) if start is None else start
        return solve_diagonal_qp(program, start=start, tolerance=_PRECISION * self.scale)


MEASURE_AND_FIT = MeasureAndFit()
