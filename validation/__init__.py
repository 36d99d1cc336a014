"""Predictions of published measurements by the product, and of a user's own: see `paceline validate --help`."""
