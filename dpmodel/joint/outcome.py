"""What a joint mechanism releases: prices, and how a share follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from dpmodel._types import Floats


@dataclass(frozen=True, eq=False)
class Prices:
    """Public: a person's share is ``scales`` times the mean of their best answers to the ``prices``, by ``weights``.

    ``prices`` (T, m), ``weights`` (T,), ``scales`` (m,) : an entry of a share is multiplied by the least scale of the
    resources that it may use. ``radius`` : of one person's use, in the 2-norm. ``ceiling`` (m,) : what one person may
    use of each resource, or None. ``demand`` (T, m) : as released, with noise. ``at_most`` (m,) : what is used of each
    resource at most, except with probability ``beta``. ``lost`` : what the answers may be worth less than the best that
    the radius allows, except with probability ``beta``, before they are scaled; nan where it is not known. ``seed`` :
    of the public coins by which whole shares are drawn, else None.
    """

    status: str
    prices: Floats
    weights: Floats
    scales: Floats
    radius: float
    demand: Floats
    at_most: Floats
    beta: float
    lost: float = float("nan")
    statement: str = ""
    seed: int | None = None
    ceiling: Floats | None = None
    notes: tuple[str, ...] = ()
