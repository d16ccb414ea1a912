"""``dpmodel demo``: a transportation problem with private demands, from classification to release."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from dpmodel.text import number, table, wrapped


def show_demo(chosen: argparse.Namespace) -> None:
    """Print it, or its release as JSON."""
    from dpmodel.teach import transportation_problem as book

    model = book.transportation()
    requested: dict[str, Any] = {"epsilon": chosen.epsilon, "delta": chosen.delta}
    requested["feasibility"] = "strict" if chosen.strict else "centred"
    if not chosen.json:
        print(
            wrapped("Shipping from two plants to three markets at least cost; the markets' demands are private."), "\n"
        )
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
    print(table(("cases shipped", *book.MARKETS), rows, title="Solution (what is released)"), "\n")
    print(release)
    truth = ", ".join(f"{market} {number(v)}" for market, v in zip(book.MARKETS, book.DEMAND, strict=True))
    print(f"\n{wrapped(f'Not released, but in the textbook that this is from: the true demand is {truth}.')}")
    following = "dpmodel explore, dpmodel demo --strict, taxonomy, reconstruct, and for your own: dpmodel plan FILE.py"
    print(wrapped(f"Next: {following}"))
