"""Comparison, tables for people, figures."""
