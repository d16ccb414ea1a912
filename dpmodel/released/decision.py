"""The decision table of post-processing: which solver a problem gets.

All solvers reach the same optimum (to 1e-4 of the objective), so the first that serves is taken, and nothing is timed:

================================  ===================================================================
cells alone                       projection: each by itself
tree, squares (Gaussian noise)    least-squares-tree: two passes; active sets where bounds bind
sums, chains, table margins       projection: closed forms and isotonic regression
tree, absolute errors (Laplace)   exact-tree
anything else, small              general-solver (HiGHS, Clarabel; what is not linear as CVXPY solves it)
anything else, large              admm-tables under table margins, else admm
================================  ===================================================================
"""

from __future__ import annotations

from dpmodel.forecast import Forecast, Place
from dpmodel.released.form import LikelihoodForm
from dpmodel.released.model import Postprocessing

FEW = 10_000  # coefficients up to which a general solver takes a fraction of a second


def order(model: Postprocessing) -> tuple[str, ...]:
    """Names of the solvers, the one that is taken first. Whether each serves is for it to say."""
    form = model.form
    if form is None:
        return ("general-solver",)
    alone = form.equality.shape[0] + form.inequality.shape[0] == 0
    closed = ("projection", "least-squares-tree") if alone else ("least-squares-tree",)
    large = coefficients(form) > FEW
    solvers = ("admm-tables", "admm", "general-solver") if large else ("general-solver", "admm-tables", "admm")
    return tuple(dict.fromkeys((*closed, "projection", "exact-tree", *solvers)))


def coefficients(form: LikelihoodForm) -> int:
    """How many the form has."""
    return int(form.matrix.nnz + form.equality.nnz + form.inequality.nnz)


def free_of_charge(
    name: str, model: Postprocessing, statement: str, *, alpha: float, work: str, caveats: tuple[str, ...] = ()
) -> Forecast:
    """The forecast of the solver ``name``, which spends nothing. ``alpha`` : relative error of the objective at which
    it stops, 0 where it is exact."""
    names = order(model)
    place = names.index(name) if name in names else len(names)
    return Forecast(
        statement=statement,
        epsilon=0.0,
        delta=0.0,
        beta=0.0,
        error=Place(place + 1, alpha),
        proved=alpha == 0,
        work=work,
        caveats=caveats,
    )
