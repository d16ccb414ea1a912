"""``measure``: publish private numbers with noise, together with the distribution of that noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, overload

import cvxpy as cp
import numpy as np

from dpmodel._types import Floats, Labels
from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import sensitivity_of
from dpmodel.compile.form import require_private_values
from dpmodel.compile.names import labels_of_expression
from dpmodel.compile.refusals import warn_of_leaves
from dpmodel.contract import no_progress
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.kernels.direct_measurement import KINDS, DirectMeasurement, Kind
from dpmodel.marks.dataset.aggregates import Means
from dpmodel.marks.dataset.estimates import Estimates, check_level
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.marks.records import public_count, record_words
from dpmodel.privacy import Budget, Cost, NoiseSource, PrivacyLoss, noise_source, validate_privacy
from dpmodel.problem import Problem
from dpmodel.programs.remedies import remedies
from dpmodel.programs.theorems import impossibility_error
from dpmodel.solve.wall import charge_then_run, check_budget
from dpmodel.text import long_frame, named_text, number, wrapped


@dataclass(frozen=True, eq=False)
class MeasuredMeans:
    """Means in groups, released. Works as an array in NumPy.

    ``value`` : the means, within the bounds. ``count`` : rows in each group, as measured. ``standard_deviation`` : of
    the noise in each mean, to first order in noise over count: an estimate, and too small where the count is as small
    as its own noise. There the divisor is that noise's standard deviation, so that means go to the middle of the
    bounds.
    ``ends`` : the two sums that were measured, with their cost. ``bounds`` : of a value.
    """

    value: Floats
    count: Floats
    standard_deviation: Floats
    labels: Labels
    name: str
    ends: Noisy
    bounds: tuple[float, float]

    @staticmethod
    def of(means: Means, ends: Noisy, name: str | None) -> MeasuredMeans:
        """Post-processing of two noisy sums: c + h (above - below) / (above + below), with c the middle, h half the
        width of the bounds."""
        half, middle = (means.high - means.low) / 2, (means.high + means.low) / 2
        above, below = ends.value
        spread = float(ends.standard_deviation.flat[0])
        both = np.maximum(above + below, math.sqrt(2) * spread)
        share = np.clip((above - below) / both, -1, 1)
        deviation = half * spread * np.sqrt(2 * (1 + share**2)) / both
        arrays = (middle + half * share, (above + below) / (2 * half), deviation)
        value, count, deviation = (array.reshape(means.shape) for array in arrays)
        return MeasuredMeans(value, count, deviation, means.labels, name or means.name, ends, (means.low, means.high))

    def intervals(self, level: float = 0.95) -> Estimates:
        """Intervals for the means of the groups, from the two noisy sums alone: they cost no privacy.

        Each holds its mean with probability ``level`` at least, however small the group is. A mean is low + (high -
        low) f with f = A / (A + B) for the true sums A, B >= 0. Gaussian noise: ``(1 - f) A~ - f B~`` has mean 0 and
        deviation ``sigma sqrt((1 - f)^2 + f^2)``; the interval is all f in [0, 1] that are within z of these (Fieller,
        exact), all of [0, 1] where these are no interval. Other noise: A and B are within the largest of two draws of
        A~ and B~ together, and f grows with A and falls with B. Rows count with their clipped values; an empty group
        has no mean.

        Raises
        ------
        SpecificationError
            For a level outside (0, 1).
        """
        beta, law, scale = 1 - check_level(level), type(self.ends.noise), float(self.ends.scale.flat[0])
        above, below = self.ends.value
        if law.name == "gaussian":
            far = scale * law(1.0).max_abs_quantile(1, beta)
            both = above + below
            two, one, zero = both**2 - 2 * far**2, above * both - far**2, above**2 - far**2
            inside = one**2 - two * zero
            known = (two > 0) & (both > 0) & (inside >= 0)
            with np.errstate(all="ignore"):
                ends = [np.where(known, (one + sign * np.sqrt(inside)) / two, lone) for sign, lone in ((-1, 0), (1, 1))]
        else:
            far = law(scale).max_abs_quantile(2, beta)
            ends = []
            for a, b, empty in ((above - far, below + far, 0.0), (above + far, below - far, 1.0)):
                a, b = np.maximum(a, 0), np.maximum(b, 0)
                ends.append(np.divide(a, a + b, out=np.full(a.shape, empty), where=a + b > 0))
        low, high = self.bounds
        lower, upper = (low + (high - low) * np.clip(end, 0, 1).reshape(self.value.shape) for end in ends)
        ends_of = self.ends
        return Estimates(
            name=self.name,
            value=self.value,
            lower=lower,
            upper=upper,
            level=1 - beta,
            statement="from the two noisy sums of each group, whatever its size",
            epsilon=math.nan if ends_of.epsilon is None else ends_of.epsilon,
            delta=ends_of.delta or 0.0,
            neighbors=ends_of.neighbors,
            record=ends_of.record,
            labels=self.labels,
            notes=(_at_bounds(low, high),) if (lower <= low).any() or (upper >= high).any() else (),
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.value, dtype=dtype)

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with a row per group: ``value``, ``standard_deviation``, ``count``; as ``Noisy.to_frame``."""
        columns = {"value": self.value, "standard_deviation": self.standard_deviation, "count": self.count}
        return long_frame(columns, self.labels, backend)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {named_text(self.value, self.labels, self.standard_deviation)}",
            f"standard deviation of the noise, about: {named_text(self.standard_deviation, self.labels)}",
            f"cost: {self.ends.cost}; {self.ends.record}",
        ]
        return "\n".join(wrapped(line, "  " if k else "") for k, line in enumerate(lines))


