"""What every source checks before it draws. Messages never show entries of an array."""

from __future__ import annotations

from typing import Literal

from dpmodel.errors import SpecificationError
from dpmodel.privacy._checks import FloatArray, check_half_width, check_scale, finite_array, score_vector
from dpmodel.privacy.discrete import IntArray, check_discrete_scale, whole_array

SelectionKind = Literal["exponential", "permute_and_flip"]


class CheckedSource:
    """The methods of `NoiseSource` and `DiscreteNoiseSource`, checked; a source fills in the four at the end."""

    def laplace(self, values: object, scale: float) -> FloatArray:
        return self._real(finite_array(values, "values"), check_scale(scale), False)

    def gaussian(self, values: object, scale: float) -> FloatArray:
        return self._real(finite_array(values, "values"), check_scale(scale), True)

    def discrete_laplace(self, values: object, scale: float) -> IntArray:
        return self._whole(whole_array(values), check_discrete_scale(scale), False)

    def discrete_gaussian(self, values: object, scale: float) -> IntArray:
        return self._whole(whole_array(values), check_discrete_scale(scale), True)

    def truncated_laplace(self, values: object, scale: float, half_width: float) -> FloatArray:
        scale = check_scale(scale)
        half_width = check_half_width(scale, half_width)
        return self._truncated(finite_array(values, "values"), scale, half_width)

    def noisy_max(self, scores: object, scale: float, *, kind: SelectionKind) -> int:
        vector, scale = score_vector(scores), check_scale(scale)
        if kind not in ("exponential", "permute_and_flip"):
            raise SpecificationError(
                f"unknown kind of selection {kind!r}",
                why="two kinds of selection are known",
                remedy="pass kind='exponential' or kind='permute_and_flip'",
            )
        return self._selected(vector, scale, kind == "exponential")

    def _real(self, array: FloatArray, scale: float, gaussian: bool) -> FloatArray:
        raise NotImplementedError

    def _whole(self, array: IntArray, scale: float, gaussian: bool) -> IntArray:
        raise NotImplementedError

    def _truncated(self, array: FloatArray, scale: float, half_width: float) -> FloatArray:
        raise NotImplementedError

    def _selected(self, scores: FloatArray, scale: float, exponential: bool) -> int:
        raise NotImplementedError
