"""Training over the Internet by DiLoCo: published compute utilisation, and seconds of communication of a round.

A site is one worker, which computes the inner steps of a round and then waits for the all-reduce of the changes. A
change of b bits a number is exchanged like b/32 as many numbers of 32 bits. Sites have the link of the catalogue for
the Internet (`wan-1g`) at the rate that is known, a ring connects them, and nothing else is exchanged. A range counts
by its middle. Rows of a run whose rounds were not published, and of other methods, are left out.

A run of which an input was not published has two rows, for both ends of what it may be: the share of a chip's peak with
which Covenant-72B's peers computed, and the number of Decoupled DiLoCo's learners. Its goodput, the share of the time
in which learners compute what counts, is that of the shipped scenario `learner-failures`.

HALoS's times to a quality are compared as if each method needed as many samples to it: with the samples per second of
the shipped scenario `halos-regions`, whose inputs its authors have published, once of all and once of those in updates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from paceline.algorithms.core.errors import PacelineError
from paceline.algorithms.core.values import Layer, Null, nbytes
from paceline.algorithms.methods.decoupled_momentum import SparseLoCo
from paceline.records.trace import Schedule, Trace
from paceline.scenarios import load
from paceline.scenarios.resolution.plan import Plan
from paceline.simulator.runs.run import perform
from paceline.topologies.catalogue.device_names import named
from paceline.validation.machines import Unread, number, text_of
from paceline.validation.outcome import LeftOut, Outcome, Unit
from paceline.validation.sets import Line, MeasurementSet

NAME = "decentralised"


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What was published elsewhere about the rounds of a run.

    Args:
        words: Of the run's name.
        sites: Workers, at most.
        steps: Inner steps of a round.
        compute_s: Seconds in which a site computes them.
        mbit_per_s: Between sites; of a range, the least.
        provenance: The sources.
    """

    words: str
    sites: int
    steps: int
    compute_s: float
    mbit_per_s: float
    provenance: str


RUNS = (
    Rounds(words="intellect-1", sites=14, steps=100, compute_s=38 * 60.0, mbit_per_s=500.0,
           provenance="FOUND: arXiv 2412.01152, table of all-reduce times, and bandwidths of 0.5 to 4 Gbit/s"),
    Rounds(words="opendiloco", sites=4, steps=125, compute_s=67.5 * 60.0, mbit_per_s=127.0,
           provenance="MEMORY medium: arXiv 2407.07852, section 4: 127 to 935 Mbit/s, 67.5 minutes"),
)  # fmt: skip
BITS = ((r"\bint8|\bfp8|8[- ]bit", 8), (r"fp16|bf16|16[- ]bit", 16), (r"4[- ]bit", 4))
WIDTHS = 32
"""blocks of the stand-in for a model, whose messages alone count"""
ROUNDS = 2
"""simulated; from the last inner step of the first to that of the second, there is one exchange"""


def predicted(lines: Sequence[Line]) -> list[Outcome | LeftOut]:
    """Predicts the lines of a run."""
    results: list[Outcome | LeftOut] = []
    for line in lines:
        try:
            results += _outcomes(line)
        except (PacelineError, ValueError) as error:
            results.append(LeftOut(NAME, f"line {line['line']}", str(error)))
    return results


def _outcomes(line: Line) -> list[Outcome]:
    metric, sparse = line["metric"].lower(), "sparseloco" in line["method"].lower()
    if line["run"] == "HALoS":
        return _against(line)
    if line["run"] == "Decoupled DiLoCo" and "goodput" in metric:
        return _goodput(line)
    if line["run"] == "Covenant-72B" and "compute utili" in metric:
        return _utilised(line)
    return [_upload(line) if sparse and "communication per round" in metric else _outcome(line)]


