"""
Noise, fabrication and what they hide
=====================================

One digit under noise of several strengths (document 001, Fig. 1.6), fabricated digits (document
004, Fig. 9), and how far training and test points lie from the classes before and after (document
004, Fig. 13). The pictures use seeded noise, which is why they can be repeated and are not private.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from permea import KAHMClassifier, Privacy
from permea.report.plots import plot_distance_histograms, plot_fabricated, plot_noise

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.4, random_state=0)

# %%
plot_noise(X_train[0], [32, 16, 8, 4, 2, 1])

# %%
plot_fabricated(X_train[y_train == 8], epsilons=[2, 8, 32], n_components=[5, 20])

# %%
privacy = Privacy(epsilon=16, delta=1e-5, unit="entry", domain=(0, 1))
classifiers = {
    "rows as they are": KAHMClassifier(),
    "noised, ε = 16 per entry": KAHMClassifier(privacy=privacy, random_state=0),
    "fabricated, ε = 16 per entry": KAHMClassifier(privacy=privacy, fabricate=True, random_state=0),
}
for clf in classifiers.values():
    clf.fit(X_train, y_train)
plot_distance_histograms(classifiers, X_train, X_test)
