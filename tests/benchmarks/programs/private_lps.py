"""A linear program read from a file, with one part of its data marked private."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm
from tests.benchmarks.programs.lp_files import LP

Part = Literal["b", "c", "A"]


@dataclass(frozen=True)
class Model:
    """``problem`` with variable ``x``; ``bound``: how far one record moves one private entry; ``entries``: how many."""

    problem: dpm.Problem
    x: cp.Variable
    bound: float
    entries: int


def files(folders: list[str]) -> list[Path]:
    """LP files (npz, mps, mps.gz) in the given files and folders, by name."""
    found: list[Path] = []
    for name in folders:
        path = Path(name)
        if path.is_file():
            found.append(path)
        else:
            found += [p for p in path.iterdir() if p.name.endswith((".npz", ".mps", ".mps.gz"))]
    found = [path for path in found if is_lp(path)]
    if folders and not found:
        raise SystemExit(f"{', '.join(map(str, folders))}: no linear program there")
    return sorted(found, key=lambda p: p.name)


def is_lp(path: Path) -> bool:
    """Whether an npz holds a linear program in scipy's layout (other npz files are passed over)."""
    if path.suffix != ".npz":
        return True
    with np.load(path, allow_pickle=False) as data:
        return "c" in data


def plain(lp: LP) -> tuple[cp.Problem, cp.Variable]:
    """The program with public data."""
    x = cp.Variable(lp.c.size, bounds=[lp.lb, lp.ub], name="x")
    return cp.Problem(cp.Minimize(lp.c @ x), _rows(lp.A_ub, x, lp.b_ub, lp.A_eq, lp.b_eq)), x


def with_private(
    lp: LP,
    part: Part,
    relative: float,
    *,
    nonzero_only: bool = False,
    half_range: float | None = None,
    inequalities_only: bool = False,
) -> Model:
    """The program with the entries of ``part`` private.

    One record moves one entry by at most ``relative`` times the median absolute value of the part's non-zero
    entries. ``nonzero_only`` leaves zero entries of b and c public (structure, not data); of A only the non-zeros
    are ever private. ``half_range`` gives the private entries public bounds, at most that many
    times the change bound away from the true value (strict feasibility needs bounds). ``inequalities_only`` leaves the
    equalities' right-hand sides public.
    """
    if part == "A":
        return _private_matrix(lp, relative)
    x = cp.Variable(lp.c.size, bounds=[lp.lb, lp.ub], name="x")
    true = lp.c if part == "c" else np.concatenate([lp.b_ub, lp.b_eq])
    bound = relative * _scale(true)
    marked = np.flatnonzero(true) if nonzero_only else np.arange(true.size)
    if inequalities_only and part == "b":
        marked = marked[marked < lp.b_ub.size]
    if marked.size == 0:
        raise ValueError("no entry to mark private")
    options: dict[str, Any] = {}
    if half_range is not None:
        width = half_range * bound
        options["bounds"] = [true[marked] - width, true[marked] + width]
    private = dpm.Private(true[marked], unit="entry", linf=bound, name=part, **options)
    if marked.size == true.size:
        full = private
    else:
        # Zeros of the public rest, private entries put in their places.
        place = sp.csr_array((np.ones(marked.size), (marked, np.arange(marked.size))), shape=(true.size, marked.size))
        rest = true.copy()
        rest[marked] = 0.0
        full = cp.Constant(rest, name="public part") + place @ private
    if part == "c":
        rows = _rows(lp.A_ub, x, lp.b_ub, lp.A_eq, lp.b_eq)
        return Model(dpm.Problem(cp.Minimize(full @ x), rows), x, bound, int(marked.size))
    rows = _rows(lp.A_ub, x, full[: lp.b_ub.size], lp.A_eq, full[lp.b_ub.size :])
    return Model(dpm.Problem(cp.Minimize(lp.c @ x), rows), x, bound, int(marked.size))


def _private_matrix(lp: LP, relative: float) -> Model:
    x = cp.Variable(lp.c.size, bounds=[lp.lb, lp.ub], name="x")
    true = sp.coo_array(sp.vstack([lp.A_ub, lp.A_eq]))
    true.eliminate_zeros()
    bound = relative * _scale(true.data)
    A = dpm.Private(true, unit="entry", linf=bound, name="A", sparsity=true.coords)
    split = lp.b_ub.size
    activity = A @ x
    rows: list[Any] = []
    if split:
        rows.append(activity[:split] <= cp.Constant(lp.b_ub, name="b_ub"))
    if lp.b_eq.size:
        rows.append(activity[split:] == cp.Constant(lp.b_eq, name="b_eq"))
    return Model(dpm.Problem(cp.Minimize(lp.c @ x), rows), x, bound, int(true.nnz))


def _rows(A_ub: Any, x: Any, b_ub: Any, A_eq: Any, b_eq: Any) -> list[Any]:
    rows = []
    if A_ub.shape[0]:
        rows.append(A_ub @ x <= b_ub)
    if A_eq.shape[0]:
        rows.append(A_eq @ x == b_eq)
    return rows


def _scale(values: np.ndarray) -> float:
    size = np.abs(values[values != 0])
    return float(np.median(size)) if size.size else 1.0


def boxed(lp: LP, x: np.ndarray, factor: float) -> LP:
    """The same program with public bounds: infinite ones become ``factor`` times the largest entry of x (or 1)."""
    size = factor * max(1.0, float(np.abs(x).max(initial=0.0)))
    lb = np.where(np.isfinite(lp.lb), lp.lb, np.minimum(-size, lp.ub))
    ub = np.where(np.isfinite(lp.ub), lp.ub, np.maximum(size, lp.lb))
    return LP(lp.name, lp.c, lp.A_ub, lp.b_ub, lp.A_eq, lp.b_eq, lb, ub)


def violation(lp: LP, x: np.ndarray) -> float:
    """Largest violation of a true row (bounds on x are public and checked apart)."""
    over = (lp.A_ub @ x - lp.b_ub).max(initial=0.0) if lp.b_ub.size else 0.0
    off = np.abs(lp.A_eq @ x - lp.b_eq).max(initial=0.0) if lp.b_eq.size else 0.0
    return float(max(over, off, 0.0))


def quiet() -> None:
    """Seeded noise and constants that are public: both are meant here."""
    warnings.simplefilter("ignore", dpm.errors.NotPrivateWarning)
    warnings.simplefilter("ignore", dpm.errors.PossibleLeakWarning)
