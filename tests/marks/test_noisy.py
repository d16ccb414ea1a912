"""Distributions of published noise and the data that carries them."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from auditing import kolmogorov_distance, kolmogorov_limit
from scipy import stats

from dpmodel import privacy
from dpmodel.errors import SpecificationError
from dpmodel.marks import Private
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy import public_generator
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Distribution, Gaussian, Laplace

DISTRIBUTIONS: tuple[type[Distribution], ...] = (Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian)
SCALES = [0.05, 0.3, 0.59, 0.6, 0.61, 1.0, 2.5, 30.0]


def by_definition(distribution: Any) -> float:
    """Standard deviation summed or integrated from absolute and square alone."""
    reach = 60 * distribution.scale + 60
    k = (
        np.arange(-math.ceil(reach), math.ceil(reach) + 1.0)
        if distribution.discrete
        else np.linspace(-reach, reach, 2_000_001)
    )
    w = np.exp(-distribution.absolute * np.abs(k) - distribution.square * k * k)
    return float(np.sqrt((k * k * w).sum() / w.sum()))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("scale", SCALES)
def test_the_standard_deviation_is_that_of_the_likelihood(distribution: type[Distribution], scale: float) -> None:
    made = distribution(scale)
    tolerance = 1e-12 if distribution.discrete else 1e-5 / min(scale, 1)
    assert made.standard_deviation == pytest.approx(by_definition(made), rel=tolerance)
    assert isinstance(made.standard_deviation, float)
    rows = distribution(np.array([[scale], [2 * scale]]))
    assert rows.standard_deviation.shape == rows.scale.shape == (2, 1)
    assert rows.standard_deviation[1, 0] == pytest.approx(distribution(2 * scale).standard_deviation, rel=1e-12)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_samples_follow_the_law(distribution: type[Distribution]) -> None:
    made, size = distribution(2.5), 200_000
    draws = made.sample((size,), public_generator(1))
    assert draws.dtype == np.float64
    if distribution.discrete:
        assert (draws == np.rint(draws)).all()
        # Variance of the mean of squares; seven standard deviations: false alarm below 1e-11.
        sigma = np.std(draws**2) / math.sqrt(size)
        assert abs(np.mean(draws**2) - made.standard_deviation**2) < 7 * sigma
        assert abs(np.mean(draws**2) - distribution(2.6).standard_deviation ** 2) > 7 * sigma
    else:
        cdf = stats.laplace(scale=2.5).cdf if distribution is Laplace else stats.norm(scale=2.5).cdf
        assert kolmogorov_distance(draws, cdf) < kolmogorov_limit(size, 1e-9)
    several = distribution(np.array([0.1, 100.0])).sample((500, 2), public_generator(2))
    assert several.shape == (500, 2) and np.abs(several[:, 0]).max() < 5 < np.abs(several[:, 1]).max()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize(
    "scale",
    [
        0,
        -1,
        0.0,
        math.nan,
        math.inf,
        -math.inf,
        True,
        None,
        "2",
        1j,
        [],
        [1.0, 0.0],
        [1.0, math.nan],
        [True],
        [[1.0], [2.0, 3.0]],
        np.bool_(True),
        1e-200,
        1e200,
        [1, None],
        {},
        object(),
        np.array(["a"]),
        10**400,
    ],
)
def test_bad_scales(distribution: type[Distribution], scale: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        distribution(scale)
    assert caught.value.remedy and distribution.__name__ in str(caught.value)


def test_scales_are_kept_apart_from_the_callers_array() -> None:
    mine = np.array([1.0, 2.0])
    distribution = Laplace(mine)
    mine[0] = 9
    assert distribution.scale.tolist() == [1.0, 2.0]
    for array in (
        distribution.scale,
        pickle.loads(pickle.dumps(distribution)).scale,
        copy.deepcopy(distribution).scale,
    ):
        with pytest.raises(ValueError):
            array[0] = 5
    assert Laplace(np.int64(3)).scale == 3.0 and type(Laplace(np.float32(3)).scale) is float
    assert type(Laplace(Fraction(1, 2)).scale) is float
    assert Laplace(pd.Series([1.0, 2.0])).scale.tolist() == [1.0, 2.0]
    with pytest.raises(SpecificationError):
        Distribution(1.0)
    with pytest.raises(AttributeError):
        distribution.scale = 3.0  # type: ignore[misc]
    with pytest.raises(SpecificationError):
        DiscreteLaplace(2.0**46)


def test_laws_as_text_and_data() -> None:
    assert repr(Laplace(2)) == "Laplace(scale=2)" == str(Laplace(2))
    assert repr(DiscreteGaussian([1.0] * 20)).startswith("DiscreteGaussian(scale=[1, 1, 1, ...")
    assert DiscreteLaplace([1, 2]).to_dict() == {"distribution": "discrete_laplace", "scale": [1.0, 2.0]}
    assert Gaussian(2).to_dict() == {"distribution": "gaussian", "scale": 2.0}
    assert eval(repr(Gaussian(2.5))).scale == 2.5


# ------------------------------------------------------------------ Noisy
def test_it_reads_like_an_array() -> None:
    noisy = Noisy([[1.0, 2, 3], [4, 5, 6]], Laplace([1.0, 2.0, 4.0]), name="t", epsilon=1, neighbors="add-remove")
    assert (noisy.shape, noisy.size, noisy.ndim, len(noisy), bool(noisy)) == ((2, 3), 6, 2, 2, True)
    assert noisy.scale.tolist() == [[1, 2, 4]] * 2
    np.testing.assert_allclose(noisy.standard_deviation, math.sqrt(2) * noisy.scale)
    assert np.asarray(noisy).tolist() == noisy.value.tolist()
    assert np.asarray(noisy, dtype=np.float32).dtype == np.float32
    assert np.add(noisy, 1).sum() == 27 and np.mean(noisy) == 3.5
    np.array(noisy)[0, 0] = 7
    for array in (noisy.value, noisy.scale, noisy.standard_deviation):
        with pytest.raises(ValueError):
            array[0, 0] = 7
    assert [row.scale.tolist() for row in noisy] == [[1, 2, 4]] * 2
    with pytest.raises(TypeError):
        len(Noisy(3.0, Laplace(1)))


@pytest.mark.parametrize("scale", [2.0, [[1.0, 2, 3], [4, 5, 6]], [[1.0], [2.0]]])
def test_parts_keep_their_scales(scale: Any) -> None:
    noisy = Noisy(np.arange(6.0).reshape(2, 3), Gaussian(scale), name="t", epsilon=0.5, delta=1e-6)
    indices = [0, (1, 2), slice(0, 1), (slice(None), 1), [1, 0], (slice(None), [True, False, True]), (..., -1), None]
    for index in indices:
        part = noisy[index]
        assert part.value.tolist() == noisy.value[index].tolist()
        assert part.scale.tolist() == noisy.scale[index].tolist()
        assert isinstance(part.noise, Gaussian) and part.epsilon == 0.5 and part.name == "t"
    for order in ("C", "F"):
        for made, wanted in (
            (noisy.ravel(order), lambda a, o: a.ravel(o)),
            (noisy.reshape(3, 2, order=order), lambda a, o: a.reshape((3, 2), order=o)),
            (noisy.reshape((6,), order=order), lambda a, o: a.reshape((6,), order=o)),
        ):
            assert made.value.tolist() == wanted(noisy.value, order).tolist()
            assert made.scale.tolist() == wanted(noisy.scale, order).tolist()
    if np.ndim(scale) == 0:
        assert noisy[0].noise is noisy.noise
    with pytest.raises(IndexError):
        noisy[5]
    with pytest.raises(SpecificationError):
        noisy[:0]


def test_labels_follow_the_axes() -> None:
    frame = pd.DataFrame([[1.0, 2], [3, 4]], index=pd.Index(["a", "b"], name="row"), columns=["x", "y"])
    noisy = Noisy(frame, Laplace(1))
    assert noisy.labels == (("row", ("a", "b")), (None, ("x", "y")))
    assert noisy[0].labels == ((None, ("x", "y")),)
    assert noisy[:, 1:].labels == (("row", ("a", "b")), (None, ("y",)))
    assert noisy[[0, 1]].labels == () == noisy.ravel().labels
    assert noisy.reshape(2, 2).labels == noisy.labels
    series = pd.Series([1, 2], index=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["p", "q"]))
    assert Noisy(series, Laplace(1)).labels == ((("p", "q"), (("a", 1), ("b", 2))),)
    assert Noisy(pd.Series([1, 2], dtype="Int64"), Laplace(1)).value.tolist() == [1.0, 2.0]

    class Labelled:  # what an xarray.DataArray shows
        def __init__(self) -> None:
            self.dims, self.values = ("year", "age"), np.ones((2, 3))
            self.coords = {"year": SimpleNamespace(values=np.array([2020, 2021]))}

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self.values

    assert Noisy(Labelled(), Laplace(1)).labels == (("year", (2020, 2021)), ("age", (0, 1, 2)))
    assert Noisy([1.0], Laplace(1)).labels == ()


def test_copies_and_identity() -> None:
    noisy = Noisy([1.0, 2.0], DiscreteLaplace([1.0, 2.0]), name="n", labels=(("k", ("a", "b")),))
    for other in (pickle.loads(pickle.dumps(noisy)), copy.deepcopy(noisy)):
        assert other.value.tolist() == [1, 2] and other.scale.tolist() == [1, 2] and other.labels == noisy.labels
        assert type(other.noise) is DiscreteLaplace and other != noisy and noisy == noisy
        with pytest.raises(ValueError):
            other.value[0] = 3
    assert len({noisy, noisy}) == 1
    mine = np.array([1.0, 2.0])
    kept = Noisy(mine, Laplace(1))
    mine[0] = 9
    assert kept.value[0] == 1


def test_truncated_noise_is_refused() -> None:
    with pytest.raises(SpecificationError, match="truncated"):
        Noisy([1.0], privacy.TruncatedLaplace(1.0, 2.0))


@pytest.mark.parametrize("noise", [None, "laplace", 2.0, int])
def test_a_missing_law(noise: Any) -> None:
    with pytest.raises(SpecificationError, match=r"noise=Laplace\(scale\)"):
        Noisy([1.0], noise)
    with pytest.raises(SpecificationError, match=r"noise=Laplace\(scale\)"):
        Noisy([1.0])
    with pytest.raises(SpecificationError, match=r"noise=Gaussian\(scale\)"):
        Noisy([1.0], Gaussian)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        np.zeros((0, 3)),
        math.nan,
        [1.0, math.inf],
        [1j],
        [[1.0], [2.0, 3.0]],
        ["a"],
        [None],
        [True],
        True,
        {},
        object(),
        np.ma.masked_array([1.0, 2.0], [False, True]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series(["a"]),
        Noisy([1.0], Laplace(1)),
        cp.Variable(2),
        cp.Constant([1.0]),
        [10**400],
        np.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
)
def test_bad_values(value: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        Noisy(value, Laplace(1.0), name="mine")
    assert "mine" in caught.value.what and caught.value.remedy


def test_a_private_value_is_refused() -> None:
    secret = Private([31337.0], name="secret", unit="entry", linf=1)
    for value in (secret, 2 * secret + 1, cp.sum(secret)):
        with pytest.raises(SpecificationError, match="measure it first") as caught:
            Noisy(value, Laplace(1))
        assert "31337" not in str(caught.value)
    with pytest.raises(SpecificationError):
        Noisy([secret], Laplace(1))


def test_law_and_value_must_fit() -> None:
    for distribution in (DiscreteLaplace(1), DiscreteGaussian(1)):
        with pytest.raises(SpecificationError, match="integer"):
            Noisy([1.0, 2.5], distribution)
    for scale in ([1.0, 2.0], [[1.0, 1, 1]], [[1.0], [1.0]]):
        with pytest.raises(SpecificationError, match="shape"):
            Noisy([1.0, 2.0, 3.0], Laplace(scale))
    with pytest.raises(SpecificationError, match="shape"):
        Noisy(1.0, Laplace([1.0]))
    with pytest.raises(SpecificationError):
        Noisy([1.0], Laplace(1), name=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("scale", [0.3, 2.5, 30.0])
def test_intervals_hold_with_their_level(kind: type[Distribution], scale: float) -> None:
    """By the sum of the masses or the distribution function: at least the level, and one step less would be too short
    (two steps for discrete Gaussian noise, whose quantile is a bound)."""
    for level in (0.5, 0.9, 0.99):
        half = float(np.ptp([*_ends(kind, scale, level)]) / 2)
        if kind in (Laplace, Gaussian):
            law = stats.laplace(scale=scale) if kind is Laplace else stats.norm(scale=scale)
            assert 1 - 2 * law.sf(half) == pytest.approx(level, abs=1e-9)
            continue
        k = np.arange(-2000, 2001)
        mass = np.exp(-np.abs(k) / scale if kind is DiscreteLaplace else -(k**2) / (2 * scale**2))
        mass /= mass.sum()
        step = 1 if kind is DiscreteLaplace else 2
        assert mass[np.abs(k) <= half].sum() >= level - 1e-12
        assert half < step or mass[np.abs(k) <= half - step].sum() < level


def _ends(kind: type[Distribution], scale: float, level: float) -> tuple[float, float]:
    found = Noisy([7.0, 8.0], kind(scale)).intervals(level)
    np.testing.assert_allclose(found.value - found.lower, found.upper - found.value)
    return float(found.lower[0]), float(found.upper[0])


def test_intervals_have_a_scale_each_and_refuse_percent() -> None:
    for kind in DISTRIBUTIONS:
        found = Noisy([[7.0, 8.0], [9.0, 10.0]], kind(np.array([[1.0, 5.0], [1.0, 20.0]]))).intervals()
        half = (found.upper - found.lower) / 2
        assert half[0, 0] == half[1, 0] < half[0, 1] < half[1, 1]
        assert "95 %" in str(found)
    with pytest.raises(SpecificationError, match="between 0 and 1"):
        Noisy([7.0], Laplace(1.0)).intervals(95)


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_one_number_has_a_frame_and_can_be_rounded(backend):
    pytest.importorskip(backend)
    noisy = Noisy(12.34, Laplace(2.0), name="sum")
    for found, columns in (
        (noisy, ["value", "standard_deviation"]),
        (noisy.intervals(), ["value", "lower", "upper"]),
        (pickle.loads(pickle.dumps(noisy)), ["value", "standard_deviation"]),
    ):
        frame = found.to_frame(backend=backend)
        assert list(getattr(frame, "column_names", frame.columns)) == columns and len(frame) == 1
        assert round(found.value, 1) == 12.3 and np.asarray(found).shape == ()
    assert noisy.shape == () and noisy.reshape(1).shape == (1,)
