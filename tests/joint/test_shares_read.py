"""What is read of a model is the model: the same objective, sums and limits at any shares as CVXPY has."""

from __future__ import annotations

import re
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from models_of_shares import Model, advertisers, appointments, charging, marked, plain, timetables
from scipy.optimize import linprog

import dpmodel as dpm
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.joint.capacity import PrivateCapacity
from dpmodel.joint.read import Read, read
from dpmodel.joint.respond import respond
from dpmodel.joint.table import people_table

N = 7  # unlike the size of any other axis here


def _person(read: Read, number: int) -> tuple[Any, ...]:
    """Values, bounds, A, W and limits of one person, dense."""
    form, person = read.form, people_table(read).person(number)
    use = np.zeros((form.resources, form.size))
    use[form.use_at] = np.asarray(person.use)[0]
    rows = np.zeros((len(form.personal), form.size + form.extra))
    rows[form.limits_at] = np.asarray(person.coefficients)[0]
    caps = np.full(form.size, np.inf) if person.caps is None else np.asarray(person.caps)[0]
    return np.asarray(person.values)[0], caps, use, rows, np.asarray(person.limits)[0]


def _same(model: Model, seed: int = 0, *, most: float = 1.0) -> Read:
    """That ``read`` and CVXPY agree at random shares."""
    problem, shares = marked(model)
    found = read(problem)
    form, rng = found.form, np.random.default_rng(seed)
    for _ in range(8):
        x = rng.uniform(0, most, shares.shape) * (rng.random(shares.shape) < 0.6)
        if form.integral:
            x = np.rint(x)
        objective, constraints = plain(model, x)
        zero = plain(model, np.zeros(shares.shape))[0].args[0].value
        value, used, allowed = 0.0, np.zeros(form.resources), []
        for i in range(N):
            values, caps, use, rows, limits = _person(found, i)
            share = x[i].ravel()
            used += use @ share
            right = limits - rows[:, : form.size] @ share
            if form.extra:
                t, said = rows[:, form.size :], ~form.personal
                fits = linprog(np.zeros(form.extra), t, right + 1e-9, bounds=(None, None)).status == 0
                # A t that no value is told of is not bounded.
                best = linprog(-values[form.size :], t[said], right[said], bounds=(-99, 99))
                value += values[: form.size] @ share - best.fun
            else:
                fits, value = bool((right >= -1e-9).all()), value + values @ share
            allowed.append(fits and bool((share <= caps + 1e-9).all()))
        sign = -1.0 if found.minimise else 1.0
        assert value == pytest.approx(sign * float(objective.args[0].value) - _offset(found, sign, zero))
        over, fine = [], np.ones(N, dtype=bool)
        for constraint in constraints:
            left = np.asarray(constraint.args[0].value) - np.asarray(constraint.args[1].value)
            left = np.broadcast_to(left, constraint.shape)
            if N in constraint.shape:
                axis = constraint.shape.index(N)
                fine &= (np.moveaxis(left, axis, 0).reshape(N, -1) <= 1e-9).all(axis=1)
            else:
                over.append(np.ravel(left))
        np.testing.assert_allclose(used - found.capacity, np.concatenate(over))
        assert allowed == fine.tolist()
    return found


def _offset(found: Read, sign: float, zero: Any) -> float:
    """What the objective is of no shares, less what the columns t say of it."""
    if not found.form.extra:
        return sign * float(zero)
    total = 0.0
    for i in range(N):
        values, _, _, rows, limits = _person(found, i)
        said = ~found.form.personal
        best = linprog(-values[found.form.size :], rows[said, found.form.size :], limits[said], bounds=(-99, 99))
        total -= best.fun
    return sign * float(zero) - total


@pytest.mark.parametrize(
    "model",
    [
        charging(N),
        charging(N, product=True),
        timetables(N),
        timetables(N, private=True),
        appointments(N),
        appointments(N, boolean=True),
        advertisers(N),
    ],
    ids=["charging", "charging by a product", "timetables", "private timetables", "slots", "whole slots", "bids"],
)
def test_models_of_people_are_read_as_they_are(model: Model) -> None:
    assert _same(model).form.single


