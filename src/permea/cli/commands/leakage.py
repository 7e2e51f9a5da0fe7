"""``permea leakage``: what the public columns of a table reveal about the private ones."""

import warnings
from typing import Annotated, Any

import numpy as np
import pandas as pd
from typer import Argument, Option

from permea.cli.app import CHECK, command
from permea.cli.console import AuditError, Console, InputError, UsageError, json_file
from permea.cli.options import JsonOutput
from permea.cli.tables import check_output, listed, numbers, read_table, write_result
from permea.information import (
    AdversaryReport,
    InformationLeakage,
    LeakageWarning,
    information_leakage,
    simulate_attack,
)


@command("leakage", panel=CHECK)
def leakage(
    console: Console,
    released: Annotated[str, Argument(help="Table with public columns; - for standard input.")],
    private: Annotated[str, Option(help="Private columns, separated by commas.")],
    public: Annotated[str | None, Option(help="Public columns; all others by default.")] = None,
    secrets: Annotated[
        str | None, Option(help="Table of the private columns, same rows in same order.")
    ] = None,
    samples: Annotated[int, Option(min=10, help="Rows used at most.")] = 5000,
    bootstrap: Annotated[
        int, Option(min=0, help="Resamples for the interval; 0 for the fast one.")
    ] = 0,
    seed: Annotated[int, Option(help="Of the sample and of the split.")] = 0,
    output: JsonOutput = None,
    max_recovered: Annotated[
        float | None,
        Option(help="Exit with code 7 when more of a private column is provably recovered."),
    ] = None,
) -> None:
    """Measure what public columns reveal about private ones, and simulate an attack.

    Prints the information leakage and the mutual information in nats and bits, and how well a
    simulated attack recovers each private column of rows that it did not learn from. Keep the table
    and the findings with their owner: both are computed from the private columns.

    Example:
        permea leakage released.csv --private age,weight --public hr1,hr2
        permea leakage released.csv --secrets people.csv --private age,weight
    """
    if output is not None:
        check_output(output, (".json",), inputs=(released, secrets) if secrets else (released,))
    public_part, private_part = _read(released, secrets, private, public)
    rows = np.random.default_rng(seed).permutation(len(public_part))[:samples]
    observed, hidden = public_part.iloc[np.sort(rows)], private_part.iloc[np.sort(rows)]
    console.say(f"{len(hidden)} rows, {observed.shape[1]} public and {hidden.shape[1]} private")
    with warnings.catch_warnings():  # the notes are printed with the result
        warnings.simplefilter("ignore", LeakageWarning)
        leak = information_leakage(observed, hidden, n_bootstrap=bootstrap, random_state=seed)
        attack = simulate_attack(observed, hidden, random_state=seed)
    values = _values(leak, attack)
    if output is not None:
        write_result(output, json_file(values))
    console.result(f"{leak}\n\n{attack}", values)
    _fail_if_recovered(attack, max_recovered)


def _read(
    released: str, secrets: str | None, private: str, public: str | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The public and the private columns as numbers."""
    frame = read_table(released)
    other = frame if secrets is None else read_table(secrets)
    if len(other) != len(frame):
        raise InputError(
            f"{released} has {len(frame)} rows and {secrets} has {len(other)}. Give the same rows "
            "in the same order."
        )
    hidden = _names(private, "--private")
    kept = [str(name) for name in frame.columns if secrets is not None or name not in hidden]
    seen = kept if public is None else _names(public, "--public")
    both = sorted(set(seen) & set(hidden)) if secrets is None else []
    if both or not seen:
        what = f"{listed(both)} cannot be private and public" if both else "no column is public"
        raise UsageError(f"{what.capitalize()}. Name other --public columns.")
    return (
        pd.DataFrame(numbers(frame, seen, released), columns=seen),
        pd.DataFrame(numbers(other, hidden, secrets or released), columns=hidden),
    )


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option} needs at least one column name.")
    if len(set(names)) < len(names):
        raise UsageError(f"{option} names a column twice.")
    return names


def _values(leak: InformationLeakage, attack: AdversaryReport) -> dict[str, Any]:
    half = 1.96 * leak.standard_error
    shared = leak.mutual_information
    return {
        "rows": leak.n_samples,
        "leakage_nats": leak.value,
        "leakage_interval": leak.interval or (leak.value - half, leak.value + half),
        "mutual_information_nats": shared.nats,
        "mutual_information_bits": shared.bits,
        "entropy_nats": shared.entropy,
        "entropy_by": shared.method,
        "reason": shared.reason,
        "notes": list(leak.notes),
        "recovered": {
            name: {key: float(value) for key, value in row.items()}
            for name, row in attack.to_frame().to_dict(orient="index").items()
        },
    }


def _fail_if_recovered(attack: AdversaryReport, most: float | None) -> None:
    """Fail when the adversary recovers more than is allowed, beyond chance."""
    if most is None:
        return
    low = np.nan_to_num(attack.interval[:, 0], nan=-np.inf)
    worst = int(low.argmax())
    if low[worst] > most:
        raise AuditError(
            f"At least {low[worst]:.0%} of the variance of {attack.names[worst]} is recovered, "
            f"more than {most:.0%}."
        )
