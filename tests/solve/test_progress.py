"""Progress: bars that wait, lines that come once, silence, and nothing private in any of them."""

from __future__ import annotations

import io
import sys
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from blocks import problem, table

import dpmodel as dpm
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import watched
from dpmodel.solve import progress as progress_module
from dpmodel.solve.progress import Bar, _Terminal, screen, shown


class FakeDisplay:
    waits = False

    def __init__(self) -> None:
        self.drawn: list[tuple[str, float]] = []
        self.closed = 0

    def show(self, stage: str, done: float) -> None:
        self.drawn.append((stage, done))

    def close(self) -> None:
        self.closed += 1


def lasso(seed: int = 0) -> dpm.Problem:
    data, people = np.random.default_rng(seed), dpm.Records("people")
    X = dpm.Private(data.choice([-1.0, 1.0], (60, 2)), name="X", unit="row", bounds=[-1, 1], records=people)
    y = dpm.Private(data.choice([-1.0, 1.0], 60), name="y", unit="entry", bounds=[-1, 1], records=people)
    w = cp.Variable(2, name="w")
    return dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - y) / 60), [cp.norm1(w) <= 1])


def test_short_work_draws_nothing_and_long_work_what_came_last() -> None:
    now, display = [0.0], FakeDisplay()
    bar = Bar(display, after=1.0, clock=lambda: now[0])
    for now[0] in (0.0, 0.5, 0.99):
        bar("first", 0.1)
    assert display.drawn == []
    now[0] = 1.2
    bar("second", 0.5)
    now[0] = 0.3  # once it is drawn, it stays
    bar("third", 0.6)
    assert display.drawn == [("second", 0.5), ("third", 0.6)]
    bar.close()
    bar("late", 1.0)
    assert display.closed == 1 and len(display.drawn) == 2


def test_work_that_says_nothing_more_is_drawn_by_the_clock() -> None:
    display = FakeDisplay()
    display.waits = True
    bar = Bar(display, after=0.0, clock=lambda: 0.0)
    assert bar._timer is not None
    bar._timer.join()
    bar._open or bar("slow", 0.0)
    bar._draw()
    assert display.drawn[-1] == ("slow", 0.0)
    bar.close()
    quick = FakeDisplay()
    quick.waits = True
    Bar(quick, after=60.0).close()
    assert quick.drawn == [] and quick.closed == 0


def test_a_terminal_gets_one_line_that_goes() -> None:
    from rich.console import Console

    written = io.StringIO()
    terminal = _Terminal(Console(file=written, force_terminal=True, width=80))
    for done in (0.0, 0.3, 0.6):
        terminal.show("walk [bold]towards[/bold] vertices, 40 steps", done)
    terminal.close()
    text = written.getvalue()
    assert "[bold]towards" in text and text.rstrip().endswith("\x1b[2K")  # the line is erased
    assert text.encode("ascii", "replace").decode().count("vertices") >= 1


def test_where_a_bar_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert screen() is None  # tests have no terminal
    monkeypatch.setattr(sys, "stderr", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    assert isinstance(screen(), _Terminal)
    monkeypatch.setattr(sys, "stderr", None)
    assert screen() is None


@pytest.mark.parametrize(
    ("progress", "verbose", "bars", "lines"),
    [(None, False, 1, 0), (True, False, 1, 0), (False, False, 0, 0), (None, True, 0, 1), (False, True, 0, 0)],
)
def test_who_is_shown_what(
    progress: Any, verbose: bool, bars: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    display = FakeDisplay()
    monkeypatch.setattr(progress_module, "screen", lambda: display)
    monkeypatch.setattr(progress_module, "Bar", lambda shown: Bar(shown, after=0.0))
    with shown(progress, verbose) as report:
        report("a", 0.0)
        report("a", 0.5)
        with shown(True) as inner:  # work inside other work
            inner("hidden", 0.5)
    assert display.closed == bars and len(display.drawn) == 2 * bars
    assert capsys.readouterr().err.splitlines() == ["[dpmodel] a"] * lines


def test_without_a_terminal_stages_are_lines_each_once_and_only_if_asked(capsys: Any) -> None:
    for asked in (None, False):
        lasso().solve(1.0, 1e-6, rng=0, mechanism="noisy-descent", progress=asked)
        assert capsys.readouterr() == ("", "")
    lasso().solve(1.0, 1e-6, rng=0, mechanism="noisy-descent", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines)) < 12 and lines[0] == "[dpmodel] compile" and lines[-1] == "[dpmodel] done"
    assert sum("gradient descent" in line for line in lines) == 1, "no line per step"
    assert any("epsilon 1, delta 1e-6 charged" in line for line in lines)


@pytest.mark.parametrize("mechanism", ["noisy-descent", "frank-wolfe", "mirror-descent", "sufficient-statistics"])
def test_neighbours_and_strangers_are_told_the_same(mechanism: str) -> None:
    told: list[list[tuple[str, float]]] = [[], []]
    for seed, seen in enumerate(told):
        problem = lasso(seed)
        problem.solve(1.0, 1e-6, rng=seed, mechanism=mechanism, progress=lambda *said, seen=seen: seen.append(said))
    assert told[0] == told[1] and len(told[0]) > 3


def test_passes_over_blocks_are_told_block_by_block_and_not_again_when_tried_again() -> None:
    source, told = MemoryBlocks.of(np.ones((100, 2)), 25), []
    with watched(lambda number, count: told.append((number, count))):
        assert source.map_reduce(lambda block, number: float(block.sum()), lambda a, b: a + b) == 200
    assert told == [(k, 4) for k in range(4)]
    source.map_reduce(lambda block, number: 0.0, lambda a, b: a + b)
    assert len(told) == 4


def test_an_error_of_the_watcher_is_not_taken_for_one_of_the_source() -> None:
    class Enough(Exception):
        pass

    def stop(number: int, count: int) -> None:
        raise Enough

    with watched(stop), pytest.raises(Enough):
        MemoryBlocks.of(np.ones((4, 1)), 2).map_reduce(lambda block, number: 0.0, lambda a, b: a + b)


def test_planning_is_told_before_anything_is_charged() -> None:
    told: list[str] = []
    x, need = cp.Variable(2, bounds=[0, 9]), dpm.Private(shape=2, name="need", unit="entry", linf=1)
    problem = dpm.Problem(cp.Minimize(cp.sum(x)), [x >= need])
    problem.plan(0.71, 1e-6, progress=lambda stage, done: told.append(stage))
    assert told[0] == "compile" and any(stage.startswith("plan: forecast of ") for stage in told)
    assert not any("charged" in stage for stage in told)


@pytest.mark.parametrize("separable", [True, False])
def test_how_many_passes_a_mechanism_made_is_not_told(separable: bool) -> None:
    """Objective perturbation takes more Newton steps, each a pass, where a plane separates the classes."""
    data, passes, told = table(400), [], []
    if not separable:
        data[:, -1] = np.random.default_rng(0).choice([-1.0, 1.0], 400)

    class Counted(MemoryBlocks):
        def map_reduce(self, function: Any, combine: Any) -> Any:
            passes.append(1)
            return super().map_reduce(function, combine)

    model = problem("logistic", Counted.of(data, 100))
    model.solve(1, 1e-6, mechanism="objective-perturbation", rng=0, progress=lambda *event: told.append(event))
    assert len(passes) > 2 and [done for stage, done in told if "a pass" in stage] == [0.0, 0.25, 0.5, 0.75]
