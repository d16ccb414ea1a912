"""``dpmodel ledger``: what a budget's file says was spent, and whether it can be trusted to be whole."""

from __future__ import annotations

import argparse
import json

from dpmodel.privacy import Budget
from dpmodel.privacy.budget import CHARGE_COLUMNS
from dpmodel.text import number, table


def show_ledger(chosen: argparse.Namespace) -> None:
    """Print the charges; ``verify`` says one line, or raises what is wrong.

    Raises
    ------
    SpecificationError
        For files that are not there or no ledger, and where one was changed: it says which charge.
    """
    budget = Budget.open(chosen.file)
    told = budget.to_dict()
    spent = budget.spent
    if chosen.json:
        print(json.dumps(told, indent=2))
    elif chosen.what == "verify":
        print(
            f"whole: {len(told['history'])} charges, epsilon {number(spent.epsilon)} of {number(budget.epsilon)}, "
            f"delta {number(spent.delta)} of {number(budget.delta)}"
        )
    else:
        title = f"Budget of epsilon {number(budget.epsilon)}, delta {number(budget.delta)}"
        print(table(CHARGE_COLUMNS, budget.charges, title=title))
