"""Suggestions for unknown keys of a scenario: keys that were renamed, and names that other tools use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.algorithms.core.naming import near_miss

RENAMED: dict[str, tuple[str, ...]] = {
    "arithmetic": ("compute_dtype",),
    "at": ("milestones",),
    "by": ("gamma",),
    "clip": ("max_grad_norm",),
    "collective": ("allreduce_algorithm",),
    "data": ("dataset",),
    "directory": ("data_dir",),
    "global_rate": ("global_learning_rate",),
    "gradients": ("vmap",),
    "law": ("distribution",),
    "local": ("intra_node_link",),
    "local_rate": ("local_learning_rate",),
    "nonfinite": ("on_nonfinite",),
    "outer_rate": ("outer_learning_rate",),
    "per_node": ("workers_per_node",),
    "pin": ("cpu_affinity",),
    "population": ("num_samples",),
    "rate": ("learning_rate",),
    "rates": ("learning_rates",),
    "share": ("ratio",),
    "slow": ("stragglers",),
    "spread": ("step_time", "duration"),
    "spreads": ("step_times",),
    "start": ("start_method", "warmup_start"),
    "stretch": ("time_dilation",),
    "threads": ("torch_threads",),
    "total": ("total_steps",),
    "trust": ("trust_coefficient",),
    "warm_up": ("warmup_steps",),
}
"""keys of version 0.1 with their new names; a key may have different new names in different sections"""

COMMON: dict[str, str] = {
    "amp": "compute_dtype",
    "backend": "library",
    "bandwidth_jitter": "variation",
    "bandwidth_variation": "variation",
    "batch": "batch_per_worker",
    "batch_size": "batch_per_worker",
    "bs": "batch_per_worker",
    "clip_norm": "max_grad_norm",
    "coefficient_of_variation": "cv",
    "down": "download",
    "epoch": "epochs",
    "eta": "learning_rate",
    "gpus": "workers_per_node",
    "gpus_per_node": "workers_per_node",
    "grad_clip": "max_grad_norm",
    "gradient_clipping": "max_grad_norm",
    "jitter": "step_time",
    "lr": "learning_rate",
    "lr_schedule": "schedule",
    "lr_scheduler": "schedule",
    "max_epochs": "epochs",
    "max_norm": "max_grad_norm",
    "max_steps": "updates",
    "mixed_precision": "compute_dtype",
    "nnodes": "count",
    "nproc": "workers_per_node",
    "nproc_per_node": "workers_per_node",
    "ntasks_per_node": "workers_per_node",
    "num_epochs": "epochs",
    "num_gpus": "workers_per_node",
    "num_nodes": "count",
    "precision": "compute_dtype",
    "std": "cv",
    "steps": "updates",
    "straggler": "stragglers",
    "up": "bandwidth",
    "upload": "bandwidth",
    "variability": "variation",
    "variance": "variation",
    "warmup": "warmup_steps",
    "wd": "weight_decay",
    "workers": "nodes",
    "world_size": "nodes",
}
"""names in torch, torchrun, Slurm and other tools, with the closest key"""

WORLD_SIZE = " (give the workers as nodes: the sum of count times workers_per_node)"


def key_hint(key: object, known: Iterable[str]) -> str:
    """Returns a suggestion for an unknown key, in parentheses for the end of a message; empty if no key is similar.

    Args:
        key: as found in the scenario.
        known: the keys that are allowed there.

    >>> key_hint("rate", ["learning_rate", "momentum"])
    ' (rate was renamed to learning_rate)'
    >>> key_hint("lr", ["learning_rate", "momentum"])
    ' (did you mean learning_rate?)'
    >>> key_hint("momentun", ["learning_rate", "momentum"])
    ' (did you mean momentum?)'
    """
    known, key = list(known), str(key)
    renamed = [new for new in RENAMED.get(key, ()) if new in known]
    if renamed:
        return f" ({key} was renamed to {renamed[0]})"
    common = COMMON.get(key.lower().replace("-", "_"))
    if common in known:
        return WORLD_SIZE if common == "nodes" else f" (did you mean {common}?)"
    return near_miss(key, known)


def meanings(key: str) -> Iterator[str]:
    """Yields the keys that a name may mean: its new names, the name itself, and its closest key.

    >>> list(meanings("batch-size"))
    ['batch_size', 'batch_per_worker']
    """
    name = key.replace("-", "_")
    yield from RENAMED.get(name, ())
    yield name
    if (common := COMMON.get(name.lower())) is not None:
        yield common
