"""Ledgers: the append-only list of charges behind a Budget, in memory or in an SQLite file.

A ledger does one thing: ``append`` reads what was spent, asks a check, and records the charge, all
inside one lock (memory) or one write transaction (file), so that two spenders cannot both see the same
rest of a budget.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from dpmodel.errors import DPModelError, NewLedgerWarning, SpecificationError, users_line
from dpmodel.privacy.conversions import PrivacyLoss
from dpmodel.privacy.events import LAWS, Composition, Cost

_APPLICATION_ID = 0x6470426C  # "dpBl": tells a ledger from any other SQLite file
_SCHEMA_VERSION = 3
_WITHOUT_EVENTS = 2  # charges are black boxes, and add up; such a file goes on as it is
_BUSY_SECONDS = 60.0

_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION_ID};
CREATE TABLE header (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    composition TEXT NOT NULL,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL
);
CREATE TABLE charges (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    time TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon >= 0),
    delta REAL NOT NULL CHECK (delta >= 0),
    label TEXT NOT NULL,
    event TEXT NOT NULL,
    checksum TEXT NOT NULL
);
CREATE TRIGGER charges_keep BEFORE DELETE ON charges BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER charges_same BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER charges_once BEFORE INSERT ON charges
    WHEN EXISTS (SELECT 1 FROM charges WHERE position = NEW.position OR id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER header_once BEFORE INSERT ON header WHEN EXISTS (SELECT 1 FROM header)
    BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER header_keep BEFORE DELETE ON header BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER header_same BEFORE UPDATE ON header BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""


# Connections of operations that have not ended, by process, thread and file. An interrupt may come just before one is
# closed, and the frames of its traceback would keep it, with its lock: the thread's next operation closes it.
_begun: dict[tuple[int, int, Path], sqlite3.Connection] = {}


@dataclass(frozen=True, slots=True)
class Charge:
    """One entry of a ledger. ``cost`` : the privacy event. ``time`` is UTC in ISO 8601; ``label`` holds public words
    only."""

    cost: Cost
    label: str
    time: str
    id: str

    def __repr__(self) -> str:
        what = f"{self.label}, " if self.label else ""
        return f"<Charge {self.time[:19]}: {what}{PrivacyLoss(self.epsilon, self.delta)} ({LAWS[self.cost.law]})>"

    @property
    def epsilon(self) -> float:
        """Of its (epsilon, delta)."""
        return self.cost.epsilon

    @property
    def delta(self) -> float:
        """Of its (epsilon, delta)."""
        return self.cost.delta


class Charges(tuple[Charge, ...]):
    """Printed with a line for each."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "()"


class Ledger(Protocol):
    """A list of charges that only grows. ``composition`` : of its budget."""

    @property
    def composition(self) -> Composition:
        """How its charges compose."""

    def charges(self) -> tuple[Charge, ...]:
        """All charges so far, oldest first."""

    def append(self, charge: Charge, check: Callable[[tuple[Charge, ...]], None]) -> None:
        """Record ``charge`` unless ``check(charges so far)`` raises; nobody else spends in between."""


class MemoryLedger:
    """Charges in this process, safe between threads. It must not be used in a forked child."""

    def __init__(self, composition: Composition) -> None:
        self.composition: Composition = composition
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

    def append(self, charge: Charge, check: Callable[[tuple[Charge, ...]], None]) -> None:
        """See `Ledger.append`."""
        self._require_same_process()  # before the lock, which a forked child may inherit locked
        with self._lock:
            check(self._charges)
            self._charges = (*self._charges, charge)


