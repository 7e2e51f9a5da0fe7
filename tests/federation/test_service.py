"""The service over HTTPS, as a process of its own: who gets in, what comes out, what survives."""

import concurrent.futures
import http.client
import io
import json
import re
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from service_world import Served, free_port, private_model, rows

import permea as library
from permea.cli.app import run
from permea.federation.service.client import Client, ServiceError
from permea.federation.service.decode import ARROW, CSV, JSON, NPY
from permea.federation.service.queue import pack_array

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]
X, Y = rows()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    private_model(folder / "ward.permea", X, Y)
    one = Served(folder, "--model", folder / "ward.permea")
    yield one
    assert one.stop() == 0, one.log.read_text()


@pytest.fixture(scope="module")
def token(served):
    return served.token("ward 3")


@pytest.fixture(scope="module")
def expected(served):
    return library.load(served.folder / "ward.permea").predict(X)


def send(served, method, path, token=None, body=None, **headers):
    """A bare request; status, headers, body."""
    context = ssl.create_default_context(cafile=served.folder / "keys" / "ca.crt")
    line = http.client.HTTPSConnection("127.0.0.1", served.port, context=context, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    line.request(method, path, body, sent)
    reply = line.getresponse()
    found = reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
    line.close()
    return found


def test_the_same_labels_from_every_format_and_into_every_format(served, token, expected):
    frame = pd.DataFrame(X, columns=list("abcd"))
    sink = io.BytesIO()
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    bodies = {
        JSON: json.dumps({"rows": X.tolist()}).encode(),
        CSV: frame.to_csv(index=False).encode(),
        ARROW: sink.getvalue(),
        NPY: pack_array(X),
    }
    for kind, body in bodies.items():
        status, headers, found = send(
            served, "POST", "/v1/ask", token, body, content_type=kind, accept=JSON
        )
        assert status == 200, found
        values = json.loads(found)
        assert values["labels"] == expected.tolist()
        assert values["who_answered"] == ["ward"]
        assert headers["permea-answered"] == "ward"
    _, _, found = send(served, "POST", "/v1/ask", token, body, content_type=NPY, accept=CSV)
    assert found.decode().split() == ["label", *map(str, expected)]
    _, _, found = send(served, "POST", "/v1/ask", token, body, content_type=NPY, accept=ARROW)
    assert pa.ipc.open_stream(found).read_all()["label"].to_pylist() == expected.tolist()


def test_the_client_asks_at_once_and_by_jobs(served, token, expected):
    client = served.client(token)
    assert client.about()["takes"]["n_features"] == X.shape[1]
    found = client.ask(pd.DataFrame(X))
    assert np.array_equal(found.labels, expected)
    job = client.submit(X)
    found = client.wait(job, timeout=60)
    assert np.array_equal(found.labels, expected)
    assert found.who_answered == ("ward",)
    assert client.jobs()[0]["job"] == job
    assert client.cancel(job)["state"] == "done"


@pytest.mark.parametrize(
    "path", ["/v1/about", "/v1/jobs", "/v1/jobs/x", "/v1/jobs/x/result", "/v1/terms", "/metrics"]
)
def test_nothing_without_a_token(served, path):
    for bad in (None, "", "permea_0_0", "permea_" + "x" * 60, "a.b.c", "\xe9"):
        status, headers, body = send(served, "GET", path, bad)
        assert status == 401
        assert headers["www-authenticate"].startswith("Bearer")
        assert b"ward" not in body


def test_a_token_is_for_its_scopes_and_its_own_jobs(served, token, expected):
    reader = served.token("reader", scopes=["operate"])
    assert send(served, "GET", "/metrics", reader)[0] == 200
    for method, path in (("POST", "/v1/ask"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs")):
        assert send(served, method, path, reader)[0] == 403
    assert send(served, "GET", "/metrics", token)[0] == 403
    job = served.client(token).submit(X)
    other = served.client(served.token("other"))
    for call in (other.status, other.cancel, lambda name: other.wait(name, timeout=1)):
        with pytest.raises(ServiceError, match="no job") as error:
            call(job)
        assert error.value.status == 404
    assert other.jobs() == []
    assert len(served.client(token).wait(job, timeout=60).labels) == len(expected)


def test_a_revoked_and_an_expired_token_are_as_unknown_as_a_forged_one(served):
    token = served.token("leaver")
    client = served.client(token)
    assert len(client.ask(X[:1]).labels) == 1
    words = ["serve", "token", "revoke", token.split("_")[1], "--folder", str(served.state)]
    assert run(words) == 0
    with pytest.raises(ServiceError, match="not valid") as revoked:
        client.ask(X[:1])
    expired = served.client(served.token("late", days=1e-9))
    with pytest.raises(ServiceError) as late:
        expired.ask(X[:1])
    with pytest.raises(ServiceError) as forged:
        served.client(token[:-1] + "#").ask(X[:1])
    assert str(revoked.value) == str(late.value) == str(forged.value)


def test_a_budget_of_answers_holds_over_questions_and_jobs(served):
    client = served.client(served.token("few", budget=10))
    assert len(client.ask(X[:4]).labels) == 4
    job = client.submit(X[:4])
    assert len(client.wait(job, timeout=60).labels) == 4
    for call in (client.ask, client.submit):
        with pytest.raises(ServiceError, match="8 of the 10 answers") as error:
            call(X[:3])
        assert error.value.status == 403
    with pytest.raises(ServiceError, match="NaN"):
        client.ask(np.full((2, 4), np.nan))
    assert client.about()["you"]["used"] == 8
    assert len(client.ask(X[:2]).labels) == 2


def test_the_rate_is_limited_with_the_time_to_wait(served):
    token = served.token("hasty", per_minute=5)
    assert send(served, "POST", "/v1/ask", token, pack_array(X[:5]), content_type=NPY)[0] == 200
    status, headers, body = send(
        served, "POST", "/v1/ask", token, pack_array(X[:1]), content_type=NPY
    )
    assert status == 429
    assert 0 < int(headers["retry-after"]) <= 61
    assert b"5 of 5 rows per minute" in body


BAD = {
    "no json": (JSON, b"{", 400),
    "deep json": (JSON, b"[" * 100_000, 400),
    "infinite": (JSON, b'{"rows": [[1e999, 0, 0, 0]]}', 400),
    "not a number": (JSON, b'{"rows": [[NaN, 0, 0, 0]]}', 400),
    "null": (JSON, b"null", 400),
    "texts": (JSON, b'{"rows": [["17.25", "x", "y", "z"]]}', 400),
    "other width": (JSON, b'{"rows": [[1, 2]]}', 400),
    "no rows": (JSON, b'{"rows": []}', 400),
    "npy of 80 TB": (NPY, pack_array(np.zeros((1, 4))).replace(b"(1, 4)", b"(9999999999999, 4)"),
                     400),
    "npy cut": (NPY, pack_array(X)[:-3], 400),
    "npy of objects": (NPY, pack_array(X).replace(b"<f8", b"|O "), 400),
    "zip": (NPY, b"PK\x03\x04" + bytes(40), 400),
    "arrow cut": (ARROW, b"\xff\xff\xff\xff\x10\x00\x00\x00", 400),
    "csv uneven": (CSV, b"a,b,c,d\n1,2\n", 400),
    "csv not utf-8": (CSV, b"a,b\n\xff\xfe,1\n", 400),
    "unknown type": ("application/x-pickle", b"\x80\x04.", 400),
    "too large": (NPY, bytes((4 << 20) + 1), 413),
    "too many rows": (NPY, pack_array(np.zeros((10_001, 4), np.float32)), 400),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_refused_and_no_value_is_shown(served, token, case):
    kind, body, expected = BAD[case]
    status, _, found = send(served, "POST", "/v1/ask", token, body, content_type=kind)
    assert status == expected, found
    assert "17.25" not in found.decode()
    assert len(json.loads(found)["error"]) > 10


def test_a_job_in_text_is_limited_earlier_than_one_in_binary(served, token):
    for kind, size, expected in ((CSV, 17 << 20, 413), (NPY, 17 << 20, 400), (NPY, 65 << 20, 413)):
        status, _, _ = send(served, "POST", "/v1/jobs", token, bytes(size), content_type=kind)
        assert status == expected


def test_compressed_bodies_and_lying_lengths_are_refused(served, token):
    status, _, _ = send(
        served, "POST", "/v1/ask", token, b"x", content_type=JSON, content_encoding="gzip"
    )
    assert status == 400
    status, _, _ = send(
        served, "POST", "/v1/ask", token, b"", content_type=JSON, content_length=str(80 << 40)
    )
    assert status == 413


def test_a_job_with_the_same_key_is_the_same_job(served, token):
    body, names = pack_array(X[:2]), set()
    for _ in range(2):
        status, headers, found = send(
            served, "POST", "/v1/jobs", token, body, content_type=NPY, idempotency_key="again"
        )
        assert status == 202
        names |= {json.loads(found)["job"], headers["location"].rpartition("/")[2]}
    assert len(names) == 1


def test_the_state_of_the_service(served, token):
    assert json.loads(send(served, "GET", "/health")[2]) == {"status": "ok"}
    status, headers, body = send(served, "GET", "/ready")
    assert (status, json.loads(body)) == (200, {"ready": True, "reason": ""})
    assert headers["cache-control"] == "no-store"
    assert "strict-transport-security" in headers
    assert "server" not in headers
    schema = json.loads(send(served, "GET", "/openapi.json")[2])
    assert {"/v1/ask", "/v1/jobs", "/v1/jobs/{name}/result", "/metrics"} <= set(schema["paths"])
    assert set(schema["paths"]["/v1/ask"]["post"]["requestBody"]["content"]) == {
        JSON, CSV, ARROW, NPY,
    }  # fmt: skip
    assert send(served, "GET", "/docs")[0] == 404  # that page would load scripts from elsewhere
    operator = served.token("prometheus", scopes=["operate"])
    text = send(served, "GET", "/metrics", operator)[2].decode()
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [-+0-9.e]+')
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not sample.fullmatch(line)] == []
    assert 'permea_requests_total{route="/health",status="200"}' in text
    assert "permea_ready 1" in text
    assert "ward" not in text


def test_plain_text_is_refused_on_a_port_of_tls(served):
    with pytest.raises((urllib.error.URLError, OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"http://127.0.0.1:{served.port}/health", timeout=30)
    with pytest.raises(ServiceError, match="SSLCertVerificationError"):
        Client(served.url, "x")._json("GET", "/health")  # the system does not know our authority


def test_many_clients_at_once_get_their_own_labels(served, token, expected):
    def ask(start):
        client = served.client(token)
        return [client.ask(X[start : start + n]).labels.tolist() for n in range(1, 6)]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(32)))
    assert found == [
        [expected[start : start + n].tolist() for n in range(1, 6)] for start in range(32)
    ]


def test_nothing_that_is_logged_holds_a_token_or_a_query(served, token):
    query = np.full((1, 4), 0.123456789)
    served.client(token).ask(query)
    secret = token.split("_")[2]
    for path in (served.log, served.state / "audit.jsonl"):
        text = path.read_bytes()
        assert secret.encode() not in text
        assert b"0.123456" not in text
        assert query.tobytes()[:8] not in text
    database = b"".join(p.read_bytes() for p in served.state.glob("service.db*"))
    assert secret.encode() not in database
    entries = [json.loads(line) for line in (served.state / "audit.jsonl").open()]
    known = {"number", "time", "event", "asker", "rows", "before", "hash", "job", "backend"}
    assert {name for entry in entries for name in entry} <= known | {"reason"}
    modes = {p.name: p.stat().st_mode & 0o777 for p in served.state.iterdir()}
    assert set(modes.values()) == {0o600}
    assert served.state.stat().st_mode & 0o777 == 0o700
    assert run(["serve", "verify", "--folder", str(served.state)]) == 0


def test_a_second_service_on_the_folder_is_refused_and_the_first_goes_on(served, token, capsys):
    model = str(served.folder / "ward.permea")
    words = ["serve", "--model", model, "--plain-http", "--port", str(free_port())]
    assert run([*words, "--folder", str(served.state)]) == 3
    assert "Another service uses" in capsys.readouterr().err.splitlines()[-1]
    assert len(served.client(token).ask(X[:1]).labels) == 1


def test_the_lines_of_the_guide_work_as_they_stand(served, token, tmp_path):
    """Every line of curl in the guide, against a service."""
    guide = Path(library.__file__).parents[2] / "docs" / "howto" / "serve.md"
    block = re.search(r"## Ask with curl\n\n```bash\n(.*?)```", guide.read_text(), re.DOTALL)[1]
    pd.DataFrame(X[:3], columns=list("abcd")).to_csv(tmp_path / "new.csv", index=False)
    job = served.client(token).submit(X[:3])
    served.client(token).wait(job, timeout=60)
    changes = {
        "permea_3f1c0a9b2d4e_…": token,
        "trial-keys/ca.crt": str(served.folder / "keys" / "ca.crt"),
        "localhost:8443": f"127.0.0.1:{served.port}",
        "[[0.1, 0.7]]": "[[0.1, 0.7, 0.1, 0.7]]",
        "NAME": job,
        "curl ": "curl --silent --show-error --fail --write-out '\\n' ",
    }
    for old, new in changes.items():
        assert old in block, old
        block = block.replace(old, new)
    if shutil.which("curl") is None:
        assert block.count("\nask ") == 6
        return
    done = subprocess.run(
        ["bash", "-e", "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line]
    about, asked, submitted, state, *labels, cancelled = said
    assert json.loads(about)["backend"] == "ward"
    assert len(json.loads(asked)["labels"]) == 1
    assert json.loads(submitted)["state"] in ("queued", "running", "done")
    assert json.loads(state)["state"] == "done"
    assert labels[0] == "label"
    assert len(labels) == 4
    assert json.loads(cancelled)["state"] == "done"
