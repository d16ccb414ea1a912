"""The ADMM of LWK15 for likelihoods: splits, x-update, loop, polishing and the last step to a feasible point."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from dpmodel._types import Floats
from dpmodel.released.model import LikelihoodForm

EVEN = 1 / 3  # power of 1/scale^2, about their geometric mean: 0 is one penalty for all
SMALL_PENALTY = 1e-4  # the same of entries that nothing is known of: a proximal term only
NEAR = 20.0  # noise scales
UNMEASURED = 4.0  # penalty of a bounded entry that is not measured by itself, in measured ones of its scale


@dataclass(frozen=True, eq=False)
class Splits:
    """Minimise ``sum_i h_i((A x)_i)`` with A = [I; B], B : (m - n, n), over x in R^n and equalities kept elsewhere;
    ``h_i(w) = absolute_i |w - centre_i| + square_i (w - centre_i)^2 + linear_i w`` on [lower_i, upper_i].

    This is (8) of LWK15 with its splits y = x - x~ and z = x taken together where a variable is measured by itself:
    a function of one variable on an interval has as proximal point the unconstrained one clipped to the interval, so
    (9) and (10) are one update and two splits become one. Everything else (rows of a strategy, a second measurement
    of the same variable, inequalities G x <= g) is a row of B.

    ``scale`` : (m,) noise scales of measured splits, about those of x_i of others. ``weight`` : (m,) p > 0, fixed: the
    penalty of split i is rho p_i, so that x-updates do not depend on rho. p is 1/scale^2, so that units do not matter,
    drawn together towards its geometric mean (power EVEN): with scales that differ by e^3 this took a tenth of the
    steps that powers 1 or 0 took.
    """

    rows: sp.csr_array
    centre: Floats
    absolute: Floats
    square: Floats
    linear: Floats
    lower: Floats
    upper: Floats
    scale: Floats
    weight: Floats

    @property
    def size(self) -> int:
        """Number of variables n."""
        return int(self.rows.shape[1])

    @cached_property
    def transposed(self) -> sp.csr_array:
        return sp.csr_array(self.rows.T)

    def apply(self, x: Floats) -> Floats:
        """A x, (m,)."""
        return np.concatenate([x, self.rows @ x]) if self.rows.shape[0] else x

    def adjoint(self, y: Floats) -> Floats:
        """A'y, (n,)."""
        n = self.size
        return y[:n] + self.transposed @ y[n:] if self.rows.shape[0] else y

    def loss(self, w: Floats) -> float:
        """sum of h_i(w_i), bounds aside."""
        r = w - self.centre
        return float(self.absolute @ np.abs(r) + self.square @ (r * r) + self.linear @ w)

    def proximal(self, rho: float) -> Callable[[Floats], Floats]:
        """t -> argmin h(w) + rho/2 sum p_i (w_i - t_i)^2: the operator Theta of (14), which contains (13) and the
        corrected (25), rho/(1 + rho) (x - x~ + mu) (LWK15 prints 1/(1 + rho), right for rho = 1 only), clipped to the
        bounds."""
        penalty = rho * self.weight
        threshold, shrink = self.absolute / penalty, penalty / (penalty + 2 * self.square)
        shift = self.centre + self.linear / penalty

        def operator(t: Floats) -> Floats:
            s = t - shift
            s = (s - np.clip(s, -threshold, threshold)) * shrink
            s += self.centre
            return np.clip(s, self.lower, self.upper, out=s)

        return operator

    def total(self, w: Floats) -> float:
        """Sum of the sizes of the objective's terms: what errors are relative to."""
        r = w - self.centre
        return float(self.absolute @ np.abs(r) + self.square @ (r * r) + np.abs(self.linear @ w))

    @cached_property
    def precision(self) -> Floats:
        """(m,) 1/scale of measured splits, 0 of others."""
        found: Floats = np.sqrt(self.absolute**2 + 2 * self.square)
        return found

    def separates(self, d: Floats, image: Floats) -> bool:
        """Whether d, with A'd in the range of E', looks like a proof of infeasibility: ``d'A x`` is the same for all x
        that keep the equalities, and larger than any w within the bounds allows."""
        allowed = np.where(np.isfinite(self.upper), d, np.minimum(d, 0))
        allowed = np.where(np.isfinite(self.lower), allowed, np.maximum(allowed, 0))
        top = np.where(allowed > 0, self.upper, np.where(allowed < 0, self.lower, 0.0))
        margin = float(d @ image - allowed @ top)
        return margin > 0 and float(np.abs(d - allowed) @ (np.abs(image) + NEAR * self.scale)) < 0.1 * margin

    def dual_bound(self, y: Floats, image: Floats) -> float:
        """A lower bound on the loss of every feasible x' with ``|A x' - A x| <= NEAR scale + |A x - centre|`` entry by
        entry, from ``image`` = A x with E x = e and any y with A'y in the range of E'.

        ``y'A x' = y'A x``, as x' - x is in the kernel of E, so ``h(A x') >= y'A x - sup_w (y'w - h(w))``, the supremum
        over the w in that box and within the bounds. Over all w it would be infinite as soon as one derivative in y
        exceeds those of h by a rounding error. If a feasible x' outside of the box has a loss lower than f(x) by d,
        then by convexity the point where the way from x to x' leaves the box is lower than f(x) by d times the part of
        the way that lies in the box: the bound speaks of such points too, only more weakly. NEAR noise scales beyond
        the measured value are further than an optimum is from its data.
        """
        reach = NEAR * self.scale + np.abs(image - self.centre)
        lower = np.clip(image - reach, self.lower, self.upper)
        upper = np.clip(image + reach, self.lower, self.upper)
        derivative = y - self.linear
        excess = derivative - np.clip(derivative, -self.absolute, self.absolute)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(excess == 0, 0.0, excess / (2 * self.square))
        w = np.clip(self.centre + step, lower, upper)
        r = w - self.centre
        supremum = derivative @ w - self.absolute @ np.abs(r) - self.square @ (r * r)
        return float(y @ image - supremum)


