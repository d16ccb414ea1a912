"""What ``guarantee_`` of one fit does not say: fits of copies, and steps of a pipeline that learn beside it."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, PolynomialFeatures
from sklearn.utils import get_tags

from dpmodel.errors import CompositionWarning, SpecificationError, users_line
from dpmodel.learn.public_encoder import PublicEncoder
from dpmodel.marks.layout import Lists
from dpmodel.privacy import Budget, PrivacyLoss, validate_privacy
from dpmodel.text import number

# They ask to be fitted, and learn the number of columns or nothing.
_LEARN_NOTHING = (FrozenEstimator, PolynomialFeatures)


def _is_declared(step: Any) -> bool:
    """Whether it is one of scikit-learn's encoders whose categories are listed, or an imputer of a number that is, so
    that the rows decide nothing. (An encoder that refuses unknown categories shows them.)"""
    if isinstance(step, OneHotEncoder | OrdinalEncoder):
        counts = step.min_frequency is None and step.max_categories is None
        return not isinstance(step.categories, str) and counts
    if isinstance(step, SimpleImputer):
        return step.strategy == "constant" and step.keep_empty_features and not step.add_indicator
    return False


class Lineage:
    """What an estimator and all its copies have spent without a ``Budget``: one object that copies share.

    ``spent`` : (epsilon, delta) of each fit. ``copied`` : whether there are copies; not how many, which would tell how
    many fits random stopping made. ``elsewhere`` : whether this is a copy in another process, which knows nothing of
    the others.
    """

    def __init__(self) -> None:
        self.spent: list[tuple[float, float]] = []
        self.copied = False
        self.elsewhere = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Lineage:
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.elsewhere = True

    def words(self, epsilon: float, delta: float) -> str:
        """What is said before a fit at (epsilon, delta); "" where it is the first one."""
        together = [*self.spent, (epsilon, delta)]
        said = [f"epsilon = {number(math.fsum(e for e, _ in together))}"]
        if total := math.fsum(d for _, d in together):
            said.append(f"delta = {number(total)}")
        if len(together) > 1:
            return (
                f"this is fit {len(together)} of this estimator and its copies; by basic composition they cost "
                f"{', '.join(said)} together, where they read the same records, and guarantee_ speaks of one fit: "
                "try PrivateSearchCV for a search, or a Budget, which all copies charge"
            )
        if self.elsewhere and self.copied:
            return "this is a copy in another process: fits there add up too, and are not counted here"
        return ""


class Counted(BaseEstimator):  # type: ignore[misc]
    """An estimator whose fits are counted over all copies that scikit-learn makes of it."""

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        self._shared_lineage.copied = True
        copy._lineage = self._shared_lineage
        return copy

    def __copy__(self) -> Any:
        return self._copied(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        new = memo[id(self)] = self._copied({})
        new.__dict__.update(deepcopy(self.__dict__, memo))
        return new

    def _copied(self, state: dict[str, Any]) -> Any:
        """Before the first fit, too, copies have one lineage."""
        self._shared_lineage.copied = True
        new: Any = type(self).__new__(type(self))
        new.__dict__.update(state)
        return new

    @property
    def _shared_lineage(self) -> Lineage:
        if "_lineage" not in vars(self):
            self._lineage = Lineage()
        return self._lineage

    def _counted(self) -> contextlib.AbstractContextManager[Budget]:
        """The budget that a fit within charges, after a warning of what the fit adds to earlier ones and of what is
        learnt beside it. What it charges is counted, also where it fails afterwards; a ``budget`` keeps its own
        account."""
        self._warn_of_costs()
        return contextlib.nullcontext(self.budget) if self.budget is not None else self._counting()

    @contextlib.contextmanager
    def _counting(self) -> Iterator[Budget]:
        loss = self._loss
        own = Budget(loss.epsilon, loss.delta)
        try:
            yield own
        finally:
            if any(own.spent):
                self._shared_lineage.spent.append(own.spent)

    @property
    def _loss(self) -> PrivacyLoss:
        """What one fit may spend; refused where that was not said."""
        if self.epsilon is None:
            raise SpecificationError(
                f"{called(self)} has no epsilon",
                why="a fit spends it for good, so that no default could be right",
                remedy="epsilon=1.0, or what your records may lose by this fit",
            )
        return validate_privacy(self.epsilon, self.delta)

    def _warn_of_costs(self) -> None:
        loss = self._loss
        said = [] if self.budget is not None else [self._shared_lineage.words(loss.epsilon, loss.delta)]
        beside = _learnt_beside()
        if beside:
            said.append(
                f"what {', '.join(beside)} learnt from the records before or beside {type(self).__name__} (means, "
                "variances, categories, directions) is neither private nor in guarantee_: try PublicEncoder"
            )
        if any(said):
            warnings.warn("; ".join(filter(None, said)), CompositionWarning, stacklevel=users_line())


def learners(step: Any) -> list[str]:
    """The names of a transformer, or of those in it, to fit which reads more of the records than names and types."""
    if step is None or isinstance(step, (str, *_LEARN_NOTHING)) or _is_declared(step):
        return []
    for name in ("steps", "transformer_list", "transformers"):
        if hasattr(step, name):
            parts = [part[1] for part in getattr(step, name)]
            return [found for part in [*parts, getattr(step, "remainder", None)] for found in learners(part)]
    with contextlib.suppress(AttributeError):  # somebody else's, without tags
        if not get_tags(step).requires_fit:
            return []
    return [type(step).__name__]


def names_before(count: int) -> tuple[str, ...]:
    """What the steps before an estimator call its ``count`` columns, in the pipeline whose ``fit`` is under way.

    () where a step learnt from the records: a category that it found may be in a name.
    """
    pipeline = next((each for each in _under_way() if isinstance(each, Pipeline)), None)
    if pipeline is None or len(pipeline.steps) < 2 or any(learners(step) for _, step in pipeline.steps[:-1]):
        return ()
    try:
        names = tuple(map(str, pipeline[:-1].get_feature_names_out()))
    except Exception:  # somebody else's step, without names
        return ()
    return names if len(names) == count else ()


def norms_before() -> tuple[float, float, Lists] | None:
    """Largest 1-norm and 2-norm of the rows that public encoders right before an estimator hand on, and their lists
    (``marks.layout.Lists``), in the pipeline whose ``fit`` is under way; None where another step stands there."""
    step = _step_before()
    return None if step is None else _norms_of(step)


def bounds_before() -> Any:
    """The public ranges of the columns that a ``PublicEncoder`` right before an estimator hands on; None otherwise."""
    step = _step_before()
    return getattr(step, "bounds_", None) if isinstance(step, PublicEncoder) else None


def _step_before() -> Any:
    """The step before the last one, in the pipeline whose ``fit`` is under way; None without."""
    pipeline = next((each for each in _under_way() if isinstance(each, Pipeline)), None)
    return None if pipeline is None or len(pipeline.steps) < 2 else pipeline.steps[-2][1]


def called(estimator: Any) -> str:
    """The name of an estimator in messages: of its class, and of its step where a pipeline is fitting it."""
    for owner in _under_way():
        names = [name for name, _ in owner.steps] if isinstance(owner, Pipeline) else []
        if names and owner.steps[-1][1] is estimator:
            after = f", after {names[-2]!r}" if len(names) > 1 else ""
            return f"{type(estimator).__name__} (step {names[-1]!r} of the pipeline{after})"
    return type(estimator).__name__


def _norms_of(step: Any) -> tuple[float, float, Lists] | None:
    if isinstance(step, PublicEncoder):
        return (step.max_l1_, step.max_l2_, step._lists) if hasattr(step, "max_l1_") else None
    if not isinstance(step, ColumnTransformer) or step.transformer_weights or not hasattr(step, "transformers_"):
        return None
    used = [(name, part) for name, part, _ in step.transformers_ if not (isinstance(part, str) and part == "drop")]
    known = [(name, norms) for name, part in used if (norms := _norms_of(part)) is not None]
    if not known or len(known) < len(used):
        return None
    starts = {name: step.output_indices_[name].start for name, _ in used}
    lists = [(starts[name] + a, starts[name] + b, size) for name, (*_, own) in known for a, b, size in own]
    return sum(one for _, (one, *_) in known), math.hypot(*(two for _, (_, two, _) in known)), tuple(lists)


def _learnt_beside() -> list[str]:
    """Names of the steps that learn, in the pipelines whose ``fit`` is under way."""
    found: list[Any] = []
    for owner in _under_way():
        found += [owner.transformer] if hasattr(owner, "transformer") else [step for _, step in owner.steps[:-1]]
    return list(dict.fromkeys(name for step in found for name in learners(step)))


def _under_way() -> Iterator[Any]:
    """The pipelines whose ``fit`` is under way, innermost first.

    An estimator is not told that it stands in a pipeline; who is fitting it stands on the stack.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Pipeline | TransformedTargetRegressor):
            yield owner
        frame = frame.f_back
