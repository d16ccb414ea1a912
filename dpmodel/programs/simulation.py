"""How well a mechanism does on synthetic databases, and plans that no statement settles: what leaves rows out is tried.

Public facts only: private numbers are drawn inside their declared ranges and magnitudes, as many units as there are,
and mechanisms run on them in place of the private ones. A prediction by which plans choose, no statement.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.affine_map import ThetaBlock
from dpmodel.compile.form import entry_ends
from dpmodel.compile.public_set import base_program
from dpmodel.contract import Candidate, Options
from dpmodel.errors import NotPrivateWarning, SpecificationError
from dpmodel.forecast import Forecast, Violation
from dpmodel.marks.values import scale_units
from dpmodel.memo import cached
from dpmodel.numerics.cone_program import solve_cone_program
from dpmodel.privacy import PublicGenerator, SeededSource, public_generator
from dpmodel.programs.fewer_records import as_noisy, fewer_records
from dpmodel.programs.model import Program, RecordsProgram
from dpmodel.programs.public import objective_span, private_objective
from dpmodel.programs.public_only import PUBLIC_ONLY
from dpmodel.programs.rows import private_rows, public_polyhedron
from dpmodel.simulate import runs_on
from dpmodel.text import number

# Databases drawn for settings, and the spread of the logarithm of how popular columns are in them: ballots of public
# votes have at least that (chosen on four elections, tests/benchmarks/programs/set_cover.py).
DATABASES, _SPREAD = 3, 2.0
# A row is short that is violated by this share of the width.
_SHORT = 0.1
# Databases on which those that leave rows out are compared: with fewer, luck chooses. Private rows that they have
# together, if not in one.
_COMPARED, _MANY = 16, 12_000


@dataclass(frozen=True)
class SyntheticLP(Program):
    """The same problem with synthetic private values ``theta`` (P,), or one of fewer records; public facts are shared.
    ``of_all`` : numbers that a product with all rows reads, by which runs are planned."""

    theta: Floats = field(default_factory=lambda: np.zeros(0))
    of_all: int = 0

    @property
    def entries(self) -> int:
        return self.of_all

    def read_private(self) -> PrivateArray:
        return PrivateArray(self.theta)

    def errors(self, outcome: Any) -> Mapping[str, float]:
        """Columns of ``Violation``: what the objective loses against the drawn program's optimum (nan where it has
        none), and the largest violation of a private row; both nan without a point."""
        x, form = outcome.x, self.form
        if x is None:
            return {"objective within": math.nan, "violation within": math.nan}
        of_matrix = form.matrix.compact().apply(self.theta) if form.matrix.nnz else None
        c, b, A = form.with_noise(form.objective.apply(self.theta), form.scalar.apply(self.theta), of_matrix)
        best = solve_cone_program(base_program(form).with_(c=c, b=b, A=A), solver=self.public.solver)
        beyond = A @ x - b
        missed = np.where(self.affine.equalities(), np.abs(beyond), np.maximum(beyond, 0.0))[form.private_rows]
        lost = float(c @ x - c @ best.x) if best.x is not None and best.solved else math.nan
        return {"objective within": lost, "violation within": float(missed.max(initial=0.0))}


def against_public(
    mechanism: Any, model: Program, options: Options, count: int = DATABASES, enough: float = math.inf
) -> float:
    """The error of ``mechanism`` on ``count`` synthetic databases, in units of that of the best point that reads no
    data (of the largest error there can be, where no such point is eligible). Databases of large problems have fewer
    records. ``enough`` : once the error is seen to be larger, it is left at that."""
    return tried_on_databases(mechanism, model, options, count, enough)[0]


def tried_on_databases(
    mechanism: Any, model: Program, options: Options, count: int, enough: float
) -> tuple[float, float]:
    """``against_public``, and the mean share of the rows that are short. Computed once per request."""

    def build() -> tuple[float, float]:
        public = PUBLIC_ONLY.eligible(model, options).eligible
        few = fewer_records(model)
        drawn, asked = (model, options) if few is None else (few, as_noisy(options, few.share))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            without = PUBLIC_ONLY.run(model, options, SeededSource(0)).x if public else None
        drawings = databases(drawn, count)
        other = sum(error(drawn, theta, without) if public else 1.0 for theta in drawings)
        form, classification = drawn.form, model.classification
        made = (
            SyntheticLP(form, classification, model.public, theta, model.entries, _memo=drawn._memo)
            for theta in drawings
        )
        own, short = 0.0, []
        for (_, outcome), theta in zip(runs_on(mechanism, made, asked), drawings, strict=True):
            own += error(drawn, theta, outcome.x)
            short.append(share_short(drawn, theta, outcome.x))
            if own > enough * other:
                break
        return (own / other if other > 0 else math.inf if own > 0 else 1.0), float(np.mean(short))

    vertices = None if options.vertices is None else options.vertices.tobytes()
    requested = repr(replace(options, vertices=None))
    return model.cached(("against public", repr(mechanism), requested, vertices, count, enough), build)


def databases_that_tell(model: Program) -> int:
    """How many are worth drawing: of many records, one tells."""
    rows = private_rows(model).count
    return min(_COMPARED, max(_MANY // max(rows, 1), 1)) if fewer_records(model) is None else 1


@cached
def databases(model: Program, count: int) -> list[PrivateArray]:
    """(P,) private numbers of each database; the first are the same ones, however many are asked for."""
    return drawn_databases(model, count)


def drawn_databases(model: Program, count: int) -> list[PrivateArray]:
    """(P,) private numbers of each of ``count`` databases."""
    rng, out = public_generator(0), []
    for _ in range(count):
        theta = np.zeros(model.affine.theta_size)
        for block in model.affine.private_blocks:
            theta[block.columns] = _draw(block, rng)
        out.append(PrivateArray(theta))
    return out


def error(model: Program, theta: PrivateArray, x: Floats | None) -> float:
    """``share_short``, plus the loss (against the cheapest public point) as a share of its span."""
    if x is None:
        return 1.0
    missed, span = share_short(model, theta, x), objective_span(model)
    if not (private_objective(model) or model.form.c0.any()) or not 0 < span < math.inf:
        return missed
    c = model.form.c0 + model.form.objective.apply(theta)
    return missed + max(float(c @ x) + public_polyhedron(model).support(-c), 0.0) / span


def share_short(model: Program, theta: PrivateArray, x: Floats | None) -> float:
    """The share of the private rows that are violated by a tenth of the width and more; less counts in proportion.

    The mean of all violations ranks answers otherwise: it likes many rows met halfway.
    """
    if x is None:
        return 1.0
    rows = private_rows(model)
    G, h = rows.values(theta)
    width = rows.residual_range(public_polyhedron(model))[1]
    return float(np.clip((G @ x - h) / (_SHORT * width), 0.0, 1.0).mean()) if width > 0 else 0.0


def _draw(block: ThetaBlock, rng: PublicGenerator) -> Floats:
    """(size,) entries of one private parameter.

    A unit of one entry is uniform in its range. Of larger units a random number of entries is at an end of its range
    and the rest at zero, as in ballots, baskets and incidence; some columns are more popular than others.
    """
    layout, limits = block.parameter.layout, block.parameter.magnitude
    low, high = (np.array(np.broadcast_to(end, block.size), dtype=np.float64) for end in block.parameter.entry_range)
    low, high = np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)
    units = layout.units
    sizes = np.bincount(units, minlength=layout.unit_count)
    if sizes.max(initial=0) <= 1:
        return rng.uniform(low, high)
    place = {"row": layout.columns, "column": layout.rows}.get(layout.unit, np.arange(block.size))
    popular = _SPREAD * rng.standard_normal(int(place.max()) + 1)
    score = np.empty(block.size)  # in whole numbers, which stand beside those of units in one key: quicker than lexsort
    score[np.argsort(popular[place] + rng.gumbel(size=block.size))] = np.arange(block.size)
    order = np.argsort(units * float(block.size) + score)[::-1]
    rank = np.empty(block.size, dtype=np.int64)
    rank[order] = np.arange(block.size) - np.repeat((np.cumsum(sizes[::-1]) - sizes[::-1]), sizes[::-1])
    reach = max(float(np.maximum(np.abs(low), np.abs(high)).max()), 1e-300)
    most = min(limits["max_l1"] / reach, (limits["max_l2"] / reach) ** 2, float(sizes.max()))
    taken = rng.integers(1, max(math.floor(most + 1e-9), 1) + 1, size=sizes.size)
    up, down = np.maximum(high, 0.0), np.maximum(-low, 0.0)
    share = np.divide(up, up + down, out=np.full(block.size, 0.5), where=up + down > 0)
    end = np.where(rng.uniform(size=block.size) < share, high, low)
    values = np.where(rank < taken[units], end, np.clip(0.0, low, high))
    scale_units(values, layout, limits)
    return values


def synthetic(model: Program, seed: int) -> SyntheticLP:
    """``model`` over private numbers drawn inside their declared ranges.
    Errors: SpecificationError, for cones, rows that are not in one array, and where a private number has no declared
    range to be drawn from."""
    form = model.form
    if isinstance(model, RecordsProgram):
        raise SpecificationError(
            "simulate: a program whose rows are read a part at a time",
            why="databases are drawn, and programs solved exactly, in memory",
            remedy="simulate a program over fewer people",
        )
    if not model.affine.is_linear():
        raise SpecificationError("simulate: the program has cones", why="violations are told of linear rows")
    parts = [form.private_part(name) for name in model.private_parts()]
    if not all(np.isfinite(end).all() for part in parts for end in entry_ends(model.affine, part)):
        raise SpecificationError(
            "simulate: private numbers without a declared range",
            why="synthetic ones are drawn from public facts alone",
            remedy="bounds=[lo, hi] on every private parameter",
        )
    return synthetic_over(model, drawn_databases(model, seed + 1)[seed])


def synthetic_over(model: Program, theta: PrivateArray) -> SyntheticLP:
    """``model`` with these numbers (P,) for the private ones."""
    return SyntheticLP(model.form, model.classification, model.public, theta, model.entries, _memo=model._memo)


# ---------------------------------------------------------------- which of those that leave rows out
# Numbers read in all runs of one mechanism: beyond the first one database has to do, beyond the second none.
_FEW, _MOST = 1e9, 2e10
# Shares that differ by less are compared to the end: six digits count as equal, and a run adds to the error.
_WORSE = 1.01
# Where one does so many times worse than the public point, noise hides the data: others, which read the same numbers on
# the same budget and take longer, are not tried. A guess: where two were compared, they lay six times apart at most.
_HOPELESS = 20.0


def settled(
    model: Program,
    options: Options,
    compared: Sequence[Any],
    candidates: Sequence[Candidate],
    best: Candidate | None,
) -> list[Candidate]:
    """``candidates`` with ``against_public`` of those that leave rows out, where statements do not settle the choice.
    Public facts only.

    Two cases. No statement of a mechanism that reads data says anything, and none of the others is predicted to beat
    the public point, which misses something. Or ``best``, the choice by statements, leaves rows out itself: what its
    proof allows (rows left out, times all that one of them can be violated by) is far more than what happens, with it
    and with the others, and who proves most is not who does best. With slack rows or alpha asked for, statements are
    what was asked for.
    """
    readers = [c.forecast for c in candidates if c.forecast is not None and not c.forecast.spends_nothing]
    silent = all(forecast.vacuous for forecast in readers)
    if silent and any(forecast.error.helps for forecast in readers):
        return list(candidates)
    if best is not None and best.forecast is not None and best.forecast.unbeatable:
        return list(candidates)
    first = None if best is None else best.forecast
    if not silent and not (first is not None and first.error.contested(first, options)):
        return list(candidates)
    most = _MOST if silent else _FEW
    public = any(c.forecast is not None and c.forecast.spends_nothing for c in candidates)
    algorithms = {each.name: each for each in compared}
    tried: list[tuple[float, Candidate, Violation]] = []
    for candidate in candidates:
        forecast = candidate.forecast
        if forecast is not None and isinstance(forecast.error, Violation) and forecast.error.slack_rows > 0:
            work = work_of(model, forecast)
            if work <= most:
                tried.append((work, candidate, forecast.error))
    if not silent and len(tried) <= 1:
        return list(candidates)
    found: dict[str, float] = {}
    # What is worse than the public point, or than another that leaves rows out, is not chosen.
    rivals = [1.0] if silent and public else []
    hopeless: set[str] = set()
    short: dict[str, float] = {}
    failed: dict[str, Candidate] = {}
    for work, candidate, error in sorted(tried, key=lambda each: each[0]):
        name, algorithm = candidate.mechanism, algorithms[candidate.mechanism]
        if silent and public and found and min(found.values()) > _HOPELESS:
            hopeless.add(name)
            continue
        count = databases_that_tell(model) if work * _COMPARED <= _FEW else 1
        try:
            enough = _WORSE * min(rivals, default=math.inf)
            share = against_public(algorithm, model, options, count, enough)
            if share <= enough and share < 1:
                short[name] = tried_on_databases(algorithm, model, options, count, enough)[1]
        except Exception as problem:
            failed[name] = Candidate.failed(algorithm, problem)
            continue
        found[name] = share
        rivals += [] if error.exact else [share]
    candidates = [failed.get(candidate.mechanism, candidate) for candidate in candidates]
    if not found:
        return list(candidates)
    shares = ", ".join(f"{name} {number(float(f'{share:.3g}'))}" for name, share in found.items())
    words = (
        "no statement decides here: mechanisms that leave constraints out were compared on synthetic databases, drawn "
        "from public facts (ranges, norms, number of rows), while they could still be best; error (the share of them "
        f"short) as a share of the best public point's: {shares}"
    )
    if not silent and best is not None:
        words += f"; the best statement is that of {best.mechanism} (feasibility=AllBut(...) asks for statements)"

    def told(candidate: Candidate) -> Candidate:
        forecast = candidate.forecast
        if candidate.mechanism in hopeless:
            name, share = min(found.items(), key=lambda each: each[1])
            why = f"not simulated, because {name} does {number(share)} times worse than the public point"
            return replace(candidate, forecast=None, code="behind", reason=why)
        if candidate.mechanism not in found or forecast is None or not isinstance(forecast.error, Violation):
            return candidate
        error, caveats = replace(forecast.error, against_public=found[candidate.mechanism]), (*forecast.caveats, words)
        statement, missed = forecast.statement, short.get(candidate.mechanism)
        if forecast.vacuous and missed is not None:
            statement = (
                f"no guarantee at this size and budget; expected, by synthetic databases: {100 * missed:.2g} % of the "
                "private constraints are violated by a tenth or more of the most possible"
            )
        return replace(candidate, forecast=replace(forecast, error=error, caveats=caveats, statement=statement))

    return [told(candidate) for candidate in candidates]


def work_of(model: Program, forecast: Forecast) -> float:
    """Numbers that a run reads, about."""
    noise = forecast.noise
    way = noise.get("objective treated by", {})
    runs = way.get("runs", 1) if isinstance(way, Mapping) else 1
    steps = noise.get("steps", noise.get("candidates", 1))
    few = fewer_records(model)
    form = model.form if few is None else few.form
    size = form.matrix.nnz + form.A0.nnz
    return float(runs * steps * size) if math.isfinite(steps) else math.inf
