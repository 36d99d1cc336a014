"""The short form of every benchmark: arguments with which it takes seconds to two minutes on two cores.

A short form shows that a command works and gives figures of the right size. The figures of a page in docs/results come
from the long form.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShortForm:
    """One benchmark with the arguments of its short form."""

    command: str
    """the file in benchmarks/, without its suffix"""
    arguments: tuple[str, ...] = ()
    limit_s: float = 300.0
    """seconds after which it is stopped"""
    root: bool = False
    """whether it makes network namespaces, which only root may do"""
    programs: tuple[str, ...] = ()
    """programs that must be installed"""

    def missing(self) -> str | None:
        """Returns why this machine cannot run it; None if it can."""
        if self.root and os.geteuid() != 0:
            return "needs root, because it makes network namespaces"
        absent = [name for name in self.programs if shutil.which(name) is None]
        return f"needs {', '.join(absent)}" if absent else None


SHORT_FORMS: tuple[ShortForm, ...] = (
    ShortForm("scale", ("--short",)),
    ShortForm("large_clusters", ("--workers", "1000")),
    ShortForm("simulator_speed", ("--methods", "sync-sgd", "async-sgd", "--workers", "64", "--steps", "4000")),
    ShortForm("record_sizes", ("--methods", "sync-sgd", "--workers", "16", "--steps", "100")),
    ShortForm("collectives", ("--ranks", "512", "--topology-k", "14")),
    ShortForm("network"),
    ShortForm("published"),
    ShortForm("utilisation", ("--model", "1B", "--scale", "0.82")),
    ShortForm("knl"),
    ShortForm("hsgd", ("--images", "20000")),
    ShortForm("quadratic"),
    ShortForm("ablation", ("--scenarios", "dgx1-p100", "--algorithms", "sync-sgd,async-sgd")),
    ShortForm("exhaustive", ("--methods", "sync-sgd,async-sgd", "--seconds", "10")),
    ShortForm("planted_bugs", ("--names", "ssp-gate-off-by-one,hogwild-easgd-loses-the-lock"), limit_s=120.0),
    ShortForm("delay", ("--seeds", "1", "--epochs", "5")),
    ShortForm("dbs", ("--seeds", "2")),
    ShortForm("claims", ("--only", "agd-cost", "--seeds", "2", "--tuning", "1")),
    ShortForm("cosimulation", ("--models", "mlp-64-64-10", "--workers", "4", "--repeats", "1")),
    ShortForm("together", ("--turns", "1")),
    ShortForm("hogwild", ("--runs", "1")),
    ShortForm("shared", ("--rounds", "1")),
    ShortForm("reading", ("--mebibytes", "64", "--repeats", "2")),
    ShortForm("charges", ("--rounds", "2")),
    ShortForm("interference", ("--rounds", "2")),
    ShortForm("pace", ("--ranks", "2", "--ms", "20", "--seconds", "3")),
    ShortForm("methods", ("--algorithms", "sync-sgd,async-sgd", "--epochs", "2")),
    ShortForm("promises", ("--runs", "1", "--seeds", "1")),
    ShortForm("backend", ("--rounds", "1", "--models", "mlp", "--steps", "32")),
    ShortForm("faults", ("--runs", "4")),
    ShortForm("faults_resume", ("--cases", "1")),
    ShortForm("interleaved", ("--rounds", "1", "--methods", "sync-sgd,async-sgd")),
    ShortForm("emulation", ("--seconds", "1"), root=True, programs=("ip", "tc")),
    ShortForm("two_hosts", ("--methods", "sync-sgd"), root=True, programs=("ip", "tc")),
    ShortForm("two_level", ("--repeats", "1", "--steps", "6"), root=True, programs=("ip", "tc")),
    ShortForm(
        "predicted_hosts", ("--methods", "sync-sgd", "--seconds", "10", "--steps", "40"), root=True, programs=("ip",)
    ),
)
"""in the order in which they run: first those that only simulate. `fidelity.py` has no short form, because its
calibrations alone take minutes"""
