"""Many processes on one ledger: each tries to charge, and tells what it got."""

import multiprocessing
import os
import random
import signal
import time

from permea.privacy import BudgetExceededError, Privacy
from permea.privacy.release import plan

ONE = Privacy(epsilon=1, domain=(0, 1))
FORK = multiprocessing.get_context("fork")


def event(dataset="ward"):
    """A release of ε = 1 per entry."""
    return plan(ONE, 2).event(dataset, "a try")


def attempt(ledger, tries):
    """Charge as often as the ledger allows, at most ``tries`` times: numbers of the charges."""
    paid = []
    for _ in range(tries):
        try:
            receipt = ledger.charge(event())
        except BudgetExceededError:
            continue
        ledger.released(receipt)
        paid.append(receipt.number)
    return paid


def _attempt_and_tell(ledger, tries, queue):
    queue.put(attempt(ledger, tries))


def in_processes(ledger, processes, tries):
    """All charges that forked processes made, each with the ledger of their parent."""
    queue = FORK.SimpleQueue()
    children = [
        FORK.Process(target=_attempt_and_tell, args=(ledger, tries, queue))
        for _ in range(processes)
    ]
    for child in children:
        child.start()
    paid = [number for _ in children for number in queue.get()]
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * processes
    return paid


def charge_and_release(ledger, folder, ready):
    """Charge, write the release to a file, mark it; again and again until killed."""
    ready.set()
    while True:
        receipt = ledger.charge(event())
        (folder / f"release-{receipt.number}-{receipt.hash}").touch()
        ledger.released(receipt)


def killed_at_random(ledger, folder, times, *, longest, seed=0):
    """Start a process that releases, and kill it after a random while; ``times`` times."""
    moments = random.Random(seed)
    for _ in range(times):
        ready = FORK.Event()
        child = FORK.Process(target=charge_and_release, args=(ledger, folder, ready))
        child.start()
        ready.wait()
        time.sleep(moments.uniform(0, longest))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL


def check_releases(ledger, folder):
    """Every release has its charge; every mark has its release. Returns the number of each."""
    charged = {one.number: one.status for one in ledger.events}
    released = set()
    for file in folder.iterdir():
        _, number, _ = file.name.split("-")
        assert int(number) in charged, "a release without its charge"
        released.add(int(number))
    marked = {number for number, status in charged.items() if status == "released"}
    assert marked <= released
    return len(charged), len(released), len(marked)