def weights(absolute: Floats, square: Floats) -> Floats:
    """Penalty weights 1/scale^2 of measured entries, 0 of others."""
    return absolute**2 + 2 * square


def splits_of(form: LikelihoodForm) -> Splits:
    """The splits of a form. A variable's own measurement (first row of M with that variable only) joins its bounds."""
    M, n = form.matrix, form.size
    counts = np.diff(M.indptr)
    used = (form.absolute > 0) | (form.square > 0)
    single = np.flatnonzero((counts == 1) & used)
    at = M.indptr[single]
    factor = M.data[at]
    single, at, factor = single[factor != 0], at[factor != 0], factor[factor != 0]
    _, first = np.unique(M.indices[at], return_index=True)
    own, column, factor = single[first], M.indices[at[first]], factor[first]
    rest = np.setdiff1d(np.flatnonzero(used), own)
    centre, absolute, square = np.zeros(n), np.zeros(n), np.zeros(n)
    centre[column] = form.value[own] / factor
    absolute[column] = form.absolute[own] * np.abs(factor)
    square[column] = form.square[own] * factor**2
    B = sp.csr_array(sp.vstack([M[rest], form.inequality], format="csr"))
    k, q = rest.size, form.inequality_value.size
    lower, upper, caps = form.lower, form.upper, form.inequality_value
    squares = sp.csr_array(B.power(2))
    alone, row_weight = weights(absolute, square), weights(form.absolute[rest], form.square[rest])
    informed = alone + np.asarray(squares[:k].T @ row_weight)
    known = informed[informed > 0]
    informed = np.where(informed > 0, informed, float(np.median(known)) if known.size else 1.0)
    held = np.isfinite(lower) | np.isfinite(upper) | (form.linear != 0)
    part = np.where(alone > 0, 1.0, np.where(held, UNMEASURED, SMALL_PENALTY))
    norms = np.asarray(squares[k:].sum(axis=1)).ravel()
    cap_weight = (np.median(informed) if n else 1.0) / np.where(norms > 0, norms, 1.0)
    precise = np.concatenate([np.where(alone > 0, alone, informed), row_weight, cap_weight])
    middle = float(np.exp(np.mean(np.log(precise)))) if precise.size else 1.0
    penalty = precise**EVEN * middle ** (1 - EVEN)
    none = np.zeros(q)
    return Splits(
        B,
        np.concatenate([centre, form.value[rest], caps]),
        np.concatenate([absolute, form.absolute[rest], none]),
        np.concatenate([square, form.square[rest], none]),
        np.concatenate([form.linear, np.zeros(k + q)]),
        np.concatenate([lower, np.full(k + q, -np.inf)]),
        np.concatenate([upper, np.full(k, np.inf), caps]),
        1 / np.sqrt(precise),
        np.concatenate([part, np.ones(k + q)]) * penalty,
    )


