"""Numbers that a mechanism released, with the law of their noise and what they are functions of: public data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks.noisy import Noisy
from dpmodel.privacy.distributions import Gaussian, Laplace, Truncated, TruncatedGaussian, TruncatedLaplace
from dpmodel.text import PlainData

Law = Literal["laplace", "gaussian", "truncated laplace", "truncated gaussian", "none"]


@dataclass(frozen=True, eq=False, repr=False)
class Measured(PlainData):
    """k released numbers, ``S theta`` plus independent noise, where theta are the private parameters of a program.

    Whatever is computed from them is free: ``Problem.resolve`` answers again from them.

    ``values`` : (k,). ``law``, ``scale`` : of the noise on each; "none" where no record can move them; truncated to
    ``half_width`` where it has a bound. Coefficient
    ``coefficient[i]`` of number ``row[i]`` is on free entry ``entry[i]`` (columns first) of the parameter that
    ``parameters[parameter[i]]`` names; ``sizes`` : free entries of each. ``epsilon``, ``delta`` : of all numbers of the
    release together. ``program`` : a digest of the public facts of the program that they were measured for.
    """

    values: Floats
    law: Law
    scale: float
    parameters: tuple[str, ...]
    row: Any = field(repr=False)
    parameter: Any = field(repr=False)
    entry: Any = field(repr=False)
    coefficient: Floats = field(repr=False)
    sizes: tuple[int, ...] = ()
    epsilon: float = 0.0
    delta: float = 0.0
    half_width: float = 0.0
    program: str = ""

    floats: ClassVar[tuple[str, ...]] = ("values", "coefficient")
    integers: ClassVar[tuple[str, ...]] = ("row", "parameter", "entry")

    def __post_init__(self) -> None:
        for name in (*self.floats, *self.integers):
            array = np.array(getattr(self, name), dtype=np.float64 if name in self.floats else np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @cached_property
    def distribution(self) -> Laplace | Gaussian | TruncatedLaplace | TruncatedGaussian | None:
        """Of the noise on every number."""
        match self.law:
            case "none":
                return None
            case "truncated laplace":
                return TruncatedLaplace(self.scale, self.half_width)
            case "truncated gaussian":
                return TruncatedGaussian(self.scale, self.half_width)
        return Laplace(self.scale) if self.law == "laplace" else Gaussian(self.scale)

    @property
    def fault(self) -> str:
        """What is wrong with it, in words without its numbers; "" where it is well formed."""
        row, parameter, entry, count = self.row, self.parameter, self.entry, len(self.parameters)
        arrays = row, parameter, entry, self.coefficient
        if not all(isinstance(name, str) for name in self.parameters) or len(self.sizes) != count:
            return "parameters without a name or a size"
        if len(set(self.parameters)) < count:
            return "parameters that share a name"
        if self.values.ndim != 1 or any(each.shape != (row.size,) for each in arrays):
            return "arrays that do not belong together"
        if not all(np.isfinite(each).all() for each in (self.values, self.coefficient, (self.epsilon, self.delta))):
            return "numbers that are not finite"
        within = ((row, self.values.size), (parameter, count))
        if any(((each < 0) | (each >= end)).any() for each, end in within):
            return "coefficients of numbers that are not there"
        if ((entry < 0) | (entry >= np.array([*self.sizes, 0])[parameter])).any():
            return "coefficients of entries that are not there"
        wide = not self.law.startswith("truncated") or 0 < self.half_width < np.inf
        if self.law not in get_args(Law) or not (self.law == "none" or (0 < self.scale < np.inf and wide)):
            return "noise without a law"
        return ""

    @property
    def noisy(self) -> Noisy:
        """The numbers for ``dpm.released``: in units of the parameter where each is one entry of it.

        Raises
        ------
        SpecificationError
            Where no record can move them, so that they have no noise, or where the noise has a bound.
        """
        if self.distribution is None:
            what = f"{', '.join(self.parameters)}: released without noise"
            raise SpecificationError(what, why="no record can move these numbers", remedy="measured.values")
        if isinstance(self.distribution, Truncated):
            what = f"{', '.join(self.parameters)}: {self.law} noise"
            raise SpecificationError(
                what, why="dpm.released has no likelihood of noise with a bound", remedy="measured.values, .half_width"
            )
        scale: Any = self.scale
        values, one_each = self.values, self.row.size == self.values.size
        if one_each and not np.array_equal(self.coefficient, np.ones(self.row.size)):
            factor = np.ones(self.row.size)
            factor[self.row] = self.coefficient
            values, scale = values / factor, self.scale / np.abs(factor)
        noise = type(self.distribution)(scale)
        return Noisy(values, noise, name=", ".join(self.parameters), epsilon=self.epsilon, delta=self.delta)

    def __repr__(self) -> str:
        return f"Measured({self.values.size} numbers of {', '.join(self.parameters)}, {self.law} noise)"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Moments(Measured):
    """Noisy sums of squares and products of the rows of a regression, which are no linear functions of parameters.

    In the units of ``regressions/moments.py``: columns ``x = middle + width u`` (k,), labels
    ``y = label_middle + label_width r``. ``values`` is (upper triangle of sum u u', with off-diagonal entries times
    sqrt 2 under Gaussian noise; beta sum r u; alpha sum u and gamma sum r, if alpha > 0; kappa (sum r^2 - less sum
    |u|^2)), noise of one ``scale`` on each. ``weights`` : (alpha, beta, gamma, kappa, less). ``total`` : sum of the
    rows' public weights; ``count`` : rows.

    Prediction and coefficients: ``constant b + x'w``, ``constant`` 0 without an intercept. Coefficient j is entry
    ``place[j]`` (columns first) of variable ``variable[j]``, the last one the intercept. ``ridge``, ``linear`` : (k,)
    the public penalty on ``width w / label_width``. ``refused`` : why no law of the coefficients follows, or "".
    """

    kind: str = "moments"
    weights: tuple[float, ...] = ()
    total: float = 0.0
    count: int = 0
    middle: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    width: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    constant: float = 0.0
    label_middle: float = 0.0
    label_width: float = 1.0
    ridge: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    linear: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    variable: tuple[str, ...] = ()
    place: Any = field(default=(), repr=False)
    refused: str = ""

    floats = (*Measured.floats, "middle", "width", "ridge", "linear")
    integers = (*Measured.integers, "place")

    def rescaled(
        self, middle: Floats, half: Floats, label_middle: float, label_half: float, names: Mapping[str, str]
    ) -> Moments:
        """The same for coefficients of columns ``middle + half x`` and labels ``label_middle + label_half y``.

        The intercept is one of a column of ones. ``middle``, ``half`` : by the places of coefficients. ``names`` : new
        names of variables.
        """
        at = self.place[: self.width.size]
        return replace(
            self,
            middle=middle[at] + half[at] * self.middle,
            width=half[at] * self.width,
            label_middle=label_middle + label_half * self.label_middle,
            label_width=label_half * self.label_width,
            variable=tuple(names.get(name, name) for name in self.variable),
        )

    def __repr__(self) -> str:
        return f"Moments({self.values.size} sums of squares and products, {self.law} noise)"
