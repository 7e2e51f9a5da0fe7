"""The report: complete, honest, offline, and alive in a browser."""

import dataclasses
import html.parser
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from permea import fabricate_records
from permea.audit.synthetic import synthetic_risks
from permea.fabricate.comparison import compare_tables
from permea.privacy import Certificate, Privacy, release
from permea.report import Accuracy, Chart, Report, Samples, Series, content, render, write_html
from permea.report.page import best_guess, odds, png_address
from permea.report.svg import ticks
from permea.tables import Number, Schema, YesNo

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def certificate(**options):
    declared = {"epsilon": 8.0, "delta": 1e-5, "domain": (0, 1), **options}
    return release(np.zeros((50, 16)), Privacy(**declared)).certificate


def attacks():
    one = {
        "name": "distance", "auc": 0.61, "auc_interval": [0.55, 0.66], "accuracy": 0.55,
        "accuracy_interval": [0.5, 0.6], "advantage": 0.1, "tpr_at": {"0.01": 0.02, "0.001": 0.0},
        "n_member": 100, "n_outside": 100, "per_class": {}, "note": "",
    }  # fmt: skip
    return {
        "attacks": [one, {**one, "name": "loss", "note": "answers with a label alone"}],
        "membership_inference_score": 0.03,
        "guarantees": [
            {"kind": "claimed", "epsilon": 8.0, "delta": 1e-5, "unit": "entry",
             "neighbours": "replace", "note": ""}
        ],
    }  # fmt: skip


def full_report(**changes):
    line = Chart(
        key="utility", title="Accuracy over ε", caption="More privacy to the left.",
        x_label="ε per entry", y_label="share", x=[1, 2, 4],
        series=[Series("accuracy", [0.7, 0.8, 0.9]), Series("attack", [0.5, 0.5, 0.6])],
        log_x=True, marked_x=2,
    )  # fmt: skip
    bars = Chart(
        key="distances", title="Distances", caption="Members and others.", x_label="distance",
        y_label="share", x=[0.5, 1.5, 2.5], kind="histogram",
        series=[Series("trained on", [0.2, 0.6, 0.2]), Series("others", [0.1, 0.5, 0.4])],
    )  # fmt: skip
    rows = np.linspace(0, 1, 32).reshape(2, 16)
    samples = Samples(
        stages={f"ε = {e} per entry": {"noised": rows, "fabricated": rows} for e in (1, 8)},
        original=rows, shape=(4, 4), chosen="ε = 8 per entry",
    )  # fmt: skip
    values = {
        "title": "A model <of> digits & letters",
        "facts": {"rows": "50"},
        "certificates": {"north": certificate(), "south": certificate()},
        "accuracy": Accuracy(0.93, (0.9, 0.95), 300, {"a": 0.9}),
        "attacks": attacks(),
        "charts": [line, bars],
        "samples": samples,
        "measures": {"privacy leakage": ("-3.2 nats", "what an adversary gains")},
        "reproduce": ["permea demo"],
    }
    return Report(**{**values, **changes})


class Checker(html.parser.HTMLParser):
    """Notes tags that are left open, addresses, ids and headings."""

    VOID = frozenset({"meta", "img", "input", "br", "hr", "link", "line", "circle", "path"})

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses += [v for k, v in values.items() if k in ("src", "href", "srcset") and v]
        self.ids += [values["id"]] if "id" in values else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_no_network():
    page = render(full_report())
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert all(address.startswith(("#", "data:")) for address in checker.addresses)
    assert not re.search(r"https?://(?!www\.w3\.org)|@import|url\(", page)
    assert "default-src 'none'" in page
    assert "A model &lt;of&gt; digits &amp; letters" in page


def test_every_link_of_the_page_has_its_place():
    checker = Checker()
    checker.feed(render(full_report()))
    assert {a[1:] for a in checker.addresses if a.startswith("#")} <= set(checker.ids)


