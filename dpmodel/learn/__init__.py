"""scikit-learn estimators over the private regressions of this package, and over its exact linear algebra.

The regressions (names with ``Private``) write their models in CVXPY and solve them with ``dpmodel.Problem``;
``HalfspaceClassifier`` and ``AffineSubspaceClassifier`` solve exact systems as ``dpmodel.linalg`` does. Plans,
mechanisms, guarantees and budgets are the same. What is private: every row of X with its label. What is public and must
be declared: the bounds of the columns (or the largest norm of a row), of the labels, the two classes, the margin or the
field of an exact system. Nothing is taken from the data by default.
"""

from dpmodel.errors import CompositionWarning
from dpmodel.learn import _extra  # first: names the extra when scikit-learn is missing
from dpmodel.learn.classifier import PrivateLinearSVC, PrivateLogisticRegression
from dpmodel.learn.exact_classifiers import AffineSubspaceClassifier, HalfspaceClassifier
from dpmodel.learn.public_encoder import PublicEncoder
from dpmodel.learn.regressor import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
)
from dpmodel.learn.search import PrivateSearchCV

__all__ = [
    "AffineSubspaceClassifier",
    "CompositionWarning",
    "HalfspaceClassifier",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateRidge",
    "PrivateSearchCV",
    "PublicEncoder",
]

del _extra
