"""The query release model: counts by hand, sensitivity by brute force, bad input before any spend, answers after."""

from __future__ import annotations

import functools
import itertools
import time

import numpy as np
import pytest
import scipy.sparse as sp

import dpmodel as dpm
from dpmodel.compile.footprint import sensitivity_of
from dpmodel.marks import vault
from dpmodel.marks.domain import Domain
from dpmodel.released import query_release as _query_release
from dpmodel.released.faces.workload import Tables, counts, sums

query_release = functools.partial(_query_release, neighbors="add-remove")  # unless a test says otherwise

DOMAIN = {"a": 2, "b": ["x", "y", "z"], "c": 4}
TABLE = {
    "a": [0, 0, 1, 1, 1, 0, 1],
    "b": ["x", "y", "z", "z", "x", "x", "z"],
    "c": [3, 0, 1, 1, 2, 3, 1],
}
CODES = np.array([[0, 0, 3], [0, 1, 0], [1, 2, 1], [1, 2, 1], [1, 0, 2], [0, 0, 3], [1, 2, 1]])
BIG = {f"c{i}": 40 for i in range(5)}


def by_hand(columns):
    sizes = [{"a": 2, "b": 3, "c": 4}[c] for c in columns]
    out = np.zeros(sizes)
    for row in CODES:
        out[tuple(row["abc".index(c)] for c in columns)] += 1
    return out


def solved(release, seed=0, epsilon=1e6, delta=1e-6):
    return release.solve(epsilon, delta, rng=seed)


# ------------------------------------------------------------------ the release
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_answers_are_the_counts_when_noise_is_small(neighbors, loss, delta):
    query = query_release(
        TABLE, [("a", "b"), ("b", "c"), "c"], domain=DOMAIN, neighbors=neighbors, loss=loss, weights={"c": 2.0}
    )
    release = solved(query, delta=delta)
    for columns in (("a", "b"), ("b", "c"), ("c",), ("b",), ("a",)):
        np.testing.assert_allclose(release.answers(columns).values, by_hand(columns), atol=0.05)
        np.testing.assert_array_equal(query.answers(columns).values, release.answers(columns).values)
    turned = release.answers(("b", "a"))
    assert turned.columns == ("b", "a") and turned.categories == (*release.answers("b").categories, (0, 1))
    np.testing.assert_array_equal(turned.values, release.answers(("a", "b")).values.T)
    np.testing.assert_array_equal(release.to_frame(("b", "a"))["value"], turned.values.ravel())
    assert release.answers("b").categories == (("x", "y", "z"),)
    np.testing.assert_array_equal(np.asarray(release.answers("a")), release.answers("a").values)
    assert list(release.marginals) == [("a", "b"), ("b", "c"), ("c",)]


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_a_release_of_unequal_columns_in_every_order(neighbors):
    """Columns that the workload names in another order than the domain; the release reads itself again."""
    rng = np.random.default_rng(1)
    domain = {"a": 3, "b": 4, "c": 3, "d": 2}
    table = {c: rng.integers(0, n, 400) for c, n in domain.items()}
    query = query_release(table, [("d", "b"), ("c", "a"), ("b", "c")], domain=domain, neighbors=neighbors)
    release = query.solve(3.0, 1e-6, rng=2)
    assert release.mechanism in ("residual-gaussian", "marginal-laplace")
    for m in query.workload:
        true = np.zeros([domain[c] for c in m])
        np.add.at(true, tuple(table[c] for c in m), 1)
        assert np.abs(release.marginals[m].values - true).max() < 40
        assert release.marginals[m].values.min() >= 0
    np.testing.assert_allclose(release.answers("b").values, release.marginals["b", "d"].values.sum(axis=1))
    np.testing.assert_allclose(release.answers("b").values, release.marginals["b", "c"].values.sum(axis=1))
    again = type(release).from_json(release.to_json())
    errors, same = release.standard_errors(draws=5), again.standard_errors(draws=5)
    assert errors == pytest.approx(same) and set(errors) == set(query.workload)
    noise = query.plan(3.0, 1e-6).noise
    for m, d in zip(noise.residuals.tables.sets, noise.deviations, strict=True):
        assert 0.3 * d < errors[query._named(m)] <= 1.7 * d
    total = release.answers("a").values.sum()
    assert total == pytest.approx(400) if neighbors == "replace-one" else abs(total - 400) < 60


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("loss", ["mean", "max"])
def test_few_records_have_the_tables_of_independent_columns(loss, delta):
    """Where noise drowns pairs; a table with many records has its pairs."""
    rng = np.random.default_rng(0)
    domain = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 5}
    pairs = list(itertools.combinations(domain, 2))
    for people, neighbors in ((50, "add-remove"), (50, "replace-one"), (20_000, "add-remove")):
        table, drowns = {c: rng.integers(0, n, people) for c, n in domain.items()}, people == 50
        table["d"] = table["a"]
        query = query_release(table, pairs, domain=domain, neighbors=neighbors, loss=loss)
        release = query.solve(0.2, delta, rng=1)
        values = release.marginals["a", "d"].values
        alike = np.outer(values.sum(axis=1), values.sum(axis=0)) / values.sum()
        assert np.allclose(values, alike) == drowns
        assert ("columns alone" in release.accuracy.statement) == drowns
        assert ("columns alone" in str(query.plan(0.2, delta))) == (neighbors == "replace-one")


