"""Every example runs and prints what it is there to show."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Script -> patterns that its output must hold, in this order.
SHOWN = {
    "private_linear_algebra.py": [
        r"Plan for .*: stable-span",
        r"dimension 10 of 12",
        r"equations by \S+: x = \[3, 1, 4, 1, 5, 2\]",
        r"half-space by \S+: (9\d|100)\.\d\d%",
        r"point in the hull by \S+: \(",
        r"Twenty vectors: too few records",
    ],
    "from_a_csv.py": [
        r"Bonn +yes",
        r"enough staff: made harder by",
        r"variable staff +Bonn: \d",
        r"variable w +age: [3-6]\.",
    ],
    "consistent_histogram.py": [
        r"1365 noisy sums in 6 levels",
        r"by least-squares-tree: no private data was read",
        r"ranges of  256 bins",
        r"integers that add up: (\d+) = \1",
    ],
    "consistent_tables.py": [
        r"who works, by office A",
        r"one table, by \S+: no private data was read",
        r"total \d+, smallest cell -?0\.0",
        r"95% intervals of who works",
    ],
    "geography.py": [
        r"36 places in the levels nation, state, county",
        r"by least-squares-tree",
        r"Corse",
        r"states sum to (\d+), the nation has \1",
    ],
    "transportation.py": [
        r"demand: scalar, low sensitivity: solvable",
        r"Plan for .*: laplace-once",
        r"Private release by laplace-once",
        r"San Diego",
        r"Cost: 1[45]\d\.\d\d thousand dollars",
    ],
    "diet.py": [
        r"relaxed, by (gaussian|laplace)-once: (3\d|40)\.\d\d dollars a year",
        r"strict, by strict-truncated-gaussian: (39|4\d)\.\d\d dollars a year",
        r"every true constraint holds with certainty",
        r"navy beans",
        r"all requirements met exactly: True",
    ],
    "portfolio_of_private_scores.py": [
        r"objective, low",
        r"Plan for .*: vertex-exponential",
        r"would lose up to \d\d+ times",
        r"all of the grant to the \w+",
    ],
    "strict_capacity.py": [
        r"Plan for .*: strict-truncated-laplace",
        r"every true constraint holds with\s+certainty",
        r"exceeded 0 times when strict, [1-9]\d* times when relaxed",
    ],
    "impossible.py": [
        r"Can it be solved\? False",
        r"ImpossibilityError: private parameter 'profit'",
        r"theorem: Theorem 37; parameter: profit; lower bound: 0\.1\d+",
        r"remedy 3:",
        r"released by laplace-once",
    ],
    "charging.py": [
        r"A timetable for everybody: Theorem 37 forbids it",
        r"Plan for .*: noisy-prices",
        r"Shares by noisy-prices",
        r"joint:\s+what\s+all\s+others",
        r"told by letter and computed at home: True",
        r"Worth [789]\d\.\d% of the best timetable; the fullest hour uses 1\d\d\.\d of 150",
    ],
    "query_release.py": [
        r"residual-gaussian: for the largest error \(loss='max'\): standard deviation of a cell before the fit",
        r"scalar, low",
        r"by residual-gaussian, differential privacy with epsilon = 1",
        r"after the fit, by simulation",
        r"works \\ commute",
        r"people: (29|30)\d\d",
    ],
    "reconstruction.py": [
        r"100% of them right",
        r"ImpossibilityError, Theorem 37",
        r"Warned before anything was read: No guarantee: laplace-once promises",
        r"by laplace-once: \d+% of the votes",
        r"plain solver +- +100\.0%",
        r"randomised response",
        r"Least error of any private mechanism",
    ],
    "set_cover.py": [
        r"noisy-hinge-descent: with probability 0\.95, all but 1\d\d\d of the 40000 private constraints",
        r"Private release by noisy-hinge-descent",
        r"Released plan, 2[56]\d of 260 thousand",
        r"private: \d\.\d% of the voters",
        r"best without privacy: 1\.4%",
    ],
    "several_solves_one_budget.py": [
        r"Monday +cost",
        r"Thursday +refused, nothing was read",
        r"at most epsilon=0\.1",
        r"In the file: spent epsilon 0\.9, remaining epsilon 0\.1",
        r"( *epsilon 0\.3, delta 0: solve by .*\n){3}",
    ],
    "lasso.py": [
        r"answers and score: objective, low sensitivity: solvable",
        r"Plan for .*: (frank-wolfe|mirror-descent|noisy-descent)",
        r"Private release by",
        r"excess risk about 0\.\d+ on data drawn",
        r"true ones: 0\.00\d+ \(all zeros: 0\.2250\)",
    ],
    "private_regressions.py": [
        r"were clipped \(how many is private\)|beyond\s+the declared bounds",
        r"mean\s+absolute\s+loss\s+of\s+30000\s+records\s+with\s+2\s+coefficients\s+and\s+an\s+intercept",
        r"median income at 40 with 12 years: 4[5-9]\.",
        r"logistic: \S+, 7\d\.\d%",
        r"hinge: \S+, 7\d\.\d%",
        r"spent: epsilon 1\.\d+, delta",
    ],
    "scikit_learn.py": [
        r"ridge: R2 0\.8\d+; differential privacy with epsilon = 1",
        r"logistic: accuracy 0\.9\d+; mechanism",
        r"search: \{'alpha': 1\} by every, R2 0\.\d+; differential privacy with epsilon = 1",
        r"spent: epsilon 3, delta",
    ],
    "own_lp_file.py": [
        r"wyndor\.mps: b private",
        r"Plan for .*: laplace-once",
        r"Private release by laplace-once",
        r"value +3\d",
    ],
}


def run(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *arguments])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an example that warns teaches to ignore warnings
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def in_order(patterns: list[str], text: str) -> None:
    start = 0
    for pattern in patterns:
        found = re.compile(pattern).search(text, start)
        assert found, f"{pattern!r} is missing in what follows:\n{text[start:]}"
        start = found.end()


def test_every_example_is_listed_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)


LONG = {
    "lasso.py",
    "private_regressions.py",
    "reconstruction.py",
    "scikit_learn.py",
    "set_cover.py",
    "strict_capacity.py",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in sorted(SHOWN)]
)
def test_it_prints_what_it_shows(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, monkeypatch=monkeypatch)
    in_order(SHOWN[name], capsys.readouterr().out)


@pytest.mark.slow
def test_an_example_is_a_script(tmp_path: Path) -> None:
    """As a user starts it: its own process, another folder."""
    path = os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "own_lp_file.py"), "--private", "c"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    in_order([r"wyndor\.mps: c private", r"Private release by"], done.stdout)


def test_own_lp_file_reads_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(
        tmp_path / "small.npz",
        c=np.array([1.0, 2.0]),
        lb=np.array([0.0]),
        ub=np.array([np.inf]),
        A_ub_data=np.array([-1.0, -1.0]),
        A_ub_indices=np.array([0, 1]),
        A_ub_indptr=np.array([0, 2]),
        A_ub_shape=np.array([1, 2]),
        b_ub=np.array([-10.0]),
    )
    (tmp_path / "two_sided.mps").write_text(
        "NAME T\nROWS\n N C\n G R1\n E R2\nCOLUMNS\n X C 1.0 R1 1.0\n X R2 1.0\n Y C 2.0 R2 1.0\n"
        "RHS\n B R1 3.0 R2 8.0\nRANGES\n R R1 2.0\nENDATA\n"
    )
    run("own_lp_file.py", str(tmp_path), monkeypatch=monkeypatch)
    text = capsys.readouterr().out
    released = r"Private release by"
    in_order([r"small\.npz: b private", released, r"two_sided\.mps: b private", released], text)
    assert "not solved" not in text
