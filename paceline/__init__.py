"""Paceline predicts how distributed SGD methods behave on a cluster, runs them for real, and compares the two."""
