"""How far one person moves what is computed from a table: the sensitivities of ``Dataset``, with their proofs.

A person owns at most k rows after contribution bounding, and which rows those are is a function of the person's own
rows alone. Under "add-remove" a person's rows come or go, under "replace-one" they are replaced by other rows, at most
k too. What a person contributes to the cells of a table is a vector u; neighbors move the table by u, or by u - u'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpmodel.annotate.records import Neighbors


@dataclass(frozen=True)
class Move:
    """Bounds on how far one record moves an array, in three norms; they are attained unless said otherwise."""

    l1: float
    l2: float
    linf: float


def of_counts(rows: int, cells: int, neighbors: Neighbors) -> Move:
    """Counts of rows in ``cells`` disjoint cells, k = ``rows`` a person.

    u >= 0 with ||u||_1 <= k, so every norm of u is at most k, which k rows in one cell attain. ||u - u'|| is convex in
    both, so the largest is at vertices k e_i, k e_j: k in linf, and for i != j 2k in l1 and sqrt(2) k in l2.
    """
    return of_sums(rows, 0.0, 1.0, cells, neighbors)


def of_distinct(most: int, cells: int, neighbors: Neighbors) -> Move:
    """Counts of people: a person adds 1 to at most k = ``most`` cells.

    u in {0, 1}^cells with at most k ones; u - u' has entries in {-1, 0, 1}, at most 2k of them not zero, and no more
    than there are cells.
    """
    moved = min(most if neighbors == "add-remove" else 2 * most, cells)
    return Move(moved, math.sqrt(moved), 1.0)


def of_sums(rows: int, low: float, high: float, cells: int, neighbors: Neighbors) -> Move:
    """Sums in ``cells`` disjoint cells of values in [low, high], k = ``rows`` a person.

    With a = min(low, 0) and b = max(high, 0) (a row may be absent), u lies in the convex hull of {k a e_i, k b e_i}.
    Norms are convex, so the largest ||u|| is k max(-a, b), and the largest ||u - u'|| is at vertices: k (b - a) within
    one cell, and with M = max(-a, b) across two cells 2 k M in l1 and sqrt(2) k M in l2.
    """
    a, b = min(low, 0.0), max(high, 0.0)
    largest, within = rows * max(-a, b), rows * (b - a)
    if neighbors == "add-remove":
        return Move(largest, largest, largest)
    if cells == 1:
        return Move(within, within, within)
    return Move(2 * largest, max(math.sqrt(2) * largest, within), within)


def of_thresholds(rows: int, thresholds: int) -> Move:
    """Numbers of rows with a value of at most t, for every threshold t, k = ``rows`` a person.

    Every entry of u is in [0, k], and so every entry of u and of u - u' moves by at most k; k rows below all thresholds
    (against none, or k rows above all) move all of them by k.
    """
    return Move(rows * thresholds, rows * math.sqrt(thresholds), rows)


def of_shares(rows: int, width: float, cells: int, neighbors: Neighbors) -> Move:
    """In each of ``cells`` disjoint cells the sums of v - low and of high - v, for v in bounds of this width, k =
    ``rows`` a person.

    A row adds v - low >= 0 to one entry of its cell and high - v >= 0 to the other, together the width: the
    contributions of a row are the hull of those of a row at the lower and one at the upper end, which are the width
    times a count in one of 2 ``cells`` disjoint cells. Norms are convex, so the largest moves are those of counts,
    attained by rows at the ends.
    """
    return of_sums(rows, 0.0, width, 2 * cells, neighbors)