def test_no_epsilon_stands_without_its_unit():
    """Rule 1 of the wall, on the page as people read it."""
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]+>", " ", render(full_report()))
    for found in re.finditer(r"ε = [\d.]+", text):
        near = text[found.start() : found.end() + 40]
        assert "per " in near or "je " in near, near


def test_the_verdict_does_not_flatter():
    assert "NOT PRIVATE" in render(Report(title="bare"))
    seeded = release(np.zeros((5, 2)), Privacy(epsilon=1, domain=(0, 1)), random_state=0)
    assert "NOT PRIVATE" in render(Report(title="s", certificates={"m": seeded.certificate}))
    assert "NOT PER ROW" in render(full_report())
    by_record = certificate(epsilon=1.0, unit="record", mechanism="gaussian")
    page = render(Report(title="r", certificates={"m": by_record}))
    assert 'class="verdict good"' in page
    assert "NOT PER ROW" not in page


def read_from_outside(found):
    """The same certificate as it comes out of a file."""
    return Certificate.from_json(found.to_json())


def test_what_nobody_vouches_for_is_never_shown_as_private():
    by_record = read_from_outside(certificate(epsilon=1.0, unit="record", mechanism="gaussian"))
    report = Report(title="r", certificates={"m": by_record})
    page = render(report)
    assert (report.is_private, report.is_verified, report.status) == (
        True,
        False,
        "unverified claim",
    )
    assert "UNVERIFIED CLAIM: " in page
    assert 'class="verdict good"' not in page
    assert 'class="verdict weak"' in page
    assert "PRIVATE:" not in page
    assert "--trusted" in page  # what to do about it


def test_a_signed_certificate_is_shown_with_the_name_of_its_key():
    found = certificate(epsilon=1.0, unit="record", mechanism="gaussian")
    signed = dataclasses.replace(read_from_outside(found), signer="clinic-vienna")
    page = render(Report(title="r", certificates={"m": signed}))
    assert 'class="verdict good">PRIVATE: ' in page
    assert "PRIVATE, signed by clinic-vienna" in page
    assert "UNVERIFIED" not in page.upper()


def test_one_unverified_party_makes_the_whole_an_unverified_claim():
    mixed = {"north": certificate(), "south": read_from_outside(certificate())}
    page = render(full_report(certificates=mixed))
    assert "UNVERIFIED CLAIM: " in page
    assert "PRIVATE PER VALUE" not in page


def test_one_party_without_a_promise_spoils_all():
    seeded = release(np.zeros((5, 2)), Privacy(epsilon=1, domain=(0, 1)), random_state=0)
    mixed = {"north": certificate(), "south": seeded.certificate}
    assert "NOT PRIVATE" in render(full_report(certificates=mixed))


def test_parts_from_private_rows_are_named():
    assert "For the owner of the data" not in render(full_report())
    page = render(full_report(computed_from_private_rows=["accuracy", "attacks"]))
    assert "accuracy, attacks" in page


def test_sections_that_were_not_computed_are_left_out():
    page = render(Report(title="small", certificates={"m": certificate()}))
    assert 'id="promise"' in page
    assert 'id="attacks"' not in page
    assert 'id="samples"' not in page


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (1.0, 1e-5), (3.0, 0.01)])
def test_the_best_guess_is_what_randomised_response_reaches(epsilon, delta):
    """The bound is tight: the worst (ε,δ) mechanism shows the bit with δ, else lies by ε."""
    reached = delta + (1 - delta) * np.exp(epsilon) / (1 + np.exp(epsilon))
    said = float(best_guess(epsilon, delta).removesuffix(" %")) / 100
    assert abs(said - reached) < 6e-4
    assert odds(0.0) == "1.0"


def test_ticks_are_round_and_inside():
    for low, high in [(0, 1), (-3, 17), (0.001, 0.0042), (1e6, 5e6)]:
        found = ticks(low, high)
        assert 3 <= len(found) <= 12
        assert low - 1e-9 <= found[0] <= found[-1] <= high + 1e-9


