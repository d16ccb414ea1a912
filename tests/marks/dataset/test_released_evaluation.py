"""How good a model is on a table: what one row moves, the numbers without noise, coverage, and models of all kinds."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from small_tables import ENGINES, SOME_SLOW, value_of

import dpmodel as dpm
from dpmodel.errors import SpecificationError
from dpmodel.released.faces import evaluate
from dpmodel.released.faces.evaluate import area_of_bands

pytestmark = pytest.mark.filterwarnings("ignore:SeededSource")


class Model:
    """The chance of the second class is a public function of the income."""

    classes_ = np.array(["Bonn", "Ulm"])

    def predict_proba(self, X: Any) -> Any:
        chance = 1 / (1 + np.exp(-(np.asarray(X)[:, 0] - 3)))
        return np.stack([1 - chance, chance], axis=1)

    def predict(self, X: Any) -> Any:
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]


class Odd(Model):
    """Predicts what it holds for less likely: nothing says that a right answer costs little."""

    def predict(self, X: Any) -> Any:
        return self.classes_[(self.predict_proba(X)[:, 1] <= 0.5).astype(int)]


class Ranker:
    classes_ = np.array(["Bonn", "Ulm"])

    def predict(self, X: Any) -> Any:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def decision_function(self, X: Any) -> Any:
        return np.asarray(X)[:, 0] - 3


class Three(Model):
    classes_ = np.array(["Bonn", "Ulm", "Kiel"])

    def predict_proba(self, X: Any) -> Any:
        return np.c_[Model.predict_proba(self, X), np.zeros(len(X))]


INCOMES = np.r_[np.linspace(-1, 7.5, 60), [3.5, 3.5, -1.0]]
ROWS: list[Any] = [(i // 2, "Ulm" if (i * 7) % 10 < v else "Bonn", float(v)) for i, v in enumerate(INCOMES)]


def dataset(rows: Any = None, engine: str = "polars", towns: Any = ("Bonn", "Ulm"), **options: Any) -> dpm.Dataset:
    table = ENGINES[engine](ROWS if rows is None else rows)
    return dpm.Dataset(table, bounds={"income": (-1, 8)}, domain={"town": list(towns)}, **options)


def truth(rows: Any = None) -> dict[str, float]:
    rows = ROWS if rows is None else rows
    X, y = np.array([[row[2]] for row in rows]), np.array([row[1] == "Ulm" for row in rows])
    chance = Model().predict_proba(X)[:, 1]
    band = np.searchsorted(evaluate._EDGES, chance, side="right")
    signs = np.sign(band[y][:, None] - band[~y][None])
    loss = -np.log(np.clip(np.where(y, chance, 1 - chance), 0.001, 1))
    return {"accuracy": ((chance > 0.5) == y).mean(), "log loss": loss.mean(), "auc": (1 + signs.mean()) / 2}


@pytest.mark.parametrize("engine", SOME_SLOW)
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_without_noise_these_are_the_numbers(engine: str, neighbors: Any) -> None:
    found = dataset(engine=engine, neighbors=neighbors).evaluate(Model(), "town", 1e6, rng=1)
    for name, value in truth().items():
        assert found[name] == pytest.approx(value, abs=2e-4)
        assert found.lower[found.labels[0][1].index(name)] <= value <= found.upper[found.labels[0][1].index(name)]
    chance = Model().predict_proba(INCOMES[:, None])[:, 1]
    inside = (chance >= 0.2) & (chance < 0.3)
    share = np.mean([row[1] == "Ulm" for row, there in zip(ROWS, inside, strict=True) if there])
    assert found["Ulm, where 0.2 to 0.3 is predicted"] == pytest.approx(share, abs=1e-3)


def test_models_of_other_kinds() -> None:
    assert dataset().evaluate(Ranker(), "town", 1e6, rng=1)["auc"] == pytest.approx(truth()["auc"], abs=2e-4)
    three = dataset(towns=["Kiel", "Bonn", "Ulm", "Rome"]).evaluate(Three(), "town", 1e6, rng=1)
    assert three.labels[0][1] == ("accuracy", "log loss")
    assert three["accuracy"] == pytest.approx(truth()["accuracy"], abs=1e-4)
    rows = [*ROWS, *((90 + i, "Kiel", 1.0) for i in range(30))]  # labels that the model does not have are wrong
    found = dataset(rows, towns=["Kiel", "Bonn", "Ulm"]).evaluate(Model(), "town", 1e6, rng=1)
    assert found["accuracy"] == pytest.approx(truth()["accuracy"] * len(ROWS) / len(rows), abs=1e-4)
    loss = (truth()["log loss"] * len(ROWS) - 30 * np.log(0.001)) / len(rows)
    assert found["log loss"] == pytest.approx(loss, abs=1e-3)


def test_pipelines_of_scikit_learn_see_frames_with_names() -> None:
    pd, compose = pytest.importorskip("pandas"), pytest.importorskip("sklearn.compose")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pd.DataFrame({"age": range(80), "town": ["Ulm", "Bonn"] * 40, "sick": [0, 1, 1, 1] * 20})
    steps = compose.make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["town"]))
    model = make_pipeline(steps, LogisticRegression())
    people = dpm.Dataset(frame, bounds={"age": (0, 99)}, domain={"town": ["Bonn", "Ulm"], "sick": 2})
    with pytest.raises(SpecificationError, match="not fitted"):
        people.evaluate(model, "sick", 1.0)
    model.fit(frame[["age", "town"]], frame["sick"])
    assert people.evaluate(model, "sick", 1e6, rng=1)["accuracy"] == pytest.approx(
        model.score(frame[["age", "town"]], frame["sick"]), abs=1e-4
    )


def captured(monkeypatch: pytest.MonkeyPatch, people: dpm.Dataset, model: Any = None, target: str = "town") -> Any:
    """What ``measure`` would be given."""
    seen: list[Any] = []
    with monkeypatch.context() as patch, pytest.raises(dpm.errors.DPModelError):
        patch.setattr(evaluate, "measure", lambda private, *_, **__: seen.append(private) or 1 // 0)
        people.evaluate(model or Odd(), target, 1.0)
    return seen[0]


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("several", [False, True])
def test_one_record_moves_the_sums_no_farther_than_declared(
    monkeypatch: pytest.MonkeyPatch, neighbors: Any, several: bool
) -> None:
    """One row, or two rows of one person, against all others: surest right and wrong answers among them."""
    universe = [("Ulm", 1e9), ("Bonn", 1e9), ("Ulm", -1e9), ("Bonn", 3.001), ("Ulm", 2.999), ("Bonn", -2.0)]
    odd = [("Ulm", float("nan")), (None, 1.0)] if several else []
    sizes = (0, 1, 2) if several else (1,) if neighbors == "replace-one" else (0, 1)
    options: dict[str, Any] = {"privacy_id": "person", "max_rows": 2, "outside": "drop"} if several else {}
    found = []
    for count in sizes:
        for mine in itertools.combinations_with_replacement([*universe, *odd], count):
            rows = [*ROWS[:9], *((99, *row) for row in mine)]
            found.append(captured(monkeypatch, dataset(rows, neighbors=neighbors, **options)))
    values = np.array([value_of(each).ravel() for each in found])
    moved = values[:, None] - (values[None] if neighbors == "replace-one" else values[:1])
    one, two = np.abs(moved).sum(axis=2).max(), np.linalg.norm(moved, axis=2).max()
    assert 0.8 * found[0].l1 <= one <= found[0].l1 + 1e-12 and 0.8 * found[0].l2 <= two <= found[0].l2 + 1e-12


@pytest.mark.parametrize(("neighbors", "delta"), [("replace-one", 0.0), ("add-remove", 1e-6)])
def test_coverage(neighbors: Any, delta: float) -> None:
    """40 releases at .8: fewer than 19 covered would come by chance with probability below 1e-6."""
    people, expected = dataset(neighbors=neighbors), truth()
    covered = dict.fromkeys(expected, 0)
    for seed in range(40):
        found = people.evaluate(Model(), "town", 1.0, delta, level=0.8, rng=seed)
        for i, name in enumerate(("accuracy", "log loss", "auc")):
            covered[name] += bool(found.lower[i] <= expected[name] <= found.upper[i])
    assert min(covered.values()) >= 28


@pytest.mark.parametrize("size", [30, 300, 3000, 3_000_000])
@pytest.mark.parametrize("deviation", [0.5, 8.0])
def test_areas_are_covered_however_few_rows(size: int, deviation: float) -> None:
    """Of 400 at .95, fewer than 357 would come by chance with probability below 1e-5 if .95 were true."""
    draw = np.random.default_rng(5)
    y = np.arange(size) % 5 == 0
    band = np.clip(np.arange(size) * 7919 % 19 + 6 * y, 0, 25)
    counts = np.array([np.bincount(band[y == k], minlength=26) for k in (0, 1)], dtype=float)
    exact = area_of_bands(counts, 0.0, 0.05)[0]
    found = [area_of_bands(counts + draw.laplace(scale=deviation / 2**0.5, size=(2, 26)), deviation, 0.05)
             for _ in range(400)]  # fmt: skip
    assert sum(low <= exact <= high for _, low, high in found) >= 358
    assert size < 1e6 or max(high - low for _, low, high in found) < 0.001


def test_what_a_model_warns_of_or_fails_with_does_not_leave() -> None:
    class Warns(Model):
        def predict(self, X: Any) -> Any:
            warnings.warn(f"never seen: {X[0]}", stacklevel=1)
            return Model.predict(self, X)

    class Fails(Model):
        def predict(self, X: Any) -> Any:
            if len(X) > 2:
                raise ValueError(f"never seen: {X[5]}")
            return Model.predict(self, X)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "SeededSource")
        dataset().evaluate(Warns(), "town", 1.0, rng=1)
    budget = dpm.Budget(1.0)
    with pytest.raises(dpm.DPModelError) as failed:
        dataset().evaluate(Fails(), "town", 1.0, budget=budget)
    assert "never seen" not in str(failed.value) and len(budget.history) == 1


def test_charges_once() -> None:
    budget = dpm.Budget(1.0)
    found = dataset().evaluate(Model(), "town", 0.5, metrics=["accuracy", "auc"], budget=budget, rng=1)
    assert [c.epsilon for c in budget.history] == [0.5] and found.labels[0][1] == ("accuracy", "auc")


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (lambda d: d.evaluate(object(), "town", 1), "no predict"),
        (lambda d: d.evaluate(type("Raw", (), {"predict": None})(), "town", 1), "not regressions"),
        (lambda d: d.evaluate(Model(), "twn", 1), "no column"),
        (lambda d: d.evaluate(Model(), "income", 1), "no domain"),
        (lambda d: d.evaluate(Three(), "town", 1), "class 'Kiel'"),
        (lambda d: d.evaluate(Model(), "town", 1, features=["person"]), "neither bounds"),
        (lambda d: d.evaluate(Model(), "town", 1, features=["town"]), "target is a feature"),
        (lambda d: d.evaluate(Model(), "town", 1, metrics=["f1"]), "metrics are"),
        (lambda d: d.evaluate(Ranker(), "town", 1, metrics="log loss"), "no probabilities"),
        (lambda d: d.evaluate(Model(), "town", 1, clip=0.7), "clip"),
        (lambda d: d.evaluate(Model(), "town", 0), "epsilon"),
    ],
)
def test_wrong_inputs(release: Any, words: str) -> None:
    with pytest.raises(SpecificationError, match=words):
        release(dataset())


def test_a_model_of_other_columns_is_told_on_made_up_rows() -> None:
    class Wide(Model):
        def predict(self, X: Any) -> Any:
            raise ValueError("X has 1 features, but Wide is expecting 2")

    with pytest.raises(SpecificationError, match=r"made-up row(.|\n)*expecting 2"):
        dataset().evaluate(Wide(), "town", 1.0)


def ties(rows: int, seed: int) -> tuple[Any, dpm.Dataset]:
    """Rows exactly on the boundary: the sign of their score is that of its rounding."""
    linear_model, pl = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("polars")
    generator = np.random.default_rng(seed)
    size = int(generator.integers(3, 12))
    weights, row = generator.normal(size=size), generator.random(size)
    model = linear_model.LogisticRegression()
    model.classes_, model.n_features_in_ = np.array([0, 1]), size
    model.coef_, model.intercept_ = weights[None], np.array([-(row @ weights)])
    table = pl.DataFrame({f"f{i}": np.full(rows, each) for i, each in enumerate(row)} | {"y": [1] * rows})
    bounds = {f"f{i}": (0, 1) for i in range(size)}
    return model, dpm.Dataset(table, bounds=bounds, domain={"y": [0, 1]}, neighbors="add-remove")


@pytest.mark.parametrize("seed", range(5, 11))
def test_one_more_row_moves_no_ties_of_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of matrices round differently with the number of rows, so ties of all rows went over together."""
    correct = []
    for rows in range(2, 8):
        model, people = ties(rows, seed)
        correct.append(value_of(captured(monkeypatch, people, model, "y"))[1])
    assert np.abs(np.diff(correct)).max() <= np.abs(np.diff(correct)).min() + 1e-6 <= 1.001


