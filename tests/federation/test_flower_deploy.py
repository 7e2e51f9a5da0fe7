"""A real deployment on loopback: TLS, registered keys, separate processes, and what goes wrong."""

import json
import ssl
import urllib.error
import urllib.request

import numpy as np
import psutil
import pytest
from flower_world import SLOW_MACHINE, make_trial, write_party

from permea.federation import Federation, Party, PartyTimeoutError
from permea.federation.service.deploy import Aggregator, PartyNode
from permea.federation.service.queue import (
    EncryptedQueue,
    JobFailedError,
    Spool,
    load_keys,
    wait_for,
)
from permea.federation.service.tls import make_party_key, make_trial_certificates

pytest.importorskip("flwr")
pytestmark = [pytest.mark.xdist_group("processes")]
GONE = ("no reply in time", "not connected", "went away before it replied")
REFUSALS = {"stranger": "does not accept this key", "misled": "CERTIFICATE_VERIFY_FAILED"}


def in_process(folder, names, **settings):
    """The federation of the same model files, here."""
    parties = [Party.from_file(name, folder / f"{name}.permea") for name in names]
    return Federation(parties, **settings)


def running(numbers):
    return [number for number in numbers if psutil.pid_exists(number)]


@pytest.mark.timeout(900)
def test_a_party_trains_answers_and_leaves_nothing_behind(digits, tmp_path):
    """One SuperLink, one SuperNode: the shortest real thing."""
    X, X_test, y, _ = digits
    port = make_trial(tmp_path, {"clinic-a": (X, y)}, quorum=1)
    with Aggregator(tmp_path / "federation.toml", start_timeout=SLOW_MACHINE) as aggregator:
        node = PartyNode(tmp_path / "clinic-a.toml").start()
        try:
            aggregator.wait_for_parties(["clinic-a"], timeout=SLOW_MACHINE)
            result = aggregator.ask(X_test[:200], client="test", timeout=2 * SLOW_MACHINE)
            everyone = [*_tree(aggregator.link), *_tree(node.process)]
            assert all(_telemetry_is_off(number) for number in running(everyone))
            assert _refuses_plain_text(port)
        finally:
            node.stop()
    assert running(everyone) == []
    expected = in_process(tmp_path, ["clinic-a"], batch_size=250).ask(X_test[:200])
    assert np.array_equal(result.labels, expected.labels)
    assert np.array_equal(result.distances, expected.distances)
    assert result.report["who_answered"] == ["clinic-a"]
    log = (tmp_path / "clinic-a-audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["client"] for line in log] == ["test"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_parties_over_tls_with_a_death_a_return_and_two_intruders(digits, tmp_path):
    X, X_test, y, y_test = digits
    names = ["clinic-a", "clinic-b", "clinic-c"]
    shares = {name: (X[i::3], y[i::3]) for i, name in enumerate(names)}
    port = make_trial(tmp_path, shares, quorum=2, timeout=40)
    queries = X_test[:500]
    nodes = {name: PartyNode(tmp_path / f"{name}.toml") for name in names}
    aggregator = Aggregator(tmp_path / "federation.toml", start_timeout=SLOW_MACHINE)
    seen = set()
    try:
        aggregator.start()
        for node in nodes.values():
            node.start()
        aggregator.wait_for_parties(names, timeout=2 * SLOW_MACHINE)
        seen |= _all_processes(aggregator, nodes.values())

        whole = aggregator.ask(queries, client="test", timeout=10 * SLOW_MACHINE)
        expected = in_process(tmp_path, names, batch_size=250).ask(queries)
        assert np.array_equal(whole.labels, expected.labels)
        assert whole.report["complete"]
        assert np.mean(whole.labels == y_test[:500]) > 0.93

        _check_death_in_the_middle(aggregator, nodes["clinic-c"], queries, tmp_path, names)

        nodes["clinic-c"].start()
        seen |= _all_processes(aggregator, nodes.values())
        wait_for(
            lambda: _log(nodes["clinic-c"]).count("Connected to") == 2,  # connected once more
            "clinic-c",
            timeout=2 * SLOW_MACHINE,
            check=nodes["clinic-c"].process.check,
        )
        again = aggregator.ask(queries[:250], client="test", timeout=10 * SLOW_MACHINE)
        assert again.report["who_answered"] == names
        assert np.array_equal(again.labels, expected.labels[:250])

        _check_intruders(aggregator, tmp_path, port, names)
        seen |= _all_processes(aggregator, nodes.values())
    finally:
        for node in nodes.values():
            node.stop()
        aggregator.stop()
    assert running(seen) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_parties_answer_in_ciphertexts_and_the_aggregator_holds_no_secret(digits, tmp_path):
    pytest.importorskip("seal")
    X, X_test, y, _ = digits
    names = ["clinic-a", "clinic-b", "clinic-c"]
    shares = {name: (X[i::3], y[i::3]) for i, name in enumerate(names)}
    make_trial(tmp_path, shares, quorum=2, batch_size=64, timeout=120, encrypted=True)
    nodes = {name: PartyNode(tmp_path / f"{name}.toml") for name in names}
    aggregator = Aggregator(tmp_path / "federation.toml", start_timeout=SLOW_MACHINE)
    queue = EncryptedQueue(aggregator.spool.folder, keys=tmp_path / "client")
    wait = {"timeout": 10 * SLOW_MACHINE, "check": aggregator.keep_alive}
    seen = set()
    try:
        aggregator.start()
        for node in nodes.values():
            node.start()
        aggregator.wait_for_parties(names, timeout=2 * SLOW_MACHINE)
        seen |= _all_processes(aggregator, nodes.values())

        whole = queue.ask(X_test[:128], client="ward 3", **wait)  # two ciphertexts
        assert whole.report["who_answered"] == names
        _check_labels(whole.labels, tmp_path, names, X_test[:128])

        nodes["clinic-b"].stop(kill=True)
        with pytest.raises(PartyTimeoutError):  # two sets of parties would tell who decides
            queue.ask(X_test[:64], client="ward 3", timeout=30)
        nodes["clinic-b"].start()
        again = queue.ask(X_test[:64], client="ward 3", **wait)
        assert again.report["who_answered"] == names

        with pytest.raises(JobFailedError, match="encrypted queries only"):
            aggregator.spool.wait(
                aggregator.spool.submit(X_test[:3], client="curious"), 10 * SLOW_MACHINE
            )
        seen |= _all_processes(aggregator, [nodes["clinic-a"], nodes["clinic-c"]])
    finally:
        for node in nodes.values():
            node.stop()
        aggregator.stop()
    assert running(seen) == []
    _check_what_the_aggregator_holds(tmp_path)


def _check_labels(labels, folder, names, queries):
    """Those of the same models in the open, up to less than a step from a tie."""
    opened = in_process(folder, names)
    distances = opened.distances(queries)
    chosen = distances[np.arange(len(queries)), np.searchsorted(opened.classes_, labels)]
    assert np.all(chosen - distances.min(axis=1) < 8 / 254)
    assert np.mean(labels == opened.predict(queries)) > 0.95


def _check_what_the_aggregator_holds(folder):
    """Evaluation keys and no secret key, in no file of the aggregator nor of a party."""
    keys = load_keys(next((folder / "client").iterdir()))
    held = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and (folder / "client") not in path.parents
    }
    kept = Spool(folder / "state" / "queue").store.key(keys.evaluation.digest)
    assert kept == keys.evaluation.to_bytes()
    secret = keys.secret.parts[0]
    pieces = [secret[i : i + 64] for i in range(len(secret) // 2, len(secret) // 2 + 4096, 64)]
    assert not any(piece in data for piece in pieces for data in held.values())
    assert any(pieces[0] in path.read_bytes() for path in (folder / "client").rglob("*.key"))


def _check_death_in_the_middle(aggregator, victim, queries, folder, names):
    """Kill a party among many batches: the answer arrives, and says who answered what."""
    before = _sent(victim)
    job = aggregator.spool.submit(np.tile(queries, (40, 1)), client="test")
    wait_for(
        lambda: _sent(victim) > before,
        "the first batch",
        timeout=10 * SLOW_MACHINE,
        check=aggregator.keep_alive,
    )
    victim.stop(kill=True)
    result = aggregator.spool.wait(job, 10 * SLOW_MACHINE, aggregator.keep_alive)
    assert result.report["who_answered"] == names[:2]
    assert result.report["partly"] == ["clinic-c"]
    assert result.report["missing"]["clinic-c"] in GONE
    whole = in_process(folder, names, batch_size=250).ask(queries)
    rest = in_process(folder, names[:2], batch_size=250).ask(queries)
    assert not np.array_equal(whole.distances, rest.distances)
    batches = result.distances.reshape(-1, 250, result.distances.shape[1])
    expected = [one.distances.reshape(-1, 250, 10) for one in (whole, rest)]
    late = [np.array_equal(batch, expected[1][n % 2]) for n, batch in enumerate(batches)]
    assert late == sorted(late)  # all three first, then two
    assert all(
        np.array_equal(batch, expected[gone][n % 2])
        for n, (batch, gone) in enumerate(zip(batches, late, strict=True))
    )


def _check_intruders(aggregator, folder, port, names):
    """A key that nobody registered, and a SuperLink that another authority vouches for."""
    make_party_key(folder / "keys", "stranger")
    write_party(folder, "stranger", port, model="clinic-a")
    make_trial_certificates(folder / "others", ["clinic-a"])
    write_party(
        folder, "misled", port, ca="others/ca.crt", key="keys/clinic-a.key", model="clinic-a"
    )
    for name, reason in REFUSALS.items():
        node = PartyNode(folder / f"{name}.toml").start()
        try:
            wait_for(
                lambda node=node, reason=reason: reason in _log(node),
                f"the refusal of {name}",
                timeout=SLOW_MACHINE,
                check=aggregator.keep_alive,
            )
            assert "Connected" not in _log(node)
            assert aggregator.control.nodes().keys() == set(names)
        finally:
            node.stop()


def _log(node):
    return node.process.log.read_text(errors="replace")


def _sent(node):
    """Distances that the node has delivered."""
    return _log(node).count("Replied: distances")


def _tree(process):
    """Numbers of a process and of all its descendants."""
    return {process.pid, *(child.pid for child in process.descendants())}


def _all_processes(aggregator, nodes):
    numbers = _tree(aggregator.link)
    for node in nodes:
        numbers |= _tree(node.process)
    return numbers


def _telemetry_is_off(number):
    try:
        environment = psutil.Process(number).environ()
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return True
    return (
        environment.get("FLWR_TELEMETRY_ENABLED") == "0"
        and environment.get("RAY_USAGE_STATS_ENABLED") == "0"
    )


def _refuses_plain_text(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30)
    except (urllib.error.URLError, OSError):
        return True
    return False


def test_certificates_and_keys_are_what_they_should_be(tmp_path):
    folder = make_trial_certificates(tmp_path / "keys", ["a"], hosts=("localhost", "127.0.0.1"))
    for secret in ("server.key", "a.key"):
        assert (folder / secret).stat().st_mode & 0o077 == 0
    assert (folder / "a.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    with pytest.raises(FileExistsError, match="not overwritten"):
        make_trial_certificates(folder, ["a"])
    _shake_hands(folder, folder / "ca.crt")
    other = make_trial_certificates(tmp_path / "other", ["a"])
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(folder, other / "ca.crt")


def _shake_hands(folder, ca):
    """A TLS handshake in memory with the server's certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(ca))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert ends[0].version() == "TLSv1.3"
