"""Draws the pictures of the page on Table 1: ``python docs/table1/draw.py`` writes one SVG per cell beside itself.

Left, which numbers of "minimise c'x subject to A x <= b" one record moves; right, the idea of the proof.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as a script and from Sphinx alike

from sheet import BLUE, GREEN, GREY, INK, ORANGE, PALE, Point, Sheet

from dpmodel.programs.taxonomy import cell as taxonomy_cell

HERE = Path(__file__).parent
WIDTH, HEIGHT = 750, 250
SMALL = {"font_size": 12}
DASHED = {"stroke_dasharray": "6 4"}
BITS = (0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0)
LEFT = 255.0  # where the right half begins

_WHO = {
    "objective": "one entry of the objective c",
    "scalar": "one right-hand side in b",
    "row": "one row of A",
    "column": "one column of A",
    "matrix": "all of A",
}


def title(part: str, level: str) -> str:
    """Part and level, and whether the cell is one of ours."""
    return f"{part}, {level}{' (ours)' if taxonomy_cell(part, level).ours else ''}"


def where(sheet: Sheet, part: str, level: str) -> None:
    """The standard form, with what one record owns in colour: full where it may move anywhere, light where bounded."""
    size, top, left = 24.0, 84.0, 40.0

    def tile(x: float, y: float, owned: bool) -> None:
        fill = PALE if not owned else ORANGE
        sheet.box(x, y, size - 3, size - 3, fill, "none", fill_opacity=0.4 if owned and level == "low" else 1)
        if owned and level == "low":
            sheet.box(x + 0.75, y + 0.75, size - 4.5, size - 4.5, "none", ORANGE, stroke_width=1.5)

    sheet.words(8, top - 26, "c")
    for j in range(5):
        tile(left + size * j, top - 42, part == "objective" and j == 2)
    sheet.words(8, top + 52, "A")
    for i in range(4):
        for j in range(5):
            owned = part == "matrix" or (part == "row" and i == 1) or (part == "column" and j == 2)
            tile(left + size * j, top + size * i, owned)
        sheet.words(left + 5 * size + 4, top + size * i + 16, "≤")
        tile(left + 5 * size + 20, top + size * i, part == "scalar" and i == 1)
    sheet.words(left + 5 * size + 27, top - 10, "b")
    sheet.words(8, 24, title(part, level), font_weight="bold")
    far = "by a bounded amount" if level == "low" else "as far as it likes"
    sheet.words(8, 206, "One record moves")
    sheet.words(8, 223, f"{_WHO[part]},")
    sheet.words(8, 240, f"{far}.")


def tiles(sheet: Sheet, y: float, values: tuple[int, ...], wrong: tuple[int, ...] = ()) -> None:
    """A row of bits: dark ones, light zeros, crossed where wrong."""
    for i, value in enumerate(values):
        x = LEFT + 34 * i
        sheet.box(x, y, 28, 28, BLUE if value else PALE, GREY)
        sheet.words(x + 14, y + 19, str(value), "middle", fill="#FFFFFF" if value else INK)
        if i in wrong:
            sheet.box(x - 2, y - 2, 32, 32, "none", ORANGE, stroke_width=3)


def objective_high(sheet: Sheet) -> None:
    wrong = (2, 8, 10)
    told = tuple(1 - bit if i in wrong else bit for i, bit in enumerate(BITS))
    for y, words, values, marked in (
        (36, "the private numbers D", BITS, ()),
        (106, "plain solution: x = D, read it off", BITS, ()),
        (176, "a private solution is wrong somewhere", told, wrong),
    ):
        sheet.words(LEFT, y - 8, words)
        tiles(sheet, y, values, marked)
    sheet.words(LEFT, 228, "Each wrong entry loses 1/2. If no entry may be told for sure,", **SMALL)
    sheet.words(LEFT, 244, "a share of them has to be wrong: the loss grows with n.", **SMALL)


SHAPE: tuple[Point, ...] = ((290, 205), (290, 120), (345, 65), (430, 60), (490, 110), (500, 205))


def objective_low(sheet: Sheet) -> None:
    sheet.area(SHAPE, PALE, stroke=GREY)
    sheet.words(330, 160, "feasible set,")
    sheet.words(330, 177, "public and exact")
    for angle in (-0.55, -0.38, -0.2, -0.1, 0.12, 0.25, 0.42):
        sheet.arrow((400, 130), (400 + 52 * math.sin(angle), 130 - 52 * math.cos(angle)), ORANGE, 1)
    sheet.arrow((400, 130), (400, 70), INK, 2.5)
    sheet.dot(SHAPE[3], 7, GREEN)
    sheet.dot(SHAPE[2], 5, "none", stroke=ORANGE, stroke_width=2.5)
    sheet.dot(SHAPE[4], 5, "none", stroke=ORANGE, stroke_width=2.5)
    sheet.words(436, 50, "true optimum")
    sheet.line([(540, 62), (560, 62)], INK, 2.5)
    sheet.words(566, 66, "true objective c", **SMALL)
    sheet.line([(540, 86), (560, 86)], ORANGE, 1)
    sheet.words(566, 90, "c with noise", **SMALL)
    sheet.dot((550, 110), 5, "none", stroke=ORANGE, stroke_width=2.5)
    sheet.words(566, 114, "optima for noisy c", **SMALL)
    sheet.words(LEFT, 228, "If no entry moves by more than τ, no value c·x with ‖x‖₁ ≤ 1 does.", **SMALL)
    sheet.words(LEFT, 244, "So the noisy optimum is at most 2τ worse than the true one.", **SMALL)


def scalar_high(sheet: Sheet) -> None:
    base, unit, zero = 170.0, 210.0, 375.0

    def curve(centre: float) -> list[Point]:
        return [
            (zero + unit * x, base - 110 * math.exp(-1.6 * abs(x - centre))) for x in (i / 40 - 0.5 for i in range(81))
        ]

    for centre, colour in ((0.0, BLUE), (1.0, ORANGE)):
        x = zero + unit * centre
        sheet.box(x - unit / 2 + 3, base, unit - 6, 14, colour, fill_opacity=0.35)
        sheet.line(curve(centre), colour, 2, **({} if colour == BLUE else DASHED))
        sheet.line([(x, base - 4), (x, base + 18)], INK)
    sheet.words(zero, base + 34, "D = 0", "middle")
    sheet.words(zero + unit, base + 34, "D = 1", "middle")
    sheet.words(zero, 40, "answers for D = 0", "middle", fill=BLUE)
    sheet.words(zero + unit, 40, "answers for D = 1", "middle", fill=ORANGE)
    sheet.words(LEFT, 228, "An answer off by less than 1/2 lies in one bar or the other and tells D.", **SMALL)
    sheet.words(LEFT, 244, "Private curves are alike up to the factor exp(ε): both reach far over.", **SMALL)


def scalar_low(sheet: Sheet) -> None:
    sheet.area([(280, 200), (280, 90), (400, 90), (480, 200)], PALE, stroke=GREY)
    for shift in (-22, -13, -6, 4, 11, 19):
        sheet.line([(388 + shift, 70), (490 + shift, 210)], ORANGE, 1, **DASHED)
    sheet.line([(385.5, 70), (487.5, 210)], INK, 2.5)
    sheet.line([(425, 70), (527, 210)], GREEN, 2.5)
    sheet.dot((400, 90), 6, INK)
    sheet.dot((439.5, 90), 6, GREEN)
    sheet.line([(280, 90), (560, 90)], GREY, 1)
    for y, colour, words, more in (
        (120, INK, "true limit b", {}),
        (144, ORANGE, "b with noise", DASHED),
        (168, GREEN, "the same + τ", {}),
    ):
        sheet.line([(560, y), (584, y)], colour, 2, **more)
        sheet.words(592, y + 4, words, **SMALL)
    sheet.words(300, 60, "true optimum")
    sheet.words(445, 60, "released optimum", fill=GREEN)
    sheet.words(LEFT, 228, "Noise on b stays below a public τ, with probability 1 - β. Relaxed by τ,", **SMALL)
    sheet.words(LEFT, 244, "the true optimum stays allowed and no limit is missed by more than 2τ.", **SMALL)


def row_high(sheet: Sheet) -> None:
    piled = (6, 9, 4, 96, 7, 5, 12, 3, 8, 5)
    capped = (14, 20, 9, 30, 16, 11, 27, 7, 18, 11)
    for left, values, words, owned in (
        (LEFT + 5, piled, "weights without a cap", ORANGE),
        (LEFT + 225, capped, "no weight above 1/s", BLUE),
    ):
        sheet.words(left, 40, words)
        for i, value in enumerate(values):
            sheet.box(left + 20 * i, 180 - value, 15, float(value), owned if i == 3 else GREY)
        sheet.line([(left - 5, 180), (left + 200, 180)], INK, 1)
        sheet.words(left + 68, 198, "this person's row", "middle", **SMALL)
    sheet.line([(LEFT + 220, 150), (LEFT + 426, 150)], INK, 1, **DASHED)
    sheet.words(LEFT + 432, 154, "1/s")
    sheet.words(LEFT, 228, "Rows that are violated gain weight; points are chosen for the weighted sum.", **SMALL)
    sheet.words(LEFT, 244, "With a cap nobody's row steers the choice. Fewer than s rows stay violated.", **SMALL)


def row_low(sheet: Sheet) -> None:
    centre = (300, 195)
    sheet.line([(280, 200), (560, 200)], GREY, 1)
    sheet.line([(285, 205), (285, 40)], GREY, 1)
    sheet.area([(285, 200), (285, 90), (470, 200)], PALE)
    for tilt in (-26, -17, -9, 8, 15, 24):
        sheet.line([(285, 90 + 0.35 * tilt), (470 + 1.6 * tilt, 200)], ORANGE, 1, **DASHED)
    sheet.line([(285, 90), (470, 200)], INK, 2.5)
    sheet.arrow((centre[0] + 90, centre[1] - 50), (centre[0] + 128, centre[1] - 104), INK, 1.5)
    sheet.words(434, 90, "the row a")
    sheet.line([(560, 110), (584, 110)], INK, 2.5)
    sheet.words(592, 114, "true a·x ≤ b", **SMALL)
    sheet.line([(560, 134), (584, 134)], ORANGE, 1, **DASHED)
    sheet.words(592, 138, "a with noise", **SMALL)
    sheet.words(LEFT, 228, "Noise turns the row. Its effect, noise·x, grows with the size of x:", **SMALL)
    sheet.words(LEFT, 244, "that is why private coefficients need bounded variables.", **SMALL)


def column_high(sheet: Sheet) -> None:
    heights = (0, 34, 34, 0, 34, 12, 0, 34, 0, 22, 34, 0)
    sheet.words(LEFT, 30, "a solution x: its mass n/2 should lie on the ones")
    for i, (bit, height) in enumerate(zip(BITS, heights, strict=True)):
        x = LEFT + 34 * i
        sheet.line([(x, 110), (x + 28, 110)], GREY, 1)
        if height:
            sheet.box(x + 3, 110 - 1.6 * height, 22, 1.6 * height, GREEN if bit else ORANGE)
    sheet.words(LEFT, 132, "the private row D: entry j belongs to person j, and so does column j")
    tiles(sheet, 142, BITS)
    sheet.arrow((LEFT + 34 * 5 + 14, 200), (LEFT + 34 * 5 + 14, 174), ORANGE)
    sheet.words(LEFT + 34 * 5 + 24, 196, "mass on a zero", fill=ORANGE, **SMALL)
    sheet.words(LEFT, 228, "A violation of αn leaves αn of the mass on zeros: x is within 2αn of D.", **SMALL)
    sheet.words(LEFT, 244, "A small violation tells nearly all of D. Copies of the row: no slack helps.", **SMALL)


def column_low(sheet: Sheet) -> None:
    bars = (120, 70, 150, 95, 40)
    moves = (7, 4, 9, 3, 6)
    sheet.words(LEFT, 34, "A x, row by row, and how far one column of A moves it")
    for i, (bar, move) in enumerate(zip(bars, moves, strict=True)):
        y = 52.0 + 30 * i
        sheet.box(LEFT, y, 2.0 * bar, 18, PALE, GREY)
        sheet.box(LEFT + 2.0 * (bar - move), y, 4.0 * move, 18, ORANGE, fill_opacity=0.5)
        sheet.words(LEFT + 2.0 * (bar + move) + 8, y + 14, f"± Δ{chr(0x2081 + i)} · x, row {i + 1}", **SMALL)
    sheet.words(LEFT, 228, "What counts is the largest of them: how far a record moves a row in the 1-norm.", **SMALL)
    sheet.words(LEFT, 244, "The weights of Algorithm 6 pay for that alone, up to logarithms.", **SMALL)


def matrix_low(sheet: Sheet) -> None:
    noise = (22, -15, 9, -28, 17, -6, 30, -21, 5, -12, 19, -24, 11, -8)
    middle = 115.0
    sheet.words(LEFT, 34, "noise on the entries of one row, each times x")
    sheet.line([(LEFT - 5, middle), (LEFT + 330, middle)], INK, 1)
    for i, value in enumerate(noise):
        top = middle - 1.8 * max(value, 0)
        sheet.box(LEFT + 23.0 * i, top, 16, 1.8 * abs(value), ORANGE, fill_opacity=0.6)
    mean = sum(noise) / len(noise)
    sheet.line([(LEFT + 350, middle), (LEFT + 400, middle)], INK, 1)
    sheet.box(LEFT + 365, middle - 1.8 * max(mean, 0), 16, max(1.8 * abs(mean), 1.5), BLUE)
    sheet.words(LEFT + 373, middle + 24, "their mean", "middle", fill=BLUE)
    sheet.words(LEFT, 228, "Every entry needs noise. But noise has mean zero, and x is a mixture:", **SMALL)
    sheet.words(LEFT, 244, "in A x most of it cancels, the more the wider x is spread.", **SMALL)


def matrix_high(sheet: Sheet) -> None:
    sheet.words(LEFT, 34, "whoever owns one row")
    sheet.words(LEFT + 245, 34, "whoever owns all of them")
    for left, owned in ((LEFT, (2,)), (LEFT + 245, tuple(range(6)))):
        for i in range(6):
            y = 50.0 + 24 * i
            mine = i in owned
            sheet.box(left, y, 150, 17, ORANGE if mine else PALE, GREY, fill_opacity=0.8 if mine else 1)
            sheet.words(left + 160, y + 13, "left out" if mine else "holds", **SMALL)
    sheet.words(LEFT, 228, "Leaving a few constraints out hides the owner of one.", **SMALL)
    sheet.words(LEFT, 244, "Hiding the owner of all would mean leaving all of them out.", **SMALL)


CELLS: dict[str, Callable[[Sheet], None]] = {
    "objective high": objective_high,
    "objective low": objective_low,
    "scalar high": scalar_high,
    "scalar low": scalar_low,
    "row high": row_high,
    "row low": row_low,
    "matrix high": matrix_high,
    "matrix low": matrix_low,
    "column high": column_high,
    "column low": column_low,
}


def picture(cell: str) -> str:
    """The SVG of a cell, by its name in ``CELLS``."""
    part, level = cell.split()
    owns = f"One record moves {_WHO[part]}, {'by a bounded amount' if level == 'low' else 'as far as it likes'}."
    sheet = Sheet(
        WIDTH, HEIGHT, title(part, level), f"{owns} On the right, the idea of the proof, as the text tells it."
    )
    where(sheet, part, level)
    sheet.line([(LEFT - 20, 14), (LEFT - 20, HEIGHT - 14)], PALE, 1.5)
    CELLS[cell](sheet)
    return str(sheet)


if __name__ == "__main__":
    for name in CELLS:
        (HERE / f"{name.replace(' ', '_')}.svg").write_text(picture(name), encoding="utf-8")
