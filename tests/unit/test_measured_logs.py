"""Logs of nccl-tests and OSU micro-benchmarks: their curves, and refusals with all mistakes at once."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from paceline.algorithms.core.errors import InputError
from paceline.topologies.catalogue.machine_profile import Profile
from paceline.topologies.importing import nccl_tests, osu
from paceline.topologies.importing.measured import RATE, RATE_BOTH_WAYS, MeasuredCurve, profile_points
from tests import logs

DATA = Path(__file__).parents[1] / "data/measurements"
MB = 1 << 20
ROWS = [(1024, 30.5, 31.25), (MB, 38.07, 37.0), (16 * MB, 159.06, 157.07)]


def refused(text: str, tmp_path: Path, read: Callable[[Path], object] = nccl_tests.read) -> str:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read(path)
    return str(error.value).replace(str(path), "log")


def osu_refused(text: str, tmp_path: Path, ranks: int | None = 4) -> str:
    return refused(text, tmp_path, partial(osu.read, ranks=ranks))


# --- nccl-tests ------------------------------------------------------------------------------------------------------


def test_an_all_reduce_is_read_in_place_as_torch_calls_it() -> None:
    (curve,) = nccl_tests.read(DATA / "all-reduce-8.txt")
    assert (curve.operation, curve.ranks, curve.nodes) == ("AllReduce", 8, 1)
    assert [size for size, _ in curve.points] == [8, 1024, 65536, MB, 16 * MB, 128 * MB]
    assert curve.points[-1] == (128 * MB, 1053.56 / 1e6)
    assert "all-reduce-8.txt: nccl-tests all_reduce, NVIDIA A100-SXM4-80GB, in place" in curve.source
    (other,) = nccl_tests.read(DATA / "all-reduce-8.txt", in_place=False)
    assert other.points[-1] == (128 * MB, 1062.44 / 1e6)


def test_a_log_that_does_not_name_its_program_is_named_by_its_command_line() -> None:
    (curve,) = nccl_tests.read(DATA / "all-gather-2x2.txt")
    assert (curve.operation, curve.ranks, curve.nodes) == ("AllGather", 4, 2)
    assert curve.points[0] == (65536, 25.28 / 1e6), "the row of size 0 measures nothing"


def test_a_file_may_hold_several_programs() -> None:
    message, scatter = nccl_tests.read(DATA / "two-programs.txt")
    assert (message.operation, message.nodes) == ("message", 2)
    assert (scatter.operation, scatter.points[0]) == ("ReduceScatter", (1024, 15.05 / 1e6))


def test_the_caller_may_give_what_a_log_leaves_out() -> None:
    lines = logs.nccl_log("all_reduce", [4], ROWS, named=False).splitlines()
    stripped = [line for line in lines if "Rank" not in line]
    (curve,) = nccl_tests.curves(stripped, "log", operation="AllReduce", ranks=4)
    assert (curve.ranks, curve.nodes, len(curve.points)) == (4, None, 3)
    with pytest.raises(InputError, match="does not name its program") as error:
        nccl_tests.curves(stripped, "log")
    assert "has no lines '#  Rank  0" in str(error.value), "both are reported together"


def test_groups_that_run_at_the_same_time_are_counted_by_group() -> None:
    lines = logs.nccl_log("all_reduce", [1, 1, 1, 1], ROWS).splitlines()
    split = [
        line.replace("Group  0", f"Group  {int(line.split()[2]) % 2}") if "Rank" in line else line for line in lines
    ]
    with pytest.raises(InputError, match="times algbw for AllReduce of 2 ranks"):  # busbw is still that of four ranks
        nccl_tests.curves(split, "log")
    two = logs.nccl_log("all_reduce", [1, 1], ROWS).splitlines()
    ranks = [line for line in split if "Rank" in line]
    at = next(number for number, line in enumerate(two) if "Rank" in line)
    (curve,) = nccl_tests.curves([*two[:at], *ranks, *two[at + 2 :]], "log")
    assert (curve.ranks, curve.nodes) == (2, 2)
    assert curve.source.endswith("2 groups at the same time")


def test_a_run_of_one_rank_is_refused(tmp_path: Path) -> None:
    rows = ROWS[1:2]
    assert "found a run of one rank" in refused(logs.nccl_log("broadcast", [1], rows), tmp_path)


def test_two_experiments_in_a_file_are_refused(tmp_path: Path) -> None:
    text = logs.nccl_log("all_reduce", [4], ROWS, named=False)
    runs = [f"$ mpirun -np 4 -x NCCL_ALGO={name} all_reduce_perf -b 1K -e 16M\n{text}" for name in ("Ring", "Tree")]
    assert "NCCL_ALGO=Ring, -x NCCL_ALGO=Tree" in refused("".join(runs), tmp_path)
    (one, again) = nccl_tests.curves("".join(runs[:1] * 2).splitlines(), "log")
    assert one.points == again.points


def test_a_row_that_debug_output_cuts_is_joined_or_left_out() -> None:
    lines = logs.nccl_log("all_reduce", [4], ROWS).splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:1] == [str(MB)])
    cut = lines[at].index(" -1") + 3
    pieces = [lines[at][:cut] + "n1:22:27 [0] NCCL INFO comm 0x56", "n1:22:27 [0] NCCL INFO via NET", lines[at][cut:]]
    (curve,) = nccl_tests.curves([*lines[:at], *pieces, *lines[at + 1 :]], "log")
    assert len(curve.points) == 3
    (short,) = nccl_tests.curves([*lines[:at], *pieces[:2], *lines[at + 1 :]], "log")
    assert len(short.points) == 2 and "is left out" in short.notes[0]


HEADS = """
                                                     out-of-place                       in-place
       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def test_a_log_whose_hashes_a_forum_has_removed(tmp_path: Path) -> None:
    """The layout of NVIDIA/nccl#583, of 2021: eight A100 started by mpirun, and no line begins with a hash."""
    text = "mpirun -np 8 all_reduce_perf -b 32 -f 2 -e 8G\n"
    text += (
        " nThread 1 nGpus 1 minBytes 32 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n"
    )
    text += "\n Using devices\n"
    for rank in range(8):
        text += f"   Rank {rank:2} Pid {21213 + rank} on host01 device {rank:2} [0x00] NVIDIA A100-SXM4-40GB\n"
    text += (
        HEADS
        + "   134217728      33554432   float     sum   1102.4  121.75  213.06  5e-07   1101.9  121.81  213.16  5e-07\n"
    )
    (tmp_path / "log").write_text(text + " Out of bounds values : 0 OK\n Avg bus bandwidth    : 100.1\n")
    (curve,) = nccl_tests.read(tmp_path / "log")
    assert (curve.operation, curve.ranks, curve.nodes, curve.points) == ("AllReduce", 8, 1, ((128 * MB, 1101.9e-6),))


