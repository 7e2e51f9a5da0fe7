"""The aggregator's program as a process: ``python -m permea.federation.flower.server FILE``."""

import sys
from pathlib import Path

from permea.federation.flower.app import run_queue
from permea.federation.flower.grid import connect
from permea.federation.flower.launch import be_quiet, end_with_parent
from permea.federation.service.config import FederationConfig


def main(path: str) -> None:
    """Process the jobs of a queue until it is stopped, or the parent process ends."""
    be_quiet()
    end_with_parent()
    config = FederationConfig.from_file(path)
    with connect(config.local_address, config.ca, config.secret_file) as grid:
        run_queue(grid, config)


if __name__ == "__main__":
    main(str(Path(sys.argv[1])))
