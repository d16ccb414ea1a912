"""Signals in the middle of a run: the exit code stays, what was paid for is told, and no frame holds private numbers.

One test raises at every line that is executed from the charge on, the others send real signals.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from walking import assert_no_trace

import dpmodel as dpm
from dpmodel.privacy import Cost
from dpmodel.privacy import budget as budgets
from dpmodel.privacy import ledger as ledgers
from dpmodel.solve import execute as conductor
from dpmodel.solve import wall
from dpmodel.solve.wall import charge_then_run

SECRETS = np.array([7321.4375, 5128.0625])
ROOM = str(Path(dpm.__file__).parent)


def program() -> tuple[dpm.Problem, cp.Variable]:
    x = cp.Variable(2, name="x", bounds=[0, 1e5])
    b = dpm.Private(SECRETS, name="b", unit="entry", linf=1)
    return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b]), x


@contextmanager
def interrupted(at: int, files: tuple[str, ...], ending: BaseException) -> Iterator[list[int]]:
    """Raise ``ending`` at the ``at``-th line of ``files`` from the first charge on; the lines counted so far."""
    seen = [-1]

    def lines(frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            seen[0] += 1
            if seen[0] == at:
                sys.settrace(None)
                raise ending
        return lines

    def calls(frame: Any, event: str, argument: Any) -> Any:
        if seen[0] < 0 and frame.f_code.co_name == "charge_then_run":
            seen[0] = 0
            for outer in list(outside(frame)):
                outer.f_trace = lines
        return lines if seen[0] >= 0 and frame.f_code.co_filename in files else None

    def outside(frame: Any) -> Iterator[Any]:
        while frame is not None:
            if frame.f_code.co_filename in files:
                yield frame
            frame = frame.f_back

    sys.settrace(calls)
    try:
        yield seen
    finally:
        sys.settrace(None)


def check(problem: dpm.Problem, x: cp.Variable, earlier: Any, spent: float, caught: BaseException) -> str:
    """What must hold after an interrupt; ``spent`` : epsilon in the budget, of 1 for ``earlier`` and 1 for this one."""
    release = problem.release
    if spent == 1:
        assert release is earlier and x.value is not None
    else:
        assert spent == 2 and release is not earlier and release.spent == (1, 0)
        assert (release.status == "stopped") == (x.value is None) == (not release.variables)
        assert release.status != "stopped" or any("is spent" in note for note in release.notes)
    assert caught.__context__ is None is caught.__cause__ and not str(caught).strip("0123456789")
    frames = [f for f, _ in traceback.walk_tb(caught.__traceback__) if f.f_code.co_filename.startswith(ROOM)]
    runs = [f for f in frames if f.f_code.co_name == "run" and "/mechanisms/" in f.f_code.co_filename]
    assert spent == 1 or not runs
    assert_no_trace([[v for f in frames for v in f.f_locals.values() if not isinstance(v, dpm.Problem)]], [SECRETS])
    return "earlier" if spent == 1 else release.status


@pytest.mark.parametrize(
    ("ending", "durable"),
    [
        (KeyboardInterrupt, False),
        pytest.param(KeyboardInterrupt, True, marks=pytest.mark.slow),
        pytest.param(lambda: SystemExit(143), False, marks=pytest.mark.slow),
        pytest.param(lambda: SystemExit(143), True, marks=pytest.mark.slow),
    ],
)
def test_at_every_line(ending: Callable[[], BaseException], durable: bool, tmp_path: Path) -> None:
    """Of the files between the user and the mechanism, and of the mechanism itself."""
    from dpmodel import problem as faces
    from dpmodel.programs import noise_once as mechanism

    files = tuple(str(each.__file__) for each in (wall, conductor, budgets, ledgers, faces, mechanism))
    problem, x = program()
    ends: dict[str, int] = {}
    at = 1
    while at < 1000:
        budget = dpm.Budget(2, ledger=tmp_path / f"{at}.db" if durable else None)
        problem.solve(1, budget=budget, rng=0, mechanism="laplace-once")
        earlier, raised = problem.release, ending()
        with interrupted(at, files, raised) as seen:
            try:
                problem.solve(1, budget=budget, rng=0, mechanism="laplace-once")
            except BaseException as caught:
                assert type(caught) is type(raised) and getattr(caught, "code", 143) == 143
                end = check(problem, x, earlier, budget.spent.epsilon, caught)
                ends[end] = ends.get(end, 0) + 1
            else:
                assert seen[0] < at
                break
        at += 1
    assert at > 60 and {"earlier", "stopped", "optimal"} <= set(ends), ends


@contextmanager
def alarm(seconds: float, ending: BaseException) -> Iterator[None]:
    """A real signal after ``seconds``, whose handler raises ``ending``."""

    def handler(number: int, frame: Any) -> None:
        raise ending

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 200), marks=pytest.mark.slow)], ids=str)
def test_at_many_moments(seeds: range, tmp_path: Path) -> None:
    budget = dpm.Budget(1e6, ledger=tmp_path / "budget.db")
    problem, x = program()
    ended = 0
    for seed in seeds:
        before, began = budget.spent.epsilon, time.perf_counter()
        problem.solve(1, budget=budget, rng=0, mechanism="laplace-once")
        earlier, lasted = problem.release, time.perf_counter() - began
        try:
            with alarm(random.Random(seed).uniform(1e-5, lasted), KeyboardInterrupt()):
                problem.solve(1, budget=budget, rng=0, mechanism="laplace-once")
        except KeyboardInterrupt as caught:
            # One that comes while warnings or CVXPY clean up has their context, which knows nothing.
            caught.__context__ = None
            check(problem, x, earlier, budget.spent.epsilon - before, caught)
            ended += 1
    assert ended


SCRIPT = """
import signal, sys, warnings
import cvxpy as cp, dpmodel as dpm
warnings.simplefilter("ignore")
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
x, b = cp.Variable(2, bounds=[0, 9]), dpm.Private([1.0, 2.0], name="b", unit="entry", linf=1)
problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= b])
step = {"solve": lambda: problem.solve(1, rng=0), "measure": lambda: dpm.measure(b, 1, rng=0)}[sys.argv[1]]
step()
print("ready", flush=True)
while True:
    step()
"""


@pytest.mark.parametrize("count", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["solve", "measure"])
def test_a_handler_of_sigterm_decides_the_exit_code(what: str, count: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for seed in range(count):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, what], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            try:
                process.wait(random.Random(seed).uniform(0.05, 0.3))
            except subprocess.TimeoutExpired:
                process.terminate()
            assert process.wait(60) == 143


@pytest.mark.parametrize(
    ("code", "kept"), [(143, 143), (0, 0), (None, None), ("7321.4375", 1), (7321.4375, 1), (True, 1)]
)
def test_codes_are_numbers(code: Any, kept: Any) -> None:
    def run(report: Any) -> None:
        raise SystemExit(code)

    _, failure = charge_then_run(
        run, name="a", budget=None, cost=Cost.pure(1.0), label="a", report=lambda stage, done: None
    )
    assert isinstance(failure, SystemExit) and failure.code == kept and failure.args == (kept,)