def test_what_follows_from_declarations() -> None:
    found = read(marked(charging(N))[0])
    assert found.largest_use == pytest.approx(np.sqrt(8)) and found.most_value == np.inf
    assert found.records.name == "people" and [p.name() for p in found.private] == ["values", "power", "wish"]
    assert read(marked(timetables(N))[0]).largest_use == pytest.approx(np.sqrt(3))
    bids = read(marked(advertisers(N))[0])
    assert bids.largest_use == bids.most_value == 1.0 and len(bids.private) == 1


def test_reading_does_not_take_longer_for_more_people(unread: None) -> None:
    problem, _ = marked(charging(100_000))
    import time

    start = time.perf_counter()
    found = read(problem)
    assert time.perf_counter() - start < 0.5 and found.count == 100_000 and found.form.width == 26


# ------------------------------------------------------------------ the ways in which people write them
RNG = np.random.default_rng(5)
VALUES, POWER, WISH, COST = RNG.random((N, 4)), RNG.uniform(0.5, 1, N), RNG.uniform(1, 3, N), RNG.random((N, 4))
DISTRICT = (np.arange(N)[:, None] % 2 == np.arange(2)).astype(float)
CUBE, SHIFT, TABLE = RNG.random((N, 4, 3)), RNG.uniform(0, 1, (N, 4)), RNG.random((4, 3))


