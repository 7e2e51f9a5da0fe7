"""The honest comparison: private learning by every way at the same unit and the same (ε, δ).

The unit is a whole record, added or taken away (one record replaced for noise on the rows, which is
the stricter promise), δ = 1e-5; diffprivlib and the synthetic data of DataSynthesizer (PrivBayes,
degree 1, ranges declared) keep δ = 0. The row "noise on entries" protects one entry at the same ε:
its promise about a record, by tight composition, stands in the third column and is what to compare.
Domains are declared, not read from the data. Half of the rows train, the others test and serve the
attacks as outsiders: the largest AUC of the loss, confidence, entropy and correctness attacks of
``permea.audit`` (0.5 is guessing; the largest of four is a little above it by chance) and its 95 %
interval. On MNIST the rates of DP-SGD were chosen by accuracy on such rows, at no charge
(``dpsgd_rates``). Libraries that are not installed are named and left out (extra ``peers``).
Options: ``--epsilon``, ``--runs``, ``--tables digits mnist``. What is done is kept in the folder
for temporary files: ``--resume`` takes it from there.
"""

import contextlib
import io
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import QUICK, Kept, mnist, options_of, size, table
from dpsgd import DELTA, DPSGD, available, tuned
from moments_tabular import tables as small_tables
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from permea import KAHMClassifier, MomentClassifier, Privacy, audit, fabricate_records

ATTACKS = ("loss", "confidence", "entropy", "correctness")
LARGE = 200  # columns from which on some peers take hours
SLOW = ("PrivBayes", "Opacus")  # run once: minutes each
NOISED = "permea: noise"  # and so are these
MANY = 20_000  # with more rows than this


class OnSynthetic(ClassifierMixin, BaseEstimator):
    """A random forest trained on private synthetic rows only."""

    def __init__(self, make=None):
        self.make = make

    def fit(self, X, y):
        rows, labels = self.make(X, y)
        self.forest_ = RandomForestClassifier(n_jobs=2, random_state=0).fit(rows, labels)
        self.classes_ = self.forest_.classes_
        return self

    def predict_proba(self, X):
        return self.forest_.predict_proba(X)

    def predict(self, X):
        return self.forest_.predict(X)


def privbayes(X, y, epsilon):
    """Rows of DataSynthesizer's Bayesian network (PrivBayes, Zhang et al. 2014)."""
    with contextlib.redirect_stdout(io.StringIO()):
        return synthesised(X, y, epsilon)


def synthesised(X, y, epsilon):
    import pandas as pd
    from DataSynthesizer.DataDescriber import DataDescriber
    from DataSynthesizer.DataGenerator import DataGenerator

    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(np.round(X, 4), columns=names).assign(label=[f"c{v}" for v in y])
    with tempfile.TemporaryDirectory() as folder:
        source, description = Path(folder) / "rows.csv", Path(folder) / "description.json"
        frame.to_csv(source, index=False)
        describer = DataDescriber(histogram_bins=8, category_threshold=2)
        describer.describe_dataset_in_correlated_attribute_mode(
            dataset_file=str(source), epsilon=epsilon, k=1,
            attribute_to_is_categorical={"label": True, **dict.fromkeys(names, False)},
            attribute_to_datatype={"label": "String", **dict.fromkeys(names, "Float")},
            attribute_to_is_candidate_key=dict.fromkeys([*names, "label"], False),
            numerical_attribute_ranges={name: [0.0, 1.0] for name in names},
        )  # fmt: skip
        describer.save_dataset_description_to_file(str(description))
        generator = DataGenerator()
        generator.generate_dataset_in_correlated_attribute_mode(len(X), str(description))
        made = generator.synthetic_dataset
    labels = made["label"].astype(str).str[1:].astype(int).to_numpy()
    return made[names].astype(float).to_numpy(), labels


def ours(epsilon, classes, image):
    record = Privacy(epsilon=epsilon, delta=DELTA, unit="record", domain=(0, 1))
    entry = Privacy(epsilon=epsilon, delta=DELTA, unit="entry", domain=(0, 1))
    yield "permea: noise on entries", KAHMClassifier(privacy=entry, n_jobs=2)
    yield "permea: noise on records", KAHMClassifier(privacy=record, release="rows", n_jobs=2)
    for features in ("gradients",) if image else ("identity", "fourier"):
        moments = MomentClassifier(
            privacy=record, features=features, neighbours="add/remove", classes=classes
        )
        yield f"permea: moments, {features}", moments

    def made(X, y):
        rows = fabricate_records(X, y, privacy=record, classes=classes, neighbours="add/remove")
        return rows.data, rows.labels

    yield "permea: fabricated records, forest", OnSynthetic(made)


