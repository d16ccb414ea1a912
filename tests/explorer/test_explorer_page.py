"""The page under the hand: handles drag, keys move, nothing is cut off, and screen readers find their way."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PLANE, ATTACK = "#plane-picture .handle", "#attack-picture .handle"


def drag(page: Any, handle: str, right: float, down: float) -> None:
    """Press the handle, move it by so many pixels of the screen, let go."""
    page.locator(handle).scroll_into_view_if_needed()
    box = page.locator(f"{handle} .knob").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right / 2, y + down / 2)
    page.mouse.move(x + right, y + down)
    page.mouse.up()


def now(page: Any, handle: str) -> float:
    return float(page.get_attribute(handle, "aria-valuenow"))


def all_states(page: Any) -> None:
    """Open and answer everything, so that what is hidden at first is looked at too."""
    page.click("#plane-draw")
    for summary in page.locator("details:not([open]) summary").all():
        if summary.is_visible():
            summary.click()
    page.check("input[name=attack-who][value=response]")
    for question in page.locator(".question").all():
        question.locator("input").first.check()
    page.click("#cells-check")


def test_a_drag_of_low_sensitivity_goes_as_far_as_one_record_and_the_plan_crawls(page: Any) -> None:
    start = page.evaluate("Plane.optimum()")
    drag(page, PLANE, 20, -20)
    assert 0 < now(page, PLANE) <= 0.5
    drag(page, PLANE, 300, -300)
    assert now(page, PLANE) == 0.5 == page.evaluate("Plane.state.moved")
    end = page.evaluate("Plane.optimum()")
    assert [b - a for a, b in zip(start, end, strict=True)] == pytest.approx([0, 0.5], abs=1e-9)
    assert "moved it by 0.5" in page.inner_text("#plane-told")


def test_a_drag_of_high_sensitivity_makes_the_plan_jump(page: Any) -> None:
    page.check("input[name=plane-level][value=high]")
    drag(page, PLANE, -90, 90)
    assert now(page, PLANE) < -2
    told = page.inner_text("#plane-told")
    assert "A jump" in told and "Theorem 36" in told
    assert not page.is_visible("#plane-draw")


def test_half_a_vote_tips_the_plan_but_not_its_worth(page: Any) -> None:
    page.check("input[name=plane-part][value=objective]")
    assert page.evaluate("Plane.optimum()") == [6, 2]
    page.focus(PLANE)
    page.keyboard.press("End")
    assert page.evaluate("Plane.optimum()") == [2, 6]
    assert "would lose 1" in page.inner_text("#plane-told")  # (2, 6) - (6, 2) at worths 10 and 10.25


@pytest.mark.parametrize(("handle", "step"), [(PLANE, 0.05), (ATTACK, 1)])
def test_keys_move_a_handle(page: Any, handle: str, step: float) -> None:
    page.focus(handle)
    start, least, most = (float(page.get_attribute(handle, f"aria-value{name}")) for name in ("now", "min", "max"))
    for key, expected in (
        ("ArrowRight", start + step),
        ("ArrowUp", start + 2 * step),
        ("ArrowLeft", start + step),
        ("ArrowDown", start),
        ("PageUp", start + 5 * step),
        ("PageDown", start),
        ("End", most),
        ("ArrowRight", most),
        ("Home", least),
        ("ArrowLeft", least),
    ):
        page.keyboard.press(key)
        assert now(page, handle) == pytest.approx(expected), key
    assert page.get_attribute(handle, "role") == "slider" and page.get_attribute(handle, "aria-valuetext")


def test_the_handle_of_epsilon_drags(page: Any) -> None:
    page.check("input[name=attack-who][value=response]")
    before = page.inner_text("#attack-line")
    drag(page, ATTACK, -400, 0)
    assert now(page, ATTACK) == 0
    after = page.inner_text("#attack-line")
    assert after != before and "epsilon 0.1" in after and "no private mechanism" in after


def test_every_control_has_a_name_for_screen_readers(page: Any) -> None:
    """A label names the first thing in it that can be named: of a range, that was the number beside it."""
    for name, count in (("Privacy loss", 2), ("People", 1)):
        assert page.get_by_role("slider", name=name).and_(page.locator("input")).count() == count
    for control in page.locator("input, select, button, [role=slider]").all():
        names = control.evaluate("e => [e.ariaLabel, e.textContent, ...[...(e.labels ?? [])].map(l => l.textContent)]")
        assert any(name and name.strip() for name in names), control.evaluate("e => e.outerHTML")


def test_bits_are_flipped_and_read_back(page: Any) -> None:
    first = page.locator("#attack-bits button").first
    before = first.inner_text()
    first.click()
    assert page.locator("#attack-bits button").first.inner_text() != before
    assert page.evaluate("document.activeElement === document.querySelector('#attack-bits button')")
    assert page.inner_text("#attack-told").startswith("20 of 20")


def test_no_text_has_a_number_that_is_none(page: Any) -> None:
    """Every cell with every value of every knob, hidden texts too: an empty list once gave "from infinity"."""
    for cell in page.locator("#map-table button").all():
        cell.click()
        for knob in ("unit", "bound", "d", "m", "delta", "sees"):
            for value in page.eval_on_selector_all(f"#map-{knob} option", "all => all.map(each => each.value)"):
                if knob != "bound" and page.is_enabled(f"#map-{knob}"):
                    page.select_option(f"#map-{knob}", value)
        for step in range(5):
            page.evaluate("k => { Table1.state.epsilon = k; Table1.state.n = Math.min(k, 2); Table1.show(); }", step)
            text = page.text_content("main")
            assert not any(word in text for word in ("Infinity", "∞", "NaN", "undefined", "null")), cell.inner_text()


@pytest.mark.parametrize("part", ["objective", "scalar"])
def test_what_is_said_of_the_attack_agrees_with_the_theory(page: Any, part: str) -> None:
    """At all epsilons: the quantile of 100 seeded answers never lies below the lower bound beside it (20 bits leave it
    so far above that this has no false alarm), and only the plain solver tells everybody's secret."""
    page.check(f"input[name=attack-part][value={part}]")
    for who in ("plain", "response", "laplace-once"):
        page.check(f"input[name=attack-who][value={who}]")
        for k, epsilon in enumerate(page.evaluate("DPMODEL.epsilons")):
            page.evaluate("k => Attack.handle.set(k)", k)
            told, line = page.inner_text("#attack-told"), page.inner_text("#attack-line")
            assert ("secret is out" in told) == (who == "plain") and "secrets are out" not in told
            if who == "plain":
                assert "95 of 100" in line
                continue
            most = page.evaluate("Random.quantile(Attack.runs(), 0.95)")
            assert most >= page.evaluate(f"DPMODEL.attack.gadgets.{part}.lowerBound[{k}]")
            share = float(told.split("probability ")[1].split(" at most")[0])
            assert share == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=2e-3)
    assert "mechanism can be" not in page.text_content("main")


