"""Exact systems: what a mechanism may know of vectors, inequalities and points, the one way to them, what it finds.

Everything but ``read_rows`` is public. ``records`` is the number of records where it is public (replace-one) and None
where it is not (add-remove); ``expected`` is a public guess of it, for forecasts only (0: none, nothing is compared).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Integers
from dpmodel.contract import Candidate, Model, Options, WrongOutcome
from dpmodel.errors import UnsupportedModelError
from dpmodel.exact.subspaces import ExactRows, Field
from dpmodel.forecast import Error, Forecast, RowsMissed
from dpmodel.known import Known, capped
from dpmodel.marks.records import Neighbors
from dpmodel.text import number

VectorTask = Literal["span", "affine span", "equations"]

# Shares of the rows that points found without data miss. Any direction: about half of the rows with a margin. Of
# synthetic integers the origin misses about a sixth and the middle of the box two fifths.
PUBLIC_DIRECTION, PUBLIC_INTEGERS = 0.5, 0.25


@dataclass(frozen=True)
class Found:
    """What ``run`` hands back: released data only.

    ``status`` : "found", or "nothing" where the mechanism has no answer (the subspace {0}, a search that failed by a
    noisy count). ``answer`` : for vectors a ``Basis``; for inequalities the (d,) point x, floats or, where it is exact,
    Fractions; for points the (d,) grid position, Fractions. ``missed`` : a released (noisy) count of the rows that the
    answer misses at most (stable-span: except with probability beta), or None. ``estimate``, ``sigma`` : a noisy count
    of those that it is likely to miss, and the standard deviation of its noise, where the mechanism has one.
    ``notes`` : public words.
    """

    status: str
    answer: Any
    missed: float | None = None
    notes: tuple[str, ...] = ()
    estimate: float | None = None
    sigma: float | None = None


class PrivateSystem(Model):
    """What the three kinds share: each is the model of a problem, and what its mechanisms see of it.

    It keeps the public facts that were computed of it.
    """

    words: ClassVar[str] = "system"
    error: ClassVar[type[Error]] = RowsMissed
    # Fields of each of them, in its own order.
    neighbors: Neighbors
    records: int | None
    expected: int
    _rows: Callable[[], Any]

    def read_rows(self) -> Any:
        """Private; only a mechanism's ``run`` may call this. Vectors and grid positions: (n, d), in the fixed order of
        the records. Inequalities: (n, d) A, dense or CSR, and (n,) b, as given."""
        return self._rows()

    @property
    def _expected(self) -> float:
        return float(self.expected) if self.expected else math.inf

    @property
    def known(self) -> Known:
        """What statements are held against: the subspace {0} misses all vectors. In hulls no point is better than
        another: statements are held against the number of records that they need."""
        return Known(missed=self._expected, records=self._expected)

    def forecast(self, options: Options, statement: str, error: RowsMissed, **facts: Any) -> Forecast:
        """A mechanism's forecast at this budget, with what is known without data."""
        budget = {"epsilon": options.epsilon, "delta": options.delta, "beta": options.beta}
        return capped(Forecast(statement=statement, error=error, **{**budget, **facts}), self.known)

    def refuse_auto(self, candidates: Sequence[Candidate]) -> None:
        """UnsupportedModelError where the number of records is public and no statement covers it."""
        forecasts = [c.forecast for c in candidates if c.eligible and c.forecast is not None]
        if self.records is None or not forecasts or not all(forecast.vacuous for forecast in forecasts):
            return
        errors = [forecast.error for forecast in forecasts]
        needed = min(
            (e.needed for e in errors if isinstance(e, RowsMissed) and not math.isnan(e.needed)), default=math.inf
        )
        at_least = f"at least {math.ceil(needed)} are needed" if math.isfinite(needed) else "no number of them would do"
        raise UnsupportedModelError(
            f"too few records for any guarantee: {self.expected}, and {at_least}",
            why="every mechanism that applies may miss all rows at this size and budget",
            remedy="more records, a larger epsilon or delta, fewer dimensions, or mechanism= to run one all the same",
        )

    def checked(self, outcome: Any) -> Any:
        if not isinstance(outcome, Found):
            raise WrongOutcome(f"{type(outcome).__name__} instead of Found")
        return outcome


