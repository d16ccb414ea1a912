"""scikit-learn estimators over the private regressions of this package, and over its exact linear algebra.

The regressions (names with ``Private``) write their models in CVXPY and solve them with ``dpmodel.Problem``;
``HalfspaceClassifier`` and ``AffineSubspaceClassifier`` solve exact systems as ``dpmodel.linalg`` does. Plans,
mechanisms, guarantees and budgets are the same. What is private: every row of X with its label. What is public and must
be declared: the bounds of the columns (or the largest norm of a row), of the labels, the two classes, the margin or the
field of an exact system. Nothing is taken from the data by default.
"""

from dpmodel.learn import _extra  # first: names the extra when scikit-learn is missing
from dpmodel.learn.affine_subspace_classifier import AffineSubspaceClassifier
from dpmodel.learn.halfspace_classifier import HalfspaceClassifier
from dpmodel.learn.huber_regressor import PrivateHuberRegressor
from dpmodel.learn.lasso import PrivateLasso
from dpmodel.learn.linear_regression import PrivateLinearRegression
from dpmodel.learn.linear_svc import PrivateLinearSVC
from dpmodel.learn.logistic_regression import PrivateLogisticRegression
from dpmodel.learn.quantile_regressor import PrivateQuantileRegressor
from dpmodel.learn.ridge import PrivateRidge

__all__ = [
    "AffineSubspaceClassifier",
    "HalfspaceClassifier",
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateRidge",
]

del _extra
