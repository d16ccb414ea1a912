"""scikit-learn estimators over the private regressions of this package.

Every estimator writes its model in CVXPY and solves it with ``dpmodel.Problem``, so plans, mechanisms, guarantees and
budgets are the same. What is private: every row of X with its label. What is public and must be declared: the bounds
of the columns (or the largest norm of a row), of the labels, or the two classes. Nothing is taken from the data by
default.
"""

from dpmodel.learn import _extra  # first: names the extra when scikit-learn is missing
from dpmodel.learn.huber_regressor import PrivateHuberRegressor
from dpmodel.learn.lasso import PrivateLasso
from dpmodel.learn.linear_regression import PrivateLinearRegression
from dpmodel.learn.linear_svc import PrivateLinearSVC
from dpmodel.learn.logistic_regression import PrivateLogisticRegression
from dpmodel.learn.quantile_regressor import PrivateQuantileRegressor
from dpmodel.learn.ridge import PrivateRidge

__all__ = [
    "PrivateHuberRegressor",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateQuantileRegressor",
    "PrivateRidge",
]

del _extra
