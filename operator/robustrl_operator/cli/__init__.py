"""`robustrl`: what people type."""

from robustrl_operator.cli.main import main

__all__ = ["main"]
