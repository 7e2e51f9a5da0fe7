"""
What ε does to one picture and to a classifier
==============================================

The same digit with less and less noise per pixel, and what a classifier makes of rows like it.
The unit is one entry: every ε below speaks of a single pixel. The figure for the whole picture
stands in brackets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from permea import KAHMClassifier, Privacy, release
from permea.datasets import load_digits
from permea.privacy.composition import compose
from permea.privacy.release import plan

digits = load_digits()
X, X_new, y, y_new = train_test_split(digits.X, digits.y, test_size=0.4, random_state=0)
EPSILONS = (0.5, 1, 2, 4, 8, 16)

# %%
# One picture. A person sees nothing below ε = 4 per pixel; an average over many pictures does.

three = digits.X[digits.y == 3][:1]
figure, axes = plt.subplots(1, len(EPSILONS) + 1, figsize=(10, 2))
axes[0].imshow(three.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
axes[0].set_title("as it is", fontsize=9)
for ax, epsilon in zip(axes[1:], EPSILONS, strict=True):
    promise = Privacy(epsilon=epsilon, domain=(0, 1))
    record = compose(plan(promise, 64).record_losses).epsilon
    ax.imshow(release(three, promise).data.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(f"ε = {epsilon:g} per pixel\n({record:.0f} per picture)", fontsize=9)
for ax in axes:
    ax.axis("off")
figure.tight_layout()

# %%
# A classifier learns from a thousand of them.

accuracy = [
    np.mean(
        [
            KAHMClassifier(privacy=Privacy(epsilon=epsilon, domain=(0, 1)), n_layers=3)
            .fit(X, y)
            .score(X_new, y_new)
            for _ in range(2)
        ]
    )
    for epsilon in EPSILONS
]
plain = KAHMClassifier(n_layers=3).fit(X, y).score(X_new, y_new)
figure, ax = plt.subplots(figsize=(6, 3.2))
ax.semilogx(EPSILONS, accuracy, "o-", label="private")
ax.axhline(plain, linestyle="--", color="gray", label="without privacy")
ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
ax.set_xlabel("ε per entry: more private on the left")
ax.set_ylabel("accuracy on new pictures")
ax.legend(loc="lower right")
figure.tight_layout()
