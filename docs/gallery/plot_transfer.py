"""
Few labels, and another owner's artefact
========================================

A source under ε = 2 per entry helps a target with five labels per class. The picture follows the
labels of the unlabelled rows through the rounds of the library's own method and through the
iterations of document 000's. The noise is seeded, which is why the picture can be repeated and the
artefact is not private.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from permea import Privacy, SourceModel, TransferClassifier
from permea.report.plots import plot_history

X, y = load_digits(return_X_y=True)
X = X / 16
promise = Privacy(epsilon=2, delta=1e-5, unit="entry", domain=(0, 1))
source = SourceModel(privacy=promise, random_state=0).fit(X[:800], y[:800])

target, truth = X[800:1400], y[800:1400]
few = np.full(len(truth), -1)
for digit in range(10):
    few[np.flatnonzero(truth == digit)[:5]] = digit

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4))
for method, ax in zip(("consensus", "centers"), axes, strict=True):
    clf = TransferClassifier(source, method=method, random_state=0)
    clf.fit(target, few, truth=truth)
    plot_history(clf, ax=ax)
figure.tight_layout()

# %%
# Who decided the labels of new rows?
print(dict(zip(*np.unique(clf.who_decided(X[1400:]), return_counts=True), strict=True)))
