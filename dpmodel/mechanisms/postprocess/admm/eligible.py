"""What a form must be for the ADMM mechanisms, and how long they take on it."""

from __future__ import annotations

import numpy as np

from dpmodel.compile.likelihood.postprocessing import LikelihoodForm, Postprocessing
from dpmodel.contract import YES, Verdict
from dpmodel.mechanisms.postprocess.admm.linear import DENSE, gram_is_dense

# Seconds on one core of a 2020s server: of a step whatever its size, per split, per nonzero of a product with its
# transpose, per entry of a dense symmetric product; per nonzero of a sparse factor's solve.
STEP, SPLIT, NONZERO, ENTRY, FILL = 1.5e-4, 4e-8, 2e-9, 6e-10, 3e-8


def relaxed_linear(model: Postprocessing) -> Verdict:
    """Whether there is a form without whole variables."""
    if model.form is None:
        return Verdict(False, "the model has terms or constraints outside measurements and linear constraints")
    if model.form.integer.any():
        return Verdict(False, "variables must be whole: round a solution of the relaxed model, or use general-solver")
    return YES


def table_shape(model: Postprocessing) -> tuple[int, ...] | None:
    """Axes of x in C order: of the table, or of the only variable (flattened column by column, so axes reversed)."""
    if model.shape is not None:
        return model.shape
    if model.form is not None and len(model.columns) == 1:
        shape = tuple(int(d) for d in reversed(model.columns[0][0].shape))
        if len(shape) > 1 and int(np.prod(shape)) == model.form.size:
            return shape
    return None


def entrywise(form: LikelihoodForm) -> bool:
    """Whether every measurement is of one variable."""
    return bool((np.diff(form.matrix.indptr) <= 1).all())


def only_sums(form: LikelihoodForm) -> bool:
    """Whether every equality is a constant times a sum of variables, and there are no inequalities."""
    E = form.equality
    counts = np.diff(E.indptr)
    if not counts.size or (counts == 0).any() or form.inequality.shape[0]:
        return False
    return bool(np.array_equal(E.data, np.repeat(E.data[E.indptr[:-1]], counts)))


def seconds_of(form: LikelihoodForm) -> tuple[float, float]:
    """(a factorisation, a step) of the general recipe."""
    n, k, p, q = form.size, form.matrix.shape[0], form.equality.shape[0], form.inequality.shape[0]
    entries = form.matrix.nnz + form.equality.nnz + form.inequality.nnz
    step = STEP + SPLIT * (n + k + q) + NONZERO * (form.matrix.nnz + form.inequality.nnz)
    diagonal = entrywise(form) and not q
    if diagonal and gram_is_dense(form.equality):
        per_column = np.bincount(form.equality.indices, minlength=n).astype(np.float64)
        factor = 1.5e-9 * min(float(per_column @ per_column), 0.1 * p * p * n) + 8e-10 * p**3
        return 1e-3 + factor, step + NONZERO * form.equality.nnz + ENTRY * p * p
    if not diagonal and n <= DENSE and form.matrix.nnz > 20 * n:
        return 1e-3 + 4e-11 * (k + n) * n * n, step + ENTRY * n * n
    return 1e-3 + 1e-6 * (entries + n), step + FILL * (entries + n)
