"""``permea demo``: a private federated classifier, attacked and reported, in under a minute."""

import sys
import time
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from permea._progress import progress
from permea._version import __version__
from permea.audit import AttackReport, attack, guarantee_rows
from permea.cli.app import START, command
from permea.cli.console import Console
from permea.cli.tables import check_output, write_result
from permea.compose import KAHMClassifier
from permea.datasets import load_digits
from permea.federation import Federation, Party
from permea.privacy import Privacy
from permea.report import Report, content, render

NAMES = ("hospital north", "hospital south", "hospital west")
Rows = tuple[NDArray[np.float64], NDArray[Any]]


@dataclass(frozen=True)
class Setting:
    """Three owners of rows, and rows that nobody trains on."""

    owners: dict[str, Rows]
    members: Rows
    outside: Rows
    shape: tuple[int, int]


@command("demo", panel=START, examples=["permea demo", "permea demo --epsilon 2 -o two.html"])
def demo(
    console: Console,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Report to write.")
    ] = "permea-report.html",
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="ε per entry.")] = 8.0,
    delta: Annotated[float, typer.Option("--delta", help="δ per entry.")] = 1e-5,
) -> None:
    """Train a private federated classifier, attack it, and write a report.

    Three parties hold a third of scikit-learn's handwritten digits each. Every party noises its
    rows, fabricates new ones from them and trains; the global classifier sees distances only. Then
    membership-inference attacks are run against it and against the same without privacy.
    """
    start = time.monotonic()
    check_output(output, (".html",))
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="entry", domain=(0.0, 1.0))
    setting = _setting()
    with threadpool_limits(limits=1, user_api="blas"):  # many small matrices: threads only wait
        console.say(f"training: 3 parties, {len(setting.members[0])} digits, {privacy.describe()}")
        private = train_federation(setting.owners, privacy)
        plain = train_federation(setting.owners, None)
        console.say("attacking: can the model tell who was in the training data?")
        found = attack(private, *setting.members, *setting.outside, kinds=content.METRIC_ATTACKS)
        console.say("measuring privacy against usefulness")
        report = _report(setting, privacy, private, plain, found)
    write_result(output, render(report).encode())
    _tell(console, report, output, time.monotonic() - start)


def _setting() -> Setting:
    """60 % of the digits for the parties, 40 % for nobody, the same every time."""
    digits = load_digits()
    X, X_out, y, y_out = train_test_split(
        digits.X, digits.y, test_size=0.4, stratify=digits.y, random_state=0
    )
    owners = {name: (X[index::3], y[index::3]) for index, name in enumerate(NAMES)}
    assert digits.shape is not None
    return Setting(owners, (X, y), (X_out, y_out), digits.shape)


def train_federation(owners: dict[str, Rows], privacy: Privacy | None) -> Federation:
    """One party per owner; without privacy the owners have to consent in words."""
    consent = () if privacy is not None else ("not private", "raw rows")
    parties = []
    for name, (X, y) in progress(owners.items(), desc="parties"):
        classifier = KAHMClassifier(privacy=privacy, fabricate=privacy is not None)
        parties.append(Party(name, classifier.fit(X, y), consent=consent))
    return Federation(parties, records="disjoint")


def _report(
    setting: Setting,
    privacy: Privacy,
    private: Federation,
    plain: Federation,
    found: AttackReport,
) -> Report:
    members, outside = setting.members, setting.outside
    certificates = {name: c for name, c in private.certificates.items() if c is not None}
    weakest = max(certificates.values(), key=lambda c: c.record_epsilon)
    measured = content.measured_claim(privacy, weakest.n_columns)
    found = replace(found, guarantees=guarantee_rows(weakest, [measured]))
    bare = content.accuracy_of(plain, *outside)
    charts = [
        content.roc_chart(found),
        content.utility_chart(
            lambda chosen: train_federation(setting.owners, chosen),
            privacy,
            members,
            outside,
            plain_accuracy=bare.value,
        ),
        content.distance_chart(
            private, members[0], outside[0], key="distances-private", title="This model"
        ),
        content.distance_chart(
            plain, members[0], outside[0], key="distances-plain", title="The same without privacy"
        ),
    ]
    return Report(
        title="Private federated classification of handwritten digits",
        facts={
            "model": "kernel affine hull machines, deep, on fabricated data",
            "parties": str(len(setting.owners)),
            "training rows": str(len(members[0])),
            "permea": __version__,
            "date": date.today().isoformat(),
        },
        certificates=certificates,
        accuracy=content.accuracy_of(private, *outside),
        attacks=found.to_dict(),
        baseline="the same federation without privacy labels "
        f"{100 * bare.value:.1f} % right, and the distance attack on it reaches an AUC of "
        f"{content.distance_auc(plain, members[0], outside[0]):.3f}.",
        charts=charts,
        samples=content.samples_of(*members, privacy, shape=setting.shape),
        reproduce=["permea demo", f"# Python {sys.version.split()[0]}, permea {__version__}"],
    )


def _tell(console: Console, report: Report, output: str, seconds: float) -> None:
    weakest, best, accuracy = report.weakest, report.strongest_attack, report.accuracy
    assert weakest is not None
    assert best is not None
    assert accuracy is not None
    privacy = weakest.privacy
    low, high = best["auc_interval"]
    text = (
        f"accuracy     {accuracy.value:.3f} on {accuracy.n_rows} digits nobody trained on\n"
        f"claimed ε    {privacy.epsilon:g} per entry (δ = {privacy.delta:g}); about a whole record "
        f"ε = {weakest.record_epsilon:.4g} (δ = {weakest.record_delta:.2g})\n"
        f"attack AUC   {best['auc']:.3f} [{low:.3f}, {high:.3f}] by {best['name']}; "
        "0.5 is guessing\n"
        f"report       {Path(output).absolute()}"
    )
    values = {
        "accuracy": accuracy.value,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "unit": privacy.unit,
        "record_epsilon": weakest.record_epsilon,
        "record_delta": weakest.record_delta,
        "attack": best["name"],
        "attack_auc": best["auc"],
        "attack_auc_interval": best["auc_interval"],
        "private": report.is_private and report.is_verified,
        "status": report.status,
        "report": str(Path(output).absolute()),
        "seconds": round(seconds, 1),
    }
    console.result(text, values)
