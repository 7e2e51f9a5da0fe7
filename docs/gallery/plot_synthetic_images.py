"""
Synthetic images with a promise per record
==========================================

Real digits (left) beside synthetic ones: drawn from one noised release of the moments of each
class, at ε = 8 and ε = 2 per record. The images are MNIST's where ``PERMEA_DATA`` names a folder
with ``mnist.npz``, else the 1797 small digits of scikit-learn, which is little to learn from.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from permea import Privacy, fabricate_records

path = Path(os.environ.get("PERMEA_DATA", "")) / "mnist.npz"
if path.is_file():
    with np.load(path) as data:
        X, y = data["x_train"].reshape(60000, -1) / 255, data["y_train"]
    epsilons = (8, 1)
else:
    X, y = load_digits(return_X_y=True)
    X, epsilons = X / 16, (8, 2)

rows = {"real": (X[:500], y[:500])}
for epsilon in epsilons:
    promise = Privacy(epsilon=epsilon, delta=1e-5, unit="record", domain=(0, 1))
    made = fabricate_records(
        X, y, privacy=promise, classes=range(10), n_rows=500, n_directions=20, contrast=2.5, seed=0
    )
    rows[f"synthetic, ε = {epsilon} per record"] = (made.data, made.labels)

side = round(np.sqrt(X.shape[1]))
figure, axes = plt.subplots(1, len(rows), figsize=(4 * len(rows), 4.4))
for ax, (title, (images, labels)) in zip(axes, rows.items(), strict=True):
    chosen = [images[labels == label][k] for label in range(10) for k in range(10)]
    sheet = np.array(chosen).reshape(10, 10, side, side).swapaxes(1, 2)
    ax.imshow(sheet.reshape(10 * side, 10 * side), cmap="gray_r")
    ax.set_title(title)
    ax.axis("off")
figure.tight_layout()