def test_every_question_has_one_right_answer_and_a_word_on_each(page: Any) -> None:
    assert page.locator("#plane .question").count() and page.locator("#map .question").count()
    assert page.locator("#attack .question").count()
    for question in page.locator(".question").all():
        told = []
        for answer in question.locator("input").all():
            answer.check()
            told.append(question.locator(".told").inner_text())
        assert sum(text.startswith("Right.") for text in told) == 1
        assert len(set(told)) == len(told) >= 2 and all(len(text) > 30 for text in told)


def test_the_first_screen_says_what_is_seen_and_what_to_drag(page: Any) -> None:
    for width, height in ((1200, 800), (360, 740)):
        page.set_viewport_size({"width": width, "height": height})
        for selector in (".lead", f"{PLANE} .knob"):
            box = page.locator(selector).bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= height, (selector, width)


def test_nothing_is_wider_than_a_narrow_screen(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    all_states(page)
    for cell in page.locator("#map-table button").all():
        cell.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for level in ("high", "low"):
        page.check(f"input[name=plane-level][value={level}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    drag(page, PLANE, 10, -10)
    assert now(page, PLANE) > 0


def violations(page: Any) -> list[dict[str, Any]]:
    """What axe-core finds on the page as it is now; without preload: scripts may not read styles."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core comes with the extra [e2e]")
    found: list[dict[str, Any]] = axe.Axe().run(page, options={"preload": False}).response["violations"]
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_axe_finds_nothing(page: Any, scheme: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found = violations(page)
    all_states(page)
    found += violations(page)
    page.check("input[name=plane-level][value=high]")
    page.click("[data-cell='column high']")
    found += violations(page)
    assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found] == []
