"""The command line: ``dpmodel demo``, ``dpmodel taxonomy`` and ``dpmodel reconstruct``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import dpmodel
from dpmodel.text import number, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="dpmodel", description="Private linear programs, written in CVXPY.")
    parser.add_argument("--version", action="version", version=f"dpmodel {dpmodel.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="solve a transportation problem with private demands")
    demo.add_argument("--epsilon", type=float, default=1.0)
    demo.add_argument("--delta", type=float, default=1e-6)
    demo.add_argument("--strict", action="store_true", help="make every true constraint hold with certainty")
    cells = commands.add_parser("taxonomy", help="print the eight kinds of private linear programs")
    attack = commands.add_parser("reconstruct", help="attack solvers on the programs that cannot be solved privately")
    attack.add_argument("--part", choices=("scalar", "objective", "column"), help="one gadget only")
    attack.add_argument("--n", type=int, default=60, help="bits in the database, even")
    attack.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    attack.add_argument("--delta", type=float, default=0.0)
    attack.add_argument("--beta", type=float, default=0.05)
    attack.add_argument("--repetitions", type=int, default=60, help="databases per line")
    attack.add_argument("--printed", action="store_true", help="Theorem 37 as printed, not in its sharper form")
    attack.add_argument("--figure", metavar="FILE", help="draw lower bound against epsilon (needs matplotlib)")
    for command, show in ((demo, _demo), (cells, _taxonomy), (attack, _reconstruct)):
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(show=show)
    chosen = parser.parse_args(arguments)
    try:
        chosen.show(chosen)
    except dpmodel.DPModelError as error:
        print(f"dpmodel: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, a pager) had enough
        sys.stderr.close()
    return 0


def _taxonomy(chosen: argparse.Namespace) -> None:
    cells = dpmodel.taxonomy()
    print(json.dumps(cells.to_dict(), indent=2) if chosen.json else cells)


def _reconstruct(chosen: argparse.Namespace) -> None:
    from dpmodel.teach import gadgets
    from dpmodel.teach.lower_bound_figure import require_matplotlib

    if chosen.figure:
        require_matplotlib()  # before the work, not after it
    shown = gadgets.demonstrate(
        chosen.part or ("scalar", "objective", "column"),
        n=chosen.n,
        epsilons=chosen.epsilon,
        delta=chosen.delta,
        beta=chosen.beta,
        repetitions=chosen.repetitions,
        sharp=not chosen.printed,
    )
    lines = gadgets.lower_bounds(delta=chosen.delta, beta=chosen.beta)
    print(json.dumps({**shown.to_dict(), **lines.to_dict()}, indent=2) if chosen.json else f"{shown}\n\n{lines}")
    if chosen.figure:
        gadgets.figure(shown, file=chosen.figure)


def _demo(chosen: argparse.Namespace) -> None:
    from dpmodel.teach import transportation_problem as book

    model = book.transportation()
    requested: dict[str, Any] = {"epsilon": chosen.epsilon, "delta": chosen.delta}
    requested["feasibility"] = "strict" if chosen.strict else "relaxed"
    if not chosen.json:
        print("Shipping from two plants to three markets at least cost; the markets' demands are private.\n")
        print(model.problem.classify(), "\n")
        print(model.problem.plan(**requested), "\n")
    model.problem.solve(**requested)
    release = model.problem.release
    assert release is not None
    if chosen.json:
        print(release.to_json(indent=2))
        return
    shipped = np.asarray(model.shipments.value)
    rows = [(plant, *(number(round(v, 1)) for v in shipped[i])) for i, plant in enumerate(book.PLANTS)]
    rows.append(("arrives", *(number(round(v, 1)) for v in shipped.sum(axis=0))))
    # The demands are in a textbook, so here (and only here) the truth can be shown beside the release.
    rows.append(("true demand", *(number(v) for v in book.DEMAND)))
    print(table(("cases shipped", *book.MARKETS), rows, title="Solution (what is released)"), "\n")
    print(release)


if __name__ == "__main__":
    raise SystemExit(main())
