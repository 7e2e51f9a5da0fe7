"""Other doors of the service: an identity provider, ciphertexts, models, tables by a schema."""

import base64
import json
import time

import jwt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fastapi.testclient import TestClient
from federation_world import blobs, private_party
from hypothesis import given, settings
from hypothesis import strategies as st
from service_world import private_model, rows

from permea import MomentClassifier, Privacy, Schema, load, save
from permea.federation import Federation
from permea.federation.encryption.protocol import KeyHolder
from permea.federation.service.askers import Askers, DeniedError, RateError
from permea.federation.service.backends import (
    BackendError,
    ModelBackend,
    ModelsBackend,
    load_models,
)
from permea.federation.service.http import Outermost, make_app
from permea.federation.service.oidc import Provider
from permea.federation.service.queue import pack_array, wait_for
from permea.federation.service.server import Service, Settings
from permea.tables import Category, Number, YesNo

X, Y = rows()


class Fake:
    """A model for the interface alone: the label is the first column."""

    classes_, n_features_in_, holds_private_rows_ = np.arange(10), 1, False

    def predict(self, X):
        if X[0, 0] == 9:
            raise ValueError("9.0 is the row")
        return X[:, 0].astype(int)


def fake_backend():
    return ModelBackend(Fake(), "fake", allow_private_rows=True)


@pytest.fixture
def start(tmp_path):
    """Starts services whose interface is called without a network."""
    running = []

    def begin(backend, **options):
        service = Service(backend, tmp_path / f"s{len(running)}", **options)
        service.start()
        running.append(service)
        app = Outermost(make_app(service), service, secure=True)
        web = TestClient(app, base_url="https://service", follow_redirects=False)
        return service, web

    yield begin
    for service in running:
        service.stop()


def ended(service, job):
    """The job, when it has ended."""
    store = service.spool.store
    wait_for(lambda: store.job(job).state.has_ended, "the job", 60, lambda: None)
    return store.job(job)


def bearer(token):
    return {"authorization": f"Bearer {token}"}


# ---- an identity provider ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    """Keys of a provider, the file that it publishes, and what makes tokens."""
    curve = ec.generate_private_key(ec.SECP256R1())
    keys = {"r": rsa.generate_private_key(65537, 2048), "e": curve}
    kinds = {"r": "RS256", "e": "ES256"}
    shapes = {"r": jwt.algorithms.RSAAlgorithm, "e": jwt.algorithms.ECAlgorithm}
    published = [
        {**shapes[kid].to_jwk(key.public_key(), as_dict=True), "kid": kid, "alg": kinds[kid]}
        for kid, key in keys.items()
    ]
    path = tmp_path_factory.mktemp("oidc") / "jwks.json"
    path.write_text(json.dumps({"keys": published}))

    def token(name="r", key=None, algorithm=None, **claims):
        now = time.time()
        values = {"iss": "https://id.example", "aud": "permea", "sub": "u1", "exp": now + 60}
        values = {k: v for k, v in {**values, **claims}.items() if v is not None}
        kid = {"kid": name}
        return jwt.encode(values, key or keys[name], algorithm or kinds[name], headers=kid)

    limits = {"budget": 5}
    made = Provider(issuer="https://id.example", audience="permea", keys=path, limits=limits)
    made.check()
    return made, token


def test_a_signed_token_of_the_provider_is_an_asker_with_its_budget(provider, start):
    oidc, token = provider
    service, web = start(fake_backend(), provider=oidc)
    body = {"rows": [[1], [2], [3]]}
    for name in ("r", "e"):
        text = token(name, preferred_username="Ada", scope="openid ask")
        found = web.post("/v1/ask", json=body, headers=bearer(text))
        if name == "r":
            assert found.json()["labels"] == [1, 2, 3]
        else:  # the same person with another key: the same budget
            assert (found.status_code, "3 of the 5" in found.json()["error"]) == (403, True)
    assert web.post("/v1/jobs", json=body, headers=bearer(text)).status_code == 403
    assert [one.name for one in service.askers.all()] == ["Ada"]
    service.askers.revoke(service.askers.all()[0].id)
    assert web.post("/v1/ask", json=body, headers=bearer(text)).status_code == 401