def _spelled(objective: Any, *limits: Any, shape: tuple[int, ...] = (N, 4), **attributes: Any) -> Model:
    """A model of private values, power, wishes, costs and a cube, to which functions of (x, them) give its parts."""

    def model(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
        x = shares(shape, **(attributes or {"nonneg": True}))
        d = {
            "v": mark(VALUES, name="v", bounds=[0, 1]),
            "p": mark(POWER, name="p", unit="entry", bounds=[0.5, 1]),
            "w": mark(WISH, name="w", nonneg=True),
            "c": mark(COST, name="c", nonneg=True),
            "cube": mark(CUBE, name="cube", bounds=[0, 1]),
        }
        goal = objective(x, d)
        goal = goal if isinstance(goal, cp.Minimize | cp.Maximize) else cp.Maximize(goal)
        return goal, [limit(x, d) for limit in limits]

    return model


def _value(x: Any, d: Any) -> Any:
    return cp.sum(cp.multiply(d["v"], x))


def _shared(x: Any, d: Any) -> Any:
    return cp.sum(x, axis=0) <= 2


SPELLED = {
    "trace": _spelled(lambda x, d: cp.trace(d["v"].T @ x), _shared),
    "trace the other way": _spelled(lambda x, d: cp.trace(x @ d["v"].T), _shared),
    "scalar product": _spelled(lambda x, d: cp.scalar_product(x, d["v"]), _shared),
    "vectors": _spelled(lambda x, d: cp.vec(d["v"], order="F") @ cp.vec(x, order="F"), _shared),
    "rows of C order": _spelled(lambda x, d: cp.sum(cp.multiply(x.flatten("C"), d["v"].flatten("C"))), _shared),
    "a loss": _spelled(lambda x, d: cp.Minimize(-_value(x, d) / N + 3), _shared),
    "public values": _spelled(lambda x, d: cp.sum(cp.multiply(SHIFT, x)) + _value(x, d), _shared),
    "values of a number": _spelled(lambda x, d: d["w"] @ cp.sum(x, axis=1), _shared),
    "mean": _spelled(lambda x, d: cp.mean(cp.multiply(d["v"], x)), _shared),
    "transposed": _spelled(
        _value, lambda x, d: x.T @ d["p"] <= 2, lambda x, d: cp.sum(x.T, axis=0) <= d["w"], lambda x, d: x.T <= 1
    ),
    "columns": _spelled(
        lambda x, d: d["v"][:, 0] @ x[:, 0] + cp.sum(cp.multiply(d["v"][:, 1:], x[:, 1:])),
        lambda x, d: cp.sum(x[:, [0, 2]], axis=0) <= 2,
        lambda x, d: cp.sum(x[:, -1]) <= 3,
        lambda x, d: x[:, 0] + x[:, 3] <= d["w"],
        lambda x, d: x[:, np.array([True, False, True, True])] <= 1,
    ),
    "a table": _spelled(
        _value, lambda x, d: cp.sum(x @ TABLE, axis=0) <= 2, lambda x, d: TABLE.T @ cp.sum(x, axis=0) <= 9
    ),
    "districts": _spelled(_value, lambda x, d: DISTRICT.T @ x <= 1, lambda x, d: cp.sum(x) <= 9),
    "a cube": _spelled(
        lambda x, d: cp.sum(cp.multiply(d["cube"], x)),
        lambda x, d: cp.sum(cp.multiply(d["cube"][:, :, 0][:, :, None], x), axis=(0, 2)) <= 2,
        lambda x, d: cp.sum(x, axis=2) <= d["p"][:, None],
        shape=(N, 4, 3),
    ),
    "a vector of shares": _spelled(
        lambda x, d: d["w"] @ x, lambda x, d: d["p"] @ x <= 2, lambda x, d: x <= d["w"], shape=(N,)
    ),
    "stacked": _spelled(
        _value,
        lambda x, d: cp.sum(cp.hstack([x, 2 * x]), axis=0) <= 2,
        lambda x, d: cp.vstack([cp.sum(x, axis=1), x[:, 0]]) <= np.array([[2.0], [0.5]]),
        lambda x, d: cp.hstack([x[:, :1], cp.reshape(d["w"], (N, 1), order="F")]) <= 3,
    ),
    "running sums": _spelled(
        _value, _shared, lambda x, d: cp.cumsum(x, axis=1) <= 2, lambda x, d: cp.diff(x, axis=1) <= 0.5
    ),
    "reshaped": _spelled(
        _value,
        lambda x, d: cp.sum(cp.reshape(x, (N, 2, 2), order="C"), axis=(0, 2)) <= 2,
        lambda x, d: cp.sum(cp.reshape(x, (N, 2, 2), order="F"), axis=2) <= 1,
    ),
    "several bounds": _spelled(
        _value, _shared, lambda x, d: x <= 1, lambda x, d: x <= d["v"], lambda x, d: x <= SHIFT, lambda x, d: x >= 0
    ),
    "bounds": _spelled(_value, _shared, bounds=[0, 0.4]),
    "bounds of each": _spelled(_value, _shared, bounds=[np.zeros((N, 4)), SHIFT]),
    "budgets": _spelled(
        _value,
        lambda x, d: cp.sum(x[:, :1] + x[:, 1:], axis=0) <= 2,
        lambda x, d: cp.sum(cp.multiply(d["c"], x), axis=1) <= 0.7,
        lambda x, d: cp.sum(cp.multiply(SHIFT, x), axis=1) - 0.1 * d["w"] <= 1,
    ),
    "one entry less another": _spelled(_value, _shared, lambda x, d: x[:, 0] - x[:, 1] <= d["w"] / 4),
    "a parameter": _spelled(_value, lambda x, d: cp.sum(x, axis=0) <= cp.Parameter(value=2.0)),
    "whole shares": _spelled(_value, _shared, integer=True, nonneg=True),
    "least of two": _spelled(lambda x, d: cp.sum(cp.minimum(cp.sum(x, axis=1), d["w"])), _shared),
    "steps": _spelled(lambda x, d: _value(x, d) - cp.sum(cp.abs(cp.diff(x, axis=1))), _shared),
    "what is too much": _spelled(
        lambda x, d: _value(x, d) - cp.sum(cp.multiply(d["c"], cp.pos(x - 0.3))) - d["w"] @ cp.max(x, axis=1),
        _shared,
        lambda x, d: cp.norm1(x[:, :2], axis=1) <= 1,
        lambda x, d: cp.max(x, axis=1) <= d["p"],
    ),
    "a loss of the least": _spelled(
        lambda x, d: cp.Minimize(cp.sum(cp.maximum(d["v"] - x, 0)) + cp.sum(cp.abs(x - 0.2))), _shared
    ),
}


@pytest.mark.parametrize("name", SPELLED)
def test_ways_of_writing(name: str) -> None:
    _same(SPELLED[name])


def test_as_many_people_as_hours() -> None:
    one, other = (read(marked(charging(n))[0]).form for n in (24, 25))
    for part in ("values", "use", "coefficients", "limits"):
        a, b = getattr(one, part), getattr(other, part)
        assert (a.matrix != b.matrix).nnz == 0 and (a.constant == b.constant).all()
    assert one.data == other.data and (one.use_at[0] == other.use_at[0]).all()


def test_public_numbers_of_people_are_data_of_theirs() -> None:
    weights, place = cp.Parameter((N, 4), name="weights", value=SHIFT), cp.Parameter((N, 2), value=DISTRICT, name="at")
    found = _same(
        _spelled(
            lambda x, d: _value(x, d) + cp.sum(cp.multiply(weights, x)),
            lambda x, d: place.T @ cp.multiply(SHIFT, x) <= 2,
            lambda x, d: cp.sum(cp.multiply(np.tile([1.0, 2, 3, 4], (N, 1)), x), axis=1) <= 3,
        )
    )
    # What is the same for all is no data, and what is multiplied is the product.
    assert [name for name, _ in found.form.data] == ["v", "weights", "public"]
    assert [array.shape for array in found.public] == [(N, 4), (N, 8)]


def test_names_of_data_are_unlike() -> None:
    people = dpm.Records("people")
    v, w = (dpm.Private(VALUES, unit="row", records=people, name="v") for _ in range(2))
    x = dpm.Shares((N, 4), records=people, nonneg=True)
    goal = cp.Maximize(cp.sum(cp.multiply(v + w, x)))
    assert read(dpm.Problem(goal, [cp.sum(x, axis=0) <= 1, x <= w])).form.data == (("v", 4), ("v (2)", 4))


def test_bounds_of_some_entries_are_limits() -> None:
    most = np.array([1.0, np.inf, 1.0, np.inf])
    with pytest.raises(UnsupportedModelError, match="others none"):
        read(marked(_spelled(_value, _shared, bounds=[0, np.tile(most, (N, 1))]))[0])
    assert read(marked(_spelled(_value, _shared, bounds=[0, np.inf]))[0]).form.caps == ()


def test_a_norm_of_shares_is_their_sum() -> None:
    assert read(marked(_spelled(_value, _shared, lambda x, d: cp.norm1(x, axis=1) <= d["w"]))[0]).form.single


# ------------------------------------------------------------------ capacities that are private
@pytest.mark.parametrize("unit", ["all", "entry"])
def test_private_capacities(unit: Any) -> None:
    people, others = dpm.Records("people"), dpm.Records("suppliers")
    supply = dpm.Private(np.array([[3.0, 4.0], [5.0, 6.0]]), unit=unit, linf=1, records=others, name="supply")
    spare = dpm.Private(2.0, unit="all", linf=1, records=others, name="spare")
    v = dpm.Private(RNG.random((N, 2, 2)), unit="row", records=people)
    x = dpm.Shares((N, 2, 2), records=people, nonneg=True)
    limits = [cp.sum(x, axis=0) <= 2 * supply - 1, cp.sum(x[:, 0]) <= 7, cp.sum(x[:, 1]) + 0.5 <= spare, x <= 1]
    found = read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), limits))
    np.testing.assert_array_equal(found.capacity, [np.nan] * 4 + [7, np.nan])
    assert [each.name() for each in found.limits] == ["supply", "spare"]
    entries = np.concatenate([[3.0, 5.0, 4.0, 6.0], [2.0]])  # column by column
    np.testing.assert_allclose(found.limits_map @ entries + found.limits_constant, [5, 7, 9, 11, 7, 1.5])
    assert [label[-6:] for label in found.labels[:2]] == ["[0, 0]", "[0, 1]"]
    capacity = PrivateCapacity(found.limits, found.limits_map, found.limits_constant)
    np.testing.assert_allclose(capacity.read(), [5, 7, 9, 11, 7, 1.5])
    # One record moves all four entries, or one, by one; twice that in the rows; and the spare number beside.
    assert capacity.sensitivity == pytest.approx(np.sqrt(4 * 4 + 1) if unit == "all" else np.sqrt(4 + 1))
    with pytest.raises(SpecificationError, match="without a public level"):
        capacity.level  # noqa: B018


