"""
Distance field and decision regions
===================================

A classifier of three classes in the plane: the colour is the distance to the nearest class, white
lines part the classes (document 004, Fig. 8). On the right the same from noised rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from permea import KAHMClassifier, Privacy
from permea.report.plots import plot_decision_regions

rng = np.random.default_rng(1)
y = np.repeat([0, 1, 2], 80)
t = rng.uniform(0, np.pi, 240)
arms = np.column_stack([np.cos(t + 2.1 * y), np.sin(t + 2.1 * y)]) * (1 + 0.5 * y[:, None])
X = arms + 0.08 * rng.normal(size=arms.shape)

plain = KAHMClassifier(n_components=2, n_layers=2).fit(X, y)
privacy = Privacy(epsilon=30, delta=1e-5, unit="entry", domain=(-3, 3))
private = KAHMClassifier(n_components=2, n_layers=2, privacy=privacy, random_state=0).fit(X, y)

figure, axes = plt.subplots(1, 2, figsize=(12, 4.4))
plot_decision_regions(plain, X, y, ax=axes[0]).set_title("rows as they are")
plot_decision_regions(private, X, y, ax=axes[1]).set_title("ε = 30 per entry")
