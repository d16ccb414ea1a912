"""A private choice among public points: the exponential mechanism over vertices, in its permute-and-flip form."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, PrivateArray
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.footprint import entry_sensitivities, sensitivity_of
from dpmodel.compile.form import value_range
from dpmodel.contract import YES, Mechanism, Options, Outcome, Progress, Serves, Verdict, no_progress
from dpmodel.forecast import Forecast, Violation
from dpmodel.kernels.direct_measurement import CLAMP, ROUNDING, exact_rows
from dpmodel.memo import cached
from dpmodel.privacy import NoiseSource, permute_and_flip, permute_and_flip_error
from dpmodel.programs.model import Program, refuse_high
from dpmodel.programs.noise_once import against_ignorance
from dpmodel.programs.public import objective_span
from dpmodel.text import number


@dataclass(frozen=True)
class Candidates:
    """Public candidate points ``points`` (k, n) sparse; ``words`` says where they come from."""

    points: sp.csr_array
    words: str
    all_vertices: bool


@dataclass(frozen=True)
class VertexExponential(Mechanism[Program]):
    """Choose one of finitely many public feasible points by its private objective value.

    Source
        HRRU14, section 4.5 (selection among the vertices); McSherry and Talwar 2007, Theorem 5; McKenna and
        Sheldon 2020 for permute-and-flip, which is never worse than the exponential mechanism at equal epsilon.
    Privacy
        The score of point v is ``-c(theta)'v``, linear in theta. Between two neighbours the scores move by numbers
        g(v), and R bounds ``max g - min g`` over all pairs of neighbours: the smaller of twice the largest
        single move (exact, from the footprint of the scores) and ``max_{v,w} ||v - w||_inf`` times the 1-norm
        change of c; for a scaled simplex the latter is L D_1 and half of what twice the move would give.
        Permute-and-flip with scale R / epsilon is epsilon-DP. Private scores are clamped and computed with one
        rounding, public ones are added about their middle, and R is enlarged by the rounding allowance. Nothing
        else reads private values: the objective at the chosen point is not released (it would cost more budget).
    Utility
        With probability 1 - beta the loss against the best candidate is at most ``(R / epsilon) ln(k / beta)``. On all
        vertices of the feasible set that is the loss against the optimum.
    Cost
        One pass over the candidates; no solve.
    """

    serves: ClassVar[Serves] = Serves(Program, ("objective low",))
    name: str = "vertex-exponential"
    source: str = "HRRU14, section 4.5; permute-and-flip"
    vertices: Any = field(default=None, compare=False, repr=False)

    def run(self, model: Program, options: Options, noise: NoiseSource, progress: Progress = no_progress) -> Outcome:
        found = _found(model, options.vertices)
        scores = _score_map(model, options.vertices)
        progress(f"choosing among {found.points.shape[0]} points", 0.2)
        reach = _range(model, options.vertices)
        limit = CLAMP * _single(model, options.vertices) if reach > 0 else math.inf
        public = _public_scores(model, found)
        private = np.clip(exact_rows(scores, PrivateArray(model.read_private())), -limit, limit)
        utility = PrivateArray(-(private + (public - (public.max() + public.min()) / 2)))
        # Scores that no record can move are the same for all data, so their best needs no noise.
        chosen = (
            permute_and_flip(utility, reach, epsilon=options.epsilon, source=noise)
            if reach > 0
            else int(np.argmax(utility))
        )
        x = np.asarray(found.points[[chosen]].todense()).ravel()
        notes = ("the objective value at the chosen point is not released: measuring it would cost more budget",)
        return Outcome("optimal", x, None, None, notes=notes)

    def eligible(self, model: Program, options: Options) -> Verdict:
        if model.private_parts() != ("objective",):
            return Verdict(False, "serves problems in which only the objective is private")
        high = refuse_high(model, "selection")
        if high is not None:
            return high
        if candidates(model, options.vertices) is None:
            return Verdict(
                False,
                "the public set is not a scaled simplex; list points: mechanisms.VertexExponential(vertices=[...])",
            )
        public, single = _public_scores(model, _found(model, options.vertices)), _single(model, options.vertices)
        if single > 0 and float(np.ptp(public)) > CLAMP / 2 * single:
            return Verdict(False, "the public part of the objective is so large that private scores drown in rounding")
        return YES

    def forecast(self, model: Program, options: Options) -> Forecast:
        found = _found(model, options.vertices)
        loss = drawn = 0.0
        if _range(model, options.vertices) > 0:  # 0: no record can move the score of any candidate
            loss = permute_and_flip_error(
                found.points.shape[0], _range(model, options.vertices), options.epsilon, options.beta
            )
            drawn = loss / math.log(found.points.shape[0] / options.beta)  # scale of the noise on a score
            loss = min(loss, objective_span(model))
        low, high = value_range(model.affine, _score_map(model, options.vertices))
        best = "the true optimum" if found.all_vertices else "the best of the given points"
        return Forecast(
            statement=f"with probability {number(1 - options.beta)}, the objective is within {number(loss)} of {best} "
            "and all constraints hold exactly",
            epsilon=options.epsilon,
            delta=0.0,
            beta=options.beta,
            work=f"one choice among {found.points.shape[0]} {found.words}, no solve",
            noise={"candidates": found.points.shape[0], "range": _range(model, options.vertices)},
            error=Violation(objective=loss, against_public=against_ignorance(np.full(low.size, drawn), high - low)),
        )


def _found(model: Program, vertices: Floats | None) -> Candidates:
    found = candidates(model, vertices)
    assert found is not None  # eligible() came first
    return found


@cached
def _score_map(model: Program, vertices: Floats | None) -> LinearMap:
    """(k,) private parts of the objective values ``c'v``, as functions of theta."""
    found = _found(model, vertices)
    product = sp.coo_array(found.points @ model.form.objective.tocsr(model.affine.theta_size))
    return LinearMap.of(product.coords[0], product.coords[1], product.data, found.points.shape[0])


