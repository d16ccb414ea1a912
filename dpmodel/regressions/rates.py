"""What no private algorithm can do for regressions: rates proved in the literature, scaled to a model's objective.

The theorems give rates without constants. The numbers here are these rates with constant 1: yardsticks for
how errors must grow, not bounds that a measured error could contradict. Every line says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpmodel.regressions.model import PrivateRegression
from dpmodel.text import number


@dataclass(frozen=True)
class RegressionLowerBound:
    """One rate, in the unit of the model's objective.

    ``theorem`` : what is proved and where. ``statistical`` : the part that comes from seeing n rows only (about
    the risk on the population; 0 where the theorem is about the rows themselves). ``private`` : the part that privacy
    costs (about the rows). ``unmet`` : conditions of the theorem that do not hold here.
    """

    theorem: str
    statistical: float
    private: float
    unmet: tuple[str, ...]

    def __str__(self) -> str:
        parts = f"{number(self.private)} for privacy, on the rows given"
        if self.statistical:
            parts += f", and {number(self.statistical)} for the n rows seen, on the population (privacy or not)"
        line = f"lower bound as a rate, constant 1 for an unknown one ({self.theorem}): {parts}"
        return f"{line}; not proved here: {', '.join(self.unmet)}" if self.unmet else line


def regression_lower_bounds(model: PrivateRegression, epsilon: float, delta: float) -> tuple[str, ...]:
    """The lower bounds as printable lines, from public facts; empty where no theorem is about this kind of model."""
    found = (lasso_lower_bound(model, epsilon, delta), lipschitz_lower_bound(model, epsilon, delta))
    return tuple(str(lower_bound) for lower_bound in found if lower_bound is not None)


def lasso_lower_bound(model: PrivateRegression, epsilon: float, delta: float) -> RegressionLowerBound | None:
    """``(n ln n)^(-2/3)``: Talwar, Thakurta and Zhang 2015, Theorems 1.2 and 3.1, for least squares over the l1 ball.

    There ``||x||_inf <= 1``, ``|y| <= 1`` and ``||w||_1 <= 1``, epsilon = 0.1, delta = o(1/n^2), and the loss is the
    mean of ``(x'w - y)^2``. With columns in [-A, A], labels in [-Y, Y] and radius r, the hard rows scaled by
    ``c / r`` and the hard labels by ``c = min(A r, Y)`` are allowed, and the same algorithm on the scaled problem has
    its risk multiplied by c^2: so does the lower bound, and by the objective's ``weight``. The proof takes
    ``p = 1000 m^2`` columns for ``n = Theta(m^3 / ln m)`` rows; fewer columns are not covered (sufficient
    statistics beat the rate there, legitimately). Smaller epsilon: covered, as it implies the guarantee at 0.1.

    None for other losses and sets.
    """
    if model.loss.name != "squared" or model.domain.kind != "l1" or math.isfinite(model.loss.clip):
        return None
    n, row = model.count, model.row
    moving = ~row.constant
    reach = float(min((-row.lower[moving]).min(initial=math.inf), row.upper[moving].min(initial=math.inf)))
    reach = min(reach, row.linf)
    label = min(-row.label[0], row.label[1])
    unmet = []
    if epsilon > 0.1:
        unmet.append("epsilon <= 0.1")
    if delta * n * n > 1:
        unmet.append("delta = o(1/n^2)")
    if model.size**1.5 < n:
        unmet.append("columns of the order of n^(2/3) and more")
    if not (reach > 0 and label > 0):
        unmet.append("columns and labels of both signs")
    if row.mixed or row.moving(2.0) < math.sqrt(max(int(moving.sum()), 1)) * row.linf * (1 - 1e-9):
        unmet.append("rows bounded entry by entry alone")
    scale = min(max(reach, 0.0) * model.domain.norm(1.0), max(label, 0.0))
    scale = scale if math.isfinite(scale) else math.nan
    return RegressionLowerBound(
        theorem="Talwar, Thakurta and Zhang 2015, Theorem 3.1: LASSO, (n ln n)^(-2/3)",
        statistical=0.0,
        private=model.weight * scale**2 * (n * math.log(max(n, 2))) ** (-2 / 3),
        unmet=tuple(unmet),
    )


def lipschitz_lower_bound(model: PrivateRegression, epsilon: float, delta: float) -> RegressionLowerBound | None:
    """``L D (1 / sqrt(n) + min(1, sqrt(d) / (n epsilon)))``: Arora, Marinov and Ullah 2020 after Bassily, Smith and
    Thakurta 2014, for losses of Lipschitz constant L over the 2-norm ball of radius D in d dimensions.

    L is here the loss's largest derivative times the largest 2-norm of a row. The second term is about the empirical
    risk and is what privacy costs (delta = o(1/n); for delta = 0 it is ``min(1, d / (n epsilon))``, Theorem 5.2 of
    2014). The first is statistical: it is about the risk on the population, holds without privacy, and says nothing
    about the excess over the best fit to the rows given, which forecasts are about. Hard cases are linear losses: for
    one loss, curvature may allow less (the word "class" in the line).

    None for other sets, and where the derivative is not bounded.
    """
    if model.domain.kind != "l2":
        return None
    steep = model.derivative_bound * model.row.norm(2.0)
    if not math.isfinite(steep):
        return None
    n, d = model.count, model.size
    size = model.weight * steep * model.domain.norm(2.0)
    dimension = math.sqrt(d) if delta > 0 else float(d)
    unmet = [] if delta * n <= 1 else ["delta = o(1/n)"]
    which = "sqrt(d)" if delta > 0 else "d"
    return RegressionLowerBound(
        theorem="Bassily, Smith and Thakurta 2014, in Arora, Marinov and Ullah 2020: "
        f"class of all losses of this derivative over the ball, L D (1/sqrt(n) + min(1, {which}/(n epsilon)))",
        statistical=size / math.sqrt(n),
        private=size * min(1.0, dimension / (n * epsilon)),
        unmet=tuple(unmet),
    )
