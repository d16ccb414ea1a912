"""What a query release measures and with which weights: chosen by a forecast of its error, from public facts alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from dpmodel._types import Floats
from dpmodel.marks.domain import Domain
from dpmodel.queries.workload import Marginal

Loss = Literal["mean", "max"]
Weights = dict[Marginal, float]

# Powers of two keep weighted counts exact. Zero: not measured.
_SLACK = 1.05
_SINGLES, _TOTALS, _WIDE = (0.0, 0.5, 1.0, 2.0), (0.0, 0.5, 1.0, 2.0), (1.0, 0.5)


def automatic_weights(domain: Domain, workload: Iterable[Marginal], *, loss: Loss = "mean", total: bool) -> Weights:
    """The weights with the least forecast error for ``workload``; ``total`` : the number of records is public.

    Candidates: the workload with equal weights, or half of that for more than two columns; with every single column at
    one of four weights or none; with a private total likewise. Laplace noise grows with the sum of the weights,
    Gaussian noise with the root of their squares, and which one is drawn depends on a budget that is not known yet. So
    candidates are compared by the factor by which their error exceeds the best, for the worse of the two distributions.
    Of those within 5 % of the least, the one that measures a private total, then single columns, with the largest
    weights is taken: they hold the fit where noise drowns the cells, which least squares without bounds do not show.
    """
    workload = tuple(workload)
    candidates = _candidates(domain, workload, total)
    if not workload:
        return candidates[0]
    errors = np.array([[forecast(domain, workload, c, order, loss, total) for order in (1, 2)] for c in candidates])
    excess = (errors / errors.min(axis=0)).max(axis=1)
    close = [c for c, e in zip(candidates, excess, strict=True) if e <= excess.min() * _SLACK]
    return max(close, key=lambda c: (c.get((), 0.0), sum(w for m, w in c.items() if len(m) == 1)))


def _candidates(domain: Domain, workload: tuple[Marginal, ...], total: bool) -> list[Weights]:
    columns = [(c,) for c in domain.columns if any(c in m for m in workload)]
    found: list[Weights] = []
    for single, whole, wide in itertools.product(_SINGLES, (0.0,) if total else _TOTALS, _WIDE):
        weights = {(): whole} | {m: 1.0 if len(m) <= 2 else wide for m in workload}
        weights |= {c: max(single, weights.get(c, 0.0)) for c in columns}
        weights = {m: w for m, w in weights.items() if w > 0}
        if weights not in found:
            found.append(weights)
    return found


def forecast(
    domain: Domain,
    workload: Iterable[Marginal],
    measured: Mapping[Marginal, float],
    order: int,
    loss: Loss,
    total: bool,
) -> float:
    """Standard deviation of a cell of the workload, mean over cells or largest, after least squares without bounds.

    In units of the noise scale at a change of 1: ``order`` 1 is Laplace noise, 2 Gaussian noise.

    Write x as the sum of its interactions, one per set S of columns. Counting a marginal A maps the part of S inside A
    to itself, times a factor, and other parts to 0: M_A' M_A has the eigenvalue ``prod of sizes outside A`` there. All
    marginals share these eigenspaces, so with noise of variance v_A the information on S is
    ``sum over A containing S of (that product) / v_A``. A marginal B then has the total variance
    ``sum over S in B of (dimension of S) (product of sizes outside B) / information``, the same in every cell. A
    public total makes the part of the empty set exact. Products outside a marginal are taken relative to the domain.
    """
    workload = tuple(workload)
    size = math.fsum(measured.values()) if order == 1 else math.sqrt(math.fsum(w * w for w in measured.values()))
    distribution = math.sqrt(2.0) if order == 1 else 1.0  # standard deviation of the distribution with scale 1
    precision = {frozenset(a): (w / (size * distribution)) ** 2 / domain.size(a) for a, w in measured.items()}
    variance: dict[frozenset[str], float] = {}

    def component(s: frozenset[str]) -> float:
        if s not in variance:
            known = total and not s
            information = sum(p for a, p in precision.items() if s <= a)
            dimension = math.prod(domain.size((c,)) - 1 for c in s)
            variance[s] = 0.0 if known or not dimension else dimension / information
        return variance[s]

    cells = np.array([domain.size(b) for b in workload], dtype=np.float64)
    parts = [
        [component(frozenset(s)) for k in range(len(b) + 1) for s in itertools.combinations(b, k)] for b in workload
    ]
    sigma: Floats = np.sqrt(np.array([math.fsum(p) for p in parts]) / cells**2)
    return float(sigma.max() if loss == "max" else cells @ sigma / cells.sum())