def test_ranges_are_closer_where_blocks_are_counted_too():
    """As docs/guide/query-release.md has it: all ranges of 100 values, by those of four other columns."""
    rng, gaps = np.random.default_rng(0), {"age": [], "block": []}
    age, others = np.minimum(rng.gamma(4, 8, 2000).astype(int), 99), {"c": 2, "d": 3, "e": 4, "f": 2}
    people = {"age": age, "block": age // 10, "place": age % 10} | {
        c: rng.integers(0, n, 2000) for c, n in others.items()
    }
    domain = {"age": 100, "block": 10, "place": 10} | others
    low, high = np.triu_indices(101, 1)
    for way, each in gaps.items():
        full = ("age",) if way == "age" else ("block", "place")
        work = list(itertools.combinations(others, 2)) + [
            m for c in others for m in dict.fromkeys([(way, c), (*full, c)])
        ]
        query = query_release(people, work, domain=domain)
        for seed, (c, n) in itertools.product(range(3), others.items()):
            truth = np.histogram2d(age, people[c], bins=[np.arange(101), np.arange(n + 1)])[0]
            found = query.solve(0.1, 1e-6, rng=seed).answers((*full, c)).values.reshape(100, n)
            sums = np.cumsum(np.insert(found - truth, 0, 0.0, axis=0), axis=0)
            each.append(np.abs(sums[high] - sums[low]).mean())
    assert np.mean(gaps["block"]) < 0.8 * np.mean(gaps["age"])


def test_tables_of_true_counts_agree():
    domain = Domain.of(DOMAIN)
    tables = Tables.local(domain, [("a", "b"), ("b", "c"), ("a", "c")])
    x = np.concatenate([counts(domain, CODES, "abc", t) for t in tables.offset])
    assert not (tables.consistency() @ x).any()
    assert set(tables.offset) == {("a", "b"), ("b", "c"), ("a", "c"), ("a",), ("b",), ("c",), ()}


@pytest.mark.parametrize("marginal", [(), ("a",), ("c",), ("a", "c"), ("b", "c"), ("a", "b", "c")])
def test_sums_by_hand(marginal):
    domain = Domain.of(DOMAIN)
    cells = list(itertools.product(range(2), range(3), range(4)))
    shape = domain.shape(marginal)
    expected = [np.ravel_multi_index([cell["abc".index(c)] for c in marginal], shape) if shape else 0 for cell in cells]
    np.testing.assert_array_equal(sums(domain, ("a", "b", "c"), marginal), expected)


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_sensitivity_of_the_program_covers_every_neighbour_and_is_attained(neighbors):
    """All cells of the domain: what one record (or one exchange) does to the right-hand sides."""
    release = query_release(TABLE, [("a", "b"), ("b", "c")], domain=DOMAIN, neighbors=neighbors)
    domain = Domain.of(DOMAIN)
    model = release.problem._model(None)
    single = [
        np.concatenate([counts(domain, np.array([cell]), "abc", m) for m in release.workload])
        for cell in itertools.product(range(2), range(3), range(4))
    ]
    moves = single if neighbors == "add-remove" else [u - v for u in single for v in single]
    sensitivity = max(sensitivity_of(model.affine, model.form.scalar).values(), key=lambda c: c.l2)
    assert sensitivity.l2 == pytest.approx(max(np.linalg.norm(v) for v in moves))
    assert sensitivity.l1 == pytest.approx(max(np.abs(v).sum() for v in moves))
    assert sensitivity.linf == pytest.approx(max(np.abs(v).max() for v in moves))


