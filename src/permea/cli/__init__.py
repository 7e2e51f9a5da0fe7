"""The command line ``permea``: a thin shell that parses, calls the library, and prints.

Each command is one module in `permea.cli.commands`; a new one is found by being there.
"""
