"""
Leakage against theory
======================

Ten Gaussian variables are released with more and more noise (003 Example 1). The leakage is known
in closed form; the estimate sees 1000 samples and no distribution (003 Fig. 3).
"""

import numpy as np

from permea import information_leakage
from permea.report.plots import plot_estimates

levels = [1, 2, 3, 5, 7, 10, 12, 15]
theory = [5 * np.log(1 + 5 / s) - 5 * np.log(2 * np.pi * np.e * 5) for s in levels]
estimated, errors = [], []
for level in levels:
    random = np.random.default_rng(0)
    t = random.normal(0, np.sqrt(5), (1000, 10))
    x = t + random.normal(0, np.sqrt(level), (1000, 10))
    leak = information_leakage(observed=x, hidden=t)
    estimated.append(leak.value)
    errors.append(leak.standard_error)

ax = plot_estimates(levels, estimated, theory, error=errors)

# %%
# The bars are 95 % of the sampling error. All levels share their random numbers, so that all
# estimates lie on the same side of the truth.
