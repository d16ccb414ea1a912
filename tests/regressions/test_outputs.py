"""Several outputs: every spelling against CVXPY's own numbers, what ties outputs together, and remedies that work."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from regression_spellings import MIX, PUBLIC, ROOTS, SHIFT, Leaves, N, P
from test_read import fill, minimise

import dpmodel as dpm
from dpmodel.errors import UnsupportedModelError
from dpmodel.marks import vault
from dpmodel.regressions import outputs as regression_outputs
from dpmodel.regressions.build import private_outputs
from dpmodel.regressions.model import PrivateOutputs
from dpmodel.regressions.read import Outputs, Recognised, recognise

K = 2


class Several(Leaves):
    """The leaves of ``Leaves``, with coefficients for two outputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.V = cp.Variable((P, K), name="V")
        self.U = cp.Variable((K, K), name="U")
        self.c = cp.Variable(K, name="c")
        self.row = cp.Variable((1, K), name="row")

    @property
    def r(self) -> Any:
        return self.X @ self.V + self.c - self.Z

    @property
    def signs(self) -> Any:
        return self.D[:, :K]


Write = Callable[[Several], Any]

# name -> (loss, objective to be minimised)
SPELLINGS: dict[str, tuple[str, Write]] = {
    "sum_squares": ("squared", lambda m: cp.sum_squares(m.X @ m.V - m.Z)),
    "intercepts": ("squared", lambda m: cp.sum_squares(m.r)),
    "a row of intercepts": ("squared", lambda m: cp.mean(cp.square(m.Z - m.X @ m.V - m.row))),
    "intercepts by ones": ("squared", lambda m: cp.mean((m.X @ m.V + np.ones((N, 1)) @ m.row - m.Z) ** 2)),
    "no labels": ("squared", lambda m: cp.sum_squares(m.X @ m.V)),
    "fro": ("squared", lambda m: cp.norm(m.r, "fro") ** 2 / N),
    "vec": ("squared", lambda m: cp.sum_squares(cp.vec(m.r, order="C"))),
    "turned": ("squared", lambda m: cp.sum_squares(m.r.T)),
    "by axis 0": ("squared", lambda m: cp.sum(cp.sum_squares(m.r, axis=0))),
    "by axis 1": ("squared", lambda m: cp.sum(cp.sum_squares(m.r, axis=1))),
    "sums of sums": ("squared", lambda m: cp.sum(cp.sum(cp.square(m.r), axis=1))),
    "weights of records": ("squared", lambda m: m.weight @ cp.sum(cp.square(m.r), axis=1)),
    "weights inside": ("squared", lambda m: cp.sum_squares(cp.multiply(ROOTS[:, None], m.r))),
    "weights @": ("squared", lambda m: cp.sum_squares(cp.diag(ROOTS) @ m.r)),
    "weights of outputs": ("squared", lambda m: cp.sum(cp.square(m.r), axis=0) @ np.array([1.0, 3])),
    "weights of both": ("squared", lambda m: cp.sum(cp.multiply(np.outer(ROOTS, [1, 2]), cp.square(m.r)))),
    "offsets": ("squared", lambda m: cp.sum_squares(m.r + np.outer(SHIFT, [1, 2]))),
    "half the labels": ("squared", lambda m: cp.sum_squares(m.X @ m.V - m.Z / 2)),
    "one table": ("squared", lambda m: cp.sum_squares(m.D[:, :2] @ m.U - m.D[:, 2:])),
    "one label for all": ("squared", lambda m: cp.sum_squares(m.X @ m.V - m.Y)),
    "public features": ("squared", lambda m: cp.sum_squares(PUBLIC @ m.U - m.Z)),
    "mixed features": ("squared", lambda m: cp.sum_squares((m.X @ MIX) @ m.V[1:] + m.V[0] - m.Z)),
    "two blocks": ("squared", lambda m: cp.sum_squares(m.X @ m.V + m.D[:, :2] @ m.U - m.Z)),
    "expanded": ("squared", lambda m: cp.sum_squares(m.X @ m.V) - 2 * cp.sum(cp.multiply(m.Z, m.X @ m.V))),
    "one by one": ("squared", lambda m: sum(cp.sum_squares(m.X @ m.V[:, j] + m.c[j] - m.Z[:, j]) for j in range(K))),
    "stacked": ("squared", lambda m: cp.sum_squares(cp.vstack([m.r, 0.5 * m.V]))),
    "abs": ("absolute", lambda m: cp.sum(cp.abs(m.r))),
    "norm1": ("absolute", lambda m: cp.norm1(m.r) / N),
    "huber": ("huber", lambda m: cp.sum(cp.huber(m.r, 0.5))),
    "quantile": ("quantile", lambda m: cp.sum(cp.maximum(0.3 * m.r, -0.7 * m.r))),
    "two derivatives": ("quantile", lambda m: 0.3 * cp.sum(cp.pos(m.r)) + 0.7 * cp.sum(cp.neg(m.r))),
    "logistic": ("logistic", lambda m: cp.sum(cp.logistic(-cp.multiply(m.signs, m.X @ m.V + m.c)))),
    "hinge": ("hinge", lambda m: cp.sum(cp.pos(1 - cp.multiply(m.signs, m.X @ m.V)))),
    "swapped": ("squared", lambda m: cp.sum_squares(m.X @ m.V[:, ::-1] - m.Z)),
    "maximised": ("squared", lambda m: -cp.sum_squares(m.r)),
}

