"""
Images of machines in space, and a classifier of fabricated rows
================================================================

Three-dimensional rows and what machines of two code dimensions make of the space around them: a
bounded surface near the rows (document 004, Fig. 2). Below, three classes of two-dimensional rows:
noised, fabricated from the noised ones, and the regions of the classifier that learned from the
fabricated rows alone (Fig. 3). The noise is seeded, which is why the picture can be repeated and
the classifier is not private.
"""

import matplotlib.pyplot as plt
import numpy as np

from permea import KernelAffineHullMachine, Privacy, documents, fabricate, release

rng = np.random.default_rng(0)
t = rng.uniform(0, 2 * np.pi, 300)
s = rng.uniform(-1, 1, 300)
shapes = {
    "ring": np.column_stack([np.cos(t), np.sin(t), 0.3 * np.sin(2 * t)]),
    "saddle": np.column_stack([np.cos(t) * s, np.sin(t) * s, s**2 * np.cos(2 * t)]),
    "roll": np.column_stack([t * np.cos(t), s * 3, t * np.sin(t)]) / 4,
}
figure = plt.figure(figsize=(12, 4), layout="constrained")
for place, (name, rows) in enumerate(shapes.items(), start=1):
    rows = rows + 0.03 * rng.normal(size=rows.shape)
    machine = KernelAffineHullMachine(n_components=2).fit(rows)
    around = rng.uniform(rows.min(axis=0) - 1, rows.max(axis=0) + 1, (3000, 3))
    image = machine.reconstruct(around)
    ax = figure.add_subplot(1, 3, place, projection="3d")
    ax.scatter(*image.T, s=2, alpha=0.4, label="image of the space")
    ax.scatter(*rows.T, s=5, marker="+", color="black", label="rows")
    ax.set_title(name)
    ax.legend(fontsize="x-small")

# %%
# From noised rows to fabricated ones, and to a classifier (document 004, Fig. 3).

angles = rng.uniform(0, np.pi, 450)
labels = np.repeat([0, 1, 2], 150)
radius = 0.12 + 0.14 * labels + 0.01 * rng.normal(size=450)
plane = np.column_stack([0.5 + radius * np.cos(angles), 0.2 + radius * np.sin(angles)])
noised = release(plane, Privacy(epsilon=40, domain=(0, 1)), random_state=0)
groups = [np.flatnonzero(labels == c) for c in range(3)]
made = fabricate(noised, n_components=2, groups=groups, stop=3).data
clf = documents.kahm_classifier_004(2).fit(made, labels)
mesh = np.stack(np.meshgrid(np.linspace(0, 1, 160), np.linspace(0, 0.8, 130)), axis=-1)
regions = clf.predict(mesh.reshape(-1, 2)).reshape(mesh.shape[:2])
figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharey=True)
stages = {"rows of the owner": plane, "noised, ε = 40 per entry": noised.data, "fabricated": made}
for ax, (title, rows) in zip(axes, stages.items(), strict=True):
    ax.scatter(*rows.T, c=labels, s=5, cmap="tab10", vmin=0, vmax=9)
    ax.set(title=title, xlim=(0, 1), ylim=(0, 0.8))
axes[2].contour(mesh[..., 0], mesh[..., 1], regions, levels=[0.5, 1.5], colors="grey")