# ------------------------------------------------------------------ the x-update


DENSE = 2500  # columns (or equalities) up to which a dense factorisation is used
GRAM = 1500  # equalities up to which their Gram matrix is dense, where K is diagonal
INCONSISTENT = 1e-7  # relative residual of the equalities above which nothing satisfies them
RANK = 1e-11  # relative eigenvalue of a Gram matrix below which a row is taken as redundant
REGULAR, ROUNDS = 1e-8, 2  # delta of the sparse system, and rounds that remove its effect


class InconsistentEqualities(Exception):
    """No x satisfies E x = e."""


class XUpdate(Protocol):
    """``solve(q)`` : argmin over E x = e of 1/2 x'K x - q'x with K = A'diag(p)A."""

    def solve(self, q: Floats) -> Floats: ...


@dataclass(frozen=True, eq=False)
class DiagonalUpdate:
    """K diagonal and no equalities."""

    diagonal: Floats

    def solve(self, q: Floats) -> Floats:
        return q / self.diagonal


@dataclass(frozen=True, eq=False)
class GramUpdate:
    """K diagonal: ``x = v - K^-1 E'(E K^-1 E')^+ (E v - e)`` with v = K^-1 q, the projection onto {E x = e} in the
    norm of K. The Gram matrix's pseudo-inverse is dense (p, p) and drops redundant rows."""

    diagonal: Floats
    equality: sp.csr_array
    transposed: sp.csr_array
    value: Floats
    inverse: Floats

    @staticmethod
    def of(diagonal: Floats, equality: sp.csr_array, value: Floats) -> GramUpdate:
        """Errors: InconsistentEqualities."""
        E = sp.csr_array(equality)
        per_column = np.bincount(E.indices, minlength=E.shape[1]).astype(float)
        gram: Floats
        if per_column @ per_column <= 2e8:
            gram = (E @ sp.diags_array(1 / diagonal) @ E.T).toarray()
        else:
            gram = np.zeros((E.shape[0], E.shape[0]))
            columns = sp.csc_array(E)
            for start in range(0, E.shape[1], 8192):
                block = columns[:, start : start + 8192].toarray() / np.sqrt(diagonal[start : start + 8192])
                gram += block @ block.T
        found = GramUpdate(diagonal, E, sp.csr_array(E.T), value, pseudo_inverse(gram))
        check_equalities(E, value, found.solve(np.zeros(diagonal.size)))
        return found

    def solve(self, q: Floats) -> Floats:
        v = q / self.diagonal
        v -= (self.transposed @ (self.inverse @ (self.equality @ v - self.value))) / self.diagonal
        return v


@dataclass(frozen=True, eq=False)
class DenseUpdate:
    """``x = X q + x0``: the explicit inverse on the equalities, one product with an (n, n) matrix per step."""

    inverse: Floats
    start: Floats

    @staticmethod
    def of(K: Floats, equality: sp.csr_array, value: Floats) -> DenseUpdate:
        """Errors: InconsistentEqualities."""
        # K is positive definite; potri halves the work of a general inverse.
        scale = float(np.mean(np.diag(K)))
        factor, failed = sla.lapack.dpotrf(K / scale, lower=1)
        if failed:
            raise np.linalg.LinAlgError("the matrix of the x-update is not positive definite")
        half, _ = sla.lapack.dpotri(factor, lower=1)
        inverse: Floats = (np.tril(half) + np.tril(half, -1).T) / scale
        start = np.zeros(K.shape[0])
        if equality.shape[0]:
            Y: Floats = np.asarray((equality @ inverse).T)
            pinv = pseudo_inverse(equality @ Y)
            start = Y @ (pinv @ value)
            start += Y @ (pinv @ (value - equality @ start))
            inverse = inverse - Y @ pinv @ Y.T
            check_equalities(equality, value, start)
        return DenseUpdate(inverse, start)

    def solve(self, q: Floats) -> Floats:
        out: Floats = self.inverse @ q + self.start
        return out


