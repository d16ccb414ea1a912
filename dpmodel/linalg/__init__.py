"""Exact private linear algebra (KMMST24): spans, equations, inequalities, points in convex hulls.

Each vector, equation, inequality or point is one record. An answer satisfies a record exactly or misses it; nearly
all are satisfied, and ``plan`` says beforehand how many may be missed or how many records are needed.
"""

from dpmodel.linalg.feasible_point import FeasiblePoint, feasible_point
from dpmodel.linalg.inequalities_input import margin_of
from dpmodel.linalg.planning import plan
from dpmodel.linalg.point_in_hull import PointInHull, point_in_hull
from dpmodel.linalg.results import AffineSubspace, Equations, Subspace
from dpmodel.linalg.vectors import affine_span, solve_equations, span
from dpmodel.numerics.fields.field import GF, QQ, Field

__all__ = [
    "GF",
    "QQ",
    "AffineSubspace",
    "Equations",
    "FeasiblePoint",
    "Field",
    "PointInHull",
    "Subspace",
    "affine_span",
    "feasible_point",
    "margin_of",
    "plan",
    "point_in_hull",
    "solve_equations",
    "span",
]
