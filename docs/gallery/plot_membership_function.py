"""
What the degrees of freedom do
==============================

Logarithm of the Student-t membership function of the outputs at two inputs (document 000, Fig. 2).
A smaller ν gives a narrower function, so that outliers weigh less.
"""

from permea.report.plots import plot_membership_function

figure = plot_membership_function((2.1, 10.0))