@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
@pytest.mark.parametrize("signed", [False, True])
def test_sensitivity_of_general_queries_covers_every_neighbour(neighbors, signed):
    rng = np.random.default_rng(3)
    queries = rng.uniform(-1 if signed else 0, 1, (5, 24))
    release = query_release(TABLE, domain=DOMAIN, queries=queries, neighbors=neighbors, total=7)
    sensitivity = release.problem.classify().cells[-1].sensitivity
    moves = queries if neighbors == "add-remove" else (queries[:, :, None] - queries[:, None, :]).reshape(5, -1)
    assert sensitivity["linf"] >= np.abs(moves).max() * (1 - 1e-12)
    assert sensitivity["l2"] >= np.linalg.norm(moves, axis=0).max() * (1 - 1e-12)
    assert sensitivity["l1"] >= np.abs(moves).sum(axis=0).max() * (1 - 1e-12)
    if neighbors == "add-remove":
        assert sensitivity["l2"] == pytest.approx(np.linalg.norm(moves, axis=0).max())


def test_general_queries_are_answered():
    queries = sp.csr_array(np.tril(np.ones((24, 24))))
    release = query_release(TABLE, domain=DOMAIN, queries=queries)
    solved(release, epsilon=1e4)
    np.testing.assert_allclose(release.query_answers(), queries @ by_hand("abc").ravel(), atol=0.1)


def test_the_budget_is_charged_once_and_before():
    release = query_release(TABLE, [("a", "b"), "c"], domain=DOMAIN)
    budget = dpm.Budget(2.0, 1e-5)
    written = release.solve(1.0, 1e-6, rng=1, budget=budget)
    assert written is release.release
    assert written.guarantee.epsilon == 1.0
    assert budget.spent.epsilon == pytest.approx(1.0)
    assert release.answers("c").values.min() >= 0
    assert "add" in written.guarantee.neighbors
    with pytest.raises(dpm.errors.BudgetExceededError):
        release.solve(1.5, budget=budget, rng=1)
    assert release.release is written
    for bad in ({"mechanism": "laplace-once"}, {"budget": 3}, {"rng": "coin"}):
        with pytest.raises(dpm.errors.SpecificationError):
            release.solve(0.1, **bad)
    with pytest.raises(dpm.errors.MissingValueError, match="counts"):
        query_release(None, ["a"], domain=DOMAIN).solve(1.0)
    assert budget.spent.epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize("neighbors", ["add-remove", "replace-one"])
def test_a_table_without_records(neighbors, loss):
    """Their number is public: this failed after the budget was charged."""
    table = {"a": [], "b": []}
    query = query_release(table, [("a", "b")], domain={"a": 2, "b": 3}, neighbors=neighbors, total=0, loss=loss)
    release = query.solve(1, 1e-6, rng=0)
    assert not release.marginals["a", "b"].values.any() and len(release.sample()) == 0
    assert release.standard_errors() == {("a", "b"): 0.0}


def test_plans_and_releases_name_the_loss_and_say_where_noise_drowns_the_counts():
    """Largest errors cost the mean there: 300 records on a grid of 20 by 20, against 100,000."""
    rng = np.random.default_rng(0)
    for people, drowns in ((300, True), (100_000, False)):
        table = {c: rng.integers(0, 20, people) for c in "abc"}
        for loss, error in (("max", "largest"), ("mean", "mean")):
            query = query_release(
                table, [("a", "b"), ("b", "c")], domain=dict.fromkeys("abc", 20), neighbors="replace-one", loss=loss
            )
            release, plan = query.solve(0.7, 1e-6, rng=0), str(query.plan(0.7, 1e-6))
            for said in (release.accuracy.statement, " ".join(plan.split())):
                assert f"for the {error} error (loss='{loss}')" in said
                assert ("noise drowns" in said) == (drowns and loss == "max")
                assert ("standard errors do not count" in said) == (loss == "mean" and release.fit == "shrunk")