# ------------------------------------------------------------------ the measurement


_LABEL = "the measured expression"


@overload
def measure(
    private: Means,
    epsilon: float,
    delta: float = 0.0,
    *,
    distribution: str = ...,
    budget: Budget | None = ...,
    name: str | None = ...,
    rng: Any = ...,
) -> MeasuredMeans: ...


@overload
def measure(
    private: cp.Expression,
    epsilon: float,
    delta: float = 0.0,
    *,
    distribution: str = ...,
    budget: Budget | None = ...,
    name: str | None = ...,
    rng: Any = ...,
) -> Noisy: ...


def measure(
    private: Any,
    epsilon: Any = None,
    delta: float = 0.0,
    *,
    distribution: str = "auto",
    budget: Budget | None = None,
    name: str | None = None,
    rng: Any = None,
) -> Noisy | MeasuredMeans:
    """Measure private numbers once, under (epsilon, delta)-differential privacy.

    Every entry gets its own independent draw of one distribution with one scale, which the result states: Laplace noise
    of scale D1 / epsilon or Gaussian noise of standard deviation D2 / mu(epsilon, delta), where D1 and D2 are the
    1-norm and 2-norm of what one record can do to all entries together, computed from the declared bounds. What follows
    from the result (``neg_log_likelihood``, rounding, sums) is post-processing and costs nothing. The privacy argument
    is that of ``DirectMeasurement``.

    Parameters
    ----------
    private : a ``Private`` parameter, or a CVXPY expression that is affine in such parameters, such as ``T @ counts``,
        ``cp.sum(p)`` or ``2 * p - q + 1``. Public parameters may be added, not multiplied with private ones. Or the
        ``Means`` of ``Dataset.mean``, which are quotients of two sums that are measured together.
    epsilon, delta : the most to spend. Laplace noise spends no delta.
    distribution : "auto" takes the least standard deviation among Laplace and, with delta > 0, Gaussian noise; where
        the numbers are declared whole (``Private(..., integer=True)``, whole coefficients and constants), among
        their discrete twins, so that the result is whole (discrete Gaussian noise is 4 to 18 % wider than Gaussian
        noise, because its privacy is counted in zCDP); Gaussian noise alone, with delta > 0, where
        ``budget.composition`` is "gaussian". Or "laplace", "gaussian", "discrete-laplace", "discrete-gaussian".
    budget : a ``Budget`` to charge before any data is read.
    name : of the result; the parameter's own where it is measured as it stands.
    rng : None for secure noise; "opendp" for OpenDP's, which is as private; an int or numpy Generator for repeatable
        noise in tests, which is not private and says so.

    Returns
    -------
    Noisy
        Of the expression's shape, with what it cost. Values too large to be computed exactly are clamped, which is
        public policy: at 2^40 times the largest change of an entry or less, integers at 2^52. Of ``Means``:
        ``MeasuredMeans``, with an estimate of each mean's error instead of a distribution.

    Raises
    ------
    SpecificationError, MissingValueError, UnsupportedModelError, ImpossibilityError, BudgetExceededError
        Before anything is spent: for what is not private, has no value, is not affine, may change arbitrarily far or
        not at all, and for distributions that cannot be had.
    RunError
        When drawing fails; the budget is spent then.

    Examples
    --------
    >>> from dpmodel import Private
    >>> counts = Private([20, 30], name="counts", unit="entry", linf=1, integer=True)
    >>> noisy = measure(counts, epsilon=0.5)
    >>> noisy.noise, noisy.shape
    (DiscreteLaplace(scale=2), (2,))
    """
    if isinstance(private, Means):
        ends = measure(private.ends, epsilon, delta, distribution=distribution, budget=budget, rng=rng)
        assert isinstance(ends, Noisy)
        return MeasuredMeans.of(private, ends, name)
    expression = _checked(private, name)
    loss = validate_privacy(epsilon, delta)
    kind = checked_kind(distribution, loss.delta, budget)
    source = noise_source(rng)
    title = _title(expression, name)
    plan = planned(expression, title, loss.epsilon, loss.delta)
    return publish(plan, expression, title, loss, kind, source, budget)


