"""The three risks of one synthetic table by `anonymeter`, in an environment of its own.

    python synthetic_anonymeter.py REAL.csv MADE.csv OTHER.csv SECRET OUT.json

`anonymeter` wants an older numpy than permea, so it runs apart from it. OUT.json gets the risk of
each attack and its 95 % interval.
"""

import json
import sys

ATTACKS = 500


def main():
    import pandas as pd
    from anonymeter.evaluators import (
        InferenceEvaluator,
        LinkabilityEvaluator,
        SinglingOutEvaluator,
    )

    real, made, other = (pd.read_csv(path) for path in sys.argv[1:4])
    secret, result = sys.argv[4:6]
    names = [name for name in real if name != secret]
    tables = {"ori": real, "syn": made, "control": other, "n_attacks": ATTACKS}
    found = {
        "singling out": SinglingOutEvaluator(**tables, n_cols=5, seed=0).evaluate("multivariate"),
        "linkability": LinkabilityEvaluator(
            **tables, aux_cols=(names[::2], names[1::2]), n_neighbors=1
        ).evaluate(n_jobs=1),
        "inference": InferenceEvaluator(**tables, aux_cols=names, secret=secret).evaluate(n_jobs=1),
    }
    risks = {}
    for name, one in found.items():
        risk = one.risk(confidence_level=0.95)
        risks[name] = [float(risk.value), *map(float, risk.ci)]
    with open(result, "w") as file:
        json.dump(risks, file)


if __name__ == "__main__":
    main()