def test_pictures_hold_their_pixels():
    """A PNG written by hand is decoded by its own rules."""
    import base64
    import zlib

    raw = base64.b64decode(png_address(np.array([[0.0, 1.0], [0.5, 2.0]])).split(",")[1])
    start = raw.index(b"IDAT") + 4
    length = int.from_bytes(raw[start - 8 : start - 4], "big")
    rows = zlib.decompress(raw[start : start + length])
    assert list(rows) == [0, 255, 0, 0, 128, 0]


def test_a_chart_with_uneven_series_is_refused():
    with pytest.raises(ValueError, match="as many y"):
        Chart(key="k", title="", caption="", x_label="", y_label="", x=[1, 2],
              series=[Series("s", [1])])  # fmt: skip


def test_a_report_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    place = tmp_path / "report.html"
    write_html(full_report(), place)
    before = place.read_bytes()
    monkeypatch.setattr("permea.report.page.render", lambda report: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_html(full_report(), place)
    assert place.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_report_does_not_write_through_a_planted_link(tmp_path):
    """Whoever can write to the folder must not choose which file is overwritten."""
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    folder = tmp_path / "reports"
    folder.mkdir()
    for name in ("report.html", ".report.html.part", ".report.html.tmp"):
        (folder / name).symlink_to(treasure)
    write_html(full_report(), folder / "report.html")
    assert treasure.read_text() == "mine"
    assert not (folder / "report.html").is_symlink()
    assert "permea report" in (folder / "report.html").read_text()


def test_text_of_strangers_cannot_command_a_browser_or_a_terminal():
    wicked = "<img src=x onerror=alert(1)>\x1b[2J\x9b\u202e"
    found = dataclasses.replace(certificate(), noise=wicked, steps=(wicked,))
    page = render(
        full_report(
            title=wicked,
            facts={wicked: wicked},
            certificates={wicked: found},
            accuracy=Accuracy(0.9, (0.8, 1.0), 10, {wicked: 0.5}),
            measures={wicked: (wicked, wicked)},
            reproduce=[wicked],
            baseline=wicked,
            computed_from_private_rows=[wicked],
            charts=[
                Chart(
                    key="utility",
                    title=wicked,
                    caption=wicked,
                    x_label=wicked,
                    y_label=wicked,
                    x=[1, 2],
                    series=[Series(wicked, [0, 1])],
                    reference=(wicked, 0.5),
                )
            ],
            samples=Samples(
                stages={wicked: {wicked: np.ones((1, 1))}},
                original=np.ones((1, 1)),
                columns=[wicked],
            ),
        )
    )
    assert "<img src=x" not in page
    assert not set("\x1b\x9b\u202e") & set(page)
    assert "\\x1b[2J\\x9b\\u202e" in page


def test_every_template_is_in_the_package_and_escapes():
    from permea.report.page import _environment

    environment = _environment()
    assert {"report.html", "chart.html", "style.css"} <= set(environment.list_templates())
    assert environment.from_string("{{ text }}").render(text="<b>") == "&lt;b&gt;"


def test_without_jinja_the_message_says_what_to_install(monkeypatch):
    from permea.report.page import _environment

    _environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"needs Jinja2.*permea\[cli\]"):
        render(full_report())


PROBE = """
<script>
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("load", () => {
  const svg = document.querySelector("svg.chart");
  const key = (name) => svg.dispatchEvent(new KeyboardEvent("keydown", {key: name}));
  const say = () => document.querySelector("output.readout").textContent;
  svg.focus(); key("Home"); const first = say();
  key("ArrowRight"); const second = say();
  const button = document.querySelector(".legend button");
  button.click(); const without = say();
  const hidden = svg.querySelector('[data-series="0"]').getBoundingClientRect().width === 0;
  button.click();
  const slider = document.getElementById("samples-slider");
  slider.value = 0; slider.dispatchEvent(new Event("input"));
  const shown = [...document.querySelectorAll("[data-epsilon]")].filter((b) => !b.hidden);
  const wide = document.documentElement.scrollWidth - innerWidth;
  const pictures = [...document.images].every((image) => image.naturalWidth > 0);
  const result = {errors, first, second, without, hidden, pictures, wide,
    epsilon: shown.map((b) => b.dataset.epsilon), charts: document.querySelectorAll("svg.chart").length,
    ready: document.documentElement.dataset.ready};
  const place = document.createElement("pre");
  place.id = "probe"; place.textContent = JSON.stringify(result);
  document.body.append(place);
});
</script>
"""  # noqa: E501


