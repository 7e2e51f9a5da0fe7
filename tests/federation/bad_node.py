"""A party whose node replies with garbage: ``python bad_node.py bad.toml``."""

import io
import itertools
import sys

import numpy as np

from permea.federation.flower.launch import be_quiet, end_with_parent
from permea.federation.flower.node import Node, serve_node
from permea.federation.flower.replies import party_replies
from permea.federation.service.config import PartyConfig


def huge():
    """An array of 80 TB, and nothing in it."""
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return {"distances": buffer.getvalue(), "fingerprint": ""}


GARBAGE = [
    huge,
    lambda: {"distances": b"PK\x03\x04 a broken zip", "fingerprint": ""},
    lambda: {"distances": "[" * 100_000, "fingerprint": "[" * 100_000},
    lambda: {"text": '{"schema": {"n_features": 1e999}}'},
    lambda: {"failure": "\x1b[2J" + "x" * 10_000, "final": True},
    lambda: {},
]


def main(path):
    be_quiet()
    end_with_parent()
    config = PartyConfig.from_file(path)
    honest = party_replies(config.party())
    number = itertools.count()
    replies = {
        "introduce": honest["introduce"],
        "distances": lambda record: GARBAGE[next(number) % len(GARBAGE)](),
    }
    serve_node(Node(config.address, config.ca, config.key, lambda: replies))


if __name__ == "__main__":
    main(sys.argv[1])
