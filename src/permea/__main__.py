"""The command ``permea``, also as ``python -m permea``."""

import signal
import sys

from permea._version import __version__
from permea.cli.console import ExitCode


def main() -> None:
    """Run the command line, or print which extra it needs.

    Everything except the command line works without the extra ``[cli]``.
    """
    if sys.argv[1:] == ["--version"]:  # without the time that the import of all commands takes
        print(f"permea {__version__}")
        return
    try:
        import pandas
        import typer  # noqa: F401
    except ImportError as error:
        print(
            f"permea: error: The command line needs {error.name}, which is not installed. "
            'Install the extra: pip install "permea[cli]".',
            file=sys.stderr,
        )
        sys.exit(ExitCode.UNAVAILABLE)
    del pandas
    from permea.cli.app import run, stop

    signal.signal(signal.SIGTERM, stop)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
