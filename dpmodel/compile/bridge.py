"""The only module that touches CVXPY's internals: lowering a problem, and writing a solution back.

CVXPY's own reductions write a problem in cones; what is affine then is read as coefficients that are functions of the
parameters (``TensorReader``). Nothing is solved and no parameter needs a value. Atoms that cannot be read leave it to
CVXPY's stuffing, whose COO backend is the one whose cost grows with the non-zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy import settings
from cvxpy.constraints import PSD, SOC, Equality, ExpCone, Inequality, NonNeg, PowCone3D, Zero
from cvxpy.reductions.chain import Chain
from cvxpy.reductions.cvx_attr2constr import BOUND_ATTRIBUTES, CvxAttr2Constr, convex_attributes
from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.eliminate_zero_sized import EliminateZeroSized
from cvxpy.reductions.flip_objective import FlipObjective
from cvxpy.reductions.inverse_data import InverseData
from cvxpy.reductions.matrix_stuffing import extract_mip_idx
from cvxpy.reductions.solution import Solution

from dpmodel._types import Floats, Integers
from dpmodel.compile.affine_map import AffineMap, LinearMap, ThetaBlock, coordinates_of, private_mask
from dpmodel.compile.affine_reader import AtBound, NotAffine, TensorReader, numbering
from dpmodel.compile.refusals import constraint_label, refuse_blocks, refuse_undisciplined, refuse_unserved
from dpmodel.errors import SpecificationError, UnsupportedModelError
from dpmodel.marks.private import Private
from dpmodel.numerics.array_program import ConeBlock, ConeKind

_KINDS: dict[type, ConeKind] = {
    Zero: "zero",
    Equality: "zero",
    NonNeg: "nonneg",
    AtBound: "nonneg",
    Inequality: "nonneg",
    SOC: "soc",
    PSD: "psd",
    ExpCone: "exp",
    PowCone3D: "pow3d",
}


@dataclass(frozen=True)
class Lowered:
    """A lowered problem: its affine map, and what is needed to write a solution back to the user's."""

    affine: AffineMap
    _chain: Any
    _inverse: Any

    def write_back(
        self, problem: cp.Problem, x: Floats | None, dual: Floats | None, status: str, value: float | None
    ) -> None:
        """Give ``problem`` released values: variables, duals, status and objective value.

        ``x`` : (n,) standard-form point, ``dual`` : (m,) or None. CVXPY would recompute the objective from
        parameters; those read None, so ``value`` is set to what was released, or None.
        """
        if x is None:
            # Neither infeasible nor unbounded: a solver that stopped early. There is nothing to unpack then.
            known = status in settings.INF_OR_UNB
            problem.unpack(Solution(status if known else settings.INFEASIBLE_OR_UNBOUNDED, None, {}, {}, {}))
            problem._value, problem._status = value, status
            return
        # CVXPY's solvers hand scalars over for constraints of one row.
        duals = {}
        if dual is not None:
            duals = {b.constraint_id: dual[b.rows] if b.size > 1 else dual[b.start] for b in self.affine.cones}
        # CVXPY takes the only value that there is, whatever its number.
        solution = Solution(status, 0.0 if value is None else value, {0: x}, duals, {})
        problem.unpack(self._chain.invert(solution, self._inverse))
        problem._value = value


def evaluate_objective(problem: cp.Problem) -> float:
    """Set the problem's value to its public objective at the values of its variables."""
    problem._value = float(problem.objective.value)
    return float(problem._value)


def write_values(problem: cp.Problem, values: Mapping[Any, Floats], status: str) -> None:
    """Give the variables of ``problem`` released values. No objective value: it would speak of private rows."""
    for variable, value in values.items():
        variable.save_value(value)
    problem._value, problem._status = None, status


def forget_solution(problem: cp.Problem) -> None:
    """Clear what an earlier solve left, so that a failed one cannot be mistaken for it."""
    for variable in problem.variables():
        variable.save_value(None)
    for constraint in problem.constraints:
        for dual in constraint.dual_variables:
            dual.save_value(None)
    problem._value = None
    problem._status = None
    problem._solution = None


