"""Logs and traces written in their formats are read unchanged; damaged ones are read or refused, and nothing else."""

from __future__ import annotations

import contextlib
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.algorithms.core.errors import InputError
from paceline.topologies.importing import nccl_tests, osu, torch_profile
from paceline.topologies.importing.measured import RATE, profile_points
from paceline.topologies.importing.torch_profile import profile
from tests import logs

DATA = Path(__file__).parents[1] / "data/measurements"
SIZES = st.integers(1, 1 << 31).map(lambda count: 4 * count)
TIMES = st.floats(0.01, 9e6)
READ: dict[str, Callable[[Path], object]] = {
    "all-reduce-8.txt": nccl_tests.read,
    "all-gather-2x2.txt": nccl_tests.read,
    "osu.txt": lambda path: osu.read(path, ranks=4),
    "ddp-gpu.json": torch_profile.profile,
}


def written(content: str | bytes, read: Callable[[Path], object]) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read(path)


@given(
    program=st.sampled_from(sorted(nccl_tests.PROGRAMS)),
    nodes=st.lists(st.integers(1, 8), min_size=1, max_size=3).filter(lambda nodes: sum(nodes) > 1),
    rows=st.lists(st.tuples(SIZES, TIMES, TIMES), min_size=1, max_size=8),
    named=st.booleans(),
)
def test_nccl_tests_round_trip(
    program: str, nodes: list[int], rows: list[tuple[int, float, float]], named: bool
) -> None:
    text = logs.nccl_log(program, nodes, rows, named=named)
    operation = nccl_tests.PROGRAMS[program]
    for in_place in (False, True) if program != "sendrecv" else (False,):
        (curve,) = nccl_tests.curves(text.splitlines(), "log", operation=operation, in_place=in_place)
        assert (curve.operation, curve.ranks, curve.nodes) == (operation, sum(nodes), len(nodes))
        printed = [(row[0], float(logs.in_width(row[1 + in_place], 7)) / 1e6) for row in rows]
        assert list(curve.points) == printed
        assert [size for size, _ in profile_points([curve])] == sorted({size for size, _ in printed})


@given(
    title=st.sampled_from(sorted(osu.BENCHMARKS)).filter(lambda title: "barrier" not in title),
    rows=st.lists(st.tuples(st.integers(1, 1 << 40), TIMES), min_size=1, max_size=8),
    full=st.booleans(),
    ranks=st.integers(2, 1024),
)
def test_osu_round_trip(title: str, rows: list[tuple[int, float]], full: bool, ranks: int) -> None:
    _, operation = osu.BENCHMARKS[title]
    text = logs.osu_log(title.title(), rows, full=full and "bandwidth" not in title)
    (curve,) = osu.curves(text.splitlines(), "log", ranks=ranks)
    assert curve.operation == operation
    assert curve.ranks == (2 if operation in osu.PAIRS else ranks)
    for (size, value), (nbytes, seconds) in zip(rows, curve.points, strict=True):
        assert nbytes == size * (ranks if operation == "AllGather" else 1)
        figure = float(f"{value:.2f}")
        if operation in {"message-rate", "message-rate-both-ways"}:
            ways = 1 if operation == RATE else 2
            assert seconds == pytest.approx(ways * size / (figure * 1e6), rel=1e-12)
        else:
            assert seconds == figure / 1e6


@given(
    steps=st.lists(
        st.fixed_dictionaries(
            {"loading": st.floats(1, 1e4), "forward": st.floats(1, 1e4), "backward": st.floats(1, 1e4)},
            optional={"communication": st.floats(1, 1e4), "optimizer": st.floats(1, 1e4)},
        ),
        min_size=1,
        max_size=4,
    ),
    packed=st.booleans(),
)
def test_torch_traces_round_trip(steps: list[dict[str, float]], packed: bool) -> None:
    events = [one for number, step in enumerate(steps) for one in logs.step_events(number, 1e5 * (number + 1), step)]
    text = logs.trace_text(reversed(events) if packed else events).encode()  # events are in no order
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        path.write_bytes(gzip.compress(text) if packed else text)
        found = profile(path)
    for name in ("loading", "forward", "backward", "communication", "optimizer"):
        expected = [step.get(name, 0.0) * 1e-6 for step in steps]
        assert getattr(found, name) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert found.gradient == pytest.approx([(one["forward"] + one["backward"]) * 1e-6 for one in steps], rel=1e-6)


CHUNK = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"-", b"nan", b"1e999", b"\x00", b"\n", b"#", b"# size count", b"{", b"]", b'"', b"\\ud800"]),
    st.sampled_from(
        [b"0", b"-1", b"null", b"[]", b"true", b"9" * 5000, b"#  Rank 3", b"\xc2\xb2", b"# OSU MPI X Test"]
    ),
)
EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 200), CHUNK), min_size=1, max_size=5)


@pytest.mark.parametrize("name", READ)
@given(edits=EDITS, packed=st.booleans())
def test_damaged_files_are_read_or_refused(name: str, edits: list[tuple[int, int, bytes]], packed: bool) -> None:
    content = (DATA / name).read_bytes()
    packed = packed and name.endswith("json")
    content = gzip.compress(content) if packed else content
    for at, removed, put in edits:
        at %= len(content) + 1
        content = content[:at] + put + content[at + removed :]
    with contextlib.suppress(InputError):
        written(content, READ[name])


@given(at=st.integers(0, 10**6), value=st.sampled_from([None, -1, "1", [], {}, True, 1e308, -1e308, 10**400, "x" * 50]))
def test_wrong_values_in_traces_are_ignored_or_refused(at: int, value: object) -> None:
    """Replaces one value of one event, so that the JSON remains valid."""
    trace = json.loads((DATA / "ddp-gpu.json").read_text(encoding="utf-8"))
    places = [(holder, key) for one in trace["traceEvents"] for holder in (one, one.get("args", {})) for key in holder]
    places += [(trace, key) for key in trace] + [(trace["deviceProperties"][0], key) for key in ("id", "name")]
    places += [(trace["distributedInfo"], "world_size")]
    holder, key = places[at % len(places)]
    holder[key] = value
    with contextlib.suppress(InputError):
        written(json.dumps(trace), READ["ddp-gpu.json"])


@given(cut=st.integers(0, 10**6), packed=st.booleans())
def test_a_trace_that_is_cut_off_is_refused(cut: int, packed: bool) -> None:
    whole = (DATA / "ddp-gpu.json").read_bytes().rstrip()
    content = gzip.compress(whole) if packed else whole
    with pytest.raises(InputError):
        written(content[: cut % len(content)], READ["ddp-gpu.json"])
