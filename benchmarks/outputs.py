"""Stores what users see of a version, and compares two versions: the outputs of every command on five scenarios.

    python benchmarks/outputs.py --out before                    # of this checkout
    python benchmarks/outputs.py --out before --rev v0.1         # of a commit, in a worktree of its own
    python benchmarks/outputs.py --compare before after          # a diff of each output that differs

A change that moves or merges code must not change what users see unless it says so. Every command runs in an empty
folder, on a terminal of 80 columns; its standard output, its errors, and the JSON and CSV files that it writes are
stored. What differs between two runs of one version is replaced: paths, versions, dates, and seconds of the machine's
clock. Commands that measure the machine are not here; the keys of their answers are tested by tests/backend.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = {
    "quickstart": ["stop.epochs=3", "evaluate.every=0.1 s"],
    "wan-diloco": ["stop.seconds=20 s"],
    "dgx1-p100": ["stop.samples=20000"],
    "sc17-lenet-gpu": ["stop.samples=20000"],
    "two-datacentres": ["stop.samples=32768"],
}
"""with a replica and a server, over slow lines, inside a node, of a paper, and of several sites; short runs of each"""
RUN = "runs/quickstart-sync-sgd-1-simulated-1"
KEPT = {".json", ".csv"}
CHANGING = (
    (r"/[\w./-]*/(?=[\w.-]+)", ""),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?[\d.+:Z]*", "TIME"),
    (r"\b\d+\.\d+\.\d+[\w.+]*", "VERSION"),
    (r'("(?:seconds|elapsed_s|cpu_s|started|memory_\w+|other_load|pid)": )[\d.e+-]+', r"\1N"),
    (r'("checksum": )"\w+"', r"\1N"),
    (r"(?m)^(?:simulating|explaining|sweeping|planning|checking|expected duration): .*\n", ""),
    (r"schedules in [\d.]+ s", "schedules in N s"),
    (r"(?m)^[\w-]+: \d+ schedules, \d+%\n", ""),
    (r"(?m)^( \S+ +(?:holds|violated|not checked) +\d+ +)[\d.]+", r"\1N"),
)
"""patterns of what differs between two runs of one version, and what is written in their places"""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yields a name and the arguments of each command; commands about stored runs come after those that store them."""
    for name, values in SCENARIOS.items():
        changes = [word for value in values for word in ("--set", value)]
        yield f"simulate-{name}", ["simulate", name, *changes, "--no-report"]
        yield f"simulate-{name}-json", ["simulate", name, *changes, "--no-report", "--json"]
        yield f"simulate-{name}-seeds", ["simulate", name, *changes, "--no-report", "--seeds", "2", "--quiet"]
        yield f"explain-{name}", ["explain", name]
        yield f"explain-{name}-json", ["explain", name, "--json"]
        yield f"sweep-{name}", ["sweep", name, *changes, "--vary", "workload.batch_per_worker=8,16", "--jobs", "1"]
    yield "sweep-json", ["sweep", "quickstart", "--vary", "cluster.nodes[0].count=1,2", "--jobs", "1", "--json"]
    plan = ["plan", "quickstart", "--set", "stop.epochs=3", "--target", "accuracy=0.6", "--jobs", "1", "--trials", "8"]
    yield "plan", plan
    yield "plan-json", [*plan, "--json"]
    yield "check", ["check", "agd", "--schedules", "20"]
    yield "check-json", ["check", "agd", "--schedules", "20", "--json"]
    for kind in ("algorithms", "devices", "links", "topologies", "models", "datasets", "scenarios", "storage"):
        yield f"list-{kind}", ["list", kind]
        yield f"list-{kind}-json", ["list", kind, "--json"]
    yield "list-algorithm", ["list", "algorithms", "diloco"]
    yield "topology", ["topology", "fat-tree"]
    yield "topology-json", ["topology", "dgx-h100", "--json"]
    yield "runs", ["runs"]
    yield "runs-json", ["runs", "--json"]
    yield "show", ["show", RUN]
    yield "show-json", ["show", RUN, "--json"]
    yield "staleness", ["staleness", RUN]
    yield "staleness-json", ["staleness", RUN, "--json"]
    yield "help", ["--help"]
    for command in ("simulate", "compare", "sweep", "plan", "explain", "check", "report", "export"):
        yield f"help-{command}", [command, "--help"]
    yield "mistakes", ["simulate", "quickstart", "--set", "workload.batch=8", "--set", "cluster.nodes[0].device=gpux"]


def store(code: Path, out: Path, only: set[str]) -> None:
    """Runs all commands with the code of a checkout, and writes what they print and store.

    Args:
        code: the folder of the checkout.
        out: a new folder: a file for each command, and those that the commands write.
        only: the names of the commands to run; empty: all.
    """
    out.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(code), "COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC"}
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in commands():
            if only and name not in only:
                continue
            print(f"paceline {' '.join(arguments)}", file=sys.stderr, flush=True)
            done = subprocess.run(
                [sys.executable, "-m", "paceline", *arguments],
                cwd=folder, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            text = f"$ paceline {' '.join(arguments)}\n{done.stdout}\n[exit status {done.returncode}]\n{done.stderr}"
            (out / f"{name}.txt").write_text(steady(text))
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in KEPT and "points" not in str(path.parent):  # points repeat the rows of a sweep or plan
                place = out / "files" / path.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(steady(path.read_text()))


def steady(text: str) -> str:
    """Replaces what differs between two runs of one version.

    >>> steady("stored in /tmp/a1/runs with numpy 2.1.3")
    'stored in runs with numpy VERSION'
    """
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return text


def differences(before: Path, after: Path) -> Iterator[str]:
    """Yields a unified diff of each output that differs between two folders of `store`."""
    names = {path.relative_to(folder) for folder in (before, after) for path in folder.rglob("*") if path.is_file()}
    for name in sorted(names):
        sides = [
            (folder / name).read_text().splitlines() if (folder / name).exists() else [] for folder in (before, after)
        ]
        yield from difflib.unified_diff(*sides, f"{before}/{name}", f"{after}/{name}", n=0, lineterm="")


@contextmanager
def checkout(revision: str | None) -> Iterator[Path]:
    """Returns the folder of this checkout, or of a commit in a temporary worktree."""
    if revision is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", place, revision], cwd=ROOT, check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place], cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="DIR", help="a new folder for the outputs")
    parser.add_argument("--rev", metavar="COMMIT", help="the commit whose outputs are stored; default: this checkout")
    parser.add_argument("--only", default="", metavar="A,B,…", help="the names of the commands; default: all")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="two folders to compare")
    options = parser.parse_args()
    if (options.out is None) == (options.compare is None):
        parser.error("give --out to store outputs, or --compare to compare two folders")
    only = {name for name in options.only.split(",") if name}
    if unknown := only - {name for name, _ in commands()}:
        parser.error(
            f"--only: unknown {', '.join(sorted(unknown))}; there are {', '.join(name for name, _ in commands())}"
        )
    if options.out is not None:
        if options.out.exists():
            parser.error(f"--out: {options.out} exists; give a new folder")
        with checkout(options.rev) as code:
            store(code, options.out.resolve(), only)
        return
    if missing := [str(folder) for folder in options.compare if not folder.is_dir()]:
        parser.error(f"--compare: found no folder {' and no folder '.join(missing)}")
    lines = list(differences(*options.compare))
    print("\n".join(lines))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