def test_a_forged_token_of_the_provider_is_refused(provider, tmp_path):
    oidc, token = provider
    askers = Askers(tmp_path)
    public = base64.b64encode(oidc.keys.read_bytes()).decode()
    other = rsa.generate_private_key(65537, 2048)
    header, payload, signature = token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    richer = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "u2"}).encode()).decode()
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"r"}').decode().rstrip("=")
    forged = {
        "another key": token(key=other),
        "a shared secret": token(key=public, algorithm="HS256"),
        "no key id": jwt.encode(claims, other, "RS256"),
        "no signature": f"{none}.{payload}.",
        "changed": f"{header}.{richer.rstrip('=')}.{signature}",
        "cut": f"{header}.{payload}",
        "expired": token(exp=time.time() - 120),
        "for ever": token(exp=None),
        "issuer": token(iss="https://other.example"),
        "audience": token(aud="another service"),
        "nobody": token(sub=None),
        "no scope of ours": token(scope="openid email"),
        "nothing": "..",
    }  # fmt: skip
    for why, text in forged.items():
        with pytest.raises(DeniedError, match="not valid"):
            oidc.find(text, askers)
        assert askers.all() == [], why
    assert oidc.find(token(), askers).scopes == {"ask", "jobs"}


# ---- several models, tables, ciphertexts ---------------------------------------------------------


def test_models_that_were_brought_here_answer_as_a_federation(start, tmp_path):
    paths = []
    for name, part in (("north", Y < 2), ("south", Y > 0)):
        paths.append(private_model(tmp_path / f"{name}.permea", X[part], Y[part]))
    backend = load_models(paths, trusted=None, allow_private_rows=False)
    service, web = start(backend)
    token = service.askers.create("me")
    send = {**bearer(token), "content-type": "application/x-npy"}
    found = web.post("/v1/ask", content=pack_array(X), headers=send).json()
    assert found["labels"] == backend.federation.predict(X).tolist()
    assert found["who_answered"] == ["north", "south"]
    assert found["parties"] == dict.fromkeys(("north", "south"), "unverified claim")
    with pytest.raises(BackendError, match="same name"):
        load_models([paths[0], paths[0]], trusted=None, allow_private_rows=False)


def test_a_model_of_tables_reads_columns_by_its_schema_at_once_and_by_jobs(start, tmp_path):
    schema = Schema(
        {"age": Number(0, 100), "sex": Category(["f", "m"]), "bp": Number(50, 250, missing=True),
         "ill": YesNo()},
        label="ill",
    )  # fmt: skip
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"age": random.uniform(0, 100, 400), "sex": ["f", "m"] * 200})
    frame["bp"] = np.where(frame["age"] > 90, np.nan, 120.0)
    frame["ill"] = np.where(frame["age"] > 50, "yes", "no")
    privacy = Privacy(epsilon=5, delta=1e-6, unit="record")
    path = save(MomentClassifier(privacy=privacy, schema=schema).fit(frame), tmp_path / "t.permea")
    service, web = start(load_models([path], trusted=None, allow_private_rows=False))
    token = service.askers.create("me")
    new = frame[["sex", "bp", "age"]]  # in another order
    expected = load(path).predict(frame[["age", "sex", "bp"]]).tolist()
    arrow = pa.BufferOutputStream()
    table = pa.Table.from_pandas(new)
    with pa.ipc.new_stream(arrow, table.schema) as stream:
        stream.write_table(table)
    cells = new.astype(object).where(new.notna(), None).to_numpy().tolist()
    bodies = {
        "text/csv": new.to_csv(index=False).encode(),
        "application/vnd.apache.arrow.stream": arrow.getvalue().to_pybytes(),
        "application/json": json.dumps({"columns": list(new.columns), "rows": cells}).encode(),
    }
    for kind, body in bodies.items():
        send = {**bearer(token), "content-type": kind}
        assert web.post("/v1/ask", content=body, headers=send).json()["labels"] == expected
        job = web.post("/v1/jobs", content=body, headers=send).json()["job"]
        assert ended(service, job).state == "done"
        found = web.get(f"/v1/jobs/{job}/result", headers=send)
        assert found.json()["labels"] == expected
    send["content-type"] = "text/csv"
    found = web.post("/v1/ask", content=b"age,sex\n1,f\n", headers=send)
    assert (found.status_code, "'bp'" in found.text) == (400, True)


