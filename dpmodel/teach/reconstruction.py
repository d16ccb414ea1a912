"""The attack: read the bits off a solution. And randomised response, which concedes no more than it must."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dpmodel.errors import SpecificationError
from dpmodel.exact.arguments import is_integer, is_real
from dpmodel.privacy import noise_source, validate_privacy
from dpmodel.teach.lower_bounds import Bits, Gadget, checked_bits, solution_vector
from dpmodel.text import array_text, number


@dataclass(frozen=True)
class Reconstruction:
    """What an attacker makes of a solution.

    ``bits`` : (n,) the guess. ``share`` : share of the true bits that it gets right, None if no truth was given.
    Guessing without data gets 1/2 on average.
    """

    bits: Bits
    share: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"bits": self.bits.tolist(), "share": self.share}

    def __str__(self) -> str:
        right = "" if self.share is None else f", {number(100 * self.share)}% of them right"
        return f"{self.bits.size} bits{right}: {array_text(self.bits)}"


def reconstruct(
    solved: Any, solution: Any = None, *, truth: Any = None, ones: int | None = None, half: float | None = None
) -> Reconstruction:
    """Guess the database from a solution, by deterministic rounding (proofs of Theorems 36 to 38 of HRRU14).

    It uses the solution and public facts only; private values and the bits of a gadget stay unread. A solution
    of a gadget with error 0 gives every bit.

    Where the number of ones is public (the balanced gadgets), the ``ones`` largest entries become 1, among equal
    ones those of lower index. For a solution in [0,1]^n with sum n/2 this is a nearest database with n/2 ones in
    the 1-norm, and so at most twice as far from the true one as the solution is. Elsewhere an entry above ``half``
    becomes 1. Rounding at random, as in the proof of the sharper Theorem 35, is not needed to attack. Against noisy
    solutions this is *an* attack and not the best one; what the best can do is bounded by the guarantee.

    Parameters
    ----------
    solved : a `Gadget` or a solved ``Problem`` (dpmodel's or CVXPY's) with one vector variable, whose value is
        attacked; or the solution itself, an array (n,) or a ``cvxpy.Variable``.
    solution : (n,) with a gadget: attack this solution instead, e.g. ``gadget.solve_without_privacy()``.
    truth : (n,) the true bits, to be compared with.
    ones : public number of ones; a gadget knows it.
    half : the value between a zero and a one; a gadget knows it, otherwise 1/2.

    Raises
    ------
    SpecificationError
        If nothing was solved yet, or shapes, ``ones``, ``half`` or ``truth`` are wrong.
    """
    size = None
    if isinstance(solved, Gadget):
        size, ones = solved.n, solved.ones if ones is None else ones
        half = solved.half if half is None else half
        x = solved.variable.value if solution is None else solution
    elif solution is not None:
        raise SpecificationError("a solution besides something that is no gadget", remedy="reconstruct(solution)")
    else:
        x = _value(solved)
    if x is None:
        raise SpecificationError(
            "there is no solution to reconstruct from",
            why="the problem is not solved, or its solution was refused",
            remedy="problem.solve(epsilon=...) first, or reconstruct(gadget, gadget.solve_without_privacy())",
        )
    point = solution_vector(x, size)
    half = 0.5 if half is None else half
    if not is_real(half):
        raise SpecificationError(f"half={half!r}", remedy="a finite number between the values of a zero and a one")
    if ones is None:
        bits = (point > half).astype(np.int8)
    elif not is_integer(ones, 0) or ones > point.size:
        raise SpecificationError(f"ones={ones!r}", remedy=f"an integer from 0 to {point.size}")
    else:
        bits = np.zeros(point.size, dtype=np.int8)
        bits[np.argsort(-point, kind="stable")[:ones]] = 1
    share = None if truth is None else float(np.mean(bits == checked_bits(truth, n=point.size)))
    return Reconstruction(bits, share)


def randomised_response(bits: Any, epsilon: float, *, rng: Any = None) -> Bits:
    """Release every bit, each told truly with probability ``e^epsilon / (1 + e^epsilon)``.

    Source
        Warner 1965. It attains the stronger constant of Theorem 35, ``2 c(epsilon, 0, beta)`` as n grows and beta
        tends to 0 (`classify.impossibility.reconstruction_lower_bound`).
    Privacy
        epsilon-DP, one record being one bit (flip): the bits are drawn apart from each other, and either answer
        has probability ``e^epsilon / (1 + e^epsilon)`` or ``1 / (1 + e^epsilon)``, a ratio of e^epsilon. It is
        drawn as a noisy maximum with Gumbel noise over the scores ``(1 - D_i, D_i)`` at scale ``1 / epsilon``,
        rounded up: the probabilities are in proportion to ``exp(score / scale)``. (The general bound for such a
        maximum would ask for twice the scale, because it must allow any scores.)
    Utility
        The number of wrong bits is binomial with probability ``1 / (1 + e^epsilon)``.
    Cost
        One draw per bit: meant for small n.

    Parameters
    ----------
    bits : (n,) zeros and ones.
    epsilon : > 0.
    rng : None for private noise; an int or Generator for tests, which is not private; or a source of noise.

    Returns
    -------
    array (n,)
    """
    database, source = checked_bits(bits), noise_source(rng)
    scale = math.nextafter(1.0 / validate_privacy(epsilon, 0.0).epsilon, math.inf)
    told = [source.noisy_max([1.0 - bit, float(bit)], scale, kind="exponential") for bit in database]
    return np.array(told, dtype=np.int8)


def _value(solved: Any) -> Any:
    if isinstance(solved, cp.Problem):
        variables = solved.variables()
        if len(variables) != 1:
            raise SpecificationError(
                f"a problem with {len(variables)} variables",
                why="the attack needs to know which numbers stand for bits",
                remedy="pass the value of one vector variable",
            )
        return variables[0].value
    return solved.value if isinstance(solved, cp.Variable) else solved