def test_two_programs_without_mpi_are_no_run_of_two_ranks(tmp_path: Path) -> None:
    """The layout of NVIDIA/nccl-tests#107: mpirun starts a program without MPI twice, each for itself."""
    text = "mpirun -host a,b -np 2 all_reduce_perf -b 1250M -e 1250M -g 1\n"
    text += 2 * "# nThread 1 nGpus 1 minBytes 1310720000 maxBytes 1310720000 step: 1048576(bytes)\n# Using devices\n"
    text += "".join(f"#   Rank  0 Pid   1320 on host-{host} device  0 [0x00] Tesla V100-SXM2-16GB\n" for host in "ab")
    text += 2 * "\n".join("#" + line for line in HEADS.splitlines())
    text += (
        2
        * "\n  1310720000     327680000   float     sum   3310.2  395.96    0.00  0e+00     5.10  256987    0.00  0e+00"
    )
    said = refused(text + "\n", tmp_path)
    assert "found rank 0 a second time; expected a program built with MPI" in said


def test_a_log_of_slurm_has_the_ranks_of_both_hosts(tmp_path: Path) -> None:
    """The layout of nebius/soperator#428: the second host has the first ranks' names, and groups are printed."""
    text = "srun --nodes=2 --ntasks-per-node=2 --mpi=pmix all_reduce_perf_mpi -b 512M -e 8G -f 2 -g 1\n"
    body = (
        logs.nccl_log("all_reduce", [2, 2], ROWS, named=False).replace("node0", "worker-1").replace("node1", "worker-0")
    )
    (tmp_path / "log").write_text(text + body)
    (curve,) = nccl_tests.read(tmp_path / "log")
    assert (curve.operation, curve.ranks, curve.nodes, len(curve.points)) == ("AllReduce", 4, 2, 3)


def test_a_command_in_a_comment_names_the_program() -> None:
    text = "#  ./all_reduce_perf -b 1K -e 16M -g 4\n" + logs.nccl_log("all_reduce", [4], ROWS, named=False)
    assert nccl_tests.curves(text.splitlines(), "log")[0].operation == "AllReduce"


