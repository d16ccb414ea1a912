"""What no private algorithm can do: Theorems 35 to 38 of HRRU14 as numbers with a proof behind each.

A lower bound is a lower bound on the error of **every** (epsilon, delta)-private mechanism on the gadget program of
the theorem. It says nothing of one particular program of the same cell, which may be easy.

Two slips of the paper are mended here, and the proofs in the docstrings stand on their own:

* The proof of Theorem 35 draws an index among the ones of D only, where all errors may lie. Averaging over a
  one and a zero together gives the same constant (see `reconstruction_lower_bound`).
* Theorem 37 takes ``||D - x||_1 <= alpha n`` where only ``2 alpha n`` holds, which costs a factor of 2 if the
  rest of the proof is kept. Rounding at random instead of to the nearest bit wins that factor back, so that
  the constants printed in Theorems 37 and 38 do hold (`LowerBound.as_printed`). `LowerBound.value` is the best constant
  proved here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpmodel.errors import ImpossibilityError, SpecificationError
from dpmodel.text import number

CITATION = "Hsu, Roth, Roughgarden, Ullman: Privately Solving Linear Programs (ICALP 2014), sections 5 to 5.3"

_OF_ROW = "violation of the constraint, divided by n, its number of coefficients"
# By part: the theorem and the unit of its lower bound.
_THEOREM = {
    "scalar": ("Theorem 36", "violation of one constraint"),
    "objective": ("Theorem 37", "loss in objective value, divided by n, the number of private coefficients"),
    "column": ("Theorem 38", "violation of the constraint, divided by n, the number of private columns"),
    "row": ("Theorem 38", _OF_ROW),
    "matrix": ("Theorem 38", _OF_ROW),
}


@dataclass(frozen=True)
class LowerBound:
    """The least error that a theorem leaves to any private mechanism.

    ``value`` : the largest lower bound proved in the docstring of `lower_bound`, in ``unit``; ``statement`` : the same
    in words.
    ``vacuous`` : nothing is proved for this epsilon, delta and beta; then ``value`` is 0. ``as_printed`` : the
    constant printed in the theorem, in the same unit; never above ``value``. ``sensitivity`` : how far one record moves
    a private entry of the gadget (1 in the paper).
    """

    value: float
    theorem: str
    statement: str
    unit: str
    vacuous: bool
    part: str
    as_printed: float
    sensitivity: float = 1.0

    def scaled(self, B: float) -> LowerBound:
        """Return the lower bound for changes ``B`` times as large.

        Multiply the private data of the gadget by B: objective ``B D``, right-hand side ``x_i = B D_i``, or
        private row ``B D`` with right-hand side ``B n/2``; public constraints stay (for the scalar gadget the
        variables are free). One record now moves an entry by B instead of 1. A solution of the new gadget
        with error ``B a`` is one of the old gadget with error ``a``, after dividing the objective, the
        private row, or x, by the public number B. This is post-processing, so privacy carries over, and an
        error below B times the lower bound would contradict the theorem. A bound on the change in the l1, l2 or
        linf norm by B allows a gadget of which one entry moves, hence the lower bound holds under each of the three;
        ``value`` of "row" and "matrix" is of a gadget all of whose entries move, and holds under linf alone (under
        the others ``as_printed`` does). As B grows without bound, so does the error: that is the sense in which
        arbitrary changes are impossible.

        Parameters
        ----------
        B : change of one entry, >= 0, relative to ``self.sensitivity``; infinity is allowed.

        Raises
        ------
        SpecificationError
            If B is negative or NaN.
        """
        if not B >= 0:
            raise SpecificationError(f"the change B is {B}", why="a change is a number >= 0")
        sensitivity = self.sensitivity * B
        value, as_printed = (0.0 if x == 0 else x * B for x in (self.value, self.as_printed))
        return dataclasses.replace(
            self,
            value=value,
            as_printed=as_printed,
            sensitivity=sensitivity,
            statement=_statement(self.part, value, sensitivity, self.vacuous),
        )


def reconstruction_lower_bound(epsilon: float, delta: float, beta: float) -> float:
    """Return c(epsilon, delta, beta), the constant of Theorem 35 of HRRU14, clipped at 0.

    ``c = 1/2 - (e^epsilon + delta) / (2 (1 + e^epsilon) (1 - beta))``. If a mechanism is
    (epsilon, delta)-private and ``||M(D) - D||_1 <= alpha n`` with probability at least 1 - beta for every
    D in {0,1}^n, then ``alpha >= c``. Neighbours are databases at one flip, or, among databases with exactly
    n/2 zeros, at one swap of a zero and a one; (epsilon, delta) is the guarantee between these neighbours, so
    a swap costs (2 epsilon, delta (1 + e^epsilon)) if a record is one bit.

    Proof, of the stronger ``alpha >= 2 c``. Round entry i of M(D) to 1 with probability M(D)_i, which is
    post-processing. Let D be uniform, i a uniform one and j a uniform zero of D, D' the swap of i and j (then
    D' is uniform too); e1 and e0 the probability of a wrong bit at a one and at a zero. Privacy at i gives
    ``1 - e1 <= e^epsilon e0 + delta``, at j ``1 - e0 <= e^epsilon e1 + delta``. The mean e = (e0 + e1)/2 thus
    has ``1 - e <= (e^epsilon + delta)/(1 + e^epsilon)``. The expected number of wrong bits is the expected
    ``||M(D) - D||_1``, so ``1 - e >= (1 - alpha)(1 - beta)``. For flips take i uniform in [n] and one
    inequality. Randomised response attains 2 c as n grows and beta tends to 0, so 2 c cannot be improved.
    Rounding to the nearest bit, as in the paper, can double the number of wrong bits and proves c only.

    ``epsilon`` : privacy parameter >= 0, infinity allowed.
    ``delta`` : privacy parameter >= 0; a group of two may have delta > 1, and then c is 0.
    ``beta`` : failure probability, in [0, 1). Other values and NaN raise SpecificationError.
    Returns a number in [0, 1/4]; 0 means that the theorem says nothing.
    """
    _check(epsilon, delta, beta)
    u = math.exp(-epsilon)  # the quotient in terms of e^-epsilon does not overflow
    return max(0.0, 0.5 - (1.0 + delta * u) / (2.0 * (1.0 + u) * (1.0 - beta)))


def lower_bound(part: str, epsilon: float, delta: float, beta: float) -> LowerBound:
    """Return what is proved impossible if one record changes ``part`` arbitrarily (here: an entry by 1).

    Write c2 for ``c(2 epsilon, delta (1 + e^epsilon), beta)`` and *alive* for
    ``beta < (1 - delta)/(1 + e^epsilon)``, which is the condition for ``c(epsilon, delta, beta) > 0``. A
    mechanism is alpha-feasible (-optimal) if it is so with probability at least 1 - beta on every database.

    ``"scalar"``, Theorem 36: alpha >= 1/2 if alive, else vacuous. Gadget: find x with x_i = D_i. Proof: let D
    and D' differ in bit i and let E be the event that x_i rounds to D_i. If alpha < 1/2, then
    ``1 - beta <= P[M(D) in E] <= e^epsilon P[M(D') in E] + delta <= e^epsilon beta + delta``, because M(D')
    in E means a violation of at least 1/2. So beta >= (1 - delta)/(1 + e^epsilon). One constraint is enough
    for this; randomised response attains the boundary with n = 1. Swaps are not used. (With inequalities
    only: minimise x subject to x >= D_1; a solution within alpha of feasible and of optimal has
    |x - D_1| <= alpha.)

    ``"objective"``, Theorem 37: additive loss alpha n with alpha >= c2. Gadget: maximise sum D_i x_i with
    sum x_i = n/2, x in [0,1]^n, and D with n/2 zeros. The optimum n/2 is at x = D; a loss of alpha n puts
    mass alpha n on zeros and leaves as much of the ones empty: ``||D - x||_1 <= 2 alpha n``. Two records
    change in a swap. Theorem 35 gives 2 alpha >= c2, and with its stronger form alpha >= c2, as printed.
    Sharper (the value): maximise sum (D_i - 1/2) x_i over [0,1]^n. One flip moves one coefficient by 1, the loss is
    ``||D - x||_1 / 2``, hence ``alpha >= c(epsilon, delta, beta)``, with no group of two; randomised response
    attains it. It is never below c2.

    ``"column"``, Theorem 38: absolute violation alpha n with alpha >= c2. Gadget: find x in [0,1]^n with
    sum x_i = n/2 (public) and sum D_i x_i = n/2 (private), D with n/2 zeros. A violation of alpha n leaves
    alpha n of the ones empty, again ``||D - x||_1 <= 2 alpha n``, so alpha >= c2 by the stronger form of
    Theorem 35. One record owns one column. Copies of the constraint show that leaving some constraints out
    does not help.

    ``"row"``, ``"matrix"``: the same gadget, where one record owns the whole private row. The lower bound is for
    satisfying *every* constraint; all but a few can be satisfied (Theorems 11 and 12). Sharper (the value): D and its
    complement are now neighbours, and x within alpha n of both has
    ``n/2 - alpha n <= sum D_i x_i <= alpha n``. So alpha < 1/4 separates them, and by the argument of the
    scalar case alpha >= 1/4 if alive.

    ``part`` : ``"objective"``, ``"scalar"``, ``"row"``, ``"column"`` or ``"matrix"``.
    ``epsilon, delta, beta`` : as in `reconstruction_lower_bound`, per record, and delta at most 1.
    Of the result, ``as_printed`` is c2 (1/2 for scalar), and can be 0 while ``value`` is not. At epsilon = 1, delta =
    0, beta = .05 the objective has value .1152, as printed .0364.
    """
    if part not in _THEOREM:
        raise SpecificationError(f"unknown part {part!r}", remedy=f"one of {', '.join(_THEOREM)}")
    _check(epsilon, delta, beta)
    if delta > 1:
        raise SpecificationError(f"delta is {delta}", why="delta of one record lies in [0, 1]")
    u = math.exp(-epsilon)
    alive = beta * (1.0 + u) < (1.0 - delta) * u
    if part == "scalar":
        value = as_printed = 0.5 if alive else 0.0
    else:
        as_printed = _pair_lower_bound(epsilon, delta, beta)
        own = {"objective": reconstruction_lower_bound(epsilon, delta, beta), "column": as_printed}
        value = own.get(part, 0.25 if alive else 0.0)
    vacuous = value == 0.0
    return LowerBound(
        value=value,
        theorem=_THEOREM[part][0],
        statement=_statement(part, value, 1.0, vacuous),
        unit=_THEOREM[part][1],
        vacuous=vacuous,
        part=part,
        as_printed=as_printed,
    )


def impossibility_error(
    part: str,
    parameter: str,
    constraint: str,
    epsilon: float,
    delta: float,
    beta: float,
    reason: str,
    remedies: Sequence[Any],
    measured: bool = False,
) -> ImpossibilityError:
    """Build the error that refuses a program of an impossible cell (the caller raises it).

    ``part, epsilon, delta, beta`` : as in `lower_bound`, whose number for changes of 1 the message states.
    ``parameter`` : name of the private parameter. ``constraint`` : label of the constraint it enters, or
        ``"objective"``.
    ``reason`` : why the change counts as arbitrary; public facts only. ``remedies`` : of ``programs.remedies``.
    ``measured`` : the parameter is to be measured, and stands in no program of the user's.
    """
    least = lower_bound(part, epsilon, delta, beta)
    where = "the objective" if constraint == "objective" else f"constraint {constraint!r}"
    served = "cannot be measured" if measured else f"in {where} cannot be served"
    what = f"private parameter {parameter!r} {served} at epsilon={number(epsilon)}, delta={number(delta)}: {reason}"
    statement = least.statement
    if measured:  # each number is the solution of the gadget's x = D
        statement = statement.replace("the violation of every constraint", "the error of every number")
    why = f"{least.theorem} of {CITATION}: {statement}"
    if not least.vacuous:
        why += "; a change by B instead of 1 multiplies this by B, and no B is declared"
    return ImpossibilityError(
        what,
        theorem=least.theorem,
        citation=CITATION,
        parameter=parameter,
        constraint=constraint,
        lower_bound=least.value,
        remedies=remedies,
        why=why,
    )


def _pair_lower_bound(epsilon: float, delta: float, beta: float) -> float:
    """Return c(2 epsilon, delta (1 + e^epsilon), beta): the lower bound when a swap changes two records."""
    # Beyond 700 e^epsilon would overflow; then e^(-2 epsilon) is 0 in doubles, and so is the lower bound.
    if epsilon > 700:
        return 0.0
    return reconstruction_lower_bound(2.0 * epsilon, delta * (1.0 + math.exp(epsilon)), beta)


def _statement(part: str, value: float, sensitivity: float, vacuous: bool) -> str:
    if vacuous:
        return "the theorem gives no lower bound at this epsilon, delta and beta (it is vacuous here)"
    error, per = {
        "scalar": ("violation of every constraint", ""),
        "objective": ("loss in objective value", " n (n private coefficients)"),
        "column": ("violation of the private constraint", " n (n private columns)"),
    }.get(part, ("violation of every constraint", " n (n coefficients in the private row)"))
    return (
        f"if one record moves an entry by {number(sensitivity)}, no private mechanism keeps the {error} below "
        f"{number(value)}{per} with probability 1 - beta on all such programs"
    )


def _check(epsilon: float, delta: float, beta: float) -> None:
    for name, value, good, rule in (
        ("epsilon", epsilon, epsilon >= 0, "a number >= 0"),
        ("delta", delta, delta >= 0, "a number >= 0"),
        ("beta", beta, 0 <= beta < 1, "a probability in [0, 1)"),
    ):
        if not good:
            raise SpecificationError(f"{name} is {value}", why=f"{name} has to be {rule}")
