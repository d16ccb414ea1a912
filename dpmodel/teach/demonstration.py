"""The plain solver beside private mechanisms and the lower bound: what the theorems of impossibility look like."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpmodel._types import Floats
from dpmodel.errors import NoGuaranteeWarning, SpecificationError
from dpmodel.exact.arguments import is_integer
from dpmodel.privacy import noise_source
from dpmodel.teach.lower_bounds import PARTS, Bits, Gadget, build, random_bits
from dpmodel.teach.reconstruction import randomised_response, reconstruct
from dpmodel.text import TextTable, number

PLAIN = "plain solver"
RESPONSE = "randomised response"
Requested = dict[str, Any]  # delta, beta and rng of a solve


@dataclass(frozen=True)
class Row:
    """One solver on one gadget, over many uniform databases.

    ``part``, ``theorem``, ``sharp`` : the gadget. ``who`` : mechanism. ``epsilon`` : None without privacy. ``share`` :
    mean share of bits that `reconstruct` gets right. ``mean``, ``error`` : mean and (1 - beta)-quantile of the error
    (`Gadget.error`). ``lower_bound`` : what no private mechanism's quantile is below, None without privacy, 0 where
    nothing is proved. ``below`` : how many of ``runs`` had an error below the lower bound; the probability of that is
    at most 1 - beta for every private mechanism.
    """

    part: str
    theorem: str
    sharp: bool
    who: str
    epsilon: float | None
    share: float
    mean: float
    error: float
    lower_bound: float | None
    below: int
    runs: int


@dataclass(frozen=True)
class Demonstration:
    """Rows of `demonstrate`, with the public facts they were made with."""

    rows: tuple[Row, ...]
    n: int
    delta: float
    beta: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"n": self.n, "delta": self.delta, "beta": self.beta, "rows": [asdict(row) for row in self.rows]}

    def _shown(self) -> dict[str, Any]:
        """Arguments of `table` and `html_table`."""
        quantile = f"{number(100 * (1 - self.beta))}% quantile"
        heads = (
            "gadget (theorem)",
            "who",
            "epsilon",
            "bits told",
            "mean error",
            quantile,
            "at least",
        )
        rows = [
            (
                f"{row.part} ({row.theorem.split()[1]}{', sharper' if row.sharp else ''})",
                row.who,
                row.epsilon,
                f"{100 * row.share:.1f}%",
                round(row.mean, 6) + 0.0,  # without a solver's 1e-17
                round(row.error, 6) + 0.0,
                row.lower_bound,
            )
            for row in self.rows
        ]
        title = f"Reconstruction of {self.n} random bits, delta {number(self.delta)}, beta {number(self.beta)}"
        footer = (
            "Bits told: by rounding the solution; guessing without data gets 50%. Error: violation of a row (36), "
            "loss (37) or violation (38) divided by n; one record moves its number by 1.",
            f"At least: the least {quantile} of the error of any private mechanism (0: none proved). "
            "Randomised response attains the sharper lower bound of 37 as n grows and beta tends to 0.",
        )
        return {"columns": heads, "rows": rows, "title": title, "footer": footer}

    def __str__(self) -> str:
        return str(TextTable(**self._shown()))

    def _repr_html_(self) -> str:
        return TextTable(**self._shown())._repr_html_()


def demonstrate(
    parts: str | Sequence[str] = PARTS,
    *,
    n: int = 60,
    epsilons: Iterable[float] = (0.1, 1.0),
    delta: float = 0.0,
    beta: float = 0.05,
    repetitions: int = 60,
    sharp: bool = True,
    database_rng: int = 0,
    rng: Any = None,
) -> Demonstration:
    """Attack the plain solver and every eligible mechanism that reads the bits privately, with changes of 1.

    Each repetition draws a new uniform database (with n/2 ones where the theorem asks for them): the theorems'
    proofs average over those, so the lower bounds hold for the quantiles over databases and noise together.
    Mechanisms are those that ``problem.plan`` finds eligible and that spend something (what reads no bits tells none),
    whether or not they promise anything at this size, and randomised response on the gadgets whose
    public constraints its answers keep (Theorem 36 and the sharper form of 37). The databases are made up, so that
    repetitions cost nobody anything.

    Parameters
    ----------
    parts : one or more of ``"scalar"``, ``"objective"``, ``"column"``.
    n : number of bits, even.
    epsilons, delta, beta : the guarantees to compare, per bit; beta is also the quantile's.
    repetitions : databases per row, >= 1.
    sharp : the objective gadget in its sharper form; False for the printed one.
    database_rng : of the databases. ``rng`` : noise of the mechanisms, as in ``Problem.solve``.
    """
    names = (parts,) if isinstance(parts, str) else tuple(parts)
    wanted = tuple(epsilons)
    for name, given, least in (("n", n, 2), ("repetitions", repetitions, 1), ("database_rng", database_rng, 0)):
        if not is_integer(given, least):
            raise SpecificationError(f"{name}={given!r}", remedy=f"an integer >= {least}")
    if n % 2:
        raise SpecificationError(f"n={n}", why="Theorems 37 and 38 take an even n", remedy=f"n={n + 1}")
    if not names or not wanted:
        raise SpecificationError("nothing to demonstrate", remedy="at least one part and one epsilon")
    data = np.random.default_rng(database_rng)
    shown = []
    for name in names:
        gadget = build(name, np.arange(n) % 2, sensitivity=1.0, sharp=sharp and name in ("objective", "Theorem 37"))
        lower_bounds = [gadget.lower_bound(epsilon, delta, beta) for epsilon in wanted]
        plans = [gadget.problem.plan(epsilon, delta, beta=beta, compare="all") for epsilon in wanted]
        readers = [[c for c in plan.candidates if c.forecast and not c.forecast.spends_nothing] for plan in plans]
        who = [[c.mechanism for c in each] for each in readers]
        if gadget.part == "scalar" or gadget.sharp:
            who = [[*mechanisms, RESPONSE] for mechanisms in who]
        shown.append((gadget, [f.value for f in lower_bounds], who))
    requested: Requested = {"delta": delta, "beta": beta, "rng": noise_source(rng)}
    rows = []
    for gadget, values, who in shown:
        draws = [random_bits(n, data, balanced=gadget.balanced) for _ in range(repetitions)]
        rows.append(_row(gadget, PLAIN, None, None, draws, requested))
        for epsilon, value, mechanisms in zip(wanted, values, who, strict=True):
            rows += [_row(gadget, m, float(epsilon), value, draws, requested) for m in mechanisms]
    return Demonstration(tuple(rows), n, float(delta), float(beta))


def _row(
    gadget: Gadget, who: str, epsilon: float | None, lower_bound: float | None, draws: list[Bits], requested: Requested
) -> Row:
    errors, shares = [], []
    for bits in draws:
        here = gadget._refilled(bits)
        x = _solution(here, bits, who, epsilon, requested)
        errors.append(here.error(x))
        shares.append(reconstruct(here, x, truth=bits).share)
    return Row(
        part=gadget.part,
        theorem=gadget.theorem,
        sharp=gadget.sharp,
        who=who,
        epsilon=epsilon,
        share=float(np.mean(np.array(shares, dtype=float))),
        mean=float(np.mean(errors)),
        error=float(np.quantile(errors, 1 - requested["beta"], method="inverted_cdf")),
        lower_bound=lower_bound,
        below=0 if lower_bound is None else int(np.sum(np.array(errors) < lower_bound)),
        runs=len(draws),
    )


def _solution(gadget: Gadget, bits: Bits, who: str, epsilon: float | None, requested: Requested) -> Floats:
    if epsilon is None:
        return gadget.solve_without_privacy()
    if who == RESPONSE:
        return np.asarray(gadget.scale * randomised_response(bits, epsilon, rng=requested["rng"]), dtype=np.float64)
    with warnings.catch_warnings():
        # The table sets the error beside the lower bound, for sizes at which no promise is worth much: that is its
        # subject.
        warnings.simplefilter("ignore", NoGuaranteeWarning)
        gadget.problem.solve(epsilon=epsilon, mechanism=who, **requested)
    return np.asarray(gadget.variable.value, dtype=np.float64)
