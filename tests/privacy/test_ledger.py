"""The durable ledger: processes, crashes, damage, disagreement."""

import contextlib
import multiprocessing
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dpmodel.errors import BudgetExceededError, SpecificationError
from dpmodel.privacy import Budget, Cost
from dpmodel.privacy import ledger as ledgers


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def test_charges_survive_and_are_seen_by_others(path):
    first, second = Budget(1.0, 1e-6, ledger=path), Budget(1.0, 1e-6, ledger=str(path))
    charge = first.charge(0.4, 1e-7, label="naïve “label”")
    assert second.spent == (0.4, 1e-7) and second.history == (charge,)
    with pytest.raises(BudgetExceededError):
        second.charge(0.7)
    second.charge(0.6)
    assert first.remaining.epsilon == 0.0
    again = Budget(1.0, 1e-6, ledger=path)
    assert again.history == first.history and len(again.history) == 2
    assert sorted(p.name for p in path.parent.iterdir()) == ["budget.db"]


def test_pickling_reopens_the_file(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    budget = Budget(1.0, ledger="budget.db")
    data = pickle.dumps(budget)
    monkeypatch.chdir("/")
    clone = pickle.loads(data)
    clone.charge(0.3)
    assert budget.spent.epsilon == 0.3
    assert str(budget).splitlines()[-1].endswith("budget.db") and "1 charge" in repr(budget)
    assert "\n" not in repr(budget)


def spend_all(path, start, results):
    start.wait()
    budget, accepted = Budget(1.0, ledger=path), 0
    for _ in range(40):
        try:
            budget.charge(0.02)
            accepted += 1
        except BudgetExceededError:
            break
    results.put(accepted)


def test_processes_cannot_overspend(path):
    """Two processes (spawned) want 80 charges together; exactly 50 fit. They also race to create it."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    processes = [context.Process(target=spend_all, args=(path, start, results)) for _ in range(2)]
    for process in processes:
        process.start()
    start.set()
    accepted = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    budget = Budget(1.0, ledger=path)
    assert sum(accepted) == 50 == len(budget.history)
    assert budget.remaining.epsilon == 0.0


CRASH = """
import os, sys
from dpmodel.privacy import Budget, Cost
from dpmodel.privacy import ledger as ledgers
budget = Budget(1.0, ledger=sys.argv[1])
budget.charge(0.3, label="before the crash")
budget._check = lambda spent, request: os._exit(9)
budget.charge(0.3)
"""


def test_a_crash_loses_budget_but_never_a_charge(path):
    """Killed inside the transaction of a second charge: the first stays, and no other."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CRASH, path], env=environment, check=False)
    assert done.returncode == 9
    budget = Budget(1.0, ledger=path)
    assert [c.label for c in budget.history] == ["before the crash"]
    budget.charge(0.7)


def test_a_failing_check_releases_the_lock(path):
    budget = Budget(1.0, ledger=path)
    with pytest.raises(BudgetExceededError):
        budget.charge(2.0)
    budget.charge(1.0)


@pytest.mark.parametrize("total", [(2.0, 0.0), (1.0, 1e-9)])
def test_another_total_is_refused(path, total):
    Budget(1.0, ledger=path)
    with pytest.raises(SpecificationError, match=r"holds a budget of epsilon=1\.0, delta=0\.0"):
        Budget(*total, ledger=path)


REPLACING = ("REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL")


def test_rows_cannot_be_changed(path):
    Budget(1.0, ledger=path).charge(0.5)
    connection = sqlite3.connect(path)
    for statement in (
        "DELETE FROM charges",
        "UPDATE charges SET epsilon = 0",
        "UPDATE header SET epsilon = 9",
        "INSERT INTO charges VALUES (2, 'x', 'now', -1, 0, '', '', '')",
        *(
            f"{how} INTO charges SELECT position, 'x', time, 0, 0, label, event, checksum FROM charges"
            for how in REPLACING
        ),
        *(f"{how} INTO charges SELECT 9, id, time, 0, 0, label, event, checksum FROM charges" for how in REPLACING),
        *(
            f"{how} INTO header SELECT 1, schema_version, 9, delta, composition, name, checksum FROM header"
            for how in REPLACING
        ),
        "UPDATE OR REPLACE charges SET epsilon = 0",
        "INSERT INTO charges SELECT * FROM charges WHERE 1 ON CONFLICT DO UPDATE SET epsilon = 0",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|CHECK constraint"):
            connection.execute(statement)
    connection.close()
    assert Budget(1.0, ledger=path).spent.epsilon == 0.5


def sql(path, *statements):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def spent(path, sensitivity=lambda data: data):
    """A ledger with a charge, its bytes changed."""
    Budget(1.0, ledger=path).charge(0.5)
    path.write_bytes(sensitivity(path.read_bytes()))


CORRUPT = {
    "text": lambda path: path.write_text("epsilon,delta\n0.1,0\n" * 100),
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: sql(path, "CREATE TABLE charges (epsilon)"),
    "half": lambda path: spent(path, lambda data: data[:5000]),
    "scribble": lambda path: spent(path, lambda data: data[:4096] + os.urandom(len(data) - 4096)),
    "version": lambda path: [
        spent(path),
        sql(path, "DROP TRIGGER header_same", "UPDATE header SET schema_version = 99"),
    ],
    "not a number": lambda path: [
        spent(path),
        sql(path, "INSERT INTO charges VALUES (2, 'x', '', 'NaN', 0, '', '', '')"),
    ],
    "directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", CORRUPT)
def test_damaged_and_foreign_files_are_refused(path, name):
    CORRUPT[name](path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(SpecificationError) as caught:
        Budget(1.0, ledger=path).charge(0.01)
    assert str(path) in str(caught.value) and caught.value.remedy
    assert before is None or path.read_bytes() == before


def test_a_lost_file_is_not_born_again(path):
    budget = Budget(1.0, ledger=path)
    budget.charge(0.9)
    path.unlink()
    for attempt in (lambda: budget.charge(0.9), lambda: budget.spent, lambda: budget.can_afford(0.1)):
        with pytest.raises(SpecificationError, match="gone"):
            attempt()
    assert not path.exists() and "gone" in repr(budget)


def test_a_pickled_budget_whose_file_is_lost_stays_spent(path):
    budget = Budget(1.0, ledger=path)
    budget.charge(0.9)
    dumped = pickle.dumps(budget)
    path.unlink()
    with pytest.raises(SpecificationError, match="forget"):
        pickle.loads(dumped)


def test_missing_directory(tmp_path):
    with pytest.raises(SpecificationError, match="directory"):
        Budget(1.0, ledger=tmp_path / "none" / "budget.db")


def test_a_locked_file_is_an_error_not_a_free_pass(path, monkeypatch):
    monkeypatch.setattr("dpmodel.privacy.ledger._BUSY_SECONDS", 0.05)
    budget = Budget(1.0, ledger=path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SpecificationError, match="locked"):
        budget.charge(0.1)
    holder.execute("ROLLBACK")
    holder.close()
    budget.charge(0.1)


def test_odd_file_names(tmp_path):
    budget = Budget(1.0, ledger=Path(tmp_path / "a ?b#c%20.db"))
    budget.charge(0.5)
    assert Budget(1.0, ledger=tmp_path / "a ?b#c%20.db").spent.epsilon == 0.5


@pytest.mark.parametrize("durable", [False, True])
def test_check_and_record_are_one_step(path, durable, monkeypatch):
    """Nobody reads what was spent while somebody else is between reading it and recording a charge."""
    budget = Budget(1.0, ledger=path if durable else None)
    inside, most, original = [], [], budget._check

    def slow_check(spent, options):
        inside.append(None)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        original(spent, options)

    monkeypatch.setattr(budget, "_check", slow_check)
    threads = [threading.Thread(target=budget.charge, args=(0.1,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6 and len(budget.history) == 6


# --- events, and files without them ---------------------------------------------------------------------------


def test_events_are_kept(path):
    gaussian = Cost.all_gaussian(0.1, 1e-8)
    budget = Budget(1.0, 1e-6, ledger=path)
    costs = [gaussian, Cost.laplace(0.1), Cost.approximate(0.1, 1e-8), gaussian + Cost.pure(0.05)]
    for cost in costs:
        budget.charge(cost)
    for again in (Budget.open(path), pickle.loads(pickle.dumps(budget)), Budget(1.0, 1e-6, ledger=path)):
        assert [charge.cost for charge in again.history] == costs and again.spent == budget.spent
    with pytest.raises(SpecificationError, match='compose by "auto"'):
        Budget(1.0, 1e-6, ledger=path, composition="gaussian")


def test_processes_agree_on_the_rules(tmp_path):
    """The first charge decides, whoever makes it."""
    gaussian = Cost.all_gaussian(0.1, 1e-8)
    for composition, most in (("auto", 11), ("gaussian", 12), ("sums", 3)):
        file = tmp_path / f"{composition}.db"
        Budget(0.3, 1e-6, ledger=file, composition=composition)
        both, charged = [Budget.open(file), Budget(0.3, 1e-6, ledger=file, composition=composition)], 0
        assert {each.composition for each in both} == {composition}
        while both[charged % 2].can_afford(gaussian):
            both[charged % 2].charge(gaussian)
            charged += 1
        assert charged == most and not both[(charged + 1) % 2].can_afford(gaussian)


WITHOUT_EVENTS = """
PRAGMA application_id = 1685078636;
CREATE TABLE header (one INTEGER PRIMARY KEY CHECK (one = 1), schema_version INTEGER NOT NULL, epsilon REAL NOT NULL,
    delta REAL NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL);
CREATE TABLE charges (position INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, time TEXT NOT NULL,
    epsilon REAL NOT NULL CHECK (epsilon >= 0), delta REAL NOT NULL CHECK (delta >= 0), label TEXT NOT NULL,
    checksum TEXT NOT NULL);
"""


def test_a_ledger_without_events_is_read_and_goes_on(path):
    """Its charges are black boxes that add up, and so are those of now: nothing of what was spent is forgotten."""
    header = (2, 1.0, 1e-6, "a ledger")
    row = (1, "id", "2025-01-01T00:00:00+00:00", 0.4, 4e-7, "an old solve")
    checksum = ledgers._checksum
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(WITHOUT_EVENTS)
        connection.execute("INSERT INTO header VALUES (1, ?, ?, ?, ?, ?)", (*header, checksum(*header)))
        link = checksum(checksum(*header), *row)
        connection.execute("INSERT INTO charges VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, link))
    for budget in (
        Budget.open(path),
        Budget(1.0, 1e-6, ledger=path),
        Budget(1.0, 1e-6, ledger=path, composition="sums"),
    ):
        assert budget.composition == "sums" and budget.spent == (0.4, 4e-7)
        assert budget.history[0].cost == Cost.approximate(0.4, 4e-7) and "an old solve" in str(budget.charges)
    with pytest.raises(SpecificationError, match='compose by "sums"'):
        Budget(1.0, 1e-6, ledger=path, composition="gaussian")
    budget.charge(Cost.all_gaussian(0.5, 6e-7), label="a new one")
    assert Budget.open(path).history[1].cost == Cost.approximate(0.5, 6e-7)
    with pytest.raises(BudgetExceededError):
        Budget.open(path).charge(0.2)
    sql(path, "UPDATE charges SET epsilon = 0 WHERE position = 1")
    with pytest.raises(SpecificationError, match="charge 1 is not as it was written"):
        Budget.open(path)
