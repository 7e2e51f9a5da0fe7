"""``permea federate agree``, ``train`` and ``check``: one model over a network, and its files."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from permea._files import write_atomically
from permea._text import safe_text
from permea.cli import models, options, signatures, tables
from permea.cli.app import TOGETHER, command
from permea.cli.console import Console, ExitCode, InputError, UsageError

Federation = Annotated[Path, Option("--config", help="federation.toml of the aggregator.")]


@command("federate agree", panel=TOGETHER)
def agree(
    console: Console,
    training: Annotated[Path, Option(help="Training file: [model] and [privacy].")],
    party: Annotated[list[str], Option("--party", help="Name of a party; give it for each.")],
    output: Annotated[Path, Option("--output", "-o", help="Agreement to write, as JSON.")],
    least: Annotated[
        int | None, Option(min=1, help="Parties that must reply; by default all.")
    ] = None,
    rounds: Annotated[int, Option(min=1, help="Rounds allowed, each charged by every party.")] = 1,
    own_noise: Annotated[
        bool, Option("--own-noise", help="Every party adds all of the noise: no reader is needed.")
    ] = False,
    sign: options.Sign = None,
) -> None:
    """Write the agreement of the parties that learn one model, for their owners to read and sign.

    An owner signs one that exists by naming it as --output again, with --sign.

    Example:
        permea federate agree --training t.toml --party a --party b -o agreed.json
        permea federate agree --training t.toml --party a --party b -o agreed.json --sign owner.key
    """
    from permea.federation.service.training import Wanted, read_agreement

    if not training.is_file():
        raise InputError(f"{training} does not exist. Check the path.")
    key = signatures.signing_key(sign)
    made = Wanted.from_file(training).agreement(
        party, least_parties=least, rounds=rounds, noise="own" if own_noise else "shared"
    )
    if output.exists():
        known = read_agreement(output)
        if different := known.differences(made):
            raise InputError(
                f"{output} exists and differs in {', '.join(different)}: choose another name."
            )
        made = known
    made = made if key is None else made.signed(by=key)
    write_atomically(output, made.to_json().encode("utf-8"))
    console.result(str(made), {"agreement": str(output), "digest": made.digest})


@command("federate train", panel=TOGETHER)
def train(
    console: Console,
    config: Federation,
    output: Annotated[str, Option("--output", "-o", help="Model file to write.")],
    wait: Annotated[float, Option(min=0, help="Seconds to wait for the parties.")] = 120.0,
    anew: Annotated[
        bool, Option("--anew", help="Begin a new round although one is not finished.")
    ] = False,
    sign: options.Sign = None,
) -> None:
    """Learn one model from the rows of parties on the network, under the agreement they signed.

    A round that was interrupted is finished: what the parties charged is not charged again. What
    each role was sent is printed.

    Example:
        permea federate train --config federation.toml -o model.permea
    """
    from permea.federation.service.training import train as run

    if not config.is_file():
        raise InputError(f"{config} does not exist. Check the path.")
    tables.check_output(output, ())
    key = signatures.signing_key(sign)
    done = run(config, wait=wait, anew=anew)
    models.save_model(done.model, output, key)
    lines = ["finished a round that was begun before"] if done.resumed else []
    lines += [f"missing: {safe_text(name)}: {safe_text(why)}" for name, why in done.missing.items()]
    for role, seen in done.seen.items():
        lines += [f"what {role} saw:", *(f"  {line}" for line in seen)]
    certificate = done.model.certificate_
    values = {
        "model": output,
        "resumed": done.resumed,
        "missing": dict(done.missing),
        "seen": {role: list(seen) for role, seen in done.seen.items()},
    }
    signatures.certified_result(console, certificate, "\n".join(lines), values, key)


@command("federate check", panel=TOGETHER)
def check(
    console: Console,
    config: Annotated[
        Path | None, Option("--config", help="federation.toml of the aggregator.")
    ] = None,
    node: Annotated[
        Path | None, Option("--node", help="File of a party, or of the reader of sums.")
    ] = None,
) -> None:
    """Say what is wrong with certificates, keys, clocks, ports, models and agreements.

    Example:
        permea federate check --config federation.toml
        permea federate check --node clinic-a.toml
    """
    from permea.federation.service.check import check as look

    if (config is None) == (node is None):
        raise UsageError("Give --config federation.toml, or --node FILE.")
    path = config if node is None else node
    assert path is not None
    if not path.is_file():
        raise InputError(f"{path} does not exist. Check the path.")
    found = look(path, is_node=node is not None)
    wrong = [one for one in found if not one.good]
    values = {"good": not wrong, "findings": [vars(one) for one in found]}
    console.result("\n".join(map(str, found)), values)
    if wrong:
        raise typer.Exit(ExitCode.INPUT)
