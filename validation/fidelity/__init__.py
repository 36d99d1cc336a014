"""Predictions of this machine beside measurements on it: see `paceline fidelity --help`; `settings` is read first."""
