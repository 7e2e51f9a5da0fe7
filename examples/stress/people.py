"""The people of the stress application: whose recordings, which rows, which labels."""

from dataclasses import dataclass

import numpy as np

from permea.datasets import (
    Windows,
    both_classes,
    hrv_table,
    labelled_part,
    labels_from_score,
    load_recordings,
    make_recordings,
    make_windows,
)

DOMAIN = (0.4, 1.4)  # seconds, 150 to 43 beats per minute: what hearts do, not what these did
AT_LEAST = 60  # rows of a target (003 §6.3.3)
EACH_CLASS = 10  # rows of each class on each side of a split
MOST = 480  # rows of a person that are used, in runs of neighbouring rows
RUN = 60


@dataclass(frozen=True)
class Setting:
    """How rows are made from a data set."""

    history: int  #: d of 003 eq. (119)
    max_gap: float  #: seconds without a beat that a row may bridge
    threshold: float | str  #: of the score


SETTINGS = {
    "synthetic": Setting(history=59, max_gap=5.0, threshold=45.0),
    "cogload1": Setting(history=216, max_gap=5.0, threshold="median"),
    # true beats with many gaps: 217 in a row without a long pause are there for 16 of 35 people
    "stress_predict": Setting(history=59, max_gap=30.0, threshold=50.0),
}


@dataclass(frozen=True)
class Person:
    """Rows of one person, and labels 0 (no stress) and 1 (under stress)."""

    name: str
    windows: Windows
    y: np.ndarray

    @property
    def X(self):
        """Rows, clipped to the declared domain as the source's are."""
        return np.clip(self.windows.X, *DOMAIN)

    def split(self, how, seed=0):
        """Labelled and test rows: 003's random half, or the first half with a gap behind it."""
        return labelled_part(self.windows, how=how, random_state=seed)


def recordings_of(name, n_people=8, seed=0):
    """Recordings of a public set, or of invented people."""
    if name == "synthetic":
        return make_recordings(n_people, minutes=20, episode=2.5, random_state=seed)
    return load_recordings(name)


def people_of(recordings, setting, *, stride=1, how="time", most=MOST):
    """People who have both classes on both sides of the split, and enough rows (003 §6.3.3)."""
    windows = make_windows(
        recordings, history=setting.history, stride=stride, max_gap=setting.max_gap
    )
    y = labels_from_score(windows.score, threshold=setting.threshold, subject=windows.subject)
    people = []
    for name in np.unique(windows.subject):
        hers = np.flatnonzero((windows.subject == name) & (y >= 0))
        hers = hers[in_runs(len(hers), most)]
        if len(hers) < AT_LEAST:
            continue
        person = Person(str(name), windows.take(hers), y[hers])
        if both_classes(person.y, *person.split(how), at_least=EACH_CLASS):
            people.append(person)
    return people


def in_runs(count, most=MOST, run=RUN):
    """At most so many of the rows, as runs of neighbours spread over the recording.

    >>> in_runs(10, most=4, run=2).tolist()
    [0, 1, 8, 9]
    """
    if count <= most:
        return np.arange(count)
    starts = np.linspace(0, count - run, most // run).astype(int)
    return np.unique(starts[:, None] + np.arange(run))


def apart(recordings, setting):
    """Rows of everybody that share no interval, with labels: ε per entry is ε per interval."""
    windows = make_windows(
        recordings, history=setting.history, stride=setting.history + 1, max_gap=setting.max_gap
    )
    y = labels_from_score(windows.score, threshold=setting.threshold, subject=windows.subject)
    return windows.take(y >= 0), y[y >= 0]


def crowd(recordings, setting):
    """A table of everybody's heart rate variability, rows that share no interval."""
    return hrv_table(*apart(recordings, setting))
