"""Read a linear program from a file, mark a part of it private, print plan and release.

Files: MPS (plain or .gz), or .npz as scipy's benchmarks keep netlib's programs (c, lb, ub, b_ub, b_eq and
A_ub_*, A_eq_* as CSR arrays). With ``--private b`` the non-zero right-hand sides are private, with ``--private c`` the
non-zero objective coefficients. One record moves one of them by at most ``--sensitivity``.

Without arguments it reads a small embedded MPS: the product mix of Wyndor Glass (Hillier and Lieberman,
"Introduction to Operations Research"), three plants whose free hours are the right-hand sides.

    python examples/own_lp_file.py
    python examples/own_lp_file.py my_model.mps --private c --sensitivity 0.5
    python examples/own_lp_file.py folder_with_models --private b
"""

import argparse
import gzip
import tempfile
from pathlib import Path

import cvxpy as cp
import highspy
import numpy as np
import scipy.sparse as sp

import dpmodel as dpm

WYNDOR = """NAME WYNDOR
OBJSENSE
    MAX
ROWS
 N  PROFIT
 L  PLANT1
 L  PLANT2
 L  PLANT3
COLUMNS
    DOORS     PROFIT    3.0   PLANT1    1.0
    DOORS     PLANT3    3.0
    WINDOWS   PROFIT    5.0   PLANT2    2.0
    WINDOWS   PLANT3    2.0
RHS
    HOURS     PLANT1    4.0   PLANT2    12.0
    HOURS     PLANT3    18.0
ENDATA
"""


def read_mps(path: Path) -> dict:
    """Minimise c'x subject to ``low <= A x <= high`` and bounds on x, as HiGHS reads it."""
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix == ".gz":
            plain = Path(folder) / path.stem
            plain.write_bytes(gzip.decompress(path.read_bytes()))
            path = plain
        reader = highspy.Highs()
        reader.setOptionValue("output_flag", False)
        reader.readModel(str(path))
        lp = reader.getLp()
    by_column = lp.a_matrix_.format_ == highspy.MatrixFormat.kColwise
    kind = sp.csc_array if by_column else sp.csr_array
    parts = (np.array(lp.a_matrix_.value_), np.array(lp.a_matrix_.index_), np.array(lp.a_matrix_.start_))
    return {
        "c": np.array(lp.col_cost_),
        "maximize": lp.sense_ == highspy.ObjSense.kMaximize,
        "A": sp.csr_array(kind(parts, shape=(lp.num_row_, lp.num_col_))),
        "low": np.array(lp.row_lower_),
        "high": np.array(lp.row_upper_),
        "lb": np.array(lp.col_lower_),
        "ub": np.array(lp.col_upper_),
    }


def read_npz(path: Path) -> dict:
    with np.load(path, allow_pickle=False) as data:
        n = data["c"].size

        def rows(key: str) -> tuple[sp.csr_array, np.ndarray]:
            if f"A_{key}_data" not in data:
                return sp.csr_array((0, n)), np.zeros(0)
            parts = (data[f"A_{key}_data"], data[f"A_{key}_indices"], data[f"A_{key}_indptr"])
            return sp.csr_array(parts, shape=tuple(data[f"A_{key}_shape"])), np.asarray(data[f"b_{key}"], dtype=float)

        (A_ub, b_ub), (A_eq, b_eq) = rows("ub"), rows("eq")
        return {
            "c": np.asarray(data["c"], dtype=float),
            "maximize": False,
            "A": sp.csr_array(sp.vstack([A_ub, A_eq])),
            "low": np.concatenate([np.full(b_ub.size, -np.inf), b_eq]),
            "high": np.concatenate([b_ub, b_eq]),
            "lb": np.broadcast_to(np.asarray(data["lb"], dtype=float), (n,)),
            "ub": np.broadcast_to(np.asarray(data["ub"], dtype=float), (n,)),
        }


def mark(name: str, values: np.ndarray, sensitivity: float) -> cp.Expression:
    """The vector with its non-zero entries private: zeros are structure."""
    at = np.flatnonzero(values)
    if at.size == 0:
        return cp.Constant(values, name=name)
    private = dpm.Private(values[at], name=name, unit="entry", linf=sensitivity)
    place = sp.csr_array((np.ones(at.size), (at, np.arange(at.size))), shape=(values.size, at.size))
    return place @ private


def model(lp: dict, private: str, sensitivity: float) -> dpm.Problem:
    x = cp.Variable(lp["c"].size, bounds=[lp["lb"], lp["ub"]], name="x")
    low, high = lp["low"], lp["high"]
    equal = low == high
    upper, lower = np.isfinite(high) & ~equal, np.isfinite(low) & ~equal
    # One right-hand side per row of the file; a row with two sides keeps its lower one public.
    sides = np.where(np.isfinite(high), high, low)
    sides[~np.isfinite(sides)] = 0.0
    # Named constants are public on purpose; a plain array of a private parameter's shape would be warned of.
    b = mark("right-hand sides", sides, sensitivity) if private == "b" else cp.Constant(sides, name="b")
    c = mark("objective", lp["c"], sensitivity) if private == "c" else cp.Constant(lp["c"], name="c")
    low = cp.Constant(np.where(np.isfinite(low), low, 0.0), name="second sides")
    activity = lp["A"] @ x
    rows = []
    if upper.any():
        rows.append((activity[upper] <= b[upper]).set_label("rows <="))
    for side, both, label in ((low, lower & upper, "rows >= (second side)"), (b, lower & ~upper, "rows >=")):
        if both.any():
            rows.append((activity[both] >= side[both]).set_label(label))
    if equal.any():
        rows.append((activity[equal] == b[equal]).set_label("rows ="))
    sense = cp.Maximize if lp["maximize"] else cp.Minimize
    return dpm.Problem(sense(c @ x), rows)


def treat(path: Path, arguments: argparse.Namespace) -> None:
    part, sensitivity = arguments.private, arguments.sensitivity
    print(f"=== {path.name}: {part} private, one record moves one entry by at most {sensitivity:g} ===")
    try:
        problem = model(read_npz(path) if path.suffix == ".npz" else read_mps(path), part, sensitivity)
        print(problem.plan(epsilon=arguments.epsilon, delta=arguments.delta))
        problem.solve(epsilon=arguments.epsilon, delta=arguments.delta)
        print(problem.release)
    except (dpm.DPModelError, KeyError) as error:
        print(f"not solved: {error}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path, help="a file, or a folder of files")
    parser.add_argument("--private", choices=("b", "c"), default="b")
    parser.add_argument("--sensitivity", type=float, default=0.1, help="how far one record moves one entry")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    given = parser.parse_args(arguments)
    if given.path is None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "wyndor.mps"
            path.write_text(WYNDOR)
            treat(path, given)
    elif given.path.is_dir():
        for path in sorted(given.path.iterdir()):
            if path.name.endswith((".npz", ".mps", ".mps.gz")):
                treat(path, given)
    else:
        treat(given.path, given)


if __name__ == "__main__":
    main()
