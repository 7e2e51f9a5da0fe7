"""The bar is seen where it should be, and the items always pass."""

import io

import pytest

from permea._progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("wish", "terminal", "seen"),
    [("", True, True), ("", False, False), ("0", True, False), ("1", False, True)],
)
def test_when_it_is_drawn(monkeypatch, wish, terminal, seen):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("PERMEA_PROGRESS", wish)
    assert list(progress(range(3), desc="work")) == [0, 1, 2]
    assert ("work" in stream.getvalue()) is seen
