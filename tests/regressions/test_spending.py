"""The printed epsilon of each step composes at every budget; records are read one at a time, in a random order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from descents import Replay
from regressions import regression

from dpmodel.as_printed import frank_wolfe as frank_wolfe_published
from dpmodel.as_printed import stochastic_mirror_descent
from dpmodel.as_printed.frank_wolfe import FrankWolfeAsPrinted
from dpmodel.as_printed.stochastic_mirror_descent import STOCHASTIC_MIRROR_DESCENT
from dpmodel.contract import Options
from dpmodel.privacy import pure_composition_delta, zcdp_rho
from dpmodel.regressions.sets import L2Ball

pytestmark = pytest.mark.filterwarnings("ignore::dpmodel.errors.NotPrivateWarning")

# Of few steps: what they draw is the same step for step, and plans take no time.


# --------------------------------------------------------------------------- the published choice's printed epsilon
STEPS = [(e, d, t) for e in (1e-3, 1.0, 10.0, 100.0) for d in (1e-9, 1e-6, 1e-3, 0.1) for t in (1, 30, 3000)]


def composes(each: float, steps: int, epsilon: float, delta: float) -> bool:
    if pure_composition_delta(each, steps, epsilon) <= delta * (1 + 1e-9):
        return True
    return steps * each**2 / 8 <= zcdp_rho(epsilon, delta) * (1 + 1e-9)


def check_printed() -> None:
    for epsilon, delta, steps in STEPS:
        each = FrankWolfeAsPrinted().selection_epsilon(Options(epsilon, delta), steps)
        assert 0 < each <= epsilon / math.sqrt(8 * steps * math.log(1 / delta)) * (1 + 1e-12)
        assert composes(each, steps, epsilon, delta)


def test_the_printed_epsilon_composes_at_every_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    check_printed()
    monkeypatch.setattr(frank_wolfe_published, "valid_step", lambda printed, *rest: math.sqrt(8) * printed)
    with pytest.raises(AssertionError):
        check_printed()


# ------------------------------------------------------------------------------------ one record at a time
N = 300


def places(seed: int) -> np.ndarray:
    """The rows that mirror descent reads, in the order it reads them: row i of this model is i + 1 times (1, 0)."""
    X = np.column_stack([np.arange(1.0, N + 1) / N, np.zeros(N)])
    model = regression(X, np.ones(N), "hinge", l2=1.0, domain=L2Ball(2, 1e-9))
    source = Replay(seed)
    STOCHASTIC_MIRROR_DESCENT.run(model, Options(0.5, 1e-3), source)
    steps = [values[0] for kind, values, _ in source.asked if values.shape == (2,)]
    return np.array([round(-value * N) - 1 for value in steps if value != 0])


def ascents(order: np.ndarray) -> int:
    return int((np.diff(order) > 0).sum())


def test_records_are_read_in_a_random_order() -> None:
    """Amplification rests on it. Half of all steps up, as in a random order: 6 standard deviations (false alarm 2e-9
    each)."""
    orders = [places(seed) for seed in range(3)]
    for order in orders:
        assert order.size == np.unique(order).size == -(-N // 2)  # half of the records, each once
        assert abs(ascents(order) - (order.size - 1) / 2) < 6 * math.sqrt((order.size + 1) / 12)
    assert not np.array_equal(np.sort(orders[0]), np.sort(orders[1]))  # and not always the same half


def test_rows_in_their_own_order_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stochastic_mirror_descent.np, "lexsort", lambda keys: np.arange(keys[0].size))
    order = places(0)
    assert abs(ascents(order) - (order.size - 1) / 2) > 6 * math.sqrt((order.size + 1) / 12)
