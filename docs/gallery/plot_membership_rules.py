"""
Fuzzy rules that can be read
============================

A fuzzy autoencoder is a set of rules "if the point is near this centre then answer so". The centres
are points of the original space; here the five rules that a query fulfils most (document 002).
"""

from sklearn.datasets import load_digits

from permea import FuzzyAutoencoder
from permea.report.plots import plot_abstraction

X, y = load_digits(return_X_y=True)
threes = X[y == 3] / 16
model = FuzzyAutoencoder(n_rules=12).fit(threes[:150])
explanation = model.explain(threes[160])
print(explanation)

# %%
titles = [f"{rule.fulfilment:.0%} of {rule.members}" for rule in explanation.rules]
centres = [rule.centre for rule in explanation.rules]
figure = plot_abstraction(threes[160], centres, shape=(8, 8), titles=titles)
