"""Comparisons, printed tables and figures."""
