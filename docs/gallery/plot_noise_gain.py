"""
How much less noise the optimal mechanism needs
===============================================

Expected magnitude of the classical Gaussian noise over that of the optimal one, per entry and for
every ε below one (document 002, Fig. 2.1). The analytic Gaussian, which came later, needs less than
the classical one; its gain depends on ε.
"""

import matplotlib.pyplot as plt
import numpy as np

from permea import GaussianNoise, OptimalNoise, noise_gain

deltas = np.logspace(-10, -0.02, 200)
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.semilogx(deltas, noise_gain(deltas), label="classical Gaussian, every ε < 1")
for epsilon in (0.1, 0.9):
    gains = [
        GaussianNoise(epsilon, delta, calibration="analytic").expected_magnitude()
        / OptimalNoise(epsilon, delta).expected_magnitude()
        for delta in deltas
    ]
    ax.semilogx(deltas, gains, "--", label=f"analytic Gaussian, ε = {epsilon} per entry")
ax.axhline(1, color="grey", linewidth=0.8)
ax.set(xlabel="δ per entry", ylabel="noise, as a multiple of the optimal one", ylim=(0, 7))
ax.legend(fontsize="small")
