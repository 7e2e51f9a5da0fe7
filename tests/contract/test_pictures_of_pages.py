"""Pictures of the report, the console and the start page: taken here, and kept in the docs.

The slow tests take them anew. PERMEA_PICTURES=docs/figures keeps what they took:

    PERMEA_PICTURES=docs/figures python -m pytest -m slow tests/contract/test_pictures_of_pages.py
"""

import os
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
sys.path.insert(0, str(ROOT / "tests" / "federation"))
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser, find_browser  # noqa: E402
from cli.conftest import Shell  # noqa: E402

NAMES = ("report", "console", "start")
SIZE = (1200, 900)


def chunks(data):
    """Types and contents of the parts of a PNG file."""
    at = 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12


def shades(path):
    """Size of a PNG picture, and how many different bytes its pixels have."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    parts = list(chunks(data))
    width, height = struct.unpack(">II", parts[0][1][:8])
    pixels = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))
    return (width, height), len(np.unique(np.frombuffer(pixels, np.uint8)))


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_stands_in_the_docs(name):
    path = FIGURES / f"{name}.png"
    (width, height), different = shades(path)
    assert width >= 900
    assert height >= 600
    assert different > 50  # not an empty page
    assert path.stat().st_size < 400_000
    pages = [*(ROOT / "docs").rglob("*.md")]
    assert any(f"figures/{name}.png)" in page.read_text() for page in pages)


@pytest.fixture
def window(tmp_path):
    if find_browser() is None:
        pytest.fail("install chromium and chromedriver: these tests take pictures")
    opened = Browser(tmp_path, SIZE)
    yield opened
    opened.close()


def keep(window, name, tmp_path):
    """Take a picture, check that it shows something, and keep it where that is asked for."""
    window.picture(tmp_path / f"{name}.png")
    assert shades(tmp_path / f"{name}.png")[1] > 50
    if place := os.environ.get("PERMEA_PICTURES"):
        shutil.copy(tmp_path / f"{name}.png", ROOT / place / f"{name}.png")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_first_screen_of_the_report(window, tmp_path):
    assert Shell(tmp_path)("demo").code == 0
    window.open((tmp_path / "permea-demo" / "report.html").as_uri())
    seen = "What is promised, and to whom?", "Is anything void?", "Strongest attack"
    script = """return [...document.querySelectorAll("dt, .figure span")]
        .filter((one) => one.getBoundingClientRect().bottom < innerHeight)
        .map((one) => one.innerText)"""
    assert set(seen) <= set(window.run(script))  # without scrolling
    keep(window, "report", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_console(window, tmp_path):
    from service_world import Served, private_model, rows

    X, y = rows()
    files = [tmp_path / f"{name}.permea" for name in ("north", "south")]
    for path, part in zip(files, (y < 2, y > 0), strict=True):
        private_model(path, X[part], y[part])
    served = Served(tmp_path, "--models", files[0], "--models", files[1])
    try:
        client = served.client(served.token("ward 7", budget=500, per_minute=1000))
        client.wait(client.submit(X[:20]), timeout=60)
        operator = served.token("operator", scopes=["operate"])
        window.open(f"{served.url}/console")
        window.write("#token", operator)
        window.click("main button")
        window.wait_for("Ready to answer")
        keep(window, "console", tmp_path)
    finally:
        assert served.stop() == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_start_page_of_the_site(window, tmp_path):
    site = ROOT / "docs" / "_build" / "html"
    if not (site / "index.html").exists():
        site = tmp_path / "html"
        subprocess.run(
            [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-D", "plot_gallery=0",
             str(ROOT / "docs"), str(site)],
            check=True, timeout=500,
        )  # fmt: skip
    window.open((site / "index.html").as_uri())
    window.wait_for("Results at a glance")
    assert window.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    keep(window, "start", tmp_path)
