"""Where ties should lead: each node's least-squares estimate from the measurements in its subtree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.mechanisms.postprocess.exact_tree.plan import TreePlan

_UNKNOWN = 1e6  # variance of an unmeasured leaf, in units of the largest measured one's


@dataclass(frozen=True, eq=False)
class Targets:
    """``precision`` : (k,) of each measurement, proportional to its squared weight (Laplace noise). ``share`` : (N,)
    weight of the node's own measurements against the sum of its children's estimates; ``spread`` : (N,) variance of the
    estimate."""

    precision: Floats
    own: Floats
    share: Floats
    spread: Floats

    @staticmethod
    def of(plan: TreePlan) -> Targets:
        """The part that does not depend on values."""
        largest = float(plan.absolute.max(initial=0.0)) or 1.0
        precision = np.square(plan.absolute / largest)
        own = np.bincount(plan.node, weights=precision, minlength=plan.tree.size).astype(np.float64)
        measured = own[own > 0]
        unknown = _UNKNOWN / (float(measured.min()) if measured.size else 1.0)
        share = (own > 0).astype(np.float64)
        spread = np.divide(1.0, own, out=np.full(own.size, unknown), where=own > 0)
        for level, lower in zip(reversed(plan.levels[:-1]), reversed(plan.levels[1:]), strict=True):
            assert level.family is not None
            inner = _inner(level.nodes, level.inner)
            below = level.family.total(spread[lower.nodes])
            share[inner] = own[inner] * below / (1.0 + own[inner] * below)
            spread[inner] = below / (1.0 + own[inner] * below)
        return Targets(precision, own, share, spread)

    def estimates(self, plan: TreePlan, value: Floats) -> Floats:
        """(N,) estimates, bounds aside; 0 for an unmeasured leaf."""
        own = np.bincount(plan.node, weights=self.precision * value, minlength=plan.tree.size)
        out = np.divide(own, self.own, out=np.zeros(own.size), where=self.own > 0)
        for level, lower in zip(reversed(plan.levels[:-1]), reversed(plan.levels[1:]), strict=True):
            assert level.family is not None
            inner = _inner(level.nodes, level.inner)
            below = level.family.total(out[lower.nodes])
            out[inner] = below + self.share[inner] * (out[inner] - below)
        return out


def _inner(nodes: slice, inner: Integers | None) -> slice | Integers:
    return nodes if inner is None else inner + nodes.start
