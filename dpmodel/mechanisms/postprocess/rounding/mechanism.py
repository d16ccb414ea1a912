"""Integers out of fitted ones, with the total or all constraints kept."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dpmodel._types import Floats, Integers
from dpmodel.compile.likelihood.postprocessing import LikelihoodForm
from dpmodel.errors import SpecificationError
from dpmodel.mechanisms.postprocess.rounding.nearest import largest_remainders, nearest_integer
from dpmodel.mechanisms.postprocess.rounding.unbiased import common, near_integer, one_partition, two_partitions
from dpmodel.privacy import public_generator

How = Literal["unbiased", "controlled"]


def round_total(x: Floats, *, how: How = "unbiased", seed: int = 0) -> Floats:
    """Integers whose total is the floor or ceiling of that of ``x``, (n,), and each the floor or ceiling of
    its own: at random, with the mean of each kept over ``seed``, or the nearest ("controlled"), earlier entries first.
    Post-processing: costs no privacy."""
    if how == "controlled":
        return largest_remainders(x)
    return one_partition(x, np.zeros(x.size, dtype=np.int64), 1, public_generator(seed))


def round_form(form: LikelihoodForm, x: Any, *, how: How = "unbiased", seed: int = 0) -> Floats:
    """Integers near x that meet all constraints of ``form``, which x meets. Post-processing: costs no privacy.

    Entries marked ``integer`` are rounded, or all where none is. ``x`` : (n,).

    ``how="unbiased"`` : every entry goes to its floor or ceiling and keeps its mean over ``seed``. For forms with
    whole bounds and either differences between entries only (chains), or sums with equal coefficients, at most two per
    entry, whose rows fall into two classes that do not overlap within (a two-way table, say) and the total besides; all
    entries whole. ``how="controlled"`` : the nearest whole point in sum |y - x|, for any linear constraints.

    Errors: SpecificationError where there is no unbiased way known, InfeasibleError where no whole point exists.
    """
    v = np.asarray(x, dtype=np.float64).ravel()
    if how not in ("unbiased", "controlled"):
        raise SpecificationError(f"how={how!r}", why='it is "unbiased" or "controlled"')
    if not np.isfinite(v).all():
        raise SpecificationError("entries that are not finite", why="they have no nearest integer")
    if v.size != form.size:
        raise SpecificationError(f"a point of {v.size} entries", why=f"the form has {form.size}")
    whole = form.integer if form.integer.any() else np.ones(v.size, dtype=bool)
    if how == "controlled":
        rows = sp.vstack([form.equality, form.inequality], format="csr")
        least = np.concatenate([form.equality_value, np.full(form.inequality_value.size, -np.inf)])
        most = np.concatenate([form.equality_value, form.inequality_value])
        return nearest_integer(v, rows, least, most, form.lower, form.upper, whole)
    if not whole.all():
        raise SpecificationError(
            "no unbiased rounding of some entries beside others that stay",
            why="sums of both",
            remedy=_instead(form),
        )
    return _unbiased(form, v, seed)


def _partitioned(x: Floats, labels: list[Integers], counts: list[int], seed: int) -> Floats:
    generator = public_generator(seed)
    if len(labels) == 2:
        return two_partitions(x, labels[0], labels[1], counts[0], counts[1], generator)
    if labels:
        return one_partition(x, labels[0], counts[0], generator)
    return one_partition(x, np.full(x.size, -1), 0, generator)


def _unbiased(form: LikelihoodForm, x: Floats, seed: int) -> Floats:
    rows = sp.csr_array(sp.vstack([form.equality, form.inequality], format="csr"))
    rows.sum_duplicates()
    rows.eliminate_zeros()
    counts = np.diff(rows.indptr)
    row = np.repeat(np.arange(counts.size), counts)
    scale = np.bincount(row, weights=np.abs(rows.data), minlength=counts.size) / np.maximum(counts, 1)
    scale = np.where(counts > 0, scale, 1.0)
    net = np.bincount(row, weights=rows.data, minlength=counts.size)
    if (np.abs(np.abs(rows.data) - scale[row]) > 1e-12 * scale[row]).any():
        raise _unknown(form, "the coefficients of a constraint differ")
    difference = (counts == 2) & (np.abs(net) < scale)
    _keeps(form, x, rows @ x / scale, scale)
    many = counts > 1
    if difference[many].all() and many.any():
        return common(x, public_generator(seed))
    if (difference & many).any() or (np.abs(np.abs(net) - scale * counts) > 1e-9 * scale * counts).any():
        raise _unknown(form, "sums and differences together")
    A = rows[np.flatnonzero(many)]
    touched = np.bincount(A.indices, minlength=x.size)
    if touched.max(initial=0) > 2:  # a total goes along with two partitions
        part = np.diff(A.indptr) < x.size
        A = A[np.flatnonzero(part)]
        touched = np.bincount(A.indices, minlength=x.size)
        if (touched != 2).any():
            raise _unknown(form, "an entry is in more than two sums")
    labels = _two_classes(form, A, x.size)
    return _partitioned(x, labels, [A.shape[0]] * len(labels), seed)


def _keeps(form: LikelihoodForm, x: Floats, sums: Floats, scale: Floats) -> None:
    """Refuse where the floor or the ceiling of an entry or sum is outside its bounds."""
    slack = 1e-6
    entry = near_integer(x)
    down, up = np.where(entry, np.rint(x), np.floor(x)), np.where(entry, np.rint(x), np.ceil(x))
    whole = near_integer(sums)
    low, high = np.where(whole, np.rint(sums), np.floor(sums)), np.where(whole, np.rint(sums), np.ceil(sums))
    p = form.equality_value.size
    most = np.concatenate([form.equality_value, form.inequality_value]) / scale
    reach = slack * np.maximum(1.0, np.abs(most))
    wrong = (high > most + reach) | ((np.arange(most.size) < p) & (low < most - reach))
    if wrong.any() or (down < form.lower - slack).any() or (up > form.upper + slack).any():
        raise SpecificationError(
            "floors and ceilings do not keep the bounds or constraints",
            why="a bound, total or limit is not an integer",
            remedy=_instead(form),
        )


def _two_classes(form: LikelihoodForm, A: sp.csr_array, n: int) -> list[Integers]:
    """Rows in two classes, neither overlapping itself: for each class the row that every entry is in, -1 for none."""
    r = A.shape[0]
    row = np.repeat(np.arange(r), np.diff(A.indptr))
    order = np.argsort(A.indices, kind="stable")
    var, row = A.indices[order], row[order]
    again = np.flatnonzero(var[1:] == var[:-1])
    one, two = row[again], row[again + 1]
    # Every row twice, once per class; entries tie a row in one class to its neighbour in the other.
    ends, others = np.concatenate([one, one + r]), np.concatenate([two + r, two])
    _, part = connected_components(sp.coo_array((np.ones(ends.size), (ends, others)), shape=(2 * r, 2 * r)), False)
    if (part[:r] == part[r:]).any():
        raise _unknown(form, "the sums overlap in a circle of odd length")
    second = part[:r] > part[r:]
    labels = []
    for chosen in (~second, second):
        label = np.full(n, -1, dtype=np.int64)
        here = chosen[row]
        label[var[here]] = row[here]
        labels.append(label)
    return labels if second.any() else labels[:1]


def _unknown(form: LikelihoodForm, why: str) -> SpecificationError:
    return SpecificationError(
        "no unbiased rounding is known that keeps these constraints", why=why, remedy=_instead(form)
    )


def _instead(form: LikelihoodForm) -> str:
    """What to do where no unbiased rounding is known: only what can succeed."""
    rows = form.equality.copy()
    rows.sum_duplicates()
    whole = rows.data == np.rint(rows.data)
    outside = near_integer(form.equality_value)
    count = np.diff(rows.indptr)
    all_integer = np.bincount(np.repeat(np.arange(count.size), count), weights=~whole, minlength=count.size) == 0
    fixed = (form.lower == form.upper) & ~near_integer(np.where(form.lower == form.upper, form.lower, 0.0))
    if (all_integer & ~outside).any() or fixed.any():
        return "whole known numbers (no integers sum to others), or no rounding"
    return "how='controlled'"
