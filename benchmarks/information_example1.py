"""Example 1 of 003: estimated and theoretical leakage of ten Gaussian variables over the noise.

1000 rows, mean over ``--seeds`` draws (5). "003" is Algorithm 8 as written (one noise variance,
no trend, kernel of 003 eq. 14); "default" is `information_leakage(x, t)`. ``--figure FILE`` draws
003 Fig. 3.
"""

import numpy as np
from common import options_of, size, table
from information_gaussian import example_1

from permea.information import information_leakage
from permea.information.measures import document_model

LEVELS = (1, 2, 3, 5, 7, 10, 12, 15)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--seeds", type=int, default=size(5, 2))
    parser.add_argument("--figure")
    options = parser.parse_args()
    rows, estimates, errors = [], [], []
    for level in LEVELS:
        case = example_1(level)
        draws = [case.draw(np.random.default_rng(seed)) for seed in range(options.seeds)]
        literal = np.array([information_leakage(x, t, model=document_model()).value
                            for x, t in draws])  # fmt: skip
        default = np.array([information_leakage(x, t).value for x, t in draws])
        estimates.append(literal.mean())
        errors.append(literal.std(ddof=1) / np.sqrt(len(literal)))
        both = [
            f"{one.mean():.3f} ({one.mean() - case.leakage:+.3f})" for one in (literal, default)
        ]
        rows.append([level, f"{case.leakage:.3f}", *both])
    table(["σ", "theory", "003 (error)", "default (error)"], rows)
    if options.figure:
        from permea.report.plots import plot_estimates

        theory = [example_1(level).leakage for level in LEVELS]
        ax = plot_estimates(LEVELS, estimates, theory, error=errors)
        ax.figure.savefig(options.figure)


if __name__ == "__main__":
    main()
