"""Runs of shipped scenarios for the claims of several papers."""
