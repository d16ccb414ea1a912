"""Pure privacy stays a candidate where delta is allowed, and is taken where it is predicted to do better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from regressions import regression

from dpmodel.as_printed.adassp import ADASSP_AS_PRINTED
from dpmodel.contract import Options
from dpmodel.regressions.descent import NoisyDescent
from dpmodel.regressions.excess import PureToo, _may_win
from dpmodel.regressions.sufficient_statistics import SUFFICIENT_STATISTICS


@pytest.mark.parametrize("mechanism", [SUFFICIENT_STATISTICS, NoisyDescent(steps=1)], ids=lambda m: m.name)
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
@pytest.mark.parametrize("epsilon", [0.1, 10.0])
def test_delta_never_makes_the_prediction_worse(mechanism: NoisyDescent, epsilon: float, delta: float) -> None:
    model = regression(np.zeros((50, 1)), np.zeros(50), lower=-1.0, upper=1.0)
    pure = mechanism.forecast(model, Options(epsilon, 0.0))
    options = Options(epsilon, delta)
    both = mechanism.forecast(model, options)
    assert both.delta in (0.0, delta)
    if _may_win(model, options):  # else its noise is larger: what pure draws do better in a simulation is luck
        assert both.error.predicted <= pure.error.predicted * (1 + 1e-12)
    else:
        assert both.delta == delta


def test_a_tiny_delta_is_left_unspent() -> None:
    model = regression(np.zeros((50, 1)), np.zeros(50), lower=-1.0, upper=1.0)
    assert SUFFICIENT_STATISTICS.forecast(model, Options(10.0, 1e-100)).delta == 0


def test_what_an_earlier_request_asked_for_does_not_show_in_a_later_one() -> None:
    """Plans are remembered by epsilon and delta; the rest of a statement is about the request at hand."""
    model = regression(np.zeros((50, 1)), np.zeros(50), lower=-1.0, upper=1.0)
    earlier, later = (Options(1.0, 1e-6, beta, solver=solver) for beta, solver in ((0.2, "SCS"), (0.001, None)))
    for mechanism in (SUFFICIENT_STATISTICS, NoisyDescent(steps=1), ADASSP_AS_PRINTED):
        assert [mechanism.forecast(model, each).beta for each in (earlier, later)] == [0.2, 0.001], mechanism.name
        if isinstance(mechanism, PureToo):
            assert mechanism.spent(model, later) in (later, replace(later, delta=0.0))
