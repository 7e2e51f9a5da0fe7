"""
The image of a kernel affine hull machine in the plane
=======================================================

Two-dimensional rows, and what the machine makes of the whole plane: a bounded structure in the
affine hull of the rows (document 004, Fig. 4).
"""

import matplotlib.pyplot as plt
import numpy as np

from permea import KernelAffineHullMachine
from permea.report.plots import plot_image

rng = np.random.default_rng(0)
t = rng.uniform(0, 2 * np.pi, 150)
shapes = {
    "circle": np.column_stack([np.cos(t), np.sin(t)]) + 0.05 * rng.normal(size=(150, 2)),
    "wave": np.column_stack([t, np.sin(t)]) + 0.05 * rng.normal(size=(150, 2)),
    "two clouds": np.where(t[:, None] < np.pi, -1, 1) + 0.3 * rng.normal(size=(150, 2)),
}
figure, axes = plt.subplots(1, 3, figsize=(13, 3.6))
for ax, (name, rows) in zip(axes, shapes.items(), strict=True):
    machine = KernelAffineHullMachine(n_components=2).fit(rows)
    plot_image(machine, rows, ax=ax).set_title(f"{name}: λ* = {machine.regularization_:.2f}")