def _outcome(line: Line) -> Outcome:
    metric, unit = line["metric"].lower(), line["unit"]
    utilised = "compute utili" in metric
    if not utilised and "communication per round" not in metric:
        raise Unread(f"metric: found {line['metric']}, expected compute utilisation or communication per round")
    rounds, scenario = _rounds(line), scenario_of(line)
    (plan,) = load(scenario).plans()
    trace = perform(plan, Schedule(every=math.inf))
    ends_s = sorted(update.time_s for update in trace.updates)
    round_s = ends_s[-1] - ends_s[len(ends_s) // ROUNDS - 1]
    share = rounds.compute_s / round_s
    facts = (
        f"{rounds.sites} sites, rounds of {rounds.steps} steps in {rounds.compute_s:g} s, {rounds.mbit_per_s:g} Mbit/s "
        f"({rounds.provenance})"
    )
    if utilised:
        return _row(line, "compute utilisation", "%", 100 * share, (facts,), scenario=scenario)
    measured = _value(line) * {"minutes": 60.0, "s": 1.0}[unit]
    predicted_s = round_s - rounds.compute_s
    return _row(line, "communication", "s", predicted_s, (facts,), measured=measured, scenario=scenario)


def _row(
    line: Line,
    family: str,
    unit: Unit,
    predicted: float,
    assumed: tuple[str, ...],
    *,
    reading: str = "",
    measured: float | None = None,
    scenario: dict[str, Any] | None = None,
) -> Outcome:
    """Returns the outcome of a line, or of one reading of it, whose words follow the name."""
    return Outcome(
        set=NAME,
        name=", ".join(filter(None, [f"{line['run']} {line['metric']}", reading])),
        system=line["run"],
        family=family,
        unit=unit,
        measured=_value(line) if measured is None else measured,
        predicted=predicted,
        assumed=assumed,
        source=line["source"],
        scenario=scenario,
    )


def _upload(line: Line) -> Outcome:
    """Returns the time in which a worker of SparseLoCo uploads its message, which is the least that a round needs."""
    assumed = ("a worker's own message alone, without those that it downloads", "k, chunks and bits of SparseLoCo")
    return _row(line, "communication", "s", _upload_s(line), assumed)


def _upload_s(line: Line) -> float:
    uplink = re.search(r"([\d.]+) Mbit/s up", line["network"])
    if uplink is None:
        raise Unread(f"network: found {line['network']!r}, expected the bandwidth of uploads: '110 Mbit/s up'")
    count, compression = round(_parameters(line)), SparseLoCo().sparsification
    vector, layers = Null(count), [Layer("weights", 0, count)]
    message, _ = compression.compress(vector, compression.begin(vector, layers))
    return 8 * nbytes(message) / (1e6 * float(uplink[1]))


PEER_STEPS, PEER_TOKENS, PEER_CHIPS = 30, 192 * 2048, 8
"""inner steps of a round, tokens of a step and B200s of a peer of Covenant-72B; FOUND: l402-train.ai/research on arXiv
2603.08163 (30 steps of about 192 sequences of 2,048 tokens), and the table's hardware"""
OF_PEAK = (0.2, 0.5)
"""the least and the largest share of a chip's peak; INFERENCE: the table has 36 to 41 % for INTELLECT-1"""


def _utilised(line: Line) -> list[Outcome]:
    """Returns the share of a round in which a peer of Covenant-72B computes, for both ends of its speed.

    A token takes 6 operations a parameter. The rest of the round is the upload of the peer's message.
    """
    operations = 6 * _parameters(line) * PEER_STEPS * PEER_TOKENS
    upload_s, rows = _upload_s(line), []
    for share in OF_PEAK:
        compute_s = operations / (PEER_CHIPS * share * named("b200").peaks["bf16"])
        assumed = (f"{compute_s:.0f} s of computation a round", f"{upload_s:.0f} s of upload, and no download")
        utilised = 100 * compute_s / (compute_s + upload_s)
        reading = f"{share:.0%} of the peak"
        rows.append(_row(line, "compute utilisation", "%", utilised, assumed, reading=reading))
    return rows


LEARNERS = (4, 16)
"""the fewest and the most learners of Decoupled DiLoCo; INFERENCE: DiLoCo's papers have 2 to 16"""


def _goodput(line: Line) -> list[Outcome]:
    """Returns the share of the time in which learners compute what counts, for both ends of their number."""
    rows, cluster = [], load("learner-failures").cluster
    assert cluster.crashes is not None and cluster.crashes.mtbf is not None
    all_fail_s = cluster.crashes.mtbf / cluster.workers  # of all chips, among however many learners
    for learners in LEARNERS:
        changes = (f"cluster.nodes[0].count={learners}", f"cluster.crashes.mtbf={learners * all_fail_s} s")
        _, trace = _recorded("learner-failures", "decoupled-diloco", changes)
        computed_s = sum(span.end_s - span.start_s for span in trace.spans if span.activity == "compute")
        goodput = 100 * computed_s / (learners * trace.wall_s)
        assumed = ("a recovery with which data-parallel training has the published 27 %",)
        rows.append(_row(line, "goodput", "%", goodput, assumed, reading=f"{learners} learners"))
    return rows


def _recorded(scenario: str, method: str, changes: Sequence[str]) -> tuple[Plan, Trace]:
    """Simulates one of the methods of a shipped scenario, without evaluations."""
    plan = next(plan for plan in load(scenario, changes).plans() if plan.job.method.name == method)
    return plan, perform(plan, Schedule(every=math.inf))


SIMULATED_S = 1800.0
"""virtual seconds of the runs that are compared: some ten global updates of each region"""
AGAINST = {
    "synchronous": ("diloco", ("cluster.nodes[3].link.bandwidth=0.117 Gbit/s",)),
    "other asynchronous": ("async-diloco", ()),
}
"""the method with which HALoS is compared, and what it needs beside the scenario: a ring has the slowest link"""


def _against(line: Line) -> list[Outcome]:
    """Returns the ratios of the samples per second of HALoS and of another method: all of them, and those in updates.

    What a region's workers compute while its change is under way is in no update, but moves the weights at which they
    compute; so how much it counts lies between nothing and the same.
    """
    baseline = next((known for words, known in AGAINST.items() if line["metric"].endswith(f"against {words}")), None)
    if baseline is None:
        raise Unread(f"metric: found {line['metric']}, expected a time against {' or '.join(AGAINST)}")
    method, changes = baseline
    rates = zip(
        ("all samples", "samples in updates"), _samples_per_s("halos"), _samples_per_s(method, changes), strict=True
    )
    inputs = "inputs of utnslab/halos (FOUND)"
    return [
        _row(
            line,
            "time to a quality",
            "×",
            ours / others,
            (f"as many {words} to the quality for each method", inputs),
            reading=words,
        )
        for words, ours, others in rates
    ]


@cache
def _samples_per_s(method: str, changes: tuple[str, ...] = ()) -> tuple[float, float]:
    """Returns the samples per second of a method in the scenario of HALoS's authors: all, and those in updates."""
    plan, trace = _recorded("halos-regions", method, [f"stop.seconds={SIMULATED_S:g} s", *changes])
    computed = plan.job.batches[0] * sum(span.activity == "compute" for span in trace.spans)
    return computed / trace.wall_s, sum(update.samples for update in trace.updates) / trace.wall_s


def scenario_of(line: Line) -> dict[str, Any]:
    """Returns the scenario of a line. Raises `Unread`."""
    rounds, method = _rounds(line), text_of(line, "method")
    if not re.search(r"\b(open)?diloco\b", method) or "sparse" in method:
        raise Unread(f"method: found {line['method']}, expected DiLoCo with all-reduces")
    bits = next((bits for words, bits in BITS if re.search(words, method)), 32)
    site = {"name": "site", "overhead": "0 s", "per_sample": f"{rounds.compute_s / rounds.steps!r} s"}
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", line["run"].lower()).strip("-"),
        "cluster": {
            "nodes": [{"device": site, "count": rounds.sites}],
            "network": {
                "topology": "star",
                "link": {"like": "wan-1g", "bandwidth": f"{rounds.mbit_per_s} Mbit/s"},
                "variation": "none",
            },
        },
        "workload": {"model": _stand_in(_parameters(line) * bits / 32), "learning": "none", "batch_per_worker": 1},
        "algorithms": [{"name": "diloco", "period": rounds.steps, "inner": "sgd"}],
        "stop": {"samples": ROUNDS * rounds.steps * rounds.sites},
        "records": "summary",
    }  # fmt: skip