@pytest.fixture(params=[(1200, 900), (390, 844)], ids=["desktop", "phone"])
def browse(request, tmp_path):
    """Open a page in a headless browser and give what a probe inside it found.

    Without a browser the fixture says so, and the static checks of the page stand in its place.
    """
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(
            "\nNO BROWSER: install chromium to test the report in one; the page is checked "
            "statically.",
            file=sys.__stderr__,
        )

    def open_page(page):
        if browser is None:
            return None
        import json

        place = tmp_path / "report.html"
        place.write_text(page.replace("<head>", "<head>" + PROBE, 1), encoding="utf-8")
        width, height = request.param
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             "--disable-dev-shm-usage", f"--window-size={width},{height}",
             f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000",
             "--dump-dom", place.as_uri()],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
        assert found, done.stderr[-2000:]
        return {**json.loads(found[1]), "console": console}

    return open_page


def check_statically(page):
    """What can be told without a browser: the script's hooks are on the page."""
    assert page.count('class="chart"') == 2
    assert 'data-readout="' in page
    assert 'id="samples-slider"' in page
    assert page.count('class="readout"') == 2


def test_the_report_lives_in_a_browser(browse):
    page = render(full_report())
    check_statically(page)
    found = browse(page)
    if found is None:
        return
    assert found["console"] == []
    assert found["errors"] == []
    assert found["ready"] == "true"
    assert found["charts"] == 2
    assert found["pictures"]
    assert found["wide"] <= 0  # nothing sticks out of a phone's screen
    assert found["first"] == "ε per entry = 1: accuracy 0.7, attack 0.5"
    assert found["second"] == "ε per entry = 2: accuracy 0.8, attack 0.5"
    assert found["without"] == "ε per entry = 2: attack 0.5"
    assert found["hidden"]
    assert found["epsilon"] == ["ε = 1 per entry"]


def test_a_broken_script_would_be_noticed(browse):
    """The negative control of the test above."""
    page = render(full_report()).replace("JSON.parse(svg.dataset.readout)", "nonsense()")
    assert "nonsense()" in page
    found = browse(page)
    if found is None:
        return
    assert found["errors"] or found["console"]
    assert found.get("ready") != "true"


class Effect:
    """What a model that adds up columns says about one of them."""

    def __init__(self, column, features, outputs=1):
        self.column, self.features = column, tuple(column + name for name in features)
        self.values = np.linspace(-1, 1, len(features))[:, None] * np.ones(outputs)
        self.std = 0.25 * np.ones_like(self.values)
        self.importance, self.noise = 3.0 * np.ones(outputs), 0.5 * np.ones(outputs)


def test_effects_of_columns_are_curves_and_values():
    found = [Effect("age", ["@20", "@50", "@80", " missing"]), Effect("sex", ["=f", "=m"]),
             Effect("many", ["=a", "=b"], outputs=3)]  # fmt: skip
    rows, charts = content.effects_of(found, "contribution to ill")
    (chart,) = charts
    assert chart.x == [20.0, 50.0, 80.0]
    middle, upper, lower = (series.y for series in chart.series)
    assert np.allclose(np.subtract(upper, middle), 0.5)
    assert np.allclose(np.subtract(middle, lower), 0.5)
    assert [one.column for one in rows] == ["age", "sex", "many"]
    assert rows[0].values == [("missing", 1.0, 0.25)]
    assert rows[1].values == [("f", -1.0, 0.25), ("m", 1.0, 0.25)]
    assert rows[2].importance == pytest.approx(3 * 3**0.5)
    page = render(Report(title="effects", effects=rows, charts=charts))
    assert "What each column contributes" in page
    assert "f -1.00 ± 0.50" in page


