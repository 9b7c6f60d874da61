"""Subcommands of `robustrl`."""

from __future__ import annotations

import argparse
import sys

from robustrl_operator.cli import audit, doctor, incidents, inject, run, soak, stopping


def main(argv: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="robustrl", description="Reinforcement-learning jobs that survive.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run.add_parser(commands)
    doctor.add_parser(commands)
    incidents.add_parser(commands)
    inject.add_parser(commands)
    audit.add_parser(commands)
    soak.add_parser(commands)
    arguments = parser.parse_args(argv)
    try:
        sys.exit(arguments.handle(arguments))
    except stopping.Stopped as why:
        print(f"robustrl: {why}", file=sys.stderr)
        sys.exit(stopping.EXIT_STATUS)


if __name__ == "__main__":
    main()