PENALTIES: dict[str, Write] = {
    "ridge": lambda m: 0.3 * cp.sum_squares(m.V),
    "ridge, fro": lambda m: m.tau * cp.norm(m.V, "fro") ** 2,
    "lasso": lambda m: 0.3 * cp.norm1(m.V),
    "lasso, vec": lambda m: 0.3 * cp.norm1(cp.vec(m.V, order="F")) + 2,
    "lasso, abs": lambda m: cp.sum(cp.abs(m.V)) / 7 - cp.sum(m.c),
    "norms of columns": lambda m: 0.3 * cp.sum(cp.norm(m.V, 2, axis=0)),
    "one column": lambda m: cp.norm(m.V[:, 0]) + m.tau * cp.norm1(m.V[:, 1]) + cp.sum_squares(m.V[0, 1:]),
    "differences": lambda m: cp.norm1(m.V[1:] - m.V[:-1]),
    "weights": lambda m: cp.sum(cp.multiply(np.arange(6.0).reshape(P, K), cp.square(m.V))),
}

CONSTRAINTS: dict[str, tuple[str, Write]] = {
    "sign": ("box", lambda m: m.V >= 0),
    "box": ("linf", lambda m: cp.abs(m.V) <= np.ones((P, K))),
    "l1 balls": ("l1", lambda m: cp.norm1(m.V, axis=0) <= 1),
    "l2 balls": ("l2", lambda m: cp.norm(m.V, 2, axis=0) <= [1, 2]),
    "simplices": ("polyhedron", lambda m: cp.sum(m.V, axis=0) == 1),
    "rows": ("polyhedron", lambda m: MIX.T @ m.V <= 1),
    "one column": ("l2", lambda m: cp.norm(m.V[:, 0]) <= 1),
    "cone": ("l2", lambda m: cp.SOC(cp.Constant(1), m.V[:, 0])),
}


def model_of(problem: cp.Problem) -> tuple[Outputs, PrivateOutputs]:
    found = recognise(problem)
    assert isinstance(found, Outputs)
    return found, private_outputs(found)


def compare(problem: cp.Problem, m: Several, seed: int) -> PrivateOutputs:
    """The sum of the outputs' objectives over the rows as a mechanism reads them, beside CVXPY's own value."""
    found, model = model_of(problem)
    rng = np.random.default_rng(seed)
    constants = fill(m, rng, signs=True)
    gaps = []
    rows = model.read()
    for _ in range(2):
        mine, points = 0.0, []
        for variable in problem.variables():
            variable.value = np.abs(rng.normal(size=variable.shape))
        for variable, shares in found.columns:
            for own, entries in shares:
                own.value = variable.value.ravel(order="F")[entries].reshape(own.shape, order="F")
        for each, part, data in zip(found.parts, model.parts, rows, strict=True):
            c = np.asarray(each.coefficients.value, dtype=float).ravel(order="F")
            losses = part.loss.value(data.predict(c), data.labels)
            mine += part.scale * float(losses.sum() if data.weights is None else losses @ data.weights)
            mine += part.penalty.value(c)
            points.append(c)
        theirs = float(np.asarray(problem.objective.args[0].tree_copy(constants).value).reshape(()))
        gaps.append((-theirs if isinstance(problem.objective, cp.Maximize) else theirs) - mine)
        if not any(each.up_to_constant for each in found.parts):
            assert gaps[-1] == pytest.approx(0, abs=1e-9 * max(1, abs(mine)))
        released = model.public.complete(np.concatenate(points))
        assert {v.name() for v in released} == {v.name() for v in problem.variables()}
        for variable, value in released.items():
            np.testing.assert_allclose(value, variable.value, atol=1e-12)
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-9 * max(1, abs(gaps[0])))
    assert len(model.parts) == K and model.count == N
    return model


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    loss, write = SPELLINGS[name]
    m = Several()
    sense = cp.Maximize if name == "maximised" else cp.Minimize
    model = compare(cp.Problem(sense(write(m))), m, 1)
    assert {part.loss.name for part in model.parts} == {loss}
    owned = {p.name() for p in model.private}
    assert [cell.parameter for cell in model.classification.cells] == [p.name() for p in model.private]
    assert owned <= {"X", "Z", "Y", "D"}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalty_of_each_column(name: str) -> None:
    m = Several()
    compare(minimise(cp.sum_squares(m.r) + PENALTIES[name](m)), m, 2)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraint_of_each_column(name: str) -> None:
    kind, write = CONSTRAINTS[name]
    m = Several()
    model = compare(minimise(cp.sum_squares(m.X @ m.V - m.Z), write(m)), m, 3)
    kinds = [part.domain.kind for part in model.parts]
    assert kinds == [kind, "free" if name in ("one column", "cone") else kind]
    model.public.require_feasible()


