"""Transfer on digits: the library's methods beside what a user would try first.

The source is one half of scikit-learn's digits under ε per entry, the target the other half with
five labels per class. ``answers`` is the one interface to all peers: it gets raw source rows (which
no private method may see), target rows, labels with −1 for unlabelled, and the rows to label.
"""

import warnings

import numpy as np
from common import options_of, seconds, size, table
from dpsgd import available
from sklearn.decomposition import PCA
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC, LinearSVC

from permea import Privacy, SourceModel, TransferClassifier


def few_labels(y, per_class, random):
    """Labels of which all but a few of each class are −1."""
    shown = [random.permutation(np.flatnonzero(y == c))[:per_class] for c in np.unique(y)]
    few = np.full(len(y), -1)
    few[np.concatenate(shown)] = y[np.concatenate(shown)]
    return few


def target_svm(Xs, ys, Xt, few, T):
    """Linear SVM on the labelled target rows alone: SVM-t of the documents."""
    return LinearSVC(dual="auto", max_iter=5000).fit(Xt[few >= 0], few[few >= 0]).predict(T)


def source_svm(Xs, ys, Xt, few, T):
    """Linear SVM on the raw source rows alone."""
    return LinearSVC(dual="auto", max_iter=5000).fit(Xs, ys).predict(T)


def self_training(Xs, ys, Xt, few, T):
    """Scikit-learn's self-training of an RBF-SVM, in 50 principal components."""
    reduce = PCA(min(50, *Xt.shape), random_state=0).fit(Xt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = SVC(C=10, probability=True, random_state=0)
        model = SelfTrainingClassifier(base, threshold=0.9, max_iter=3)
        model.fit(reduce.transform(Xt), few)
    return model.predict(reduce.transform(T))


def label_spreading(Xs, ys, Xt, few, T):
    """Scikit-learn's label spreading over 10 nearest neighbours, in 50 principal components."""
    reduce = PCA(min(50, *Xt.shape), random_state=0).fit(Xt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LabelSpreading(kernel="knn", n_neighbors=10, alpha=0.9, max_iter=60)
        model.fit(reduce.transform(Xt), few)
        return model.predict(reduce.transform(T))


def _adapted(transport, Xs, ys, Xt, few, T):
    """Raw source rows carried to the target, then a linear SVM on them and the labelled rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        moved = transport.fit(Xs=Xs, ys=ys, Xt=Xt, yt=few).transform(Xs=Xs)
    rows = np.concatenate([moved, Xt[few >= 0]])
    labels = np.concatenate([ys, few[few >= 0]])
    return LinearSVC(dual="auto", max_iter=5000).fit(rows, labels).predict(T)


def optimal_transport(Xs, ys, Xt, few, T):
    """Sinkhorn transport with group lasso over the classes (POT); at most 2000 rows a side."""
    import ot

    keep = np.random.default_rng(0).permutation(len(Xs))[:2000]
    rest = np.concatenate([np.flatnonzero(few >= 0), np.flatnonzero(few < 0)])[:2000]
    transport = ot.da.SinkhornLpl1Transport(reg_e=0.1, reg_cl=0.1, norm="max", max_iter=5)
    return _adapted(transport, Xs[keep], ys[keep], Xt[rest], few[rest], T)


def linear_transport(Xs, ys, Xt, few, T):
    """Linear Gaussian transport of means and covariances, a relative of CORAL (POT).

    In 100 principal components of both sides together: it takes roots of covariances.
    """
    import ot

    both = np.concatenate([Xs, Xt])
    reduce = PCA(min(100, *both.shape), random_state=0).fit(both)
    Xs, Xt, T = (reduce.transform(rows) for rows in (Xs, Xt, T))
    return _adapted(ot.da.LinearTransport(reg=1e-2), Xs, ys, Xt, few, T)


PEERS = {
    "target-only SVM": target_svm,
    "source-only SVM (raw rows)": source_svm,
    "self-training": self_training,
    "label spreading": label_spreading,
    "optimal transport (raw rows)": optimal_transport,
    "linear transport (raw rows)": linear_transport,
}
if not available("ot"):
    PEERS = {name: peer for name, peer in PEERS.items() if "transport" not in name}
    print("POT is not installed here: the rows of optimal and linear transport are missing.\n")


def answers(name, Xs, ys, Xt, few, T):
    """Labels that a peer gives to the rows of ``T``."""
    return PEERS[name](*(np.asarray(a, np.float64) for a in (Xs,)), ys, Xt, few, T)


def main():
    options = options_of(__doc__).parse_args()
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X / 16
    gathered = {}
    for split in range(size(5, 1)):
        random = np.random.default_rng(options.seed + split)
        order = random.permutation(len(X))
        s, g, e = order[:800], order[800:1400], order[1400:]
        few = few_labels(y[g], 5, random)
        for name in PEERS:
            given = (name, X[s], y[s], X[g], few, X[e])
            time, said = seconds(lambda given=given: answers(*given))
            gathered.setdefault((name, "raw or none"), []).append((np.mean(said == y[e]), time))
        for epsilon in (1, 8, None):
            promise = epsilon and Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1))
            source = SourceModel(privacy=promise, random_state=split).fit(X[s], y[s])
            for method in ("consensus", "centers", "source2target"):
                clf = TransferClassifier(source, method=method, random_state=split)
                given = (X[g], few)
                time, _ = seconds(lambda clf=clf, given=given: clf.fit(*given))
                told = (clf.score(X[e], y[e]), time)
                gathered.setdefault((method, f"ε = {epsilon or '∞'} per entry"), []).append(told)
    rows = [
        [name, seen, f"{np.mean(told, 0)[0]:.3f}", f"{np.std(told, 0)[0]:.3f}",
         f"{np.mean(told, 0)[1]:.1f}"]
        for (name, seen), told in gathered.items()
    ]  # fmt: skip
    print("Scikit-learn's digits: 800 source rows, 600 target rows with 5 labels per class.\n")
    table(["method", "source", "accuracy", "± over splits", "fit, s"], rows)


if __name__ == "__main__":
    main()
