"""A trial federation in a folder: keys, configuration files and each party's own rows."""

import numpy as np

from permea.federation.service.deploy import free_port
from permea.federation.service.tls import make_trial_certificates
from permea.federation.service.training import Wanted
from permea.privacy.signing import SigningKey

ENCRYPTED = "encrypted = true\nbits = 8\nn_jobs = 2\n"
SLOW_MACHINE = 240.0  # seconds that a busy machine may need for what an idle one does in five


def make_trial(
    folder, shares, *, quorum, batch_size=250, timeout=SLOW_MACHINE, attempts=1, encrypted=False
):
    """Write everything that an aggregator and its parties need; returns the port."""
    port = free_port()
    make_trial_certificates(folder / "keys", list(shares))
    keys = "\n".join(f'{name} = "keys/{name}.pub"' for name in shares)
    (folder / "federation.toml").write_text(
        f"""
[federation]
quorum = {quorum}
batch_size = {batch_size}
timeout = {timeout}
attempts = {attempts}
records = "disjoint"
{ENCRYPTED if encrypted else ""}
[federation.parties]
{keys}

[server]
port = {port}
ca = "keys/ca.crt"
certificate = "keys/server.crt"
key = "keys/server.key"
folder = "state"
"""
    )
    for name, (X, y) in shares.items():
        np.savez(folder / f"{name}.npz", X=X, y=y)
        write_party(folder, name, port, encrypted_only=encrypted)
    return port


def write_party(
    folder, name, port, *, ca="keys/ca.crt", key=None, model=None, encrypted_only=False
):
    """The configuration file of one party."""
    path = folder / f"{name}.toml"
    path.write_text(
        f"""
[party]
name = "{name}"
model = "{model or name}.permea"
encrypted_only = {str(encrypted_only).lower()}
client_keys = "any"

[server]
address = "127.0.0.1:{port}"
ca = "{ca}"
key = "{key or f"keys/{name}.key"}"

[guard]
max_batch = 500

[train]
data = "{name}.npz"
epsilon = 16
delta = 1e-5
low = 0
high = 1
n_components = 15
"""
    )
    return path


TRAINING = """
[model]
learn = "{learn}"
columns = {columns}
classes = {classes}
features = "identity"
{more}
[privacy]
epsilon = {epsilon}
delta = 1e-5
unit = "record"
low = 0
high = 1
"""
ROWS = """
[party]
name = "{name}"
[moments]
training = "training.toml"
agreement = "agreement.json"
trusted = "owners.keys"
reader = "readers.keys"
data = "{name}.npz"
ledger = "{name}-ledger.db"
[server]
address = "127.0.0.1:{port}"
ca = "keys/ca.crt"
key = "keys/{name}.key"
"""
READER = """
[reader]
agreement = "agreement.json"
trusted = "owners.keys"
sign = "reader.sign"
[server]
address = "127.0.0.1:{port}"
ca = "keys/ca.crt"
key = "keys/reader.key"
"""


def make_training_trial(folder, shares, *, learn, more="", epsilon=1, timeout=60, **terms):
    """Files of parties with rows, of a reader and of an aggregator; returns the agreement."""
    port, names = free_port(), list(shares)
    make_trial_certificates(folder / "keys", [*names, "reader"])
    X, y = next(iter(shares.values()))
    classes = sorted(set(np.concatenate([labels for _, labels in shares.values()]).tolist()))
    text = TRAINING.format(
        learn=learn, columns=X.shape[1], classes=classes, more=more, epsilon=epsilon
    )
    (folder / "training.toml").write_text(text)
    owner, reader = SigningKey.generate("owner"), SigningKey.generate("reader")
    reader.save(folder / "reader.sign")
    (folder / "owners.keys").write_text(f"{owner.public}\n")
    (folder / "readers.keys").write_text(f"{reader.public}\n")
    wanted = Wanted.from_file(folder / "training.toml")
    agreement = wanted.agreement(names, **terms).signed(by=owner)
    (folder / "agreement.json").write_text(agreement.to_json())
    keys = "\n".join(f'{name} = "keys/{name}.pub"' for name in names)
    (folder / "federation.toml").write_text(
        f"""
[federation]
timeout = {timeout}
attempts = 1
[federation.parties]
{keys}
[training]
training = "training.toml"
agreement = "agreement.json"
reader = "keys/reader.pub"
[server]
port = {port}
ca = "keys/ca.crt"
certificate = "keys/server.crt"
key = "keys/server.key"
folder = "state"
"""
    )
    for name, (X, y) in shares.items():
        np.savez(folder / f"{name}.npz", X=X, y=y)
        (folder / f"{name}.toml").write_text(ROWS.format(name=name, port=port))
    (folder / "reader.toml").write_text(READER.format(port=port))
    return agreement
