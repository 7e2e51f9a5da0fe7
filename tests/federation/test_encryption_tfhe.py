"""The scheme of 001, in an environment of its own: concrete-python pins numpy<2 and setuptools<81.

The slow test takes the interpreter that PERMEA_TFHE_PYTHON names, or this one when it has
concrete-python, or else makes an environment in ``.venv/tfhe`` with ``pip install permea[tfhe]``.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from permea.federation.encryption import get_scheme
from permea.federation.encryption.tfhe import import_fhe

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, sys
import numpy as np
from permea.federation.encryption import (
    EvaluationKey, MismatchError, PublicKey, SecretKey, get_scheme, infinity_code, plain_labels
)
n_parties, n_classes, bits, n_queries = map(int, sys.argv[1:])
scheme = get_scheme("tfhe")(n_parties=n_parties, n_classes=n_classes, bits=bits)
secret, public, evaluation = (key.to_bytes() for key in scheme.keygen())
generator, top = np.random.default_rng(0), infinity_code(bits)
codes = generator.integers(0, top + 1, (n_parties, n_queries, n_classes))
codes[:, 1::4] = generator.integers(0, 2, codes[:, 1::4].shape)  # ties
codes[:, 2::4][generator.random(codes[:, 2::4].shape) < 0.5] = top  # missing classes
codes[:, 3::4] = top  # all equal, nothing known
party = PublicKey.from_bytes(public)
answers = [scheme.encrypt(party, row, i) for i, row in enumerate(codes)]
result = scheme.aggregate(EvaluationKey.from_bytes(evaluation), answers)
labels = scheme.decrypt(SecretKey.from_bytes(secret), result)
shared = SecretKey.from_bytes(secret).parts[1]
other = get_scheme("tfhe")(n_parties=n_parties, n_classes=n_classes, bits=bits + 1)
try:
    other.encrypt(party, codes[0], 0)
    refused = False
except MismatchError:
    refused = True
print(json.dumps({
    "labels": labels.tolist(), "plain": plain_labels(codes).tolist(), "refused": refused,
    "aggregator_has_secret": shared[:4096] in evaluation,
    "parties_share_secret": shared == party.parts[1],
}))
"""


@pytest.fixture(scope="module")
def interpreter():
    if named := os.environ.get("PERMEA_TFHE_PYTHON"):
        return named
    if importlib.util.find_spec("concrete"):
        return sys.executable
    python = ROOT / ".venv" / "tfhe" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "setuptools<81", f"{ROOT}[tfhe]"]
        subprocess.run(install, check=True)
    return str(python)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", [(2, 3, 4, 16), (1, 2, 3, 8), (3, 10, 8, 4)])
def test_tfhe_labels_equal_plain_ones(interpreter, size):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [interpreter, "-W", "ignore", "-c", SCRIPT, *map(str, size)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["labels"] == seen["plain"]
    assert seen["refused"]
    assert not seen["aggregator_has_secret"]
    assert seen["parties_share_secret"]  # as the threat model says


def test_too_many_candidates_are_refused():
    with pytest.raises(ValueError, match="use scheme='bfv'"):
        get_scheme("tfhe")(n_parties=13, n_classes=10)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "concrete", None)
    monkeypatch.setitem(sys.modules, "concrete.fhe", None)
    with pytest.raises(ImportError, match=r"permea\[tfhe\]"):
        import_fhe()
