"""Membership mappings without tuning against tuned kernel regression, on six public problems.

A noisy sine is generated and two problems come with scikit-learn; the others need usps.npz,
rr_stress_predict.npz and tables/framingham.csv.gz in the folder that PERMEA_DATA names. Every peer
sees inputs scaled to [0, 1] and standardised outputs, and is tuned on the training rows: by 3-fold
search over the grids below, or by maximum likelihood. The time of a peer includes its tuning. The
error is the root mean squared error on held-out rows, in units of the standard deviation of their
outputs.
"""

import time
import warnings

import numpy as np
import pandas as pd
from common import QUICK, folder, load, options_of, size
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_digits
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVR

from permea.models import BayesianMembershipMapping, FuzzyModel, MembershipMapping

ROWS = size(1000, 60)  # at most so many training rows, for the sake of the peers


def heartbeats(n_past=10):
    """The next interval between heartbeats from the ten before it, 35 people."""
    data = load("rr_stress_predict")
    windows = []
    for person in np.unique(data["subject"]):
        intervals = data["ibi_sec"][data["subject"] == person].astype(float)
        windows.append(np.lib.stride_tricks.sliding_window_view(intervals, n_past + 1)[::7])
    windows = np.vstack(windows)
    return windows[:, :n_past], windows[:, n_past:]


def blood_pressure():
    """Systolic pressure at the first complete examination of 1000 people from seven columns."""
    columns = ["AGE", "SEX", "TOTCHOL", "BMI", "HEARTRTE", "GLUCOSE", "CIGPDAY"]
    frame = pd.read_csv(folder() / "tables" / "framingham.csv.gz")
    frame = frame.dropna(subset=[*columns, "SYSBP"]).drop_duplicates("RANDID")
    return frame[columns].to_numpy(float), frame[["SYSBP"]].to_numpy(float)


def problems():
    random = np.random.default_rng(0)
    X = random.uniform(-np.pi, np.pi, (size(600, 60), 1))
    yield "sin(x) with noise of 0.1", X, np.sin(X) + random.normal(0, 0.1, X.shape)
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", X, y[:, None]
    digits = load_digits().data / 16
    yield "digits: lower half from upper half", digits[:, :32], digits[:, 32:]
    if QUICK:
        return
    usps = load("usps")["x_train"].reshape(-1, 256).astype(float)
    yield "USPS: lower half from upper half", usps[:, :128], usps[:, 128:]
    yield "heartbeats: next interval", *heartbeats()
    yield "Framingham: systolic blood pressure", *blood_pressure()


def prepared(model):
    scaled = TransformedTargetRegressor(model, transformer=StandardScaler())
    return make_pipeline(MinMaxScaler(), scaled)


def searched(model, step, **grid):
    prefix = f"transformedtargetregressor__regressor__{step}"
    grid = {f"{prefix}{name}": values for name, values in grid.items()}
    return GridSearchCV(prepared(model), grid, cv=3)


def models(n, p):
    widths = [w / n for w in (0.1, 0.3, 1, 3, 10)]
    strengths = [1e-4, 1e-3, 1e-2, 0.1, 1, 10]
    yield "MembershipMapping()", MembershipMapping()
    yield "MembershipMapping(bandwidth=1)", MembershipMapping(bandwidth=1)
    yield 'MembershipMapping("gamma")', MembershipMapping(disturbance="gamma")
    yield "BayesianMembershipMapping()", BayesianMembershipMapping()
    yield "FuzzyModel()", FuzzyModel()
    yield "FuzzyModel(n_rules=0.05)", FuzzyModel(n_rules=0.05)
    yield (
        "KernelRidge, searched",
        searched(KernelRidge(kernel="rbf"), "", alpha=strengths, gamma=widths),
    )
    if p == 1:
        yield "SVR, searched", searched(SVR(), "", C=[0.1, 1, 10, 100], gamma=widths)
    sparse = make_pipeline(Nystroem(n_components=200, random_state=0), Ridge())
    yield (
        "Nystroem(200) + Ridge, searched",
        searched(sparse, "", ridge__alpha=strengths, nystroem__gamma=widths),
    )
    kernel = ConstantKernel() * RBF(np.sqrt(n)) + WhiteKernel()
    yield "GaussianProcess, likelihood", prepared(GaussianProcessRegressor(kernel, random_state=0))


def main():
    parser = options_of(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    rows = parser.parse_args().rows
    warnings.filterwarnings("ignore", category=UserWarning)
    for name, X, Y in problems():
        X, X_test, Y, Y_test = train_test_split(X, Y, test_size=0.3, random_state=0)
        X, Y, X_test, Y_test = X[:rows], Y[:rows], X_test[:rows], Y_test[:rows]
        print(f"\n{name}: {X.shape[0]} rows, {X.shape[1]} inputs, {Y.shape[1]} outputs\n")
        print("| model | error | time (s) |\n|---|---|---|", flush=True)
        for title, model in models(X.shape[1], Y.shape[1]):
            start = time.perf_counter()
            single = Y.shape[1] == 1
            predicted = model.fit(X, Y[:, 0] if single else Y).predict(X_test)
            seconds = time.perf_counter() - start
            error = np.sqrt(np.mean((Y_test - predicted.reshape(Y_test.shape)) ** 2))
            print(f"| {title} | {error / Y_test.std():.4f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
