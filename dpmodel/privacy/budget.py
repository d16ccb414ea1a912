"""The budget: a total (epsilon, delta) that refuses before it is exceeded."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from dpmodel.errors import BudgetExceededError, SpecificationError
from dpmodel.figures import charges
from dpmodel.privacy._checks import fraction, non_negative
from dpmodel.privacy.conversions import PrivacyLoss, validate_privacy
from dpmodel.privacy.events import COMPOSITIONS, LAWS, Composition, Cost, Filter, filters, how_many
from dpmodel.privacy.ledger import Charge, Charges, Ledger, MemoryLedger, SQLiteLedger
from dpmodel.text import TextTable, number, wrapped

CHARGE_COLUMNS = ("time (UTC)", "what", "epsilon", "delta", "law")


class Budget:
    """A privacy budget (epsilon, delta) that charges are taken from.

    All releases charged to it are (epsilon, delta)-DP together, also where each is chosen after seeing the earlier
    answers. Charges are privacy events (`Cost`), which compose better than sums of epsilon: 30 solves with Gaussian
    noise of epsilon 0.1 and delta 1e-7 lose epsilon 0.52 at delta 3e-6, not 3. What a budget holds is decided by
    filters whose limits are fixed at the start; `events` has them, with the proof.

    - Pure budgets (delta = 0): epsilons add up.
    - ``composition="auto"``: the first charge, which no answer can have moved, decides. Sums, with all of delta; or
      half of delta for sums and half for Gaussian DP (where it is Gaussian noise) or for zCDP (most other laws), where
      that holds at least twice as many charges like the first. A charge is taken as long as one of the two holds.
    - ``composition="sums"``: epsilons and deltas add up, in all of (epsilon, delta).
    - ``composition="gaussian"``: all of delta for Gaussian DP. For Gaussian noise and pure mechanisms: what is
      (epsilon, delta)-DP for another reason is refused.

    (1, 1e-6) holds 110 Gaussian solves of (0.1, 1e-8), 118 with ``composition="gaussian"``, 10 by sums.

    Sums are compared with a relative slack of 1e-12, so that ten charges of 0.1 fit into 1.0.

    Parameters
    ----------
    epsilon : total, > 0.
    delta : total, in [0, 1).
    ledger : None keeps the charges in this process; a path keeps them in an SQLite file, which several
        processes may share and which survives crashes (see `ledger.SQLiteLedger`).
    composition : by which rules charges compose, fixed before the first one.

    Notes
    -----
    Safe between threads. Copying returns the same object. Without a ledger a Budget can be neither
    pickled nor used in a forked child, because each copy would spend the whole of it; with a ledger both
    are fine, as every copy reads the same file.

    A charge is taken before private data are touched: if the work fails afterwards the charge stays.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        ledger: str | os.PathLike[str] | None = None,
        *,
        composition: Composition = "auto",
    ) -> None:
        self._total = validate_privacy(epsilon, delta)
        if composition not in COMPOSITIONS:
            shown = repr(composition) if isinstance(composition, str) else type(composition).__name__
            raise SpecificationError(f"composition={shown}", remedy=", ".join(map(repr, COMPOSITIONS)))
        if composition == "gaussian" and delta == 0:
            raise SpecificationError(
                'composition="gaussian" with delta = 0',
                why="Gaussian noise has no pure guarantee",
                remedy='a delta such as 1e-6, or composition="sums"',
            )
        self._ledger: Ledger
        if ledger is None:
            self._ledger = MemoryLedger(composition)
        elif isinstance(ledger, (str, os.PathLike)):
            self._ledger = SQLiteLedger(ledger, self._total, composition)
        else:
            raise SpecificationError(
                f"ledger must be a path, not {type(ledger).__name__}",
                why="it names the file that holds the charges",
                remedy="pass ledger='budget.db' or a pathlib.Path, or leave it out",
            )

    @staticmethod
    def open(ledger: str | os.PathLike[str]) -> Budget:
        """The budget of a ledger file that is there, whatever its total; none is begun.

        Raises
        ------
        SpecificationError
            For a file that is not there, or is no ledger, or is damaged.
        """
        return _kept_in(SQLiteLedger(ledger, None, None))

    @property
    def epsilon(self) -> float:
        """Total epsilon."""
        return self._total.epsilon

    @property
    def delta(self) -> float:
        """Total delta."""
        return self._total.delta

    @property
    def composition(self) -> Composition:
        """By which rules charges compose, as it was requested."""
        return self._ledger.composition

    @property
    def history(self) -> Charges:
        """All charges, oldest first, printed with a line for each; a ledger file is read anew."""
        return Charges(self._ledger.charges())

    @property
    def spent(self) -> PrivacyLoss:
        """What the charges so far lose together, by the filter that counts least.

        Were they all fixed beforehand, it is their guarantee. Chosen by the answers, what is guaranteed is the total.
        """
        return self._state().spent

    @property
    def remaining(self) -> PrivacyLoss:
        """The largest epsilon of one more charge of the last one's law and delta; by sums, epsilon and delta that are
        left. For releases of several laws (``solve(certify=)``) it is approximate."""
        return self._state().remaining

    def can_afford(self, epsilon: float | Cost, delta: float = 0.0) -> bool:
        """Whether a charge would be accepted now. Another thread or process may be faster: see `charge`."""
        price = _price(epsilon, delta)
        return self._state(like=price).covers(price)

    def require(self, epsilon: float | Cost, delta: float = 0.0, *, after: Sequence[Cost] = ()) -> None:
        """Raise BudgetExceededError if a charge would be refused now, or ``after`` these; spend nothing."""
        before = tuple(Charge(cost, "", "", "") for cost in after)
        self._check((*self.history, *before), _price(epsilon, delta))

    def charge(self, epsilon: float | Cost, delta: float = 0.0, label: str = "") -> Charge:
        """Spend (epsilon, delta), or raise BudgetExceededError and spend nothing.

        When this returns, the charge is recorded (on disk, if there is a ledger). Draw noise after it.

        Parameters
        ----------
        epsilon, delta : finite and >= 0, delta < 1: any release of this guarantee, a black box. Or a `Cost` alone,
        which
            composes better: ``charge(Cost.gaussian(mu).within(0.1, 1e-8))``.
        label : public words for the history.
        """
        price = _price(epsilon, delta)
        if not isinstance(label, str):
            raise SpecificationError(
                f"label must be a string, not {type(label).__name__}",
                why="it is kept in the history",
                remedy="pass public words such as label='demand plan'",
            )
        if not label.isascii() and label.encode("utf-8", "ignore").decode("utf-8") != label:
            raise SpecificationError(
                "label has a lone surrogate", why="the ledger keeps Unicode text", remedy="label='demand plan'"
            )
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        charge = Charge(price, label, now, uuid.uuid4().hex)
        self._ledger.append(charge, lambda history: self._check(history, price))
        return charge

    def to_dict(self) -> dict[str, Any]:
        """Plain data: totals, spent, remaining, how many more like the last (None: unlimited) and history."""
        state = self._state()
        more = state.more if state.costs else None
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "composition": self.composition,
            "rules": [each.rule for each in state.filters],
            "spent": state.spent._asdict(),
            "remaining": state.remaining._asdict(),
            "more_like_the_last": None if more is None or math.isinf(more) else int(more),
            "history": [{**c.cost.to_dict(), "label": c.label, "time": c.time, "id": c.id} for c in state.history],
        }

    def _state(self, history: tuple[Charge, ...] | None = None, like: Cost | None = None) -> _State:
        return _State(self._total, self.composition, self.history if history is None else history, like)

    def _check(self, history: tuple[Charge, ...], price: Cost) -> None:
        state = self._state(history, price)
        if state.covers(price):
            return
        law = f" ({LAWS[price.law]})" if self.delta else ""
        rest = state.remaining
        delta = f", delta={rest.delta:.6g}" if rest.delta or price.delta else ""
        left = f"at most epsilon={rest.epsilon:.6g}{delta} is left" if rest.epsilon > 0 else "nothing is left"
        rules = " or ".join(each.words() for each in state.filters)
        remedy = "ask for at most what remains, or reuse an earlier release: post-processing is free"
        if len(state.filters) > 1 and self.composition == "auto":
            remedy += '; a new Budget(..., composition="sums") has all of delta for sums'
        many, each = (0.0, "") if self.composition == "gaussian" and price.delta else self._gaussian(price.epsilon)
        if many > 2 * len(history):
            remedy += (
                f'; for many small solves a new Budget(..., composition="gaussian"), for which "auto" takes Gaussian '
                f'noise, or distribution="gaussian" from the first solve on: it holds {many:,.0f} of {each}'
            )
        raise BudgetExceededError(
            f"requested epsilon={price.epsilon:.6g}, delta={price.delta:.6g}{law}; "
            f"{left} for one more solve of this kind",
            why=f"the budget is epsilon={self.epsilon:.6g}, delta={self.delta:.6g}, and its charges compose by {rules}",
            remedy=remedy,
        )

    def _gaussian(self, epsilon: float) -> tuple[float, str]:
        """How many solves with Gaussian noise of this epsilon all of a budget like this one holds, and their delta."""
        if not (epsilon > 0 and self.delta > 1e-100):
            return 0.0, ""
        like = Cost.all_gaussian(epsilon, self.delta / 100)
        return how_many(filters(self._total, "gaussian", None), (), like), str(PrivacyLoss(epsilon, like.delta))

    def __copy__(self) -> Budget:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Budget:
        return self

    def __reduce__(self) -> tuple[Callable[..., Budget], tuple[Any, ...]]:
        if isinstance(self._ledger, SQLiteLedger):
            return _reopen, (str(self._ledger.path), self._total, self.composition, self._ledger.seen)
        raise SpecificationError(
            "a Budget without a ledger cannot be pickled",
            why="two copies in two processes would each spend the whole of it",
            remedy="share one ledger file: Budget(epsilon, delta, ledger='budget.db')",
        )

    def __str__(self) -> str:
        first, *rest = self._told().split("\n  ")
        return "\n".join([wrapped(first, hanging="  "), *(wrapped(line, "  ", "  ") for line in rest)])

    def _told(self) -> str:
        # A repr must never raise: it is what a debugger shows in a forked child or beside a lost file.
        head = f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}): "
        words = f"\n  whatever is charged, {in_words(self._total)}"
        file = f"\n  ledger: {self._ledger.path}" if isinstance(self._ledger, SQLiteLedger) else ""
        try:
            state = self._state()
        except SpecificationError as error:
            return f"{head}{error.what}{words}{file}"
        if not state.costs:
            return f"{head}nothing is spent{words}{file}"
        count, spent = len(state.costs), state.spent
        charged = f"\n  {count} charge{'s' * (count != 1)} so far, together {spent}"
        return f"{head}{state.left()}{charged}{words}{file}"

    def __repr__(self) -> str:
        return f"<{self._told().replace(chr(10) + '  ', ', ')}>"

    @property
    def charges(self) -> tuple[tuple[str, ...], ...]:
        """(time, label, epsilon, delta, law) of every charge and of what is left, as text for tables."""
        state = self._state()
        rows = [(c.time[:19], c.label, number(c.epsilon), number(c.delta), c.cost.law) for c in state.history]
        spent, left = state.spent, state.remaining
        together = [("", "together", number(spent.epsilon), number(spent.delta), "")] if len(rows) > 1 else []
        like = state.costs[-1].law if state.costs else ""
        return (*rows, *together, ("", "left for one more", number(left.epsilon), number(left.delta), like))

    def plot(self, ax: Any = None) -> Any:
        """Draw what was spent on what, charge after charge (extra ``[plot]``); returns the figure."""
        state = self._state()
        entries = []
        before = PrivacyLoss(0.0, 0.0)
        for place, charge in enumerate(state.history, start=1):
            after = self._state(state.history[:place]).spent
            entries.append((charge.label, after.epsilon - before.epsilon, after.delta - before.delta))
            before = after
        left = max(self.epsilon - before.epsilon, 0.0), max(self.delta - before.delta, 0.0)
        return charges(entries, self.epsilon, self.delta, left, ax)

    def _repr_html_(self) -> str:
        try:
            rows = self.charges
        except SpecificationError:
            rows = ()
        return TextTable(CHARGE_COLUMNS, rows, title=str(self))._repr_html_()


