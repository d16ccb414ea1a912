"""The residuals of a likelihood as blocks of rows: merged where equal, each publication once, in its own order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dpmodel._types import Floats
from dpmodel.compile.affine_reader import AffineReader, flat
from dpmodel.compile.likelihood.objective import Objective, Residual
from dpmodel.compile.likelihood.terms import Published
from dpmodel.errors import SpecificationError
from dpmodel.marks.noisy import Noisy

# Whole published numbers of two measurements may agree by chance: below this probability they count as one.
_CHANCE = 1e-6


@dataclass(eq=False)
class Block:
    """Rows of one residual: ``matrix x - value`` with the weights of its absolute values and squares."""

    matrix: sp.csr_array
    value: Floats
    residual: Residual
    tags: list[Noisy]

    @property
    def weighted(self) -> Any:
        return (self.residual.absolute > 0) | (self.residual.square > 0)

    def holds(self, noisy: Noisy | None) -> bool:
        """Whether its values are this publication's numbers, each once."""
        return noisy is not None and len(self.tags) == 1 and self.tags[0] is noisy and _enters(self.value, noisy.value)


def blocks_of(objective: Objective, reader: AffineReader, size: int) -> list[Block]:
    """Every residual's rows, factors moved into the weights."""
    out = []
    for residual in objective.residuals.values():
        tags = list({id(c.noisy): c.noisy for c in residual.node.constants() if isinstance(c, Published)}.values())
        rows = reader.read(residual.node)
        block = Block(rows.csr(size), -rows.offset, residual, tags)
        if len(tags) == 1 and _enters(block.value, tags[0].value):
            pass
        elif len(tags) == 1 and _enters(block.value, -tags[0].value):
            block.matrix, block.value = sp.csr_array(-block.matrix), -block.value
        else:
            _normalise(block)
            keep = block.weighted
            if not tags and not keep.all():
                block = _kept(block, keep)
        out.append(block)
    return out


def _enters(value: Floats, published: Floats) -> bool:
    """Whether these are the published numbers, each once."""
    wanted = flat(published)
    return value.size == wanted.size and bool(np.allclose(value, wanted, rtol=1e-12, atol=0.0))


def _normalise(block: Block) -> None:
    """Rows whose coefficients are all of one size become sums of variables: weights take over the factor."""
    matrix = block.matrix
    if (matrix.data == 1.0).all() or not matrix.nnz:
        return
    count = np.diff(matrix.indptr)
    full = np.flatnonzero(count)
    first = matrix.indptr[full]
    size = np.abs(matrix.data)
    even = np.maximum.reduceat(size, first) == np.minimum.reduceat(size, first)
    factor = np.ones(count.size)
    factor[full[even]] = matrix.data[first[even]]
    data = matrix.data / np.repeat(factor, count)
    block.matrix = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    block.value = block.value / factor
    block.residual.absolute = block.residual.absolute * np.abs(factor)
    block.residual.square = block.residual.square * np.square(factor)


def _kept(block: Block, keep: Any) -> Block:
    old = block.residual
    arrays = (each[keep] for each in (old.absolute, old.square, old.absolute_terms, old.square_terms))
    matrix = sp.csr_array(block.matrix[np.flatnonzero(keep)])
    return Block(matrix, block.value[keep], Residual(old.node, *arrays), block.tags)


