"""Steps of the stress application: hide people, transfer, explain, federate, attack."""

import numpy as np
from people import DOMAIN
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from permea import (
    KAHMClassifier,
    MomentClassifier,
    Privacy,
    SourceModel,
    TransferClassifier,
    audit,
    release,
)
from permea.datasets import HRV_SCHEMA, subject_splits
from permea.datasets.heartbeats import TERMS
from permea.federation import Federation, Party
from permea.information import Interpreter

DELTA = 1e-5  # 003 §6.3.4
METHODS = ("source2target", "consensus")  # 003 §2.5, and the library's own


def promise(epsilon):
    """The promise of 003 §6.3.4: per entry, d = 1; None for infinite ε.

    An entry is one number of the table. Neither an R-R interval nor a person is hidden by it.
    """
    if np.isinf(epsilon):
        return None
    return Privacy(epsilon=epsilon, delta=DELTA, unit="entry", domain=DOMAIN)


def hide_people(table, epsilon, seed=None):
    """One model of everybody's rows that hides each person, judged on people it has not seen.

    ``table`` is that of `permea.datasets.hrv_table`. Returns the area under the ROC curve of every
    person with both classes, and the certificate of the last model: five groups of people are left
    out in turn, which makes five releases. To judge costs more than to train once.
    """
    privacy = Privacy(epsilon=epsilon, delta=DELTA, unit="person") if np.isfinite(epsilon) else None
    whose, y = table["person"], table["stressed"]
    score = np.zeros(len(y))
    for train, test in subject_splits(whose, n_splits=min(5, len(set(whose))), random_state=0):
        model = MomentClassifier(privacy=privacy, schema=HRV_SCHEMA, random_state=seed)
        model.fit({name: column[train] for name, column in table.items()})
        later = {name: column[test] for name, column in table.items()}
        score[test] = model.decision_function(later)
    hers = [whose == person for person in np.unique(whose)]
    areas = [roc_auc_score(y[rows], score[rows]) for rows in hers if len(set(y[rows])) == 2]
    return areas, model.certificate_


def source_of(people, epsilon, seed=None):
    """The person with the most rows becomes the source; returns her and the artefact."""
    her = max(people, key=lambda person: (len(person.y), person.name))
    return her, SourceModel(privacy=promise(epsilon), random_state=seed).fit(her.X, her.y)


def transfer(source, person, how, seed=0, methods=METHODS):
    """Answers about one person: the source alone, transfer by each method, her own labels alone.

    Returns a dict of (accuracy, balanced accuracy).
    """
    labelled, test = person.split(how, seed)
    own = KAHMClassifier().fit(person.X[labelled], person.y[labelled])
    answers = {"source": source.predict(person.X[test])}
    for method in methods:
        clf = target_of(source, person, how, seed, method)
        answers[method] = clf.predict(person.X[test])
    answers["own labels"] = own.predict(person.X[test])
    return {name: scores(person.y[test], answer) for name, answer in answers.items()}


def target_of(source, person, how, seed=0, method="source2target"):
    """The target's classifier: her labelled rows, her other rows, and the source's artefact."""
    labelled, test = person.split(how, seed)
    used = labelled | test
    y = np.where(labelled, person.y, -1)[used]
    return TransferClassifier(source, method=method, random_state=seed).fit(person.X[used], y)


def scores(truth, answer):
    """Accuracy, and accuracy averaged over the classes (0.5 is guessing)."""
    return float(np.mean(truth == answer)), float(balanced_accuracy_score(truth, answer))


def over_people(values):
    """Mean and a 95 % bootstrap interval over people.

    >>> over_people([0.5, 0.5, 0.5])
    (0.5, 0.5, 0.5)
    """
    values = np.asarray(values, dtype=float)
    if np.ptp(values) == 0:
        return values[0].item(), values[0].item(), values[0].item()
    found = stats.bootstrap(
        (values,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    return float(values.mean()), float(found.low), float(found.high)


def how_many_gain(first, second):
    """How many people the second serves better than the first, and a 95 % interval of the share.

    >>> how_many_gain([0.5, 0.6, 0.7], [0.6, 0.6, 0.9])[:2]
    (2, 3)
    """
    better = int(np.sum(np.asarray(second) > np.asarray(first)))
    share = stats.binomtest(better, len(first)).proportion_ci(method="exact")
    return better, len(first), float(share.low), float(share.high)


def explain(person, epsilon=np.inf, how="time"):
    """Learn what rows mean in the six terms of NASA-TLX, and test it on later rows.

    Returns the interpreter, a row with the highest score among the later ones, and per term the
    root mean squared error of the interpreter, that of always answering the mean, and how often
    two error bars cover the truth.
    """
    first, later = person.split(how)
    rows = person.X[first]
    if np.isfinite(epsilon):
        rows = release(rows, promise(epsilon), description="rows for the interpreter").data
    ratings = person.windows.ratings
    interpreter = Interpreter().fit(rows, ratings[first], names=TERMS)
    mean, std = interpreter.predict(person.X[later], return_std=True)
    kept = [TERMS.index(name) for name in interpreter.names_]
    error = ratings[later][:, kept] - mean
    table = [
        (name, rms(error[:, k]), rms(ratings[later, at] - ratings[first, at].mean()),
         float(np.mean(np.abs(error[:, k]) <= 2 * std[:, k])))
        for k, (name, at) in enumerate(zip(interpreter.names_, kept, strict=True))
    ]  # fmt: skip
    worst = np.flatnonzero(later)[np.argmax(person.windows.score[later])]
    return interpreter, person.X[worst], table


def rms(values):
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def federate(people, epsilon):
    """Everybody is a party with a private model; each is judged by the models of all others.

    Returns per person the accuracy and the balanced accuracy, and the federation's own summary.
    """
    models = {
        person.name: KAHMClassifier(privacy=promise(epsilon)).fit(person.X, person.y)
        for person in people
    }
    results = {}
    for person in people:
        others = [Party(name, model) for name, model in models.items() if name != person.name]
        federation = Federation(others, records="disjoint")
        results[person.name] = scores(person.y, federation.predict(person.X))
    return results, federation.summary()


def attack(windows, y, epsilon, seed=0):
    """Attack a model of half of the rows; rows share no interval, so the other half is outside."""
    member = np.random.default_rng(seed).random(len(y)) < 0.5
    X = np.clip(windows.X, *DOMAIN)
    clf = KAHMClassifier(privacy=promise(epsilon)).fit(X[member], y[member])
    kinds = ("distance", "confidence", "loss")
    return audit.attack(clf, X[member], y[member], X[~member], y[~member], kinds=kinds)
