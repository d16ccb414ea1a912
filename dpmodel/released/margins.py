"""The table nearest to a given one among all with given margins, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from dpmodel._types import Floats, Integers
from dpmodel.errors import InfeasibleError

_DENSE = 64  # neighbouring axes of up to so many cells together are transformed by one small matrix


class MarginProjector:
    """Orthogonal projection of tables onto {x : margin S of x equals t_S for every given S}.

    The space of tables is the orthogonal sum of effects W_E, E a set of axes: tables that depend on the axes E only and
    sum to zero along each of them. Margin S fixes exactly the components of x in W_E for E within S and says nothing
    about the others. So the projection takes the fixed components from the targets and the others from v: any family
    of margins will do. Targets fit together if and only if any two give the same margin over their common axes.

    A reflection per axis that carries the constant vector to the first unit vector (Householder; for two
    categories the Walsh-Hadamard matrix) makes the effects blocks of coordinates: transform, overwrite, transform back.

    ``shape`` : sizes of the axes; tables are flattened in C order. ``margins`` : tuples of axis numbers; ``()`` is the
    total; axes ascend. ``targets`` : for each an array with the sizes of its axes.

    Cost: a table of N cells and a axes, O(a N) in the set-up and in each projection, whatever the margins are.
    Errors: InfeasibleError for targets that contradict each other.
    """

    def __init__(self, shape: tuple[int, ...], margins: Sequence[tuple[int, ...]], targets: Sequence[Floats]) -> None:
        self.shape = shape
        self.size = math.prod(shape)
        self._groups = _groups(self.shape)
        coefficients = np.full(self.shape, np.nan)
        for margin, table in zip(margins, targets, strict=True):
            sizes = tuple(self.shape[a] for a in margin)
            block = tuple(slice(None) if a in margin else 0 for a in range(len(self.shape)))
            found = coefficients[block]
            fresh = _transform(table.ravel(), _groups(sizes)).reshape(sizes) * math.sqrt(table.size / max(self.size, 1))
            known = ~np.isnan(found)
            # In the margin's own unit: a coefficient of the whole table is one of the margin times the root above.
            gap = np.abs(found - fresh)[known].max(initial=0.0) * math.sqrt(self.size / max(table.size, 1))
            # how far targets may disagree, relative to the largest of them
            if gap > 1e-8 * max(1.0, float(np.abs(table).max(initial=0.0))) * math.sqrt(max(table.size, 1)):
                raise _contradiction(margins, targets, self.shape)
            coefficients[block] = np.where(known, found, fresh)
        flat = coefficients.ravel()
        self._where: Integers = np.flatnonzero(~np.isnan(flat))
        self._fixed: Floats = flat[self._where]

    def project(self, table: Floats) -> Floats:
        """(N,) the nearest table with the margins, flattened."""
        c = _transform(table, self._groups)
        c[self._where] = self._fixed
        return _transform(c, self._groups)


def margin_of(table: Floats, shape: Sequence[int], margin: Sequence[int]) -> Floats:
    """Sums of a table over the axes that ``margin`` leaves out; axes in increasing order."""
    out: Floats = table.reshape(tuple(shape)).sum(axis=tuple(a for a in range(len(shape)) if a not in margin))
    return out


def _contradiction(margins: Sequence[tuple[int, ...]], tables: Sequence[Floats], shape: tuple[int, ...]) -> Exception:
    """The pair of targets that disagree most."""
    worst, words = -1.0, ""
    for (s, x), (t, y) in combinations(zip(margins, tables, strict=True), 2):
        common = sorted(set(s) & set(t))

        def onto(margin: tuple[int, ...], table: Floats, common: list[int] = common) -> Floats:
            return margin_of(table, [shape[a] for a in margin], [margin.index(a) for a in common])

        gap = float(np.abs(onto(s, x) - onto(t, y)).max(initial=0.0))
        if gap > worst:
            worst = gap
            on = f"axes {tuple(common)}" if common else "the total"
            words = f"margins {s} and {t} differ by up to {gap:.6g} on {on}"
    return InfeasibleError(
        "the margins contradict each other",
        why=words,
        remedy="measure the margins that are not exact as Noisy values instead of fixing them",
    )


def _groups(shape: tuple[int, ...]) -> list[tuple[int, Floats]]:
    """Neighbouring axes taken together: (cells, symmetric orthogonal matrix), or for a long axis the vector w of
    its reflection I - w w'."""
    out: list[tuple[int, Floats]] = []
    for d in shape:
        w = _reflector(d)
        if d > _DENSE:
            out.append((d, w))
            continue
        own: Floats = np.eye(d) - np.outer(w, w)
        if out and out[-1][1].ndim == 2 and out[-1][0] * d <= _DENSE:
            cells, matrix = out.pop()
            both = np.asarray(np.kron(matrix, own), dtype=np.float64)
            out.append((cells * d, both))
        else:
            out.append((d, own))
    return out


def _reflector(d: int) -> Floats:
    """w with (I - w w') 1/sqrt(d) = e_1; zero for one category."""
    w = np.full(d, -1.0 / math.sqrt(d)) if d else np.zeros(0)
    if d <= 1:
        return np.zeros(d)
    w[0] += 1.0
    return w * math.sqrt(2.0 / float(w @ w))


def _transform(x: Floats, groups: list[tuple[int, Floats]]) -> Floats:
    """Every axis reflected; its own inverse. The first group of axes becomes the last, until all have been."""
    for cells, matrix in groups:
        if not x.size:
            return x.copy()
        y = x.reshape(cells, -1).T
        x = y @ matrix if matrix.ndim == 2 else y - np.outer(y @ matrix, matrix)
        x = x.ravel()
    return x.copy() if not groups else x
