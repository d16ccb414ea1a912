"""After a solve, nothing that can be reached from a problem holds or depends on private values.

Two walks over everything reachable (attributes, slots, properties, containers, arrays): one looks for the private
numbers themselves; the other solves twins whose private values differ, hands both the same outcome, and demands that
every number and every text be the same. What is printed, logged, warned of and reported on the way is searched too.
"""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from families import PORTFOLIO, REGRESSIONS
from private_programs import (
    CASES,
    DIGITS,
    OTHERS,
    SECRETS,
    chances_with_a_level,
    maximised_integers,
    scalar,
    several_parts,
)
from walking import _CLOSED, _inside, assert_no_trace

from dpmodel.programs.unbounded import refuse_unsolvable
from dpmodel.solve import execute as conductor
from dpmodel.solve.registry import by_name

BUDGET = {"epsilon": 1, "delta": 1e-6}
# They choose among few points, or take so few steps at this budget that both twins end in the same one.
MAY_AGREE = {"vertex-exponential", "dense-multiplicative-weights", "point-exponential", "noisy-multiplicative-weights"}
MAY_AGREE |= {"public-only", "split-votes", "cheapest-point", "algorithm-2", "algorithm-5", "algorithm-6"}
MAY_AGREE |= {"even-shares"}
# One of each kind of model and of run by default.
QUICK = {
    "least_squares-sufficient-statistics", "least_squares-frank-wolfe", "people-noisy-hinge-descent",
    "people_with_costs-dense-multiplicative-weights", "shares-multiplicative-weights",
    "people_for_least-cheapest-point", "whole_equations-exact-equations", "scalar-laplace-once",
    "bounded_scalar-strict-truncated-laplace",
    "objective-vertex-exponential", "sparse_matrix-laplace-once", "several_parts-gaussian-once",
    "semidefinite-gaussian-once", "scalar-public-only",
}  # fmt: skip


def solve(problem, mechanism, options, **more):
    return problem.solve(**BUDGET | options, mechanism=mechanism, rng=7, **more)


def held(problem, mechanism, options) -> list[Any]:
    """What a problem says of itself. All mechanisms are planned, except where simulating them takes seconds."""
    regression = mechanism in {m.name for m in REGRESSIONS}
    plan = problem.plan(**BUDGET | options, mechanism=mechanism, compare="needed" if regression else "all")
    return [problem, problem.release, problem.classify(), plan, problem.explain()]


def around(problem) -> list[Any]:
    """The rest of what a user can hold on to."""
    parts = [problem.objective, *problem.constraints, *problem.variables(), *problem.parameters()]
    parts += [*problem.constants(), *problem.atoms(), [p.layout for p in problem.parameters()]]
    return [*parts, problem.objective.expr, [c.args for c in problem.constraints], problem.size_metrics]


def test_every_mechanism_is_walked():
    assert {m.name for m in (*PORTFOLIO, *REGRESSIONS)} <= {name for _, name, _ in CASES}


# ------------------------------------------------------------------ twins
# What differs between any two problems: ids (also in CVXPY's lowered forms and id maps), numbered names with their
# digest, and times.
_OWN = re.compile(
    r"(\bid|_id|_token|\.source\[0\]|timings\[.*\]|_time('\])?|_memo\['digest'\]|_stamps|seconds|\.key|var_id\w*|id_map\w*)(\[\.\.\.\])?(\[\d+\])*$"
    r"|canonical_form\[0\](\.args\[\d+\]|\.data)*$|\._inverse\[\d+\]\[\d+\]\[\.\.\.\]$"
)


def leaves(things: list[Any]) -> Iterator[tuple[str, Any]]:
    """(path, array or text) of everything reachable, in an order that does not depend on ids."""
    pending = [(f"[{i}]", thing, 0) for i, thing in enumerate(things)]
    seen, kept = set(), []
    while pending:
        path, thing, built = pending.pop()
        if isinstance(thing, (str, bytes, bool)):
            yield path, thing
        elif isinstance(thing, (int, float, complex, np.number)):
            yield path, np.asarray(thing)
        elif thing is None or isinstance(thing, _CLOSED) or id(thing) in seen:
            continue
        else:
            seen.add(id(thing))
            kept.append(thing)
            if isinstance(thing, np.ndarray) and thing.dtype.kind in "biufc":
                yield path, thing
            elif sp.issparse(thing):
                yield path, sp.coo_array(thing).toarray()
            elif not isinstance(thing, (set, frozenset)):  # no order; the other walk looks into them
                pending += [(path + name, value, built + new) for name, value, new in _inside(thing, built)]


def differences(one: list[Any], two: list[Any]) -> list[str]:
    found = []
    for twin in (one, two):  # properties fill caches, which the next walk sees
        list(leaves(twin))
    # What is its own in each twin may be there in one only: a digest is taken of models whose plan took a while.
    first, second = ([leaf for leaf in leaves(twin) if not _OWN.search(leaf[0])] for twin in (one, two))
    assert len(first) > 250
    if [path for path, _ in first] != [path for path, _ in second]:
        only = {path for path, _ in first} ^ {path for path, _ in second}
        return [f"reachable in one only: {sorted(only)[:5]}"]
    for (path, a), (_, b) in zip(first, second, strict=True):
        if isinstance(a, np.ndarray):
            same = a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        else:
            same = _without_ids(a) == _without_ids(b)
        if not same:
            found.append(path)
    return found


