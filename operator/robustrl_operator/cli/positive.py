"""Numbers of a command line that have to be more than nothing."""

from __future__ import annotations

import argparse
import math


def whole(text: str) -> int:
    """One or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return int(text)


def number(text: str) -> float:
    """More than 0, and finite."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return value
