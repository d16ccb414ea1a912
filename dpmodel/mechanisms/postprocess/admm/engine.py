"""The ADMM loop: separable proximal steps against one cached least-squares problem, stopped by a duality gap."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpmodel._types import Floats
from dpmodel.mechanisms.postprocess.admm.linear import XUpdate
from dpmodel.mechanisms.postprocess.admm.polish import polish
from dpmodel.mechanisms.postprocess.admm.splits import Splits

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
