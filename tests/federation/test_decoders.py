"""Decoders of bytes from strangers: they give rows or `DecodeError`, quickly, and nothing else."""

import io
import json
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from permea.federation.service.decode import (
    ARROW,
    CSV,
    JSON,
    NPY,
    DecodeError,
    Limits,
    decode,
    read_array,
)
from permea.federation.service.queue import pack_array

KINDS = (JSON, CSV, ARROW, NPY)


def stream(table, **options):
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


TABLE = pa.table(
    {
        "a": [1.0, None, 3.0],
        "b": ["x", None, "z"],
        "c": pa.array(["u", "v", "u"]).dictionary_encode(),
        "d": [True, False, None],
        "e": [1, 2, 3],
    }
)
SEEDS = {
    JSON: json.dumps({"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]}).encode(),
    CSV: b'a,b\n1,"x,\ny"\n2,z\n',
    ARROW: stream(TABLE),
    NPY: pack_array(np.arange(12.0).reshape(4, 3)),
}


def used(kind, body):
    """What a service does with a body; whether it was rows."""
    try:
        rows = decode(body, kind, Limits(rows=1000, cells=100_000))
        assert 1 <= len(rows) <= 1000
        assert rows.n_columns >= 1
        rows.numbers(None, rows.n_columns)
        if rows.names is not None:
            assert len(rows.frame(rows.names)) == len(rows)
    except DecodeError:
        return False
    return True


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), st.binary(max_size=200))
@example(JSON, b"[" * 200_000)
@example(JSON, b'{"rows":' * 50_000)
@example(JSON, b'{"rows": [[1e999]]}')
@example(JSON, b'{"rows": [[-Infinity]]}')
@example(JSON, b'{"rows": [[' + b"9" * 100_000 + b"]]}")
@example(JSON, b'{"rows": [{}]}')
@example(JSON, b'{"rows": [{"a": 1}, {"b": 1}]}')
@example(JSON, b'{"rows": [[]], "columns": []}')
@example(JSON, b'{"rows": [["\\ud800"]]}')
@example(CSV, b"\xff\xfe")
@example(CSV, b"a,a\n1,2\n")
@example(CSV, b'a\n"')
@example(CSV, b"," * 150_000)
@example(CSV, b"a\n" + b"x" * 200_000)
@example(NPY, b"PK\x03\x04")
@example(NPY, b"\x93NUMPY\x03\x00")
@example(ARROW, struct.pack("<Ii", 0xFFFFFFFF, 2**31 - 1))
@example(ARROW, struct.pack("<Ii", 0xFFFFFFFF, 0))
def test_any_bytes(kind, body):
    used(kind, body)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), st.data())
def test_damaged_bodies(kind, data):
    """Bytes flipped, cut out, repeated: a decoder must not trust any length that it reads."""
    body = bytearray(SEEDS[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        action = data.draw(st.sampled_from(["flip", "word", "cut", "repeat"]))
        if action == "flip":
            body[at] = data.draw(st.integers(0, 255))
        elif action == "word":
            value = data.draw(st.sampled_from([0, 1, 2**31 - 1, 2**32 - 1, 2**16]))
            body[at : at + 4] = struct.pack("<I", value)
        elif action == "cut":
            del body[at : at + data.draw(st.integers(1, 16))]
        else:
            body[at:at] = body[at : at + 32]
        if not body:
            break
    used(kind, bytes(body))


def test_whole_bodies_are_read():
    assert used(NPY, SEEDS[NPY])
    for kind in (JSON, CSV, ARROW):
        rows = decode(SEEDS[kind], kind)
        assert len(rows.frame(rows.names)) == len(rows) >= 2
        with pytest.raises(DecodeError, match="not a number"):
            rows.numbers(None, rows.n_columns)


def header(shape, descr="<f8"):
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        sink, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return sink.getvalue()


BOMBS = {
    "80 TB of npy": (NPY, header((10**13, 1))),
    "more than there are": (NPY, header((2**62, 2**62)) + bytes(64)),
    "no bytes each": (NPY, header((10**12, 1), "<U0")),
    "negative": (NPY, header((-1, 8)) + bytes(64)),
    "deep": (NPY, header((1,) * 30) + bytes(8)),
    "objects": (NPY, header((1, 1), "|O") + bytes(8)),
    "records": (NPY, header((1, 1), [("a", "<f8")]) + bytes(8)),
    "zstd": (ARROW, stream(pa.table({"a": np.zeros(10**6)}), compression="zstd")),
    "lz4": (ARROW, stream(pa.table({"a": np.zeros(10**6)}), compression="lz4")),
    "compressed dictionary": (
        ARROW,
        stream(
            pa.table({"c": pa.array(["u" * 10**5, "v"] * 9).dictionary_encode()}),
            compression="zstd",
        ),
    ),
    "nothing, often": (ARROW, stream(pa.table({"a": pa.nulls(10**9)}))),
    "lists": (ARROW, stream(pa.table({"a": [[1]]}))),
    "no columns": (ARROW, stream(pa.table({}))),
    "runs": (
        ARROW,
        stream(
            pa.table({"a": pa.RunEndEncodedArray.from_arrays(pa.array([10**9], pa.int32()), [1.0])})
        ),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_does_not_go_off(name):
    kind, body = BOMBS[name]
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(DecodeError):
            decode(body, kind)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
        assert pa.total_allocated_bytes() - before < 1_000_000
    finally:
        tracemalloc.stop()


ARRAYS = {
    "matrix": np.eye(3),
    "columns first": np.asfortranarray(np.eye(3)[:2]),
    "texts": np.array(["a", "é"]),
    "numbers": np.arange(5),
    "yes and no": np.array([True, False]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back_as_they_were(name):
    array = ARRAYS[name]
    sink = io.BytesIO()
    np.save(sink, array, allow_pickle=False)
    found = read_array(sink.getvalue())
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype
    found[...] = found  # it may be written to
