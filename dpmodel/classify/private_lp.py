"""A private LP (or cone program): all that a mechanism may know about a problem, and the one way to its data."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dpmodel.classify.classifier import Classification
from dpmodel.compile.affine_map import AffineMap, Floats
from dpmodel.compile.footprint import Footprint
from dpmodel.compile.public_set import PublicSet
from dpmodel.compile.standard_form import StandardForm, private_theta

T = TypeVar("T")


@dataclass(frozen=True)
class PrivateLP:
    """A compiled and classified problem.

    ``form`` : public constants and private linear maps; ``footprint`` : what one record changes;
    ``classification`` : its cells; ``public`` : what the public constraints say about x.
    Everything but ``read_private`` is public.
    """

    form: StandardForm
    footprint: Footprint
    classification: Classification
    public: PublicSet
    _memo: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def affine(self) -> AffineMap:
        return self.form.affine

    def private_parts(self) -> tuple[str, ...]:
        """Which of "objective", "scalar", "matrix" depend on private parameters."""
        return tuple(name for name in ("objective", "scalar", "matrix") if self.form.private_part(name).nnz)

    def read_private(self) -> Floats:
        """(P,) theta with the private values. Only a mechanism's ``run`` may call this."""
        return private_theta(self.affine)

    def remember(self, key: Hashable, build: Callable[[], T]) -> T:
        """Compute a public fact once per problem."""
        if key not in self._memo:
            self._memo[key] = build()
        value: T = self._memo[key]
        return value
