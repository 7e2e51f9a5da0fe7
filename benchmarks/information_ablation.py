"""Why leakage and interpretability on MNIST differ from 003 Table 3: one thing changed at a time.

5000 training images, noise of ε = 0.1 and 10 per pixel (δ = 1e-5), measured by 003 Algorithm 8 as
`information_mnist` does. The document draws its rows at random and names most, not all, of the
constants; each row here changes one of them. What is done is kept in the folder for temporary
files: ``--resume`` takes it from there.
"""

import sys
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table

from permea import Privacy, release
from permea.information import information_leakage
from permea.information.measures import document_model

TABLE_3 = {0.1: (-50.72, -2.14), 10: (362.83, 5.44)}  # leakage, interpretability
CHANGES = {
    "as measured": {},
    "other rows and noise (1)": {"draw": 1},
    "other rows and noise (2)": {"draw": 2},
    "2500 rows": {"rows": 2500},
    "10000 rows": {"rows": 10_000},
    "500 inducing points": {"max_inducing": 500},
    "2000 inducing points": {"max_inducing": 2000},
    "inducing points by pivots": {"inducing": "pivots"},
    "kernel half as wide": {"bandwidth": 0.5},
    "kernel twice as wide": {"bandwidth": 2.0},
    "kappa = 0.01": {"kappa": 0.01},
    "kappa = 1": {"kappa": 1.0},
    "nu = 3": {"nu": 3.0},
    "prior precision 1": {"prior_precision": 1.0},
    "noised rows cut to the domain": {"cut": True},
}


def measured(X, y, epsilon, *, rows=None, draw=0, cut=False, **constants):
    """Leakage of the pixels and of the classes, in nats."""
    chosen = np.random.default_rng(draw).permutation(len(X))[: rows or size(5000, 200)]
    private = X[chosen]
    promise = Privacy(epsilon=epsilon, delta=1e-5, domain=(0, 1))
    seen = release(private, promise, random_state=draw).data
    seen = np.clip(seen, 0, 1) if cut else seen
    classes = np.eye(10)[y[chosen].astype(int)]
    values = []
    for hidden in (private, classes):
        model = document_model().set_params(**constants)
        values.append(information_leakage(seen, hidden, model=model, constants="keep").value)
    return [float(value) for value in values]


def main():
    parser = options_of(__doc__)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    kept = Kept("information-ablation", options.resume)
    X, y, _, _ = mnist(np.float64)
    rows = []
    for name, change in list(CHANGES.items())[: size(None, 2)]:
        for epsilon in TABLE_3:
            key = f"{name}, {epsilon:g}"
            if key not in kept:
                kept[key] = measured(X, y, epsilon, **change)
                print(key, *kept[key], file=sys.stderr, flush=True)
        found = [kept[f"{name}, {epsilon:g}"] for epsilon in TABLE_3]
        rows.append([name, *(f"{value:.2f}" for pair in found for value in pair)])
    rows.append(["003 Table 3", *(f"{value:.2f}" for pair in TABLE_3.values() for value in pair)])
    names = [f"{what}, ε = {epsilon:g} per entry" for epsilon in TABLE_3
             for what in ("leakage", "interpretability")]  # fmt: skip
    table(["changed", *names], rows)


if __name__ == "__main__":
    main()