def test_many_columns_agree():
    rng = np.random.default_rng(0)
    data = rng.integers(0, 40, (500, 5))
    query = query_release(data, list(itertools.combinations(BIG, 2)), domain=BIG)
    release = solved(query, epsilon=1.0)
    for a, b in itertools.combinations(BIG, 2):
        table = release.answers((a, b)).values
        np.testing.assert_allclose(table.sum(axis=1), release.answers(a).values, atol=1e-6)
        np.testing.assert_allclose(table.sum(axis=0), release.answers(b).values, atol=1e-6)
        assert table.min() >= 0
    with pytest.raises(dpm.errors.SpecificationError, match="102400000 cells"):
        query.problem  # noqa: B018


@pytest.mark.slow
def test_a_hundred_columns_take_less_than_a_minute():
    rng = np.random.default_rng(0)
    domain = {f"c{i}": 10 for i in range(100)}
    data = (rng.random((10_000, 100)) ** 2 * 10).astype(int)
    started = time.perf_counter()
    query = query_release(data, list(itertools.combinations(domain, 2)), domain=domain)
    release = query.solve(1.0, 1e-6, rng=0)
    assert time.perf_counter() - started < 60
    assert len(release.marginals) == 4950


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("sensitivity", "words"),
    [
        ({"marginals": [("a", "salary")]}, "not in the domain"),
        ({"marginals": [("a", "a")]}, "repeats"),
        ({"marginals": [("a", "b"), ("b", "a")]}, "twice"),
        ({"marginals": [()]}, "empty"),
        ({"marginals": []}, "empty workload"),
        ({"marginals": "a"}, "not a list"),
        ({"marginals": [3]}, "int"),
        ({"domain": None}, "no domain"),
        ({"domain": {}}, "domain"),
        ({"domain": {"a": 0, "b": 3, "c": 4}}, "domain['a']=0"),
        ({"domain": {"a": ["u", "u"], "b": 3, "c": 4}}, "repeated"),
        ({"domain": {"a": "uv", "b": 3, "c": 4}}, "str"),
        ({"neighbors": "swap"}, "neighbors"),
        ({"total": -1}, "total"),
        ({"total": True}, "total"),
        ({"weights": {("a", "q"): 1.0}}, "not in the domain"),
        ({"weights": {("a",): 2.0}}, "not in the workload"),
        ({"weights": {("a", "b"): 0.0}}, "weights"),
        ({"loss": "median"}, "loss"),
        ({"weights": "best"}, "weights"),
        ({"queries": np.ones((3, 7))}, "shape (3, 7)"),
        ({"queries": [["u"]]}, "matrix of numbers"),
        ({"queries": np.full((1, 24), np.inf)}, "infinite"),
        ({"queries": np.zeros((1, 24))}, "no record can change"),
        ({"table": {"a": [0], "b": ["x"]}, "marginals": [("a", "c")]}, "no column 'c'"),
        ({"table": np.zeros((3, 2), dtype=int)}, "shape (3, 2)"),
        ({"table": {**TABLE, "a": np.array(["s"] * 7)}}, "cannot hold"),
        ({"table": {**TABLE, "b": np.zeros(7)}, "outside": "drop"}, "cannot hold"),
        ({"table": CODES.astype(object)}, "names can hold codes only"),
        ({"table": CODES.astype(str), "outside": "drop"}, "names can hold codes only"),
        ({"table": CODES.tolist()}, "names can hold codes only"),
        ({"table": "people.csv"}, "not a table"),
        ({"table": {**TABLE, "a": ["s"] * 7}}, "outside the declared domain"),
        ({"neighbors": "replace-one", "total": 8}, "total="),
        ({"neighbors": "replace-one", "outside": "drop"}, "outside='drop'"),
        ({"table": None, "neighbors": "replace-one"}, "needs total"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value.replace(" ", "-")[:30],
)
def test_bad_input_is_refused(sensitivity, words):
    given = {"table": TABLE, "marginals": [("a", "b"), "c"], "domain": DOMAIN, **sensitivity}
    with pytest.raises(dpm.errors.SpecificationError) as error:
        query_release(given.pop("table"), **given)
    assert words in str(error.value)


@pytest.mark.parametrize("wrong", [7, -1, 1.5, np.nan])
def test_a_value_outside_the_domain_is_refused_without_showing_it(wrong):
    table = {**TABLE, "c": [*TABLE["c"][:-1], wrong]}
    with pytest.raises(dpm.errors.SpecificationError, match="column 'c' has a value outside") as error:
        query_release(table, ["c"], domain=DOMAIN)
    assert str(wrong) not in str(error.value)
    release = query_release(table, ["c"], domain=DOMAIN, outside="drop")
    solved(release)
    expected = by_hand("c")
    expected[1] -= 1
    np.testing.assert_allclose(release.answers("c").values, expected, atol=0.01)


def test_a_category_outside_the_domain_is_refused_without_showing_it():
    table = {**TABLE, "b": ["x", "y", "z", "z", "secret", "x", "z"]}
    with pytest.raises(dpm.errors.SpecificationError, match="column 'b' has a value outside") as error:
        query_release(table, ["b"], domain=DOMAIN)
    assert "secret" not in str(error.value)


def test_workload_too_large():
    domain = {f"c{i}": 130 for i in range(4)}
    with pytest.raises(dpm.errors.SpecificationError, match="workload of 4394000 cells"):
        query_release(None, [("c0", "c1", "c2"), ("c1", "c2", "c3")], domain=domain)


def test_answers_that_were_not_released():
    release = query_release(TABLE, [("a", "b"), ("b", "c")], domain=DOMAIN)
    with pytest.raises(dpm.errors.SpecificationError, match="no marginals were released"):
        release.answers("a")
    solved(release)
    with pytest.raises(dpm.errors.SpecificationError, match="no released table"):
        release.answers(("a", "c"))
    with pytest.raises(dpm.errors.SpecificationError, match="not in the workload"):
        release.answers("d")
    with pytest.raises(dpm.errors.SpecificationError, match="no general queries"):
        release.query_answers()


def test_nothing_private_on_the_public_object():
    """Attributes, reprs and classification of a model with data are those of one without."""
    full, empty = (query_release(t, [("a", "b")], domain=DOMAIN) for t in (TABLE, None))
    assert str(full.plan(1.0, 1e-6)) == str(empty.plan(1.0, 1e-6)) and repr(full) == repr(empty)
    assert str(full.problem.classify()) == str(empty.problem.classify())
    assert all(p.value is None for p in full.problem.parameters())
    assert "3.0" not in repr(full.problem.parameters())


def test_a_dataset_is_counted_where_it_lies() -> None:
    """The same model as from the columns themselves; what cannot be one is refused."""
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    columns = {"town": rng.choice(["Ulm", "Bonn"], 300).tolist(), "size": rng.integers(0, 3, 300).tolist()}
    domain = {"town": ["Bonn", "Ulm"], "size": 3}
    people = dpm.Dataset(pl.DataFrame(columns).lazy(), domain=domain)
    marginals = [("town", "size"), ("town",)]
    found = dpm.query_release(people, marginals)
    expected = dpm.query_release(columns, marginals, domain=domain)
    for mine, theirs in zip(found.problem.parameters(), expected.problem.parameters(), strict=True):
        np.testing.assert_array_equal(vault.unseal(mine), vault.unseal(theirs))
        assert mine.sensitivity == theirs.sensitivity and mine.records is people.records
    answers = [q.solve(epsilon=1, rng=0) and q.answers("town") for q in (found, expected)]
    np.testing.assert_allclose(answers[0].values, answers[1].values)
    assert list(answers[0].to_frame()["town"]) == ["Bonn", "Ulm"]
    twice = dpm.Dataset(pl.DataFrame(columns), privacy_id="size", max_rows=2, domain=domain)
    with pytest.raises(dpm.errors.SpecificationError, match="privacy_id"):
        dpm.query_release(twice, marginals)
    strange = dpm.Dataset(pl.DataFrame({**columns, "town": ["Rome"] * 300}), domain=domain)
    with pytest.raises(dpm.errors.SpecificationError, match="no value in the domain"):
        dpm.query_release(strange, marginals)


# ------------------------------------------------------------------ every engine, columns by name
def _duckdb(columns):
    duckdb, pyarrow = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")
    return duckdb.connect().from_arrow(pyarrow.table(columns))


def _dask(columns):
    return pytest.importorskip("dask.dataframe").from_pandas(ENGINES["pandas"](columns), npartitions=2)


ENGINES = {
    "lists": dict,
    "arrays": lambda columns: {name: np.array(values) for name, values in columns.items()},
    "pandas": lambda columns: pytest.importorskip("pandas").DataFrame(columns),
    "pandas objects": lambda columns: pytest.importorskip("pandas").DataFrame(columns, dtype=object),
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "polars lazy": lambda columns: pytest.importorskip("polars").LazyFrame(columns),
    "pyarrow": lambda columns: pytest.importorskip("pyarrow").table(columns),
    "duckdb": _duckdb,
    "dask": _dask,
}
# Columns of one type whose counts differ, so that one read for another shows.
PEOPLE = {
    "smokes": ["yes", "no", "no", "no", "no", "yes"],
    "male": ["yes", "yes", "yes", "no", "yes", "yes"],
    "children": [0, 2, 1, 1, 1, 3],
    "rooms": [1, 1, 1, 2, 3, 3],
}
ASKED = {"male": ["no", "yes"], "rooms": 4, "smokes": ["no", "yes"]}
ORDERS = [PEOPLE, dict(reversed(PEOPLE.items())), {c: PEOPLE[c] for c in ("rooms", "male", "children", "smokes")}]


def counted(release, marginal):
    """What was sealed, of one marginal."""
    tables, numbers = release._residuals.tables, tuple(release._columns.index(c) for c in marginal.split(" x "))
    at = tables.place[numbers]
    (found,) = release.problem.parameters()
    return vault.unseal(found)[tables.start[at] : tables.start[at + 1]]


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_are_called_by_name_in_every_engine(engine):
    """In any order, with columns that nobody asked for, and with text."""
    marginals = [("male", "smokes"), ("rooms",)]
    expected = np.zeros((2, 2))
    for male, smokes in zip(PEOPLE["male"], PEOPLE["smokes"], strict=True):
        expected[int(male == "yes"), int(smokes == "yes")] += 1
    for columns in ORDERS:
        release = query_release(ENGINES[engine](columns), marginals, domain=ASKED)
        np.testing.assert_array_equal(counted(release, "male x smokes"), expected.ravel())
        np.testing.assert_array_equal(counted(release, "rooms"), [0, 3, 1, 2])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_column_that_is_missing_is_refused_in_every_engine(engine):
    """Where it is needed: a domain may list more than the workload."""
    table = ENGINES[engine]({c: PEOPLE[c] for c in ("smokes", "rooms", "children")})
    with pytest.raises(dpm.errors.SpecificationError, match="no column 'male'"):
        query_release(table, ["male", "rooms"], domain=ASKED)
    release = query_release(table, ["smokes"], domain=ASKED)
    np.testing.assert_array_equal(counted(release, "smokes"), [4, 2])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_outside_is_refused_or_dropped_in_every_engine(engine):
    table = ENGINES[engine]({**PEOPLE, "male": ["yes", "yes", "secret", "no", "yes", "yes"]})
    with pytest.raises(dpm.errors.SpecificationError) as error:
        query_release(table, ["male"], domain=ASKED)
    assert "secret" not in str(error.value)
    release = query_release(table, ["male", "smokes"], domain=ASKED, outside="drop")
    np.testing.assert_array_equal(counted(release, "male"), [1, 4])
    np.testing.assert_array_equal(counted(release, "smokes"), [3, 2])
