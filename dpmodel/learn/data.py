"""X and y as given by the user (arrays, frames, sparse matrices) -> checked arrays, with errors that show no entry."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel.errors import SpecificationError
from dpmodel.learn._extra import validate_data
from dpmodel.marks.domain import frame_columns, is_frame

# scikit-learn's messages that speak of shapes, types and names only. Others may print entries.
_HARMLESS = (
    r"Input [Xy]?\s?contains (NaN|infinity)",
    r"Found array with \d+ (sample|feature)",
    r"Found array with dim",
    r"X has \d+ features, but \w+ is expecting",
    r"The feature names should match those that were passed during fit",
    r"Feature names (unseen|seen|must be)",
    r"Feature names are only supported",
    r"y should be a 1d array",
    r"Found input variables with inconsistent numbers of samples",
    r"[\w ]*requires y to be passed",
    r"This \w+ estimator requires y to be passed",
    r"Sparse data was passed",
    r"Unknown label type",
    r"bad input shape",
)


def checked(estimator: Any, X: Any, y: Any = None, *, fitting: bool, numeric_y: bool = False) -> Any:
    """``X`` as (n, p) floats, dense or CSR, and when ``fitting`` also ``y`` (n,).

    Raises
    ------
    SpecificationError
        For NaN and infinite entries, wrong shapes, other columns than in ``fit``, and what is no number.
    """
    failure: Exception
    if _holds_times(X) or (numeric_y and _holds_times(y)):
        raise _unusable(estimator)
    try:
        if not fitting:
            return validate_data(estimator, X, reset=False, accept_sparse="csr", dtype="float64")
        X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype="float64", y_numeric=numeric_y)
        if not numeric_y or y.dtype.kind in "biuf":
            return X, y
        failure = _unusable(estimator)
    except TypeError as error:  # messages of numpy and scikit-learn that name types
        known = re.search(r"argument must be .*string.* number|[Ss]parse|DataFrame|Cannot", str(error))
        failure = TypeError(str(error).splitlines()[0]) if known else _unusable(estimator)
    except ValueError as error:
        failure = _retold(estimator, str(error))
    except OverflowError:
        failure = _unusable(estimator)
    # Raised here and not above: the chained error would hold rows.
    raise failure


def _holds_times(data: Any) -> bool:
    """Whether NumPy would read it as dates or durations: their numbers depend on the unit that all have in common."""
    if data is None or sp.issparse(data):
        return False
    columns = frame_columns(data) if is_frame(data) else [data]
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return any(np.asarray(column).dtype.kind in "mM" for column in columns)
    return False


def _retold(estimator: Any, text: str) -> Exception:
    name = type(estimator).__name__
    if "Reshape your data" in text:
        return SpecificationError(
            f"{name}: X is not two-dimensional (Expected 2D array)",
            why="its rows are the records and its columns the features",
            remedy="Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record",
        )
    if "Complex data not supported" in text:
        return SpecificationError(f"{name}: Complex data not supported", remedy="real and imaginary parts as columns")
    if any(re.match(pattern, text) for pattern in _HARMLESS):
        return SpecificationError(text.rstrip(), why="checked before any budget is spent")
    return _unusable(estimator)


def _unusable(estimator: Any) -> SpecificationError:
    return SpecificationError(
        f"{type(estimator).__name__}: X or y is not an array of numbers",
        why="noise is added to real numbers (the entries that do not fit are not shown)",
        remedy="encode categories with learn.PublicEncoder(domain=...); one row per record, one label per row",
    )
