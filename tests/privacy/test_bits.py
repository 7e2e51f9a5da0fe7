"""No words of the cryptographic stream serve twice: not after a fork, a copy, or among threads."""

import copy
import os
import pickle
import threading
import warnings

import numpy as np
import pytest

from permea.privacy.sampling import CryptographicBits, SeededBits, this_process

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
COUNT = 64


def in_fork(work):
    """What ``work`` returns in a forked child; it must be bytes."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads may exist in pytest
        child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(work())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@needs_fork
@pytest.mark.parametrize("drawn_before", [0, 5])
def test_a_forked_child_does_not_repeat_the_words_of_its_parent(drawn_before):
    bits = CryptographicBits()
    bits.words(drawn_before)
    children = [in_fork(lambda: bits.words(COUNT).tobytes()) for _ in range(2)]
    streams = [np.frombuffer(child, np.uint64) for child in children] + [bits.words(COUNT)]
    assert all(len(stream) == COUNT for stream in streams)
    assert len(np.unique(np.concatenate(streams))) == 3 * COUNT


@needs_fork
def test_a_grandchild_does_not_repeat_either():
    bits = CryptographicBits()

    def child():
        return bits.words(COUNT).tobytes() + in_fork(lambda: bits.words(COUNT).tobytes())

    words = np.frombuffer(in_fork(child), np.uint64)
    assert len(np.unique(np.concatenate([words, bits.words(COUNT)]))) == 3 * COUNT


@needs_fork
def test_a_fork_while_a_thread_draws_does_not_hang():
    bits = CryptographicBits()
    done = threading.Event()

    def draw():
        while not done.is_set():
            bits.words(100_000)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(10):
            assert len(in_fork(lambda: bits.words(COUNT).tobytes())) == 8 * COUNT
    finally:
        done.set()
        thread.join()


@needs_fork
def test_a_fork_is_another_process():
    here = this_process()
    assert in_fork(lambda: b"same" if this_process() == here else b"other") == b"other"
    assert this_process() == here


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda bits: pickle.loads(pickle.dumps(bits))]
)
def test_a_copy_does_not_repeat_the_words_of_its_original(copied):
    bits = CryptographicBits()
    bits.words(3)
    other = copied(bits)
    assert isinstance(other, CryptographicBits)
    assert len(np.unique(np.concatenate([bits.words(COUNT), other.words(COUNT)]))) == 2 * COUNT


def test_threads_never_get_the_same_block():
    bits = CryptographicBits()
    start, found = threading.Barrier(4), []

    def draw():
        start.wait()
        found.extend(bits.words(1 + 2 * k % 33) for k in range(2000))  # odd counts cut blocks

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = np.concatenate(found)
    assert len(np.unique(words)) == len(words)


def test_seeded_bits_stay_repeatable():
    first, second = SeededBits(5), SeededBits(5)
    assert np.array_equal(first.words(COUNT), second.words(COUNT))
    assert np.array_equal(copy.deepcopy(first).words(COUNT), second.words(COUNT))
