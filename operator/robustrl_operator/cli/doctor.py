"""`robustrl doctor`: the same as `weightsync doctor`, which role images have without the operator's packages."""

from __future__ import annotations

from typing import Any

from weightsync import doctor


def add_parser(commands: Any) -> None:
    """Describe the subcommand."""
    parser = commands.add_parser("doctor", help="how fast weights can travel here, and what is missing")
    doctor.add_arguments(parser)
    parser.set_defaults(handle=doctor.run)