def forget_cached_forms(problem: cp.Problem) -> None:
    """Drop what CVXPY cached on the tree: a deep copy's caches still speak of the original's leaves."""
    stack: list[Any] = [problem.objective, *problem.constraints]
    while stack:
        node = stack.pop()
        for name in [n for n in vars(node) if n.startswith("_lazy") or n.endswith("__cache__")]:
            delattr(node, name)
        node.__dict__.pop("__deepcopy__", None)  # CVXPY's recursion guard, left behind
        stack.extend(node.args)


def lower(problem: cp.Problem) -> Lowered:
    """Lower ``problem`` to standard form as a function of its parameters.
    Errors: UnsupportedModelError, for problems that are not convex (DCP), not DPP, have rows in blocks, or use cones
    that are not served; SpecificationError, for constants with NaN or infinite entries."""
    refuse_blocks(problem.parameters())
    refuse_unserved(problem)
    maximize = isinstance(problem.objective, cp.Maximize)
    chain, program, inverse = _stuffed(problem, maximize)
    for constraint in program.constraints:
        if type(constraint) not in _KINDS:
            raise UnsupportedModelError(
                f"a {type(constraint).__name__} constraint",
                why="served are linear, second-order, exponential, 3-d power and semidefinite cones",
                remedy="rewrite it with those cones (n-d power cones as chains of 3-d ones)",
            )
    return Lowered(_affine_map(problem, program, chain, maximize), chain, inverse)


@dataclass(frozen=True)
class _Program:
    """A problem in cones: ``objective`` is (variable, parameter, coefficient); ``rows`` has before these the row, as
    counted through the constraints' arguments. ``start``, ``begin`` : the first entries of variables and parameters.
    ``discrete`` : boolean and integer entries, as CVXPY lists them."""

    objective: tuple[Integers, Integers, Floats]
    rows: tuple[Integers, Integers, Integers, Floats]
    constraints: list[Any]
    variables: list[Any]
    start: Mapping[int, int]
    parameters: list[Any]
    begin: Mapping[int, int]
    discrete: tuple[list[Any], list[Any]]

    @property
    def width(self) -> int:
        return sum(int(variable.size) for variable in self.variables)

    @property
    def height(self) -> int:
        return sum(int(constraint.size) for constraint in self.constraints)

    @property
    def theta_size(self) -> int:
        return sum(int(parameter.size) for parameter in self.parameters) + 1


def _parts(objective: Any, constraints: list[Any], variables: Any, parameters: Any) -> Any:
    """What reductions ask of a problem. CVXPY's own would walk its trees anew for what is known already."""
    return SimpleNamespace(objective=objective, constraints=constraints, variables=variables, parameters=parameters)


class _Flip(FlipObjective):  # type: ignore[misc]
    def apply(self, problem: cp.Problem) -> Any:
        objective = cp.Minimize(-problem.objective.expr)
        return _parts(objective, problem.constraints, problem.variables, problem.parameters), []


class _ToCones(Dcp2Cone):  # type: ignore[misc]
    def accepts(self, problem: Any) -> bool:
        return True  # ``refuse_undisciplined`` has looked


class _Entries:
    """Of a variable, for CVXPY to compare with its bounds."""

    def __init__(self, variable: cp.Variable, entries: Integers) -> None:
        self.variable, self.entries = variable, entries

    def __getitem__(self, key: Any) -> _Entries:
        return _Entries(self.variable, self.entries[key])

    def __ge__(self, bound: Any) -> AtBound:
        return AtBound(self.variable, self.entries, 1.0, bound)

    def __le__(self, bound: Any) -> AtBound:
        return AtBound(self.variable, self.entries, -1.0, bound)


