"""Why an ADMM does not converge: nothing is feasible, or nothing stops the objective."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

from dpmodel._types import Floats
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm

INFEASIBLE, UNBOUNDED = 2, 3  # statuses of linprog
SECONDS = 60.0  # for each linear program; after that nothing is said


def diagnose(form: LikelihoodForm) -> Literal["infeasible", "unbounded"] | None:
    """By HiGHS: whether E x = e, G x <= g and the bounds contradict each other, or some direction that keeps them
    lowers the objective for ever. Both are linear programs, without the measurements in the first."""
    if (form.lower > form.upper).any() or _out_of_reach(form):
        return "infeasible"
    n = form.size
    pairs = np.stack([form.lower, form.upper], axis=1)
    feasible = linprog(np.zeros(n), bounds=pairs, method="highs", options={"time_limit": SECONDS}, **_rows(form, 1.0))
    if feasible.status == INFEASIBLE:
        return "infeasible"
    if not form.linear.any():
        return None
    # Along d the loss grows by absolute|M d| per unit, without end where square is positive and M d is not zero.
    steep, flat = form.absolute > 0, form.square > 0
    M, k = form.matrix[steep], int(steep.sum())
    curved = form.matrix[flat]
    d = np.stack([np.where(np.isfinite(form.lower), 0.0, -1.0), np.where(np.isfinite(form.upper), 0.0, 1.0)], axis=1)
    split = sp.block_array([[M, -sp.eye_array(k)], [-M, -sp.eye_array(k)]], format="csr")
    rows = _rows(form, 0.0)
    more: dict[str, Any] = {"A_ub": split, "b_ub": np.zeros(2 * k)}
    if rows["A_ub"] is not None:
        widened = sp.hstack([rows["A_ub"], sp.csr_array((rows["A_ub"].shape[0], k))])
        more = {"A_ub": sp.vstack([split, widened]), "b_ub": np.concatenate([more["b_ub"], rows["b_ub"]])}
    equal = [sp.hstack([A, sp.csr_array((A.shape[0], k))]) for A in (form.equality, curved) if A.shape[0]]
    found = linprog(
        np.concatenate([form.linear, form.absolute[steep]]),
        A_eq=sp.vstack(equal) if equal else None,
        b_eq=np.zeros(sum(A.shape[0] for A in equal)) if equal else None,
        bounds=np.concatenate([d, np.tile([0.0, np.inf], (k, 1))]),
        method="highs",
        options={"time_limit": SECONDS},
        **more,
    )
    if found.status == UNBOUNDED or (found.fun is not None and found.fun < -1e-9 * np.abs(form.linear).max()):
        return "unbounded"
    return None


def _out_of_reach(form: LikelihoodForm) -> bool:
    """Whether the bounds alone keep some row from its value."""
    for A, low, high in (
        (form.equality, form.equality_value, form.equality_value),
        (form.inequality, np.full(form.inequality.shape[0], -np.inf), form.inequality_value),
    ):
        up, down = sp.csr_array(A.maximum(0)), sp.csr_array(A.minimum(0))
        # Rows with an infinite bound reach everything on that side.
        least = up @ _finite(form.lower) + down @ _finite(form.upper)
        most = up @ _finite(form.upper) + down @ _finite(form.lower)
        least[(up @ np.isinf(form.lower) - down @ np.isinf(form.upper)) > 0] = -np.inf
        most[(up @ np.isinf(form.upper) - down @ np.isinf(form.lower)) > 0] = np.inf
        with np.errstate(invalid="ignore"):
            slack = 1e-9 * (1 + np.abs(np.where(np.isfinite(high), high, 0.0)))
        if (least > high + slack).any() or (most < low - slack).any():
            return True
    return False


def _finite(bound: Floats) -> Floats:
    return np.where(np.isfinite(bound), bound, 0.0)


def _rows(form: LikelihoodForm, times: float) -> dict[str, Any]:
    E, G = form.equality, form.inequality
    return {
        "A_eq": E if E.shape[0] else None,
        "b_eq": times * form.equality_value if E.shape[0] else None,
        "A_ub": G if G.shape[0] else None,
        "b_ub": times * form.inequality_value if G.shape[0] else None,
    }
