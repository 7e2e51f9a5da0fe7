"""``permea demo``: three hospitals learn together per person; attacks; a report. Under a minute."""

import os
import shlex
import sys
import time
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from threadpoolctl import threadpool_limits
from typer import Option

from permea._version import __version__
from permea.audit import guarantee_rows
from permea.cli import tables
from permea.cli.app import START, command
from permea.cli.console import Console, OutputError, UsageError
from permea.cli.models import save_model
from permea.cli.story import Story, Way
from permea.datasets import HOSPITALS, VISITS_SCHEMA
from permea.report import Report, content, model_card, render
from permea.report.assessment import assessment_json
from permea.report.page import render_assessment

PURPOSE = (
    "Predict which patients come back to hospital within 90 days, from visits to three hospitals "
    "that may not exchange rows. The visits are simulated: they describe nobody."
)
HOLDERS = (
    ("each hospital", "its own visits, and a ledger of what it released"),
    ("the coordinator", "noised sums over all patients, and the model"),
    ("whoever receives the model", "the model; no row"),
    ("whoever receives the synthetic table", "rows that were drawn from noised counts"),
)


@command("demo", panel=START)
def demo(
    console: Console,
    output: Annotated[
        str, Option("--output", "-o", help="Folder to write to; it is created.")
    ] = "permea-demo",
    epsilon: Annotated[float, Option("--epsilon", "-e", help="ε per person.")] = 1.0,
    delta: Annotated[float, Option(help="δ per person.")] = 1e-6,
) -> None:
    """Play one story on simulated visits to three hospitals, and write all of its files.

    The hospitals declare the columns, learn one model together with privacy per person, predict for
    new patients, make a synthetic table, and attack the model. The documents' noise on every number
    and an ordinary random forest stand beside it on the same rows. The visits are simulated by
    `permea.datasets.make_visits` from a public seed.

    Example:
        permea demo
        permea demo --epsilon 4 -o four
    """
    start = time.monotonic()
    folder = Path(output)
    if folder.suffix.lower() == ".html":
        raise UsageError(f"{output}: -o names a folder, in which report.html is one of the files.")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "it is no folder").lower()
        raise OutputError(f"{output} cannot be used as a folder: {reason}.") from error
    with threadpool_limits(limits=1, user_api="blas"):  # many small matrices: threads only wait
        story = Story(epsilon, delta)
        ways = _play(console, story)
        report = _report(story, ways)
    _write(story, report, folder)
    _print_result(console, report, ways, folder, time.monotonic() - start)


def _play(console: Console, story: Story) -> list[Way]:
    """Tell the story, one step after the other."""
    rows, people = len(story.members), story.members["patient"].nunique()
    console.say(
        f"1  three hospitals: {rows} simulated visits of {people} patients, in three tables"
    )
    console.say(f"2  a schema declares {len(VISITS_SCHEMA.features)} columns before a row is read")
    told = story.privacy.describe()
    console.say(f"3  they learn one model together, {told}; what leaves is noised sums")
    found = [story.federated()]
    console.say(f"4  predictions for {story.outside['patient'].nunique()} new patients")
    assert len(story.predictions)
    made = len(story.synthetic.data)
    console.say(f"5  hospital {HOSPITALS[0]} makes a synthetic table of {made} rows, {told}")
    console.say("6  attacks: who was in the training data? Beside other ways on the same rows:")
    return [*found, story.noise_on_rows(), story.ordinary()]


def _report(story: Story, ways: list[Way]) -> Report:
    """Everything in one report: this model, and the other ways beside it."""
    ours, *_, ordinary = ways
    paper = story.model.certificate_
    assert paper is not None
    attacked = ours.attacks.to_dict() | {
        "guarantees": guarantee_rows(paper, ()),
        "membership_inference_score": None,  # it is about distances, which this model has not
    }
    effects, curves = content.effects_of(story.model.explain(), "contribution to yes")
    return Report(
        title="Who comes back within 90 days? Three hospitals learn together",
        facts={
            "data": "simulated visits, public seed 0: they describe nobody",
            "parties": ", ".join(HOSPITALS),
            "patients": str(story.members["patient"].nunique()),
            "permea": __version__,
            "date": date.today().isoformat(),
        },
        certificates={"the model": paper, "the synthetic table": story.synthetic.certificate},
        accuracy=ours.accuracy,
        attacks=attacked,
        baseline=f"the same attacks on an ordinary random forest reach an AUC of "
        f"{ordinary.attacks.strongest.auc:.3f}.",
        alternatives=[_line(way) for way in ways],
        charts=[
            content.roc_chart(ours.attacks, names=("confidence", "loss", "entropy")),
            *curves,
        ],
        effects=effects,
        quality=story.synthetic.quality,
        risks=story.risks,
        reproduce=["permea demo", f"# Python {sys.version.split()[0]}, permea {__version__}"],
        purpose=PURPOSE,
        remark=_total(story),
        schema=VISITS_SCHEMA,
        holders=HOLDERS,
    )


