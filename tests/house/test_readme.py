"""README is executed: its Python blocks run in order, and its set-up commands stand as CI and newcomers use them."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

import dpmodel as dpm

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
INSTALL = 'python -m pip install ".[learn]" pandas'
_DISTRIBUTION = {"sklearn": "scikit-learn"}


def test_python_blocks_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "scalar, low" in printed and "Theorem 37" in printed
    problem = names["problem"]
    assert isinstance(problem, dpm.Problem) and problem.release is not None
    assert problem.release.guarantee.epsilon <= 1
    assert names["demand"].value is None  # type: ignore[attr-defined]


def test_what_the_page_imports_is_what_its_first_command_installs() -> None:
    """Followed through the package: ``dpmodel.learn`` needs scikit-learn, and ``to_frame`` pandas."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = re.findall(r"\.\[([\w,]+)\]", INSTALL)[0].split(",")
    installed = [
        *project["dependencies"],
        *(need for extra in extras for need in project["optional-dependencies"][extra]),
    ]
    names = {re.split(r"[^\w.-]", need)[0] for need in [*installed, *INSTALL.split()[5:]]}
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)) - {"dpmodel"}
    imported |= {"sklearn"} if "dpmodel.learn" in code else set()
    imported |= {"pandas"} if ".to_frame(" in code else set()
    assert {_DISTRIBUTION.get(module, module) for module in imported} <= names
    assert {"cvxpy", "numpy", "pandas", "sklearn"} <= imported


def test_no_text_installs_a_distribution_that_is_not_published() -> None:
    texts = [*(ROOT / "dpmodel").rglob("*.py"), *(ROOT / "docs").glob("[a-z]*/*.md"), *ROOT.glob("examples/**/*.[pi]*")]
    for file in [ROOT / "README.md", *texts]:
        assert not re.search(r"pip install ['\"]?dpmodel|dpmodel\[[a-z]+\]", file.read_text(encoding="utf-8")), file


def test_set_up_commands() -> None:
    lines = [line.strip() for line in README.splitlines()]
    assert "python -m pip install . && dpmodel demo" in lines
    assert INSTALL in README
    assert 'python -m pip install ".[test]" && python -m pytest' in lines


def test_the_tables_of_mechanisms_are_those_of_the_registry() -> None:
    """Write them anew with ``python docs/write_tables.py``."""
    if not (ROOT / "docs").exists():
        pytest.skip("docs are not shipped with this copy")
    assert runpy.run_path(str(ROOT / "docs" / "write_tables.py"))["with_tables"](README) == README
    assert README.count("<!-- mechanisms: ") == 5


def test_every_mechanism_and_doc_named_in_the_readme_exists() -> None:
    from dpmodel.solve.registry import KINDS

    for mechanism in (each for kind in KINDS.values() for each in kind.mechanisms):
        assert f"`{mechanism.name}`" in README
    if not (ROOT / "docs").exists():
        pytest.skip("docs are not shipped with this copy")
    for link in re.findall(r"\]\((docs/[^)]+|examples)\)", README):
        assert (ROOT / link).exists(), link
