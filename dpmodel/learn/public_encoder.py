"""``PublicEncoder``: columns of a frame as numbers, by public declarations alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
from narwhals.exceptions import NarwhalsError
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpmodel._types import Floats
from dpmodel.errors import SpecificationError
from dpmodel.marks.dataset.declared import Declared
from dpmodel.marks.dataset.matrices import Encoder
from dpmodel.marks.dataset.reading import placed
from dpmodel.marks.dataset.table import computed

T = TypeVar("T")


class PublicEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer that learns nothing from the data: what is encoded follows from what is declared.

    ``StandardScaler``, ``OneHotEncoder``, ``SimpleImputer`` and the like learn means, variances and categories from
    private rows, and no guarantee counts that. Here a number is clipped to its bounds and mapped to [-1, 1], a category
    becomes a column of zeros and ones for each category of its list (or, in ``ordinal``, its place in the list mapped
    to [-1, 1]), and each row is encoded by itself: no other row decides how.

    Parameters
    ----------
    domain : {column: categories}, a list, or a number of codes 0, 1, ...
    bounds : {column: (lo, hi)} for columns of numbers; values beyond are clipped.
    columns : those that are encoded, in this order; None: all of ``bounds``, then all of ``domain``. Others are left
        out, whatever they hold.
    ordinal : columns of categories that become one number.
    interactions : tuples of columns, which become the products of their encodings.
    scale : whether numbers are mapped to [-1, 1]; False leaves them in the ranges of ``bounds_``.

    Attributes
    ----------
    bounds_ : (lowest, highest), arrays (p,): public ranges of the encoded columns, which fit ``bounds=`` of the private
        estimators. With ``scale`` they lie in [-1, 1], so that ``bounds=(-1, 1)`` fits too.
    max_l1_, max_l2_ : largest 1-norm and 2-norm of an encoded row: a row has one category of each list. A private
        estimator that follows in a pipeline knows them, and then takes the columns as they are.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Notes
    -----
    In a pipeline ``PublicEncoder(...).set_output(transform="pandas")`` hands on the names of columns; without, the next
    step gets an array, and its release numbers the features. The zeros and ones of a category add up to 1: beside an
    intercept their coefficients are known up to a common shift only, so compare differences, or leave the intercept
    out.

    What is missing, infinite or in no list has a rule of its own: a number (or ``ordinal``) becomes the middle of its
    range, a category zeros in all its columns; so has what cannot be read as declared, cell by cell. Frames are pandas,
    polars or pyarrow; an array has one type for all columns, which one record could decide.

    Raises
    ------
    SpecificationError
        By ``fit`` and ``transform``: no frame, columns without bounds or domain.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpmodel.learn import PublicEncoder
    >>> frame = pd.DataFrame({"age": [20, 60], "town": ["Ulm", "Bonn"]})
    >>> encoder = PublicEncoder(bounds={"age": (0, 80)}, domain={"town": ["Bonn", "Ulm"]})
    >>> encoder.set_output(transform="pandas").fit_transform(frame)
       age  town=Bonn  town=Ulm
    0 -0.5        0.0       1.0
    1  0.5        1.0       0.0
    """

    def __init__(
        self,
        *,
        domain: Any = None,
        bounds: Any = None,
        columns: Any = None,
        ordinal: Any = (),
        interactions: Any = (),
        scale: bool = True,
    ) -> None:
        self.domain = domain
        self.bounds = bounds
        self.columns = columns
        self.ordinal = ordinal
        self.interactions = interactions
        self.scale = scale

    def fit(self, X: Any, y: Any = None) -> PublicEncoder:
        """Hold the declarations against the names of the columns of X; its rows are not read."""
        frame = _frame(X)
        encoder = self._encoder(frame)
        self.feature_names_in_ = np.array(frame.columns, dtype=object)
        self.n_features_in_ = len(frame.columns)
        self.bounds_: tuple[Floats, Floats] = encoder.ranges
        self.max_l1_, self.max_l2_ = encoder.norms
        self._lists = encoder.lists
        self._names = encoder.names
        return self

    def transform(self, X: Any) -> Any:
        """(n, p) numbers, or a frame as ``set_output`` says; an encoder that was not fitted does the same."""
        frame = _frame(X)
        declared, encoder = self._declared(frame), self._encoder(frame)

        def encoded() -> Any:
            renamed = frame.rename(dict(zip(frame.columns, placed(len(frame.columns)), strict=True)))
            return encoder.matrix(declared.reading().of(renamed))

        return _told(lambda: computed(encoded))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """(p,) names: the column's own, "column=category", and "one x other" for interactions."""
        check_is_fitted(self, "bounds_")
        return np.array(self._names, dtype=object)

    def _encoder(self, frame: nw.DataFrame[Any]) -> Encoder:
        columns = self.columns
        if columns is None:
            columns = [*(self.bounds or {}), *(self.domain or {})]
        named = (self.ordinal,) if isinstance(self.ordinal, str) else tuple(self.ordinal)
        terms = [*([columns] if isinstance(columns, str) else columns), *map(tuple, self.interactions)]
        declared = self._declared(frame)
        return _told(lambda: Encoder.of(declared, terms, named, scale=bool(self.scale)))

    def _declared(self, frame: nw.DataFrame[Any]) -> Declared:
        return _told(lambda: Declared.of(frame.columns, self.bounds, self.domain))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False  # frames
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


def refuse_repeated(X: Any, where: str) -> None:
    """Refuse a frame that has two columns of one name."""
    names = list(X.columns) if hasattr(X, "iloc") and hasattr(X, "columns") else []  # others have no such frames
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise SpecificationError(
            f"{where}: column {twice!r} is there twice",
            why="columns are called by name: of bounds, of categories, and in what is released",
            remedy="frame.columns = [...], a name for each",
        )


def _frame(X: Any) -> nw.DataFrame[Any]:
    refuse_repeated(X, "PublicEncoder")
    failed = False
    frame: Any = None
    try:
        frame = nw.from_native(X, eager_only=True)
    except (TypeError, ValueError, NarwhalsError):
        failed = True
    if failed or not all(isinstance(name, str) for name in frame.columns):
        raise SpecificationError(
            "PublicEncoder: X is not a frame with named columns",
            why="declarations are of columns by name, and each column keeps its own type",
            remedy="a pandas or polars DataFrame or a pyarrow Table, whose column names are text and do not repeat",
        )
    return nw.maybe_reset_index(frame)


def _told(work: Callable[[], T]) -> T:
    """``work()``, whose errors speak of this class and not of ``Dataset``."""
    said: tuple[str, str, str] | None = None
    try:
        return work()
    except SpecificationError as error:
        said = error.what, error.why, error.remedy
    what, why, remedy = (re.sub(r"Dataset(\.rows)?\b", "PublicEncoder", text) for text in said)
    raise SpecificationError(what, why=why, remedy=remedy)
