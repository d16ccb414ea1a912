"""Change bounds speak of the data as given; scaling to max_l1 and max_l2 happens after and can enlarge a change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpmodel as dpm
from dpmodel.annotate import vault

NORMS = {"l1": 1, "l2": 2, "linf": np.inf}

DECLARATIONS: list[dict[str, float]] = [
    {"l1": 0.5, "max_l1": 1},
    {"l2": 0.5, "max_l2": 1},
    {"linf": 0.3, "max_l2": 1},
    {"linf": 0.3, "max_l1": 1},
    {"l2": 0.4, "max_l1": 1},
    {"l1": 0.5, "max_l1": 1, "max_l2": 0.6},
    {"linf": 0.2, "max_linf": 0.5},
]


def _largest_changes(parameter: dpm.Private, declared: dict[str, float], draws: int = 3000) -> dict[str, float]:
    rng = np.random.default_rng(0)
    size = parameter.size

    def sealed(value: Any) -> np.ndarray:
        parameter.value = value
        return np.array(vault.unseal(parameter))

    found = dict.fromkeys(NORMS, 0.0)
    for _ in range(draws):
        x = rng.normal(size=size) * rng.choice([0.2, 1.0, 3.0]) * (rng.random(size) < 0.7)
        d = rng.normal(size=size) * (rng.random(size) < 0.6)
        for name, order in NORMS.items():
            if name in declared and np.any(d):
                d = d * min(1.0, declared[name] / np.linalg.norm(d, order)) if rng.random() < 0.5 else d
                d = d * (declared[name] / np.linalg.norm(d, order))
        moved = sealed(x + d) - sealed(x)
        for name, order in NORMS.items():
            found[name] = max(found[name], float(np.linalg.norm(moved, order)))
    return found


@pytest.mark.parametrize("declared", DECLARATIONS, ids=str)
def test_no_change_exceeds_the_bounds_after_scaling(declared: dict[str, float]) -> None:
    parameter = dpm.Private(np.zeros(4), **declared)
    for name, found in _largest_changes(parameter, declared).items():
        assert found <= getattr(parameter, name) * (1 + 1e-9)


def test_the_declared_bound_alone_would_be_wrong() -> None:
    # [1, 0] and [1, 1/2] differ by 1/2; scaled to 1-norm 1 they differ by 2/3.
    parameter = dpm.Private(np.zeros(2), l1=0.5, max_l1=1)
    parameter.value = [1.0, 0.0]
    before = np.array(vault.unseal(parameter))
    parameter.value = [1.0, 0.5]
    assert np.abs(np.array(vault.unseal(parameter)) - before).sum() == pytest.approx(2 / 3)
    assert parameter.l1 >= 2 / 3