@dataclass(frozen=True, eq=False)
class SparseUpdate:
    """Sparse factors of ``[[K, E'], [E, -delta I]]`` (symmetric ordering, no pivoting: the matrix is quasi-definite).

    Each round after the first is one of the proximal method of multipliers, which takes the effect of delta away: two
    leave about delta^2 of the multipliers. Redundant rows of E are harmless.
    """

    factors: Any
    equality: sp.csr_array
    value: Floats
    scale: float

    @staticmethod
    def of(K: sp.csr_array, equality: sp.csr_array, value: Floats) -> SparseUpdate:
        """Errors: InconsistentEqualities."""
        scale = float(K.diagonal().mean())
        norms = np.sqrt(np.asarray(equality.power(2).sum(axis=1)).ravel())
        norms[norms == 0] = 1.0
        E = sp.csr_array(sp.diags_array(1 / norms) @ equality)
        blocks = [[K / scale, E.T], [E, -REGULAR * sp.eye_array(E.shape[0])]] if E.shape[0] else [[K / scale]]
        system = sp.csc_array(sp.block_array(blocks))
        factors = spla.splu(system, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        found = SparseUpdate(factors, E, value / norms, scale)
        check_equalities(E, found.value, found.solve(np.zeros(K.shape[0])))
        return found

    def solve(self, q: Floats) -> Floats:
        n = q.size
        if not self.value.size:
            x: Floats = self.factors.solve(q / self.scale)
            return x
        multiplier = np.zeros(self.value.size)
        for _ in range(ROUNDS):
            found = self.factors.solve(np.concatenate([q / self.scale, self.value - REGULAR * multiplier]))
            multiplier = found[n:]
        out: Floats = found[:n]
        return out


def pseudo_inverse(gram: Floats) -> Floats:
    """Of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    keep = values > RANK * max(float(values.max(initial=0.0)), np.finfo(float).tiny)
    inverse: Floats = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    return inverse


def check_equalities(equality: sp.csr_array, value: Floats, x: Floats) -> None:
    """Errors: InconsistentEqualities, if x, which satisfies them as well as possible, does not."""
    residual = float(np.abs(equality @ x - value).max(initial=0.0))
    size = max(float(np.abs(value).max(initial=0.0)), float((abs(equality) @ np.abs(x)).max(initial=0.0)))
    if residual > INCONSISTENT * size:
        raise InconsistentEqualities


def x_update(splits: Splits, equality: sp.csr_array, value: Floats, weight: Floats | None = None) -> XUpdate:
    """The cheapest of the four for these sizes; with other penalty weights than the splits' own, (m,), if given.

    Errors: InconsistentEqualities.
    """
    n = splits.size
    B, p = splits.rows, splits.weight if weight is None else weight
    weighted = sp.csr_array(sp.diags_array(p[n:]) @ B)
    if np.all(np.diff(B.indptr) <= 1):
        return diagonal_update(p[:n] + _diagonal(B, p[n:]), equality, value)
    if n <= DENSE and (n <= 300 or B.nnz > 20 * n) and value.size <= DENSE:
        dense = B.toarray() * np.sqrt(p[n:])[:, None]
        return DenseUpdate.of(dense.T @ dense + np.diag(p[:n]), equality, value)
    K = sp.csr_array(splits.transposed @ weighted + sp.diags_array(p[:n]))
    return SparseUpdate.of(K, equality, value)


def gram_is_dense(equality: sp.csr_array) -> bool:
    """Whether few rows of many entries (or few rows at all) make the dense Gram matrix the better choice."""
    rows: int = equality.shape[0]
    return rows <= min(100, GRAM) or (rows <= GRAM and equality.nnz >= 30 * rows)


def diagonal_update(diagonal: Floats, equality: sp.csr_array, value: Floats) -> XUpdate:
    """The cheapest for a diagonal K.

    Errors: InconsistentEqualities.
    """
    if not value.size:
        return DiagonalUpdate(diagonal)
    if gram_is_dense(equality):
        return GramUpdate.of(diagonal, equality, value)
    return SparseUpdate.of(sp.csr_array(sp.diags_array(diagonal)), equality, value)


def _diagonal(B: sp.csr_array, p: Floats) -> Floats:
    found: Floats = np.asarray(B.power(2).T @ p)
    return found


# ------------------------------------------------------------------ the vertex next to a nearly optimal point


HELD, FREE = 1e3, 1e-4  # penalties of splits that are held and of straight ones that are not, relative to rho p
POLISHING_ROUNDS = 6


def polish(
    splits: Splits, refactor: Callable[[Floats], XUpdate], w: Floats, y: Floats, x: Floats, rho: float
) -> tuple[Floats, Floats]:
    """(x, y): the optimum of the problem in which w_i stays where it is at the kink of h_i or at a bound, and every
    other h_i is continued from the side on which w_i is, as a line or parabola.

    If these are the pieces that meet at an optimum, that is it. Solved by the proximal method of multipliers from the
    given x, (n,), and multipliers y, (m,): each round is one x-update with penalties that stay the same, and its error
    shrinks by about FREE / HELD per round where the held splits determine x and y. A'y is in the range of E'.
    """
    kink = (splits.absolute > 0) & (w == splits.centre)
    held = kink | (w == splits.lower) | (w == splits.upper)
    curve = 2 * splits.square
    flat = ~held & (curve == 0)
    p = np.where(held, HELD * rho * splits.weight, np.where(flat, FREE * rho * splits.weight, curve))
    derivative = np.sign(w - splits.centre) * splits.absolute + splits.linear
    multiplier = np.where(held, y, derivative)
    centre = np.where(held, w, splits.centre)
    update = refactor(p)
    for _ in range(POLISHING_ROUNDS):
        centre = np.where(flat, splits.apply(x), centre)
        x = update.solve(splits.adjoint(p * centre - multiplier))
        now = multiplier + p * (splits.apply(x) - centre)
        multiplier = np.where(held, now, derivative)
    # Rounding has left a little of A'y outside of the range of E', which the dual bound would multiply by x.
    zero = update.solve(np.zeros(splits.size))
    for _ in range(2):
        now = now + p * splits.apply(update.solve(-splits.adjoint(now)) - zero)
    return x, now


# ------------------------------------------------------------------ the last step: the nearest feasible point


NEWTON_STEPS = 60  # Newton steps
INNER = 200  # conjugate-gradient steps in each
KEPT = 1e-8  # how far a repaired point may be from the equalities, relative to its largest entry
CLOSE = 1e-11  # distance from the equalities, relative to the largest entry, at which a point keeps them


@dataclass(frozen=True, eq=False)
class Polytope:
    """{z : E z = e, lower <= z <= upper}, known by ``project``, the projection onto {E z = e} in the norm
    ``sum weight_j z_j^2``."""

    project: Callable[[Floats], Floats]
    weight: Floats
    lower: Floats
    upper: Floats

    def nearest(self, start: Floats) -> Floats | None:
        """The point of the polytope nearest to ``start`` in that norm; None where none was found that keeps the
        equalities to ``KEPT`` of its largest entry.

        Semismooth Newton on the dual: the point is z(c) = clip(start + c), with c in W^-1 range(E') such that z(c)
        keeps the equalities. One step solves Q D d = Q(project(z) - z) by conjugate gradients, D marking entries
        strictly inside their bounds and Q the projection onto that range, and is shortened until the dual objective
        rises. From a point that ADMM has nearly finished it takes a few steps.
        """
        W, lower, upper = self.weight, self.lower, self.upper
        base = self.project(np.zeros(start.size))
        flat = self.project(start)  # some point that keeps the equalities
        c = np.zeros(start.size)
        z = np.clip(start, lower, upper)
        size = max(float(np.abs(start).max(initial=0.0)), float(np.abs(base).max(initial=0.0)), 1e-300)
        best, least = z, np.inf
        value = self._dual(start, c, z, flat)
        for _ in range(NEWTON_STEPS):
            move = self.project(z) - z
            far = float(np.abs(move).max(initial=0.0))
            if far < least:
                best, least = z, far
            if far <= CLOSE * size:
                break
            inside = (start + c > lower) & (start + c < upper)
            d = self._solve(inside, move, base)
            gain = float((W * d) @ move)
            length = 1.0
            while True:
                trial = np.clip(start + c + length * d, lower, upper)
                new = self._dual(start, c + length * d, trial, flat)
                if new >= value + 1e-4 * length * gain - 1e-13 * abs(value) or length < 1e-6:
                    break
                length /= 2
            c, z, value = c + length * d, trial, new
        return best if least <= KEPT * max(float(np.abs(best).max(initial=0.0)), 1e-300) else None

    def _dual(self, start: Floats, c: Floats, z: Floats, flat: Floats) -> float:
        """min over the box of 1/2 |z - start|^2 - <c, z - flat>, at its minimiser z."""
        away = z - start
        return float(self.weight @ (0.5 * away * away - c * (z - flat)))

    def _solve(self, inside: np.ndarray, move: Floats, base: Floats) -> Floats:
        """d in the range of Q with Q D d = move, roughly."""
        W = self.weight
        d, r = np.zeros(move.size), move.copy()
        s, rr = r.copy(), float((W * r) @ r)
        goal = 1e-8 * rr
        for _ in range(INNER):
            held = np.where(inside, s, 0.0)
            image = held - (self.project(held) - base)
            image += 1e-9 * s
            curve = float((W * s) @ image)
            if curve <= 1e-300:
                break
            step = rr / curve
            d += step * s
            r -= step * image
            new = float((W * r) @ r)
            if new <= goal:
                break
            s = r + (new / rr) * s
            rr = new
        return d


# ------------------------------------------------------------------ the loop


Status = Literal["optimal", "optimal_inaccurate", "infeasible", "unbounded"]
TOLERANCE, STEPS = 1e-5, 20_000  # relative duality gap at which the steps end, and their most
RELAX = 1.4  # over-relaxation
EVERY = 5  # steps between residuals
POLISH = 100  # steps between attempts to solve for the active set
LOOSE = 10.0  # residuals are looked through below so many times the tolerance of the gap
BALANCE = 4.0  # ratio of the residuals beyond which the penalty is changed
LOWER_BOUND = 1e-9  # of the size of the data: residuals below it count as nothing
NAT = 1e-3  # of log-likelihood per measurement: gaps of smaller objectives are taken relative to this
PENALTY = 4.0  # first rho; residuals move it


@dataclass(frozen=True, eq=False)
class Result:
    """``x`` : (n,) the best feasible point found; ``bound`` : the dual bound; ``gap`` : the difference,
    relative to the objective's terms."""

    x: Floats
    status: Status
    steps: int
    bound: float
    gap: float


def minimise(
    splits: Splits,
    update: XUpdate,
    repair: Callable[[Floats], Floats | None],
    doubt: Callable[[], Status | None],
    refactor: Callable[[Floats], XUpdate] | None,
    *,
    tolerance: float = TOLERANCE,
    steps: int = STEPS,
    start: Floats | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Result:
    """Scaled ADMM, (9)-(11) of LWK15 in the order x, w, u, over-relaxed (Boyd et al. 2011, 3.4.3):

        x   <- argmin over E x = e of sum p_i ((A x)_i - w_i + u_i)^2          (15), (24)
        t   <- relaxation A x + (1 - relaxation) w + u
        w   <- argmin h(w) + rho/2 sum p_i (w_i - t_i)^2                       (14) clipped: y- and z-updates
        u   <- t - w                                                           mu, nu; eta of Algorithm 1 is not needed

    ``y = rho p u`` is a subgradient of h at w, and ``y~ = rho p (A x - w_old + u_old)`` has A'y~ in the range of E';
    they agree in the limit. Residuals (22) are ||A x - w|| in the norm of p, relative to ||A x - centre||, and ||y~ -
    y|| in that of 1/p, relative to ||y||; rho is changed when they are out of balance, more and more rarely. When both
    are small, ``repair`` makes a feasible point of x and y~ gives a bound (``Splits.dual_bound``); their relative
    difference ends the loop, not the residuals.

    ``doubt`` is asked once when the multipliers look like a proof of infeasibility, and when the steps run out; it
    returns "infeasible", "unbounded", or None. ``refactor`` : the x-update for other penalty weights, for ``polish``,
    tried at growing intervals; None for none. ``start`` : x to begin with, (n,).
    """
    p, rho = splits.weight, PENALTY
    root, measured = np.sqrt(p), splits.precision
    t = _first(splits) if start is None else splits.apply(start)
    theta = splits.proximal(rho)
    w = theta(t)
    u = t - w
    size = max(
        LOWER_BOUND * float(np.linalg.norm(measured * splits.centre)), NAT * math.sqrt(np.count_nonzero(measured))
    )
    judge = _Judge(splits, repair, tolerance)
    status: Status = "optimal_inaccurate"
    next_look = last_sensitivity = sensitivities = 0
    next_polish = POLISH
    before: Floats | None = None
    requested = False
    for step in range(1, steps + 1):
        x = update.solve(splits.adjoint(p * (w - u)))
        image = splits.apply(x)
        look = step % EVERY == 0 or step == steps
        if look:
            y = (rho * p) * (image - w + u)
        t = RELAX * image + (1 - RELAX) * w + u
        w = theta(t)
        u = t - w
        if not look:
            continue
        primal = float(np.linalg.norm(root * (image - w)))
        dual = float(np.linalg.norm(y / root - rho * (root * u)))
        reach = max(float(np.linalg.norm(measured * (image - splits.centre))), size)
        derivative = rho * float(np.linalg.norm(root * u)) + LOWER_BOUND * math.sqrt(p.size)
        near = LOOSE * tolerance
        close = primal <= near * reach and dual <= near * derivative
        if close and step >= next_look:
            next_look = step + max(EVERY, step // 20)
            judge.look(x, image, y)
        if refactor is not None and judge.gap > tolerance and step >= (next_polish if close else 2 * next_polish):
            next_polish = step + max(POLISH, step // 3)
            at, at_y = polish(splits, refactor, w, (rho * p) * u, x, rho)
            judge.look(at, splits.apply(at), at_y)
        if judge.gap <= tolerance:
            status = "optimal"
            break
        if (
            before is not None
            and not requested
            and not close
            and step % 100 == 0
            and splits.separates(y - before, image)
        ):
            requested = True
            verdict = doubt()
            if verdict is not None:
                status = verdict
                break
        if step % 100 == 95:
            before = y
        if step >= last_sensitivity + max(20, last_sensitivity // 2) and sensitivities < 30:
            ratio = 2 * (primal / reach) / max(dual / derivative, 1e-300)
            if not 1 / BALANCE <= ratio <= BALANCE:
                factor = min(max(math.sqrt(ratio), 0.1), 10.0)
                rho, u = rho * factor, u / factor
                theta = splits.proximal(rho)
                sensitivities, last_sensitivity = sensitivities + 1, step
        if step % 500 == 0:
            progress(step / steps)
    if status == "optimal_inaccurate" and not requested:
        status = doubt() or status
    if judge.best is None and status == "optimal_inaccurate":
        judge.look(x, image, y, last=True)
    return Result(x if judge.best is None else judge.best, status, step, judge.bound, judge.gap)


class _Judge:
    """The best feasible point so far, and the gap between it and the bound of the last look."""

    def __init__(self, splits: Splits, repair: Callable[[Floats], Floats | None], tolerance: float) -> None:
        self.splits, self.repair, self.tolerance = splits, repair, tolerance
        self.nats = NAT * (int(np.count_nonzero(splits.precision)) or 1)
        self.best: Floats | None = None
        self.loss, self.bound, self.gap = math.inf, -math.inf, math.inf

    def look(self, x: Floats, image: Floats, y: Floats, *, last: bool = False) -> None:
        """Repair x if the gap is small enough for that to matter, or at the ``last`` chance."""
        splits = self.splits
        bound = splits.dual_bound(y, image)
        scale = max(splits.total(image), self.nats)
        if not last and splits.loss(image) - bound > 2 * self.tolerance * scale:
            return
        point = self.repair(x)
        value = math.inf if point is None else splits.loss(splits.apply(point))
        if value < self.loss:
            self.best, self.loss = point, value
        self.bound, self.gap = bound, (self.loss - bound) / scale


def _first(splits: Splits) -> Floats:
    """Measured values, clipped, and what they make of the rows."""
    x = np.clip(splits.centre[: splits.size], splits.lower[: splits.size], splits.upper[: splits.size])
    return splits.apply(x)