@dataclass(frozen=True, eq=False)
class PrivateVectors(PrivateSystem):
    """Vectors over a field, one per record; wanted is a subspace that holds nearly all of them, exactly.

    ``field`` : QQ or a finite field. ``dimension`` : d, entries of each vector. ``rank`` : public bound on the
    dimension of their span, at most d (KMMST24, Remark 1). ``task`` : what the vectors stand for: themselves
    ("span"), points u as (u, 1) ("affine span"), equations a'x = b as (a, -b) ("equations"). Zero vectors lie in every
    span and may occur. ``corrupted`` : public guess of the share of vectors outside the wanted subspace, or None.
    ``blocks`` : public sets of columns, each the one-hot encoding of one category.
    """

    field: Field
    dimension: int
    task: VectorTask
    neighbors: Neighbors
    rank: int
    records: int | None
    expected: int
    _rows: Callable[[], ExactRows] = dataclass_field(repr=False)
    corrupted: float | None = None
    blocks: tuple[tuple[int, ...], ...] = ()

    remedy: ClassVar[str] = "delta > 0, such as 1e-6"

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        epsilon, delta, beta = options.epsilon, options.delta, options.beta
        risk = rows_at_risk(epsilon, delta, beta)
        if not math.isfinite(risk):
            return (_linear(self.rank),)
        return (
            f"lower bound: a direction that fewer than {math.ceil(risk)} records carry is missed with probability "
            f"above {number(beta)} by every ({number(epsilon)}, {number(delta)})-private mechanism that never "
            "leaves the span (about (1/epsilon) ln(1/delta); group privacy)",
            _linear(self.rank),
        )


@dataclass(frozen=True, eq=False)
class PrivateInequalities(PrivateSystem):
    """Inequalities ``a_i'x <= b_i``, one per record; wanted is a point that satisfies nearly all of them, exactly.

    ``variables`` : d. ``homogeneous`` : all b_i are zero, so are the public right-hand sides, and x = 0 is no answer.
    ``public_rows`` (k, d), ``public_sides`` (k,) : constraints ``G x <= h`` that the answer must satisfy.
    ``margin`` : rho0, a public promise: in the cone of ``lifted`` some unit vector z has ``rows z >= rho0`` for all
    private rows, scaled to unit norm. None: no promise. If it is broken, utility fails and privacy holds.
    ``largest`` : U where all private numbers are integers of size at most U (publicly known, enforced), else None.
    """

    variables: int
    homogeneous: bool
    public_rows: Floats
    public_sides: Floats
    margin: float | None
    largest: int | None
    neighbors: Neighbors
    records: int | None
    expected: int
    _rows: Callable[[], tuple[Any, Any]] = dataclass_field(repr=False)

    remedy: ClassVar[str] = "a public margin=, or integers of a public bound= and delta > 0"

    @property
    def known(self) -> Known:
        """Any point satisfies some rows."""
        return Known(missed=self._expected * (PUBLIC_INTEGERS if self.margin is None else PUBLIC_DIRECTION))

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        values = () if self.largest is None else (_iterated(2.0 * self.largest + 1.0),)
        return (*_at_risk(options), _linear(self.cone_dimension), *values)

    @property
    def cone_dimension(self) -> int:
        """Variables of the homogeneous form: d, or d + 1 with the leading variable x0 > 0."""
        return self.variables if self.homogeneous else self.variables + 1

    @property
    def cone(self) -> Floats:
        """(k', D) public rows B of the homogeneous form, of unit norm: answers have ``B y >= 0``; y0 >= 0 included."""
        if self.homogeneous:
            rows = -self.public_rows
        else:
            rows = np.hstack([self.public_sides[:, None], -self.public_rows])
            rows = np.vstack([np.eye(1, self.cone_dimension), rows])
        norms = np.linalg.norm(rows, axis=1)
        unit: Floats = rows[norms > 0] / norms[norms > 0, None]
        return unit

    def lifted(self, A: Any, b: Any) -> Any:
        """(n, D) rows of the homogeneous form, ``rows y >= 0`` with ``y = (x0, x)``, scaled to unit norm.

        Rows ``0'x <= b`` become ``b x0 >= 0``; rows that are zero altogether stay zero (they always hold). Each row
        depends on its own record alone. In floating point the norm of a row is at most 1 + 1e-12 + D 2^-53.
        """
        dense = not sp.issparse(A)
        # Rows one after the other in memory: of other layouts, numpy adds up one row as it adds up two, or not.
        rows: Any = -np.ascontiguousarray(A, dtype=np.float64) if dense else -sp.csr_array(A, dtype=np.float64)
        if not self.homogeneous:
            side = np.asarray(b, dtype=np.float64)[:, None]
            rows = np.hstack([side, rows]) if dense else sp.csr_array(sp.hstack([sp.csr_array(side), rows]))
        if not dense:
            rows.sum_duplicates()
        largest = np.abs(rows).max(axis=1) if dense else abs(rows).max(axis=1).toarray().ravel()
        rows = _divided(rows, largest)  # first, so that squares neither overflow nor vanish
        norms = np.sqrt((rows * rows).sum(axis=1)) if dense else np.sqrt((rows.multiply(rows)).sum(axis=1))
        return _divided(rows, np.asarray(norms).ravel())

    def lowered(self, y: Floats) -> Floats:
        """(d,) the point x of a cone point y: y itself, or ``y[1:] / y[0]``."""
        return y if self.homogeneous else y[1:] / y[0]


