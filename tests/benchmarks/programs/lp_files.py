"""Reading linear programs from files (netlib npz as scipy keeps them, or MPS) into one plain form."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class LP:
    """Minimise ``c'x`` subject to ``A_ub x <= b_ub``, ``A_eq x = b_eq``, ``lb <= x <= ub``."""

    name: str
    c: np.ndarray
    A_ub: sp.csr_array
    b_ub: np.ndarray
    A_eq: sp.csr_array
    b_eq: np.ndarray
    lb: np.ndarray
    ub: np.ndarray


def read_lp(path: str | Path) -> LP:
    path = Path(path)
    return _read_npz(path) if path.suffix == ".npz" else _read_mps(path)


def _read_npz(path: Path) -> LP:
    with np.load(path, allow_pickle=False) as data:

        def matrix(key: str) -> sp.csr_array:
            if f"{key}_data" not in data:
                return sp.csr_array((0, data["c"].size))
            parts = (data[f"{key}_data"], data[f"{key}_indices"], data[f"{key}_indptr"])
            return sp.csr_array(parts, shape=tuple(data[f"{key}_shape"]))

        def vector(key: str, size: int, default: float) -> np.ndarray:
            if key not in data or data[key].dtype == object or data[key].size == 0:
                return np.full(size, default)
            return np.broadcast_to(np.asarray(data[key], dtype=float), (size,)).copy()

        A_ub, A_eq = matrix("A_ub"), matrix("A_eq")
        n = data["c"].size
        return LP(
            path.stem,
            np.asarray(data["c"], dtype=float),
            A_ub,
            vector("b_ub", A_ub.shape[0], 0.0),
            A_eq,
            vector("b_eq", A_eq.shape[0], 0.0),
            vector("lb", n, 0.0),
            vector("ub", n, np.inf),
        )


def _read_mps(path: Path) -> LP:
    import highspy

    with tempfile.TemporaryDirectory() as folder:
        plain = path
        if path.suffix == ".gz":
            plain = Path(folder) / path.stem
            with gzip.open(path, "rb") as source, plain.open("wb") as target:
                shutil.copyfileobj(source, target)
        model = highspy.Highs()
        model.setOptionValue("output_flag", False)
        model.readModel(str(plain))
        lp = model.getLp()
    shape = (lp.num_row_, lp.num_col_)
    arrays = (np.array(lp.a_matrix_.value_), np.array(lp.a_matrix_.index_), np.array(lp.a_matrix_.start_))
    kind = sp.csc_array if lp.a_matrix_.format_ == highspy.MatrixFormat.kColwise else sp.csr_array
    A = sp.csr_array(kind(arrays, shape=shape))
    low, high = np.array(lp.row_lower_), np.array(lp.row_upper_)
    equal = low == high
    up, down = ~equal & np.isfinite(high), ~equal & np.isfinite(low)
    sign = -1.0 if lp.sense_ == highspy.ObjSense.kMaximize else 1.0
    return LP(
        path.name.split(".")[0],
        sign * np.array(lp.col_cost_),
        sp.csr_array(sp.vstack([A[up], -A[down]])),
        np.concatenate([high[up], -low[down]]),
        A[equal],
        low[equal],
        np.array(lp.col_lower_),
        np.array(lp.col_upper_),
    )