def cost_of(private: cp.Expression, epsilon: float, delta: float, kind: Kind, rng: Any) -> Cost:
    """What ``measure`` of numbers of this shape will charge, from public facts; refuses what it would refuse."""
    plan = planned(private, _title(private, None), epsilon, delta)
    chosen, spent_delta = plan.distribution(epsilon, delta, kind)
    plan.check_source(chosen, noise_source(rng))
    return plan.event(chosen, epsilon, spent_delta)


def checked_kind(distribution: Any, delta: float = 0.0, budget: Budget | None = None) -> Kind:
    """The distribution's name, or SpecificationError. "auto" is Gaussian noise where ``budget`` is made for it: that is
    public, and older than every charge."""
    check_budget(budget)
    if not isinstance(distribution, str) or distribution not in KINDS:
        shown = repr(distribution) if isinstance(distribution, str) else type(distribution).__name__
        raise SpecificationError(f"distribution={shown}", remedy=", ".join(map(repr, KINDS)))
    made_for = budget is not None and budget.composition == "gaussian" and delta > 0
    return "gaussian" if made_for and distribution == "auto" else distribution


def planned(expression: cp.Expression, title: str, epsilon: float, delta: float) -> DirectMeasurement:
    """What measuring ``expression`` reads and how far a record moves it. Public; refuses what cannot be measured."""
    # One scalar variable: as many rows as entries, and few coefficients.
    equation = (expression == cp.Variable(name="measured")).set_label(_LABEL)
    problem = Problem(cp.Minimize(0), [equation])
    warn_of_leaves(problem, by_record=False)
    plan = DirectMeasurement.of(lower(problem).affine)
    _refuse_unbounded(problem, plan, epsilon, delta)
    if not plan.moves:
        raise SpecificationError(
            f"no record can change {title}",
            why="by the declared bounds it does not depend on private data, and noise would only hurt",
            remedy="use the public value as it is",
        )
    return plan


