"""Random likelihood forms and their optima by general solvers."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel.released.form import LikelihoodForm


def reference(form: LikelihoodForm, tolerance: float = 1e-9) -> float:
    """The optimal value by Clarabel."""
    x = cp.Variable(form.size)
    cost = form.linear @ x + form.constant
    if form.value.size:
        r = form.matrix @ x - form.value
        cost = cost + form.absolute @ cp.abs(r) + form.square @ cp.square(r)
    rules = []
    if form.equality.shape[0]:
        rules.append(form.equality @ x == form.equality_value)
    if form.inequality.shape[0]:
        rules.append(form.inequality @ x <= form.inequality_value)
    low, high = np.isfinite(form.lower), np.isfinite(form.upper)
    if low.any():
        rules.append(x[low] >= form.lower[low])
    if high.any():
        rules.append(x[high] <= form.upper[high])
    problem = cp.Problem(cp.Minimize(cost), rules)
    problem.solve(solver=cp.CLARABEL, tol_gap_rel=tolerance, tol_gap_abs=tolerance, tol_feas=tolerance)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value)


def random_form(seed: int, kind: str, scale: float = 1.0) -> LikelihoodForm:
    """``kind`` : laplace, gaussian, elastic or mixed weights; the rest is drawn. ``scale`` : unit of x."""
    g = np.random.default_rng([seed, len(kind)])
    n = int(g.integers(2, 25))
    truth = np.where(g.random(n) < 0.5, 0.0, g.geometric(0.1, n)) * 1.0
    if g.random() < 0.5:
        matrix = sp.eye_array(n, format="csr")
        if g.random() < 0.5:  # some entries measured twice or not at all
            matrix = matrix[g.integers(0, n, int(g.integers(1, 2 * n)))]
    else:
        k = int(g.integers(1, 2 * n))
        matrix = sp.csr_array(g.integers(-1, 2, (k, n)) * 1.0)
    k = matrix.shape[0]
    noise = g.exponential(3.0, k) + 0.3 if g.random() < 0.5 else np.full(k, 2.0)
    value = matrix @ truth + g.laplace(0, noise)
    absolute = {"gaussian": np.zeros(k), "mixed": np.where(g.random(k) < 0.5, 1 / noise, 0)}.get(kind, 1 / noise)
    square = 1 / (2 * noise**2) if kind == "gaussian" else np.where(absolute > 0, 0, 1 / (2 * noise**2))
    if kind == "elastic":
        absolute, square = 0.9 * absolute, 0.1 / noise**2
    more: dict[str, object] = {}
    if g.random() < 0.6:
        E = g.integers(-1, 2, (int(g.integers(1, max(2, n // 3))), n)) * 1.0
        more |= {"equality": E, "equality_value": E @ truth * scale}
    if g.random() < 0.4:
        G = g.integers(-1, 2, (int(g.integers(1, n)), n)) * 1.0
        more |= {"inequality": G, "inequality_value": (G @ truth + g.integers(0, 3, G.shape[0])) * scale}
    lower = np.where(g.random(n) < 0.7, 0.0, -np.inf) if g.random() < 0.8 else np.full(n, -np.inf)
    upper = np.where(g.random(n) < 0.3, truth + 3, np.inf) * scale
    # The likelihood does not change with the unit.
    return LikelihoodForm.of(
        matrix, value * scale, absolute=absolute / scale, square=square / scale**2, lower=lower, upper=upper, **more
    )


def margin(shape: tuple[int, ...], axes: tuple[int, ...]) -> sp.csr_array:
    """(cells of the margin, cells) 0/1 rows."""
    sizes, cells = tuple(shape[a] for a in axes), np.arange(int(np.prod(shape)))
    index = np.stack(np.unravel_index(cells, shape))[list(axes)]
    place = np.ravel_multi_index(index, sizes) if axes else np.zeros(cells.size, dtype=int)
    return sp.csr_array((np.ones(cells.size), (place, cells)), shape=(int(np.prod(sizes)), cells.size))


def margins(shape: tuple[int, ...], order: int) -> sp.csr_array:
    """All margins of that order."""
    return sp.csr_array(sp.vstack([margin(shape, axes) for axes in itertools.combinations(range(len(shape)), order)]))


def table(shape: tuple[int, ...], order: int, seed: int, *, noise: float = 5.0, alpha: float = 1.0) -> LikelihoodForm:
    """A sparse table measured with Laplace noise, its margins public; ``alpha`` : elastic weight."""
    g = np.random.default_rng(seed)
    n = int(np.prod(shape))
    truth = np.where(g.random(n) < 0.6, 0, g.geometric(0.05, n)) * 1.0
    E = margins(shape, order)
    return LikelihoodForm.of(
        sp.eye_array(n, format="csr"),
        truth + g.laplace(0, noise, n),
        absolute=alpha / noise,
        square=(1 - alpha) / noise**2,
        equality=E,
        equality_value=E @ truth,
        lower=0.0,
    )
