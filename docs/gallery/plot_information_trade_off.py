"""
What leaks, what explains, what transfers
=========================================

Noise on the source's rows lowers what they tell about themselves (privacy leakage), about their
class (interpretability), and what of them is found again in a target (transferability). Accuracy of
the transfer hardly suffers (003 Fig. 4 and 5).
"""

import numpy as np
from sklearn.datasets import load_digits

from permea import Privacy, release, trade_off
from permea.report.plots import plot_leakage_levels, plot_recovery, plot_trade_off

X, y = load_digits(return_X_y=True)
X = X / 16
labels = np.where(np.arange(400) < 100, y[800:1200], -1)
epsilons = [0.1, 0.5, 2, 10]
study = trade_off(
    X[:800],
    y[:800],
    X_target=X[800:1200],
    y_target=labels,
    X_test=X[1200:],
    y_test=y[1200:],
    epsilons=epsilons,
    random_state=0,
)
print(study)
figure = plot_trade_off(study)

# %%
# One image of the source at these levels, with its measures.
samples, titles = [], []
for point in study.points:
    privacy = Privacy(epsilon=point.epsilon, delta=1e-5, domain=(0, 1))
    samples.append(release(X[:1], privacy, random_state=0).data[0])
    titles.append(
        f"ε = {point.epsilon:g}\nleakage {point.privacy_leakage.value:.0f}\n"
        f"interpretability {point.interpretability.value:.1f}"
    )
levels = plot_leakage_levels(samples, titles, shape=(8, 8))

# %%
# The pixels that an adversary recovers best at the largest ε, judged on rows it did not see.
ax = plot_recovery(study.points[-1].adversary)