def _rounds(line: Line) -> Rounds:
    known = next((rounds for rounds in RUNS if re.search(rounds.words, line["run"].lower())), None)
    if known is None:
        raise Unread(f"run: found {line['run']}, and neither its rounds nor its bandwidths are in the table")
    return known


def _parameters(line: Line) -> float:
    match = re.fullmatch(r"([\d.]+) ?([MB])", line["params"].strip())
    if match is None:
        raise Unread(f"params: found {line['params']!r}, expected a number such as 10B")
    return float(match[1]) * {"M": 1e6, "B": 1e9}[match[2]]


def _stand_in(parameters: float) -> str:
    """Returns a transformer with about so many parameters, 12 times the square of its width in each block."""
    width = 16 * round(math.sqrt(parameters / (12 * WIDTHS)) / 16)
    return f"gpt2(n_layer={WIDTHS}, n_embd={width}, n_head=16, n_positions=16, vocab_size=16)"


def _value(line: Line) -> float:
    """Returns the value; of a range, its middle."""
    ends = re.fullmatch(r"\s*([\d.]+)\s*(?:-|–|to)\s*([\d.]+)\s*", line["value"])
    return (float(ends[1]) + float(ends[2])) / 2 if ends else number(line, "value")


SET = MeasurementSet(
    name=NAME,
    title="Training over the Internet: compute utilisation of DiLoCo's runs",
    file="decentralised_runs.csv",
    columns=frozenset({"run", "params", "hardware", "network", "method", "metric", "value", "unit"}),
    groups=lambda lines: ([lines], []),
    predict=predicted,
    in_sight=True,
)
