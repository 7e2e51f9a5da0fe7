"""A real PostgreSQL server for tests, started from the system's package."""

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: permea[postgres]")

PASSWORD = "open-sesame"


def programs():
    """Folder of the server's programs, the newest version's where there are several."""
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=str)
    if found is None and not places:
        pytest.skip("no PostgreSQL server is installed (Debian's package postgresql)")
    return Path(found or places[-1]).parent


class Server:
    """A server of its own: unix socket only, in a folder that goes away."""

    def __init__(self, folder):
        self.folder, self.bin = folder, programs()
        # The server refuses to run as root; the package brings a user for it.
        self.user = {"user": "postgres"} if os.getuid() == 0 else {}
        if self.user:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self.run(
            "initdb", "-D", folder / "data", "-U", "owner", "-A", "scram-sha-256",
            "--pwfile", secret, "-E", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip

    def run(self, program, *words):
        done = subprocess.run(
            [self.bin / program, *map(str, words)],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
            **self.user,
        )  # fmt: skip
        assert done.returncode == 0, f"{program} failed"

    def start(self):
        options = f"-k {self.folder} -c listen_addresses='' -c max_connections=120 -c fsync=off"
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-l", self.folder / "log",
                 "-o", options, "start")  # fmt: skip

    def stop(self):
        self.run("pg_ctl", "-D", self.folder / "data", "-w", "-m", "immediate", "stop")

    def url(self, ledger="default"):
        return f"postgresql://owner:{PASSWORD}@/postgres?host={self.folder}&ledger={ledger}"

    def execute(self, *statements):
        """Change things by hand, as a database administrator can."""
        address = self.url().replace("&ledger=default", "")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")  # no triggers
            return [connection.execute(*statement).rowcount for statement in statements]


@contextmanager
def running():
    """A server that runs for a while; the test is skipped where none is installed."""
    programs()
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = Server(Path(folder))
        server.start()
        yield server
        server.stop()
