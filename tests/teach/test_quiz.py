"""Questions have one right answer, which is the classifier's, and show no numbers of the private parameter."""

from __future__ import annotations

import pytest

import dpmodel as dpm


def test_every_part_and_level_comes_up_and_answers_are_the_classifiers() -> None:
    seen = set()
    for seed in range(60):
        question = dpm.teach.quiz(seed)
        cell = question.cell
        seen.add((cell.part, cell.level))
        assert question.answer(cell.part, cell.level).startswith("Right.")
        other = "low" if cell.level == "high" else "high"
        wrong = question.answer(cell.part, other)
        assert wrong.startswith("Not quite.") and cell.theorem in wrong
        assert len(question.problem.classify().cells) == 1
    assert seen == {(part, level) for part in ("objective", "scalar", "row", "column") for level in ("low", "high")}
    assert str(dpm.teach.quiz(5)) == str(dpm.teach.quiz(5))


def test_other_words_are_refused() -> None:
    with pytest.raises(dpm.SpecificationError, match="answer"):
        dpm.teach.quiz(0).answer("rows", "low")
