"""From a recognised regression to the model that mechanisms see: bounds on rows and labels, and the cell."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_map import ThetaBlock
from dpmodel.errors import SpecificationError
from dpmodel.marks.records import DEFAULT_RECORDS, record_words, refuse_unnamed
from dpmodel.memo import key_of
from dpmodel.programs.classifier import Cell, Classification
from dpmodel.regressions.features import Features, Label, RowBounds
from dpmodel.regressions.model import PrivateOutputs, PrivateRegression
from dpmodel.regressions.outputs import PublicColumns
from dpmodel.regressions.read import Outputs, Recognised
from dpmodel.regressions.read_sets import ConvexSet, domain_of
from dpmodel.regressions.rows import reader, reader_of_all
from dpmodel.regressions.sets import Domain

_NORMS = (1.0, 2.0, math.inf)
_KEYS = ("l1", "l2", "linf")
# Norms are sums of squares, which vanish or overflow outside this range.
_LEAST, _MOST = 1e-100, 1e100


def regression_of(recognised: Recognised | Outputs, clip: float, problem: Any) -> PrivateRegression | PrivateOutputs:
    """The model of what was recognised in ``problem``. Errors as ``private_regression``."""
    parts = recognised.parts
    several: Any = recognised
    model = private_regression(parts[0], clip) if len(parts) == 1 else private_outputs(several, clip)
    return replace(model, problem=problem)


def private_regression(recognised: Recognised, clip: float = math.inf) -> PrivateRegression:
    """The model of ``recognised``, with derivatives of the loss cut to [-clip, clip].

    Needs no private values. Public parameters of the constraints are read now.
    Errors: SpecificationError, for rows or labels without a bound, labels outside the range of their loss, parameters
    of different Records, and parameters of which a record owns no single row or entry; InfeasibleError,
    MissingValueError, for public constraints without a common point, and public parameters without a value.
    """
    _refuse_unpaired(recognised)
    row = row_bounds(recognised)
    domain = domain_of(recognised.public)
    weights, offset, several = recognised.weights, recognised.offset, recognised.loss.scores > 1
    if several and math.isfinite(clip):
        raise SpecificationError(
            "clip= in a multinomial regression",
            why="derivatives of its loss are at most sqrt(2) long as they are",
            remedy="no clip",
        )
    public = None if isinstance(weights, Label) else weights
    largest = 1.0 if public is None else float(public.max())
    return PrivateRegression(
        loss=replace(recognised.loss, clip=clip),
        count=recognised.count,
        scale=recognised.scale,
        row=row,
        domain=domain,
        penalty=recognised.penalty,
        classification=_classification(recognised, row, domain, largest),
        read=reader(recognised),
        public=recognised.public,
        total=float(recognised.count if public is None else public.sum()),
        largest_weight=largest,
        offset_bound=0.0 if offset is None else float(np.abs(offset).max()),
        offset_range=(0.0, 0.0) if offset is None else (float(offset.min()), float(offset.max())),
        private=recognised.private,
        weighed=isinstance(weights, Label),
    )


def private_outputs(outputs: Outputs, clip: float = math.inf) -> PrivateOutputs:
    """The model of several outputs. Errors as ``private_regression``."""
    refuse_unnamed(parameter for each in outputs.parts for parameter in each.private)
    parts, memos = list[PrivateRegression](), dict[Hashable, Any]()
    for each in outputs.parts:
        part = private_regression(each, clip)
        facts = _facts(part)
        # Forecasts and settings follow from public facts: outputs of which these are equal share what is found.
        parts.append(part if facts is None else replace(part, _memo=memos.setdefault(facts, part._memo)))
    return PrivateOutputs(
        parts=tuple(parts),
        classification=_together(parts),
        read=reader_of_all(outputs.parts),
        public=PublicColumns(tuple(each.public for each in outputs.parts), outputs.columns),
        private=tuple({id(p): p for part in parts for p in part.private}.values()),
    )


def _facts(model: PrivateRegression) -> Hashable | None:
    """All public facts of a model that are numbers, as a key. Sets without a closed form are not compared."""
    if model.penalty.other is not None or isinstance(model.domain, ConvexSet):
        return None
    return key_of([getattr(model, name) for name in _FACTS])


_FACTS = (
    *("loss", "count", "scale", "row", "domain", "penalty", "total"),
    *("largest_weight", "offset_bound", "offset_range"),
)


def _together(parts: Sequence[PrivateRegression]) -> Classification:
    """One cell for each private parameter: a record moves the gradients of all outputs at once, side by side."""
    cells: dict[str, Cell] = {}
    for cell in (cell for part in parts for cell in part.classification.cells):
        known = cells.get(cell.parameter)
        if known is None:
            cells[cell.parameter] = replace(cell, reason=f"{cell.reason}, in each of {len(parts)} outputs")
        else:
            both = {key: (known.sensitivity[key], cell.sensitivity[key]) for key in _KEYS}
            sensitivity = {"l1": sum(both["l1"]), "l2": math.hypot(*both["l2"]), "linf": max(both["linf"])}
            cells[cell.parameter] = replace(known, sensitivity=MappingProxyType(sensitivity))
    return Classification(tuple(cells.values()))


# ------------------------------------------------------------------ whose rows they are
def _refuse_unpaired(recognised: Recognised) -> None:
    """One record must own row i of every private matrix (column i of one that is turned round) and entry i of every
    private vector, for one i."""
    parameters = recognised.private
    first = parameters[0]
    for features in recognised.private_features:
        parameter = features.parameter
        # Reshaped, a record would own several labels.
        if features.count != recognised.count:
            raise SpecificationError(
                f"{parameter.name()}: shape {tuple(parameter.shape)} in a private regression of "
                f"{recognised.count} records",
                why="row i of the features and entry i of the labels must be what one record owns",
                remedy=f"shape ({recognised.count},) for labels, ({recognised.count}, p) for features",
            )
        vector = parameter.ndim == 1 or parameter.shape[1] == 1
        if parameter.unit not in (("column",) if features.turned else ("entry", "row") if vector else ("row",)):
            raise SpecificationError(
                f"{parameter.name()}: unit={parameter.unit!r} in a private regression",
                why="a record must own one row of the features and one entry of the labels",
                remedy="unit='entry'" if parameter.ndim == 1 else f"unit={'column' if features.turned else 'row'!r}",
            )
        if parameter.records is not first.records:
            raise SpecificationError(
                f"{first.name()} is of {first.records}, {parameter.name()} is not",
                why="row i of the features and label i must be data of the same record",
                remedy="both from one Dataset, whose rows are in one order"
                if parameter.records.people is first.records.people
                else "the same records=Records(...) for both",
            )
        if len(parameters) > 1 and not parameter.layout.paired:
            raise SpecificationError(
                f"{parameter.name()}: unit='entry' on shape {tuple(parameter.shape)}",
                why="entries of a matrix are not numbered like the rows of another",
                remedy="unit='row'",
            )
    table = any(parameter.ndim == 2 for parameter in parameters)
    if len(parameters) > 1 and not table and first.records is DEFAULT_RECORDS:
        raise SpecificationError(
            f"{first.name()} and {parameters[1].name()}: nothing says that their entries are of the same records",
            why="two vectors may be tables of counts, in which one record sits in different places",
            remedy="records=Records('people') for both",
        )


# ------------------------------------------------------------------ bounds
def row_bounds(recognised: Recognised) -> RowBounds:
    """Bounds on a row of all features and on its label, from the declarations and the public numbers.

    Rows and labels are those that the mechanisms read: seen through their public maps (``Features``, ``Label``).
    Under add-remove a missing record is a zero row with label 0 if all its private parameters vanish (no declared
    change, ranges that hold zero), labels are multiples of them, and the public features are constant columns, which
    stay. Otherwise the bounds are those of replace-one: both databases' rows lie within them (values are clipped), so
    they hold, and are larger.
    Errors: SpecificationError, for private features or labels without a bound, and labels outside the range of the
    loss.
    """
    size, constant = recognised.size, recognised.constant
    lower, upper = np.zeros(size), np.zeros(size)
    sizes: list[tuple[float, float, float]] = []
    for features, start in recognised.blocks:
        if isinstance(features, Features):
            low, high = features.column_range
            norms = _bounded_norms(features)
        else:
            low, high = _column_ends(features)
            norms = _public_norms(features, ~constant[start : start + features.shape[1]])
        lower[start : start + low.size], upper[start : start + low.size] = low, high
        sizes.append(norms)
    parameters = recognised.private
    stays = any(not isinstance(f, Features) and not constant[s : s + f.shape[1]].all() for f, s in recognised.blocks)
    stays |= isinstance(recognised.label, Label) and bool(np.any(recognised.label.shift))
    vanishes = all(p.records.neighbors == "add-remove" and p.vanishes for p in parameters)
    l1, l2, linf = (list(norms) for norms in zip(*sizes, strict=True))
    lists = [
        (start + first, start + end, size)
        for features, start in recognised.blocks
        if isinstance(features, Features) and features.map is None and not features.turned
        for first, end, size in features.parameter.layout.lists
    ]
    # Norms of one record's blocks add up; each block's worst row counts, as if one record had them all.
    return RowBounds.of(
        lower,
        upper,
        constant,
        l1=sum(l1),
        l2=math.hypot(*l2),
        linf=max(linf),
        label=_label_range(recognised),
        absent=vanishes and not stays,
        mixed=any(isinstance(f, Features) and f.mixed for f, _ in recognised.blocks),
        lists=tuple(lists),
    )


def _bounded_norms(features: Features) -> tuple[float, float, float]:
    """Largest norms of one record's part of ``features``.
    Errors: SpecificationError, when neither columns nor norms are bounded."""
    if not math.isfinite(features.norms[2]):
        low, high = features.owned_range
        largest = np.maximum(np.abs(low), np.abs(high))
        free = int(np.argmax(~np.isfinite(largest)))
        place = f" (column {free}, for one)" if np.isfinite(largest).any() else ""
        raise SpecificationError(
            f"{features.name()}: no bound on a row{place}",
            why="the noise is set by how large one record's features may be, which must be public",
            remedy="max_l2= or max_linf= for rows, or bounds=[lo, hi] with numbers or one vector of columns each",
        )
    _require_squares(features.name(), "row", features.norms[2])
    return features.norms


def _require_squares(name: str, what: str, size: float) -> None:
    """Multiples of declared numbers may leave the range in which sensitivities can be squared."""
    if not (size == 0 or _LEAST <= size <= _MOST):
        raise SpecificationError(
            f"{name}: entries of a {what} of size up to {size:g}, multiples of what was declared",
            why=f"numbers outside [{_LEAST:g}, {_MOST:g}] cannot be squared in floating point",
            remedy="public factors of a moderate size",
        )


def _public_norms(features: Any, moving: np.ndarray) -> tuple[float, float, float]:
    """Largest norms of the rows of public features, constant columns left out."""
    if not moving.any():
        return 0.0, 0.0, 0.0
    part = features[:, np.flatnonzero(moving)]
    if sp.issparse(part):
        size = abs(sp.csr_array(part))
    else:
        size = np.abs(part)
    largest = float(size.max())
    if largest == 0:
        return 0.0, 0.0, 0.0
    unit = size / largest  # so that squares neither overflow nor vanish
    return float(size.sum(axis=1).max()), largest * math.sqrt((unit * unit).sum(axis=1).max()), largest


def _column_ends(features: Any) -> tuple[Floats, Floats]:
    if sp.issparse(features):
        return features.min(axis=0).toarray().ravel(), features.max(axis=0).toarray().ravel()
    return features.min(axis=0), features.max(axis=0)


def _label_range(recognised: Recognised) -> tuple[float, float]:
    label, loss = recognised.label, recognised.loss
    if label is None:
        return 1.0, 1.0
    if not isinstance(label, Label):
        if loss.scores > 1 and not (label.min() >= 0 and (label.sum(axis=1) <= 1 + 1e-9).all()):
            raise _not_one_hot("the public labels")
        return float(label.min()), float(label.max())
    low, high = label.range
    wanted = {"sign": (-1.0, 1.0), "binary": (0.0, 1.0)}.get(loss.labels)
    if wanted is not None and not (wanted[0] <= low and high <= wanted[1]):
        words = "-1 and 1" if loss.labels == "sign" else "0 and 1"
        raise SpecificationError(
            f"{label.features.name()}: labels of a {loss.name.replace('_', ' ')} loss must be declared within "
            f"[{wanted[0]:g}, {wanted[1]:g}]",
            why=f"its labels are {words}, and the declared range sets how steep a record's loss can be",
            remedy=f"bounds=[{wanted[0]:g}, {wanted[1]:g}] (values beyond are clipped), or labels coded as {words}",
        )
    if loss.scores > 1 and not label.features.norms[0] <= 1 + 1e-9:
        raise _not_one_hot(label.features.name())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SpecificationError(
            f"{label.features.name()}: no bound on a label",
            why="how large one record's label may be must be public",
            remedy="bounds=[lo, hi] or max_linf= (values beyond are clipped)",
        )
    _require_squares(label.features.name(), "label", max(abs(low), abs(high)))
    return low, high


def _not_one_hot(name: str) -> SpecificationError:
    return SpecificationError(
        f"{name}: rows of labels are not declared as one-hot",
        why="a record's labels are a row with one 1, whose sum sets how far the record moves all classes together",
        remedy="a column for each class, bounds=(0, 1) and max_l1=1; Dataset.rows(['class']) declares that",
    )


# ------------------------------------------------------------------ the cell
_SETS = {
    "free": "without constraints on them",
    "l1": "over an l1 ball",
    "l2": "over an l2 ball",
    "linf": "over an linf ball",
    "box": "over a box",
    "simplex": "over a simplex",
    "polyhedron": "over a polyhedron",
    "product": "over a product of sets",
}


def _classification(recognised: Recognised, row: RowBounds, domain: Domain, largest: float) -> Classification:
    per_derivative = recognised.scale * largest
    sensitivity = {key: per_derivative * row.sensitivity(1.0, order) for key, order in zip(_KEYS, _NORMS, strict=True)}
    reason = (
        f"recognised as {_words(recognised)} {_SETS.get(domain.kind, 'over a convex set')}: "
        "each record owns one term of the objective"
    )
    cells = []
    for parameter in recognised.private:
        block = ThetaBlock(parameter, 0, int(parameter.size), True)
        cells.append(
            Cell(
                part="objective",
                level="low",
                parameter=block.name,
                reason=reason,
                theorem="TTZ15, AMU20",
                sensitivity=MappingProxyType(sensitivity),
                solvable=True,
                relaxed=False,
                where=("the objective",),
                record=record_words([parameter]),
                single_entry=False,
            )
        )
    return Classification(tuple(cells))


def _words(recognised: Recognised) -> str:
    """For example "the mean squared loss of 200 records with 5 coefficients and an intercept"."""
    n = recognised.count
    whole = recognised.scale * n
    how = "mean" if math.isclose(whole, 1.0, rel_tol=1e-9) else "summed" if recognised.scale == 1 else "scaled"
    if recognised.weights is not None:
        how = "weighted"
    free = int((~recognised.constant).sum())
    constants = int(recognised.constant.sum())
    plural = "" if free == 1 else "s"
    also = {0: "", 1: " and an intercept"}.get(constants, f" and {constants} constant columns")
    loss, scores = recognised.loss.name.replace("_", " "), recognised.loss.scores
    each = f" for each of {scores} classes" if scores > 1 else ""
    return f"the {how} {loss} loss of {n} records with {free} coefficient{plural}{also}{each}"
