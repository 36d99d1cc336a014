"""The `paceline` command: a thin layer over `simulate`, `train` and `compare`. Read `app` first, then `actions`."""

from paceline.cli.app import main

__all__ = ["main"]
