"""Ledgers: the append-only list of charges behind a Budget, in memory or in an SQLite file.

A ledger does one thing: ``append`` reads what was spent, asks a check, and records the charge, all
inside one lock (memory) or one write transaction (file), so that two spenders cannot both see the same
rest of a budget.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dpmodel.errors import SpecificationError
from dpmodel.privacy.conversions import PrivacyLoss

_APPLICATION_ID = 0x6470426C  # "dpBl": tells a ledger from any other SQLite file
_SCHEMA_VERSION = 1
_BUSY_SECONDS = 60.0

_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
CREATE TABLE header (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL
);
CREATE TABLE charges (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    time TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon >= 0),
    delta REAL NOT NULL CHECK (delta >= 0),
    label TEXT NOT NULL
);
CREATE TRIGGER charges_keep BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER charges_same BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER header_keep BEFORE DELETE ON header BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER header_same BEFORE UPDATE ON header BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Charge:
    """One entry of a ledger. ``time`` is UTC in ISO 8601; ``label`` holds public words only."""

    epsilon: float
    delta: float
    label: str
    time: str
    id: str


def total(charges: tuple[Charge, ...]) -> PrivacyLoss:
    """Sum of the charges by basic composition, each sum rounded once (math.fsum)."""
    return PrivacyLoss(math.fsum(c.epsilon for c in charges), math.fsum(c.delta for c in charges))


class Ledger(Protocol):
    """A list of charges that only grows."""

    def charges(self) -> tuple[Charge, ...]:
        """All charges so far, oldest first."""

    def append(self, charge: Charge, check: Callable[[PrivacyLoss], None]) -> None:
        """Record ``charge`` unless ``check(spent so far)`` raises; nobody else spends in between."""


class MemoryLedger:
    """Charges in this process, safe between threads. It must not be used in a forked child."""

    def __init__(self) -> None:
        self._charges: tuple[Charge, ...] = ()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _require_same_process(self) -> None:
        if os.getpid() != self._process:
            raise SpecificationError(
                "this Budget belongs to another process",
                why="parent and child would each spend the whole of it without seeing the other",
                remedy="share one ledger file: Budget(epsilon, delta, ledger='budget.db')",
            )

    def charges(self) -> tuple[Charge, ...]:
        """See `Ledger.charges`."""
        self._require_same_process()
        return self._charges

    def append(self, charge: Charge, check: Callable[[PrivacyLoss], None]) -> None:
        """See `Ledger.append`."""
        self._require_same_process()  # before the lock, which a forked child may inherit locked
        with self._lock:
            check(total(self._charges))
            self._charges = (*self._charges, charge)


class SQLiteLedger:
    """Charges in an SQLite file, shared by processes and durable against crashes.

    A charge is committed before ``append`` returns, with synchronous=EXTRA (FULL, and the directory is
    synced as well), so a crash or a power cut after it can only lose budget, never forget a charge.
    Writers take the write lock (BEGIN IMMEDIATE) before they read what was spent, and wait up to 60 s for
    it. Every operation opens its own connection, so threads and forked children need no care. Triggers
    refuse to change or delete rows. What no file can prevent is somebody restoring an older copy of it;
    nor should it lie on a network file system with broken locks.

    Parameters
    ----------
    path : the file; created if it does not exist.
    budget : (epsilon, delta), written to a new file and compared with an existing one.
    """

    def __init__(self, path: str | os.PathLike[str], budget: PrivacyLoss) -> None:
        self.path = Path(path).expanduser().absolute()
        self._budget: PrivacyLoss | None = budget
        if not self.path.exists():
            self._create()
        with self._connection() as connection:
            if connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise self._damaged("its integrity check fails")

    @classmethod
    def budget_of(cls, path: str | os.PathLike[str]) -> PrivacyLoss:
        """The (epsilon, delta) of a ledger that is there; SpecificationError for anything else."""
        ledger = object.__new__(cls)
        ledger.path, ledger._budget = Path(path).expanduser().absolute(), None
        with ledger._connection() as connection:
            epsilon, delta = connection.execute("SELECT epsilon, delta FROM header").fetchone()
        return PrivacyLoss(epsilon, delta)

    def charges(self) -> tuple[Charge, ...]:
        """See `Ledger.charges`; reads the file, so charges of other processes are seen."""
        with self._connection() as connection:
            return self._read(connection)

    def append(self, charge: Charge, check: Callable[[PrivacyLoss], None]) -> None:
        """See `Ledger.append`."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                check(total(self._read(connection)))
                connection.execute(
                    "INSERT INTO charges (id, time, epsilon, delta, label) VALUES (?, ?, ?, ?, ?)",
                    (charge.id, charge.time, charge.epsilon, charge.delta, charge.label),
                )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _create(self) -> None:
        """Write a complete ledger beside ``path`` and link it into place, so that nobody sees half of it."""
        directory = self.path.parent
        if not directory.is_dir():
            raise SpecificationError(
                f"the directory {directory} of the ledger does not exist",
                why="a ledger that lands in an unexpected place is a budget that nobody counts",
                remedy="create the directory first",
            )
        with tempfile.TemporaryDirectory(dir=directory, prefix=".ledger-") as scratch:
            draft = Path(scratch) / "draft.db"
            with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.executescript(_SCHEMA)
                assert self._budget is not None
                connection.execute("INSERT INTO header VALUES (1, ?, ?, ?)", (_SCHEMA_VERSION, *self._budget))
            try:
                os.link(draft, self.path)
            except FileExistsError:
                return  # another process was first; its header is compared like any other
            except OSError:
                # No hard links here. Exclusive creation is still safe: a reader in between finds a
                # damaged file and refuses.
                with contextlib.suppress(FileExistsError), open(self.path, "xb") as file:
                    file.write(draft.read_bytes())
                    file.flush()
                    os.fsync(file.fileno())
        _sync_directory(directory)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        # mode=rw: a ledger that has vanished, or shrunk to nothing, must not be born again empty.
        try:
            if self.path.stat().st_size == 0:
                raise self._damaged("it is empty")
            with contextlib.closing(
                sqlite3.connect(f"{self.path.as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                self._check_header(connection)
                yield connection
        except FileNotFoundError:
            raise SpecificationError(
                f"the ledger {self.path} is gone",
                why="without it nobody knows what was spent",
                remedy="restore the file; a new, empty one would forget the spending",
            ) from None
        except sqlite3.OperationalError as error:
            raise SpecificationError(
                f"the ledger {self.path} cannot be used: {error}",
                why="a charge counts only once it is committed to the file",
                remedy="check permissions and disk space, and that no other program holds the file locked",
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _check_header(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION_ID,):
            raise self._damaged("it is a database of another application")
        row = connection.execute("SELECT schema_version, epsilon, delta FROM header").fetchone()
        if row is None:
            raise self._damaged("its header is missing")
        version, epsilon, delta = row
        if version != _SCHEMA_VERSION:
            raise SpecificationError(
                f"the ledger {self.path} has schema version {version}, this package writes {_SCHEMA_VERSION}",
                why="its charges might be misread",
                remedy="use the version of dpmodel that wrote it",
            )
        if self._budget is not None and (epsilon, delta) != tuple(self._budget):
            raise SpecificationError(
                f"the ledger {self.path} holds a budget of epsilon={epsilon}, delta={delta}, not "
                f"epsilon={self._budget.epsilon}, delta={self._budget.delta}",
                why="a budget is fixed before the first charge; widening it later would void its guarantee",
                remedy=f"open it with Budget({epsilon}, {delta}, ledger=...), or name another file",
            )

    def _read(self, connection: sqlite3.Connection) -> tuple[Charge, ...]:
        rows = connection.execute("SELECT epsilon, delta, label, time, id FROM charges ORDER BY position").fetchall()
        charges = tuple(Charge(*row) for row in rows)
        if not all(_plausible(c.epsilon) and _plausible(c.delta) for c in charges):
            raise self._damaged("a charge is not a finite non-negative number")
        return charges

    def _damaged(self, reason: str) -> SpecificationError:
        return SpecificationError(
            f"{self.path} is not a usable budget ledger: {reason}",
            why="what was spent cannot be read, so nothing more may be spent",
            remedy="restore the file from a backup that holds every charge, or name another file",
        )


def _plausible(value: object) -> bool:
    return isinstance(value, (int, float)) and 0.0 <= value < math.inf


def _sync_directory(directory: Path) -> None:
    """Make the new file name durable; only POSIX systems can sync a directory."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
