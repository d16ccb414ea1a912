"""scikit-learn estimators over the private regressions of this package, and over its exact linear algebra.

The regressions (names with ``Private``) write their models in CVXPY and solve them with ``dpmodel.Problem``;
``HalfspaceClassifier`` and ``AffineSubspaceClassifier`` solve exact systems as ``dpmodel.linalg`` does. Plans,
mechanisms, guarantees and budgets are the same. What is private: every row of X with its label. What is public and must
be declared: the bounds of the columns (or the largest norm of a row), of the labels, the two classes, the margin or the
field of an exact system. Nothing is taken from the data by default.
"""

from dpmodel.errors import CompositionWarning, MissingExtraError, install

try:
    from sklearn.utils.validation import validate_data
except ImportError:
    raise MissingExtraError(
        "dpmodel.learn needs scikit-learn 1.6 or newer",
        why="its estimators are scikit-learn's, and nothing else in this package is",
        remedy=install("learn"),
    ) from None

from dpmodel.learn.classifier import PrivateLinearSVC, PrivateLogisticRegression
from dpmodel.learn.exact_classifiers import AffineSubspaceClassifier, HalfspaceClassifier
from dpmodel.learn.linear_model import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
)
from dpmodel.learn.public_encoder import PublicEncoder
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

del validate_data
