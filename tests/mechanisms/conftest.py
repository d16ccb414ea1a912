"""The independent neighbour sampler lives with the tests of compile/."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "compile"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Public numbers of these models have the shape of private ones on purpose."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::dpmodel.compile.leak_warning.PossibleLeakWarning"))