def arranged(blocks: list[Block], measurements: tuple[Noisy, ...]) -> tuple[list[Block], tuple[slice, ...]]:
    """Equal blocks merged (their weights add up), publications checked, and where each measurement's rows lie."""
    merged: dict[Any, Block] = {}
    cells: dict[Any, list[Noisy]] = {}
    for block in blocks:
        print_of_matrix = (block.matrix.shape, block.matrix.indptr.tobytes(), block.matrix.indices.tobytes())
        same = (*print_of_matrix, block.matrix.data.tobytes(), block.value.tobytes())
        key = hash(same), tuple(id(tag) for tag in block.tags)
        for tag in block.tags:
            require_one_publication(tag, cells.setdefault(hash(same), []))
        other = merged.setdefault(key, block)
        if other is not block:
            for name in ("absolute", "square", "absolute_terms", "square_terms"):
                setattr(other.residual, name, getattr(other.residual, name) + getattr(block.residual, name))
    for block in merged.values():
        for tag in block.tags:
            if max(block.residual.absolute_terms.max(initial=0), block.residual.square_terms.max(initial=0)) > 1:
                raise _twice(tag)
    blocks = list(merged.values())
    for noisy in measurements:
        blocks = _gathered(blocks, noisy)
    places: dict[int, slice] = {}
    at = 0
    for block in blocks:
        place = slice(at, at + block.value.size)
        at = place.stop
        if block.holds(block.tags[0] if block.tags else None):
            places[id(block.tags[0])] = place if id(block.tags[0]) not in places else slice(0, 0)
    return blocks, tuple(places.get(id(noisy), slice(0, 0)) for noisy in measurements)


def _gathered(blocks: list[Block], noisy: Noisy) -> list[Block]:
    """One block in the publication's order, where its numbers enter once each, in several terms: ``x[i] - p[i]``."""
    parts = [block for block in blocks if any(tag is noisy for tag in block.tags)]
    if len(parts) < 2 or any(len(part.tags) > 1 for part in parts) or any(part.holds(noisy) for part in parts):
        return blocks
    wanted, value = flat(noisy.value), np.concatenate([part.value for part in parts])
    if value.size != wanted.size or np.unique(wanted).size != wanted.size:
        return blocks
    order = np.empty(wanted.size, dtype=np.int64)
    order[np.argsort(wanted)] = np.argsort(value)
    if not _enters(value[order], noisy.value):
        return blocks
    olds = [part.residual for part in parts]
    names = ("absolute", "square", "absolute_terms", "square_terms")
    arrays = (np.concatenate([getattr(old, name) for old in olds])[order] for name in names)
    matrix = sp.csr_array(sp.csr_array(sp.vstack([part.matrix for part in parts]))[order])
    whole = Block(matrix, value[order], Residual(olds[0].node, *arrays), [noisy])
    mine = {id(part) for part in parts}
    return [whole, *(block for block in blocks if id(block) not in mine)]


def require_one_publication(noisy: Noisy, others: list[Noisy]) -> None:
    """Two publications of the same cells that agree in every number are one, unless that may be chance."""
    for other in others:
        if other is noisy or not np.array_equal(other.value, noisy.value):
            continue
        if (noisy.value == np.rint(noisy.value)).all() and _agreement(noisy) > _CHANCE:
            continue
        same = type(other.noise) is type(noisy.noise) and np.array_equal(other.scale, noisy.scale)
        if same:
            raise _twice(noisy)
        raise SpecificationError(
            f"{name_of(noisy)}: the same published numbers are declared with two distributions of noise, "
            f"{_distribution(other)} and {_distribution(noisy)}",
            why="numbers published once bear one noise; two measurements of the same cells would differ",
            remedy="one Noisy with the distribution that was published",
        )
    others.append(noisy)


def _agreement(noisy: Noisy) -> float:
    """About how likely noise of this distribution, on integers, is the same in another draw: an entry at most as likely
    as its likeliest value, tanh(1 / (2 scale)) <= 0.71 / standard deviation for Laplace distributions, near 0.4 /
    standard deviation for Gaussian ones."""
    sigma = np.maximum(noisy.standard_deviation, 0.71)
    return float(np.exp(np.log(0.71 / sigma).sum()))


def _twice(noisy: Noisy) -> SpecificationError:
    return SpecificationError(
        f"{name_of(noisy)} enters the objective twice for the same cells",
        why="its likelihood would count double",
        remedy="one term, times a number where more weight is meant; other measurements of the same cells are "
        "Noisy values of their own",
    )


def name_of(noisy: Noisy) -> str:
    """The publication's name, or its shape."""
    return noisy.name or f"published data of shape {noisy.shape}"


def _distribution(noisy: Noisy) -> str:
    low, high = float(noisy.scale.min(initial=np.inf)), float(noisy.scale.max(initial=-np.inf))
    return f"{noisy.noise.name} noise of scale {low:.4g}" + (f" to {high:.4g}" if high > low else "")