@pytest.mark.parametrize(
    ("command", "ranks", "hosts"),
    [
        ("mpirun -np 2 --map-by node", 2, 2),
        ("srun -N 2 -n 4", 4, 2),
        ("srun -n8", 8, None),
        ("srun -N2 --ntasks-per-node=4", 8, 2),
        ("flux run -N4 --tasks-per-node=96", 384, 4),
        ("jsrun -n 2 -a 4 -c 40", 8, None),
        ("aprun -n 64 -N 32", 64, 2),
        ("mpiexec -f hosts -n 16 -ppn 8", 16, 2),
        ("mpirun_rsh -np 2 n1 n2 MV2_USE_CUDA=1", 2, 2),
    ],
)
def test_launchers_tell_ranks_and_hosts(command: str, ranks: int, hosts: int | None) -> None:
    text = f"$ {command} ./osu_allreduce\n" + logs.osu_log("Allreduce Latency", [(4, 3.9)])
    (curve,) = osu.curves(text.splitlines(), "log")
    assert (curve.ranks, curve.nodes) == (ranks, hosts)
    assert bool(curve.notes) == (hosts is None)


def test_prefixes_of_launchers_are_removed(tmp_path: Path) -> None:
    text = logs.nccl_log("all_reduce", [2, 2], ROWS)
    plain = nccl_tests.curves(text.splitlines(), "log")
    path = tmp_path / "log"
    for prefix in ("[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", "\x1b[32m"):
        tagged = "".join(f"{prefix}{line}\n[1,1]<stderr>:a warning\n" for line in text.splitlines())
        path.write_text(tagged, encoding="utf-8")
        assert nccl_tests.read(path)[0].points == plain[0].points


def test_columns_of_time_stamps_and_single_iterations_do_not_matter() -> None:
    lines = logs.nccl_log("all_reduce", [2], ROWS).splitlines()
    stamped = [line + " 2025-10-17 11:55:23" if line.lstrip()[:1].isdigit() else line for line in lines]
    head = next(number for number, line in enumerate(lines) if "#wrong" in line)
    stamped[head] += "timestamp"
    assert nccl_tests.curves(stamped, "log")[0].points == nccl_tests.curves(lines, "log")[0].points


def test_versions_of_2022_leave_redop_empty() -> None:
    lines = logs.nccl_log("all_gather", [2], ROWS).splitlines()
    blank = [line.replace("   none ", "        ") for line in lines]
    assert blank != lines
    assert nccl_tests.curves(blank, "log")[0].points == nccl_tests.curves(lines, "log")[0].points


@pytest.mark.parametrize("algbw", ["0.10", "0.05"])  # the second one before June 2020
def test_old_versions_print_fewer_columns(algbw: str) -> None:
    """2021: neither redop nor root for an all-gather, and the largest deviation instead of a count of wrong values."""
    log = """# nThread 1 nGpus 2 minBytes 1024 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#   Rank  0 Pid  11012 on  machine device  0 [0x1b] Tesla V100
#   Rank  1 Pid  11012 on  machine device  1 [0x1c] Tesla V100
#       size         count    type     time   algbw   busbw   error     time   algbw   busbw   error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           128   float    10.24    0.10    0.05   0e+00    20.48    0.05    0.03   1e-07"""
    lines = log.replace("10.24    0.10", f"10.24    {algbw}").splitlines()
    (curve,) = nccl_tests.curves(lines, "log", operation="AllGather")
    assert curve.points == ((1024, 10.24 / 1e6),)
    with pytest.raises(InputError, match="found algbw"):
        nccl_tests.curves(
            [line.replace(f"10.24    {algbw}", "10.24    0.07") for line in lines], "log", operation="AllGather"
        )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("   38.07", "  0.038", "as 1048576 bytes take 0.038 us; the time seems to be in ms"),
        ("   38.07", "  -38.1", "found a time of -38.1 us, expected a time above 0"),
        ("   38.07", "   0.00", "found a time of 0.00 us, expected a time above 0"),
        ("   38.07", "    abc", "found time, algbw, busbw abc"),
        ("   38.07", "    nan", "found time, algbw, busbw nan"),
        ("   27.54", "", "found 11 columns, expected 13: size count type redop root time"),
        (" 48.20       0", " 48.20       7", "found #wrong 7 out-of-place, expected 0 or N/A"),
        (
            " 48.20 ",
            " 45.20 ",
            "found busbw 45.2 GB/s, expected 48.2, which is 1.75 times algbw for AllReduce of 8 ranks",
        ),
        ("Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED", "found 3 values out of bounds, expected 0"),
        ("(us)  (GB/s)", "(ms)  (GB/s)", "found times in (ms), expected (us)"),
        ("time   algbw", "cputime   algbw", "found the time of the CPU (cputime)"),
        ("  #wrong", "", "expected the columns time algbw busbw #wrong twice"),
        ("all_reduce_perf", "alltoall_perf", "found alltoall_perf, expected all_reduce_perf, reduce_scatter_perf"),
        ("Rank  5", "Rank  9", "found lines of 8 ranks up to rank 9, expected also [5, 8]"),
        ("Rank  5", "Rank  4", "found rank 4 a second time"),
        ("     1048576        262144", "     1048576", "line 19: found 12 columns"),
        ("     1048576 ", "    wordy ", "line 19: found 'wordy"),
    ],
)
def test_a_wrong_nccl_log_is_refused(old: str, new: str, expected: str, tmp_path: Path) -> None:
    text = logs.nccl_log("all_reduce", [8], [(size, us, us) for size, us, _ in ROWS])
    assert old in text
    message = refused(text.replace(old, new), tmp_path)
    assert expected in message
    assert all(line.startswith("log: ") for line in message.splitlines())