def synthetic_report(made, **changes):
    """A report on a synthetic table, or on a copy of the real one, with all of its sections."""
    schema = Schema({"a": Number(0, 1), "b": YesNo(), "c<d>": Number(0, 1)})

    def rows(seed):
        rng = np.random.default_rng(seed)
        return {"a": rng.random(300), "b": rng.integers(0, 2, 300), "c<d>": rng.random(300)}

    promise = Privacy(epsilon=1, delta=1e-6, unit="record")
    one = fabricate_records(rows(0), schema=schema, privacy=promise, seed=0)
    drawn = fabricate_records(rows(0), schema=schema, privacy=promise, seed=0, random_state=0)
    table = rows(0) if made == "a copy" else drawn.data
    values = {
        "title": "A synthetic table",
        "certificates": {"table": one.certificate},
        "quality": one.quality,
        "comparison": compare_tables(rows(0), table, schema, rows(1)),
        "risks": synthetic_risks(rows(0), table, rows(1), schema, generator=drawn.generator),
        "computed_from_private_rows": ["beside the real table", "attacks"],
    }
    return Report(**{**values, **changes})


def test_the_report_on_a_synthetic_table_says_what_may_be_signed():
    page = render(synthetic_report("a synthetic table"))
    assert "none of these attacks learned more about people in the table" in page
    assert "NOT FOR RELEASE" in page
    assert "c&lt;d&gt;" in page
    copied = render(synthetic_report("a copy"))
    assert "at least one attack learned more" in copied
    assert "none of these attacks" not in copied
    assert page.count("NOT FOR RELEASE") == 2  # beside the real table, and at the attacks
    public = render(synthetic_report("a synthetic table", comparison=None, risks=None,
                                     computed_from_private_rows=[]))  # fmt: skip
    assert "NOT FOR RELEASE" not in public
    assert "may be published" in public


LOOK = """
<script>
addEventListener("load", () => {
  const tables = [...document.querySelectorAll("table")];
  const place = document.createElement("pre");
  place.id = "probe";
  place.textContent = JSON.stringify({
    wide: document.documentElement.scrollWidth - innerWidth,
    rows: tables.map((table) => table.tBodies[0].rows.length),
    risks: [...document.querySelectorAll("#risks table")].map(
      (table) => table.tBodies[0].rows.length),
    seen: tables.every((table) => table.closest("details:not([open])")
      || table.getBoundingClientRect().height > 20),
    pictures: [...document.querySelectorAll("svg.shares")].map((svg) =>
      [svg.querySelectorAll("rect").length, svg.getBoundingClientRect().width > 100]),
    said: document.body.innerText.replace(/\\s+/g, " "),
    sections: [...document.querySelectorAll("nav a")].map((a) => a.getAttribute("href")),
  });
  document.body.append(place);
});
</script>
"""


def test_the_report_on_a_synthetic_table_in_a_browser(browse, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PROBE", LOOK)
    found = browse(render(synthetic_report("a synthetic table")))
    if found is None:
        return
    assert found["console"] == []
    assert found["wide"] <= 0
    assert found["seen"]
    assert found["rows"][0] == 3  # columns
    assert found["risks"] == [3, 2]  # attacks, membership
    assert [seen for _, seen in found["pictures"]] == [True] * 3
    assert found["pictures"][1][0] == 2  # no and yes
    for sentence in (
        "the best guess is right in at most 73.1 % of cases",
        "All of it follows from what was released, so it may be published.",
        "No pair of columns is further from what was released than chance explains (3 pairs).",
        "What the noise hides cannot be seen here",
        "NOT FOR RELEASE: computed from the real rows without noise",
        "What may be signed: none of these attacks learned more about people in the table",
    ):
        assert sentence in found["said"]
    assert {"#quality", "#comparison", "#risks"} <= set(found["sections"])
