"""A federation on the network behind the service: real processes, TLS on both sides."""

import signal

import numpy as np
import psutil
import pytest
from flower_world import SLOW_MACHINE, make_trial
from service_world import Served

from permea.federation import Federation, Party
from permea.federation.service.client import ServiceError
from permea.federation.service.deploy import PartyNode
from permea.federation.service.queue import load_keys, wait_for

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
    pytest.mark.timeout(1200),
]
NAMES = ("clinic-a", "clinic-b")


def ready(served):
    """Wait until the service says that it can answer."""

    def is_ready():
        try:
            return served.client("none")._json("GET", "/ready")["ready"]
        except ServiceError as error:
            return error.status == 0 and served.process.poll() is not None

    wait_for(is_ready, "the service", 2 * SLOW_MACHINE, lambda: None)


def test_the_same_interface_asks_parties_on_the_network(digits, tmp_path):
    X, X_test, y, _ = digits
    make_trial(tmp_path, {n: (X[i::2], y[i::2]) for i, n in enumerate(NAMES)}, quorum=2, timeout=60)
    served = Served(tmp_path, "--federation", tmp_path / "federation.toml", start=False)
    served.state = tmp_path / "state" / "queue"
    token = served.token("ward 3", budget=1000)
    operator = served.token("operator", scopes=["operate"])
    nodes = {}
    try:
        served.start()
        with pytest.raises(ServiceError, match=r"not enough parties|worker does not run") as error:
            served.client("none")._json("GET", "/ready")
        assert error.value.status == 503
        early = served.client(token).submit(X_test[:30])  # before any party is there
        for name in NAMES:
            nodes[name] = PartyNode(tmp_path / f"{name}.toml").start()
        ready(served)
        client = served.client(token)
        found = client.ask(X_test[:20])
        parties = [Party.from_file(name, tmp_path / f"{name}.permea") for name in NAMES]
        expected = Federation(parties).ask(X_test[:30]).labels
        assert np.array_equal(found.labels, expected[:20])
        assert found.who_answered == NAMES
        waited = client.wait(early, timeout=2 * SLOW_MACHINE)
        assert np.array_equal(waited.labels, expected)
        about = client.about()
        assert about["takes"]["n_features"] == X.shape[1]
        assert about["parties"] == dict.fromkeys(NAMES, "unverified claim")
        text = served.client(operator)._exchange  # a bare request: metrics are no JSON
        assert text("GET", "/metrics", None, {"authorization": f"Bearer {operator}"})[0] == 200

        nodes["clinic-b"].stop(kill=True)
        late = client.submit(X_test[:5])
        assert client.status(late)["state"] in ("queued", "running")
        family = psutil.Process(served.process.pid).children(recursive=True)
        assert len(family) >= 2
        assert served.stop(kill=True) == -signal.SIGKILL
        assert psutil.wait_procs(family, timeout=60)[1] == []  # nobody holds the port
        served.start()
        nodes["clinic-b"] = PartyNode(tmp_path / "clinic-b.toml").start()
        again = served.client(token).wait(late, timeout=4 * SLOW_MACHINE)
        assert np.array_equal(again.labels, expected[:5])
        assert served.client(token).about()["you"]["used"] == 20 + 30 + 5
        family = psutil.Process(served.process.pid).children(recursive=True)
        assert served.stop() == 0
        assert psutil.wait_procs(family, timeout=60)[1] == []
    finally:
        served.stop(kill=True)
        for node in nodes.values():
            node.stop()


def test_encrypted_questions_go_through_the_network(digits, tmp_path):
    """The service and the aggregator see rows and ciphertexts; labels are decrypted here."""
    pytest.importorskip("seal")
    X, X_test, y, _ = digits
    shares = {name: (X[i::2], y[i::2]) for i, name in enumerate(NAMES)}
    make_trial(tmp_path, shares, quorum=2, batch_size=64, timeout=120, encrypted=True)
    served = Served(tmp_path, "--federation", tmp_path / "federation.toml", start=False)
    served.state = tmp_path / "state" / "queue"
    token = served.token("ward 3", budget=1000)
    nodes = {}
    try:
        served.start()
        for name in NAMES:
            nodes[name] = PartyNode(tmp_path / f"{name}.toml").start()
        ready(served)
        client = served.client(token)
        found = client.ask_encrypted(X_test[:20], keys=tmp_path / "mine", timeout=4 * SLOW_MACHINE)
        assert (
            client.key_digest(tmp_path / "mine")
            == load_keys(next((tmp_path / "mine").iterdir())).public.digest
        )
        parties = [Party.from_file(name, tmp_path / f"{name}.permea") for name in NAMES]
        distances = Federation(parties).distances(X_test[:20])
        chosen = distances[np.arange(20), found.labels.astype(int)]
        assert np.all(chosen - distances.min(axis=1) < 8 / 254)
        assert found.who_answered == NAMES
        with pytest.raises(ServiceError, match="encrypted questions only"):
            client.ask(X_test[:2])
        secret = next((tmp_path / "mine").rglob("secret.key")).read_bytes()[-256:-192]
        held = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
        assert not any(secret in path.read_bytes() for path in held)
        assert served.stop() == 0
    finally:
        served.stop(kill=True)
        for node in nodes.values():
            node.stop()
