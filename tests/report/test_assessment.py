"""The assessment, the first screen and the model card say what certificates and attacks say."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

import permea.report
from permea import MomentClassifier
from permea.datasets import VISITS_SCHEMA, make_visits
from permea.privacy import Certificate, Privacy, release
from permea.report import Accuracy, Report, assess, model_card, render, write_assessment
from permea.report.assessment import answers
from permea.report.words import LANGUAGES, Words

TEXTS = Path(permea.report.__file__).parent / "texts"
ATTACK = {
    "name": "loss", "auc": 0.52, "auc_interval": [0.49, 0.55], "note": "", "advantage": 0.0,
    "tpr_at": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    promise = Privacy(epsilon=1, delta=1e-6, unit="person")
    return MomentClassifier(privacy=promise, schema=VISITS_SCHEMA).fit(make_visits(800))


def report(model, **changes):
    values = {
        "title": "Who comes back?",
        "certificates": {"model": model.certificate_},
        "accuracy": Accuracy(0.75, (0.7, 0.8), 300, majority=0.6, auroc=0.81),
        "attacks": {"attacks": [ATTACK], "membership_inference_score": None, "guarantees": []},
        "purpose": "Plan <beds>.",
        "schema": VISITS_SCHEMA,
    }
    return Report(**{**values, **changes})


def certificate(**options):
    return release(np.zeros((5, 2)), Privacy(**{"epsilon": 1, "domain": (0, 1), **options}))


def keys(values, before=""):
    for name, value in values.items():
        yield from keys(value, f"{before}{name}.") if isinstance(value, dict) else [before + name]


def placeholders(values):
    return {
        key: set(re.findall(r"\{(\w+)\}", str(Words.entry(values, key)))) - {"decimal"}
        for key in keys(values._values)
        if not key.startswith("certificate.")
    }


def test_the_languages_say_the_same_things():
    assert {path.stem for path in TEXTS.glob("*.toml")} == set(LANGUAGES)
    english, german = (placeholders(Words(language)) for language in LANGUAGES)
    assert english == german


def test_sentences_of_certificates_are_translated_while_they_exist(model):
    source = " ".join(path.read_text() for path in (TEXTS.parents[1] / "privacy").glob("*.py"))
    said = " ".join(re.sub(r'"\s*\n?\s*f?"', "", source).split())
    known = tomllib.loads((TEXTS / "de.toml").read_text())["certificate"]
    for sentence in known:
        stem = re.sub(r"the number of (persons|records)\b", "the number of {unit}s", sentence)
        stem = stem.replace("{unit}s", "{privacy.unit}s") if stem.endswith("{unit}s") else stem
        assert sentence in said or stem in said or sentence == "the number of features", sentence
    for item in model.certificate_.not_protected:
        assert item in known, item


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_assessment_has_every_part(model, language):
    found = assess(report(model), language)
    parts = {section.key: section for section in found.sections}
    assert parts["purpose"].paragraphs == ("Plan <beds>.",)
    assert [row[0] for row in parts["data"].rows] == [*VISITS_SCHEMA.columns, "patient", "hospital"]
    said = " ".join(parts["promise"].paragraphs)
    assert "73.1" in said.replace(",", ".")
    assert "2.7" in said.replace(",", ".")
    assert len(parts["unprotected"].items) == len(model.certificate_.not_protected)
    assert parts["holders"].rows
    assert len(parts["signatures"].items) == 3


def test_the_first_screen_answers_in_plain_sentences(model):
    promised, good, attacked, void = (text for _, text in answers(report(model), Words()))
    assert promised.startswith("To every person, with all rows of that person")
    assert "75.0 % of 300 rows" in good
    assert "0.52" in attacked
    assert "by chance" in attacked
    assert void.startswith("No.")
    page = render(report(model))
    assert page.index("Is anything void?") < page.index('<nav aria-label="Sections">')
    assert "Plan &lt;beds&gt;." in page


def test_what_is_void_or_unverified_or_better_than_chance_is_said(model):
    seeded = release(np.zeros((5, 2)), Privacy(epsilon=1, domain=(0, 1)), random_state=0)
    told = dict(answers(report(model, certificates={"m": seeded.certificate}), Words()))
    assert told["Is anything void?"].startswith("Yes: seeded")
    assert told["What is promised, and to whom?"].startswith("Nothing.")
    outside = Certificate.from_json(model.certificate_.to_json())
    told = dict(answers(report(model, certificates={"m": outside}), Words()))
    assert "unverified claim" in told["Is anything void?"]
    far = {**ATTACK, "auc": 0.7, "auc_interval": [0.66, 0.74]}
    told = dict(answers(report(model, attacks={"attacks": [far]}), Words()))
    assert "more than chance" in told["What did attacks reach?"]
    assert "no certificate" in dict(answers(Report(title="bare"), Words()))["Is anything void?"]


def test_the_best_of_many_attacks_needs_a_wider_interval(model):
    near = {**ATTACK, "auc": 0.53, "auc_interval": [0.501, 0.559]}
    one = dict(answers(report(model, attacks={"attacks": [near]}), Words()))
    five = dict(answers(report(model, attacks={"attacks": [near] * 5}), Words()))
    assert "more than chance" in one["What did attacks reach?"]
    assert "by chance" in five["What did attacks reach?"]


def test_the_assessment_is_written_as_html_and_json(model, tmp_path):
    page = write_assessment(report(model), tmp_path / "a.html", language="de").read_text()
    assert '<html lang="de">' in page
    assert "Restrisiko" in page
    assert not re.search(r"https?://|<script", page)
    values = json.loads(write_assessment(report(model), tmp_path / "a.json").read_text())
    assert set(values["texts"]) == set(LANGUAGES)
    assert values["certificates"]["model"]["privacy"]["unit"] == "person"
    with pytest.raises(ValueError, match=r"\.html or \.json"):
        write_assessment(report(model), tmp_path / "a.pdf")
    care = assess(report(model, computed_from_private_rows=["attacks"])).care
    assert "not for publication" in care


def test_the_model_card_has_the_head_and_the_headings_of_the_hub(model):
    card = model_card(report(model, title='A "quoted" *title*'), name='a "name"')
    head, body = card.split("---\n")[1:]
    values = yaml.safe_load(head)
    assert values["library_name"] == "permea"
    (entry,) = values["model-index"]
    assert entry["name"] == 'a "name"'
    metrics = {one["type"]: one["value"] for one in entry["results"][0]["metrics"]}
    assert metrics == {"accuracy": 0.75, "roc_auc": 0.81}
    assert r"# A " r'"quoted" \*title\*' in body
    for heading in ("Model details", "Uses", "Bias, risks and limitations", "Evaluation"):
        assert f"\n## {heading}\n" in body
    assert "Do not publish" in model_card(report(model, computed_from_private_rows=["accuracy"]))
