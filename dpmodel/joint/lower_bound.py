"""What no jointly private release can do: a proved least loss, from public facts."""

from __future__ import annotations

import math


def least_loss(capacity: float, epsilon: float, delta: float) -> float:
    """Units of a resource's capacity that any jointly private release leaves unused, in the mean, on some data.

    Claim. People want one unit of a resource each, or none; one who gets x units of it values that x. ``capacity``
    (b, an integer) is public, and the release never hands out more than b. If it is (epsilon, delta)-jointly private,
    then for some number of people who want one, b or more, it hands out less than what it could by at least

        ``max over k of e^(-k epsilon) (k b / (b + k) - b d_k) / (1 + e^(-k epsilon) k / (b + k))``,

    in the mean, with ``d_k = delta (e^(k epsilon) - 1) / (e^epsilon - 1)``.

    Proof. Relabelling people at random changes neither privacy nor loss, so let the release treat people alike. Let D_0
    have a set S of b people who want a unit, and D_k the same and k people more; suppose that at most l is lost in the
    mean on each. Let Y be b less what S gets; Y lies in [0, b]. On D_0, ``E Y <= l``. On D_k each of the b + k gets
    at least ``(b - l) / (b + k)`` in the mean, so the k others get at least ``k (b - l) / (b + k)``, and S at most b
    less that: ``E Y >= k (b - l) / (b + k)``. What S gets is seen by a coalition without the k others, whose data are
    all that D_0 and D_k differ in: k changes of one record, so ``E_k Y <= e^(k epsilon) E_0 Y + b d_k``. Hence
    ``k (b - l) / (b + k) <= e^(k epsilon) l + b d_k``; solve for l. Where each of several resources has people of its
    own, as much is lost of each.
    """
    best = 0.0
    for k in range(1, max(2, math.ceil(4 / epsilon)) + 1):
        if k * epsilon > 30:
            break
        share = k / (capacity + k)
        group = delta * math.expm1(k * epsilon) / math.expm1(epsilon)
        shrink = math.exp(-k * epsilon)
        best = max(best, shrink * (share * capacity - capacity * group) / (1 + shrink * share))
    return best
