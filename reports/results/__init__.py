"""Typed results of the Python API: of `paceline.sweep` and `plan`; `reports.result` says what every result has."""
