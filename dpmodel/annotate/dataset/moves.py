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


def of_means(rows: int, width: float, least: int, cells: int, neighbors: Neighbors) -> Move:
    """Means by cell of values in a range of this width, with groups below ``least`` = m drawn to the middle.

    The mean of a cell is c + S / max(N, m), where c is the middle, S sums v - c and N counts. With h = width / 2,
    |S| <= h N.

    One row more: for N >= m it moves by |(v - c) N - S| / (N (N + 1)) <= 2h / (N + 1) <= 2h / (m + 1); for N < m the
    divisor stays m and it moves by at most h / m <= 2h / (m + 1). One row replaced within a cell:
    |v - v'| / max(N, m) <= 2h / m. So one row moves one cell by r = 2h / m at most, or two cells by
    q = 2h / (m + 1) each. k rows are replaced one after the other, and norms add up: k times each (attained for k = 1).
    """
    out, within = width / (least + 1), width / least
    if neighbors == "add-remove":
        return Move(rows * out, rows * out, rows * out)
    if cells == 1:
        return Move(rows * within, rows * within, rows * within)
    return Move(rows * max(2 * out, within), rows * max(math.sqrt(2) * out, within), rows * within)
