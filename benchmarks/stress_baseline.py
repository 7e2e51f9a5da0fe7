"""Stress from heart beats without privacy: standard HRV features and a random forest.

Time and frequency domain features of NeuroKit2 for every fifth row of each person, on the splits of
the benchmark ``stress``: half of the person's own rows labelled, at random or the first in time;
and trained on other people only, five groups, nobody on both sides. Raw intervals with the same
forest stand beside. Intervals are 95 %, over people.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from common import QUICK, options_of, size, table
from sklearn.ensemble import RandomForestClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "stress"))

import steps
from people import SETTINGS, Person, people_of, recordings_of

from permea.datasets import subject_splits

EVERY = 5  # a feature vector takes about 60 ms


def main():
    options = options_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    try:
        import neurokit2
    except ImportError:
        print("NeuroKit2 is not installed: HRV features are left out (pip install neurokit2).\n")
        neurokit2 = None
    if QUICK:
        print("Quick run on invented people: its figures mean nothing.\n")
    rows = []
    for name in size(("cogload1", "stress_predict"), ("synthetic",)):
        recordings = recordings_of(name, n_people=3, seed=options.seed)
        people = [every_fifth(who) for who in people_of(recordings, SETTINGS[name], how="random")]
        views = {"raw intervals": {who.name: who.X for who in people}}
        if neurokit2 is not None:
            views["HRV, NeuroKit2"] = {who.name: hrv(neurokit2, who.X) for who in people}
        for view, features in views.items():
            rows += own_labels(name, view, people, features, recordings, options.seed)
            rows.append(other_people(name, view, people, features, options.seed))
    head = ["set", "features", "labels", "people", "accuracy, median", "balanced accuracy, mean"]
    table(head, rows)


def every_fifth(who):
    chosen = np.arange(0, len(who.y), size(EVERY, 12))
    return Person(who.name, who.windows.take(chosen), who.y[chosen])


def hrv(neurokit2, X):
    """Features of each row; those that three minutes cannot give are zero everywhere."""
    import pandas as pd

    frames = []
    for row in X:
        peaks = neurokit2.intervals_to_peaks(row[::-1] * 1000, sampling_rate=1000)
        frames.append(
            pd.concat(
                [
                    neurokit2.hrv_time(peaks, sampling_rate=1000),
                    neurokit2.hrv_frequency(peaks, sampling_rate=1000),
                ],
                axis=1,
            )
        )
    features = pd.concat(frames).to_numpy(dtype=float)
    return np.where(np.isfinite(features), features, 0.0)


def forest(seed):
    return RandomForestClassifier(200, class_weight="balanced", random_state=seed)


def line(name, view, labels, results):
    accuracy, balanced = zip(*results, strict=True)
    mean, low, high = steps.over_people(balanced)
    shown = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
    return [name, view, labels, len(results), f"{np.median(accuracy):.4f}", shown]


def own_labels(name, view, people, features, recordings, seed):
    """Trained on the person's own labelled half, for both splits."""
    lines = []
    for how in ("random", "time"):
        fit = {who.name for who in people_of(recordings, SETTINGS[name], how=how)}
        results = []
        for who in people:
            first, test = who.split(how, seed)
            if who.name in fit and len(np.unique(who.y[test])) == 2:
                X = features[who.name]
                clf = forest(seed).fit(X[first], who.y[first])
                results.append(steps.scores(who.y[test], clf.predict(X[test])))
        lines.append(line(name, view, f"own, {how}", results))
    return lines


def other_people(name, view, people, features, seed):
    """Trained on other people only."""
    X = np.concatenate([features[who.name] for who in people])
    y = np.concatenate([who.y for who in people])
    whose = np.concatenate([[who.name] * len(who.y) for who in people])
    results = []
    splits = subject_splits(whose, n_splits=min(5, len(people)), random_state=seed)
    for train, test in splits:
        answer = forest(seed).fit(X[train], y[train]).predict(X[test])
        for who in np.unique(whose[test]):
            hers = whose[test] == who
            results.append(steps.scores(y[test][hers], answer[hers]))
    return line(name, view, "other people's", results)


if __name__ == "__main__":
    main()
