"""Runs the `paceline` command as ``python -m paceline``, such as under a debugger: ``python -m pdb -m paceline …``."""

from __future__ import annotations

from paceline.cli import main

if __name__ == "__main__":
    main()