def test_levels_of_private_capacities() -> None:
    limits = [
        dpm.Private([1.0, 1.0], unit="all", linf=1, typical=[4.0, 5.0]),
        dpm.Private(2.0, unit="all", bounds=[1, 9]),
    ]
    capacity = PrivateCapacity(limits, np.array([[1.0, 0, 0], [0, 1, 1]]), np.array([0.5, 0]))
    np.testing.assert_array_equal(capacity.level, [4.5, 10])
    np.testing.assert_array_equal(capacity.read(), [1.5, 3])


# ------------------------------------------------------------------ what is refused, with row, rule and remedy
OTHERS = dpm.Records("others")
PRICE = dpm.Private(np.ones(4), unit="all", linf=1, name="price", records=OTHERS)
ANY = dpm.Private(np.ones(4), unit="entry", name="anything", records=OTHERS)
THEIRS = dpm.Private(np.ones(N), unit="entry", name="theirs", records=OTHERS)
REFUSED = {
    "equality": (_spelled(_value, _shared, lambda x, d: cp.sum(x, axis=1) == 1), "constraint 1", "equality"),
    "lower limit": (_spelled(_value, _shared, lambda x, d: cp.sum(x, axis=1) >= 1), "constraint 1", "lower limit"),
    "private need": (_spelled(_value, _shared, lambda x, d: cp.sum(x, axis=1) >= d["w"]), "constraint 1", "lower"),
    "limit below 0": (_spelled(_value, _shared, lambda x, d: x[:, 0] <= -1), "constraint 1", "share of 0"),
    "limit below 0 of some": (_spelled(_value, _shared, lambda x, d: x <= SHIFT - 0.5), "constraint 1", "share of 0"),
    "least sum": (_spelled(_value, lambda x, d: cp.sum(x, axis=0) >= 1), "constraint 0", "negative"),
    "exact sum": (_spelled(_value, lambda x, d: cp.sum(x, axis=0) == 1), "constraint 0", "equality"),
    "no capacity": (_spelled(_value, lambda x, d: cp.sum(x, axis=0) <= -1), "constraint 0", "capacity is negative"),
    "giving back": (_spelled(_value, lambda x, d: cp.sum(x[:, 0] - x[:, 1]) <= 1), "constraint 0", "negative"),
    "use of unknown sign": (
        _spelled(_value, lambda x, d: cp.sum(cp.multiply(d["v"] - d["w"][:, None], x), axis=0) <= 1),
        "constraint 0",
        "v, w may be negative",
    ),
    "sum of private numbers": (
        _spelled(_value, lambda x, d: cp.sum(x, axis=0) <= cp.sum(d["w"])),
        "constraint 0",
        "a sum of private numbers",
    ),
    "no share": (_spelled(_value, _shared, lambda x, d: d["w"] <= 9), "constraint 1", "no share"),
    "other variables": (_spelled(_value, lambda x, d: cp.sum(x, axis=0) <= cp.Variable(4, name="y")), "y", "owned"),
    "a private price": (_spelled(lambda x, d: _value(x, d) - cp.sum(x, axis=0) @ PRICE, _shared), "price", "no row"),
    "others' numbers": (_spelled(lambda x, d: THEIRS @ x[:, 0], _shared), "theirs", "a row for each of others"),
    "a product of numbers": (
        _spelled(lambda x, d: cp.sum(cp.multiply(d["v"], cp.multiply(SHIFT, x))), _shared),
        "objective",
        "product is not affine",
    ),
    "curved values": (_spelled(lambda x, d: cp.sum(cp.log(1 + x)), _shared), "objective", "log of shares"),
    "a capacity that may be anything": (
        _spelled(_value, lambda x, d: cp.sum(x, axis=0) <= ANY),
        "anything",
        "arbitrarily far",
    ),
    "the peak": (_spelled(lambda x, d: -cp.max(cp.sum(x, axis=0)), _shared), "objective", "sum over all people"),
    "the poorest": (_spelled(lambda x, d: cp.min(cp.sum(x, axis=1)), _shared), "objective", "over records"),
    "some of the people": (_spelled(_value, lambda x, d: cp.sum(x[:3], axis=0) <= 1), "constraint 0", "some of the"),
    "one person": (_spelled(_value, _shared, lambda x, d: x[0] <= 1), "constraint 1", "some of the records"),
    "people in reverse": (_spelled(_value, _shared, lambda x, d: x[::-1] <= SHIFT), "constraint 1", "some of the"),
    "one against all": (_spelled(_value, _shared, lambda x, d: x <= cp.sum(x, axis=0)), "constraint 1", "beside a sum"),
    "everybody with everybody": (_spelled(lambda x, d: cp.sum(d["v"] @ x.T), _shared), "objective", "another"),
    "a running sum of people": (_spelled(_value, lambda x, d: cp.cumsum(x, axis=0) <= 1), "constraint 0", "running"),
    "nothing shared": (_spelled(_value, lambda x, d: x <= 1), "a problem", "nothing is shared|limited"),
    "use by pieces": (_spelled(_value, lambda x, d: cp.sum(cp.pos(x - 1), axis=0) <= 1), "constraint 0", "piecewise"),
    "pieces off 0": (_spelled(_value, _shared, lambda x, d: cp.max(x + 1, axis=1) <= 3), "constraint 1", "share of 0"),
    "private pieces": (
        _spelled(_value, _shared, lambda x, d: cp.maximum(x[:, 0], d["w"]) <= 3),
        "constraint 1",
        "share of 0",
    ),
    "a cone": (_spelled(_value, _shared, lambda x, d: cp.norm(x, 2, axis=1) <= 3), "constraint 1", "norm2|Pnorm"),
    "convex values": (_spelled(lambda x, d: cp.sum(cp.abs(x)), _shared), "objective", "DCP"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_and_where(case: str, unread: None) -> None:
    model, where, rule = REFUSED[case]
    with pytest.raises(UnsupportedModelError) as caught:
        read(marked(model)[0])
    error = caught.value
    assert where in error.what and re.search(rule, str(error)) and error.remedy


def test_unnamed_people_beside_named_ones() -> None:
    v = dpm.Private(VALUES, unit="row", name="v")
    x = dpm.Shares((N, 4), records=dpm.Records("people"), nonneg=True)
    with pytest.raises(SpecificationError, match="same people"):
        read(dpm.Problem(cp.Maximize(cp.sum(cp.multiply(v, x))), [cp.sum(x, axis=0) <= 1]))


def test_one_share_a_person() -> None:
    people = dpm.Records("people")
    x, y = (dpm.Shares((N, 2), records=people, nonneg=True, name=name) for name in "xy")
    with pytest.raises(UnsupportedModelError, match="one Shares"):
        read(dpm.Problem(cp.Maximize(cp.sum(x)), [cp.sum(x + y, axis=0) <= 1]))


# ------------------------------------------------------------------ bounds that follow from declarations
def _corners(read: Read, rng: np.random.Generator) -> tuple[float, float]:
    """The largest use, and size of a value, found among shares at corners of what extreme people may have."""
    form, (low, high) = read.form, read.ranges
    most = value = 0.0
    for _ in range(60):
        people = form.people(np.where(rng.random(low.size) < 0.6, high, low)[None, :])
        use = np.zeros((form.resources, form.size))
        use[form.use_at] = np.asarray(people.use)[0]
        rows = np.zeros((len(form.personal), form.size))
        rows[form.limits_at] = np.asarray(people.coefficients)[0]
        caps = np.full(form.size, np.inf) if people.caps is None else np.asarray(people.caps)[0]
        for _ in range(4):
            goal = rng.normal(size=form.size) * (rng.random(form.size) < 0.7)
            found = linprog(-goal, rows, np.asarray(people.limits)[0], bounds=[(0, min(c, 99)) for c in caps])
            most = max(most, float(np.linalg.norm(use @ found.x)))
            value = max(value, abs(float(np.asarray(people.values)[0] @ found.x)))
    return most, value


@pytest.mark.parametrize("seed", range(6))
def test_bounds_of_use_and_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.uniform(-0.2, 1, 4)

    def model(mark: Any, shares: Any) -> tuple[Any, list[Any]]:
        x = shares((N, 4), nonneg=True)
        v, p = mark(VALUES, bounds=[-1, 2]), mark(COST, bounds=[rng.uniform(0, 0.5), 1])
        w = mark(WISH, bounds=[0.5, 3])
        return cp.Maximize(cp.sum(cp.multiply(v, x))), [
            cp.sum(cp.multiply(p, x), axis=0) <= 2,
            (x @ np.abs(TABLE)).sum(axis=0) <= 2,
            x <= w[:, None],
            cp.sum(cp.multiply(v + 1.5, x), axis=1) <= w,
            x @ table <= 1,
        ]

    found = read(marked(model)[0])
    use, value = _corners(found, rng)
    assert use <= found.largest_use <= 3 * use and value <= found.most_value <= 3 * value


def test_what_nothing_bounds() -> None:
    free = read(marked(_spelled(_value, _shared))[0])
    assert free.largest_use == free.most_value == np.inf
    assert read(marked(_spelled(_value, lambda x, d: d["w"] @ x <= 2, lambda x, d: x <= 1))[0]).largest_use == np.inf
    pieces = read(marked(_spelled(lambda x, d: -cp.sum(cp.pos(x - d["v"])), _shared, lambda x, d: x <= 1))[0])
    assert pieces.largest_use == 2 and pieces.most_value == np.inf


ABSENT = {
    "values": (_spelled(_value, _shared), True),
    "wishes": (_spelled(lambda x, d: cp.sum(x), _shared, lambda x, d: cp.sum(x, axis=1) <= d["w"]), True),
    "bounds": (_spelled(lambda x, d: cp.sum(x), _shared, lambda x, d: x <= d["c"]), True),
    "use": (_spelled(lambda x, d: cp.sum(x), lambda x, d: d["w"] @ x <= 1), True),
    "public values": (_spelled(lambda x, d: cp.sum(x), _shared, lambda x, d: cp.sum(x, axis=1) <= 1), False),
    "public values beside": (_spelled(lambda x, d: _value(x, d) + cp.sum(cp.multiply(SHIFT, x)), _shared), False),
    "a lowest power": (_spelled(lambda x, d: cp.sum(x), lambda x, d: d["p"] @ x <= 1), False),
    "a room for more": (
        _spelled(lambda x, d: cp.sum(x), _shared, lambda x, d: cp.sum(x, axis=1) <= d["w"] + 1, lambda x, d: x <= 1),
        False,
    ),
    "pieces": (_spelled(lambda x, d: cp.sum(cp.minimum(x, d["c"])), _shared), False),
}


@pytest.mark.parametrize("case", ABSENT)
def test_what_an_absent_person_uses(case: str) -> None:
    """A row of zeros, cut to what is declared, at price 0 and at others."""
    model, nothing = ABSENT[case]
    found = read(marked(model)[0])
    assert found.absent_uses_nothing == nothing
    if found.form.single:
        zeros = [np.clip(np.zeros((N, p.size // N)), *p.column_range) for p in found.private]
        rows = np.concatenate([np.zeros((N, 0)), *zeros, *found.public], axis=1)
        for price in (0.0, 0.1):
            use = respond(found.form, found.form.people(rows), np.full(found.form.resources, price), 9.0)[1]
            assert not (nothing and use.any())
