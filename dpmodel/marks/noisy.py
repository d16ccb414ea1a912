"""Published noisy data with the distribution of its noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats, Labels
from dpmodel.errors import SpecificationError
from dpmodel.marks.layout import labels_of, taken
from dpmodel.marks.private import Private
from dpmodel.privacy.distributions import Distribution, Laplace, Truncated, is_number
from dpmodel.text import TextTable, array_text, long_frame, named_text, number, rounded, wrapped

if TYPE_CHECKING:
    from dpmodel.marks.dataset.estimates import Estimates

_ROWS = 20  # of a table in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Noisy:
    """Numbers that were published with noise, and the distribution of that noise: public data.

    It reads like an array (``noisy[3:5]``, ``len``, ``np.asarray``, ``reshape``) and keeps the scale of every entry.
    Two of them are equal only if they are the same object: one publication is one piece of evidence.

    Parameters
    ----------
    value : array of any shape (or number, sparse matrix, pandas Series or DataFrame, xarray DataArray), the published
        numbers.
    noise : ``Laplace(scale)``, ``Gaussian(scale)``, ``DiscreteLaplace(scale)`` or ``DiscreteGaussian(scale)``; the
        scale is one number or an array that broadcasts to the value's shape.
    name : shown in messages. ``epsilon``, ``delta``, ``neighbors``, ``record`` : what publishing it cost, if known
        (``measure`` fills them in; they are shown, never charged again).
    labels : per axis its name and its categories; taken from labelled data.

    Raises
    ------
    SpecificationError
        For a distribution that is missing or a class, values that are no finite real numbers or empty, fractional
        values under a discrete distribution, scales of another shape, and private parameters.
    """

    value: Any
    noise: Distribution = None  # type: ignore[assignment]
    name: str = ""
    epsilon: float | None = None
    delta: float | None = None
    neighbors: str = ""
    record: str = ""
    labels: Labels = field(default=())

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SpecificationError(f"Noisy: name=<{type(self.name).__name__}>", remedy="name='counts'")
        where = f"Noisy({self.name!r})" if self.name else "Noisy"
        distribution = _distribution(self.noise, where)
        value = _values(self.value, where)
        scale = np.shape(distribution.scale)
        if not _broadcasts(scale, value.shape):
            raise SpecificationError(
                f"{where}: scales of shape {scale} for values of shape {value.shape}",
                why="every published number needs the scale of its own noise",
                remedy=f"one scale, or an array of shape {value.shape}",
            )
        fractional = value[(value != np.rint(value)) & distribution.discrete]
        if fractional.size:
            raise SpecificationError(
                f"{where}: {distribution.name} noise, but {fractional.flat[0]:g} is not an integer",
                why="discrete noise on integers gives integers",
                remedy=f"{'Laplace' if isinstance(distribution, Laplace) else 'Gaussian'}(scale), or integers",
            )
        given = tuple(self.labels) or labels_of(self.value, value.shape)
        object.__setattr__(self, "labels", given)
        object.__setattr__(self, "noise", distribution)
        object.__setattr__(self, "value", value[()])  # one number is a scalar, which can be rounded

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.value.setflags(write=False)

    # ------------------------------------------------------------------ arrays, of the value's shape
    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def size(self) -> int:
        return int(self.value.size)

    @property
    def ndim(self) -> int:
        return int(self.value.ndim)

    @property
    def scale(self) -> Floats:
        """Scale of every entry's noise (read-only)."""
        return np.broadcast_to(np.asarray(self.noise.scale, dtype=np.float64), self.shape)

    @property
    def standard_deviation(self) -> Floats:
        """Standard deviation of every entry's noise (read-only)."""
        return np.broadcast_to(np.asarray(self.noise.standard_deviation, dtype=np.float64), self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False and dtype is not None and np.dtype(dtype) != self.value.dtype:
            raise ValueError("another dtype needs a copy")
        return np.asarray(self.value) if copy is False else np.array(self.value, dtype=dtype)

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Noisy]:
        return (self[i] for i in range(len(self)))

    # ------------------------------------------------------------------ parts and other shapes
    def __getitem__(self, index: Any) -> Noisy:
        """The entries at a NumPy index, with their own scales."""
        return self._shaped(lambda array: array[index], taken(self.labels, index))

    def reshape(self, *shape: Any, order: Any = "C") -> Noisy:
        """As ``numpy.ndarray.reshape``; labels stay where the shape stays."""
        changed = self._shaped(lambda array: array.reshape(*shape, order=order), ())
        return replace(changed, labels=self.labels) if changed.shape == self.shape else changed

    def ravel(self, order: Any = "C") -> Noisy:
        """As ``numpy.ndarray.ravel``."""
        return self.reshape(-1, order=order)

    def _shaped(self, shaped: Callable[[Floats], Floats], labels: Labels) -> Noisy:
        distribution = self.noise
        if isinstance(distribution.scale, np.ndarray):
            distribution = type(distribution)(shaped(self.scale))
        return replace(self, value=shaped(self.value), noise=distribution, labels=labels)

    # ------------------------------------------------------------------ what is shown
    @property
    def cost(self) -> str:
        """What publishing it cost, in words; "" where that was not said."""
        if self.epsilon is None:
            return ""
        words = f"epsilon = {number(self.epsilon)}"
        if self.delta:
            words += f", delta = {number(self.delta)}"
        return f"{words}, {self.neighbors} neighbors" if self.neighbors else words

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "value": self.value.tolist(),
            "noise": self.noise.to_dict(),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbors": self.neighbors,
            "record": self.record,
            "labels": [[name, list(categories)] for name, categories in self.labels],
        }

    def to_frame(self, *, backend: str = "pandas") -> Any:
        """A data frame with a column for every axis, ``value`` and ``standard_deviation``, one row per number.

        Parameters
        ----------
        backend : "pandas", "polars" or "pyarrow".

        Raises
        ------
        SpecificationError, MissingExtraError
            For other backends, and for one that is not installed.
        """
        return long_frame({"value": self.value, "standard_deviation": self.standard_deviation}, self.labels, backend)

    def intervals(self, level: float = 0.95) -> Estimates:
        """Intervals for the numbers behind these: exact, because the noise is independent and its distribution known.

        Each holds its number with probability ``level``, one at a time (discrete noise: at least). They cost no
        privacy. Noise is all they cover: sums of clipped values are meant, and not the population of a table.

        Raises
        ------
        SpecificationError
            For a level outside (0, 1).
        """
        from dpmodel.marks.dataset.estimates import Estimates, check_level

        beta, law = 1 - check_level(level), type(self.noise)
        if law.discrete:  # no quantile is that of another scale
            half = np.empty(self.shape)
            for scale in np.unique(self.scale).tolist():
                half[self.scale == scale] = law(scale).max_abs_quantile(1, beta)
        else:
            half = self.scale * law(1.0).max_abs_quantile(1, beta)
        return Estimates(
            name=self.name or "noisy",
            value=self.value,
            lower=self.value - half,
            upper=self.value + half,
            level=1 - beta,
            statement="exact: the noise is all that is between a number and its interval",
            epsilon=math.nan if self.epsilon is None else self.epsilon,
            delta=self.delta or 0.0,
            neighbors=self.neighbors,
            record=self.record,
            labels=tuple((f"axis {k}" if name is None else name, kinds) for k, (name, kinds) in enumerate(self._axes)),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.name or 'noisy'}: {named_text(self.value, self.labels, self.standard_deviation)}",
            f"  noise: {self.noise}",
        ]
        if self.cost:
            lines.append(f"  cost: {self.cost}" + (f"; {self.record}" if self.record else ""))
        elif self.record:
            lines.append(f"  {self.record}")
        return "\n".join(wrapped(line.strip(), "  " if k else "") for k, line in enumerate(lines))

    def _repr_html_(self) -> str:
        axes = [str(name) if name is not None else f"axis {k}" for k, (name, _) in enumerate(self._axes)]
        places = list(np.ndindex(self.shape))
        rows = [
            (
                *(categories[i] if categories else i for i, (_, categories) in zip(place, self._axes, strict=True)),
                rounded(self.value[place], self.standard_deviation[place]),
                number(self.standard_deviation[place]),
            )
            for place in places[:_ROWS]
        ]
        footer = [str(self.noise), *([self.cost] if self.cost else []), *([self.record] if self.record else [])]
        footer += [f"{len(places) - _ROWS} more in to_frame()"] * (len(places) > _ROWS)
        columns = (*axes, "value", "standard deviation")
        return TextTable(columns, rows, title=self.name or "noisy", footer=tuple(footer))._repr_html_()

    @property
    def _axes(self) -> Labels:
        return self.labels if len(self.labels) == self.ndim else ((None, ()),) * self.ndim

    def __repr__(self) -> str:
        parts = [repr(self.name)] if self.name else []
        parts += [
            f"value={array_text(self.value, spread=self.standard_deviation)}",
            f"noise={self.noise!r}",
            *([self.cost] if self.cost else []),
        ]
        return f"Noisy({', '.join(parts)})"


