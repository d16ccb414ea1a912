"""X and y as given (arrays, frames, sparse matrices) as checked arrays, and the declared bounds of the features.

Errors show no entry.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, validate_data

from dpmodel._types import Floats, Mask
from dpmodel.errors import SpecificationError
from dpmodel.learn.costs import called
from dpmodel.learn.public_encoder import refuse_repeated
from dpmodel.marks import Private, Records
from dpmodel.marks.bounds import read_bounds
from dpmodel.marks.domain import array_of, elements, frame_columns, is_frame, key
from dpmodel.marks.layout import Lists
from dpmodel.marks.values import Handed

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


ONE_ROW_EACH = "a record is a person: of each one's rows the first was used"


def checked(estimator: Any, X: Any, y: Any = None, *, fitting: bool, numeric_y: bool = False) -> Any:
    """``X`` as (n, p) floats, dense or CSR, and when ``fitting`` also ``y`` (n,).

    Raises
    ------
    SpecificationError
        For NaN and infinite entries, wrong shapes, other columns than in ``fit``, and what is no number.
    """
    failure: Exception
    refuse_repeated(X, called(estimator))
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


def one_row_each(where: str, groups: Any, *data: Any) -> tuple[Any, ...]:
    """``data`` (X, y, weights or None) with one row for each person, the first that stands there, in the
    order of their ids.

    Privacy. What is left has a row for each id, and a row of it holds numbers of one person only: who replaces all rows
    of one person, whatever their number and places, replaces one row. Which ids there are is public, as the number of
    rows is elsewhere; how many rows a person has is not.

    Parameters
    ----------
    groups : (n,) ids, all integers or all texts, of whoever the rows belong to; None: every row is a record of its own.

    Raises
    ------
    SpecificationError
        For ids of other types, which may have been rounded or may be missing, and lengths that differ.
    """
    if groups is None:
        return data
    ids: Any = groups if isinstance(groups, np.ndarray) and groups.ndim == 1 and groups.dtype.kind in "iu" else None
    if ids is None:
        listed = [key(each) for each in elements(array_of(groups) if is_frame(groups) else groups)]
        if {type(each) for each in listed} not in ({int}, {str}):
            raise SpecificationError(
                f"{where}: groups are not ids, all integers or all texts",
                why="equal ids are one person, and floats may have been rounded (one missing id makes floats of all)",
                remedy="groups=frame['person'].astype(str), where none is missing",
            )
        ids = np.array(listed, dtype=object)
    if any(_num_samples(each) != ids.size for each in data if each is not None):
        raise SpecificationError(f"{where}: groups has not one id for each row", remedy="groups= of the rows of X")
    first = np.unique(ids, return_index=True)[1]
    return tuple(None if each is None else _safe_indexing(each, first) for each in data)


@dataclass(frozen=True)
class Weights:
    """``each`` : (n,) in [0, ``largest``], of the records, private unless ``public``."""

    each: Floats
    largest: float
    public: bool = False


def weights_of(given: Any, largest: Any, count: int, where: str) -> Weights | None:
    """``sample_weight`` as declared by ``largest``, which is ``max_weight`` of an estimator: a number or "public".

    Raises
    ------
    SpecificationError
        For weights without a declaration, and what are no ``count`` numbers (negative or missing ones, too).
    """
    if given is None:
        return None
    public = isinstance(largest, str) and largest == "public"
    if not public and (not isinstance(largest, numbers.Real) or not 0 < float(largest) < math.inf):
        raise SpecificationError(
            f"{where}: sample_weight without max_weight, a positive number",
            why="a weight is part of its record, and how far that moves the fit must be known without looking at it",
            remedy="max_weight=, the largest weight (larger ones are clipped), or max_weight='public' if weights say "
            "nothing about the records",
        )
    each = None
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        each = np.asarray(given, dtype=np.float64)
    if each is None or each.shape != (count,) or not np.isfinite(each).all() or (each < 0).any():
        raise SpecificationError(
            f"{where}: sample_weight is no vector of {count} finite numbers of at least 0"
            + " (Sample weights must be 1D)" * (each is not None and each.ndim != 1),
            why="each record has one weight, and a negative one would make its error a gain",
            remedy="sample_weight of shape (n,)",
        )
    if not public:  # whether all of them are zero is private, too
        return Weights(np.clip(each, 0, largest), float(largest))
    if not each.any():
        raise SpecificationError(f"{where}: every weight is zero", remedy="a positive sample_weight")
    return Weights(each, float(each.max()), True)


def _holds_times(data: Any) -> bool:
    """Whether NumPy would read it as dates or durations: their numbers depend on the unit that all have in common."""
    if data is None or sp.issparse(data):
        return False
    columns = frame_columns(data) if is_frame(data) else [data]
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return any(np.asarray(column).dtype.kind in "mM" for column in columns)
    return False


def _retold(estimator: Any, text: str) -> Exception:
    name = called(estimator)
    if "Reshape your data" in text:
        return SpecificationError(
            f"{name}: X is not two-dimensional (Expected 2D array)",
            why="its rows are the records and its columns the features",
            remedy="Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record",
        )
    if "Complex data not supported" in text:
        return SpecificationError(f"{name}: Complex data not supported", remedy="real and imaginary parts as columns")
    if any(re.match(pattern, text) for pattern in _HARMLESS):
        why, what = "checked before any budget is spent", text.rstrip()
        if "contains" in what:  # what scikit-learn advises besides reads the data
            encoder = "learn.PublicEncoder(bounds=...) before it, which takes the middle of the range instead, or "
            remedy = encoder * ("Input y" not in what) + "leave those rows out before the fit"
            said = what.splitlines()[0].rstrip(".")
            return SpecificationError(f"{name}: {said}", why=f"rows are read as numbers; {why}", remedy=remedy)
        remedy = "one label for each row of X" if "inconsistent numbers" in what else ""
        return SpecificationError(what, why=why, remedy=remedy)
    return _unusable(estimator)


def _unusable(estimator: Any) -> SpecificationError:
    return SpecificationError(
        f"{called(estimator)}: X or y is not an array of numbers",
        why="noise is added to real numbers (the entries that do not fit are not shown)",
        remedy="encode categories with learn.PublicEncoder(domain=...); one row per record, one label per row",
    )


# ---- The declared bounds of the features, and the public map that turns columns into comparable units


_BLOCK = 1 << 17  # entries that are mapped at once, within a processor's cache


@dataclass(frozen=True)
class Features:
    """Rows ``a`` of p features become ``(a - middle) / half``, by public numbers, before anything else sees them.

    ``lower``, ``upper`` : (p,) range of the mapped columns. ``middle``, ``half`` : (p,). ``max_l2`` : largest norm of
    a row (inf without one; the map is the identity with one). ``max_l1``, ``lists`` : of rows whose encoder
    told their norms; their columns have size 1 each. ``unit`` : what a coefficient of the mapped features is
    multiplied by so that it belongs to features of size 1.
    """

    lower: Floats
    upper: Floats
    middle: Floats
    half: Floats
    max_l2: float
    max_l1: float = math.inf
    lists: Lists = ()

    @property
    def unit(self) -> float:
        return self.max_l2 if math.isfinite(self.max_l2) and math.isinf(self.max_l1) else 1.0

    def private(self, X: Any, records: Records) -> Private:
        """The mapped rows of ``X`` (n, p), dense or CSR, as a private parameter; values beyond the bounds are clipped,
        rows beyond ``max_l2`` scaled."""
        given: dict[str, Any] = {"name": "X", "unit": "row", "records": records}
        if np.isfinite(self.lower).any() or np.isfinite(self.upper).any():
            given["bounds"] = [self.lower, self.upper]
        if math.isfinite(self.max_l2):
            given["max_l2"] = self.max_l2
            given["max_l1"] = None if math.isinf(self.max_l1) else self.max_l1
            given["lists"] = self.lists
        else:
            X = self._mapped(X)
            X = X if sp.issparse(X) else X.view(Handed)
        return Private(X, positions="private" if sp.issparse(X) else "public", **given)

    def beyond(self, X: Any) -> Mask:
        """(n,) the rows of ``X`` that are clipped: an entry beyond its bounds, or longer than ``max_l2``."""
        low, high = self.middle + self.half * self.lower, self.middle + self.half * self.upper
        if sp.issparse(X):
            out = np.zeros(X.shape[0], dtype=bool)
            wide = (X.data < low[X.indices]) | (X.data > high[X.indices])
            out[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[wide]] = True
            squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
        else:
            out = np.any((low > X) | (high < X), axis=1)
            squares = np.einsum("ij,ij->i", X, X)
        return out | (squares > self.max_l2**2 * (1 + 1e-9))  # both are rounded

    def back(self, w: Floats) -> tuple[Floats, Floats]:
        """(p,) or (p, K) coefficients of the features as given, and what they add to the intercept, () or (K,)."""
        coefficients = (w.T / self.half).T
        return coefficients, -(self.middle @ coefficients)

    def _mapped(self, X: Any) -> Any:
        low, high = self.middle + self.half * self.lower, self.middle + self.half * self.upper
        if sp.issparse(X):
            columns = X.indices
            data = np.clip(X.data, low[columns], high[columns]) / self.half[columns]
            return sp.csr_array((data, columns, X.indptr), shape=X.shape)
        out = np.empty(X.shape, dtype=np.float64, order="F")
        moved = self.middle.any() or (self.half != 1).any()
        step = max(1, _BLOCK // X.shape[1])
        for start in range(0, X.shape[0], step):
            block = out[start : start + step]
            block[...] = X[start : start + step]
            # Clipped first: numbers far beyond the bounds could overflow.
            np.clip(block, low, high, out=block)
            if moved:
                block -= self.middle
                block /= self.half
        return out


def features_of(bounds: Any, max_l2: Any, names: Any, count: int, *, centre: bool, where: str) -> Features:
    """Check what was declared for ``count`` columns.

    Parameters
    ----------
    bounds : (lo, hi), numbers or arrays (p,), a mapping from column names or indices to such pairs, or None.
        ``max_l2`` : largest 2-norm of a row, or None. ``names`` : (p,) column names or None.
    centre : whether an intercept can take up a shift: then columns are mapped to [-1, 1], otherwise divided by their
        largest size.

    Raises
    ------
    SpecificationError
        When neither is given; for pairs that are not finite or not increasing; for columns without bounds.
    """
    if bounds is None and max_l2 is None:
        raise SpecificationError(
            f"{where} has neither bounds nor max_l2",
            why="how far one record moves the fit must be known without looking at the data",
            remedy="bounds=(lo, hi), numbers or one array of columns each, {column: (lo, hi)}, or max_l2= per row; "
            "right after learn.PublicEncoder(bounds=...) in a pipeline, none of them",
        )
    norm = _norm(max_l2, where)
    if bounds is None:
        free = np.full(count, np.inf)
        return Features(-free, free, np.zeros(count), np.ones(count), norm)
    lower, upper = _ends(bounds, names, count, where)
    if math.isfinite(norm):
        return Features(lower, upper, np.zeros(count), np.ones(count), norm)
    if centre:
        middle, half = lower / 2 + upper / 2, upper / 2 - lower / 2
        return Features(-np.ones(count), np.ones(count), middle, half, norm)
    half = np.maximum(np.abs(lower), np.abs(upper))
    return Features(lower / half, upper / half, np.zeros(count), half, norm)


def pair_of(value: Any, name: str, where: str) -> tuple[float, float]:
    """(lo, hi), finite and increasing."""
    found = _numbers(value, name, where)
    if found.shape != (2,):
        raise SpecificationError(f"{where}: {name} is not a pair", remedy=f"{name}=(lo, hi)")
    _refuse_crossed(found[:, None], name, where)
    return float(found[0]), float(found[1])


def _norm(max_l2: Any, where: str) -> float:
    if max_l2 is None:
        return math.inf
    number = isinstance(max_l2, numbers.Real) and not isinstance(max_l2, bool)
    if not number or not 0 < float(max_l2) < math.inf:
        raise SpecificationError(
            f"{where}: max_l2 is not a positive number", why="it is the largest 2-norm of a row", remedy="max_l2=1.0"
        )
    return float(max_l2)


def _ends(bounds: Any, names: Any, count: int, where: str) -> Floats:
    """(2, count) lows and highs."""
    ends = [_numbers(end, "bounds", where) for end in read_bounds(bounds, count, names, where)]
    if any(end.shape not in ((), (count,)) for end in ends):
        raise SpecificationError(
            f"{where}: bounds of shapes {ends[0].shape} and {ends[1].shape} for {count} columns",
            why="every column needs its lowest and its highest value",
            remedy=f"bounds=(lo, hi), numbers or arrays of shape ({count},), or {{column: (lo, hi)}}",
        )
    both = np.array([np.broadcast_to(end, (count,)) for end in ends])
    _refuse_crossed(both, "bounds", where)
    return both


def _numbers(value: Any, name: str, where: str) -> Floats:
    with contextlib.suppress(TypeError, ValueError):
        array = np.asarray(value)
        if array.dtype.kind in "iuf":
            return array.astype(np.float64)
    raise SpecificationError(f"{where}: {name} does not hold numbers", remedy=f"{name}=(lo, hi)")


def _refuse_crossed(ends: Floats, name: str, where: str) -> None:
    wrong = np.flatnonzero(~(np.isfinite(ends).all(axis=0) & (ends[0] < ends[1])))
    if wrong.size:
        which = f" in column {wrong[0]}" if ends.shape[1] > 1 else ""
        raise SpecificationError(
            f"{where}: {name}{which} are not finite with lo < hi",
            why="a column of one public value says nothing about a record, and one without bounds cannot be hidden",
            remedy="leave constant columns out (an intercept is fitted), and bound all others",
        )