def test_labels_are_computed_on_ciphertexts(start):
    pytest.importorskip("seal")
    queries, y = blobs(n_rows=20)
    models = {f"p{i}": private_party(f"p{i}", queries[i::2], y[i::2])._classifier for i in range(2)}
    backend = ModelsBackend(models, allow_private_rows=True, encrypted=True, bits=5)
    service, web = start(backend)
    token = service.askers.create("me")
    terms = wait_for(service.spool.terms, "the terms", 60, lambda: None)
    holder = KeyHolder(terms)
    send = bearer(token)
    evaluation = holder.keys.evaluation.to_bytes()
    for damaged in (b"", evaluation[:-1], evaluation[:100], holder.keys.public.to_bytes()):
        found = web.put("/v1/keys", content=damaged, headers=send)
        assert (found.status_code, "not an evaluation key" in found.text) == (400, True)
    body = _question(holder, queries[:8])
    assert "PUT /v1/keys first" in web.post("/v1/jobs", json=body, headers=send).text
    assert web.put("/v1/keys", content=evaluation, headers=send).status_code == 201
    other = bearer(service.askers.create("other"))
    assert web.post("/v1/jobs", json=body, headers=other).status_code == 400  # not their key
    for change in ({"queries": "!"}, {"public_key": "AAAA"}, {"query": None}, {"key": 1}):
        assert web.post("/v1/jobs", json={**body, **change}, headers=send).status_code == 400
    assert web.post("/v1/jobs", json=None, headers=send).status_code == 403
    assert web.post("/v1/ask", json={"rows": [[1.0]]}, headers=send).status_code == 400
    job = web.post("/v1/jobs", json=body, headers=send).json()["job"]
    ended(service, job)
    found = web.get(f"/v1/jobs/{job}/result", headers=send)
    sealed = [base64.b64decode(one) for one in found.json()["ciphertexts"]]
    labels, beyond = holder.labels(sealed, body["made"])
    whole = Federation(list(backend.federation._channel._parties.values()))
    distances = whole.distances(queries[:8])
    assert beyond == 0
    assert np.all(
        distances[np.arange(8), labels] - distances.min(axis=1) < 8 * terms.scheme.quantiser.step
    )


class _Body(dict):
    """A question, with the query object beside what is sent."""

    def __getitem__(self, name):
        return self.__dict__[name] if name == "made" else super().__getitem__(name)


def _question(holder, queries):
    query = holder.query()
    record = query.to_record()
    body = _Body(
        queries=base64.b64encode(pack_array(queries)).decode(),
        key=holder.keys.evaluation.digest,
        public_key=base64.b64encode(holder.keys.public.to_bytes()).decode(),
        query={name: record[name] for name in ("scheme", "classes", "query_id")},
    )
    body.made = query
    return body


# ---- limits --------------------------------------------------------------------------------------


def test_a_fault_of_a_model_costs_nothing_and_shows_no_value(start):
    service, web = start(fake_backend())
    token = service.askers.create("me", budget=3)
    found = web.post("/v1/ask", json={"rows": [[9]]}, headers=bearer(token))
    assert (found.status_code, "9.0" in found.text) == (400, False)
    assert service.askers.all()[0].used == 0
    job = web.post("/v1/jobs", json={"rows": [[9]]}, headers=bearer(token)).json()["job"]
    ended(service, job)
    found = web.get(f"/v1/jobs/{job}/result", headers=bearer(token))
    assert found.status_code == 410
    assert found.json()["state"] == "quarantined"
    assert "9.0" not in found.text
    assert service.askers.all()[0].used == 0


def test_an_unexpected_fault_of_the_service_shows_nothing(start, capsys, monkeypatch):
    service, web = start(fake_backend())
    token = service.askers.create("me")
    broken = TestClient(web.app, base_url="https://service", raise_server_exceptions=False)

    def fault(*values):
        raise AssertionError(f"the token is {token}")

    monkeypatch.setattr(service, "enter", fault)
    found = broken.get("/v1/about", headers=bearer(token))
    assert (found.status_code, token in found.text) == (500, False)
    said = capsys.readouterr().err
    assert "unexpected AssertionError at" in said
    assert token not in said