def test_all_mistakes_of_an_nccl_log_are_reported_together(tmp_path: Path) -> None:
    text = logs.nccl_log("all_reduce", [2], ROWS)
    rows = [line for line in text.splitlines() if line.lstrip()[:1].isdigit()]
    message = refused(text.replace(rows[0], rows[0][:50]).replace(rows[2], "? " + rows[2]), tmp_path)
    assert len(message.splitlines()) == 2
    assert "columns, expected 13" in message
    assert "expected a row of numbers or a comment" in message


@pytest.mark.parametrize(
    "text", ["", "hello\n", "# nThread 1 nGpus 2\n", "{}", "# OSU MPI Latency Test v7.4\n# Size Latency (us)\n0 1\n"]
)
def test_other_texts_are_no_nccl_logs(text: str, tmp_path: Path) -> None:
    assert "expected the output of all_reduce_perf" in refused(text, tmp_path)


def test_a_log_without_rows_is_refused(tmp_path: Path) -> None:
    message = refused(logs.nccl_log("all_reduce", [2], [(0, 5.0, 5.0)]), tmp_path)
    assert message == "log: has only rows of size 0; expected sizes above 0"
    lines = [line for line in logs.nccl_log("all_reduce", [2], ROWS).splitlines() if not line.lstrip()[:1].isdigit()]
    assert "has no rows of measurements" in refused("\n".join(lines), tmp_path)


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x01\x00\x00", bytes(range(256)), b"\xff\xfe#\x00 \x00"])
def test_binary_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not text; expected the output of all_reduce_perf"):
        nccl_tests.read(path)
    with pytest.raises(InputError, match="is not text; expected the output of osu_latency"):
        osu.read(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            nccl_tests.read(path)


# --- OSU -------------------------------------------------------------------------------------------------------------


def test_all_benchmarks_of_a_file_are_read() -> None:
    found = {curve.operation: curve for curve in osu.read(DATA / "osu.txt", ranks=4)}
    assert list(found) == [
        "message", RATE, RATE_BOTH_WAYS, "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Barrier",
    ]  # fmt: skip
    assert found["message"].ranks == 2 and found["AllReduce"].ranks == 4
    assert found["message"].points[0] == (0, 1.21 / 1e6)
    assert found["AllReduce"].points[-1] == (MB, 410.55 / 1e6)
    assert found["AllGather"].points[-1] == (4 * 1024, 5.25 / 1e6), "of all ranks' values"
    assert found["ReduceScatter"].points[-1] == (1024, 4.5 / 1e6)
    assert found["Barrier"].points == ((0, 2.31 / 1e6),)
    assert found["message"].source.endswith("osu.txt: OSU micro-benchmarks 5.6.2 osu_latency, MPI")


def test_a_bandwidth_is_a_rate_and_no_latency() -> None:
    found = {curve.operation: curve for curve in osu.read(DATA / "osu.txt", ranks=4)}
    size, seconds = found[RATE].points[-1]
    assert size / seconds == pytest.approx(12150.25e6)
    size, seconds = found[RATE_BOTH_WAYS].points[-1]
    assert 2 * size / seconds == pytest.approx(23800e6), "both directions together"
    assert found[RATE].points[-1][1] < found["message"].points[-1][1]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Avg Latency(us)", "Avg Latency(ms)", "found the column Avg Latency(ms), expected Avg Latency(us)"),
        ("6.20", "-6.20", "found -6.20 us, expected a number above 0"),
        ("6.20", "0.00", "found 0.00 us, expected a number above 0"),
        ("6.20", "6200.00", "found times of 5.58 to 6.82 us of the ranks, expected a range that contains their mean"),
        ("        1000", "", "found 4 columns, expected 5: Size, Avg Latency(us)"),
        ("6.20", "fast", "found fast us"),
        ("1024 ", "1024.5 ", "found the size 1024.5, expected a whole number of bytes"),
        ("1024 ", "Segmentation ", "found 'Segmentation "),
        ("Allreduce", "Alltoall", "found the benchmark 'alltoall latency', expected one of osu_latency, osu_bw"),
        ("# Size ", "# Length ", "found columns Length | Avg Latency(us)"),
    ],
)
def test_a_wrong_osu_log_is_refused(old: str, new: str, expected: str, tmp_path: Path) -> None:
    text = logs.osu_log("Allreduce Latency", [(4, 3.9), (1024, 6.2)], full=True)
    assert old in text
    assert expected in osu_refused(text.replace(old, new), tmp_path)