def test_attributes_of_a_variable_are_those_of_its_columns() -> None:
    m = Several()
    uppers = 9 + np.arange(6.0).reshape(P, K)
    V = cp.Variable((P, K), bounds=[-1, uppers])
    model = compare(minimise(cp.sum_squares(m.X @ V - m.Z)), m, 4)
    found = [part.domain.upper for part in model.parts]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.stack(found, axis=-1), uppers)


def test_one_output_stays_one_regression() -> None:
    m = Several()
    assert isinstance(recognise(minimise(cp.sum_squares(m.X @ m.W - m.Y))), Recognised)


def test_outputs_of_equal_public_facts_share_their_forecasts() -> None:
    m = Several()
    _, alike = model_of(minimise(cp.sum_squares(m.r), cp.norm1(m.V, axis=0) <= 1))
    assert alike.parts[0]._memo is alike.parts[1]._memo
    limits = cp.Constant(np.array([[1, 2], [1, 1]]))
    unlike = (
        (cp.sum_squares(m.r), cp.norm1(m.V[:, 0]) <= 1),
        (cp.sum_squares(m.r) + cp.norm1(m.V[:, 0]), m.V >= 0),
        (cp.sum_squares(m.X @ m.V - cp.multiply(m.Z, np.ones((N, 1)) @ [[1, 2]])), m.V >= 0),
        (cp.sum(cp.square(m.r), axis=0) @ np.array([1.0, 3]), m.V >= 0),
        (cp.sum_squares(m.r), limits >= MIX.T @ m.V),
    )
    for goal, constraint in unlike:
        _, model = model_of(minimise(goal, constraint))
        assert model.parts[0]._memo is not model.parts[1]._memo


def test_a_record_moves_the_gradients_of_all_outputs() -> None:
    """Brute force over corners: the sensitivity in the cells is attained, and never exceeded, by one record."""
    m = Several()
    _, model = model_of(minimise(cp.sum_squares(m.Z @ m.U - m.D[:, :K])))
    stated = model.classification.cells[0].sensitivity
    rng = np.random.default_rng(5)
    moves = []
    for _ in range(2000):
        a, b = rng.choice([-1.0, 2.0], (2, 2))
        s, t = rng.choice([-1.0, 1.0], (2, K))  # derivatives of the two records in each output
        moves.append((np.outer(a, s) - np.outer(b, t)).ravel())
    for key, order in (("l1", 1), ("l2", 2), ("linf", np.inf)):
        largest = max(float(np.linalg.norm(move, order)) for move in moves)
        assert largest == pytest.approx(stated[key])