def _public_scores(model: Program, found: Candidates) -> Floats:
    """(k,) public parts of the objective values."""
    return np.asarray(found.points @ model.form.c0, dtype=np.float64)


@cached
def _single(model: Program, vertices: Floats | None) -> float:
    """How far one record can move any one score."""
    scores = _score_map(model, vertices)
    return float(entry_sensitivities(model.affine, scores).max(initial=0.0))


@cached
def _range(model: Program, vertices: Floats | None) -> float:
    """R: how far one record can move the scores apart."""
    points, single = _found(model, vertices).points, _single(model, vertices)
    sensitivities = sensitivity_of(model.affine, model.form.objective)
    l1 = max((sensitivity.l1 for sensitivity in sensitivities.values()), default=0.0)
    # The products behind the scores are rounded, which shows when points almost coincide.
    apart = _spread(points) + 2.0**-40 * float(abs(points).max())
    # Clamping may stop some scores while others move, so R is at least one score's own change.
    return max(single, min(2 * single, apart * l1)) * (1 + ROUNDING)


def _spread(points: sp.csr_array) -> float:
    """``max_{v,w} ||v - w||_inf``."""
    by_column = sp.csc_array(points)
    high = by_column.max(axis=0).toarray().ravel()
    low = by_column.min(axis=0).toarray().ravel()
    return float((high - low).max(initial=0.0))


@cached
def candidates(model: Program, vertices: Floats | None) -> Candidates | None:
    """The user's public points, or the vertices of a scaled simplex recognised in the public constraints."""
    return _simplex(model) if vertices is None else Candidates(sp.csr_array(vertices), "given points", False)


def _simplex(model: Program) -> Candidates | None:
    """Vertices of {x >= 0, a'x = s} or {x >= 0, a'x <= s} with a > 0, s > 0, when that is the whole set."""
    affine, form = model.affine, model.form
    n = affine.variables
    if affine.boolean.size or affine.integer.size or not affine.is_linear() or n >= 2_000_000:
        return None
    counts = np.diff(form.A0.indptr)
    wide = np.flatnonzero(counts > 1)
    if n <= 1 or wide.size != 1 or counts[wide[0]] != n:
        return None
    lower, upper = model.public.box
    if (lower != 0).any():
        return None
    row = int(wide[0])
    a = np.asarray(form.A0[[row]].todense()).ravel()
    size = float(form.b0[row])
    kind = affine.cones[affine.block_of_row()[row]].kind
    if kind == "zero" and (a < 0).all():
        a, size = -a, -size
    if not ((a > 0).all() and size > 0):
        return None
    # Equalities in one variable, or upper bounds that cut the simplex, make it another set.
    single_equalities = any(b.kind == "zero" and (counts[b.rows] == 1).any() for b in affine.cones)
    if single_equalities or (upper < size / a * (1 - 1e-12)).any():
        return None
    points = sp.diags_array(size / a).tocsr()
    if kind == "nonneg":
        points = sp.csr_array(sp.vstack([points, sp.csr_array((1, n))]))
    return Candidates(points, "vertices of a scaled simplex", True)


VERTEX_EXPONENTIAL = VertexExponential()
