"""Likelihoods of published numbers: their values, the problems recognised, and what is refused."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from dpmodel.errors import MissingValueError, SpecificationError, UnsupportedModelError
from dpmodel.marks.noisy import Noisy
from dpmodel.marks.private import Private
from dpmodel.privacy.distributions import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from dpmodel.released.likelihood import neg_log_likelihood, published
from dpmodel.released.read import recognise_postprocessing

SCALE = np.array([0.5, 1.0, 2.0])
DISTRIBUTIONS = {
    "laplace": (Laplace(SCALE), lambda z: stats.laplace.logpdf(z, scale=SCALE)),
    "gaussian": (Gaussian(SCALE), lambda z: stats.norm.logpdf(z, scale=SCALE)),
    "discrete laplace": (DiscreteLaplace(SCALE), lambda z: stats.dlaplace.logpmf(z, 1 / SCALE)),
    "discrete gaussian": (DiscreteGaussian(SCALE), lambda z: -(z**2) / (2 * SCALE**2)),
}


# ------------------------------------------------------------------ the expression
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_is_minus_log_likelihood_up_to_a_constant(distribution):
    noise, log = DISTRIBUTIONS[distribution]
    noisy = Noisy([3.0, -2.0, 7.0], noise=noise)
    x = cp.Variable(3)
    expression = neg_log_likelihood(x, noisy)
    generator = np.random.default_rng(1)
    differences = []
    for _ in range(20):
        x.value = generator.integers(-9, 9, 3).astype(float)
        differences.append(float(expression.value) + float(log(noisy.value - x.value).sum()))
    assert np.ptp(differences) < 1e-9
    assert expression.is_convex()


def test_elastic_mixes_scaled_absolute_values_and_squares():
    noisy = Noisy([3.0, -2.0, 7.0], noise=Laplace(SCALE))
    x = cp.Variable(3, value=np.array([1.0, 1.0, 1.0]))
    z = (x.value - noisy.value) / SCALE
    wanted = 0.9 * np.abs(z).sum() + 0.1 * np.square(z).sum()
    assert neg_log_likelihood(x, noisy, alpha=0.9).value == pytest.approx(wanted)


@pytest.mark.parametrize("distribution", [Laplace(3.0), Gaussian(3.0), DiscreteLaplace(3.0), Laplace(SCALE)])
def test_least_squares_weighs_by_the_variance(distribution):
    noisy = Noisy([3.0, -2.0, 7.0], noise=distribution)
    x = cp.Variable(3, value=np.ones(3))
    wanted = np.square((x.value - noisy.value) / noisy.standard_deviation).sum() / 2
    assert neg_log_likelihood(x, noisy, form="least-squares").value == pytest.approx(wanted)


def test_least_squares_of_noise_that_is_zero_is_refused():
    """Its variance underflows, and no weight is left."""
    noisy = Noisy(np.arange(3.0), noise=DiscreteGaussian(0.01), name="counts")
    with pytest.raises(SpecificationError, match=r"counts: discrete gaussian noise of scale 0\.01 is zero"):
        neg_log_likelihood(cp.Variable(3), noisy, form="least-squares")
    neg_log_likelihood(cp.Variable(3), noisy)


def test_prints_the_name_and_not_the_numbers():
    noisy = Noisy(np.arange(100.0), noise=Laplace(1.0), name="counts")
    text = str(neg_log_likelihood(cp.Variable(100, name="x"), noisy))
    assert "counts" in text and "99" not in text
    assert "published[3]" in str(published(Noisy(np.arange(3.0), noise=Laplace(1.0))))


BAD_TERMS = {
    "shapes": (lambda x, n: neg_log_likelihood(x[:2], n), r"shape \(2,\).*shape \(3,\)"),
    "scalar against vector": (lambda x, n: neg_log_likelihood(x[0], n), r"shape \(\).*shape \(3,\)"),
    "no distribution": (lambda x, n: neg_log_likelihood(x, n.value), "ndarray"),
    "the wrong way round": (lambda x, n: neg_log_likelihood(n, x), "Variable"),
    "two publications": (lambda x, n: neg_log_likelihood(n, n), "published data itself"),
    "not affine": (lambda x, n: neg_log_likelihood(cp.abs(x), n), "not an affine"),
    "complex": (lambda x, n: neg_log_likelihood(cp.Variable(3, complex=True), n), "not an affine"),
    "alpha 0": (lambda x, n: neg_log_likelihood(x, n, alpha=0), "alpha=0"),
    "alpha above 1": (lambda x, n: neg_log_likelihood(x, n, alpha=1.5), "alpha=1.5"),
    "alpha NaN": (lambda x, n: neg_log_likelihood(x, n, alpha=float("nan")), "alpha=nan"),
    "alpha of another type": (lambda x, n: neg_log_likelihood(x, n, alpha="a"), "alpha=str"),
    "form": (lambda x, n: neg_log_likelihood(x, n, form="l2"), "least-squares"),
    "alpha with squares": (lambda x, n: neg_log_likelihood(x, n, alpha=0.5, form="least-squares"), "squares"),
    "alpha with Gaussian noise": (
        lambda x, n: neg_log_likelihood(x, Noisy(n.value, noise=Gaussian(1.0)), alpha=0.5),
        "squares",
    ),
    "published numbers alone": (lambda x, n: published(n.value), "ndarray"),
    "private data": (
        lambda x, n: neg_log_likelihood(Private(np.array([8765.0, 1.0, 2.0]), name="s", unit="entry", linf=1), n),
        "measure it first",
    ),
}


@pytest.mark.parametrize("case", BAD_TERMS)
def test_bad_arguments(case):
    build, message = BAD_TERMS[case]
    with pytest.raises(SpecificationError, match=f"(?s){message}") as caught:
        build(cp.Variable(3, name="x"), Noisy([1.0, 2.0, 3.5], noise=Laplace(1.0), name="counts"))
    assert "8765" not in str(caught.value)


# ------------------------------------------------------------------ spellings
V = np.array([3.25, -1.5, 0.75])


def spellings(x, n, W):
    """Objectives in the form, every one the way somebody writes it."""
    p, w, A = published(n), np.array([1.0, 2.0, 0.5]), np.array([[1.0, 1, 0], [0, 1, -2], [3, 0, 1]])
    s = cp.Parameter(nonneg=True, value=1.5)
    return {
        "likelihood": neg_log_likelihood(x, n),
        "elastic": neg_log_likelihood(x, n, alpha=0.7),
        "least squares": neg_log_likelihood(x, n, form="least-squares"),
        "of an answer": neg_log_likelihood(A @ x, n),
        "of two variables": neg_log_likelihood(x + W[0, 1], n),
        "weighted": 0.5 * neg_log_likelihood(x, n) + cp.sum(x) / 4 - 3,
        "norm1": cp.norm1(x - p),
        "norm": cp.norm(x - p, 1),
        "pnorm": cp.pnorm(p - x, 1),
        "sum abs": cp.sum(cp.abs(x - p)),
        "mean abs": cp.mean(cp.abs(x - p)),
        "weighted abs": w @ cp.abs(x - p),
        "weighted from the right": cp.abs(x - p) @ w,
        "multiply": cp.sum(cp.multiply(w, cp.abs(x - p))),
        "scaled inside": cp.norm1(cp.multiply(w, x - p)),
        "divided inside": cp.norm1((x - p) / w),
        "divided apart": cp.norm1(x / 4 - p / 4),
        "diagonal": cp.norm1(np.diag(w) @ x - cp.multiply(w, p)),
        "entry by entry": sum(cp.abs(x[i] - p[i]) for i in range(3)),
        "hstack": cp.sum(cp.hstack([cp.abs(x[0] - p[0]), cp.abs(x[1:] - p[1:])])),
        "entries of a term": cp.abs(x - p)[1] + 2 * cp.abs(x - p)[2] + cp.square(x[0]),
        "column": cp.norm1(cp.reshape(x, (3, 1), order="F") - cp.reshape(p, (3, 1), order="F")),
        "maximum": cp.sum(cp.maximum(x - p, p - x)),
        "quantile": cp.sum(cp.maximum(0.25 * (x - p), -0.75 * (x - p))),
        "pos": cp.sum(cp.pos(x - p)) + cp.sum(cp.neg(x - p)),
        "minus minimum": -cp.sum(cp.minimum(x - p, 0)),
        "parameter": s * cp.norm1(x - p),
        "sum of squares": cp.sum_squares(x - p),
        "squares": cp.sum((x - p) ** 2) / 2,
        "square": cp.sum(cp.multiply(w, cp.square(x - p))),
        "norm squared": cp.norm(x - p) ** 2,
        "abs squared": cp.sum(cp.abs(x - p) ** 2),
        "over a number": cp.quad_over_lin(x - p, 4.0),
        "diagonal form": cp.quad_form(x - p, np.diag(w)),
        "whitened": cp.sum_squares(A @ x - p),
        "both": cp.norm1(x - p) + 0.1 * cp.sum_squares(x - p),
        "smooth": neg_log_likelihood(x, n) + cp.tv(x) + 0.1 * cp.sum_squares(cp.diff(x)),
        "table": cp.norm1(W - np.ones((2, 2))) + cp.sum(cp.norm1(W, axis=0)) + cp.norm1(x - p),
        "mixed norm": cp.mixed_norm(W, 1, 1) + cp.norm1(x - p),
        "power 1": cp.sum(cp.power(x - p, 1) + cp.power(x - p, 2)),
    }


X3, W22 = cp.Variable(3, name="x"), cp.Variable((2, 2), name="W")
NOISY = Noisy(V, noise=Laplace(2.0), name="counts")
SPELLINGS = spellings(X3, NOISY, W22)


def recognised(objective, constraints=()):
    model = recognise_postprocessing(cp.Problem(cp.Minimize(objective), list(constraints)))
    assert model is not None
    return model


def at(model, point):
    for variable, place in model.columns:
        variable.value = point[place].reshape(variable.shape, order="F")


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name):
    # Constraints bring both variables in.
    model = recognised(SPELLINGS[name], [cp.sum(X3) + cp.sum(W22) <= 9])
    assert model.form is not None
    generator = np.random.default_rng(3)
    for scale in (1e-2, 1.0, 1e3):
        point = scale * generator.normal(size=7)
        at(model, point)
        assert model.form.objective(point) == pytest.approx(float(SPELLINGS[name].value), rel=1e-9, abs=1e-9)
    assert model.measurements == (NOISY,)


def test_maximising_is_minimising_the_negative():
    x = cp.Variable(3)
    model = recognise_postprocessing(cp.Problem(cp.Maximize(cp.sum(x) - neg_log_likelihood(x, NOISY)), [x <= 4]))
    x.value = np.array([1.0, 2.0, 3.0])
    assert model.form.objective(x.value) == pytest.approx(float(model.problem.objective.value) * -1)


P3 = published(NOISY)
NO_FORM = {
    "norm": (cp.norm(X3 - P3), []),
    "huber": (cp.sum(cp.huber(X3 - P3)), []),
    "largest": (cp.norm_inf(X3 - P3), []),
    "largest of a row": (cp.max(cp.abs(X3 - P3)), []),
    "cubes": (cp.sum(cp.abs(X3 - P3) ** 3), []),
    "entropy": (cp.norm1(X3 - P3) - cp.sum(cp.entr(X3)), []),
    "three at once": (cp.sum(cp.maximum(X3 - P3, P3 - X3, 1)), []),
    "squares of absolute values plus one": (cp.sum(cp.square(cp.abs(X3 - P3) + 1)), []),
    "products": (cp.quad_form(X3 - P3, np.eye(3) + 0.5), []),
    "squares over a variable": (cp.quad_over_lin(X3 - P3, X3[0] + 9), []),
    "the smaller of the good": (cp.norm1(X3 - P3) + cp.logistic(X3[0]), []),
    "ball": (cp.norm1(X3 - P3), [cp.norm(X3) <= 2]),
    "absolute": (cp.norm1(X3 - P3), [cp.norm1(X3) <= 2]),
    "semidefinite": (cp.norm1(X3 - P3), [cp.diag(X3) >> 0]),
    "exponential": (cp.norm1(X3 - P3), [cp.exp(X3[0]) <= 3]),
    **{
        f"tied entries: {name}": (cp.norm1(cp.Variable((2, 2), **{name: value}) - P3[0]), [])
        for name, value in {"symmetric": True, "diag": True, "PSD": True, "sparsity": [(0,), (1,)]}.items()
    },
}


@pytest.mark.parametrize("name", NO_FORM)
def test_near_misses_have_no_form_and_stay_post_processing(name):
    objective, constraints = NO_FORM[name]
    model = recognised(objective, constraints)
    assert model.form is None and model.rows == () and model.measurements == (NOISY,)
    assert "general solver" in model.description


# ------------------------------------------------------------------ what is and is not post-processing
def test_private_parameters_and_unpublished_constants_are_not_post_processing():
    x = cp.Variable(3)
    secret = Private(np.zeros(3), name="secret", unit="entry", linf=1)
    assert recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(x, NOISY)), [x >= secret])) is None
    assert recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(x + secret, NOISY)))) is None
    assert recognise_postprocessing(cp.Problem(cp.Minimize(cp.norm1(x - V)))) is None


def test_published_numbers_in_a_constraint_alone():
    x = cp.Variable(3)
    model = recognised(cp.sum_squares(x), [x >= published(NOISY)])
    assert model.form is not None and model.rows == (slice(0, 0),)
    assert model.form.lower == pytest.approx(V)


# ------------------------------------------------------------------ arrays
def test_bounds_rows_and_attributes():
    x = cp.Variable(3, nonneg=True, name="x")
    y = cp.Variable((2, 2), bounds=[np.zeros((2, 2)), np.array([[1.0, 2], [3, np.inf]])])
    z = cp.Variable(2, integer=True)
    b = cp.Variable(2, boolean=True)
    constraints = [x[0] == 5, 2 * x[1] <= 8, -x[2] <= -1, x <= 7, cp.sum(y, axis=0) == [2.0, 3.0], y[0, 0] + z[0] <= 4]
    constraints += [z >= 0.5, z <= np.array([2.7, np.inf]), cp.sum(x) >= 3]
    model = recognised(neg_log_likelihood(x, NOISY) + cp.sum(y) + cp.sum(z) + cp.sum(b), constraints)
    form = model.form
    place = {variable.id: where for variable, where in model.columns}
    assert form.lower[place[x.id]].tolist() == [5, 0, 1] and form.upper[place[x.id]].tolist() == [5, 4, 7]
    assert form.upper[place[y.id]].tolist() == [1, 3, 2, np.inf]
    assert form.lower[place[z.id]].tolist() == [1, 1] and form.upper[place[z.id]].tolist() == [2, np.inf]
    assert form.integer[place[z.id]].all() and form.integer[place[b.id]].all() and form.integer.sum() == 4
    assert form.upper[place[b.id]].tolist() == [1, 1]
    assert form.equality.shape[0] == 2 and form.inequality.shape[0] == 2
    assert form.equality_value.tolist() == [2, 3]
    assert model.shape is None


def test_some_entries_whole():
    x = cp.Variable((2, 2), integer=[(0,), (1,)])
    y = cp.Variable(2, boolean=[(1,)])
    model = recognised(neg_log_likelihood(x, Noisy(np.eye(2), noise=Laplace(1.0))) + cp.sum(y), [y >= 0])
    columns = {variable.id: place for variable, place in model.columns}
    assert [model.form.integer[columns[v.id]].tolist() for v in (x, y)] == [[False] * 2 + [True, False], [False, True]]
    assert model.form.upper[columns[y.id]].tolist() == [np.inf, 1]


def test_a_table_is_flattened_column_by_column_and_says_its_axes():
    table = np.arange(24.0).reshape(2, 3, 4)
    x = cp.Variable((2, 3, 4), nonneg=True)
    model = recognised(neg_log_likelihood(x, Noisy(table, noise=Laplace(1.0))), [cp.sum(x, axis=(1, 2)) == [6, 7]])
    assert model.shape == (4, 3, 2)
    assert model.form.value.reshape(model.shape) == pytest.approx(table.T)
    assert model.rows == (slice(0, 24),)
    assert (model.form.matrix - sp.eye_array(24)).nnz == 0


def test_equal_residuals_are_one_row_and_factors_are_weights():
    x = cp.Variable(3)
    p = published(NOISY)
    model = recognised(cp.norm1((x - p) / 2) + cp.sum_squares(3 * (p - x)) + 0.0)
    assert model.form.matrix.shape == (3, 3) and (model.form.matrix - sp.eye_array(3)).nnz == 0
    assert model.form.absolute == pytest.approx(0.5) and model.form.square == pytest.approx(9.0)
    scaled = recognised(cp.norm1(x / 4 - p / 4)).form
    assert (scaled.matrix - sp.eye_array(3)).nnz == 0 and scaled.absolute == pytest.approx(0.25)
    assert scaled.value == pytest.approx(V)


def test_parameters_are_read_at_each_call():
    x, bound = cp.Variable(3), cp.Parameter(value=2.0)
    weight = cp.Parameter(nonneg=True, value=1.0)
    limit = cp.Variable(bounds=[bound, 9])
    problem = cp.Problem(cp.Minimize(weight * neg_log_likelihood(x, NOISY) + limit), [cp.sum(x) == bound])
    first = recognise_postprocessing(problem).form
    bound.value, weight.value = 5.0, 4.0
    second = recognise_postprocessing(problem).form
    assert (first.equality_value, second.equality_value) == (2.0, 5.0)
    assert second.absolute == pytest.approx(4 * first.absolute)
    assert second.lower.max() == 5.0
    bound.value = None
    bound.save_value(None)
    with pytest.raises(MissingValueError, match="has no value"):
        recognise_postprocessing(problem)


# ------------------------------------------------------------------ refusals
def test_not_convex_and_complex():
    x = cp.Variable(3)
    with pytest.raises(UnsupportedModelError, match="not convex"):
        recognise_postprocessing(cp.Problem(cp.Minimize(-neg_log_likelihood(x, NOISY))))
    z = cp.Variable(3, complex=True)
    with pytest.raises(UnsupportedModelError, match="complex"):
        recognise_postprocessing(cp.Problem(cp.Minimize(neg_log_likelihood(cp.real(z), NOISY))))
    with pytest.raises(UnsupportedModelError, match="without variables"):
        recognise_postprocessing(cp.Problem(cp.Minimize(cp.norm1(published(NOISY)))))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite(bad):
    x = cp.Variable(3)
    for constraint in (x == np.array([1.0, bad, 2.0]), cp.sum(x) == bad, np.array([1.0, bad, 2.0]) @ x == 1):
        with pytest.raises(SpecificationError, match="NaN or infinite"):
            recognised(neg_log_likelihood(x, NOISY), [constraint])
    with pytest.raises((SpecificationError, UnsupportedModelError)):
        recognised(neg_log_likelihood(x, NOISY) + np.array([1.0, bad, 2.0]) @ x)


def test_infinite_sides_of_inequalities_are_no_constraint():
    x = cp.Variable(3)
    form = recognised(neg_log_likelihood(x, NOISY), [x <= np.array([np.inf, 1.0, np.inf]), cp.sum(x) <= np.inf]).form
    assert form.inequality.shape[0] == 0 and form.upper.tolist() == [np.inf, 1, np.inf]


def test_a_publication_enters_once():
    x = cp.Variable(3)
    term = neg_log_likelihood(x, NOISY)
    for objective in (term + term, term + neg_log_likelihood(x, NOISY), 0.5 * term + cp.norm1(published(NOISY) - x)):
        with pytest.raises(SpecificationError, match="counts enters the objective twice"):
            recognised(objective)
    again = Noisy(V, noise=Laplace(2.0), name="again")
    with pytest.raises(SpecificationError, match="twice"):
        recognised(term + neg_log_likelihood(x, again))


def test_the_same_numbers_with_two_laws():
    x = cp.Variable(3)
    term = neg_log_likelihood(x, NOISY)
    for distribution in (Gaussian(2.0), Laplace(3.0)):
        with pytest.raises(SpecificationError, match="two distributions of noise, laplace noise of scale 2 and"):
            recognised(term + neg_log_likelihood(x, Noisy(V, noise=distribution)))


def test_two_measurements_of_the_same_cells_add_up():
    x = cp.Variable(3)
    second = Noisy(V + 0.25, noise=Gaussian(1.0))
    model = recognised(neg_log_likelihood(x, NOISY) + neg_log_likelihood(x, second))
    assert model.form.matrix.shape == (6, 3) and len(set(map(str, model.rows))) == 2
    # A few integers may well agree by chance.
    few = [Noisy([3.0, 4.0, 4.0], noise=DiscreteLaplace(s)) for s in (1.0, 2.0)]
    assert recognised(sum(neg_log_likelihood(x, noisy) for noisy in few)).form.matrix.shape == (6, 3)
    # Disjoint parts of one publication are one term each.
    p = published(NOISY)
    assert recognised(cp.norm1((x - p)[:2]) + cp.norm1((x - p)[2:])).form.absolute.max() == 1
    # Absolute values and squares of one publication are the elastic form.
    assert recognised(cp.norm1(x - p) + cp.sum_squares(x - p)).form is not None


def test_many_integers_agree_by_chance_where_noise_is_mostly_zero():
    """Noise of scale 0.2 is 0 in 99% of draws: two publications of a dozen cells agree more often than not."""
    x = cp.Variable(12)

    def both(scale):
        pair = [Noisy(np.arange(12.0), noise=DiscreteLaplace(scale)) for _ in range(2)]
        return sum(neg_log_likelihood(x, noisy) for noisy in pair)

    assert recognised(both(0.2)).form.matrix.shape == (24, 12)
    with pytest.raises(SpecificationError, match="twice"):
        recognised(both(20.0))


# ------------------------------------------------------------------ time


def test_indices_that_do_not_fit():
    x = cp.Variable((2, 2), integer=[(0, 1)])
    with pytest.raises(SpecificationError, match="one list of positions per axis"):
        recognised(neg_log_likelihood(x, Noisy(np.eye(2), noise=Laplace(1.0))))
