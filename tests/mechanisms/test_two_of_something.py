"""Two of something (``twos.py``): what is claimed, and the noise that is really drawn, against every extreme neighbour.

A sensitivity is never below what some record does, and it is that where it is called exact.
"""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from replaying import Transcript
from twos import PARTS, Twos, drawn, entries, largest

import dpmodel as dpm
from dpmodel.compile.bridge import lower
from dpmodel.compile.footprint import footprint
from dpmodel.contract import Options
from dpmodel.marks import Records
from dpmodel.programs.model import Program
from dpmodel.solve.registry import by_name

NORMS = ("l1", "l2", "linf")
# Allowances for rounding enlarge scales by less than this share.
CLOSE = 4e-3
SEEDS = range(80)


def check_footprint(model: Twos) -> None:
    bound, worst = footprint(lower(model.game().problem).affine), model.worst()
    assert set(bound.by_records) == set(worst)
    for whose, parts in worst.items():
        for part in PARTS:
            claimed = bound.by_records[whose][part]
            for norm in NORMS:
                assert getattr(claimed, norm) >= parts[part][norm] * (1 - 1e-9), (part, norm)
                if claimed.exact and norm != "linf":
                    assert getattr(claimed, norm) <= parts[part][norm] * (1 + 1e-9), (part, norm)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_footprint_is_what_some_record_does(seed: int) -> None:
    check_footprint(drawn(seed))


@pytest.mark.parametrize("seed", SEEDS[::4])
@pytest.mark.parametrize("part", PARTS)
def test_what_is_measured_gets_noise_for_the_worst_record(part: str, seed: int) -> None:
    model, source = drawn(seed), Transcript(0)
    made, worst = model.game(), model.worst()
    sensitivity = dpm.sensitivity(model.expression(part))
    for name, norm in (("laplace", "l1"), ("gaussian", "l2")):
        needed = largest(worst, part, norm)
        if needed == 0:
            continue
        dpm.measure(model.expression(part), 1, 1e-6, distribution=name, rng=source)
        scale = source.draws[-1].arguments[0]
        unit = 1.0 if name == "laplace" else 1 / dpm.privacy.conversions.gaussian_mu(1, 1e-6)
        assert scale >= needed * unit * (1 - 1e-9)
        if sensitivity.exact:
            assert scale <= needed * unit * (1 + CLOSE)
    assert made.model is not None


def neighbours(model: Twos) -> list[dict[str, Any]]:
    """Per people the changes that are largest in each part, and in all parts together."""
    found = []
    worst = model.worst()
    for whose in worst:
        changes = [c for other, owned in model.records() if other is whose for c in model.extremes(owned)]
        for norm in (1, 2):
            size = np.array([[np.linalg.norm(model.moved(c, part), norm) for part in PARTS] for c in changes])
            share = size / np.maximum(size.max(axis=0), 1e-300)
            found += [changes[int(at)] for at in {*size.argmax(axis=0), int(share.sum(axis=1).argmax())}]
    return found


def most_lost(model: Twos, name: str, parts: tuple[str, ...] = PARTS) -> float:
    """The share of the budget that a run loses to its replay, on the worst of the neighbours."""
    strict = "strict" if name.startswith("strict") else "centred"
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=3))) if name.startswith("vertex") else None
    options = Options(1.0, 1e-6, feasibility=strict, vertices=corners)
    made, mechanism = model.game(parts), by_name(name)
    affine, theta, first = made.model.affine, made.model.read_private(), Transcript(0)

    def run(values: Any, source: Transcript) -> None:
        with mock.patch.object(Program, "read_private", lambda self: values):
            mechanism.run(made.model, options, source)

    run(theta, first)
    most = 0.0
    for change in neighbours(model):
        moved = theta.copy()
        for block in affine.private_blocks:
            moved[block.columns] += change.get(block.name, 0)
        second = first.replay()
        run(moved, second)
        most = max(most, first.lost(1.0, 1e-6))
        for draw in first.draws:
            del draw.values[1:]
    return most


# The parts that a mechanism serves; sums of many steps lose little of their bound in one replay.
SERVED = {
    "laplace-once": (PARTS, 0.2),
    "gaussian-once": (PARTS, 0.2),
    "strict-truncated-laplace": (PARTS[1:], 0.2),
    "strict-truncated-gaussian": (PARTS[1:], 0.2),
    "vertex-exponential": (PARTS[:1], 0.1),
}


@pytest.mark.parametrize(
    "seed", [*SEEDS[::16], *(pytest.param(s, marks=pytest.mark.slow) for s in SEEDS[4::4] if s % 16)]
)
@pytest.mark.parametrize("name", SERVED)
def test_no_record_of_two_loses_more_than_the_budget(name: str, seed: int) -> None:
    model, (parts, least) = drawn(seed), SERVED[name]
    if any(largest(model.worst(), part, "l1") > 0 for part in parts):
        assert least <= most_lost(model, name, parts) <= 1 + 1e-6


@pytest.mark.parametrize("name", ["laplace-once", "gaussian-once"])
@pytest.mark.parametrize("sizes", [(1.0, 1.0), (0.1, 7.0), (7.0, 0.1)])
def test_each_of_two_people_gets_all_of_the_budget(name: str, sizes: tuple[float, float]) -> None:
    """One moves costs, the other right-hand sides: nobody moves both, so neither is noised as if somebody did."""
    one, two = Records("a"), Records("b")
    apart = entries((one, sizes[0], "objective", {0: 1, 2: -2}), (two, sizes[1], "scalar", {1: 1, 3: 3}))
    assert 1 - CLOSE <= most_lost(apart, name) <= 1 + 1e-6
    same = entries((one, sizes[0], "objective", {0: 1, 2: -2}), (one, sizes[1], "scalar", {1: 1, 3: 3}))
    assert 1 - CLOSE <= most_lost(same, name) <= 1 + 1e-6
