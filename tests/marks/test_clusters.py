"""Two workers of a cluster, as processes of this machine: regressions over blocks that stay there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import dpmodel as dpm
from dpmodel.errors import SourceError
from dpmodel.marks.row_sources import MemoryBlocks
from dpmodel.marks.rows import RowSource, SourceRows

pytestmark = pytest.mark.slow
N, P, SECRET = 3000, 3, "98765.4321"
NAMES = [*"abc", "label"]


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.2, 1.2, size=(N, P))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
    return pd.DataFrame(np.column_stack([X, y]), columns=NAMES)


def _made(source: RowSource) -> dpm.Problem:
    # Local functions travel by value, as those of a user's notebook do.
    def features(block: Any) -> Any:
        return block[["a", "b", "c"]].to_numpy()

    def labels(block: Any) -> Any:
        return block["label"].to_numpy()

    people = dpm.Records("people")
    X = dpm.Private(SourceRows(source, features, P), name="X", unit="row", bounds=(-1, 1), records=people)
    y = dpm.Private(SourceRows(source, labels, None), name="y", unit="entry", bounds=(-1, 1), records=people)
    w, b = cp.Variable(P, name="w"), cp.Variable(name="b")
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w + b))) / N
    return dpm.Problem(cp.Minimize(loss + 0.01 * cp.sum_squares(w)))


def _released(source: RowSource, mechanism: str) -> np.ndarray:
    asked = _made(source)
    asked.solve(epsilon=1, delta=1e-6, mechanism=mechanism, rng=0)
    return np.concatenate([np.ravel(v.value) for v in asked.variables()])


def _street(source: RowSource) -> dpm.Problem:
    """People who share three things; the label is who they are."""

    def worth(block: Any) -> Any:
        return block[["a", "b", "c"]].abs().to_numpy()

    people = dpm.Records("people")
    values = dpm.Private(SourceRows(source, worth, P), name="worth", unit="row", bounds=(0, 1), records=people)
    x = dpm.Shares((N, P), records=people, nonneg=True, name="x")
    rows = [cp.sum(x, axis=0) <= N / 10, cp.sum(x, axis=1) <= 1]
    return dpm.Problem(cp.Maximize(cp.sum(cp.multiply(values, x))), rows)


def _assert_same_shares(source: RowSource) -> None:
    """The same prices and shares as in memory, sent from here, once each and in order. Spark has rows in its own."""
    releases, all_shares = [], []
    for rows in (source, MemoryBlocks.of(frame(), 500)):
        asked, sent = _street(rows), []
        asked.solve(epsilon=1, delta=1e-6, release="joint", rng=0)
        asked.release.deliver(lambda person, share, sent=sent: sent.append((person, share)))
        assert [person for person, _ in sent] == list(range(N))
        np.testing.assert_array_equal(sent[1700][1], asked.release.share(1700))
        releases.append(asked.release)
        all_shares.append(np.sort(np.array([share for _, share in sent]), axis=0))
    np.testing.assert_allclose(releases[0].prices, releases[1].prices, rtol=1e-9)
    np.testing.assert_allclose(*all_shares, rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.mark.parametrize("mechanism", ["noisy-descent", "objective-perturbation"])
def test_two_dask_workers(client: Any, mechanism: str) -> None:
    import dask.dataframe as dd

    from dpmodel.marks.row_sources import DaskBlocks

    source = DaskBlocks(dd.from_pandas(frame(), npartitions=6).persist())
    asked = _made(source)
    asked.solve(epsilon=1, delta=1e-6, mechanism=mechanism, rng=0)
    assert asked.release is not None and "trusted: the Dask workers" in str(asked.release.guarantee)
    np.testing.assert_allclose(
        _released(source, mechanism), _released(MemoryBlocks.of(frame(), 500), mechanism), rtol=1e-9
    )


def test_shares_of_people_on_dask_workers(client: Any) -> None:
    import dask.dataframe as dd

    from dpmodel.marks.row_sources import DaskBlocks

    _assert_same_shares(DaskBlocks(dd.from_pandas(frame(), npartitions=6).persist()))


def test_a_worker_that_dies_counts_nothing_twice(client: Any, tmp_path: Any) -> None:
    import dask.dataframe as dd

    from dpmodel.marks.row_sources import DaskBlocks

    source, flag = DaskBlocks(dd.from_pandas(frame(), npartitions=6)), str(tmp_path / "died")

    def dying(block: Any, number: int) -> Any:
        if number == 2 and not os.path.exists(flag):
            open(flag, "w").close()
            os._exit(1)
        return len(block), block.sum().to_numpy()

    count, found = source.map_reduce(dying, lambda a, b: (a[0] + b[0], a[1] + b[1]))
    assert os.path.exists(flag) and count == N
    np.testing.assert_allclose(found, frame().to_numpy().sum(axis=0), rtol=1e-9)


def test_what_workers_say(client: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """An error of the user's code on a worker leaves as words, in the message and in the workers' logs."""
    import dask.dataframe as dd

    from dpmodel.marks.row_sources import DaskBlocks

    source = DaskBlocks(dd.from_pandas(frame(), npartitions=2))

    def failing(block: Any, number: int) -> Any:
        raise ValueError(f"{SECRET} {block}")

    with pytest.raises(SourceError, match="ValueError") as caught:
        source.map_reduce(failing, lambda a, b: a)
    told = capfd.readouterr()
    logs = str(client.get_worker_logs())
    assert all(SECRET not in text for text in (str(caught.value), told.out, told.err, logs))


def test_a_cluster_that_goes_away() -> None:
    distributed = pytest.importorskip("distributed")
    import dask.dataframe as dd

    from dpmodel.marks.row_sources import DaskBlocks

    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster)
    source = DaskBlocks(dd.from_pandas(frame(), npartitions=3).persist())
    asked, budget = _made(source), dpm.Budget(1.0, 1e-6)
    asked.plan(epsilon=1, delta=1e-6)
    cluster.close()
    try:
        with client.as_current(), pytest.raises(SourceError, match="did not answer"):
            asked.solve(epsilon=1, delta=1e-6, mechanism="noisy-descent", budget=budget)
    finally:
        client.close()
    assert budget.spent.epsilon == 1


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def test_spark(spark: Any) -> None:
    from dpmodel.marks.row_sources import SparkBlocks

    source = SparkBlocks(spark.createDataFrame(frame()).repartition(3).persist())
    assert source.count == N and len(source.sizes) == 3
    released = _released(source, "objective-perturbation")
    np.testing.assert_allclose(released, _released(MemoryBlocks([frame()]), "objective-perturbation"), rtol=1e-9)

    _assert_same_shares(source)

    def failing(block: Any, number: int) -> Any:
        raise ValueError(SECRET)

    with pytest.raises(SourceError, match="ValueError") as caught:
        source.map_reduce(failing, lambda a, b: a)
    assert SECRET not in str(caught.value)