class _State:
    """A budget after some charges; ``like`` : the charge that what is left is told for, the last one if None."""

    def __init__(
        self, total: PrivacyLoss, composition: Composition, history: tuple[Charge, ...], like: Cost | None
    ) -> None:
        self.total, self.history = total, history
        self.costs: Sequence[Cost] = [charge.cost for charge in history]
        self.like = like or (self.costs[-1] if self.costs else None)
        first = next((cost for cost in self.costs if cost.epsilon or cost.delta), like)
        self.filters: tuple[Filter, ...] = filters(total, composition, first)

    def covers(self, price: Cost) -> bool:
        return any(each.holds([*self.costs, price]) for each in self.filters)

    @property
    def spent(self) -> PrivacyLoss:
        if len(self.costs) < 2:
            return PrivacyLoss(*((self.costs[0].epsilon, self.costs[0].delta) if self.costs else (0.0, 0.0)))
        kept = [each for each in self.filters if each.holds(self.costs)] or self.filters[:1]
        losses = [each.loss(self.costs) for each in kept]
        return min(losses, key=lambda loss: loss.epsilon)

    @property
    def remaining(self) -> PrivacyLoss:
        if self.like is None:
            return self.total
        if len(self.filters) == 1:
            return PrivacyLoss(*(max(left, 0.0) for left in self.filters[0].left(self.costs)))
        most = max(each.one_more(self.costs, self.like, self.total.epsilon) for each in self.filters)
        return PrivacyLoss(most, self.like.delta)

    @property
    def more(self) -> float:
        """How many charges like the last one are left."""
        assert self.like is not None
        return how_many(self.filters, self.costs, self.like)

    def left(self) -> str:
        """What is left for one more solve like the last, and how many of them."""
        assert self.like is not None
        rest, more = self.remaining, self.more
        law = f" ({LAWS[self.like.law]})" if self.total.delta else ""
        if not rest.epsilon > 0:
            return f"nothing is left for a solve like the last{law}"
        many = f", or {more:,.0f} more of epsilon {number(self.like.epsilon)}" if 1 < more < math.inf else ""
        # A delta of 0 would read as if none were left.
        told = rest if rest.delta or self.like.delta else f"epsilon {number(rest.epsilon)}"
        return f"{told} left for one more solve like the last{law}{many}"


