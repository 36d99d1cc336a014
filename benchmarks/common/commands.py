"""The short form of every command: arguments with which it takes seconds to two minutes on two cores.

A short form shows that a command works and gives figures of the right size. The figures of a page in docs/results come
from the long form.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShortForm:
    """A command with the arguments of its short form."""

    command: str
    """the file in benchmarks/, without its suffix"""
    arguments: tuple[str, ...] = ()
    limit_s: float = 300.0
    """seconds after which it is stopped"""
    programs: tuple[str, ...] = ()
    """programs that must be installed; a command with some makes network namespaces, which only root may do"""

    def missing(self) -> str | None:
        """Returns why this machine cannot run it; None if it can."""
        if self.programs and os.geteuid() != 0:
            return "needs root, because it makes network namespaces"
        absent = [name for name in self.programs if shutil.which(name) is None]
        return f"needs {', '.join(absent)}" if absent else None


SHORT_FORMS: tuple[ShortForm, ...] = (
    ShortForm("simulator", ("--short",), limit_s=600.0),
    ShortForm("collectives", ("--ranks", "512", "--topology-k", "14")),
    ShortForm("network"),
    ShortForm("stragglers", ("--seeds", "1")),
    ShortForm("asynchrony", ("orders", "--workers", "8", "--seeds", "2", "--methods", "sync-sgd,async-sgd")),
    ShortForm("checking", ("--methods", "sync-sgd,async-sgd", "--seconds", "10", "--bugs", "ssp-gate-off-by-one")),
    ShortForm("machine", ("--rounds", "1", "--ranks", "2", "--ms", "20")),
    ShortForm("reading", ("--mebibytes", "64", "--rounds", "2")),
    ShortForm("promises", ("--rounds", "1", "--seeds", "1", "--methods", "sync-sgd,async-sgd")),
    ShortForm("backend", ("--rounds", "1", "--models", "mlp", "--steps", "32")),
    ShortForm("faults", ("--runs", "4", "--resumed", "1")),
    ShortForm("fidelity", ("--quick", "--only", "paced", "--again", "--out", "runs/fidelity-short")),
    ShortForm("emulation", ("--seconds", "1"), programs=("ip", "tc")),
    ShortForm("two_hosts", ("--methods", "sync-sgd", "--predict", "10", "--samples", "640"), programs=("ip", "tc")),
    ShortForm("training_script", ("--models", "cnn", "--steps", "20"), programs=("ip", "tc")),
    ShortForm("ablation", ("--scenarios", "dgx1-p100", "--algorithms", "sync-sgd,async-sgd")),
    ShortForm("charges", ("--rounds", "2")),
    ShortForm("two_level", ("--repeats", "1", "--steps", "6"), programs=("ip", "tc")),
)
"""in the order in which they run: first those that only simulate"""