class SQLiteLedger:
    """Charges in an SQLite file, shared by processes and durable against crashes.

    A charge is committed before ``append`` returns, with synchronous=EXTRA (FULL, and the directory is
    synced as well), so a crash or a power cut after it can only lose budget, never forget a charge.
    Writers take the write lock (BEGIN IMMEDIATE) before they read what was spent, and wait up to 60 s for
    it. Every operation opens its own connection, so threads and forked children need no care.

    Triggers refuse to change, replace or delete rows. Every row has a checksum (SHA-256) over its contents and
    the checksum of the row before it, back to the header, and SQLite counts the rows beside them. Each operation
    verifies all of it: a file that was changed, or lost its last rows, is refused, and the error says where. A
    ledger also remembers the last row that it has seen, so that an older copy is refused as long as it or its pickle
    lives. What no file can prevent is somebody who writes it anew with checksums of its own, or restores an older copy
    between two processes; nor should it lie on a network file system with broken locks.

    Parameters
    ----------
    path : the file. Where there is none, one is created, with a `NewLedgerWarning`.
    budget : (epsilon, delta), written to a new file and compared with an existing one. None: that of the file, which
        must be there.
    composition : of the budget, written and compared likewise. A file without events, of an earlier version, goes on as
        it is: its charges are black boxes that add up.
    seen : (position, checksum) of a row that the file must hold (``seen`` of an earlier object); it must be there.

    Raises
    ------
    SpecificationError
        Whatever is wrong with the file, by every method.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        budget: PrivacyLoss | None,
        composition: Composition | None,
        seen: tuple[int, str] | None = None,
    ) -> None:
        self._budget, self._composition, self.seen = budget, composition, seen
        self._version = _SCHEMA_VERSION
        try:
            self.path = Path(path).expanduser().absolute()
        except (RuntimeError, OSError) as error:  # no such user, no working directory
            self.path = Path(path)
            raise self._unusable(error) from None
        with self._told():
            if budget is not None and seen is None and not self.path.exists():
                self._create(budget, composition or "auto")
        with self._open() as (connection, _, _):
            found = connection.execute("PRAGMA quick_check").fetchone()
            if found != ("ok",):
                raise self._damaged(f"its integrity check fails: {found[0] if found else 'no answer'}")

    @property
    def budget(self) -> PrivacyLoss:
        """(epsilon, delta) of the file."""
        assert self._budget is not None
        return self._budget

    @property
    def composition(self) -> Composition:
        """How the charges of the file compose."""
        assert self._composition is not None
        return self._composition

    def charges(self) -> tuple[Charge, ...]:
        """See `Ledger.charges`; reads the file, so charges of other processes are seen."""
        with self._open() as (_, charges, _):
            return charges

    def append(self, charge: Charge, check: Callable[[tuple[Charge, ...]], None]) -> None:
        """See `Ledger.append`."""
        with self._open("BEGIN IMMEDIATE") as (connection, charges, previous):
            check(charges)
            position = len(charges) + 1
            # SQLite keeps no sign of a zero.
            law = {name: each for name, each in charge.cost.to_dict().items() if name not in ("epsilon", "delta")}
            event = () if self._version == _WITHOUT_EVENTS else (json.dumps(law),)
            row = (position, charge.id, charge.time, charge.epsilon + 0.0, charge.delta + 0.0, charge.label, *event)
            link = _checksum(previous, *row)
            connection.execute(f"INSERT INTO charges VALUES ({', '.join('?' * (len(row) + 1))})", (*row, link))
            connection.execute("COMMIT")
            self.seen = position, link

    def _create(self, budget: PrivacyLoss, composition: Composition) -> None:
        directory = self.path.parent
        if not directory.is_dir():
            raise SpecificationError(
                f"the directory {directory} of the ledger does not exist",
                why="a ledger that lands in an unexpected place is a budget that nobody counts",
                remedy="create the directory first",
            )
        header = (_SCHEMA_VERSION, budget.epsilon, budget.delta + 0.0, composition, uuid.uuid4().hex)
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.executescript(_SCHEMA)
            connection.execute("INSERT INTO header VALUES (1, ?, ?, ?, ?, ?, ?)", (*header, _checksum(*header)))
            content = connection.serialize()
        if _publish(content, self.path):
            _sync_directory(directory)
            warnings.warn(
                f"a new ledger begins in {self.path}: nothing counts as spent. If there was one, restore it before "
                "anything is released",
                NewLedgerWarning,
                stacklevel=users_line(),
            )

    @contextlib.contextmanager
    def _open(self, begin: str = "BEGIN") -> Iterator[tuple[sqlite3.Connection, tuple[Charge, ...], str]]:
        """A transaction, which closing without a COMMIT takes back; the charges, verified; the last checksum."""
        seen = self.seen  # before the file is read: another thread may see more meanwhile
        # mode=rw: a ledger that has vanished, or shrunk to nothing, must not be born again empty.
        with self._told():
            if self.path.stat().st_size == 0:
                raise self._damaged("it is empty")
            address, mine = f"{self.path.as_uri()}?mode=rw", (os.getpid(), threading.get_ident(), self.path)
            if mine in _begun:
                _begun[mine].close()
            try:
                with contextlib.closing(
                    sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
                ) as connection:
                    _begun[mine] = connection
                    connection.execute("PRAGMA synchronous = EXTRA")
                    connection.execute(begin)
                    charges, links = self._read(connection)
                    if seen is not None and links[seen[0] : seen[0] + 1] != [seen[1]]:
                        raise self._damaged(f"it does not go on from what it held before, with {seen[0]} charges")
                    self.seen = len(charges), links[-1]
                    yield connection, charges, links[-1]
            except Exception:
                _begun.pop(mine, None)
                raise
            _begun.pop(mine, None)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Whatever the file or the system says, as an error of this package."""
        try:
            yield
        except DPModelError:
            raise
        except FileNotFoundError:
            missing = self.seen is None
            raise SpecificationError(
                f"there is no ledger {self.path}" if missing else f"the ledger {self.path} is gone",
                why="without it nobody knows what was spent",
                remedy="Budget(epsilon, delta, ledger=...) begins a new one, where nothing was spent"
                if missing
                else "restore the file; a new, empty one would forget the spending",
            ) from None
        except (sqlite3.OperationalError, sqlite3.ProgrammingError, OSError) as error:
            # ProgrammingError: a handler of signals used the ledger in the middle of this operation, and so ended it.
            raise self._unusable(error) from None
        except (sqlite3.Error, ValueError, TypeError, OverflowError, MemoryError) as error:
            # What SQLite or Python made of bytes that no ledger holds.
            raise self._damaged(f"{type(error).__name__}, {_plain(error)}") from None

    def _read(self, connection: sqlite3.Connection) -> tuple[tuple[Charge, ...], list[str]]:
        """The charges, and the checksums of the header and of each of them, after these were verified."""
        if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION_ID,):
            raise self._damaged("it is a database of another application")
        version = connection.execute("SELECT schema_version FROM header").fetchone()
        if version is not None and version[0] not in (_WITHOUT_EVENTS, _SCHEMA_VERSION):
            raise SpecificationError(
                f"the ledger {self.path} has schema version {version[0]}, this package writes {_SCHEMA_VERSION}",
                why="its charges might be misread",
                remedy="use the version of dpmodel that wrote it",
            )
        header = [row[1:] for row in connection.execute("SELECT * FROM header").fetchall()]
        if len(header) != 1 or _checksum(*header[0][:-1]) != header[0][-1]:
            raise self._damaged("its header, with the budget, is not as it was written")
        found = PrivacyLoss(*header[0][1:3])
        self._version = header[0][0]
        by: Composition = header[0][3] if self._version == _SCHEMA_VERSION else "sums"
        if self._composition not in (None, by) and (self._version, self._composition) != (_WITHOUT_EVENTS, "auto"):
            raise SpecificationError(
                f'the charges of the ledger {self.path} compose by "{by}", not by "{self._composition}"',
                why="a budget is fixed before the first charge; other rules later would void its guarantee",
                remedy=f'open it with composition="{by}", or name another file',
            )
        self._composition = by
        self._budget = self._budget or found
        if found != self._budget:
            raise SpecificationError(
                f"the ledger {self.path} holds a budget of epsilon={found.epsilon}, delta={found.delta}, not "
                f"epsilon={self._budget.epsilon}, delta={self._budget.delta}",
                why="a budget is fixed before the first charge; widening it later would void its guarantee",
                remedy=f"open it with Budget({found.epsilon}, {found.delta}, ledger=...), or name another file",
            )
        rows = connection.execute("SELECT * FROM charges ORDER BY position").fetchall()
        charges: list[Charge] = []
        links = [header[0][-1]]
        for place, (position, *entries, link) in enumerate(rows, start=1):
            if position != place or _checksum(links[-1], position, *entries) != link:
                before = [math.fsum(amounts) for amounts in zip(*((c.epsilon, c.delta) for c in charges), strict=True)]
                raise self._damaged(
                    f"charge {place} is not as it was written; those before it add up to "
                    f"{PrivacyLoss(*before) if before else PrivacyLoss(0.0, 0.0)}"
                )
            name, time, epsilon, delta, label, *event = entries
            cost = Cost.approximate(epsilon, delta)
            if event:
                cost = Cost.from_dict({"epsilon": epsilon, "delta": delta, **json.loads(event[0])})
            charges.append(Charge(cost, label, time, name))
            links.append(link)
        count = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'charges'").fetchone() or (0,)
        if count != (len(charges),):
            raise self._damaged(f"of {count[0]} charges it holds {len(charges)}")
        return tuple(charges), links

    def _unusable(self, error: Exception) -> SpecificationError:
        return SpecificationError(
            f"the ledger {self.path} cannot be used: {_plain(error)}",
            why="a charge counts only once it is committed to the file",
            remedy="check permissions and disk space, and that no other program holds the file locked",
        )

    def _damaged(self, reason: str) -> SpecificationError:
        return SpecificationError(
            f"{self.path} is not a usable budget ledger: {reason}",
            why="what was spent cannot be read, so nothing more may be spent",
            remedy="restore the file from a backup that holds every charge, or name another file",
        )


def _checksum(*entries: object) -> str:
    """Of a row: its numbers to the last bit, and the checksum of the row before it among them."""
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()


def _plain(error: Exception) -> str:
    """What SQLite says, which may hold bytes of a damaged file."""
    return str(error).encode("ascii", "backslashreplace").decode()


def _publish(content: bytes, path: Path) -> bool:
    """Write a new file, whole or not at all, and leave nothing else behind when killed. False where there is one."""
    # No files without a name here, or no /proc: see below.
    with (
        contextlib.suppress(AttributeError, OSError),
        open(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb") as file,
    ):
        _write(file, content)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.link(f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=directory, follow_symlinks=True)
        except FileExistsError:
            return False  # another process was first; its header is compared like any other
        finally:
            os.close(directory)
        return True
    # Exclusive creation is still safe: a reader in between finds a damaged file and refuses.
    with contextlib.suppress(FileExistsError), open(path, "xb") as file:
        try:
            _write(file, content)
        except BaseException:
            path.unlink()
            raise
        return True
    return False


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Make the new file name durable; only POSIX systems can sync a directory."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
