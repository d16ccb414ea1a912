"""A statement with probability 1 - beta whose several events fail with at most beta together.

The probabilities are computed anew: from the scale that the sampler was given, and from the amounts that rows, numbers
and objectives are allowed by the statement. Nothing here reads a part's own beta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cases import CASES
from games import game
from replaying import Transcript
from scipy.stats import binom, chi2, multivariate_normal, norm

import dpmodel as dpm
from dpmodel._types import Floats
from dpmodel.contract import Options
from dpmodel.marks import Private, Records
from dpmodel.privacy import Gaussian, SeededSource
from dpmodel.programs import goals as routes
from dpmodel.programs import weights as coefficients
from dpmodel.programs.feasibility import treat
from dpmodel.programs.margins import reach_on_b, row_margins
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import NoiseDesign, NoisyPart, design_noise
from dpmodel.programs.noise_once import NoiseOnce
from dpmodel.programs.strict import StrictTruncated
from dpmodel.regressions import each_output
from dpmodel.solve.registry import by_name

FALSE_ALARM = 1e-8


# ------------------------------------------------------------------------------------------ models of several parts
def unequal_sides() -> dpm.Problem:
    """Two parameters of two people in one row each and in one row together, of unequal size; and an objective."""
    people = {"unit": "entry", "records": Records("people")}
    b, d = (
        Private([3.0, 4], name="b", linf=1.0, **people),
        Private([30.0], name="d", linf=20.0, records=Records("others")),
    )
    c = Private([1.0, 2, 3], name="c", linf=0.5, **people)
    x = cp.Variable(3, bounds=[0, 90], name="x")
    rows = [x[:2] >= b, x[1:2] <= 60 + d, x[:1] + x[2:] >= b[:1] + d]
    return dpm.Problem(cp.Minimize(c @ x), rows)


def long_rows() -> dpm.Problem:
    """Rows of 60, 40 and 20 private numbers, bounded by sums of independent draws, and sides of their own."""
    A, b = Private(np.ones((3, 60)), name="A", linf=0.01), Private([40.0, 30, 20], name="b", unit="entry", linf=0.2)
    x = cp.Variable(60, bounds=[0, 1], name="x")
    rows = [A[k, : 60 - 20 * k] @ x[: 60 - 20 * k] <= b[k] for k in range(3)]
    return dpm.Problem(cp.Maximize(cp.sum(x)), rows)


WRITTEN: dict[str, Callable[[], dpm.Problem]] = {
    **{name: (lambda name=name: CASES[name].open().problem) for name in
       ("rows_and_sides", "objective_and_sides", "all_three", "running_totals", "ball", "entropies")},
    "unequal_sides": unequal_sides,
    "long_rows": long_rows,
}  # fmt: skip


# ------------------------------------------------------------------------------------------ what can fail
def beyond(kind: str, scale: float, amount: Floats | float, sides: int = 2) -> Any:
    """Probability that one draw passes an amount, on one side or on either."""
    one = np.exp(-np.asarray(amount) / scale) / 2 if kind == "laplace" else norm.sf(np.asarray(amount) / scale)
    return sides * one


def kind_of(law: Any) -> str:
    return "gaussian" if isinstance(law, Gaussian) else "laplace"


def of_numbers(kind: str, scale: float, part: NoisyPart) -> float:
    """That some entry misses its reach: of all draws together, or, where Gaussian entries mix draws, of all entries
    (Sidak)."""
    m = part.measurement
    gain = m.gain(2 if kind == "gaussian" else 1)
    mixes = m.recover.nnz > m.recover.shape[0]
    if mixes and kind == "laplace" and not part.clip:  # sums of draws: Chernoff's inequality for every row, both sides
        rows = [np.abs(m.recover[[k], :].data) * scale for k in range(m.recover.shape[0])]
        return sum(float(chernoff(row, reach)) for row, reach in zip(rows, part.reach, strict=True))
    count = gain.size if kind == "gaussian" and mixes else min(m.count, gain.size) if not mixes else m.count
    least = float((part.reach[gain > 0] / gain[gain > 0]).min())
    return float(-np.expm1(count * np.log1p(-beyond(kind, scale, least))))


def chernoff(scales: Floats, amount: float) -> Floats:
    """On the probability that a sum of Laplace draws of these scales passes an amount, on either side."""
    u = np.linspace(0.001, 0.999, 999)[:, None] / scales.max()
    return np.asarray(2 * np.exp(-u[:, 0] * amount - np.log1p(-((u * scales) ** 2)).sum(axis=1)).min())


def of_inwards(kind: str, scale: float, part: NoisyPart, room: Floats) -> float:
    """That some side is less than its tightening makes up for, one side of every draw: rows of one draw share it."""
    m = part.measurement
    if m.mixes and kind == "gaussian":  # rows of the same draws miss together
        law = multivariate_normal(cov=(m.recover @ m.recover.T).toarray() * scale**2, allow_singular=True, seed=1)
        return 1 - float(law.cdf(room))
    sums: dict[tuple[int, bool], float] = {}
    for k in range(m.recover.shape[0]):
        row = m.recover[[k], :].tocoo()
        assert row.nnz == 1
        key, gain = (int(row.coords[1][0]), bool(row.data[0] > 0)), abs(float(row.data[0]))
        sums[key] = max(sums.get(key, 0.0), float(beyond(kind, scale, room[k] / gain, 1)))
    return sum(sums.values())


def of_long_rows(model: Program, noise: NoiseDesign, part: NoisyPart, scale: float) -> float:
    """That the noise of some row passes what one fixed x, or all x of the box, are allowed."""
    rows, columns = model.form.matrix_positions()
    margins, b = row_margins(model, noise), reach_on_b(model, noise)
    total, size = 0.0, model.public.magnitudes()
    longest = float(np.linalg.norm(size[np.unique(columns)]))
    for row in np.unique(rows):
        sigma = float((part.measurement.gain(2) * scale)[rows == row].max()) * longest
        for_one, for_all = margins.one[row] - b[row], margins.all[row] - b[row]
        total += float(beyond("gaussian", sigma, for_one) + chi2.sf((for_all / sigma) ** 2, (rows == row).sum()))
    return total


def failing(problem: dpm.Problem, options: Options, kind: str, *, forgotten: str = "") -> float:
    """At most how often a statement fails, by the union of its events. ``forgotten`` : a split that is left out."""
    model = problem._model(None)
    parts = model.private_parts()
    kinds: dict[str, Any] = dict.fromkeys(parts, kind)
    mechanism: Any = NoiseOnce(kind)  # type: ignore[arg-type]
    if options.feasibility == "strict":
        mechanism = StrictTruncated()
        kinds = {part: "laplace" if part == "objective" else "truncated" for part in parts}
    tape = Transcript(0)
    mechanism.run(model, options, tape)
    # As planted: every part gets all of beta.
    told = replace(options, beta=options.beta * len(parts)) if forgotten == "parts" else options
    noise = design_noise(model, told, kinds)
    scales = [draw.arguments[0] for draw in tape.draws]
    assert len(scales) == len(noise.parts)
    total, relax = 0.0, treat(model, told, noise).relax
    for (name, part), scale in zip(noise.parts.items(), scales, strict=True):
        linear = name == "scalar" and model.affine.inequalities()[part.measurement.positions].all()
        one_draw_each = part.measurement.recover.nnz == part.measurement.recover.shape[0]
        if kinds[name] == "truncated":
            continue  # nothing fails
        if name == "scalar" and options.feasibility == "safe" and linear and (one_draw_each or kind == "gaussian"):
            total += of_inwards(kind, scale, part, -relax[part.measurement.positions])
        elif name == "matrix" and not part.clip and options.feasibility != "safe":
            total += of_long_rows(model, noise, part, scale)
        else:
            total += of_numbers(kinds[name], scale, part)
    return total


MODES = ("relaxed", "centred", "safe", "strict")
KINDS = ("laplace", "gaussian")


def served() -> list[Any]:
    found = []
    for name, write in WRITTEN.items():
        model = write()._model(None)
        for mode in MODES:
            for kind in KINDS if mode != "strict" else ("laplace",):
                mechanism: Any = StrictTruncated() if mode == "strict" else NoiseOnce(kind)  # type: ignore
                options = Options(20.0, 1e-3, 0.1, mode)  # type: ignore[arg-type]
                if mechanism.eligible(model, options).eligible and (mode != "strict" or _loses(model)):
                    found.append(pytest.param(name, mode, kind, id=f"{name}-{mode}-{kind}"))
    return found


def _loses(model: Program) -> bool:
    return "objective" in model.private_parts()


@pytest.mark.parametrize(("name", "mode", "kind"), served())
def test_what_can_fail_adds_up_to_beta_at_most(name: str, mode: Any, kind: str) -> None:
    problem = WRITTEN[name]()
    for beta in (0.01, 0.2):
        options = Options(20.0, 1e-3, beta, mode)
        total = failing(problem, options, kind)
        assert total <= beta * (1 + 1e-6)
        assert total >= beta / 4, "a statement could be much stronger"
        parts = len(problem._model(None).private_parts())
        if parts > 1 and mode != "strict":
            assert failing(problem, options, kind, forgotten="parts") > beta, "the check finds parts that do not share"


@pytest.mark.parametrize("forgotten", [2.0, 3.0])
def test_rows_and_the_two_events_of_each_share_beta(forgotten: float, monkeypatch: Any) -> None:
    """Long rows have an event for one x and one for all x each; the check finds both splits where they are left out."""
    from dpmodel.programs import margins
    from dpmodel.programs import noise_design as module

    options, real = Options(20.0, 1e-3, 0.1), module.row_tails
    problem = long_rows()
    assert (
        not design_noise(problem._model(None), options, dict.fromkeys(("scalar", "matrix"), "gaussian"))
        .parts["matrix"]
        .clip
    )
    assert failing(problem, options, "gaussian") <= 0.1 * (1 + 1e-6)

    def planted(model: Program, part: NoisyPart, size: float) -> Any:
        return real(model, replace(part, beta=forgotten * part.beta), size)

    for each in (module, margins):
        monkeypatch.setattr(each, "row_tails", planted)
    assert failing(long_rows(), options, "gaussian") > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_all_parts_keep_their_reach_together(kind: Any) -> None:
    """The same by simulation; parts that do not share beta are found out."""
    model, options, draws = CASES["all_three"].open().model, Options(1.0, 1e-3, 0.2), 400
    kinds: dict[str, Any] = dict.fromkeys(model.private_parts(), kind)
    theta = model.read_private()
    for beta, kept in ((0.2, True), (0.6, False)):
        noise, source, missed = design_noise(model, replace(options, beta=beta), kinds), SeededSource(4), 0
        exact = [part.measurement.rebuild(part.measurement.values(theta), clip=False) for part in noise.parts.values()]
        for _ in range(draws):
            values = zip(noise.parts.values(), exact, strict=True)
            missed += any(
                (np.abs(part.measurement.rebuild(part.distribution.add_to(part.measurement.values(theta), source),
                                                 clip=False) - true) > part.reach).any()
                for part, true in values
            )  # fmt: skip
        assert (missed <= binom.isf(FALSE_ALARM, draws, 0.2)) == kept


# ------------------------------------------------------------------------------------------ engines
def scored(private_costs: bool) -> Any:
    rows = Private(np.ones((40, 4)), name="A", unit="row", bounds=[0, 1])
    x = cp.Variable(4, bounds=[0, 1])
    c: Any = Private(np.ones(4), name="c", unit="all", l1=0.1, bounds=[0, 2]) if private_costs else np.arange(1.0, 5)
    return game(cp.Minimize(c @ x), [rows @ x >= 1], rows, *([c] if private_costs else []))


@pytest.mark.parametrize("private_costs", [False, True])
def test_noise_on_costs_and_engines_share_beta(private_costs: bool) -> None:
    model = scored(private_costs).model
    engine: Any = by_name("noisy-hinge-descent")
    options = Options(1.0, 1e-6, 0.1)
    task = routes.task_of(model, engine, options)
    measured = routes.objective_design(model, options)
    total = task.beta
    if measured is not None:
        (part,) = measured.parts.values()
        total += of_numbers(kind_of(part.distribution), part.distribution.scale, part)
    assert 0.05 <= total <= 0.1 * (1 + 1e-6)
    assert (measured is not None) == private_costs


@pytest.mark.parametrize("steps", [2, 5, 12])
def test_the_runs_and_the_tests_of_a_search_share_beta(steps: int) -> None:
    model = scored(False).model
    engine: Any = by_name("noisy-hinge-descent")
    task = routes.task_of(model, engine, Options(1.0, 1e-6, 0.1))
    law = routes.noise_of_tests(engine, task, steps)
    (found,) = routes._searching(engine, task, 10.0, steps)
    one = float(beyond(kind_of(law), law.scale, found.margin))
    total = -np.expm1((steps - 1) * np.log1p(-one)) + steps * found.task.beta
    assert task.beta / 4 <= total <= task.beta * (1 + 1e-6)


def test_regret_and_shortfalls_of_weights_share_beta(monkeypatch: Any) -> None:
    asked: list[float] = []
    for name, place in (("noisy_regret", 3), ("shortfall", 2)):
        real = getattr(coefficients, name)

        def watched(*given: Any, real: Any = real, place: int = place) -> Any:
            asked.append(given[place])
            return real(*given)

        monkeypatch.setattr(coefficients, name, watched)
    model = scored(False).model
    engine: Any = by_name("noisy-multiplicative-weights")
    task = routes.task_of(model, engine, Options(1.0, 1e-6, 0.1))
    engine.promise(task)
    assert len(asked) >= 2 and asked[0] + asked[1] <= task.beta * (1 + 1e-9)


@pytest.mark.parametrize("outputs", [2, 3])
def test_outputs_share_beta(outputs: int) -> None:
    X = Private(np.ones((50, 2)), name="X", unit="row", max_l2=1)
    Y = Private(np.ones((50, outputs)), name="Y", unit="row", max_linf=1)
    W = cp.Variable((2, outputs))
    problem = dpm.Problem(cp.Minimize(cp.sum_squares(X @ W - Y)), [cp.norm(W[:, k], 1) <= 1 for k in range(outputs)])
    model, options = problem._model(None), Options(1.0, 1e-6, 0.1)
    for shared in (each_output._basic(model, options), each_output._gaussian(model, options)):
        assert shared is not None and outputs * shared.beta <= 0.1 * (1 + 1e-9)
