"""Whether scikit-learn is there."""

from dpmodel.errors import MissingExtraError, install

try:
    from sklearn.utils.validation import validate_data as validate_data
except ImportError:
    raise MissingExtraError(
        "dpmodel.learn needs scikit-learn 1.6 or newer",
        why="its estimators are scikit-learn's, and nothing else in this package is",
        remedy=install("learn"),
    ) from None
