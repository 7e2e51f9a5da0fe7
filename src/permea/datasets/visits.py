"""Simulated hospital visits: a table with categories, missing values and several rows per person.

No table of patients that is free to hand on is small, has gaps and has people with several rows, so
this one is drawn by the code below from a public seed. It describes nobody. Visits of a person
share her age, sex and hidden frailty; what a visit shows depends on these; and the label depends on
what the visit shows and on the frailty.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from permea._arrays import Array
from permea.tables import Category, Number, Schema, YesNo

HOSPITALS = ("north", "south", "west")
_WARDS = ("medicine", "surgery", "intensive care", "geriatrics")
_ADMISSIONS = ("emergency", "planned", "transfer")
_SEXES = ("female", "male")
_MOST_VISITS = 6

VISITS_SCHEMA = Schema(
    {
        "age": Number(18, 100, whole=True),
        "sex": Category(_SEXES),
        "admission": Category(_ADMISSIONS),
        "ward": Category(_WARDS),
        "pressure": Number(70, 230, whole=True, missing=True),
        "creatinine": Number(20, 1500, scale="log", resolution=1, missing=True),
        "haemoglobin": Number(4, 20, resolution=0.1, missing=True),
        "smoker": YesNo(missing=True),
        "earlier": Number(0, 12, whole=True),
        "nights": Number(0, 60, whole=True, edges=(0, 1, 2, 4, 8, 15, 30, 60)),
        "readmitted": YesNo(),
    },
    label="readmitted",
    person="patient",
    ignored=("hospital",),
)
"""What `make_visits` holds: blood pressure in mmHg, creatinine in µmol/l, haemoglobin in g/dl,
visits in the year before, nights in hospital, and whether the patient came back within 90 days."""


def make_visits(n_people: int = 6000, *, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Visits of simulated patients to three hospitals, one row per visit.

    Parameters
    ----------
    n_people : int
        Number of patients. Each has one to six visits, all to one hospital.
    seed : int
        The same seed gives the same table.

    Returns
    -------
    dict of str to ndarray
        Columns of ``VISITS_SCHEMA``, ``patient`` and ``hospital``. A number that is missing is NaN,
        a text that is missing is empty.

    Examples
    --------
    >>> visits = make_visits(1000)
    >>> sorted(set(visits["hospital"].tolist())), len(set(visits["patient"].tolist()))
    (['north', 'south', 'west'], 1000)
    >>> VISITS_SCHEMA.n_people(visits), VISITS_SCHEMA.encode(visits).shape[0] > 2000
    (1000, True)
    """
    rng = np.random.default_rng(seed)
    people = np.repeat(np.arange(n_people), 1 + rng.binomial(_MOST_VISITS - 1, 0.3, n_people))
    frailty, years, male = (
        rng.normal(size=n_people)[people],
        np.clip(np.rint(rng.normal(62, 18, n_people)), 18, 100)[people],
        (rng.random(n_people) < 0.48)[people],
    )
    hospital = rng.integers(0, len(HOSPITALS), n_people)[people]
    visit = _visit(rng, frailty, years, male, hospital)
    risk = _risk(visit, frailty)
    texts = {
        "readmitted": np.where(rng.random(len(people)) < 1 / (1 + np.exp(-risk)), "yes", "no"),
        "patient": np.array([f"P{number:05d}" for number in people]),
        "hospital": np.array(HOSPITALS)[hospital],
    }
    return _with_gaps(rng, visit) | texts


def _visit(
    rng: np.random.Generator,
    frailty: Array,
    years: Array,
    male: NDArray[np.bool_],
    hospital: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """What is recorded about each visit, before anything goes missing."""
    n = len(years)
    urgent = rng.random(n) < 1 / (1 + np.exp(0.3 - 0.6 * frailty))
    old = years > 75
    ward = np.select(
        [rng.random(n) < 0.05 + 0.08 * urgent, old & (rng.random(n) < 0.5), hospital == 1],
        [2, 3, rng.integers(0, 2, n)],
        (rng.random(n) < 0.35).astype(int),
    )
    nights = rng.gamma(1.5, 1.6 + 0.8 * urgent + 1.2 * (ward == 2) + 0.4 * np.maximum(frailty, 0))
    return {
        "age": years,
        "sex": np.array(_SEXES)[male.astype(int)],
        "admission": np.array(_ADMISSIONS)[np.where(urgent, 0, 1 + (rng.random(n) < 0.15))],
        "ward": np.array(_WARDS)[ward],
        "pressure": np.rint(np.clip(rng.normal(112 + 0.35 * years - 6 * frailty, 15), 70, 230)),
        "creatinine": np.rint(
            np.clip(np.exp(rng.normal(4.0 + 0.006 * years + 0.25 * frailty, 0.35)), 20, 1500)
        ),
        "haemoglobin": np.round(np.clip(rng.normal(13 + male - 0.7 * frailty, 1.4), 4, 20), 1),
        "smoker": np.where(rng.random(n) < 0.3 - 0.15 * old, "yes", "no"),
        "earlier": np.clip(rng.poisson(np.exp(0.1 + 0.55 * frailty)), 0, 12).astype(float),
        "nights": np.clip(np.floor(nights), 0, 60),
    }


def _risk(visit: dict[str, NDArray[Any]], frailty: Array) -> Array:
    """Log odds of coming back: age beyond 60, kidneys, anaemia, earlier visits, urgency."""
    return np.asarray(
        -3.2
        + 0.04 * np.maximum(visit["age"] - 60, 0)
        + 1.3 * np.log(visit["creatinine"] / 80)
        - 0.3 * (visit["haemoglobin"] - 13)
        + 0.4 * visit["earlier"]
        + 1.0 * (visit["admission"] == "emergency")
        + 0.7 * (visit["ward"] == "intensive care")
        + 0.5 * (visit["smoker"] == "yes")
        + 0.6 * np.log1p(visit["nights"])
        + 0.4 * frailty
    )


def _with_gaps(rng: np.random.Generator, visit: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Values that were not taken: blood more often where nobody is in a hurry."""
    planned = visit["admission"] == "planned"
    gaps = {
        "pressure": 0.04,
        "creatinine": 0.08 + 0.2 * planned,
        "haemoglobin": 0.06 + 0.15 * planned,
        "smoker": 0.12,
    }
    for name, share in gaps.items():
        missing = rng.random(len(planned)) < share
        visit[name] = np.where(missing, "" if name == "smoker" else np.nan, visit[name])
    return visit
