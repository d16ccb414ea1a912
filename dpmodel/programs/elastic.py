"""Programs with the private rows put elsewhere, short at their prices or hard, and c and A at an end of their boxes:
what bounds on the true optimum and on its point are found by (``optimum.py``, ``variables.py``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Options
from dpmodel.numerics.array_program import ConeBlock
from dpmodel.numerics.cone_program import ConeProgram, solve_cone_program
from dpmodel.numerics.solvers import SameRows
from dpmodel.programs.feasibility import has_integers
from dpmodel.programs.margins import interior_direction, margin
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart, box_reach, part_of
from dpmodel.programs.public import cost_range, declared_range
from dpmodel.requests import Prices

Released = tuple[Floats | None, Floats | None, Floats | None]

# Optima are widened by what solvers stop short of: HiGHS leaves a gap of 1e-4 between integers.
TOLERANCE, _GAP = 1e-6, 1e-4


@dataclass(frozen=True)
class Sides:
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
    def of(model: Program, part: NoisyPart | None, prices: Prices | None) -> Sides:
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
        return Sides(row, sign, price, spread, least, most)

    @property
    def noised(self) -> Any:
        """(K,) whether noise moves it."""
        return np.diff(self.spread.indptr) > 0


@dataclass(frozen=True)
class End:
    """One end: ``value``, and ``meets_rows`` : whether its point is short in no row."""

    value: float
    form: str = "box"
    y: Floats | None = None
    meets_rows: bool = False


@dataclass(frozen=True)
class Elastic:
    """All that is public about these programs. ``part`` : the noise on b, if any; ``beta`` : its risk, and that of the
    others. ``fixed_point`` : above 0, costs are bounded in that way from below, with half of the risk."""

    model: Program
    design: NoiseDesign
    options: Options
    sides: Sides
    part: NoisyPart | None
    beta: float
    fixed_point: float = 0.0
    same_rows: SameRows = field(default_factory=SameRows)

    @classmethod
    def of(cls, model: Program, design: NoiseDesign, options: Options, prices: Prices | None) -> Self:
        part = design.parts.get("scalar")
        part = None if part is None or part.distribution is None else part
        beta = min((each.beta for each in design.parts.values()), default=options.beta)
        return cls(model, design, options, Sides.of(model, part, prices), part, beta)

    def box(self, risk: float) -> Floats | float:
        if self.part is None:
            return 0.0
        m = self.part.measurement
        out = np.zeros(self.model.affine.rows)
        out[m.positions] = largest_noise(self.model, self.part, risk)
        return out[self.sides.row]

    def cut(self, h: Floats, way: float) -> Floats:
        """Sides within what is declared: no harder than the least, at an upper end; no easier than the most."""
        return np.maximum(h, self.sides.least) if way > 0 else np.minimum(h, self.sides.most)

    def solve(
        self, released: Released, shift: Floats | float, way: int, cut: Callable[[Floats, float], Floats] | None
    ) -> End:
        """The optimum of what is ``written``."""
        return solved(
            self.model, self.options, self.written(released, shift, way, cut), self.sides, way, self.same_rows
        )

    def written(
        self, released: Released, shift: Floats | float, way: int, cut: Callable[[Floats, float], Floats] | None
    ) -> ConeProgram | None:
        """The program with sides made harder (``way`` 1) or easier (-1) by ``shift`` (K,), and c and A by their boxes;
        way 0: as they are. None where nothing bounds it."""
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
                noise[m.positions] = largest_noise(model, self.part, self.beta)
            cones = np.where(curved, margin(model.affine, np.where(curved, noise + in_cones, 0.0)), 0.0)
        base = base_program(form)
        program = base.with_(c=total_c, b=total_b - way * cones * direction, A=A)
        return widened(model, program, sides, h, half, on_a, way)

    def _costs(self, c: Floats | None, way: int) -> tuple[Floats | None, Floats]:
        """(n,) private costs and what they are off by: the middle and half the width of what noise and declared range
        leave."""
        none = np.zeros(self.model.affine.variables)
        part = self.design.parts.get("objective")
        if c is None or part is None or way == 0 or (way < 0 and self.fixed_point > 0):
            return c, none
        off = none.copy()
        risk = self.beta / 2 if self.fixed_point > 0 else self.beta
        off[part.measurement.positions] = largest_noise(self.model, part, risk)
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
        reach = largest_noise(model, part, self.beta)
        (rows, columns), linear = model.form.matrix_positions(), model.affine.equalities() | model.affine.inequalities()
        middle, half = _within(entries, reach, *declared_range(model, "matrix"))
        flat = linear[rows]
        entries = np.where(flat, middle, entries)
        if not flat.all():
            in_cones = box_reach(model, np.where(flat, 0.0, reach))
        shape = (model.affine.rows, model.affine.variables)
        weights = sp.csr_array((half[flat], (rows[flat], columns[flat])), shape=shape)
        return (*model.form.with_noise(c, b, entries), sp.csr_array(weights[self.sides.row]), in_cones)


def largest_noise(model: Program, part: NoisyPart, risk: float) -> Floats:
    """(h,) bounds on the noise of the part's entries that all hold but with probability ``risk``."""
    return part_of(model, part.measurement, part.distribution, part.share, risk, part.draws).reach


def _within(values: Floats, off: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The middle and half the width of ``values +- off`` cut to [low, high]."""
    near = np.clip(values, low, high)
    below, above = np.maximum(near - off, low), np.minimum(near + off, high)
    return (below + above) / 2, (above - below) / 2


def widened(
    model: Program, program: ConeProgram, sides: Sides, h: Floats, half: Floats, on_a: sp.csr_array, way: int
) -> ConeProgram | None:
    """``program`` with ``sides`` at ``h`` (K,) in place of their rows: short at their prices, or hard.

    ``half`` (n,) and ``on_a`` (K x n) : weights of |x| in the cost and on the left of the sides, added (``way`` 1) or
    taken away (-1: by the chord; None where bounds for it are missing). Columns: x, sizes of those whose sign is open,
    shortages. Rows: those of ``program``, sides, sizes.
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
            return None
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
    return program.with_(
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


def solved(
    model: Program,
    options: Options,
    wide: ConeProgram | None,
    sides: Sides,
    way: int,
    same_rows: SameRows | None = None,
) -> End:
    """The optimum of what ``widened`` wrote, beyond what solvers stop short of."""
    found = None if wide is None else solve_cone_program(wide, solver=options.solver, same_rows=same_rows)
    if found is None:
        return End(-math.inf)
    if found.x is None or found.value is None or (way <= 0 and found.status != "optimal"):
        return End(math.inf if way > 0 else -math.inf)
    room = (_GAP if has_integers(model) else TOLERANCE) * (1 + abs(found.value))
    short, m = int(np.isfinite(sides.price).sum()), model.affine.rows
    missed = float(found.x[found.x.size - short :].max(initial=0.0))
    y = None if found.dual is None else found.dual[m : m + sides.row.size]
    return End(found.value + way * room, y=y, meets_rows=missed <= TOLERANCE)
