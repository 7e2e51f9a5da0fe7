"""
Heart beats at the wall
=======================

An invented person's R-R intervals: artefacts, a row of three minutes under less and less noise
(as Figure 7 of document 003), and why the noise does not drown a whole recording.
"""

import matplotlib.pyplot as plt
import numpy as np

from permea import Privacy, release
from permea.datasets import impulse_rejection, make_recordings, make_windows

person = make_recordings(1, artefacts=0.004, random_state=4)[0]
cleaned, artefact = impulse_rejection(person.intervals)
minutes = person.times / 60

# %%
# The impulse rejection filter finds missed and lost beats. Stress, shaded, shortens intervals.

figure, ax = plt.subplots(figsize=(8, 3))
ax.plot(minutes, person.intervals, linewidth=0.6, color="tab:gray")
ax.plot(minutes[artefact], person.intervals[artefact], "x", color="tab:red", label="artefacts")
ax.fill_between(minutes, 0, 2, where=person.score > 45, alpha=0.15, label="under stress")
ax.set(xlabel="minutes", ylabel="R-R interval, seconds", ylim=(0, 2))
ax.legend(loc="upper right")
figure.tight_layout()

# %%
# One row, 217 intervals, the newest first. At ε = 1 per entry nothing of it is left to see.

windows = make_windows(person)
figure, axes = plt.subplots(4, 1, figsize=(8, 6), sharex=True)
axes[0].plot(windows.X[0], linewidth=0.8)
axes[0].set_ylabel("as it is")
for ax, epsilon in zip(axes[1:], (100, 8, 1), strict=True):
    promise = Privacy(epsilon=epsilon, delta=1e-5, domain=(0.4, 1.4))
    ax.plot(release(windows.X[:1], promise).data[0], linewidth=0.8)
    ax.set_ylabel(f"ε = {epsilon} per entry")
axes[-1].set_xlabel("intervals into the past")
figure.tight_layout()

# %%
# Averages over many rows survive, and that is what is learned. They survive for an attacker too:
# an interval stands in up to 217 overlapping rows, and what is promised for an *interval* is that
# many times the ε of an entry.

passed = release(windows.X, Privacy(epsilon=1, delta=1e-5, domain=(0.4, 1.4))).data
stressed = windows.score > 45
figure, ax = plt.subplots(figsize=(8, 3))
for chosen, name in ((~stressed, "no stress"), (stressed, "under stress")):
    seen = np.arange(1, chosen.sum() + 1)
    (line,) = ax.plot(seen, np.cumsum(passed[chosen].mean(axis=1)) / seen, label=f"{name}, noised")
    ax.axhline(windows.X[chosen].mean(), linestyle="--", color=line.get_color())
ax.set(xlabel="rows averaged", ylabel="mean interval, seconds", ylim=(0.8, 1.0))
ax.legend()
figure.tight_layout()
print("rows per interval:", windows.repeats, "rows:", len(windows), np.bincount(stressed))
