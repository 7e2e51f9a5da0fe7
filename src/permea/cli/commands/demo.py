"""``permea demo``: a private federated classifier, attacked and reported, in under a minute."""

import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits
from typer import Option

from permea._progress import progress
from permea._version import __version__
from permea.audit import attack, guarantee_rows
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


@command("demo", panel=START)
def demo(
    console: Console,
    output: Annotated[
        str, Option("--output", "-o", help="Report to write.")
    ] = "permea-report.html",
    epsilon: Annotated[float, Option("--epsilon", "-e", help="ε per entry.")] = 8.0,
    delta: Annotated[float, Option(help="δ per entry.")] = 1e-5,
) -> None:
    """Train a private federated classifier, attack it, and write a report.

    Three parties hold a third of scikit-learn's handwritten digits each. Every party adds noise to
    its rows, fabricates new ones from them and trains; the global classifier sees distances only.
    Then membership-inference attacks are run on it and on the same model without privacy.

    Example:
        permea demo
        permea demo --epsilon 2 -o two.html
    """
    start = time.monotonic()
    check_output(output, (".html",))
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="entry", domain=(0.0, 1.0))
    digits = load_digits()
    X, X_out, y, y_out = train_test_split(
        digits.X, digits.y, test_size=0.4, stratify=digits.y, random_state=0
    )
    with threadpool_limits(limits=1, user_api="blas"):  # many small matrices: threads only wait
        report = _report(console, (X, y), (X_out, y_out), privacy, digits.shape)
    write_result(output, render(report).encode())
    _print_result(console, report, str(Path(output).absolute()), time.monotonic() - start)


def _train(members: Rows, privacy: Privacy | None) -> Federation:
    """One party per owner; without privacy the owners have to consent explicitly."""
    X, y = members
    consent = () if privacy is not None else ("not private", "raw rows")
    parties = []
    for index, name in enumerate(progress(NAMES, desc="parties")):
        classifier = KAHMClassifier(privacy=privacy, fabricate=privacy is not None)
        parties.append(Party(name, classifier.fit(X[index::3], y[index::3]), consent=consent))
    return Federation(parties, records="disjoint")


def _report(
    console: Console, members: Rows, outside: Rows, privacy: Privacy, shape: tuple[int, int] | None
) -> Report:
    """Train with and without privacy, attack both, and collect what the report shows."""
    console.say(f"training: 3 parties, {len(members[0])} digits, {privacy.describe()}")
    private, plain = _train(members, privacy), _train(members, None)
    console.say("attacking: does the model reveal who was in the training data?")
    found = attack(private, *members, *outside, kinds=content.METRIC_ATTACKS)
    console.say("measuring privacy against usefulness")
    certificates = {name: c for name, c in private.certificates.items() if c is not None}
    weakest = max(certificates.values(), key=lambda c: c.record_epsilon)
    measured = content.measured_claim(privacy, weakest.n_columns)
    found = replace(found, guarantees=guarantee_rows(weakest, [measured]))
    bare = content.accuracy_of(plain, *outside).value
    utility = content.utility_chart(
        lambda chosen: _train(members, chosen), privacy, members, outside, plain_accuracy=bare
    )
    distances = [
        content.distance_chart(model, members[0], outside[0], key=f"distances-{key}", title=title)
        for key, title, model in (
            ("private", "This model", private),
            ("plain", "The same without privacy", plain),
        )
    ]
    return Report(
        title="Private federated classification of handwritten digits",
        facts={
            "model": "kernel affine hull machines, deep, on fabricated data",
            "parties": str(len(NAMES)),
            "training rows": str(len(members[0])),
            "permea": __version__,
            "date": date.today().isoformat(),
        },
        certificates=certificates,
        accuracy=content.accuracy_of(private, *outside),
        attacks=found.to_dict(),
        baseline=f"the same federation without privacy classifies {100 * bare:.1f} % correctly, "
        "and the distance attack on it reaches an AUC of "
        f"{content.distance_auc(plain, members[0], outside[0]):.3f}.",
        charts=[content.roc_chart(found), utility, *distances],
        samples=content.samples_of(*members, privacy, shape=shape),
        reproduce=["permea demo", f"# Python {sys.version.split()[0]}, permea {__version__}"],
    )


def _print_result(console: Console, report: Report, path: str, seconds: float) -> None:
    weakest, best, accuracy = report.weakest, report.strongest_attack, report.accuracy
    assert weakest is not None
    assert best is not None
    assert accuracy is not None
    privacy = weakest.privacy
    low, high = best["auc_interval"]
    text = (
        f"accuracy     {accuracy.value:.3f} on {accuracy.n_rows} digits not used for training\n"
        f"claimed ε    {privacy.epsilon:g} per entry (δ = {privacy.delta:g}); for a whole record "
        f"ε = {weakest.record_epsilon:.4g} (δ = {weakest.record_delta:.2g})\n"
        f"attack AUC   {best['auc']:.3f} [{low:.3f}, {high:.3f}] by {best['name']}; "
        "0.5 is guessing\n"
        f"report       {path}"
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
        "report": path,
        "seconds": round(seconds, 1),
    }
    console.result(text, values)
