"""Mental stress from heart beats, from R-R intervals to an audited private model.

    python examples/stress/pipeline.py                                  invented people, one minute
    python examples/stress/pipeline.py --set cogload1 --split random    003's protocol
    python examples/stress/pipeline.py --files ada.csv bob.csv --score stress

One model of everybody's rows hides each person. One person's private model is handed to the others,
who have few labels of their own (003 §6.3); an interpreter answers "why stressed" in the six
terms of NASA-TLX; all people federate; the model is attacked. ``docs/howto/stress.md`` explains
each step and its traps.
"""

import argparse
import warnings

import numpy as np
import steps
from people import SETTINGS, Setting, apart, crowd, people_of, recordings_of

from permea.datasets import read_rr
from permea.information import LeakageWarning

STEPS = ("people", "transfer", "reasons", "federation", "attack")


def main():
    """Run all steps and print what they found."""
    options = arguments()
    warnings.filterwarnings("ignore", message="n_components=")
    warnings.filterwarnings("ignore", category=LeakageWarning)  # ratings are the same for minutes
    recordings, setting = recordings_for(options)
    people = people_of(recordings, setting, how=options.split)
    print(f"{len(recordings)} recordings, {len(people)} people with both classes and enough rows")
    if len(people) < 2:
        raise SystemExit("At least two people are needed: one source, one target.")
    if "people" in options.steps:
        show_people(recordings, setting, options)
    if "transfer" in options.steps:
        show_transfer(people, options)
    if "reasons" in options.steps and np.isfinite(people[0].windows.ratings).all():
        show_reasons(people[0])
    if "federation" in options.steps:
        show_federation(people, options)
    if "attack" in options.steps:
        print("\n== Attack on a private model of rows that share no interval\n")
        print(steps.attack(*apart(recordings, setting), options.epsilon))


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=sorted(SETTINGS), default="synthetic")
    parser.add_argument("--files", nargs="+", help="R-R files, one person each, instead of --set")
    parser.add_argument("--score", help="column of the stress score, 0 to 100, in --files")
    parser.add_argument("--history", type=int, help="d of 003 eq. (119)")
    parser.add_argument("--threshold", type=float, default=50.0, help="of the score in --files")
    parser.add_argument(
        "--epsilon",
        type=float,
        default=1.0,
        help="per person in the first step, per entry in the others",
    )
    parser.add_argument("--split", choices=["time", "random"], default="time")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, help="all by default")
    parser.add_argument("--figure", help="where to save the box plot (needs permea[plot])")
    return parser.parse_args()


def recordings_for(options):
    """Recordings and how rows are made of them."""
    setting = SETTINGS[options.set]
    if options.files:
        if not options.score:
            raise SystemExit("--files needs --score, the column with the stress score.")
        recordings = [read_rr(path, score=options.score) for path in options.files]
        return recordings, Setting(options.history or 216, 5.0, options.threshold)
    if options.history:
        setting = Setting(options.history, setting.max_gap, setting.threshold)
    return recordings_of(options.set), setting


def show_people(recordings, setting, options):
    """Everybody's rows in one model that hides each person."""
    if not options.files and options.set == "synthetic":
        recordings = recordings_of("synthetic", n_people=200)  # few people cannot be hidden well
    table = crowd(recordings, setting)
    areas, certificate = steps.hide_people(table, options.epsilon)
    print(f"\n== One model of {len(set(table['person']))} people that hides each of them\n")
    print(certificate)
    if len(areas) > 1:
        mean, low, high = steps.over_people(areas)
        print(f"\nAUROC on new people {mean:.3f} [{low:.3f}, {high:.3f}], {len(areas)} people")


def show_transfer(people, options):
    """One person is the source, all others are targets."""
    her, source = steps.source_of(people, options.epsilon)
    repeats = her.windows.repeats
    print(f"\n== Transfer from {her.name} to the others, split by {options.split}\n")
    print(source.certificate_)
    print(
        f"\nOne R-R interval stands in up to {repeats} rows: what is promised for an interval is "
        f"at most ε = {options.epsilon * repeats:g} per R-R interval. That {her.name} took part is "
        "not hidden."
    )
    others = [person for person in people if person is not her]
    results = [steps.transfer(source, person, options.split) for person in others]
    print("\nbalanced accuracy" + "".join(f"{word:>16}" for word in results[0]))
    for person, result in zip(others, results, strict=True):
        print(f"{person.name:17}" + "".join(f"{value[1]:16.3f}" for value in result.values()))
    for method in steps.METHODS:
        print_gain(results, method)
    if options.figure:
        from boxes import box_plot

        box_plot({options.set: results}, options.figure)


def print_gain(results, method):
    """By how much, for how many, and how sure."""
    first, second = ([result[name][1] for result in results] for name in ("source", method))
    if len(results) < 2:
        print("\nOne target only: no interval over people.")
        return
    mean, low, high = steps.over_people(np.subtract(second, first))
    better, count, least, most = steps.how_many_gain(first, second)
    print(
        f"\n{method} minus source: {mean:+.3f} [{low:+.3f}, {high:+.3f}]; better for {better} of "
        f"{count} people, share [{least:.2f}, {most:.2f}] (95 % intervals over people)"
    )


def show_reasons(person):
    """The interpreter on one person."""
    interpreter, row, table = steps.explain(person)
    print(f"\n== Why is {person.name} stressed? Her own interpreter, asked about a later row\n")
    print(interpreter.explain(row))
    print(f"\n{'term':20}{'error':>8}{'of the mean':>13}{'covered by ±2σ':>16}")
    for name, error, plain, covered in table:
        print(f"{name:20}{error:8.1f}{plain:13.1f}{covered:16.0%}")


def show_federation(people, options):
    """The federation of up to eight people."""
    print("\n== Everybody is a party; each is judged by the private models of the others\n")
    results, summary = steps.federate(people[:8], options.epsilon)
    print(summary)
    mean, low, high = steps.over_people([result[1] for result in results.values()])
    print(f"\nbalanced accuracy {mean:.3f} [{low:.3f}, {high:.3f}] over {len(results)} people")


if __name__ == "__main__":
    main()
