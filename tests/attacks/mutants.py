"""Malformed scenarios and values for `--set` and `--vary`, made from the shipped scenario files by a seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paceline.scenarios import SHIPPED
from paceline.scenarios.values.text import parse

SOURCES = {name: path.read_text(encoding="utf-8") for name, path in SHIPPED.items()}
DATA = {name: parse(text, name)[0] for name, text in SOURCES.items()}

VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3.7, 1e308, -1e308, 1e-320, 10**9, 10**12, 10**15, 10**16, 10**40,
    float("nan"), float("inf"), float("-inf"), "", " ", "x" * 300, "x" * 5000, "1" * 4000, "1" * 5000, "ünïcödé",
    "\x00", "\u202e", "💥", "1e400 s", "4 parsec", "4", "4 ms", "-4 ms", "1e-30 s", "1e30 s", "nan s", "10 Gbit/s",
    "1e-15 B/s", "10 Gbit", "32 kB", "1e300 B", "1 epoch", "0 epochs", "1e9 epochs", "0.5 updates", "5 %", "500 %",
    [], {}, [[]], [{}], [1, 2], {"a": 1}, {"name": []}, {"name": "agd", "delay": 10**9},
    {"kind": "steps", "milestones": [3, 1]},
    {"latency": "1 s", "bandwidth": "1 B/s"}, {"distribution": "lognorm", "sigma": 1e9}, {"distribution": "norm"},
    {"every": "1 s"},
    [1] * 2000, {f"key{number}": number for number in range(1500)}, "sync-sgd", "quadratic", "digits-mlp", "resnet50",
    "math:pi", "math:sqrt", "nowhere:nothing", "../../x.json", "/dev/null", "/", "star", "torus", "dgx-a100", "p100",
    "this-machine", "1..5", "-", "~", "*alias", "&anchor", "!!python/object:os.system {}", ["sync-sgd", "sync-sgd"],
]  # fmt: skip
CHARACTERS = [*"{}[]:,&*!|>'\"#%@\t\x00é", "[" * 999]
UNITS = ["s", "ms", "GB/s", "B", "Hz", "%", "epochs", "parsec", ""]
PATHS = [
    "seed", "seeds", "stop.epochs", "stop.updates", "stop.samples", "stop.seconds", "stop.accuracy", "evaluate.every",
    "workload.model", "workload.batch_per_worker", "workload.learning", "workload.options", "workload.reading",
    "workload.reading.prefetch", "workload.dtype", "cluster.network", "cluster.network.topology",
    "cluster.network.link", "cluster.network.k", "cluster.network.routing", "cluster.nodes[0].count",
    "cluster.step_time",
    "cluster.nodes[0].workers_per_node", "cluster.nodes[0].device", "cluster.nodes[1].step_time", "cluster.storage",
    "cluster.crashes", "cluster.stragglers", "cluster.system", "hyperparameters.learning_rate",
    "hyperparameters.momentum",
    "hyperparameters.lars", "hyperparameters.schedule", "hyperparameters.compression", "algorithms.agd.delay",
    "algorithms[0]", "algorithms[9]", "train.torch_threads", "train.checkpoint", "train.timeout", "record.drift",
    "name",
    "extrapolate", "target.loss", "nothing.at.all", "", ".", "[0]", "a[99999999999]",
]  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One malformed input."""

    number: int
    source: str
    """the text of a scenario, or the name of one"""
    changes: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()


def mutants(count: int, seed: int) -> Iterator[Mutant]:
    """Returns this many mutants; the same ones for the same seed."""
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        kind = number % 5
        name = draw.choice(sorted(SOURCES))
        if kind == 0:
            yield Mutant(number, "quickstart", tuple(_change(draw) for _ in range(draw.choice([1, 1, 3]))))
        elif kind == 1:
            yield Mutant(number, "quickstart", vary=tuple(_axis(draw) for _ in range(draw.randint(1, 2))))
        elif kind == 2:
            yield Mutant(number, _garbled(SOURCES[name], draw))
        else:
            data = copy.deepcopy(DATA[name if kind == 3 else "quickstart"])
            for _ in range(draw.choice([1, 1, 3])):
                _mutate(data, draw)
            yield Mutant(number, json.dumps(data, allow_nan=True).replace("NaN", ".nan").replace("Infinity", ".inf"))


def _change(draw: random.Random) -> str:
    value = draw.choice(VALUES)
    text = value if isinstance(value, str) and draw.random() < 0.5 else json.dumps(value)
    return f"{draw.choice(PATHS)}={text}"


def _axis(draw: random.Random) -> str:
    ranges = ["1..3", "1..1000000000000", "0..9x2", "1..64x2", "3..1", "1..1e12", "1,,2", "1,1", "[1,2", "1..3x1"]
    parts = [draw.choice([*ranges, *map(json.dumps, VALUES)]) for _ in range(draw.randint(1, 3))]
    return f"{draw.choice(PATHS)}={','.join(parts)}"


def _garbled(text: str, draw: random.Random) -> str:
    """Returns the text of a scenario with some lines and characters changed."""
    lines = text.splitlines()
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(lines))
        match draw.randrange(6):
            case 0:
                lines.insert(at, lines[draw.randrange(len(lines))])
            case 1:
                del lines[at]
            case 2:
                lines[at] = " " * draw.randint(1, 5) + lines[at]
            case 3:
                lines[at] = lines[at][: draw.randint(0, len(lines[at]))]
            case 4:
                where = draw.randint(0, len(lines[at]))
                lines[at] = lines[at][:where] + draw.choice(CHARACTERS) + lines[at][where:]
            case _:
                lines[at] = (
                    lines[at].replace(" ms", f" {draw.choice(UNITS)}").replace("1", str(draw.choice(VALUES))[:99])
                )
    return "\n".join(lines) + "\n"


def _mutate(data: Any, draw: random.Random) -> None:
    """Changes one place of the data."""
    here, keys = data, _keys(data)
    while keys:
        key = draw.choice(keys)
        if not isinstance(here[key], dict | list) or not here[key] or draw.random() < 0.25:
            break
        here = here[key]
        keys = _keys(here)
    if not keys:
        return
    value = here[key]
    match draw.randrange(8):
        case 0:
            del here[key]
        case 1:
            here[key] = [copy.deepcopy(value) for _ in range(draw.choice([1, 2, 50]))]
        case 2 if isinstance(here, dict) and isinstance(key, str):
            here[draw.choice([key + "s", key.upper(), key[:-1], "name", "é" * 9])] = here.pop(key)
        case 3:
            for _ in range(draw.choice([1, 5, 200])):
                here[key] = {"a": here[key]} if draw.random() < 0.5 else [here[key]]
        case 4 if isinstance(value, str) and " " in value:
            here[key] = f"{value.split()[0]} {draw.choice(UNITS)}"
        case 5 if isinstance(value, int | float) and not isinstance(value, bool):
            here[key] = draw.choice([-value, str(value), value * 10**6, value / 7, [value], f"{value} s"])
        case _:
            here[key] = draw.choice(VALUES)


def _keys(here: Any) -> list[Any]:
    return list(here) if isinstance(here, dict) else list(range(len(here)))
