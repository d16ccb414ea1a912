"""Which loss a sum of atoms is: the numbers of its affine parts decide, not the spelling."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import users_line
from dpmodel.regressions.features import Features, Label
from dpmodel.regressions.losses import Loss, LossName
from dpmodel.regressions.monomials import WEIGHTS, unfit
from dpmodel.regressions.predictions import CLOSE, Affine, Read, close

_RESIDUAL = "one residual in all terms: X @ w - y, or with the same public multiple of the label, X @ w - 2 * y"
_MARGIN = (
    "cp.pos(1 - cp.multiply(y, X @ w)) and cp.logistic(-cp.multiply(y, X @ w)), with labels y of -1 and 1 (2 * t - 1 "
    "for labels t of 0 and 1)"
)


@dataclass(frozen=True)
class Match:
    """``sum_i weight_i loss(factor z_i + offset_i, y_i)``.

    ``weight`` (n,) non-negative; ``label`` : the private one, (n,) public ones, or None (all 1, for losses of signs);
    ``offset`` (n,) or None; ``factor`` multiplies the coefficients. ``up_to_constant`` : the terms differ from it by a
    number that no solution depends on.
    """

    loss: Loss
    weight: Floats
    label: Label | Floats | None
    offset: Floats | None
    factor: float = 1.0
    up_to_constant: bool = False


def match(reads: list[Read], label: Features | None) -> Match:
    """The loss whose sum the terms are.
    Errors: UnsupportedModelError, naming the first term that does not fit."""
    reads = _joined(reads)
    names = {_family(read) for read in reads}
    if "logistic" in names:
        out = _logistic(reads, label)
    elif names == {"squared", "piecewise"} and all(r.term.atom == "affine" for r in reads):
        out = _expanded_squares(reads, label)
    else:
        first = _family(reads[0])
        for read in reads[1:]:
            _refuse_idle(read)
            if _family(read) != first:
                unfit(
                    read.term.expression,
                    "its loss differs from the loss of the terms before it",
                    "one loss for all records; public regularisers may be added freely",
                )
        for read in reads:
            if read.times_label:
                unfit(read.term.expression, "a private label multiplies the loss", WEIGHTS)
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


def _joined(reads: list[Read]) -> list[Read]:
    """Terms of different records (weight 0 for the others) are one term where they are of one kind."""
    out: dict[Any, Read] = {}
    for number, read in enumerate(reads):
        live = read.coefficient != 0
        term = read.term
        key = term.atom, term.power, term.threshold, read.times_label, len(read.parts)
        known = out.get(key)
        if live.all() or (known is not None and (known.coefficient[live] != 0).any()):
            out[number] = read
        elif known is None:
            out[key] = read
        else:
            mixed = tuple(_where(live, new, old) for new, old in zip(read.parts, known.parts, strict=True))
            out[key] = replace(known, coefficient=known.coefficient + read.coefficient, parts=mixed)
    return list(out.values())


def _where(live: np.ndarray, new: Affine, old: Affine) -> Affine:
    names = ("plain", "signed", "label", "constant")
    return Affine(*(np.where(live, getattr(new, name), getattr(old, name)) for name in names))


def _refuse_idle(read: Read) -> None:
    if not any(part.plain.any() or part.signed.any() for part in read.parts):
        unfit(read.term.expression, "a private number that no solution depends on", "an objective without it")


def _family(read: Read) -> str:
    atom, power = read.term.atom, read.term.power
    if power == 2:
        return "squared" if atom == "affine" else "squared_maximum"
    return "piecewise" if atom in ("affine", "abs", "maximum") else atom


def _offset(values: Floats) -> Floats | None:
    return values if values.any() else None


@dataclass(frozen=True)
class _Residual:
    """z + shift - multiple * label: (n,) public numbers."""

    shift: Floats
    multiple: Floats

    def match(self, loss: Loss, weight: Floats, label: Features | None, up_to_constant: bool = False) -> Match:
        """A loss of it; without a private label the public numbers are the label."""
        if label is None:
            return Match(loss, weight, -self.shift + 0.0, None, up_to_constant=up_to_constant)
        first = self.multiple[0]
        multiple = np.asarray(first) if close(self.multiple, first) else self.multiple
        found = Label(label, multiple, np.zeros(()))
        return Match(loss, weight, found, _offset(self.shift), up_to_constant=up_to_constant)


def _residual(reads: list[Read], label: Features | None) -> _Residual:
    """The residual r for which every part is ``plain * r``."""
    count = reads[0].coefficient.size
    shift, multiple, known = np.zeros(count), np.zeros(count), np.zeros(count, dtype=bool)
    for read in reads:
        for part in read.parts:
            where = read.term.expression
            if part.signed.any():
                unfit(where, "the label multiplies the prediction in a loss of residuals", _RESIDUAL)
            used = part.plain != 0
            if part.label[~used].any():
                unfit(where, "prediction and label do not enter as a difference", _RESIDUAL)
            if part.constant[~used].any():
                unfit(
                    where,
                    "it changes its derivative where the residual is not 0",
                    "cp.abs, cp.pos and cp.maximum of multiples of one residual X @ w - y",
                )
            mine, times = (
                np.divide(top, part.plain, out=np.zeros(count), where=used) for top in (part.constant, -part.label)
            )
            both = used & known
            if not close(times[both], multiple[both]):
                unfit(where, "prediction and label do not enter as the same difference as in the others", _RESIDUAL)
            if not close(mine[both], shift[both], float(np.abs(shift).max(initial=1.0))):
                unfit(where, "its residual is shifted against the others", "one residual X @ w - y in all terms")
            fresh = used & ~known
            shift[fresh], multiple[fresh] = mine[fresh], times[fresh]
            known |= used
    if label is not None and not multiple.any():
        unfit(reads[0].term.expression, "the label does not stand beside the prediction", _RESIDUAL)
    if known.any():  # records of weight 0
        multiple[~known] = multiple[known][0]
    return _Residual(shift, multiple)


def _squared(reads: list[Read], label: Features | None) -> Match:
    residual = _residual(reads, label)
    return residual.match(Loss("squared"), _squares(reads), label)


def _squares(reads: list[Read]) -> Floats:
    return sum((r.coefficient * r.parts[0].plain ** 2 for r in reads), np.zeros(reads[0].coefficient.size))


def _expanded_squares(reads: list[Read], label: Features | None) -> Match:
    """Squares beside affine terms: ``a r^2 + b z + c y z`` is ``a (r + (b + c y) / (2 a))^2`` less what no solution
    depends on."""
    for read in reads:
        _refuse_idle(read)
    squares = [read for read in reads if read.term.power == 2]
    own = label if any(read.parts[0].label.any() for read in squares) else None
    residual, weight = _residual(squares, own), _squares(squares)
    count, where = weight.size, next(read.term.expression for read in reads if read.term.power == 1)
    plain, signed = np.zeros(count), np.zeros(count)
    for read in reads:
        part = read.parts[0]
        if read.term.power == 1 and not read.times_label:
            plain, signed = plain + read.coefficient * part.plain, signed + read.coefficient * part.signed
        elif not read.times_label and not part.signed.any():
            continue
        elif read.term.power == 1 and not part.signed.any():
            signed = signed + read.coefficient * part.plain
        else:
            unfit(read.term.expression, "the label multiplies a loss or itself", _RESIDUAL)
    used = weight != 0
    if plain[~used].any() or signed[~used].any():
        unfit(where, "it holds records whose prediction is squared nowhere", "one loss for all records")
    half = np.divide(0.5, weight, out=np.zeros(count), where=used)
    out = _Residual(residual.shift + half * plain, residual.multiple - half * signed)
    return out.match(Loss("squared"), weight, label if out.multiple.any() else None, up_to_constant=True)


def _huber(reads: list[Read], label: Features | None) -> Match:
    """huber(a r, M) = a^2 huber(r, M / |a|)."""
    residual = _residual(reads, label)
    weight, thresholds = np.zeros(residual.shift.size), []
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
    return residual.match(Loss("huber", thresholds[0] if thresholds else 1.0), weight, label)


def _piecewise(reads: list[Read], label: Features | None) -> Match:
    """Sums of kinks at one point: right derivative a, left derivative -b. Absolute, quantile, or one-sided."""
    reads, before = [_without_label(read) for read in reads], reads
    constant = any(new is not old for new, old in zip(reads, before, strict=True))
    residual = _residual(reads, label)
    right, left = np.zeros(residual.shift.size), np.zeros(residual.shift.size)
    for read in reads:
        derivatives = np.stack([part.plain for part in read.parts])
        if read.term.atom == "abs":
            derivatives = np.concatenate([derivatives, -derivatives])
        right = right + read.coefficient * derivatives.max(axis=0)
        left = left + read.coefficient * derivatives.min(axis=0)
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
    if label is None and np.isin(tau, (0.0, 1.0)).all():
        return _one_sided("hinge", right > 0, weight, residual.shift)
    if close(tau, tau[0], 1.0):
        if abs(tau[0] - 0.5) <= CLOSE:
            return residual.match(Loss("absolute"), weight / 2, label, constant)
        return residual.match(Loss("quantile", float(tau[0])), weight, label, constant)
    return unfit(
        where,
        "the derivatives on the two sides of residual 0 are not of one quantile level, the same for all",
        "tau * cp.pos(y - X @ w) + (1 - tau) * cp.pos(X @ w - y)",
    )


def _without_label(read: Read) -> Read:
    """A maximum of the label (or what is made of it) and something is the label plus a maximum of 0 and the rest: what
    is sold, ``min(x, y)``, is ``y - (y - x)_+``. No solution depends on the label alone."""
    alone = [part for part in read.parts if not part.plain.any() and part.label.any()]
    if read.term.atom != "maximum" or not alone:
        return read
    parts = (Affine(p.plain, p.signed, p.label - alone[0].label, p.constant - alone[0].constant) for p in read.parts)
    return replace(read, parts=tuple(parts))


def _one_sided(name: Any, rising: np.ndarray, weight: Floats, shift: Floats) -> Match:
    """``weight pos(+-(z + shift))`` is ``weight pos(1 - s (z + o))`` with s = -+1 and o = shift + s."""
    signs = np.where(rising, -1.0, 1.0)
    return Match(Loss(name), weight, None if (signs == 1).all() else signs, _offset(shift + signs))


def _hinge(reads: list[Read], label: Features | None) -> Match:
    """``(m - s (z + o))_+`` is ``m (1 - s / m (z + o))_+``; s is a multiple of the label, or of the label recoded."""
    name = "hinge" if reads[0].term.power == 1 else "squared_hinge"
    weight: Floats | None = None
    found: list[tuple[Floats, ...]] = []
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
            found.append((np.sign(part.plain), part.constant / part.plain))
        else:
            if not part.signed.all():
                unfit(where, "its argument is no margin", _MARGIN)
            shift = part.label / part.signed
            requested = part.constant - part.plain * shift  # the margin, which is the unit
            if not (requested > 0).all():
                unfit(where, "the margin that a hinge asks for is not positive", _MARGIN)
            signed, plain = part.signed / requested, part.plain / requested
            if not (close(signed, signed[0]) and close(plain, plain[0], float(np.abs(signed[0])))):
                unfit(where, "the margin is not the same for all records, in units of the prediction", _MARGIN)
            mine = read.coefficient * requested**read.term.power
            found.append((signed, plain, shift))
        same = zip(found[-1], found[0], strict=False)
        if len(found[-1]) != len(found[0]) or not all(close(a, b, 1.0) for a, b in same):
            unfit(where, "its margin differs from the others", "one margin in all terms")
        weight = mine if weight is None else weight + mine
    assert weight is not None
    if label is None:
        return _one_sided(name, found[0][0] > 0, weight, found[0][1])
    signed, plain, shift = found[0]
    return _signs(name, weight, label, float(signed[0]), float(plain[0]), shift, reads[0])  # type: ignore[arg-type]


def _signs(
    name: LossName, weight: Floats, label: Features, signed: float, plain: float, shift: Floats, read: Read
) -> Match:
    """A loss of the margin ``-(plain + signed y) (z + shift)``: y itself is the sign, or ``plain + signed y`` with its
    declared range scaled to end at 1 or -1."""
    if abs(plain) <= CLOSE * abs(signed):
        if min(float(np.min(end)) for end in label.column_range) >= 0:
            warnings.warn(
                f"{label.name()} is declared to be 0 or more and multiplies the prediction, as labels of -1 and 1 do: "
                "a record with label 0 has the same loss whatever the coefficients are. Write 2 * y - 1 in its place",
                stacklevel=users_line(),
            )
        sign, factor = Label(label, np.ones(()), np.zeros(())), -signed  # below 0: the opposite prediction's margin
    else:
        ends = [abs(plain + signed * float(end[0])) for end in label.column_range]
        factor = max(ends)
        if not math.isfinite(factor) or factor == 0:
            unfit(
                read.term.expression,
                f"{label.name()} is recoded as a sign, and its declared range does not say of which size",
                "bounds=[0, 1] for a label t that enters as 2 * t - 1",
            )
        sign = Label(label, np.asarray(-signed / factor), np.asarray(-plain / factor), limits=(-1.0, 1.0))
    return Match(Loss(name), weight, sign, _offset(factor * shift), factor)


def _logistic(reads: list[Read], label: Features | None) -> Match:
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


def _logistic_of_signs(reads: list[Read], label: Features | None) -> Match:
    """logistic((plain + signed y) (z + o))."""
    first, weight = reads[0].parts[0], np.zeros(reads[0].coefficient.size)
    for read in reads:
        part, where = read.parts[0], read.term.expression
        if read.term.atom != "logistic" or read.times_label or not part.signed.all():
            unfit(where, "with labels of -1 and 1 only the margin y * (X @ w) enters, and nothing is added", _MARGIN)
        size = float(np.abs(part.signed).max())
        shift = part.label / part.signed
        if not close(part.constant, part.plain * shift, size * max(1.0, float(np.abs(shift).max()))):
            unfit(where, "with labels of -1 and 1 only the margin y * (X @ w) enters, and nothing is added", _MARGIN)
        same = close(part.signed, first.signed[0]) and close(part.plain, first.plain[0], size)
        if not same or not close(part.label, first.label, size):
            unfit(where, "its margin is scaled or shifted unlike the others", "one margin for all records")
        weight = weight + read.coefficient
    assert label is not None
    shift = first.label / first.signed
    return _signs("logistic", weight, label, float(first.signed[0]), float(first.plain[0]), shift, reads[0])


def _logistic_of_zeros_and_ones(reads: list[Read], atoms: list[Read], label: Features | None) -> Match:
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
    if unit == 0:
        unfit(where, "all losses have weight 0", "positive weights")
    if label is not None:
        first = int(np.argmax(weight))
        a, b = (float(-total[name][first] / (scale * unit)) for name in ("yz", "z"))  # the label is a y + b
        wanted = (("yz", scale * a), ("z", scale * b), ("y", shift * a), ("one", shift * b))
        fits = all(close(total[name], -size * weight, unit) for name, size in wanted)
        ends = sorted(a * float(end[0]) + b for end in label.column_range)
        turned = close((a, b), (-1, 1))  # 1 - y for this prediction is y for the opposite one
        if turned or close((a, b), (1, 0)):
            found = Label(label, np.ones(()), np.zeros(()))
        else:
            fits = fits and max(abs(ends[0]), abs(ends[1] - 1)) <= CLOSE
            found = Label(label, np.asarray(a), np.asarray(b), limits=(0.0, 1.0))
        way = -1.0 if turned else 1.0
        out = Match(Loss("binary_logistic"), weight, found, _offset(way * shift), way * scale)
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
        unfit(read.term.expression, "a private label multiplies the loss", WEIGHTS)
    signs = -np.sign(part.plain)
    offset = _offset(-signs * part.constant)
    return Match(Loss("logistic"), read.coefficient, None if (signs == 1).all() else signs, offset, float(size[0]))