def test_the_rate_is_that_of_a_steady_clock(tmp_path, monkeypatch):
    now = [100.0]
    askers = Askers(tmp_path, clock=lambda: now[0])
    asker = askers.find(askers.create("me", per_minute=10))
    askers.pace(asker, 10)
    for wall in (0.0, 1e12):  # somebody sets the clock back and forward
        monkeypatch.setattr("time.time", lambda wall=wall: wall)
        with pytest.raises(RateError, match="10 of 10") as error:
            askers.pace(asker, 1)
        assert 0 < error.value.wait <= 60
    now[0] += 61
    askers.pace(asker, 10)


def test_tokens_are_checked_before_they_are_made(tmp_path):
    askers = Askers(tmp_path)
    for wrong in ({"name": ""}, {"name": "a\x1b[2J"}, {"scopes": ["all"]}, {"scopes": []},
                  {"budget": 0}, {"per_minute": 0}, {"days": -1.0}):  # fmt: skip
        with pytest.raises(ValueError, match=r"name|scopes|at least 1|days"):
            askers.create(**{"name": "me", **wrong})
    assert askers.all() == []


def test_jobs_of_one_asker_are_limited_and_a_full_store_says_so(start):
    limits = Settings(jobs_each=2, store_bytes=1 << 20)
    service, web = start(fake_backend(), settings=limits)
    service.spool.stop()  # nothing is worked on
    service._threads[0].join(30)
    send = {**bearer(service.askers.create("me")), "content-type": "application/x-npy"}
    large = pack_array(np.zeros((200_000, 1)))
    found = web.post("/v1/jobs", content=large, headers=send)
    assert (found.status_code, "no room" in found.text) == (507, True)
    small = pack_array(np.zeros((1, 1)))
    assert [web.post("/v1/jobs", content=small, headers=send).status_code for _ in range(3)] == [
        202, 202, 403,
    ]  # fmt: skip
    assert service.askers.all()[0].used == 2


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rows", "columns", "queries", "query", "key", "public_key", "scheme"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
PATHS = ("/v1/ask", "/v1/jobs", "/v1/jobs/x", "/v1/jobs/x/result", "/v1/keys", "/v1/terms",
         "/v1/about", "/metrics", "/console", "/console/login", "/console/logout")  # fmt: skip
KINDS = ("application/json", "text/csv", "application/x-npy", "", "a/b; q=\xe9",
         "application/vnd.apache.arrow.stream", "application/x-www-form-urlencoded")  # fmt: skip


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    """A plain service and an encrypted one, each with a token for everything."""
    pytest.importorskip("seal")
    queries, y = blobs(n_rows=10)
    models = {f"p{i}": private_party(f"p{i}", queries[i::2], y[i::2])._classifier for i in range(2)}
    secret = ModelsBackend(models, allow_private_rows=True, encrypted=True, bits=5)
    found = []
    for number, backend in enumerate((fake_backend(), secret)):
        service = Service(backend, tmp_path_factory.mktemp("doors") / str(number))
        service.start()
        token = service.askers.create("me", scopes=["ask", "jobs", "operate"])
        app = Outermost(make_app(service), service, secure=True)
        found.append((service, TestClient(app, base_url="https://service"), token))
    yield found
    for service, _, _ in found:
        service.stop()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 1),
    st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    st.sampled_from(PATHS),
    st.sampled_from(KINDS),
    st.binary(max_size=40) | JSONS.map(lambda value: json.dumps(value).encode()),
    st.none() | st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=30),
)
def test_no_request_makes_the_service_fail(doors, which, method, path, kind, body, header):
    _, web, token = doors[which]
    headers = {
        "authorization": f"Bearer {token}" if header is None else header,
        "content-type": kind,
        "cookie": f"permea-console={header}",
    }
    coded = {name: value.encode("latin-1") for name, value in headers.items()}
    found = web.request(method, path, content=body, headers=coded, follow_redirects=False)
    assert found.status_code < 500 or found.status_code == 503
    assert found.headers["cache-control"] == "no-store"
    if header is not None and path.startswith("/v1") and found.status_code < 300:
        raise AssertionError("somebody got in without a token")