def peers(epsilon, classes, n_columns, image):
    if available("diffprivlib"):
        from diffprivlib import models

        norm = float(np.sqrt(n_columns))
        yield (
            "diffprivlib: logistic",
            models.LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=200),
        )
        yield "diffprivlib: naive Bayes", models.GaussianNB(epsilon=epsilon, bounds=(0, 1))
        yield (
            "diffprivlib: forest",
            models.RandomForestClassifier(
                epsilon=epsilon, bounds=(0, 1), classes=list(classes), n_estimators=10
            ),
        )
    if available("opacus"):
        yield "Opacus: linear", tuned("linear on pixels", epsilon) if image else DPSGD(epsilon)
        if image:
            yield "Opacus: convolutional", tuned("network on pixels", epsilon)
    if available("DataSynthesizer") and n_columns < size(LARGE, 0):
        yield "PrivBayes, forest", OnSynthetic(lambda X, y: privbayes(X, y, epsilon))


def unprotected(image):
    yield "none: always the largest class", DummyClassifier()
    yield "none: KAHM", KAHMClassifier(n_jobs=2)
    if not image:
        yield "none: logistic", LogisticRegression(max_iter=500)
        yield "none: boosting", HistGradientBoostingClassifier(random_state=0)


def problems():
    for name, X, y in small_tables():
        yield name, X, y, False
    if QUICK:
        return
    X, y, T, t = mnist()
    yield "MNIST", np.concatenate([X, T]), np.concatenate([y, t]).astype(int), True


def evaluate(model, X, y, runs):
    """Accuracy, seconds and the strongest attack, over several halves of the rows."""
    scores, times = [], []
    for run in range(runs):
        parts = train_test_split(X, y, test_size=0.5, stratify=y, random_state=run)
        start = time.perf_counter()
        model.fit(parts[0], parts[2])
        times.append(time.perf_counter() - start)
        scores.append(np.mean(model.predict(parts[1]) == parts[3]))
    return [f"{np.mean(scores):.4f}", f"{np.mean(times):.2f}", strongest_attack(model, parts)]


def strongest_attack(model, parts, few=3000):
    halves = [part[:few] for part in (parts[0], parts[2], parts[1], parts[3])]
    if not np.isfinite(model.predict_proba(np.concatenate([halves[0], halves[2]]))).all():
        return "its probabilities overflow"
    report = audit.attack(model, *halves, kinds=ATTACKS)
    worst = max((r for r in report.attacks if r.applies), key=lambda r: r.auc)
    low, high = worst.auc_interval
    return f"{worst.auc:.3f} ({low:.3f} to {high:.3f})"


def record_promise(model, epsilon):
    if epsilon is None:
        return "∞"
    certificate = getattr(model, "certificate_", None)
    return f"{certificate.record_epsilon:.3g}" if certificate is not None else f"{epsilon:g}"


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=size([1.0, 8.0], [8.0]))
    parser.add_argument("--runs", type=int, default=size(3, 1))
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    kept = Kept("private-peers", options.resume)
    warnings.filterwarnings("ignore")
    spent = 0.0
    for name in ("diffprivlib", "opacus", "DataSynthesizer"):
        if not available(name):
            print(f"{name} is not installed here or does not import: its rows are missing.")
    for name, X, y, image in problems():
        wanted = options.tables or size([name], ["breast"])
        if not any(wish.lower() in name.lower() for wish in wanted):
            continue
        X = X[: size(len(X), 300)]
        y = y[: len(X)]
        runs = 1 if image else options.runs
        ways = [(title, None, model) for title, model in unprotected(image)]
        for epsilon in options.epsilon:
            ways += [(title, epsilon, model) for title, model in (
                *ours(epsilon, np.unique(y), image),
                *peers(epsilon, np.unique(y), X.shape[1], image),
            )]  # fmt: skip
        rows = []
        for title, epsilon, model in ways:
            key = f"{name}, {title}, {epsilon or '∞'}"
            slow = SLOW + ((NOISED,) if len(X) > MANY else ())
            times = 1 if title.startswith(slow) else runs
            if key not in kept:
                figures = evaluate(model, X, y, times)
                kept[key] = [record_promise(model, epsilon), *figures]
                print(key, *kept[key], file=sys.stderr, flush=True)
            spent += times * float(kept[key][2])
            rows.append([title, f"{epsilon:g}" if epsilon else "∞", *kept[key]])
        print(
            f"**{name}**: {len(X) // 2} training rows, {X.shape[1]} columns; mean of {runs} "
            "(Opacus, PrivBayes, and noise on rows where there are many: one).\n"
        )
        header = ["way", "ε asked, per unit of the way", "ε per record", "accuracy", "fit, s"]
        table([*header, "strongest attack, AUC"], rows)
    print(f"The fits alone took {spent / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