class _Bounds(CvxAttr2Constr):  # type: ignore[misc]
    """CVXPY's constraints for attributes; where these are bounds alone, on the variables as they are, not on copies."""

    def apply(self, problem: cp.Problem) -> Any:
        variables = problem.variables()
        told = convex_attributes(variables)
        reduced = not set(told) <= set(BOUND_ATTRIBUTES) or any(p._has_dim_reducing_attr for p in problem.parameters())
        if reduced or not told:
            return super().apply(problem)
        bounds: list[AtBound] = []
        for variable in variables:
            variable._bound_domain(_Entries(variable, numbering(variable.shape)), bounds)
        own = {variable.id: variable for variable in variables}
        inverse = own, own, {constraint.id: constraint.id for constraint in problem.constraints}
        # CVXPY's order: as they are met in the objective, the bounds and the constraints.
        met = dict.fromkeys([*problem.objective.variables(), *(each.variable for each in bounds), *variables])
        constraints = [*bounds, *problem.constraints]
        return _parts(problem.objective, constraints, lambda: list(met), problem.parameters), inverse


class _Stuffing(ConeMatrixStuffing):  # type: ignore[misc]
    """CVXPY's last reduction, by a reading of its own; what it left is inverted as CVXPY does."""

    def apply(self, problem: cp.Problem) -> tuple[_Program, Any]:
        inverse = InverseData(problem)
        if any(map(_across, problem.constraints)):
            raise NotAffine("cones across rows")
        constraints = sorted(problem.constraints, key=lambda each: _ORDER.index(_KINDS[type(each)]))
        # Nobody asks for multipliers of bounds.
        inverse.cons_id_map = {each.id: each.id for each in constraints if type(each) is not AtBound}
        inverse.minimize = True  # what is maximised was turned before
        theta_size = sum(inverse.param_to_size.values())
        reader = TensorReader(inverse.var_offsets, inverse.x_length, inverse.param_id_map, theta_size)
        _, variable, parameter, cost = reader.coefficients([problem.objective.expr])
        sides = [[each.expr] if type(each) in _TWO_SIDES else each.args or [each] for each in constraints]
        rows = reader.coefficients([side for each in sides for side in each])
        program = _Program(
            (variable, parameter, cost), rows, constraints, problem.variables(), inverse.var_offsets,
            problem.parameters(), inverse.param_id_map, extract_mip_idx(problem.variables()),
        )  # fmt: skip
        return program, inverse


_AFFINE = (cp.atoms.affine.affine_atom.AffAtom, cp.expressions.leaf.Leaf)
_ORDER = tuple(dict.fromkeys(_KINDS.values()))
# Their ``expr`` is the left side less the right one.
_TWO_SIDES = (Equality, Inequality)


def _across(constraint: Any) -> bool:
    """Whether CVXPY rearranges the arguments of a cone before it reads them."""
    if type(constraint) is SOC:
        return bool(constraint.axis == 1)
    return type(constraint) in (ExpCone, PowCone3D) and constraint.args[0].ndim > 1


# In this order: the cost of the first grows with the non-zeros; the others know atoms that it does not.
_BACKENDS = (cp.COO_CANON_BACKEND, cp.SCIPY_CANON_BACKEND, cp.CPP_CANON_BACKEND)


def _stuffed(problem: cp.Problem, maximize: bool) -> tuple[Any, _Program, Any]:
    """The chain of reductions, the program it ends in, and what inverts it, by the first way that manages."""
    flip: list[Any] = [_Flip()] if maximize else []
    for *cones, bounds, stuffing in _ways(problem):
        if cones:  # what was read as products of parameters with variables is disciplined
            refuse_undisciplined(problem)
        chain = Chain(reductions=[*flip, *cones, bounds, EliminateZeroSized(), stuffing])
        try:
            program, inverse = chain.apply(problem)
            return chain, program if isinstance(program, _Program) else _as_coordinates(program), inverse
        except Exception as error:  # assertions, numpy's and scipy's errors, whatever an atom raises
            failure = f"{type(error).__name__} in CVXPY's last backend"
    raise UnsupportedModelError(
        "CVXPY cannot write this problem as a function of its parameters",
        why=f"{failure}; the change that one record makes is read off that function",
        remedy="another way to write the expressions with private parameters, such as sums and products with real "
        "matrices (a convolution is a product with a Toeplitz matrix)",
    )


