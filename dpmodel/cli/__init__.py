"""The command line: demo, taxonomy, explain, plan, audit, reconstruct, ledger and explore."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import dpmodel
from dpmodel.cli.commands import audit_mechanism, explain_file, plan_file, show_demo, show_explorer, show_ledger
from dpmodel.text import wrapped


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 for an audit that found a fault, 2 for a refusal."""
    parser = argparse.ArgumentParser(prog="dpmodel", description="Private linear programs, written in CVXPY.")
    parser.add_argument("--version", action="version", version=f"dpmodel {dpmodel.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="solve a transportation problem with private demands")
    demo.add_argument("--epsilon", type=float, default=1.0)
    demo.add_argument("--delta", type=float, default=1e-6)
    demo.add_argument("--strict", action="store_true", help="make every true constraint hold with certainty")
    cells = commands.add_parser("taxonomy", help="print the ten kinds of private linear programs")
    attack = commands.add_parser("reconstruct", help="attack solvers on the programs that cannot be solved privately")
    attack.add_argument("--part", choices=("scalar", "objective", "column"), help="one gadget only")
    attack.add_argument("--n", type=int, default=60, help="bits in the database, even")
    attack.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    attack.add_argument("--delta", type=float, default=0.0)
    attack.add_argument("--beta", type=float, default=0.05)
    attack.add_argument("--repetitions", type=int, default=60, help="databases per line")
    attack.add_argument("--printed", action="store_true", help="Theorem 37 as printed, not in its sharper form")
    attack.add_argument("--figure", metavar="FILE", help="draw lower bound against epsilon (needs matplotlib)")
    explain = commands.add_parser("explain", help="what the problem in a Python file is, cell by cell")
    explain.add_argument("--epsilon", type=float, help="what is chosen then, why, and what would do better")
    explain.add_argument("--delta", type=float, default=0.0)
    explain.add_argument("--tree", action="store_true", help="the expression tree with sensitivities instead")
    plan = commands.add_parser("plan", help="compare the mechanisms for the problem in a Python file")
    plan.add_argument("--epsilon", type=float, required=True)
    plan.add_argument("--delta", type=float, default=0.0)
    plan.add_argument("--beta", type=float, default=0.05)
    plan.add_argument("--feasibility", choices=("auto", "centred", "relaxed", "safe", "strict"), default="auto")
    for command in (explain, plan):
        command.add_argument(
            "file",
            metavar="FILE.py[:problem]",
            help="the file runs up to its first private release, which is not made; :name: which of several",
        )
    audit = commands.add_parser("audit", help="try what a mechanism owes, each check with a planted fault")
    audit.add_argument("mechanism", metavar="package:Mechanism", help="a class or an object, or a registered name")
    audit.add_argument("--models", metavar="package:MODELS", help="functions of private (default: small ones)")
    audit.add_argument("--epsilon", type=float, default=1.0)
    audit.add_argument("--delta", type=float, default=1e-6)
    audit.add_argument("--neighbors", type=int, default=8, help="pairs per model")
    audit.add_argument("--runs", type=int, default=8, help="releases per model that statements are held against")
    ledger = commands.add_parser("ledger", help="show or verify the file of a Budget(..., ledger=FILE)")
    ledger.add_argument("what", choices=("show", "verify"))
    ledger.add_argument("file", metavar="FILE")
    explore = commands.add_parser("explore", help="open a page to play with: one record, Table 1, the attack")
    explore.add_argument("--path", action="store_true", help="print where the page lies and open nothing")
    for command, show in (
        (demo, show_demo),
        (cells, _taxonomy),
        (attack, _reconstruct),
        (explain, explain_file),
        (plan, plan_file),
        (audit, audit_mechanism),
        (ledger, show_ledger),
        (explore, show_explorer),
    ):
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(show=show)
    chosen = parser.parse_args(arguments)
    try:
        found = chosen.show(chosen)
    except dpmodel.DPModelError as error:
        first, *more = str(error).splitlines()
        print(
            "\n".join([wrapped(f"dpmodel: {first}"), *(wrapped(line.strip(), "  ") for line in more)]), file=sys.stderr
        )
        return 2
    except BrokenPipeError:  # the reader (head, a pager) had enough
        sys.stderr.close()
        return 0
    return int(found or 0)


def _taxonomy(chosen: argparse.Namespace) -> None:
    cells = dpmodel.taxonomy()
    print(json.dumps(cells.to_dict(), indent=2) if chosen.json else cells)


def _reconstruct(chosen: argparse.Namespace) -> None:
    from dpmodel.figures import require_matplotlib
    from dpmodel.teach import gadgets

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
