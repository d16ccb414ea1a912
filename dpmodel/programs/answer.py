"""Answers from numbers that were released before: post-processing, which costs no privacy.

A mechanism that adds noise once releases ``S theta + N`` with public S and a public law of N. Whatever is computed from
these numbers, public facts and nothing else has the guarantee of their release (post-processing): another treatment,
other prices, other public costs, rows, bounds and integers, and new rows that are linear in what was measured. For
these, with part ``P theta`` of a program, the public R with ``R S = P`` gives ``R (S theta + N) = P theta + R N``.
What is not linear in S theta was not measured, and is refused.

What is proved of such an answer. Of the program that the numbers were measured for, what was proved before. Another one
may have been chosen after they were seen: a row whose noise is large, or costs that make it dear. So its statements
rest on one event over all of the release, whatever of it the program uses: with probability 1 - beta no draw N_j of the
r laws in it is beyond the quantile at which one of all draws of its law is with probability beta / r (union bound). In
it ``|R N| <= sum |R_j| max |N_j|`` for every R, so for every program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import cast

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from dpmodel._types import Floats, Mask
from dpmodel.compile.affine_map import LinearMap
from dpmodel.compile.form import value_range
from dpmodel.contract import Options
from dpmodel.errors import SpecificationError
from dpmodel.marks.measured import Law, Measured
from dpmodel.privacy import Truncated
from dpmodel.programs.model import Program
from dpmodel.programs.noise_design import Measurement, NoiseDesign, choices, part_of, sharing

# Combinations are exact up to rounding.
_EXACT = 1e-9


def measured_numbers(model: Program, design: NoiseDesign, numbers: Mapping[str, Floats]) -> tuple[Measured, ...]:
    """What was released, in terms of the private parameters; () where names do not tell these apart."""
    if namesakes(model):
        return ()
    blocks, program = model.affine.private_blocks, digest(model)
    starts = np.array([block.offset for block in blocks])
    out = []
    for name, *_ in design.numbers:
        part = design.parts[name]
        queries, distribution = part.measurement.queries, part.distribution
        block = np.searchsorted(starts, queries.column, side="right") - 1
        used, parameter = np.unique(block, return_inverse=True)
        law = cast(Law, "none" if distribution is None else distribution.name)
        scale = 0.0 if distribution is None else float(distribution.scale)
        names = tuple(blocks[k].name for k in used)
        entry = queries.column - starts[block]
        facts = names, queries.row, parameter, entry, queries.coefficient, tuple(int(blocks[k].size) for k in used)
        width = distribution.half_width if isinstance(distribution, Truncated) else 0.0
        out.append(Measured(numbers[name], law, scale, *facts, design.epsilon, design.delta, width, program))
    return tuple(out)


def digest(model: Program) -> str:
    """Of all that is public of the program: its arrays, cones, integers, and what is declared of private numbers."""
    form, affine, out = model.form, model.affine, sha256()
    maps = form.objective, form.offset, form.scalar, form.matrix
    arrays = [form.c0, np.float64(form.d0), form.b0, form.A0.data, form.A0.indices, form.A0.indptr]
    arrays += [each for one in maps for each in (one.row, one.column, one.coefficient)]
    for block in affine.private_blocks:
        guess = block.parameter.typical
        arrays += [*block.parameter.entry_range, np.zeros(0) if guess is None else guess]
    for array in (*arrays, affine.boolean, affine.integer):
        plain = np.ascontiguousarray(array)
        out.update(f"{plain.dtype.kind} {plain.shape} ".encode() + plain.astype(plain.dtype.kind + "8").tobytes())
    names = [(block.name, block.size) for block in affine.private_blocks]
    cones = [(cone.kind, cone.start, cone.size, cone.sizes, cone.alphas) for cone in affine.cones]
    out.update(repr((affine.rows, affine.variables, cones, affine.maximize, names)).encode())
    return out.hexdigest()


def namesakes(model: Program) -> list[str]:
    """Names that more than one private parameter has."""
    return [name for name, count in Counter(block.name for block in model.affine.private_blocks).items() if count > 1]


def design_of(model: Program, options: Options, found: tuple[Measured, ...]) -> tuple[NoiseDesign, dict[str, Floats]]:
    """The noise of every private part of ``model`` under released numbers, and these numbers, part by part.
    Errors: SpecificationError, where a part is not linear in what was measured, or a name does not say which parameter
    was."""
    if shared := namesakes(model):
        raise SpecificationError(
            f"resolve: more than one private parameter with the name {shared[0]!r}",
            why="numbers of a release are found by the names of private parameters",
            remedy="other names (name=), and solve(epsilon=...), which measures them",
        )
    parts, numbers = {}, {}
    released = [(each, *_queries(model, each)) for each in found]
    noised = [each for each in found if each.distribution is not None]
    other = bool({each.program for each in noised} - {digest(model)})
    beta = options.beta / max(1, len(noised) if other else len(model.private_parts()))
    for name in model.private_parts():
        rebuilt = ((each, complete, _measurement(model, name, queries)) for each, complete, queries in released)
        each, complete, measurement = next((found for found in rebuilt if found[2] is not None), (None, None, None))
        if each is None or measurement is None:
            part = model.form.private_part(name)
            used = np.unique(np.searchsorted([b.offset for b in model.affine.private_blocks], part.column, "right") - 1)
            raise SpecificationError(
                f"resolve: {', '.join(model.affine.private_blocks[k].name for k in used)} in the {_WHERE[name]}",
                why="it is no linear function of the numbers that were measured, so it would have to be measured first",
                remedy="problem.solve(epsilon=...), which measures it",
            )
        draws = each.values.size if other else 0
        parts[name] = part_of(model, measurement, each.distribution, 1.0, beta, draws)
        numbers[name] = each.values[complete]
    return NoiseDesign(parts, found[0].epsilon, found[0].delta), numbers


def _measurement(model: Program, name: str, queries: LinearMap) -> Measurement | None:
    """How part ``name`` is rebuilt from numbers that are these functions: as when they were measured for it, else by
    least squares; None where they do not determine it."""
    groups = [(name,), *(group for group in sharing(model, model.private_parts()) if name in group)]
    for choice in chain.from_iterable(choices(model, group, "gaussian") for group in dict.fromkeys(groups)):
        if _equal(choice[name].queries, queries):
            return replace(choice[name], queries=queries)  # the same object: parts of one release share their noise
    private = model.form.private_part(name)
    recover = _combination(private.compact(), queries)
    low, high = value_range(model.affine, queries)
    if recover is None:
        return None
    return Measurement(name, "released", queries, recover, private.positions, {}, low, high, np.inf)


def _equal(one: LinearMap, other: LinearMap) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("row", "column", "coefficient"))
    return one.height == other.height and all(np.array_equal(a, b) for a, b in pairs)


def _queries(model: Program, found: Measured) -> tuple[Mask, LinearMap]:
    """(k,) which of the numbers are functions of private parameters that this problem has, and these functions."""
    blocks = {block.name: block for block in model.affine.private_blocks}
    for name, count in zip(found.parameters, found.sizes, strict=False):
        if name in blocks and blocks[name].size != count:
            raise SpecificationError(
                f"resolve: {name} has {blocks[name].size} entries, and {count} were measured",
                why="numbers of a release are found by the names of private parameters",
                remedy="the same parameters, or other names for others",
            )
    offset = np.array([blocks[name].offset if name in blocks else 0 for name in found.parameters])
    size = np.array([blocks[name].size if name in blocks else 0 for name in found.parameters])
    complete = np.ones(found.values.size, dtype=bool)
    complete[found.row[found.entry >= size[found.parameter]]] = False
    keep, place = complete[found.row], np.cumsum(complete) - 1
    column = (offset[found.parameter] + found.entry)[keep]
    return complete, LinearMap(place[found.row[keep]], column, found.coefficient[keep], int(complete.sum()))


_WHERE = {"objective": "objective", "scalar": "right-hand sides", "matrix": "coefficients"}


def _combination(part: LinearMap, queries: LinearMap) -> sp.csr_array | None:
    """(h, k) sparse R with ``R queries = part``; None where there is none."""
    if not np.isin(part.column, queries.column).all():
        return None
    counts = np.bincount(queries.row, minlength=queries.height)
    if (counts == 1).all() and np.unique(queries.column).size == queries.height:  # a number for every entry
        order = np.argsort(queries.column)
        place = order[np.searchsorted(queries.column, part.column, sorter=order)]
        data = part.coefficient / queries.coefficient[place]
        return sp.csr_array((data, (part.row, queries.row[place])), shape=(part.height, queries.height))
    used = np.unique(queries.column)
    S, P = (
        sp.csc_array((m.coefficient, (m.row, np.searchsorted(used, m.column))), shape=(m.height, used.size))
        for m in (queries, part)
    )
    # The least-squares solution, of least variance among all R. S has full row or column rank as a rule.
    tall = S.shape[0] >= S.shape[1]
    try:
        factor = splu(sp.csc_array(S.T @ S if tall else S @ S.T))
        R = (S @ factor.solve(P.T.toarray())).T if tall else factor.solve((S @ P.T).toarray()).T
    except RuntimeError:  # singular
        R = np.linalg.lstsq(S.T.toarray(), P.T.toarray(), rcond=None)[0].T
    R = sp.csr_array(np.where(np.abs(R) < 1e-13 * np.abs(R).max(initial=0.0), 0.0, R))
    return R if abs(R @ S - P).max() <= _EXACT * abs(P).max() else None