def test_what_an_osu_log_must_have(tmp_path: Path) -> None:
    text = logs.osu_log("Allreduce Latency", [(4, 3.9)])
    assert "osu_allreduce does not print its number of ranks" in osu_refused(text, tmp_path, ranks=None)
    assert "has no rows" in osu_refused(text[: text.rindex("4  ")], tmp_path)
    assert "has no line '# OSU MPI … Test'" in osu_refused("4 3.9\n", tmp_path)
    assert "ranks: found 1, expected at least 2" in osu_refused(text, tmp_path, ranks=1)
    checked = text.replace("Avg Latency(us)", "Avg Latency(us)          Validation").replace("3.90", "3.90   Fail")
    assert "found the validation Fail, expected Pass" in osu_refused(checked, tmp_path)


# --- points of a profile ---------------------------------------------------------------------------------------------


def test_repeated_sizes_become_their_median() -> None:
    one = MeasuredCurve("AllReduce", 4, 1, ((8, 3.0), (4, 1.0), (8, 5.0)), "one")
    other = MeasuredCurve("AllReduce", 4, 2, ((8, 100.0),), "other")
    points = profile_points([one, other])
    assert points == ((4, 1.0), (8, 5.0))
    assert Profile(collectives={("AllReduce", 4): points}).collective_s("AllReduce", 4, 6) == 3.0


def test_sizes_and_ranks_outside_the_measured_ones() -> None:
    """Of 4 and 8 MB, 102 MB go on with the bandwidth between the two; of 1 and 2 GB they scale with the bytes."""
    small = Profile(inside={("AllReduce", 8): ((4_194_304, 80e-6), (8_388_608, 120e-6))})
    assert small.collective_s("AllReduce", 8, 102_000_000, inside=True) == pytest.approx(1.01e-3, rel=0.01)
    big = Profile(inside={("AllReduce", 8): ((1 << 30, 8.2e-3), (1 << 31, 16.4e-3))})
    whole = big.collective_s("AllReduce", 8, 102_000_000, inside=True)
    assert whole == pytest.approx(0.779e-3, rel=0.01)
    assert big.collective_s("AllReduce", 4, 102_000_000, inside=True) == pytest.approx(whole * 1.5 / 1.75)
    assert big.collective_s("AllReduce", 16, 102_000_000, inside=True) == pytest.approx(whole * 1.875 / 1.75)


def test_curves_of_different_operations_are_not_mixed() -> None:
    one = MeasuredCurve("AllReduce", 4, 1, ((8, 3.0),), "one")
    other = MeasuredCurve("AllReduce", 8, 1, ((8, 3.0),), "other")
    with pytest.raises(ValueError, match="AllReduce of 4 ranks, AllReduce of 8 ranks"):
        profile_points([one, other])
    with pytest.raises(ValueError, match="found curves of none"):
        profile_points([])


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/calibration.md").read_text(encoding="utf-8")
    example = doctest.DocTestParser().get_doctest(page, {}, "calibration", None, 0)
    assert len(example.examples) == 6
    assert doctest.DocTestRunner().run(example).failed == 0