def publish(
    plan: DirectMeasurement,
    expression: cp.Expression,
    title: str,
    loss: PrivacyLoss,
    kind: Kind,
    source: NoiseSource,
    budget: Budget | None,
) -> Noisy:
    """Charge the budget, then draw: the rest of ``measure``, whose errors it has."""
    chosen, spent_delta = plan.distribution(loss.epsilon, loss.delta, kind)
    plan.check_source(chosen, source)
    blocks = plan.affine.private_blocks
    require_private_values(block.parameter for block in blocks)
    released, failure = charge_then_run(
        lambda report: plan.run(chosen, source),
        name="measure",
        budget=budget,
        cost=plan.event(chosen, loss.epsilon, spent_delta),
        label=f"measure {title}",
        report=no_progress,
        records=public_count(block.parameter for block in blocks),
        remedy="rng=None",
    )
    if released is None:
        assert failure is not None
        raise failure
    record = record_words(block.parameter for block in blocks)
    patterns = list(dict.fromkeys(block.name for block in blocks if block.parameter.sparse_idx is not None))
    if patterns:
        record += f"; the positions of the entries of {', '.join(patterns)} are public"
    if any("bounds" in block.parameter.cut_by for block in blocks):
        record += "; values beyond the declared bounds were cut, nobody counted how many"
    if isinstance(expression, Private) and expression.mean_bounds is not None:  # a mean; from released numbers alone
        (low, high), far = expression.mean_bounds, chosen.max_abs_quantile(1, 0.05)
        if released.min() - far <= low or released.max() + far >= high:
            record += f"; {_at_bounds(low, high)}"
    if not source.is_private:
        record = f"NOT PRIVATE (seeded noise for tests); {record}"
    return Noisy(
        released.reshape(expression.shape, order="F"),
        chosen,
        name=title,
        epsilon=loss.epsilon,
        delta=spent_delta,
        labels=labels_of_expression(expression),
        neighbors=" and ".join(sorted({block.parameter.records.neighbors for block in blocks})),
        record=record,
    )


def _at_bounds(low: float, high: float) -> str:
    return f"an interval reaches a declared bound ({number(low)} to {number(high)}), which may cut: try wider ones"


def _checked(private: Any, name: Any) -> cp.Expression:
    if isinstance(private, Noisy):
        raise SpecificationError(
            "measure: this is published already (Noisy)", remedy="use it as it is: it cost nothing"
        )
    if not isinstance(private, cp.Expression):
        raise SpecificationError(
            f"measure: {type(private).__name__} is not private",
            why="how far one record moves it must be declared",
            remedy="Private(value, unit=..., linf=...), or an affine expression of such parameters",
        )
    if name is not None and not isinstance(name, str):
        raise SpecificationError(f"measure: name=<{type(name).__name__}>", remedy="name='counts'")
    if private.variables():
        raise SpecificationError(
            f"measure: the expression has the variable {private.variables()[0].name()}",
            why="only data can be measured",
            remedy="an expression of Private parameters and constants",
        )
    if not any(isinstance(parameter, Private) for parameter in private.parameters()):
        raise SpecificationError(
            "measure: nothing in the expression is private",
            why="noise would only hurt",
            remedy="mark private data with Private(...), or use .value",
        )
    if private.is_complex():
        raise UnsupportedModelError("measure: a complex expression", remedy="cp.real and cp.imag of the public factors")
    if private.size == 0:
        raise SpecificationError(f"measure: an empty expression, shape {private.shape}", remedy="at least one entry")
    return private


def _title(expression: cp.Expression, name: str | None) -> str:
    if name is not None:
        return name
    if isinstance(expression, Private):
        return str(expression.name())
    names = dict.fromkeys(str(p.name()) for p in expression.parameters() if isinstance(p, Private))
    return f"function of {', '.join(names)}"


def _refuse_unbounded(problem: Problem, plan: DirectMeasurement, epsilon: float, delta: float) -> None:
    """Theorem 36: its gadget, find x with x = D, is a measurement. Its remedies are about this ``problem``."""
    if plan.bounded:
        return
    sensitivity = sensitivity_of(plan.affine, plan.queries)
    wild = [
        block.name
        for block in plan.affine.private_blocks
        if not sensitivity[block.parameter.records.people].finite and not math.isfinite(block.parameter.linf)
    ]
    if not wild:
        raise SpecificationError(
            "measure: coefficients too large",
            why="how far one record moves the expression is beyond floating point",
            remedy="other units, such as expression / 1e6",
        )
    # The failure probability is the one at which an impossibility states its lower bound.
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "beta": 0.05}
    offered = remedies(problem, [cell for cell in problem.classify().cells if cell.parameter == wild[0]], asked)
    reason = "no bound is declared on how far one record moves it"
    raise impossibility_error("scalar", wild[0], _LABEL, **asked, reason=reason, remedies=offered, measured=True)