def in_words(loss: PrivacyLoss) -> str:
    """What (epsilon, delta) allows whoever has to say which of two neighbors the data are, each as likely as the other:
    right with probability ``(e^epsilon + delta) / (e^epsilon + 1)`` at most (randomised response attains it)."""
    share = (1.0 + loss.delta * math.exp(-loss.epsilon)) / (1.0 + math.exp(-loss.epsilon))
    percent = min(100.0 * share, 100.0)
    shown = f"{percent:.0f}" if 51 <= percent <= 99 else f"{percent:.3g}" if percent < 99 else f"{percent:.6g}"
    return f"a neighbor's best guess goes from 50 % to at most {shown} %"


def _price(epsilon: object, delta: object) -> Cost:
    if isinstance(epsilon, Cost):
        if delta != 0:
            raise SpecificationError(
                "delta beside a Cost", why="a Cost has one of its own", remedy="cost.within(epsilon, delta)"
            )
        if math.isinf(epsilon.epsilon):
            raise SpecificationError(
                "a Cost without (epsilon, delta)",
                why="sums cannot count it",
                remedy="Cost.gaussian(mu).within(epsilon, delta)",
            )
        return epsilon
    return Cost.approximate(non_negative(epsilon, "epsilon"), fraction(delta, "delta", zero=True))


def _kept_in(ledger: SQLiteLedger) -> Budget:
    budget = object.__new__(Budget)
    budget._total, budget._ledger = ledger.budget, ledger
    return budget


def _reopen(path: str, budget: PrivacyLoss, composition: Composition, seen: tuple[int, str]) -> Budget:
    """Unpickle: the ledger must still hold what it held, since a new one would forget what was spent."""
    return _kept_in(SQLiteLedger(path, budget, composition, seen))
