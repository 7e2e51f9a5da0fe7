"""Stress from heart beats: private transfer from one person to the others, beside 003 Table 17.

CogLoad1 (NASA-TLX, about one interval per second, d = 216, label: above the person's own median
score) and Stress-Predict (true beats, d = 59, label: stress task or baseline) stand in for the
document's data, which are not public. "random" draws half of a person's rows as labelled, as 003
§6.3.3 does: test rows are then labelled rows shifted by one beat. "time" labels the first half and
leaves a gap of a whole history before the test. "source2target" is 003's method, "consensus" the
library's own. Intervals are 95 %, over people.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from common import QUICK, options_of, size, table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "stress"))

import steps
from people import SETTINGS, Person, apart, people_of, recordings_of

from permea import release
from permea.information import interpretability, privacy_leakage, transferability

EPSILONS = (0.1, 1.0)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--figure", help="where to save the box plots")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = size(("cogload1", "stress_predict"), ("synthetic",))
    if QUICK:
        print("Quick run on invented people: its figures mean nothing.\n")
    data = {name: recordings_of(name, n_people=3, seed=options.seed) for name in names}
    groups = transfer_tables(data, options.seed)
    unshared_rows(data, options.seed)
    for name in names:
        reasons(name, data[name])
    measures(names[0], data[names[0]])
    if options.figure:
        from boxes import box_plot

        box_plot(groups, options.figure)


def interval(values):
    mean, low, high = steps.over_people(values)
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


WAYS = ("source", *steps.METHODS, "own labels")


def transfer_tables(data, seed):
    """Accuracies of source, transfer and own labels, and the gain over people."""
    medians, means, gains, groups = [], [], [], {}
    for name, recordings in data.items():
        for how in ("random", "time"):
            people = people_of(recordings, SETTINGS[name], how=how)
            for epsilon in size(EPSILONS if how == "random" else EPSILONS[1:], (1.0,)):
                results = all_targets(people, epsilon, how, seed)
                line = [name, how, f"{epsilon:g}", len(results)]
                medians.append(line + [f"{np.median(column(results, way, 0)):.4f}" for way in WAYS])
                means.append(line + [interval(column(results, way)) for way in WAYS])
                gains += [line + gain(results, method) for method in steps.METHODS]
                if epsilon == 1.0:
                    groups[f"{name}, {how}"] = results
    head = ["set", "split", "ε per entry", "people"]
    print("**(a) Accuracy, median over people** (003 Table 17 at its smallest leakage: source")
    print("0.3411, transfer 0.9647, 48 people).\n")
    table([*head, *WAYS], medians)
    print("**(b) Balanced accuracy, mean over people**; 0.5 is guessing.\n")
    table([*head, *WAYS], means)
    print("**(c) Transfer minus source**, balanced accuracy.\n")
    table([*head, "method", "gain", "better for", "share of people"], gains)
    return groups


def all_targets(people, epsilon, how, seed):
    her, source = steps.source_of(people, epsilon, seed)
    return [steps.transfer(source, who, how, seed) for who in people if who is not her]


def column(results, way, which=1):
    return [result[way][which] for result in results]


def gain(results, method):
    first, second = column(results, "source"), column(results, method)
    better, count, low, high = steps.how_many_gain(first, second)
    share = f"[{low:.2f}, {high:.2f}]"
    return [method, interval(np.subtract(second, first)), f"{better} of {count}", share]


def unshared_rows(data, seed):
    """The source's rows share no interval, so that ε per entry is ε per R-R interval."""
    rows = []
    for name, recordings in data.items():
        people = people_of(recordings, SETTINGS[name], how="random")
        windows, y = apart(recordings, SETTINGS[name])
        usable = [
            Person(who, windows.of(who), y[windows.subject == who])
            for who in np.unique(windows.subject)
            if len(np.unique(y[windows.subject == who])) == 2
        ]
        her, source = steps.source_of(usable, 1.0, seed)
        others = [person for person in people if person.name != her.name]
        results = [steps.transfer(source, who, "random", seed) for who in others]
        line = [name, len(her.y), her.windows.repeats, len(results)]
        rows += [line + gain(results, method) for method in steps.METHODS]
    print("**(d) ε = 1 per R-R interval**: rows of the source share no interval; split random.\n")
    head = ["set", "rows of the source", "rows per interval", "people"]
    table([*head, "method", "gain", "better for", "share of people"], rows)


def reasons(name, recordings):
    """The interpreter on later rows of each person who rated."""
    people = people_of(recordings, SETTINGS[name], how="time")
    rated = [who for who in people if np.isfinite(who.windows.ratings).all()]
    if not rated:
        return
    errors = [{term: line for term, *line in steps.explain(who)[2]} for who in rated]
    rows = []
    for term in steps.TERMS:
        lines = [each[term] for each in errors if term in each]
        rows.append([term, len(lines), *(interval(column) for column in zip(*lines, strict=True))])
    print(f"**(e) Why stressed: NASA-TLX from later rows, {name}**, scale 0 to 100.\n")
    head = ["term", "people", "error (rms)", "error of always answering the mean", "within 2 σ"]
    table(head, rows)


def measures(name, recordings):
    """The three measures of 003 for one source, median transferability over targets."""
    people = people_of(recordings, SETTINGS[name], how="random", most=300)
    rows = []
    for epsilon in size((0.1, 1.0, 8.0, 100.0), (1.0,)):
        her, source = steps.source_of(people, epsilon, seed=0)
        released = release(her.X, steps.promise(epsilon), random_state=0).data
        targets = [who for who in people if who is not her][: size(6, 1)]
        moved = [
            transferability(steps.target_of(source, who, "random"), who.X).value for who in targets
        ]
        leak = privacy_leakage(released, 60 / her.X[:, :1]).value
        clear = interpretability(released, her.windows.ratings / 100).value
        rows.append([f"{epsilon:g}", f"{leak:.2f}", f"{clear:.2f}", f"{np.median(moved):.1f}"])
    print(f"**(f) Measures of 003 in nats, {name}** (Table 17: -3.74, 3.47, 291.84 at its smallest")
    print("leakage; 0.43, 23.92, 773.36 at its largest interpretability). Private: the heart rate")
    print("60 / RR in beats per minute. Interpretable: the six terms, from 0 to 1.\n")
    head = ["ε per entry", "privacy leakage", "interpretability", "transferability (median)"]
    table(head, rows)


if __name__ == "__main__":
    main()
