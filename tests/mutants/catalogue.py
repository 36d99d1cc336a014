"""All mutants, by the part of the program that they are planted in."""

from __future__ import annotations

from tests.mutants import algorithms, backend, results, simulator

CATALOGUE = (*algorithms.MUTANTS, *simulator.MUTANTS, *backend.MUTANTS, *results.MUTANTS)