def _ways(problem: cp.Problem) -> Iterator[list[Any]]:
    """What rewrites a problem in cones, if it has to be, what writes bounds as rows, and the last reduction."""
    if not any(map(_mostly_zeros, problem.parameters())):
        if all(map(_has_affine_atoms, (problem.objective, *problem.constraints))):
            yield [_Bounds(reduce_bounds=True), _Stuffing()]
        yield [_ToCones(quad_obj=False), _Bounds(reduce_bounds=True), _Stuffing()]
    for backend in _BACKENDS:
        stuffing = ConeMatrixStuffing(canon_backend=backend)
        yield [_ToCones(quad_obj=False), CvxAttr2Constr(reduce_bounds=True), stuffing]


def _has_affine_atoms(node: Any) -> bool:
    """Whether nothing below is for ``Dcp2Cone`` to rewrite, by types alone: curvature is asked for elsewhere."""
    return all(_is_affine(each.__class__) and _has_affine_atoms(each) for each in node.args)


@cache
def _is_affine(atom: type) -> bool:
    return issubclass(atom, _AFFINE)


def _mostly_zeros(parameter: Any) -> bool:
    """Whether CVXPY goes through a sparse table quicker than a reading that meets its zeros."""
    return parameter.sparse_idx is not None and parameter.size > 8 * len(parameter.sparse_idx[0])


def _as_coordinates(program: Any) -> _Program:
    """What CVXPY's stuffing says, as coordinates."""
    q = sp.coo_array(program.q)
    A, m = sp.coo_array((0, 0)) if program.A is None else sp.coo_array(program.A), int(program.constr_size)
    row, variable = coordinates_of(A.row.astype(np.int64), m)
    return _Program(
        (q.row, q.col, q.data), (row, variable, A.col, A.data), program.constraints, program.variables,
        program.var_id_to_col, program.parameters, program.param_id_to_col,
        (program.x.boolean_idx, program.x.integer_idx),
    )  # fmt: skip


def _affine_map(problem: cp.Problem, program: _Program, chain: Any, maximize: bool) -> AffineMap:
    n, m, width = program.width, program.height, program.theta_size
    variable, column, data = program.objective
    in_c = variable < n
    objective = LinearMap.of(variable[in_c], column[in_c], data[in_c], n)
    offset = LinearMap.of(np.zeros((~in_c).sum()), column[~in_c], data[~in_c], 1)
    row, variable, column, data = program.rows
    row, data = _in_cones(program, row, data)
    in_a = variable < n
    matrix = LinearMap.of(row[in_a] + np.int64(m) * variable[in_a], column[in_a], -data[in_a], m * n)
    scalar = LinearMap.of(row[~in_a], column[~in_a], data[~in_a], m)
    for part in (objective, offset, scalar, matrix):
        if not np.isfinite(part.coefficient).all():
            raise SpecificationError(
                "a constant of the model has NaN or infinite entries",
                why="the standard form must be finite",
                remedy="check the arrays that enter the model and what it divides by (infinite bounds can be left out)",
            )
    boolean, integer = (np.array([entry[0] for entry in each], dtype=np.int64) for each in program.discrete)
    parameters = _theta_blocks(problem, program, chain)
    private = private_mask(parameters, width)[matrix.column]
    return AffineMap(
        variables=n,
        rows=m,
        theta_size=width,
        objective=objective,
        offset=offset,
        scalar=scalar,
        public_matrix=matrix.select(~private),
        private_matrix=matrix.select(private),
        cones=_cones(problem, program),
        parameters=parameters,
        column_names=_column_names(problem, program, n),
        variable_columns=_variable_columns(problem, program, chain),
        boolean=boolean,
        integer=integer,
        maximize=maximize,
    )


