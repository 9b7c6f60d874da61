"""`weightsync COMMAND`, and `python -m weightsync COMMAND`."""

from __future__ import annotations

import argparse
import sys

from weightsync import doctor
from weightsync.simulation import command as simulate


def main(argv: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="weightsync", description="Versioned weights for many replicas.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("doctor", help="which transport is active, its rate, and what is missing")
    doctor.add_arguments(command)
    command.set_defaults(handle=doctor.run)
    command = commands.add_parser("simulate", help="the swarm in virtual time, beside other ways")
    simulate.add_arguments(command)
    command.set_defaults(handle=simulate.simulate)
    arguments = parser.parse_args(argv)
    sys.exit(arguments.handle(arguments))


if __name__ == "__main__":
    main()
