"""What users get is what the files say: mechanisms, scales and statements always, releases with the recorded versions
of the solvers only. Whoever changes a line on purpose writes the file anew and says why in the commit."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from .face import Case, versions
from .families import FAMILIES
from .write import line, numbers, read, sentences, skeleton, statements

PINNED_ONLY = ("x", "value", "status")
# Relative: with the recorded versions, where only the order of additions may differ, and with others.
CLOSE, FAR = 1e-4, 2e-2
_read = cache(read)


def differences(expected: Any, found: Any, close: float, where: str = "") -> Iterator[str]:
    """Where two observations differ: numbers by more than ``close`` of their size, texts at all."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            yield from differences(expected.get(key), found.get(key), close, f"{where} {key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for at, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, close, f"{where}[{at}]")
    elif isinstance(expected, str) and isinstance(found, str) and skeleton(expected) == skeleton(found):
        yield from (d for d in differences(numbers(expected), numbers(found), close, where) if expected != found)
    elif isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        least = 1e-2 if where.split()[-1].startswith(("x", "value")) else 1e-9  # of answers, solvers find no more
        if abs(expected - found) > close * max(abs(expected), abs(found), least):
            yield f"{where}: {found} where the file has {expected}"
    elif expected != found:
        yield f"{where}: {found} where the file has {expected}"


def compared(expected: dict[str, Any], found: dict[str, Any], pinned: bool) -> list[str]:
    """``expected`` : a line of a file; ``found`` : the same observed now."""
    if not pinned:
        expected, found = (
            {budget: {k: v for k, v in noted.items() if k not in PINNED_ONLY} for budget, noted in each.items()}
            for each in (expected, found)
        )
    return list(differences(expected, found, CLOSE if pinned else FAR))


CASES = [
    pytest.param(family, case, id=f"{family}: {case.name}", marks=[] if case.quick else [pytest.mark.slow])
    for family, cases in FAMILIES.items()
    for case in cases()
]


@pytest.mark.parametrize(("family", "case"), CASES)
def test_users_get_what_the_file_says(family: str, case: Case) -> None:
    file = _read(family)
    observed = case.observed()
    wrong = compared(file[case.name], json.loads(line(observed)), file["versions"] == versions())
    wrong += [
        f"says what no line of statements.json says: {s}" for s in sentences(observed) - set(statements()[family])
    ]
    assert not wrong, "\n".join([*wrong, f"on purpose? python -m tests.golden.write {family}"])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_line_is_that_of_a_case(family: str) -> None:
    cases = [case.name for case in FAMILIES[family]()]  # the zoo's in the order in which its files were imported
    assert set(_read(family)) == {"versions", *cases} and len(cases) == len(set(cases))


def test_every_family_has_as_many_cases_as_it_should() -> None:
    least = {"zoo": 40, "lps": 40, "regressions": 30, "postprocessing": 20, "systems": 12, "named": 40}
    assert all(len(_read(family)) > count for family, count in least.items())


def test_a_change_is_found() -> None:
    """Half the noise, another mechanism, a refusal, a statement of another size, another answer."""
    kept = list(_read("lps").values())[1]
    budget = next(iter(kept))
    assert not compared(kept, copy.deepcopy(kept), True)

    def changed(**new: Any) -> dict[str, Any]:
        return {**kept, budget: {**kept[budget], **new}}

    draws = copy.deepcopy(kept[budget]["draws"])
    draws[0][1] /= 2
    says = {key: 1.05 * value for key, value in kept[budget]["says"].items()}
    for other in (changed(draws=draws), changed(mechanism="gaussian-once"), changed(says=says)):
        assert compared(kept, other, True) and compared(kept, other, False)
    assert compared(kept, {**kept, budget: {"refused": "InfeasibleError"}}, False)
    moved = changed(x=[each + 1 for each in kept[budget]["x"]])
    assert compared(kept, moved, True) and not compared(kept, moved, False)
