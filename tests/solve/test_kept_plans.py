"""Plans kept for the process: the same public facts, the same plan; any other fact, another digest."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.solve import kept
from dpmodel.solve.kept import digest


@pytest.fixture(autouse=True)
def every_plan_is_worth_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", -1.0)


PEOPLE = dpm.Records("people")


def program(
    value: Any = None,
    linf: float = 1.0,
    bounds: Any = (0, 9),
    name: str = "b",
    cost: float = 1.0,
    most: float = 50.0,
    cap: float = 100.0,
    records: Any = PEOPLE,
    unit: Any = "entry",
    label: str = "need",
    whole: bool = False,
) -> dpm.Problem:
    b = dpm.Private(value, shape=3, name=name, unit=unit, linf=linf, bounds=list(bounds), records=records)
    x = cp.Variable(3, name="x", bounds=[0, most], integer=whole)
    limit = cp.Parameter(name="limit", value=cap)
    return dpm.Problem(cp.Minimize(cost * cp.sum(x)), [(x >= b).set_label(label), cp.sum(x) <= limit])


OTHERS = [
    (program, {"linf": 2.0}),
    (program, {"bounds": (0, 8)}),
    (program, {"name": "needs"}),
    (program, {"cost": 2.0}),
    (program, {"most": 51.0}),
    (program, {"cap": 99.0}),
    (program, {"records": dpm.Records("people", neighbors="add-remove")}),
    (program, {"unit": "all"}),
    (program, {"label": "demand"}),
    (program, {"whole": True}),
]


def same(one: Any, other: Any) -> bool:
    """Whether two plans are one, but for where each looks for what would help."""
    return one.candidates is other.candidates


def facts(problem: dpm.Problem) -> bytes:
    found = digest(problem._door(None).data)
    assert found is not None
    return found


@pytest.mark.parametrize(("write", "other"), OTHERS, ids=lambda each: "-".join(each) if isinstance(each, dict) else "")
def test_another_fact_is_another_digest(write: Any, other: dict[str, Any]) -> None:
    assert facts(write()) == facts(write()) != facts(write(**other))


def test_private_values_are_no_part_of_it() -> None:
    assert facts(program([1.0, 2.0, 3.0])) == facts(program([3.0, 2.0, 1.0])) == facts(program())


def test_shared_records_differ_from_separate_ones() -> None:
    def two(*records: dpm.Records) -> dpm.Problem:
        a, b = (dpm.Private(shape=2, name=n, linf=1, records=r) for n, r in zip("ab", records, strict=True))
        x = cp.Variable(2, name="x", nonneg=True)
        return dpm.Problem(cp.Minimize(cp.sum(x)), [x >= a, x >= b])

    # Tables of one name and of the same people, so that only their being one or two tells them apart.
    table, other = (dpm.Records.of_table("table", "replace-one", PEOPLE) for _ in range(2))
    assert facts(two(table, table)) != facts(two(table, other))
    strangers = dpm.Records.of_table("table", "replace-one", dpm.Records("strangers"))  # the plan says whose they are
    assert facts(two(table, table)) != facts(two(strangers, strangers))


def test_a_problem_written_anew_has_the_plan() -> None:
    first = program().plan(1.0, 1e-6)
    assert same(program([1.0, 2.0, 3.0]).plan(1.0, 1e-6), first)
    assert not same(program().plan(2.0, 1e-6), first)
    assert not same(program().plan(1.0, 1e-6, beta=0.01), first)
    kept.forget()
    assert not same(program().plan(1.0, 1e-6), first)


def test_what_cvxpy_adds_tells_no_two_problems_apart() -> None:
    """It numbers the variables of cones anew each time."""

    def made() -> dpm.Problem:
        b = dpm.Private(shape=3, name="b", unit="entry", linf=1.0, bounds=[0, 9])
        x = cp.Variable(3, name="x", bounds=[0, 50])
        return dpm.Problem(cp.Minimize(cp.norm(x) + cp.sum(x)), [(x >= b).set_label("need")])

    assert facts(made()) == facts(made())
    names = made()._compiled()[0].affine.column_names
    assert set(names) == {"x", "an auxiliary variable"}


def test_what_takes_no_time_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 3600.0)
    monkeypatch.setattr(kept, "digest", None)  # nor is a digest taken
    assert not same(program().plan(1.0), program().plan(1.0))


def test_a_kept_plan_holds_no_model() -> None:
    """Private values live in the problem that they were given to, and the plan of another looks for help in its own."""
    first, other = program([1.0, 2.0, 3.0]), program()
    plans = [each.plan(0.01) for each in (first, other)]
    assert same(*plans) and all(plan.helped for plan in plans) and plans[0].answer == plans[1].answer
    assert all(not plan.helped for plan in kept._plans.values())
    model = plans[1].help.args[0]  # type: ignore[attr-defined]
    assert model.problem is other


def test_what_is_not_known_is_planned_anew() -> None:
    assert digest(object()) is None
    assert digest((1, np.array([object()]))) is None
    assert digest(np.zeros(kept._MOST_BYTES)) is None


def test_values_do_not_run_together() -> None:
    pairs = [(("ab", "c"), ("a", "bc")), ((1, (2, 3)), (1, 2, 3)), (1, 1.0), (np.zeros(4), np.zeros((2, 2))), ("1", 1)]
    for one, other in pairs:
        assert digest(one) != digest(other)


def test_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_PLANS", 2)
    plans = [program(cap=cap).plan(1.0) for cap in (90.0, 91.0, 92.0)]
    assert same(program(cap=92.0).plan(1.0), plans[2]) and same(program(cap=91.0).plan(1.0), plans[1])
    assert not same(program(cap=90.0).plan(1.0), plans[0])


def test_a_kept_choice_is_forecast_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a digest that tells nothing apart. The plan of the other model is not used, nor its charge."""
    monkeypatch.setattr(kept, "digest", lambda data: b"the same")
    first = program().plan(1.0, 1e-6)
    assert same(program().plan(1.0, 1e-6), first)
    other = program(linf=3.0).plan(1.0, 1e-6)
    kept.forget()
    assert other == program(linf=3.0).plan(1.0, 1e-6) != first


def test_regressions_are_planned_anew() -> None:
    X = dpm.Private(shape=(20, 2), name="X", unit="row", bounds=[-1, 1])
    w = cp.Variable(2, name="w")
    model = dpm.Problem(cp.Minimize(cp.sum_squares(X @ w - 1)), [cp.norm1(w) <= 1])._door(None)
    assert digest(model.data) is None
