"""Which score of a class ranks rows best: 004 Def. 8 beside two others, on Office+Caltech features.

An ablation for 004 Table 4, in the setting of ``kahm_peers``, five splits, the classifier of
`permea.documents`. The area under the ROC curve of a class compares scores of *different* rows, and
the score of Definition 8 divides a distance by those to all classes together. Dividing by the
distance to the nearest other class compares what decides the label.
"""

import sys
import warnings

import numpy as np
from common import options_of, size, table
from kahm_peers import features
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from permea import documents
from permea.models.base import matching_scores

SCORES = {
    "matching score (004 Def. 8)": matching_scores,
    "distance to the class": np.negative,
    "distance over that to the nearest other class": lambda d: -d / nearest_other(d),
}


def nearest_other(distances):
    """For every class the smallest distance to another one."""
    return np.stack(
        [np.delete(distances, c, axis=1).min(axis=1) for c in range(distances.shape[1])], axis=1
    )


def area(scores, truth, classes):
    return np.mean([roc_auc_score(truth == c, scores[:, k]) for k, c in enumerate(classes)])


def main():
    options = options_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    X, y = features()
    told = {name: [] for name in SCORES}
    for split in range(size(5, 1)):
        train, test, labels, truth = train_test_split(
            X, y, test_size=0.4, stratify=y, random_state=options.seed + split
        )
        scaler = MinMaxScaler((-1, 1)).fit(train)
        clf = documents.kahm_classifier_004().fit(scaler.transform(train), labels)
        distances = clf.distances(scaler.transform(test))
        for name, score in SCORES.items():
            told[name].append(area(score(distances), truth, clf.classes_))
        print(split, {name: values[-1] for name, values in told.items()}, file=sys.stderr)
    rows = [[name, f"{np.mean(v):.4f}", f"{np.std(v):.4f}"] for name, v in told.items()]
    table(["score", "AUC", "± over splits"], rows)


if __name__ == "__main__":
    main()
