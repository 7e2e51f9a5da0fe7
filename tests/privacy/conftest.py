"""Fixtures for the tests of the wall."""

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def fast_folder(tmp_path):
    """A folder in memory where there is one: how long a disk takes to sync is not our time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)