def _in_cones(program: _Program, row: Integers, data: Floats) -> tuple[Integers, Floats]:
    """Rows and coefficients, rows moved from the order of the constraints' arguments to that of their cones (heads
    beside their tails), and what lies in a cone with the other sign negated."""
    place, negated, start = np.arange(program.height), np.zeros(program.height, dtype=bool), 0
    for constraint in program.constraints:
        end = start + int(constraint.size)
        negated[start:end] = type(constraint) in (Zero, *_TWO_SIDES)
        if type(constraint) is SOC:  # every head, and behind it its column of tails
            heads, tails = (int(argument.size) for argument in constraint.args)
            high = tails // heads
            place[start:end] = start + np.concatenate(
                [np.arange(heads) * (high + 1), (np.arange(heads)[:, None] * (high + 1) + 1 + np.arange(high)).ravel()]
            )
        elif type(constraint) in (ExpCone, PowCone3D):  # triples
            place[start:end] = start + np.arange(end - start).reshape(-1, 3).T.ravel()
        start = end
    return place[row], np.where(negated[row], -data, data)


def _cones(problem: cp.Problem, program: _Program) -> tuple[ConeBlock, ...]:
    numbers = {constraint.id: i for i, constraint in enumerate(problem.constraints)}
    blocks: list[ConeBlock] = []
    start = 0
    for constraint in program.constraints:
        kind = _KINDS[type(constraint)]
        number = numbers.get(constraint.id, -1)
        label = constraint_label(problem.constraints[number], number) if number >= 0 else "rows added by lowering"
        sizes: tuple[int, ...] = ()
        alphas: tuple[float, ...] = ()
        if kind == "soc":
            sizes = tuple(int(s) for s in constraint.cone_sizes())
        elif kind == "psd":
            side = int(constraint.args[0].shape[-1])
            sizes = (side * side,) * (int(constraint.size) // (side * side))
        elif kind in ("exp", "pow3d"):
            sizes = (3,) * (int(constraint.size) // 3)
            if kind == "pow3d":
                alphas = tuple(float(a) for a in np.ravel(constraint.alpha.value, order="F"))
        shape = tuple(problem.constraints[number].shape) if number >= 0 else ()
        blocks.append(ConeBlock(kind, start, int(constraint.size), sizes, alphas, number, constraint.id, label, shape))
        start += int(constraint.size)
    return tuple(blocks)


def _theta_blocks(problem: cp.Problem, program: _Program, chain: Any) -> tuple[ThetaBlock, ...]:
    origin = {parameter.id: parameter for parameter in problem.parameters()}
    for original, lowered in chain.compose_param_id_map().items():
        for identity in lowered:
            if original in origin:
                origin[identity] = origin[original]
    blocks = []
    for parameter in program.parameters:
        source = origin[parameter.id]
        offset = int(program.begin[parameter.id])
        blocks.append(ThetaBlock(source, offset, int(parameter.size), isinstance(source, Private)))
    return tuple(sorted(blocks, key=lambda block: block.offset))


def _column_names(problem: cp.Problem, program: _Program, n: int) -> tuple[str, ...]:
    # CVXPY numbers what it adds; a number would tell two problems that are written alike apart.
    own = {variable.id: str(variable.name()) for variable in problem.variables()}
    known, names = set(own.values()), [""] * n
    for variable in program.variables:
        start, name = int(program.start[variable.id]), own.get(variable.id, str(variable.name()))
        names[start : start + variable.size] = [name if name in known else "an auxiliary variable"] * int(variable.size)
    return tuple(names)


def _variable_columns(problem: cp.Problem, program: _Program, chain: Any) -> dict[int, int]:
    sizes = {variable.id: variable.size for variable in program.variables}
    renamed = chain.compose_var_id_map()
    columns = {}
    for variable in problem.variables():
        final = renamed.get(variable.id, [variable.id])
        if len(final) == 1 and sizes.get(final[0]) == variable.size:
            columns[variable.id] = int(program.start[final[0]])
    return columns
