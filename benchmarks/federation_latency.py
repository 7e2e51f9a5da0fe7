"""Time of an answer over real processes: SuperLink, TLS, keys, one process for each party.

Loopback, digits of scikit-learn, KAHM models at ε = 16 per pixel. Each figure is the median over
``--repeats`` questions after a first one; processor seconds are of all processes together
(SuperLink, parties, the asking program), per question. In the clear, on ciphertexts (8 bits; where
seal-python is installed), and with models that travelled to the aggregator once (004 Remark 6).
Options: ``--repeats N``, ``--parties 3,10``, ``--ways plain,models,encrypted``.
"""

import tempfile
import time
import warnings
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
from common import options_of, size, table
from sklearn.datasets import load_digits

from permea.federation import Federation
from permea.federation.service.config import FederationConfig
from permea.federation.service.deploy import PartyNode, free_port
from permea.federation.service.direct import connected
from permea.federation.service.tls import make_trial_certificates

warnings.simplefilter("ignore")
SERVER = """
[federation]
timeout = 300
attempts = 1
batch_size = 1000
[federation.parties]
{keys}
[server]
port = {port}
ca = "keys/ca.crt"
certificate = "keys/server.crt"
key = "keys/server.key"
folder = "state"
"""
PARTY = """
[party]
name = "{name}"
model = "{name}.permea"
permits = ["distances", "encrypted", "model"]
client_keys = "any"
[server]
address = "127.0.0.1:{port}"
ca = "keys/ca.crt"
key = "keys/{name}.key"
[guard]
max_batch = 2000
[train]
data = "{name}.npz"
epsilon = 16
delta = 1e-5
low = 0
high = 1
"""


@contextmanager
def federation_of(folder, X, y, number):
    """Running parties, and a channel to them."""
    names, port = [f"p{index}" for index in range(number)], free_port()
    make_trial_certificates(folder / "keys", names)
    keys = "\n".join(f'{name} = "keys/{name}.pub"' for name in names)
    (folder / "federation.toml").write_text(SERVER.format(keys=keys, port=port))
    nodes = []
    try:
        for index, name in enumerate(names):
            np.savez(folder / f"{name}.npz", X=X[index::number], y=y[index::number])
            (folder / f"{name}.toml").write_text(PARTY.format(name=name, port=port))
            nodes.append(PartyNode(folder / f"{name}.toml").start())
        config = FederationConfig.from_file(folder / "federation.toml")
        with connected(config, timeout=300) as channel:
            yield channel, config.settings
    finally:
        for node in nodes:
            node.stop()


def processor_seconds():
    """Of this process and everything that it started."""
    me = psutil.Process()
    everyone = [me, *me.children(recursive=True)]
    times = [process.cpu_times() for process in everyone]
    return sum(t.user + t.system for t in times)


def measure(federation, X, repeats):
    federation.ask(X)  # introductions, models, keys of ciphertexts
    clock = []
    before = processor_seconds()
    for _ in range(repeats):
        start = time.perf_counter()
        answer = federation.ask(X)
        clock.append(time.perf_counter() - start)
        assert answer.is_complete
    return np.median(clock), (processor_seconds() - before) / repeats


def main():
    options = options_of(__doc__)
    options.add_argument("--repeats", type=int, default=size(5, 1))
    options.add_argument("--parties", default=size("3,10", "2"))
    options.add_argument("--ways", default="plain,models,encrypted")
    chosen = options.parse_args()
    X, y = load_digits(return_X_y=True)
    X = X / 16
    queries = np.tile(X, (2, 1))
    ways = {"plain": {}, "models": {"topology": "models"}}
    if find_spec("seal"):
        ways["encrypted"] = {"encrypted": True, "bits": 8}
    ways = {way: ways[way] for way in chosen.ways.split(",") if way in ways}
    rows = []
    for number in map(int, chosen.parties.split(",")):
        with (
            tempfile.TemporaryDirectory() as folder,
            federation_of(Path(folder), X, y, number) as (channel, settings),
        ):
            for way, extra in ways.items():
                federation = Federation.over(channel, **{**settings, **extra})
                for count in size((1, 100, 2000), (1,)):
                    repeats = 1 if way == "encrypted" and count > 1 else chosen.repeats
                    wall, processor = measure(federation, queries[:count], repeats)
                    rows.append([number, way, count, f"{wall:.2f}", f"{processor:.2f}"])
                    print(*rows[-1], flush=True)
    print()
    table(["parties", "way", "queries", "seconds", "processor seconds"], rows)


if __name__ == "__main__":
    main()
