"""A trial federation in a folder: keys, configuration files and each party's own rows."""

import numpy as np

from permea.federation.service.deploy import free_port
from permea.federation.service.tls import make_trial_certificates

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