def _divided(rows: Any, by: Floats) -> Any:
    """Each row divided by its number >= 0 (by 1 if that is zero). Not times the inverse, which may be infinite."""
    by = np.where(by > 0, by, 1.0)
    if not sp.issparse(rows):
        return rows / by[:, None]
    return sp.csr_array((rows.data / np.repeat(by, np.diff(rows.indptr)), rows.indices, rows.indptr), shape=rows.shape)


@dataclass(frozen=True, eq=False)
class PrivatePoints(PrivateSystem):
    """Points of a public grid, one per record; wanted is a point in their convex hull.

    ``lower`` (d,), ``step`` : coordinate j of a point is ``lower[j] + step * i`` with an integer i in
    0 .. ``levels[j]`` - 1. ``read_rows`` gives the (n, d) integers i. Points outside the box are moved into it (public
    policy), so that the hull is that of the moved points.
    """

    lower: tuple[Fraction, ...]
    step: Fraction
    levels: tuple[int, ...]
    neighbors: Neighbors
    records: int | None
    expected: int
    _rows: Callable[[], Integers] = dataclass_field(repr=False)

    remedy: ClassVar[str] = "at most five coordinates, a larger step (fewer grid points), or delta > 0"

    def lower_bounds(self, options: Options) -> tuple[str, ...]:
        return (*_at_risk(options), _linear(self.dimension), _iterated(float(max(self.levels))))

    @property
    def dimension(self) -> int:
        return len(self.levels)

    @property
    def free_axes(self) -> tuple[int, ...]:
        """Those with more than one level."""
        return tuple(axis for axis, levels in enumerate(self.levels) if levels > 1)

    def coordinates(self, position: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        """The point at a (fractional) grid position."""
        return tuple(low + self.step * i for low, i in zip(self.lower, position, strict=True))


# ------------------------------------------------------------------ what no mechanism can do, whatever its algorithm
def rows_at_risk(epsilon: float, delta: float, beta: float) -> float:
    """Records that may stand alone for a direction and still be missed with probability more than beta.

    *Proof, for vectors.* Let a mechanism never leave the span of its input (KMMST24, Theorem A, item 1) and let
    p_t be the probability that it finds a direction which t records carry and no other does. Then p_0 = 0, and by
    privacy ``p_t <= e^epsilon p_(t-1) + delta``, so ``p_t <= delta (e^(epsilon t) - 1) / (e^epsilon - 1)``. For
    p_t >= 1 - beta, t must be at least ``ln(1 + (1 - beta)(e^epsilon - 1) / delta) / epsilon``, about
    (1/epsilon) ln(1/delta). The same holds where an answer that satisfies the t rows is never given without them.
    """
    if delta <= 0:
        return math.inf
    # ln(1 + e^u), where u = ln((1 - beta)(e^epsilon - 1) / delta) and e^epsilon may be out of range.
    u = epsilon + math.log(-math.expm1(-epsilon)) + math.log1p(-beta) - math.log(delta)
    return (max(u, 0.0) + math.log1p(math.exp(-abs(u)))) / epsilon


def iterated_logarithm(value: float) -> int:
    """log*: how often the binary logarithm must be taken until at most 1 is left."""
    steps = 0
    while value > 1:
        value = math.log2(value)
        steps += 1
    return steps


def _linear(size: int) -> str:
    return (
        f"lower bound as a rate, constant unknown: linear in the dimension, here {size} "
        "(VC dimension; KMMST24, section 2.4)"
    )


def _at_risk(options: Options) -> tuple[str, ...]:
    if options.delta <= 0:
        return ()
    rows = number(math.log(1 / options.delta) / options.epsilon)
    words = f"about (1/epsilon) ln(1/delta) = {rows} rows are at risk under any private mechanism"
    return (f"{words} (an order, not a constant)",)


def _iterated(values: float) -> str:
    return (
        f"lower bound as a rate, constant unknown: log* of the number of values U, here {iterated_logarithm(values)}; "
        "on a continuum no number of records suffices (interior points; Bun, Nissim, Stemmer and Vadhan 2015)"
    )