def _distribution(noise: Any, where: str) -> Distribution:
    truncated = isinstance(noise, Truncated)
    if isinstance(noise, Distribution) and not truncated:
        return noise
    what = f"{where} without the distribution of its noise"
    remedy = "noise=Laplace(scale) with the scale it was published with (or Gaussian, DiscreteLaplace, ...)"
    if isinstance(noise, type) and issubclass(noise, Distribution):
        what, remedy = f"{where}: noise={noise.__name__} has no scale", f"noise={noise.__name__}(scale)"
    elif truncated:
        what = f"{where}: {noise.name} noise"
    elif noise is not None:
        what = f"{where}: noise of type {noise.__name__ if isinstance(noise, type) else type(noise).__name__}"
    raise SpecificationError(what, why="the likelihood of published numbers is that of their noise", remedy=remedy)


def _values(value: Any, where: str) -> Floats:
    """A finite read-only float64 copy."""
    if isinstance(value, Noisy):
        raise SpecificationError(
            f"{where}: the value is Noisy already", remedy="its .value, with the distribution meant"
        )
    if isinstance(value, cp.Expression):
        if any(isinstance(each, Private) for each in value.parameters()):
            raise SpecificationError(
                f"{where}: the value is private",
                why="nothing was published of it yet",
                remedy="measure it first: measure(private, epsilon) draws the noise and returns a Noisy",
            )
        raise SpecificationError(f"{where}: the value is a CVXPY expression", remedy="published numbers, an array")
    kind: str
    try:
        array = np.ma.asarray(value) if isinstance(value, np.ma.MaskedArray) else np.asarray(_dense(value))
        if array.dtype == object and all(is_number(each) for each in array.ravel()):
            array = array.astype(np.float64)
        kind = array.dtype.kind
    except (TypeError, ValueError, OverflowError):
        kind = "?"
    if kind not in "iuf" or np.ma.is_masked(array):
        raise SpecificationError(
            f"{where}: the value is not an array of real numbers",
            why="it is ragged, or has missing, complex, boolean or other entries",
            remedy="real numbers, in rows of equal length, without what was not published",
        )
    if array.size == 0:
        raise SpecificationError(f"{where}: no published numbers, shape {array.shape}", remedy="at least one")
    floats = np.array(array, dtype=np.float64)
    if not np.isfinite(floats).all():
        raise SpecificationError(
            f"{where}: NaN or infinite entries",
            why="they have no likelihood",
            remedy="leave out what was not published: Noisy(value[known], ...)",
        )
    floats.setflags(write=False)
    return floats


def _dense(value: Any) -> Any:
    return value.toarray() if sp.issparse(value) else value


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False
