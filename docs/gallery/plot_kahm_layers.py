"""
What each layer makes of an image
=================================

Layer after layer the image of a digit becomes more abstract; the nearest one counts (document 004,
Fig. 6).
"""

from sklearn.datasets import load_digits

from permea import ConditionallyDeep, KernelAffineHullMachine
from permea.report.plots import plot_layers

X, y = load_digits(return_X_y=True)
eights = X[y == 8] / 16
deep = ConditionallyDeep(KernelAffineHullMachine(n_components=10), n_layers=8).fit(eights[:120])
plot_layers(deep, eights[150])
