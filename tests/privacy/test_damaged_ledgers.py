"""Ledger files that were changed, cut, killed in the middle or cannot be written: never less than was spent."""

import contextlib
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from dpmodel.cli import main
from dpmodel.errors import DPModelError, NewLedgerWarning, SpecificationError
from dpmodel.privacy import Budget
from dpmodel.privacy import ledger as ledgers

LABELS = ("demand plan", "naïve “label”", "", "a\0b", "x" * 3000, "ß" * 40)
SPENT = 0.1 * len(LABELS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def charged(path):
    budget = Budget(2.0, 1e-6, ledger=path)
    for label in LABELS:
        budget.charge(0.1, 1e-8, label=label)
    return path


def sql(path, *statements):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


# ------------------------------------------------------------------ bytes
def corrupted(data, rng):
    """Bytes changed, set to 0, exchanged, moved or cut; near the entries as often as anywhere."""
    data, kind = bytearray(data), rng.randrange(6)
    entries = [at for word in (b"demand", b"label", b"charges", b"xxxx") for at in [data.find(word)] if at >= 0]
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        near = rng.choice(entries) + rng.randint(-120, 60) if rng.random() < 0.5 else rng.randrange(len(data))
        at = min(max(near, 0), len(data) - 1)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            size = rng.choice([1, 8, 512])
            data[at : at + size] = bytes(min(size, len(data) - at))
        elif kind == 3:
            other, size = rng.randrange(len(data)), rng.choice([8, 64, 4096])
            data[at : at + size] = data[other : other + size]
        elif kind == 4:
            del data[at : at + rng.choice([1, 100])]
        else:
            return bytes(data[: at + 1])
    return bytes(data)


def survives(path, whole, seed):
    """Whatever is asked of a damaged file is refused as this package refuses, or answered as if it were whole."""
    path.write_bytes(corrupted(whole, random.Random(seed)))
    attempts = [
        lambda: Budget.open(path).spent.epsilon,
        lambda: Budget(2.0, 1e-6, ledger=path).spent.epsilon,
        lambda: Budget.open(path).charge(0.1) and Budget.open(path).spent.epsilon - 0.1,
    ]
    refused = 0
    for attempt in attempts:
        try:
            assert attempt() == pytest.approx(SPENT), seed
        except DPModelError as error:
            assert isinstance(error, SpecificationError) and str(path) in error.what and error.remedy
            refused += 1
    return refused


REST = [pytest.param(range(at, at + 900), marks=pytest.mark.slow) for at in (300, 1200, 2100)]


@pytest.mark.parametrize("seeds", [range(300), *REST], ids=str)
def test_damage_is_refused_and_forgets_nothing(charged, seeds):
    whole, refused = charged.read_bytes(), 0
    kept = Budget.open(charged)
    for seed in seeds:
        refused += survives(charged, whole, seed)
        assert str(kept) and repr(kept) and kept._repr_html_()
    assert refused > len(seeds), "most of it is seen"


def test_the_fuzz_finds_a_ledger_without_checksums(charged, monkeypatch):
    """Twin: the entries are believed as they stand."""
    monkeypatch.setattr(ledgers, "_checksum", lambda *entries: "")
    charged.unlink()
    budget = Budget(2.0, 1e-6, ledger=charged)
    for label in LABELS:
        budget.charge(0.1, 1e-8, label=label)
    whole = charged.read_bytes()
    with pytest.raises(AssertionError):
        for seed in range(350, 1000):
            survives(charged, whole, seed)


# ------------------------------------------------------------------ entries
FREE = tuple(f"DROP TRIGGER {name}" for name in (
    "charges_keep", "charges_same", "charges_once", "header_keep", "header_same", "header_once",
))  # fmt: skip
CHANGED = {
    "less": ("UPDATE charges SET epsilon = .01 WHERE position = 3", "charge 3 is not"),
    "a last bit": ("UPDATE charges SET epsilon = 0.10000000000000002 WHERE position = 3", "charge 3 is not"),
    "delta": ("UPDATE charges SET delta = 0 WHERE position = 6", "charge 6 is not"),
    "an event": ("UPDATE charges SET event = event || ' ' WHERE position = 3", "charge 3 is not"),
    "a label": ("UPDATE charges SET label = label || ' ' WHERE position = 2", "charge 2 is not"),
    "a time": ("UPDATE charges SET time = '' WHERE position = 1", "charge 1 is not"),
    "bytes": ("UPDATE charges SET label = x'ff00' WHERE position = 4", "not a usable"),
    "no text": ("UPDATE charges SET label = CAST(x'ff41' AS TEXT) WHERE position = 4", "cannot be used"),
    "infinite": ("UPDATE charges SET epsilon = 9e999 WHERE position = 2", "charge 2 is not"),
    "the first": ("DELETE FROM charges WHERE position = 1", "charge 1 is not"),
    "one between": ("DELETE FROM charges WHERE position = 3", "charge 3 is not"),
    "the last": ("DELETE FROM charges WHERE position = 6", "of 6 charges it holds 5"),
    "all": ("DELETE FROM charges", "of 6 charges it holds 0"),
    "replaced": (
        "REPLACE INTO charges SELECT position, 'x', time, 0, 0, label, event, checksum FROM charges WHERE position = 5",
        "charge 5 is not",
    ),
    "two exchanged": ("UPDATE charges SET position = CASE position WHEN 2 THEN -3 WHEN 3 THEN -2 END "
                      "WHERE position IN (2, 3)", "charge 1 is not"),
    "forged": ("INSERT INTO charges VALUES (7, 'x', '', 0, 0, '', '', 'x')", "charge 7 is not"),
    "other rules": ("UPDATE header SET composition = 'gaussian'", "its header"),
    "wider": ("UPDATE header SET epsilon = 9", "its header, with the budget"),
    "another name": ("UPDATE header SET name = 'x'", "its header"),
    "no header": ("DELETE FROM header", "its header"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_verify_says_where_an_entry_was_changed(case, charged, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["ledger", "verify", str(charged)]) == 0
    assert "whole: 6 charges" in capsys.readouterr().out
    statement, where = CHANGED[case]
    kept = Budget.open(charged)
    sql(charged, *FREE, statement)
    assert main(["ledger", "verify", str(charged)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert where in said
    assert ("those before it add up to epsilon 0.2, delta 2e-8" in said) == ("charge 3" in where)
    for attempt in (lambda: kept.charge(0.1), lambda: kept.spent, lambda: Budget(2.0, 1e-6, ledger=charged)):
        with pytest.raises(SpecificationError):
            attempt()


def test_an_older_copy_is_refused_by_who_has_seen_more(charged):
    budget, older = Budget.open(charged), charged.read_bytes()
    budget.charge(0.5)
    dumped = pickle.dumps(budget)
    charged.write_bytes(older)
    for attempt in (lambda: budget.spent, lambda: budget.charge(0.1), lambda: pickle.loads(dumped)):
        with pytest.raises(SpecificationError, match="does not go on from what it held before, with 7 charges"):
            attempt()
    charged.unlink()
    Budget(2.0, 1e-6, ledger=charged)
    with pytest.raises(SpecificationError, match="does not go on"):
        pickle.loads(dumped)


# ------------------------------------------------------------------ new and missing
def test_a_new_ledger_says_so_and_a_missing_one_is_missing(path, capsys):
    for attempt in (lambda: Budget.open(path), lambda: Budget.open(str(path))):
        with pytest.raises(SpecificationError, match="there is no ledger"):
            attempt()
    for what in ("show", "verify"):
        assert main(["ledger", what, str(path)]) == 2
        assert "there is no ledger" in capsys.readouterr().err and not path.exists()
    for _ in range(2):  # deleted, and opened again
        with pytest.warns(NewLedgerWarning, match="nothing counts as spent") as caught:
            Budget(1.0, ledger=path)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Budget(1.0, ledger=path).charge(0.1)
            assert Budget.open(path).spent.epsilon == 0.1
        path.unlink()


@pytest.mark.parametrize("label", ["\ud800", "a\udfffb"])
def test_a_label_that_is_no_text_is_refused_before_the_charge(label, path):
    for budget in (Budget(1.0), Budget(1.0, ledger=path)):
        with pytest.raises(SpecificationError, match="surrogate"):
            budget.charge(0.1, label=label)
        assert budget.spent.epsilon == 0


# ------------------------------------------------------------------ no room, no right
@contextlib.contextmanager
def files_of(most):
    """Files of this process cannot grow beyond ``most`` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_no_charge_and_is_told(path):
    told, size = [], 0
    for most in (0, 5, 4096, 10000):  # while it is created
        with files_of(most), pytest.raises(SpecificationError, match=r"cannot be used: .*(large|full|space)"):
            Budget(1e6, ledger=path)
        assert not list(path.parent.iterdir())
    budget, spent = Budget(1e6, ledger=path), 0
    for most in [*range(0, 60000, 3000)] * 2:
        with files_of(most):
            for _ in range(5):
                try:
                    budget.charge(1.0, label="x" * 900)
                    spent += 1
                except SpecificationError as error:
                    told.append(error.what)
        assert spent <= Budget.open(path).spent.epsilon <= spent + len(told)
        size = max(size, path.stat().st_size)
    assert told and spent and size > 50000 and all("cannot be used" in each for each in told)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs another user to fail as")
def test_a_folder_and_a_file_that_are_only_to_be_read():
    folder = Path(tempfile.mkdtemp())
    try:
        file = folder / "budget.db"
        Budget(1.0, ledger=file).charge(0.5)
        folder.chmod(0o755)
        os.seteuid(65534)
        try:
            assert Budget.open(file).spent.epsilon == 0.5
            for attempt in (lambda: Budget.open(file).charge(0.1), lambda: Budget(1.0, ledger=folder / "new.db")):
                with pytest.raises(SpecificationError, match=r"readonly|unable to open|Permission"):
                    attempt()
        finally:
            os.seteuid(0)
        file.chmod(0)
        os.seteuid(65534)
        try:
            with pytest.raises(SpecificationError, match="unable to open"):
                Budget.open(file)
        finally:
            os.seteuid(0)
        assert os.listdir(folder) == ["budget.db"] and Budget.open(file).spent.epsilon == 0.5
    finally:
        shutil.rmtree(folder)


def test_an_interrupt_before_the_close_locks_nobody_out(path, monkeypatch):
    """The connection lives as long as the frames of the traceback, which somebody holds."""
    monkeypatch.setattr(ledgers, "_BUSY_SECONDS", 0.2)
    budget = Budget(1.0, ledger=path)
    honest = budget._check

    class Open(contextlib.closing):
        def __exit__(self, kind, *rest):
            if kind is not KeyboardInterrupt:
                super().__exit__(kind, *rest)

    def interrupted(spent, options):
        raise KeyboardInterrupt

    held = []
    for _ in range(2):
        monkeypatch.setattr(ledgers.contextlib, "closing", Open)
        monkeypatch.setattr(budget, "_check", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            budget.charge(0.1)
        held.append(caught)
        assert budget.spent.epsilon == pytest.approx(0.1 * (len(held) - 1))  # read while the traceback lives
        monkeypatch.setattr(budget, "_check", honest)
        budget.charge(0.1)
    assert Budget.open(path).spent.epsilon == pytest.approx(0.2)


def test_a_handler_that_reads_in_the_middle_of_a_charge_ends_it(path, monkeypatch):
    """The charge is refused in words that are true of the file, and not counted."""
    budget = Budget(1.0, ledger=path)
    honest = budget._check

    def handled(spent, options):
        assert budget.spent.epsilon == 0
        honest(spent, options)

    monkeypatch.setattr(budget, "_check", handled)
    with pytest.raises(SpecificationError, match="cannot be used"):
        budget.charge(0.1)
    monkeypatch.setattr(budget, "_check", honest)
    budget.charge(0.2)
    assert Budget.open(path).spent.epsilon == pytest.approx(0.2)


# ------------------------------------------------------------------ kills
SPENDER = """
import sys, warnings
warnings.simplefilter("ignore")
from dpmodel.privacy import Budget
print("ready", flush=True)
for file in range(1000):
    budget = Budget(1e6, ledger=f"{sys.argv[1]}/{file}.db")
    print("charged", end="", flush=True)
    for charge in range(file % 7):
        budget.charge(1.0, label="x" * 500)
        print("+", end="", flush=True)
    print(flush=True)
"""


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 30), marks=pytest.mark.slow)], ids=str)
def test_kills_leave_ledgers_alone(tmp_path, seeds):
    """Every charge that was told is in its file, and no folder or draft stays behind."""
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            [sys.executable, "-c", SPENDER, folder], env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(random.Random(seed).uniform(0.0, 0.2))
            process.send_signal(signal.SIGKILL)
            told = process.stdout.read().split("\n")
        for file, charges in enumerate(line for line in told if line):
            spent = Budget.open(folder / f"{file}.db").spent.epsilon
            assert charges.count("+") <= spent <= charges.count("+") + 1
        names = {Path(name).suffix for name in os.listdir(folder)}
        assert names <= {".db", ".db-journal"}
