"""Which loss a sum of atoms is: the numbers of its affine parts decide, not the spelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpmodel.annotate.private import Private
from dpmodel.compile.affine_map import Floats
from dpmodel.compile.losses import Loss
from dpmodel.compile.regression_forms import unfit
from dpmodel.compile.regression_predictions import CLOSE, Affine, Read, close

_RESIDUAL = (
    "X @ w - y with the label as it is: declare a multiple of y as a Private of its own, or scale the coefficients, "
    "X @ (w / 2) - y"
)
_MARGIN = "cp.pos(1 - cp.multiply(y, X @ w)) and cp.logistic(-cp.multiply(y, X @ w)), with labels y of -1 and 1"


@dataclass(frozen=True)
class Match:
    """``sum_i weight_i loss(factor z_i + offset_i, y_i)``.

    ``weight`` (n,) non-negative; ``label`` : the private one, (n,) public ones, or None (all 1, for losses of signs);
    ``offset`` (n,) or None; ``factor`` multiplies the coefficients.
    """

    loss: Loss
    weight: Floats
    label: Private | Floats | None
    offset: Floats | None
    factor: float = 1.0


def match(reads: list[Read], label: Private | None) -> Match:
    """The loss whose sum the terms are.

    Raises
    ------
    UnsupportedModelError
        Naming the first term that does not fit.
    """
    names = {_family(read) for read in reads}
    if "logistic" in names:
        out = _logistic(reads, label)
    else:
        first = _family(reads[0])
        for read in reads[1:]:
            if not any(part.plain.any() or part.signed.any() for part in read.parts):
                unfit(read.term.expression, "a private number that no solution depends on", "an objective without it")
            if _family(read) != first:
                unfit(
                    read.term.expression,
                    "its loss differs from the loss of the terms before it",
                    "one loss for all records; public regularisers may be added freely",
                )
        for read in reads:
            if read.times_label:
                unfit(read.term.expression, "a private label multiplies the loss", "public weights")
        signed = any(part.signed.any() for read in reads for part in read.parts)
        out = {
            ("piecewise", False): _piecewise,
            ("piecewise", True): _hinge,
            ("squared_maximum", False): _hinge,
            ("squared_maximum", True): _hinge,
            ("squared", False): _squared,
            ("squared", True): _squared,
            ("huber", False): _huber,
            ("huber", True): _huber,
        }[first, signed](reads, label)
    if not (out.weight >= 0).all() or not out.weight.any():
        unfit(
            reads[0].term.expression,
            "the losses of some records have a negative weight (or all have weight 0)",
            "cp.Minimize of losses with non-negative weights",
        )
    return out


def _family(read: Read) -> str:
    atom, power = read.term.atom, read.term.power
    if power == 2:
        return "squared" if atom == "affine" else "squared_maximum"
    return "piecewise" if atom in ("affine", "abs", "maximum") else atom


def _offset(values: Floats) -> Floats | None:
    return values if values.any() else None


def _shift(reads: list[Read], label: Private | None) -> Floats:
    """(n,) the o for which every part is ``plain * (z + o - y)``."""
    count = reads[0].coefficient.size
    shift, known = np.zeros(count), np.zeros(count, dtype=bool)
    for read in reads:
        for part in read.parts:
            where = read.term.expression
            if part.signed.any():
                unfit(where, "the label multiplies the prediction in a loss of residuals", _RESIDUAL)
            if label is not None and not close(part.label, -part.plain):
                unfit(where, "prediction and label do not enter as a difference", _RESIDUAL)
            used = part.plain != 0
            if part.constant[~used].any():
                unfit(
                    where,
                    "it changes its slope where the residual is not 0",
                    "cp.abs, cp.pos and cp.maximum of multiples of one residual X @ w - y",
                )
            mine = np.divide(part.constant, part.plain, out=np.zeros(count), where=used)
            both = used & known
            if not close(mine[both], shift[both], float(np.abs(shift).max(initial=1.0))):
                unfit(where, "its residual is shifted against the others", "one residual X @ w - y in all terms")
            fresh = used & ~known
            shift[fresh] = mine[fresh]
            known |= used
    return shift


def _residual(loss: Loss, weight: Floats, shift: Floats, label: Private | None) -> Match:
    """A loss of ``z + shift - y``; without a private label the public numbers are the label."""
    if label is None:
        return Match(loss, weight, -shift + 0.0, None)
    return Match(loss, weight, label, _offset(shift))


def _squared(reads: list[Read], label: Private | None) -> Match:
    shift = _shift(reads, label)
    weight = sum((read.coefficient * read.parts[0].plain ** 2 for read in reads), np.zeros(shift.size))
    return _residual(Loss("squared"), weight, shift, label)


def _huber(reads: list[Read], label: Private | None) -> Match:
    """huber(a r, M) = a^2 huber(r, M / |a|)."""
    shift = _shift(reads, label)
    weight, thresholds = np.zeros(shift.size), []
    for read in reads:
        size = np.abs(read.parts[0].plain)
        used = size[(size > 0) & (read.coefficient != 0)]
        if used.size and not close(used, used[0]):
            unfit(read.term.expression, "records have different thresholds", "weights outside of cp.huber")
        if used.size:
            thresholds.append(read.term.threshold / float(used[0]))
        weight = weight + read.coefficient * size**2
        if thresholds and (not close(thresholds[-1], thresholds[0]) or thresholds[-1] <= 0):
            unfit(read.term.expression, "one positive threshold M for all records is needed", "cp.huber(X @ w - y, M)")
    return _residual(Loss("huber", thresholds[0] if thresholds else 1.0), weight, shift, label)


def _piecewise(reads: list[Read], label: Private | None) -> Match:
    """Sums of kinks at one point: right slope a, left slope -b. Absolute, quantile, or one-sided (hinge)."""
    shift = _shift(reads, label)
    right, left = np.zeros(shift.size), np.zeros(shift.size)
    for read in reads:
        slopes = np.stack([part.plain for part in read.parts])
        if read.term.atom == "abs":
            slopes = np.concatenate([slopes, -slopes])
        right = right + read.coefficient * slopes.max(axis=0)
        left = left + read.coefficient * slopes.min(axis=0)
    size = float(max(np.abs(right).max(), np.abs(left).max()))
    right[np.abs(right) <= CLOSE * size] = 0.0
    left[np.abs(left) <= CLOSE * size] = 0.0
    where = reads[0].term.expression
    if (right < 0).any() or (left > 0).any():
        unfit(where, "the loss does not grow on both sides of residual 0", "weights of which tau is in (0, 1)")
    weight = right - left
    used = weight > 0
    if not used.any():
        unfit(where, "all losses have weight 0", "positive weights")
    tau = -left[used] / weight[used]
    if close(tau, tau[0], 1.0) and 0 < tau[0] < 1:
        if abs(tau[0] - 0.5) <= CLOSE:
            return _residual(Loss("absolute"), weight / 2, shift, label)
        return _residual(Loss("quantile", float(tau[0])), weight, shift, label)
    if label is None and np.isin(tau, (0.0, 1.0)).all():
        return _one_sided("hinge", right > 0, weight, shift)
    return unfit(
        where,
        "the slopes on the two sides of residual 0 are no quantile level strictly between 0 and 1, the same for all",
        "tau * cp.pos(y - X @ w) + (1 - tau) * cp.pos(X @ w - y)",
    )


def _one_sided(name: Any, rising: np.ndarray, weight: Floats, shift: Floats) -> Match:
    """``weight pos(+-(z + shift))`` is ``weight pos(1 - s (z + o))`` with s = -+1 and o = shift + s."""
    signs = np.where(rising, -1.0, 1.0)
    return Match(Loss(name), weight, None if (signs == 1).all() else signs, _offset(shift + signs))


def _hinge(reads: list[Read], label: Private | None) -> Match:
    name = "hinge" if reads[0].term.power == 1 else "squared_hinge"
    weight: Floats | None = None
    found: list[tuple[Floats, Floats]] = []
    for read in reads:
        where = read.term.expression
        parts = [part for part in read.parts if not part.is_zero]
        if read.term.atom != "maximum" or len(parts) != 1 or len(read.parts) < 2:
            unfit(where, "a hinge is the positive part of one margin", _MARGIN)
        part = parts[0]
        if label is None or not part.signed.any():
            if label is not None or part.label.any() or not (part.plain != 0).all():
                unfit(where, "its argument is no margin", _MARGIN)
            mine = read.coefficient * np.abs(part.plain) ** read.term.power
            shift = part.constant / part.plain
            found.append((np.sign(part.plain), shift))
        else:
            if part.plain.any() or not (part.constant > 0).all():
                unfit(where, "its argument is no margin", _MARGIN)
            turn = part.signed / part.constant
            if not close(np.abs(turn), 1.0) or not close(turn, turn[0]):
                unfit(where, "the margin that a hinge asks for is 1, in units of the prediction", _MARGIN)
            mine = read.coefficient * part.constant**read.term.power
            found.append((np.sign(part.signed), part.label / part.signed))
        if not (close(found[-1][0], found[0][0]) and close(found[-1][1], found[0][1], 1.0)):
            unfit(where, "its margin differs from the others", "one margin in all terms")
        weight = mine if weight is None else weight + mine
    assert weight is not None
    signs, shift = found[0]
    if label is None:
        return _one_sided(name, signs > 0, weight, shift)
    # 1 + y z is the margin of the opposite prediction.
    factor = -float(signs[0])
    return Match(Loss(name), weight, label, _offset(factor * shift), factor)  # type: ignore[arg-type]


def _logistic(reads: list[Read], label: Private | None) -> Match:
    atoms = [read for read in reads if read.term.atom == "logistic"]
    for read in reads:
        if read.term.atom not in ("logistic", "affine") or read.term.power != 1:
            unfit(
                read.term.expression,
                "its loss differs from the logistic loss of other terms",
                "one loss for all records; public regularisers may be added freely",
            )
    if any(read.parts[0].signed.any() for read in atoms):
        return _logistic_of_signs(reads, label)
    return _logistic_of_zeros_and_ones(reads, atoms, label)


def _logistic_of_signs(reads: list[Read], label: Private | None) -> Match:
    """logistic(-y (z + o) a)."""
    first, weight = reads[0].parts[0], np.zeros(reads[0].coefficient.size)
    for read in reads:
        part, where = read.parts[0], read.term.expression
        if read.term.atom != "logistic" or read.times_label or part.plain.any() or part.constant.any():
            unfit(where, "with labels of -1 and 1 only the margin y * (X @ w) enters, and nothing is added", _MARGIN)
        if not close(part.signed, first.signed[0]) or not close(part.label, first.label):
            unfit(where, "its margin is scaled or shifted unlike the others", "one margin for all records")
        weight = weight + read.coefficient
    factor = -float(first.signed[0])
    return Match(Loss("logistic"), weight, label, _offset(-first.label), factor)


def _logistic_of_zeros_and_ones(reads: list[Read], atoms: list[Read], label: Private | None) -> Match:
    """W logistic(u) + V y logistic(u) + affine parts, u = a (z + o): logistic(-u) is logistic(u) - u."""
    count = reads[0].coefficient.size
    only_atoms = len(atoms) == len(reads) and label is None and len(atoms) == 1
    lead = atoms[0].parts[0]
    if only_atoms:
        return _logistic_of_public_signs(atoms[0])
    size = np.abs(lead.plain)
    if not close(size, size[0]) or size[0] == 0:
        unfit(atoms[0].term.expression, "records have predictions of different scale", "weights outside cp.logistic")
    scale = float(size[0])
    shift = lead.constant * np.sign(lead.plain)
    # Coefficients of: logistic(u), y logistic(u), z, y z, 1, y; and of y^2 and y^2 z, which must vanish.
    total = {name: np.zeros(count) for name in ("log", "ylog", "z", "yz", "one", "y", "yy", "yyz")}
    for read in reads:
        part, c, where = read.parts[0], read.coefficient, read.term.expression
        by = ("ylog", "yz", "yyz", "y", "yy") if read.times_label else ("log", "z", "yz", "one", "y")
        if read.term.atom == "logistic":
            sign = np.sign(part.plain)
            same = close(np.abs(part.plain), scale) and close(part.constant * sign, shift, 1.0)
            if part.label.any() or part.signed.any() or not same:
                unfit(where, "its argument is no multiple by 1 or -1 of one prediction", "cp.logistic(X @ w)")
            total[by[0]] += c
            falling = np.where(sign < 0, c, 0.0)
            total[by[1]] -= scale * falling
            total[by[3]] -= shift * falling
        else:
            total[by[1]] += c * part.plain
            total[by[2]] += c * part.signed
            total[by[3]] += c * part.constant
            total[by[4]] += c * part.label
    where = next((r.term.expression for r in reads if r.term.atom == "affine"), atoms[0].term.expression)
    weight = total["log"]
    unit = float(np.abs(weight).max())
    zeros = [total[name] for name in ("ylog", "yy", "yyz")]
    offset = _offset(shift)
    if label is not None:
        zeros += [total["z"], total["one"]]
        fits = close(total["yz"], -scale * weight) and close(total["y"], -shift * weight, unit)
        out = Match(Loss("binary_logistic"), weight, label, offset, scale)
    else:
        zeros += [total["y"], total["yz"]]
        used = weight != 0
        public = np.divide(-total["z"], scale * weight, out=np.zeros(count), where=used)
        fits = close(total["one"], -shift * weight * public, unit) and not total["z"][~used].any()
        fits = fits and public.min() >= -CLOSE and public.max() <= 1 + CLOSE
        out = Match(Loss("binary_logistic"), weight, np.clip(public, 0.0, 1.0), offset, scale)
    if not fits or any(float(np.abs(z).max()) > CLOSE * unit * max(scale, 1.0) for z in zeros):
        unfit(
            where,
            "beside cp.logistic(X @ w) only the label times the same prediction is subtracted",
            "cp.sum(cp.logistic(X @ w) - cp.multiply(y, X @ w)) for labels 0 and 1; " + _MARGIN,
        )
    return out


def _logistic_of_public_signs(read: Read) -> Match:
    """logistic(c z + d) is logistic(-s (|c| z + o)) with s = -sign(c) and o = sign(c) d."""
    part: Affine = read.parts[0]
    size = np.abs(part.plain)
    if not close(size, size[0]) or size[0] == 0:
        unfit(read.term.expression, "records have predictions of different scale", "weights outside cp.logistic")
    if read.times_label:
        unfit(read.term.expression, "a private label multiplies the loss", "public weights")
    signs = -np.sign(part.plain)
    offset = _offset(-signs * part.constant)
    return Match(Loss("logistic"), read.coefficient, None if (signs == 1).all() else signs, offset, float(size[0]))
