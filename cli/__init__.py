"""The paceline command: a thin layer over the Python API."""
