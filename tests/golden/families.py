"""The families of cases: file name -> its cases."""

from __future__ import annotations

from collections.abc import Callable

from private_programs import CASES as NAMED
from private_programs import SECRETS

from tests.zoo import cones, finance, flows, health, pipelines, places, production, systems  # noqa: F401
from tests.zoo.registry import MODELS

from . import lps, postprocessing, regressions
from . import systems as exact
from .face import Case, Noted, NotedSource, solved

# Named ones that take more than half a second.
SLOW = {
    "huber_over_a_general_set",
    "balances",
    "three_classes",
    "margins",
    "clipped_least_squares",
}
ZOO = ((0.2, 1e-6), (1.0, 1e-6), (5.0, 0.0))


def _zoo() -> list[Case]:
    def case(model: object) -> Case:
        def run(epsilon: float, delta: float, source: NotedSource) -> Noted:
            return solved(model.case("small").problem, epsilon, delta, source, **model.asked)

        return Case(model.name, run, ZOO, model.quick)

    return [case(model) for model in MODELS]


def _named() -> list[Case]:
    """Mechanisms by name, of tests/support/private_programs.py, around the budget that each needs."""

    def case(build: Callable, mechanism: str, options: dict) -> Case:
        middle = options.get("epsilon", 1.0)
        requested = {key: value for key, value in options.items() if key != "epsilon"}

        def run(epsilon: float, delta: float, source: NotedSource) -> Noted:
            return solved(build(SECRETS), epsilon, delta, source, mechanism=mechanism, **requested)

        name = ", ".join([build.__name__, mechanism, *(str(value).partition("(")[0] for value in requested.values())])
        return Case(
            name,
            run,
            tuple((times * middle, 1e-6) for times in (0.5, 1.0, 4.0)),
            build.__name__ not in SLOW and mechanism != "mirror-descent",
        )

    return [case(*given) for given in NAMED]


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "zoo": _zoo,
    "lps": lps.cases,
    "regressions": lambda: regressions.CASES,
    "postprocessing": lambda: postprocessing.CASES,
    "systems": lambda: exact.CASES,
    "named": _named,
}