def _without_ids(text: Any) -> Any:
    return re.sub(r"0x[0-9a-f]+|\b(var|param)\d+|seconds +.*", "", text) if isinstance(text, str) else text


class _SameOutcome:
    """Runs the real mechanism, then hands out the outcome of the first twin."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcomes: list[Any] = []

    def of(self, name, kind):
        self.serves = by_name(name, kind).serves
        return self

    def run(self, model, options, source, progress):
        self.outcomes.append(by_name(self.name, type(model)).run(model, options, source, progress))
        return self.outcomes[0]


@pytest.mark.parametrize(
    ("build", "mechanism", "options"),
    [
        pytest.param(*case, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for case in CASES
        for name in (f"{case[0].__name__}-{case[1]}",)
    ],
)
def test_a_solve_leaves_no_trace(build, mechanism, options, monkeypatch, caplog, capfd):
    stub = _SameOutcome(mechanism)
    monkeypatch.setattr(conductor, "by_name", stub.of)
    caplog.set_level(logging.DEBUG)
    problem, seen = build(SECRETS), []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solve(problem, mechanism, options, verbose=True, progress=lambda *stage: seen.append(stage))
    one = held(problem, mechanism, options)
    text = " ".join((*capfd.readouterr(), caplog.text, repr(seen), *(str(w.message) for w in caught)))
    assert problem.release.mechanism == mechanism and mechanism in text and seen

    twin = build(OTHERS)
    solve(twin, mechanism, options, verbose=True, progress=lambda *stage: None)
    assert len(stub.outcomes) == 2
    # In the last of these the twins' labels are alike.
    if mechanism not in MAY_AGREE and build not in (maximised_integers, chances_with_a_level):
        first, second = (getattr(each.x, "demand", each.x) for each in stub.outcomes)  # of shares what is released
        assert not np.allclose(first, second), "the data had no say at all"
    assert differences(one, held(twin, mechanism, options)) == []

    _, release, classification, _, explanation = one
    text += f"{one} {release._repr_html_()} {explanation._repr_html_()} {json.dumps(release.to_dict())}"
    text += f"{classification.to_dict()} {explanation.to_dict()} {explanation}"
    assert not DIGITS.search(text), DIGITS.search(text)
    assert_no_trace([*one, *around(problem)], [SECRETS])


def test_the_walk_finds_what_is_hidden():
    problem = scalar(SECRETS)
    solve(problem, "laplace-once", {})
    everything = [*held(problem, "laplace-once", {}), *around(problem)]
    for hidden in ({"a": [np.array([1.0, SECRETS[1]])]}, -SECRETS, float(SECRETS[0]), ValueError(SECRETS[2])):
        problem.variables()[0].note = hidden
        with pytest.raises(AssertionError):
            assert_no_trace(everything, [SECRETS])
    del problem.variables()[0].note
    assert_no_trace(everything, [SECRETS])
    problem.facts["model"][1].cached("leak", lambda: -SECRETS)
    with pytest.raises(AssertionError):
        assert_no_trace(everything, [SECRETS])


def test_the_comparison_of_twins_finds_a_dependence(monkeypatch):
    stub = _SameOutcome("laplace-once")
    monkeypatch.setattr(conductor, "by_name", stub.of)
    twins = [(scalar(values), values) for values in (SECRETS, OTHERS)]
    for twin, _ in twins:
        solve(twin, "laplace-once", {})
    told = [held(twin, "laplace-once", {}) for twin, _ in twins]
    assert differences(*told) == []
    for spoil in (
        lambda p, v: p.variables()[0].__dict__.update(note=f"about {v[0]:.0f}"),
        lambda p, v: p.variables()[0].__dict__.update(note=v > 5000),
        lambda p, v: p.variables()[0].__dict__.update(note=0) or p.facts["model"][1].cached("spoiled", lambda: v.sum()),
    ):
        for twin, values in twins:
            spoil(twin, values)
        assert differences(*told) != []


def test_memory_of_the_model_is_not_written_by_a_run():
    """What `run` remembers lives on with the problem: it must be the same before and after. Plans, and the checks that
    a solve makes of public facts before its charge, may write."""
    problem = scalar(SECRETS)
    plan = problem.plan(epsilon=1, delta=1e-6, mechanism="laplace-once")
    refuse_unsolvable(problem.facts["model"][1], plan.chosen, True)
    memo = problem.facts["model"][1]._memo
    before = set(memo)
    solve(problem, "laplace-once", {})
    assert problem.facts["model"][1]._memo is memo
    assert set(memo) == before


def test_progress_reports_are_public_facts():
    reports: list[list[Any]] = [[], []]
    for values, seen in zip((SECRETS, OTHERS), reports, strict=True):
        solve(several_parts(values), "laplace-once", {}, progress=lambda *stage, seen=seen: seen.append(stage))
    assert reports[0] == reports[1]
