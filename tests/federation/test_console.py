"""The console: in a real browser, and against those who should not see it."""

import html
import http.client
import json
import ssl
import sys

import pytest
from browser import Browser, find_browser
from flower_world import make_training_trial
from service_world import Served, private_model, rows

from permea.federation.moment_rounds import Journal
from permea.federation.service.askers import Asker, DeniedError
from permea.federation.service.console import Sessions, _page
from permea.federation.service.database import Database
from permea.federation.service.network import NetworkBackend
from permea.federation.service.queue import wait_for

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]
X, Y = rows()
EVIL = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Two models, several askers, jobs in two states, and a party that is suspected."""
    folder = tmp_path_factory.mktemp("console")
    for name, part in (("north", Y < 2), ("south", Y > 0)):
        private_model(folder / f"{name}.permea", X[part], Y[part])
    files = [folder / f"{name}.permea" for name in ("north", "south")]
    one = Served(folder, "--models", files[0], "--models", files[1])
    client = one.client(one.token(EVIL, budget=500, per_minute=1000))
    one.token("ward 7", days=1e-9)
    jobs = [client.submit(X[:n]) for n in (10, 20)]
    for job in jobs:
        client.wait(job, timeout=60)
    database = Database(one.state)
    doubt = json.dumps(
        {
            "who_answered": ["south"],
            "missing": {"north": "no reply in time"},
            "suspicions": ["south: gives the same distance whatever the query is"],
        }
    )
    with database.transaction() as change:
        change.execute("UPDATE jobs SET report = ? WHERE id = ?", (doubt, jobs[0]))
        change.execute(
            "UPDATE jobs SET state = 'quarantined', reason = 'SchemaError: ' || ? WHERE id = ?",
            (EVIL, jobs[1]),
        )
    database.close()
    yield one
    assert one.stop() == 0


@pytest.fixture(scope="module")
def operator(served):
    return served.token("Grace", scopes=["operate"])


PHONE = pytest.param((390, 844), id="phone", marks=pytest.mark.slow)


@pytest.fixture(params=[pytest.param((1200, 1000), id="desktop"), PHONE])
def browser(request, tmp_path):
    if find_browser() is None:
        print("\nNO BROWSER: install chromium and chromedriver to test the console in one.",
              file=sys.__stderr__)  # fmt: skip
        yield None
        return
    window = Browser(tmp_path, request.param)
    yield window
    window.close()


def test_an_operator_looks_at_everything_in_a_browser(served, operator, browser, tmp_path):
    if browser is None:
        assert find_browser() is None
        return
    browser.open(f"{served.url}/console")
    assert "Log in" in browser.text()
    assert "north" not in browser.text()
    browser.write("#token", "permea_0_wrong")
    browser.click("main button")
    browser.wait_for("not valid for the console")
    browser.messages()  # the browser notes each 401
    browser.write("#token", operator)
    browser.click("main button")
    text = browser.wait_for("Ready to answer")
    for word in (
        *("north", "south", "unverified claim", "500", "expired", "Grace"),
        *("quarantined", "gives the same distance", "no reply in time"),
    ):
        assert word in text, word
    assert EVIL in text  # as text, not as an element
    assert browser.run("return document.images.length + document.scripts.length") == 0
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    assert browser.run("return document.cookie") == ""  # no script could read the session
    (cookie,) = browser.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert operator.split("_", 2)[2] not in json.dumps(cookie)
    assert browser.messages() == []  # nothing was blocked by the policy, nothing failed
    browser.click("summary")
    browser.wait_for("ε = 50")  # the certificate
    browser.picture(tmp_path / "console.png")
    browser.click("header button")
    browser.wait_for("Log in")
    browser.open(f"{served.url}/console")
    assert "north" not in browser.text()


def test_a_blocked_resource_would_be_noticed(served, browser):
    """The negative control: the policy stops an image, and the browser says so."""
    if browser is None:
        assert find_browser() is None
        return
    browser.open(f"{served.url}/console")
    browser.messages()
    browser.run("document.body.append(Object.assign(new Image(), {src: '/x.png'}))")

    def noticed():
        return any("Content Security Policy" in one["message"] for one in browser.messages())

    assert wait_for(noticed, "a message of the browser", 60, lambda: None)


def request(served, method, path, body=None, **headers):
    context = ssl.create_default_context(cafile=served.folder / "keys" / "ca.crt")
    line = http.client.HTTPSConnection("127.0.0.1", served.port, context=context, timeout=60)
    line.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    reply = line.getresponse()
    return reply.status, dict(reply.getheaders()), reply.read().decode()


def test_only_an_operator_gets_in(served, operator):
    asker = served.token("asker")
    for token in ("", asker, "permea_x_y", operator[:-1], "a" * 20_000):
        status, headers, text = request(served, "POST", "/console/login", f"token={token}")
        assert (status, "set-cookie" in headers, "north" in text) == (401, False, False)
    for cookie in ("", "permea-console=", "permea-console=x", f"permea-console={operator}"):
        status, _, text = request(served, "GET", "/console", cookie=cookie)
        assert (status, "north" in text) == (401, False)
    body = f"token={operator}"
    away = request(served, "POST", "/console/login", body, origin="https://elsewhere.example")
    assert away[0] == 401
    status, headers, _ = request(served, "POST", "/console/login", body)
    assert status == 303
    cookie = headers["set-cookie"].partition(";")[0]
    status, headers, text = request(served, "GET", "/console", cookie=cookie)
    assert status == 200
    assert html.escape(EVIL, quote=False).replace('"', "&#34;") in text
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in text.partition("</style>")[2].replace("https", "http").split("<main>")[0]
    for method in ("POST", "PUT", "DELETE"):
        assert request(served, method, "/console", cookie=cookie)[0] == 405  # read-only
    database = Database(served.state)
    with database.transaction() as change:
        change.execute("UPDATE askers SET revoked = 1 WHERE id = ?", (operator.split("_")[1],))
    assert request(served, "GET", "/console", cookie=cookie)[0] == 401  # at once
    with database.transaction() as change:
        change.execute("UPDATE askers SET revoked = 0 WHERE id = ?", (operator.split("_")[1],))
    database.close()


def test_sessions_end():
    now = [0.0]
    sessions = Sessions(clock=lambda: now[0])
    asker = Asker(id="a", name="a", scopes=frozenset({"operate"}))
    first, second = sessions.open(asker), sessions.open(asker)
    assert sessions.find(first) == "a"
    sessions.close(first)
    now[0] += 3601
    for number in (first, second, "", "\ud800"):
        with pytest.raises(DeniedError):
            sessions.find(number)
    assert len([sessions.open(asker) for _ in range(1100)]) == 1100
    assert len(sessions._known) <= 1000


def test_an_open_round_of_training_is_shown(tmp_path):
    pytest.importorskip("flwr")
    shares = {name: (X[i::3], Y[i::3] % 2) for i, name in enumerate(("p0", "p1", "p2"))}
    terms = {"learn": "classifier", "epsilon": 20, "noise_shares": 2, "least_parties": 2}
    agreement = make_training_trial(tmp_path, shares, **terms)
    backend = NetworkBackend(tmp_path / "federation.toml")
    assert (backend.training().round, backend.training().agreement) == ("", str(agreement))
    path = backend.aggregator.config.folder / "training" / f"{agreement.digest[:32]}.json"
    rounds = Journal(path)
    rounds.begin("3f9a", agreement.digest)
    rounds.done("moments", [], 2, {"p2": "not connected"})
    values = {"training": backend.training(), "operator": "me", "backend": "b", "encrypted": False,
              "reason": "", "parties": [], "jobs": [], "counts": {}, "askers": []}  # fmt: skip
    text = _page("console.html", 200, **values).body.decode()
    for word in ("3f9a", "moments (2 parties)", "p2", "not connected", "ε"):
        assert word in text
    backend.spool.store.close()
