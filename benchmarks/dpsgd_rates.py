"""Which learning rate DP-SGD wants on MNIST: what its rows in the other benchmarks rest on.

Half of the 60000 training images train, the other half score; the 10000 test images are not used.
Choosing on such scores is not private and not charged: a kindness to DP-SGD that our models, set on
other data (``moments_tune``), do not get. 15 epochs of 30 batches, momentum 0.9, δ = 1e-5, one run
each. ``dpsgd.py`` holds the chosen rates. Options: ``--kinds``, ``--epsilon``, ``--rates``. What is
done is kept in the folder for temporary files: ``--resume`` takes it from there.
"""

import sys
import time
import warnings

import numpy as np
from common import Kept, mnist, options_of, size, table
from dpsgd import DPSGD, SETTINGS, available
from sklearn.model_selection import train_test_split

RATES = {
    "network on pixels": [1.0, 2.0, 4.0, 8.0],
    "linear on gradients": [16.0, 64.0, 256.0, 1024.0],
    "linear on pixels": [0.0625, 0.25, 1.0, 4.0],
}


def trial(kind, epsilon, rate, parts):
    """Accuracy and seconds of one training."""
    start = time.perf_counter()
    model = DPSGD(epsilon, rate=rate, **SETTINGS[kind]).fit(parts[0], parts[2])
    took = time.perf_counter() - start
    return [float(np.mean(model.predict(parts[1]) == parts[3])), took]


def halves(kind):
    from permea.models.features import OrientedGradients

    X, y, _, _ = mnist()
    if kind == "linear on gradients":
        X = OrientedGradients().fit_transform(X)
    return train_test_split(X, y.astype(int), test_size=0.5, stratify=y, random_state=0)


def main():
    parser = options_of(__doc__)
    parser.add_argument("--epsilon", type=float, nargs="+", default=size([1.0, 8.0], [8.0]))
    parser.add_argument("--kinds", nargs="+", default=list(RATES))
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = Kept("dpsgd-rates", options.resume)
    rows, spent = [], 0.0
    if not available("opacus"):
        print("opacus is not installed here: the table stays empty (extra `peers`).\n")
        options.kinds = []
    for kind in options.kinds:
        parts = halves(kind)
        for epsilon in options.epsilon:
            for rate in options.rates or size(RATES[kind], RATES[kind][:1]):
                key = f"{kind}, {epsilon:g}, {rate:g}"
                if key not in kept:
                    kept[key] = trial(kind, epsilon, rate, parts)
                    print(key, *kept[key], file=sys.stderr, flush=True)
                accuracy, took = kept[key]
                spent += took
                rows.append([kind, f"{epsilon:g}", f"{rate:g}", f"{accuracy:.4f}", f"{took:.0f}"])
    table(["DP-SGD", "ε per record", "rate", "accuracy", "fit, s"], rows)
    print(f"The fits alone took {spent / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