# ------------------------------------------------------------------ what ties outputs together
TRAPS: dict[str, tuple[Write, tuple[str, ...]]] = {
    "one intercept for all": (lambda m: cp.sum_squares(m.X @ m.V + m.b - m.Z), ("several outputs",)),
    "outputs mixed": (lambda m: cp.sum_squares(m.X @ m.V @ MIX[:2] - m.Z), ("several outputs",)),
    "one column twice": (
        lambda m: sum(cp.sum_squares(m.X @ m.V[:, 0] - m.Z[:, j]) for j in range(K)) + cp.norm1(m.V),
        ("Z[:, 0] and Z[:, 1]",),
    ),
    "norms of rows": (lambda m: cp.sum(cp.norm(m.r, 2, axis=1)), ("none of the losses",)),
    "softmax": (lambda m: cp.sum(cp.log_sum_exp(m.X @ m.V, axis=1)), ("log_sum_exp",)),
    "records mixed": (lambda m: cp.sum_squares(np.tri(N) @ m.r), ("mixes the records",)),
    "two residuals": (lambda m: cp.sum_squares(m.r) + cp.norm1(m.X @ m.V - 2 * m.Z), ("another prediction",)),
    "two predictions": (lambda m: cp.sum_squares(m.r) + cp.sum_squares(m.X @ m.V - m.Z), ("another prediction",)),
    "nuclear norm": (lambda m: cp.sum_squares(m.r) + cp.normNuc(m.V), ("normNuc(V) ties several outputs",)),
    "group lasso": (lambda m: cp.sum_squares(m.r) + cp.sum(cp.norm(m.V, 2, axis=1)), ("ties several outputs",)),
    "fused": (lambda m: cp.sum_squares(m.r) + cp.norm1(m.V[:, 0] - m.V[:, 1]), ("ties several outputs",)),
    "concave penalty": (lambda m: cp.sum_squares(m.r) - cp.sum_squares(m.V), ("not convex",)),
    "private weight of an output": (
        lambda m: cp.sum_squares(m.r) + m.t[0] * cp.norm1(m.V),
        ("private number multiplies",),
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_refused(name: str) -> None:
    write, words = TRAPS[name]
    with pytest.raises(UnsupportedModelError) as caught:
        recognise(minimise(write(Several())))
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert caught.value.what.startswith("the objective: ") and caught.value.why and caught.value.remedy


TIED: dict[str, Write] = {
    "an l1 ball of all": lambda m: cp.norm1(m.V) <= 1,
    "a sum over outputs": lambda m: cp.sum(m.V, axis=1) <= 1,
    "a sum of all": lambda m: cp.sum(m.V) == 1,
    "one beside the other": lambda m: m.V[:, 0] <= m.V[:, 1],
    "symmetric": lambda m: m.U == m.U.T,
    "semidefinite": lambda m: m.U >> 0,
    "another variable": lambda m: cp.max(m.V) <= m.b,
}


@pytest.mark.parametrize("name", TIED)
def test_constraints_that_tie_outputs_are_refused_by_label(name: str) -> None:
    m = Several()
    with pytest.raises(UnsupportedModelError, match="knot: it ties several outputs") as caught:
        recognise(
            minimise(
                cp.sum_squares(m.X[:, :2] @ m.U + m.D @ cp.vstack([m.V, m.c]) - m.Z), TIED[name](m).set_label("knot")
            )
        )
    assert "cp.norm1(W, axis=0) <= 1" in caught.value.remedy


def test_largest_residuals_are_left_to_the_standard_form() -> None:
    m = Several()
    assert recognise(minimise(cp.max(cp.abs(m.r)))) is None
    assert recognise(minimise(cp.norm(m.r, "fro"))) is None


def test_private_constraints_and_twin_ids_are_refused() -> None:
    m = Several()
    radius = dpm.Private(shape=(), name="radius", linf=1)
    with pytest.raises(UnsupportedModelError, match="radius is private"):
        recognise(minimise(cp.sum_squares(m.r), cp.norm1(m.V, axis=0) <= radius))
    m.D.id = m.X.id
    goal = cp.sum_squares(m.X @ m.V[:, 0] - m.y) + cp.sum_squares(m.D[:, :3] @ m.V[:, 1] - m.y)
    with pytest.raises(UnsupportedModelError, match="same CVXPY id"):
        recognise(minimise(goal))


def test_private_values_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Several()
    fill(m, np.random.default_rng(0), signs=True)
    monkeypatch.setattr(vault, "unseal", lambda parameter: pytest.fail("read"))
    model_of(minimise(cp.sum_squares(m.r), m.V >= 0))


def test_a_wrong_split_is_found_at_a_random_point(monkeypatch: pytest.MonkeyPatch) -> None:
    m = Several()
    honest = regression_outputs._penalties
    monkeypatch.setattr(regression_outputs, "_penalties", lambda *given: [2 * part for part in honest(*given)])
    with pytest.raises(UnsupportedModelError, match="other values"):
        recognise(minimise(cp.sum_squares(m.r) + cp.norm1(m.V)))


# ------------------------------------------------------------------ remedies
def solved(problem: dpm.Problem) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(epsilon=1, delta=1e-6, rng=0, mechanism="sufficient-statistics")
    return problem.release is not None and problem.release.status == "optimal"


@pytest.mark.parametrize(
    "follow",
    [
        lambda m, X, Z: [cp.sum_squares(X @ m.V + m.c - Z)],
        lambda m, X, Z: [cp.sum_squares(X @ m.w - Z[:, j]) for j in range(K)],
        lambda m, X, Z: [sum(cp.sum_squares(X @ m.V[:, j] - Z[:, j]) for j in range(K))],
        lambda m, X, Z: [cp.sum_squares(X @ m.V - Z) + cp.norm1(m.V)],
    ],
    ids=["entries", "one each", "columns", "penalty"],
)
def test_what_refusals_advise_plans_and_solves(follow: Callable[..., list[Any]]) -> None:
    m = Several()
    fill(m, np.random.default_rng(0), signs=True)
    assert all(solved(dpm.Problem(cp.Minimize(goal))) for goal in follow(m, m.X, m.Z))
