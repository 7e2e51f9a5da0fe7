"""Threads, forks, processes and kills on one ledger: nothing is spent twice, nothing is lost."""

import os
import pickle
import shutil
import threading

import joblib
import numpy as np
import pytest
from ledger_world import (
    FORK,
    ONE,
    attempt,
    check_releases,
    event,
    in_processes,
    killed_at_random,
)

from permea import KAHMClassifier
from permea.privacy import Budget, BudgetExceededError, Ledger, release

BUDGET_FOR_ONE = Budget(epsilon=1, unit="entry")
X = np.zeros((4, 2))


def of_kind(kind, folder):
    return (
        Ledger(BUDGET_FOR_ONE)
        if kind == "memory"
        else Ledger(folder / "l.db", budget=BUDGET_FOR_ONE)
    )


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_six_threads_on_a_budget_for_one(kind, fast_folder):
    ledger = of_kind(kind, fast_folder)
    ready = threading.Barrier(6)
    outcomes = []

    def run():
        ready.wait()
        try:
            outcomes.append(release(X, ONE, ledger=ledger).certificate.ledger_number)
        except BudgetExceededError:
            outcomes.append(None)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == [1, *[None] * 5]
    assert len(ledger) == 1
    assert ledger.spent.epsilon == 1


def test_threads_with_ledgers_of_their_own_share_the_file(fast_folder):
    path = fast_folder / "l.db"
    paid = []
    threads = [
        threading.Thread(
            target=lambda: paid.extend(attempt(Ledger(path, budget=Budget(epsilon=20)), 10))
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paid) == len(set(paid)) == len(Ledger(path)) == 20


def forked(action):
    """Exit code of a child that runs ``action``."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            code = action()
        finally:
            os._exit(code)
    return child


def fits(ledger):
    """0 for a fit, 1 for no budget, 2 for a ledger that cannot be charged here."""
    random = np.random.default_rng(0)
    model = KAHMClassifier(n_components=2, n_layers=1, privacy=ONE, ledger=ledger, n_jobs=1)
    try:
        model.fit(random.random((20, 2)), np.arange(20) % 2)
    except BudgetExceededError:
        return 1
    except RuntimeError as error:
        return 2 if "Ledger('ledger.db')" in str(error) else 3
    return 0


@pytest.mark.parametrize(("kind", "codes"), [("file", [0, 1, 1]), ("memory", [2, 2, 2])])
def test_three_forked_fits_on_a_budget_for_one(kind, codes, fast_folder):
    """In memory, the charge of a child would be lost, so it is refused."""
    ledger = of_kind(kind, fast_folder)
    children = [forked(lambda: fits(ledger)) for _ in range(3)]
    found = sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    assert found == codes
    assert len(ledger) == (kind == "file")
    assert fits(ledger) == (kind == "file")  # the owner can still charge
    assert len(ledger) == 1


def test_64_processes_with_50_tries_each(fast_folder):
    """3200 tries on a budget for 1000."""
    path = fast_folder / "l.db"
    ledger = Ledger(path, budget=Budget(epsilon=1000, unit="entry"))
    paid = in_processes(ledger, 64, 50)
    again = Ledger(path)
    assert len(paid) == len(set(paid)) == 1000
    assert [one.number for one in again.events] == sorted(paid)
    assert {one.status for one in again.events} == {"released"}
    assert again.spent.epsilon == ledger.spent.epsilon == 1000
    assert again.remaining.epsilon == 0


def test_killed_at_200_random_moments(fast_folder):
    """No release without its charge, and the ledger is whole after every kill."""
    folder = fast_folder / "releases"
    folder.mkdir()
    path = fast_folder / "l.db"
    ledger = Ledger(path)
    for part in range(20):
        killed_at_random(ledger, folder, 10, longest=0.02, seed=part)
        check_releases(Ledger(path), folder)
    charged, released, marked = check_releases(Ledger(path), folder)
    assert charged > 40  # the kills came at moments when something was going on
    assert marked < charged
    assert marked <= released <= charged
    assert ledger.spent.epsilon == charged


def test_a_fork_in_the_middle_of_other_threads_charges(fast_folder):
    path = fast_folder / "l.db"
    ledger = Ledger(path)
    stop = threading.Event()
    counts = []

    def keep_charging():
        count = 0
        while not stop.is_set():
            ledger.charge(event())
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=keep_charging) for _ in range(2)]
    for thread in threads:
        thread.start()
    paid = in_processes(ledger, 12, 3)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(paid) == 36
    assert len(Ledger(path)) == 36 + sum(counts)


def test_a_pickled_ledger_is_the_same_account_elsewhere(tmp_path, monkeypatch):
    path = tmp_path / "l.db"
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("l.db", budget=Budget(epsilon=2))
    monkeypatch.chdir("/")
    raw = pickle.dumps(ledger)
    assert ledger._chain.key not in raw
    travelled = pickle.loads(raw)
    travelled.charge(event())
    assert len(ledger) == len(travelled) == 1
    raw = pickle.dumps(ledger)
    path.unlink()
    Ledger(path, budget=Budget(epsilon=2))
    with pytest.raises(ValueError, match="not the one that paid"):
        pickle.loads(raw).charge(event())  # noticed: another ledger, or an older copy


def test_a_restored_copy_is_noticed_by_a_pickled_ledger(tmp_path):
    path, backup = tmp_path / "l.db", tmp_path / "backup.db"
    ledger = Ledger(path)
    shutil.copy(path, backup)
    ledger.charge(event())
    raw = pickle.dumps(ledger)
    shutil.copy(backup, path)
    with pytest.raises(ValueError, match="older copy"):
        len(pickle.loads(raw))


def test_a_pickled_ledger_in_memory_is_a_copy_to_read():
    ledger = Ledger(Budget(epsilon=2))
    ledger.charge(event())
    copy = pickle.loads(pickle.dumps(ledger))
    assert copy.events == ledger.events
    assert copy.remaining == ledger.remaining
    with pytest.raises(RuntimeError, match="copy in another process"):
        copy.charge(event())


def test_fits_in_worker_processes_share_the_budget(tmp_path):
    ledger = Ledger(tmp_path / "l.db", budget=BUDGET_FOR_ONE)
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(fits)(ledger) for _ in range(3))
    assert sorted(found) == [0, 1, 1]
    assert len(ledger) == 1


def test_two_processes_create_the_same_ledger(tmp_path):
    path = tmp_path / "l.db"
    queue = FORK.SimpleQueue()

    def create():
        queue.put((Ledger(path, budget=BUDGET_FOR_ONE).id, len(attempt(Ledger(path), 1))))

    children = [FORK.Process(target=create) for _ in range(8)]
    for child in children:
        child.start()
    found = [queue.get() for _ in children]
    for child in children:
        child.join()
    assert len({one for one, _ in found}) == 1
    assert sum(count for _, count in found) == 1
