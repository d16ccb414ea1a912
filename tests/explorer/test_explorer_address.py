"""What a reader chose stands in the address: it is there again after a reload, one step back, and for somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dpmodel.cli.commands import PAGE

pytestmark = pytest.mark.slow

# Draws of noise and answers to questions are no choices.
CONTROLS = "section :is(input, select):not(.questions *, #cells *)"
SEEN = f"""() => {{
  const {{ draws, ...plane }} = Plane.state, {{ u, ...attack }} = Attack.state;
  return [
    [plane, Table1.state, attack, Cells.state].map(state => JSON.stringify(state)),
    [...document.querySelectorAll("{CONTROLS}")].map(each => [each.name || each.id, each.checked, each.value]),
    [...document.querySelectorAll(".handle")].map(each => each.ariaValueText),
    ...["plane", "map", "attack", "cells"].map(id => byId(id).innerText),
  ];
}}"""


def hash_of(page: Any) -> str:
    return str(page.evaluate("location.hash"))


def choices(page: Any) -> Iterator[str]:
    """Each value of each control that can be seen is chosen, one after another."""
    for control in page.locator(CONTROLS).all()[::-1]:  # backwards, so that the first choice, which shows most, is last
        if control.is_enabled() and control.is_visible():
            name = control.evaluate("e => `${e.name || e.id} ${e.value}`")
            if control.get_attribute("type") == "radio":
                if not control.is_checked():
                    control.check()
                    yield name
            elif control.get_attribute("type") == "range":
                for key in ("Home", "End"):
                    if control.get_attribute({"Home": "min", "End": "max"}[key]) != control.input_value():
                        control.press(key)
                        yield name
            else:
                for value in control.evaluate("e => [...e.options].map(each => each.value)"):
                    if value != control.input_value():
                        control.select_option(value)
                        yield name
    for handle in (".handle >> nth=0", ".handle >> nth=1"):
        page.locator(handle).press("ArrowUp")
        yield handle
    for button in page.locator("#map-table button:not([aria-pressed=true]), #attack-again, #cells-next").all():
        if button.get_attribute("aria-pressed") != "true":
            button.click()
            yield button.inner_text()
    page.locator("#attack-bits button").nth(3).click()
    yield "a bit"


def test_whatever_is_chosen_is_back_after_a_reload_and_one_step_back(page: Any) -> None:
    stages = [("", page.evaluate(SEEN))]
    for chosen in choices(page):
        try:
            page.wait_for_function("before => location.hash !== before", arg=stages[-1][0], timeout=5000)
        except Exception as error:
            raise AssertionError(f"{chosen} is not in the address") from error
        stages.append((hash_of(page), page.evaluate(SEEN)))
    assert len(stages) > 35
    for where, seen in stages[-2::-1]:
        page.evaluate("history.back()")
        page.wait_for_function("where => location.hash === where", arg=where)
        assert page.evaluate(SEEN) == seen, where
    for where, seen in stages[1:]:
        page.evaluate("history.forward()")
        page.wait_for_function("where => location.hash === where", arg=where)
        assert page.evaluate(SEEN) == seen, where
    for where, seen in stages[1:]:
        page.evaluate("where => history.replaceState('', '', where)", where)
        page.reload()
        assert page.evaluate(SEEN) == seen, where


DAMAGED = (
    "#",
    "#nonsense",
    "#%E0%A4%A&&&==#",
    "#toString&constructor=1&__proto__=2",
    "#plane-part=toString&plane-level=&plane-epsilon=6&plane-mode=Safe",
    "#plane-moved=0.51",
    "#plane-moved=-1e999",
    "#plane-moved=some",
    "#map-part=A&map-level=middle&map-n=101&map-epsilon=2&map-d=6&map-m=-5&map-delta=1&map-bound=none",
    "#map-unit=column",
    "#attack-part=row&attack-who=me&attack-epsilon=11&attack-seed=-1&attack-bits=012",
    "#attack-seed=1e3&attack-bits=" + "2" * 20,
    "#cells-model=0",
    "#cells-model=11&map-part=",
)


def test_damaged_and_foreign_addresses_are_the_defaults(page: Any) -> None:
    """After another choice, and as the first address; an error in the console fails the test as it closes."""
    seen = page.evaluate(SEEN)
    for damaged in DAMAGED:
        page.goto(f"{PAGE.as_uri()}#map&map-part=row&plane-level=high&attack-who=plain&attack-seed=8&cells-model=2")
        assert page.evaluate(SEEN) != seen
        page.goto(f"{PAGE.as_uri()}{damaged}")
        assert page.evaluate(SEEN) == seen, damaged
        page.reload()
        assert page.evaluate(SEEN) == seen, damaged


def test_what_one_choice_forbids_of_another_is_as_near_as_it_may_be(page: Any) -> None:
    page.goto(f"{PAGE.as_uri()}#map&map-part=row&map-level=high&map-n=100000&map-unit=entry&plane-moved=0.12")
    assert page.evaluate("[Table1.state.n, Table1.state.unit, Plane.state.moved]") == [2, "row", 0.1]
    assert "NaN" not in page.text_content("main") and page.locator("#map-bars li").count() > 0
    page.goto(f"{PAGE.as_uri()}#map&map-part=row&map-level=high&map-sees=own")
    assert page.input_value("#map-sees") == "all"
    page.goto(f"{PAGE.as_uri()}#map&map-part=column&map-level=high&map-sees=own")
    assert page.input_value("#map-sees") == "own" and "jointly" in page.inner_text("#map-cell")
    page.reload()
    assert page.input_value("#map-sees") == "own" and page.locator("#map-bars li").count() == 2


def test_links_to_a_part_keep_the_choices_and_an_address_opens_at_its_part(page: Any) -> None:
    page.click("[data-cell='column high']")
    page.click("nav a[href='#attack']")  # before the address is written
    top = "id => byId(id).getBoundingClientRect().top"
    page.wait_for_function("location.hash === '#attack&map-part=column&map-level=high&map-unit=column'")
    assert page.evaluate("Table1.state.part") == "column" and abs(page.evaluate(top, "attack")) < 2
    other = page.context.new_page()
    other.goto(f"{PAGE.as_uri()}#map&map-level=high")
    assert abs(other.evaluate(top, "map")) < 2


def test_a_drag_is_one_step_back_and_answers_are_none(page: Any) -> None:
    steps = page.evaluate("history.length")
    box = page.locator("#plane-picture .knob").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    for k in range(10):
        page.mouse.move(box["x"] + 10 + 2 * k, box["y"] + 10 - 2 * k)
    page.mouse.up()
    page.wait_for_function("location.hash.startsWith('#plane&plane-moved=')")
    page.click("#plane-draw")
    page.locator(".question input").first.check()
    page.click("#cells-check")
    page.wait_for_timeout(500)
    assert page.evaluate("history.length") == steps + 1
