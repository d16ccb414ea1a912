"""The budget: a total (epsilon, delta) that refuses before it is exceeded."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from dpmodel.errors import BudgetExceededError, SpecificationError
from dpmodel.figures import charges
from dpmodel.privacy._checks import fraction, non_negative
from dpmodel.privacy.conversions import PrivacyLoss, validate_privacy
from dpmodel.privacy.ledger import Charge, Ledger, MemoryLedger, SQLiteLedger, total
from dpmodel.text import TextTable, number, wrapped

# Ten charges of 0.1 add up to 1.0000000000000002 in some orders. A relative 1e-12 forgives that; it is
# the most by which a budget can be exceeded, and it is stated in the docstring.
_SLACK = 1e-12


CHARGE_COLUMNS = ("time (UTC)", "what", "epsilon", "delta")


class Budget:
    """A privacy budget (epsilon, delta) that charges are taken from.

    Charges add up by basic composition: all releases together are (sum of epsilon, sum of delta)-DP.
    That stays true when each charge and each mechanism is chosen after seeing the earlier answers (full
    adaptivity; Rogers, Roth, Ullman and Vadhan 2016; Whitehouse, Ramdas, Rogers and Wu
    2023). A zCDP filter would be tighter for many small charges, but taking the better of two filters
    after the fact is not itself valid: each filter's theorem is about stopping by its own rule, and
    what may be spent next would depend on which one is quoted. Inside one release, where the number of
    steps is fixed beforehand, `accounting.compose` does use the tightest rule.

    Sums are compared with a relative slack of 1e-12, so that ten charges of 0.1 fit into 1.0.

    Parameters
    ----------
    epsilon : total, > 0.
    delta : total, in [0, 1).
    ledger : None keeps the charges in this process; a path keeps them in an SQLite file, which several
        processes may share and which survives crashes (see `ledger.SQLiteLedger`).

    Notes
    -----
    Safe between threads. Copying returns the same object. Without a ledger a Budget can be neither
    pickled nor used in a forked child, because each copy would spend the whole of it; with a ledger both
    are fine, as every copy reads the same file.

    A charge is taken before private data are touched: if the work fails afterwards the charge stays.
    """

    def __init__(self, epsilon: float, delta: float = 0.0, ledger: str | os.PathLike[str] | None = None) -> None:
        self._total = validate_privacy(epsilon, delta)
        self._ledger: Ledger
        if ledger is None:
            self._ledger = MemoryLedger()
        elif isinstance(ledger, (str, os.PathLike)):
            self._ledger = SQLiteLedger(ledger, self._total)
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
        return _kept_in(SQLiteLedger(ledger, None))

    @property
    def epsilon(self) -> float:
        """Total epsilon."""
        return self._total.epsilon

    @property
    def delta(self) -> float:
        """Total delta."""
        return self._total.delta

    @property
    def history(self) -> tuple[Charge, ...]:
        """All charges, oldest first; a ledger file is read anew."""
        return self._ledger.charges()

    @property
    def spent(self) -> PrivacyLoss:
        """Sum of all charges."""
        return total(self.history)

    @property
    def remaining(self) -> PrivacyLoss:
        """What is left, never below 0."""
        return self._rest(self.spent)

    def can_afford(self, epsilon: float, delta: float = 0.0) -> bool:
        """Whether a charge would be accepted now. Another thread or process may be faster: see `charge`."""
        return self._covers(self.spent, _price(epsilon, delta))

    def require(self, epsilon: float, delta: float = 0.0) -> None:
        """Raise BudgetExceededError if a charge would be refused now; spend nothing."""
        self._check(self.spent, _price(epsilon, delta))

    def charge(self, epsilon: float, delta: float = 0.0, label: str = "") -> Charge:
        """Spend (epsilon, delta), or raise BudgetExceededError and spend nothing.

        When this returns, the charge is recorded (on disk, if there is a ledger). Draw noise after it.

        Parameters
        ----------
        epsilon, delta : finite and >= 0, delta < 1.
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
        charge = Charge(price.epsilon, price.delta, label, now, uuid.uuid4().hex)
        self._ledger.append(charge, lambda spent: self._check(spent, price))
        return charge

    def to_dict(self) -> dict[str, Any]:
        """Plain data: totals, spent, remaining and history."""
        history = self.history
        spent = total(history)
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "spent": spent._asdict(),
            "remaining": self._rest(spent)._asdict(),
            "history": [
                {"epsilon": c.epsilon, "delta": c.delta, "label": c.label, "time": c.time, "id": c.id} for c in history
            ],
        }

    def _rest(self, spent: PrivacyLoss) -> PrivacyLoss:
        # A residue of rounding is nothing left, not 1e-17.
        left = (
            total - used if total - used > total * _SLACK else 0.0
            for used, total in zip(spent, self._total, strict=True)
        )
        return PrivacyLoss(*left)

    def _covers(self, spent: PrivacyLoss, price: PrivacyLoss) -> bool:
        return all(
            used + more <= total * (1.0 + _SLACK) for used, more, total in zip(spent, price, self._total, strict=True)
        )

    def _check(self, spent: PrivacyLoss, price: PrivacyLoss) -> None:
        if self._covers(spent, price):
            return
        rest = self._rest(spent)
        raise BudgetExceededError(
            f"requested epsilon={price.epsilon:.6g}, delta={price.delta:.6g}; "
            f"remaining epsilon={rest.epsilon:.6g}, delta={rest.delta:.6g}",
            why=f"the budget is epsilon={self.epsilon:.6g}, delta={self.delta:.6g}, and charges add up",
            remedy="ask for at most what remains, or reuse an earlier release: post-processing is free",
        )

    def __copy__(self) -> Budget:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Budget:
        return self

    def __reduce__(self) -> tuple[Callable[..., Budget], tuple[Any, ...]]:
        if isinstance(self._ledger, SQLiteLedger):
            return _reopen, (str(self._ledger.path), self._total, self._ledger.seen)
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
        file = f"\n  ledger: {self._ledger.path}" if isinstance(self._ledger, SQLiteLedger) else ""
        try:
            history = self.history
        except SpecificationError as error:
            return f"{head}{error.what}{file}"
        rest = self._rest(total(history))
        left = f"remaining epsilon={rest.epsilon:.6g}, delta={rest.delta:.6g}"
        return f"{head}{len(history)} charge{'s' * (len(history) != 1)}, {left}{file}"

    def __repr__(self) -> str:
        return f"<{self._told().replace(chr(10) + '  ', ', ')}>"

    @property
    def charges(self) -> tuple[tuple[str, str, str, str], ...]:
        """(time, label, epsilon, delta) of every charge and of what is left, as text for tables."""
        rows = [(c.time[:19], c.label, number(c.epsilon), number(c.delta)) for c in self.history]
        left = self.remaining
        return (*rows, ("", "left", number(left.epsilon), number(left.delta)))

    def plot(self, ax: Any = None) -> Any:
        """Draw what was spent on what, charge after charge (extra ``[plot]``); returns the figure."""
        history, left = self.history, self.remaining
        entries = [(charge.label, charge.epsilon, charge.delta) for charge in history]
        return charges(entries, self.epsilon, self.delta, (left.epsilon, left.delta), ax)

    def _repr_html_(self) -> str:
        try:
            rows = self.charges
        except SpecificationError:
            rows = ()
        return TextTable(CHARGE_COLUMNS, rows, title=str(self))._repr_html_()


def _price(epsilon: object, delta: object) -> PrivacyLoss:
    return PrivacyLoss(non_negative(epsilon, "epsilon"), fraction(delta, "delta", zero=True))


def _kept_in(ledger: SQLiteLedger) -> Budget:
    budget = object.__new__(Budget)
    budget._total, budget._ledger = ledger.budget, ledger
    return budget


def _reopen(path: str, budget: PrivacyLoss, seen: tuple[int, str]) -> Budget:
    """Unpickle: the ledger must still hold what it held, since a new one would forget what was spent."""
    return _kept_in(SQLiteLedger(path, budget, seen))