def _total(story: Story) -> str:
    """What the two releases about the people of one hospital add up to."""
    name = HOSPITALS[0]
    spent = story.ledgers[name].spent_on(f"visits to {name}")
    return (
        f"Patients of hospital {name} are in two releases, the model and the synthetic table; by "
        f"the ledger of that hospital they add up to {spent}."
    )


def _line(way: Way) -> tuple[str, str, str, str]:
    auroc, best = way.accuracy.auroc, way.attacks.strongest
    return way.name, way.promise, f"{auroc:.3f}", f"{best.auc:.3f}"


def _write(story: Story, report: Report, folder: Path) -> None:
    """All files of the demo; the report last."""
    save_model(story.model, str(folder / "model.permea"), story.key)
    rows = {name: story.rows_of(name, story.members) for name in HOSPITALS}
    frames = {
        **rows,
        "new-patients": story.outside.drop(columns="hospital"),
        "predictions": story.predictions,
        "synthetic": story.synthetic.data,
    }
    files = {
        f"{name}.csv": frame.to_csv(index=False, lineterminator="\n").encode()
        for name, frame in frames.items()
    }
    files["trusted.keys"] = f"{story.key.public}\n".encode()
    files["visits.toml"] = VISITS_SCHEMA.to_toml().encode()
    for language in ("en", "de"):
        files[f"assessment-{language}.html"] = render_assessment(report, language).encode()
    files["assessment.json"] = assessment_json(report).encode()
    files["model-card.md"] = model_card(report, name="readmission").encode()
    files["report.html"] = render(report).encode()
    tables.write_results({str(folder / name): data for name, data in files.items()})


def _command() -> str:
    """How this program is called: by its name where the shell finds it, else by its path."""
    import shutil

    beside = Path(sys.executable).parent / "permea"
    if shutil.which("permea") or not beside.exists():
        return "permea"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def _print_result(
    console: Console, report: Report, ways: list[Way], folder: Path, seconds: float
) -> None:
    lines = []
    for name, promise, auroc, attacked in report.alternatives:
        lines += [f"   {name:<26} AUROC {auroc}   attack AUC {attacked}   ({promise})"]
    place, program = shlex.quote(str(folder)), _command()
    weakest, best = report.weakest, report.strongest_attack
    assert weakest is not None
    assert best is not None
    lines += [
        "   AUROC: 0.5 is guessing, 1 is perfect. Attack AUC: 0.5 is guessing, 1 is certainty.",
        "",
        f"report       {folder / 'report.html'}",
        f"assessment   {folder / 'assessment-en.html'}, assessment-de.html, assessment.json",
        f"model        {folder / 'model.permea'}, model-card.md",
        f"tables       {folder / 'synthetic.csv'}, predictions.csv, {', '.join(HOSPITALS)}.csv",
        "",
        "next:",
        f"  {program} show {place}/model.permea --trusted {place}/trusted.keys",
        f"  {program} train {place}/north.csv --schema {place}/visits.toml --unit person "
        f"--epsilon 1 --delta 1e-6 -o north.permea",
        f"  {program} schema draft YOUR.csv -o your.toml",
    ]
    console.result("\n".join(lines), _values(report, ways, folder, seconds))


def _values(report: Report, ways: list[Way], folder: Path, seconds: float) -> dict[str, Any]:
    weakest, best = report.weakest, report.strongest_attack
    assert weakest is not None
    assert best is not None
    return {
        "accuracy": ways[0].accuracy.value,
        "auroc": ways[0].accuracy.auroc,
        "epsilon": weakest.privacy.epsilon,
        "delta": weakest.privacy.delta,
        "unit": weakest.privacy.unit,
        "attack": best["name"],
        "attack_auc": best["auc"],
        "attack_auc_interval": best["auc_interval"],
        "beside": {
            way.name: {"auroc": way.accuracy.auroc, "attack_auc": way.attacks.strongest.auc}
            for way in ways[1:]
        },
        "private": report.is_private and report.is_verified,
        "status": report.status,
        "folder": str(folder.absolute()),
        "report": str((folder / "report.html").absolute()),
        "seconds": round(seconds, 1),
    }
