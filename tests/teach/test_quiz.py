"""Questions are models to read, with one right answer, which is the classifier's."""

from __future__ import annotations

import itertools

import pytest

import dpmodel as dpm
from dpmodel.programs.taxonomy import PARTS
from dpmodel.teach.quiz import THEOREMS, VERDICTS

SEEDS = range(80)


def test_every_cell_theorem_and_verdict_comes_up_and_answers_are_the_classifiers() -> None:
    """80 seeded questions; that one of ten cells is missing has a probability below 3e-3, and these seeds have all."""
    seen = set()
    for seed in SEEDS:
        question = dpm.teach.quiz(seed)
        (cell,) = question.problem.classify().cells
        told = cell.taxonomy
        seen.add((cell.part, cell.level, cell.theorem, told.verdict))
        assert question.answer(cell.part, cell.level, cell.theorem, told.verdict).startswith("Right.")
        for wrong in (
            {"level": "low" if cell.level == "high" else "high"},
            {"part": next(part for part in PARTS if part != cell.part)},
            {"theorem": next(each for each in THEOREMS if each != cell.theorem)},
            {"verdict": next(each for each in VERDICTS if each != told.verdict)},
        ):
            said = question.answer(**{"part": cell.part, "level": cell.level, **wrong})
            assert said.startswith(f"Not quite: the {next(iter(wrong))} is ") and cell.theorem in said
    assert seen == {(cell.part, cell.level, cell.theorem, cell.verdict) for cell in dpm.taxonomy()}
    assert str(dpm.teach.quiz(5)) == str(dpm.teach.quiz(5))


def test_the_text_is_the_model_and_does_not_say_its_cell() -> None:
    for seed in SEEDS:
        question = dpm.teach.quiz(seed)
        scope: dict[str, dpm.Problem] = {}
        exec(question.code, scope)
        read = scope["problem"].classify().cells[0]
        assert (read.part, read.level) == (question.cell.part, question.cell.level)
        text = str(question)
        assert (
            " ".join(question.code.split()) in " ".join(text.split())
            and "cp.Problem" not in text
            and "objective" not in question.code
        )
        assert not any(word in question.code for word in ("scalar", "matrix", "low", "high", "Theorem"))
        assert max(map(len, text.splitlines())) <= 120


def test_other_words_are_refused() -> None:
    question = dpm.teach.quiz(0)
    for part, level, theorem, verdict in itertools.product(("rows", "row"), ("low", "big"), ("", "37"), ("", "maybe")):
        if (part, level, theorem, verdict) == ("row", "low", "", ""):
            continue
        with pytest.raises(dpm.errors.SpecificationError, match="answer"):
            question.answer(part, level, theorem, verdict)