def test_the_model_runs_after_the_charge_and_within_the_bounds() -> None:
    class Fails(Model):
        def predict(self, X: Any) -> Any:
            assert np.asarray(X).max() <= 8, "a value beyond"
            if len(X) > 2:  # not on the two rows that are made up
                raise ValueError("99")
            return Model.predict(self, X)

    budget = dpm.Budget(2.0)
    with pytest.raises(dpm.errors.DPModelError) as failed:
        dataset([*ROWS, (1, "Ulm", 1e300)]).evaluate(Fails(), "town", 1.0, budget=budget, rng=1)
    assert len(budget.history) == 1 and "99" not in str(failed.value) and "budget is spent" in str(failed.value)
    dataset([*ROWS, (1, "Ulm", 1e300)]).evaluate(Model(), "town", 1.0, rng=1)


@pytest.mark.parametrize("release", ["evaluate", "variance"])
def test_an_empty_budget_refuses_before_rows_are_read(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    people, budget = dataset(), dpm.Budget(0.1)

    def never(*_: Any) -> Any:
        raise AssertionError("rows were read")

    monkeypatch.setattr(type(people._people), "summed", never)
    with pytest.raises(dpm.errors.BudgetExceededError):
        if release == "evaluate":
            people.evaluate(Model(), "town", 1.0, budget=budget)
        else:
            people.variance("income", 1.0, budget=budget)
