"""Classifiers on deep features: the comparison of 004 Tables 3 and 4, on Office+Caltech.

The grocery features of the document are not public; these are EfficientNet-Lite0 features of
the 10 classes of Office+Caltech, all four domains together, scaled to [-1, 1] by the training rows.
Five stratified 60/40 splits; accuracy in % and the area under the ROC curve averaged over classes.
Compare the ranks and gaps with the document, not the levels: other images, other features.
"""

import warnings

import numpy as np
from common import QUICK, load, options_of, seconds, size, table
from sklearn.datasets import load_digits
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from permea import FuzzyClassifier, KAHMClassifier, MembershipClassifier

DOMAINS = ("amazon", "caltech10", "dslr", "webcam")
SEED = {  # 004 Tables 3 and 4: mean accuracy in %, mean area under the curve
    "KAHM": (87.46, 0.9942), "membership": (86.52, ""), "SVM": (77.71, 0.9764),
    "1-NN": (77.24, 0.8815), "MLP": (74.02, ""), "2-NN": (71.52, 0.9125), "4-NN": (71.36, 0.9349),
    "random forest": (60.90, 0.9455), "naive Bayes": (55.73, 0.8977), "boosting": (38.51, 0.8832),
    "decision tree": (31.17, 0.6515),
}  # fmt: skip


def features():
    if QUICK:
        X, y = load_digits(return_X_y=True)
        return X[:500] / 16, y[:500]
    data = load("office_caltech10_efficientnetlite0")
    X = np.concatenate([data[f"x_{name}"] for name in DOMAINS]).astype(np.float32)
    return X, np.concatenate([data[f"y_{name}"] for name in DOMAINS])


def classifiers(seed):
    return {
        "KAHM": KAHMClassifier(n_jobs=2, random_state=seed),
        "membership": MembershipClassifier(n_jobs=2, random_state=seed),
        "fuzzy": FuzzyClassifier(n_jobs=2, random_state=seed),
        "SVM": SVC(),
        "1-NN": KNeighborsClassifier(1),
        "MLP": MLPClassifier((256,), max_iter=size(100, 5), random_state=seed),
        "2-NN": KNeighborsClassifier(2),
        "4-NN": KNeighborsClassifier(4),
        "random forest": RandomForestClassifier(n_jobs=2, random_state=seed),
        "naive Bayes": GaussianNB(),
        "boosting": AdaBoostClassifier(random_state=seed),
        "decision tree": DecisionTreeClassifier(random_state=seed),
    }


def area(clf, T, t):
    """Area under the ROC curve of each class against the others, averaged."""
    if hasattr(clf, "matching_scores"):
        scores = clf.matching_scores(T)
    else:
        kind = "predict_proba" if hasattr(clf, "predict_proba") else "decision_function"
        scores = getattr(clf, kind)(T)
    return np.mean([roc_auc_score(t == c, scores[:, k]) for k, c in enumerate(clf.classes_)])


def measured(clf, X, y, T, t):
    fit, _ = seconds(lambda: clf.fit(X, y))
    ask, right = seconds(lambda: 100 * np.mean(clf.predict(T) == t))
    return right, area(clf, T, t), fit + ask


def main():
    options_of(__doc__).parse_args()
    warnings.simplefilter("ignore")
    X, y = features()
    figures = {name: [] for name in classifiers(0)}
    for split in range(size(5, 1)):
        parts = train_test_split(X, y, test_size=0.4, stratify=y, random_state=split)
        scaler = MinMaxScaler((-1, 1)).fit(parts[0])
        train, test = scaler.transform(parts[0]), scaler.transform(parts[1])
        for name, clf in classifiers(split).items():
            figures[name].append(measured(clf, train, parts[2], test, parts[3]))
    rows = []
    for name, values in figures.items():
        right, roc, time = np.mean(values, axis=0)
        deviation = np.std(values, axis=0)[0]
        rows.append([name, f"{right:.2f} ± {deviation:.2f}", f"{roc:.4f}", f"{time:.2f}",
                     *SEED.get(name, ("", ""))])  # fmt: skip
    print(f"{len(X)} rows, {X.shape[1]} features.\n")
    table(["classifier", "accuracy, %", "AUC", "fit and predict, s", "004 accuracy", "004 AUC"],
          sorted(rows, key=lambda row: -float(row[1].split()[0])))  # fmt: skip


if __name__ == "__main__":
    main()
