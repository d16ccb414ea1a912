"""What every mechanism of the registry owes, by the audit that authors of others run too: one file for all.

Each mechanism is run on a model of ``tests/support/private_programs.py`` or on an exact system. A planted fault that a
check misses on its model is listed here, with the check that finds it instead.
"""

from __future__ import annotations

from typing import Any

import pytest
from private_programs import CASES, SECRETS

from dpmodel import audit
from dpmodel.audit.models import JOINT, SYSTEMS
from dpmodel.audit.neighbors import Data
from dpmodel.errors import DPModelError
from dpmodel.solve.registry import KINDS
from dpmodel.solve.wall import RunError

pytestmark = pytest.mark.filterwarnings("ignore")
HALF_MINUTES = {"gaussian-frank-wolfe", "measure-and-fit"}
QUICK = {
    "scalar: laplace-once", "several_parts: gaussian-once", "objective: vertex-exponential", "span: stable-span",
    "bounded_scalar: laplace-once", "bounded_scalar: strict-truncated-laplace", "people: point-exponential",
    "people: dense-multiplicative-weights", "people_to_cover: split-votes", "people_for_least: cheapest-point",
    "points: tukey-depth", "households: even-shares",
    "least_squares: sufficient-statistics", "least_squares: objective-perturbation",
}  # fmt: skip


def subject(build: Any, options: dict[str, Any]) -> Data:
    rest = {key: value for key, value in options.items() if key != "epsilon"}
    return Data(lambda private: build(SECRETS, private=private), rest, name=build.__name__)


PROGRAMS = [(subject(build, options), name, options.get("epsilon", 1.0)) for build, name, options in CASES]
EXACT = [(SYSTEMS[0], "stable-span"), (SYSTEMS[1], "hinge-descent"), (SYSTEMS[1], "rescaling-perceptron")]
EXACT += [(SYSTEMS[2], "dp-lp"), (SYSTEMS[3], "tukey-depth"), (SYSTEMS[3], "pin-hull"), (SYSTEMS[4], "category-span")]
SHARES = [(JOINT, "noisy-prices", 1.0), (JOINT, "even-shares", 1.0)]
ALL = [*PROGRAMS, *SHARES, *((system, name, 1.0) for system, name in EXACT)]


def cases() -> list[Any]:
    found = []
    for model, name, epsilon in ALL:
        label = f"{model.name}: {name}"
        found.append(pytest.param(model, name, epsilon, id=label, marks=[] if label in QUICK else [pytest.mark.slow]))
    return found


@pytest.mark.parametrize(("model", "name", "epsilon"), cases())
def test_every_mechanism_keeps_the_contract(model: Any, name: str, epsilon: float) -> None:
    many = 2 if name in HALF_MINUTES else 4
    report = audit.mechanism(name, [model], epsilon, 1e-6, neighbors=many, runs=many)
    assert report.findings, report.left_out
    assert not report.faults


@pytest.mark.parametrize("epsilon", [1e-3, 100.0])
@pytest.mark.parametrize(("model", "name", "_"), cases())
def test_at_little_and_much_budget(model: Any, name: str, _: float, epsilon: float) -> None:
    """Or nothing is spent: the solve is refused."""
    try:
        assert not audit.replay(model, name, epsilon, 1e-6, neighbors=1).faults
    except DPModelError as refusal:
        assert not isinstance(refusal, RunError), "it failed after the charge"


def test_every_mechanism_that_reads_private_data_is_audited() -> None:
    audited = {name for _, name, _ in ALL}
    # Post-processing and public points read nothing; of those that keep a paper's own constants, tests of their own.
    registered = {
        each.name
        for kind, family in KINDS.items()
        for each in family.mechanisms
        if not each.serves.as_printed and "public-only" not in each.name and kind.__name__ != "Postprocessing"
    }
    assert registered <= audited
