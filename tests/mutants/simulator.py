"""Mutants of virtual time: flows, collectives, faults, storage and what a worker's device does."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

NETWORK = (
    Mutant(
        name="max-min-neighbour-not-freed",
        file="simulator/flows/max_min.py",
        old="if link.holding > 0 and net.holds.place[entry.link] == NONE:",
        new="if link.holding > 1 and net.holds.place[entry.link] == NONE:",
        bug="A flow that is left alone on a link keeps the rate that it had beside another one.",
        tests=("unit/test_simulator_flows.py", "unit/test_simulator_transfers.py", "property/test_fair_sharing.py"),
    ),
    Mutant(
        name="max-min-room-by-old-rate",
        file="simulator/flows/max_min.py",
        old="link.room -= rate",
        new="link.room -= flow.rate",
        bug="A flow that stops rising leaves other links the room of its old rate, not of its new one.",
        tests=("unit/test_simulator_transfers.py", "property/test_fair_sharing.py"),
    ),
    Mutant(
        name="latency-counted-twice",
        file="simulator/network/network.py",
        old="latency_s = max(0.0, path.latency_s - path.send_s - path.receive_s)",
        new="latency_s = path.latency_s",
        bug="The processors' part of a message's latency is counted twice.",
        tests=("closed_form/test_communication.py",),
    ),
    Mutant(
        name="channel-not-serial",
        file="simulator/network/network.py",
        old="max(now, self._free_s.get(server, 0.0)) + seconds",
        new="now + seconds",
        bug="Collectives of one group and stream overlap on a measured network.",
        tests=("unit/test_simulator_network.py", "unit/test_simulator_programs.py", "unit/test_calibrate.py"),
    ),
    Mutant(
        name="headers-without-bytes",
        file="simulator/network/emulated.py",
        old="min(self._payload, nbytes - first) + HEADERS",
        new="min(self._payload, nbytes - first)",
        bug="The headers of packets take no time on an emulated line.",
        tests=("unit/test_emulated_prediction.py",),
    ),
    Mutant(
        name="messages-overtake",
        file="algorithms/runtime/mail.py",
        old="""        while queue and queue[0].arrived:
            inbox.put(queue.popleft())
""",
        new="""        queue.remove(envelope)
        inbox.put(envelope)
""",
        bug="A message that arrives early is delivered before an older one of the same sender.",
        tests=("unit/test_simulator_programs.py", "contract/test_operations.py"),
    ),
    Mutant(
        name="cancelled-message-put-last",
        file="algorithms/runtime/mail.py",
        old="self._messages.insert(0 if oldest else len(self._messages), envelope)",
        new="self._messages.append(envelope)",
        bug="The message of a receive that was cancelled goes behind younger ones.",
        tests=("unit/test_simulator_programs.py", "contract/test_operations.py"),
    ),
    Mutant(
        name="one-thread-too-many",
        file="simulator/interpreter/serving.py",
        old="len(self._ends_s) >= self._count",
        new="len(self._ends_s) > self._count",
        bug="A server handles one message more at once than it has threads.",
        tests=("closed_form/test_server_queue.py",),
    ),
    Mutant(
        name="reply-before-earlier-updates",
        file="simulator/interpreter/serving.py",
        old="return max(self._handled_s, self._before_s)",
        new="return self._handled_s",
        bug="A thread replies with weights that contain an update that another thread has not finished.",
        tests=("closed_form/test_server_queue.py",),
    ),
    Mutant(
        name="rendezvous-all-at-once",
        file="simulator/interpreter/mail.py",
        old="""        if before is not None and not before.processed:
            yield before
        yield self._network""",
        new="""        yield self._network""",
        bug="Large messages to a rank flow at one time although they are received in order.",
        tests=("closed_form/test_server_queue.py",),
    ),
    Mutant(
        name="rendezvous-without-answer",
        file="simulator/interpreter/mail.py",
        old="        yield self._network.message(envelope.to, envelope.source, 0)\n",
        new="",
        bug="The bytes of a message flow before the answer to its announcement has arrived.",
        tests=("closed_form/test_server_queue.py",),
    ),
    Mutant(
        name="cancelled-flow-shares",
        file="simulator/flows/flow_engine.py",
        old="""            self._leave(flow.number)
        self._solve_afterwards()

    def route""",
        new="""            self._leave(flow.number)

    def route""",
        bug="Flows remain as slow as they were beside a flow that was cancelled.",
        tests=("closed_form/test_memory_sharing.py", "unit/test_doctests.py"),
    ),
)

COLLECTIVES = (
    Mutant(
        name="ring-one-round-more",
        file="simulator/collectives/patterns.py",
        old="return _around(p, nbytes / p, True, p - 1)",
        new="return _around(p, nbytes / p, True, p)",
        bug="A ring reduce-scatter has p rounds instead of p − 1.",
        tests=("closed_form/test_patterns.py",),
    ),
    Mutant(
        name="two-level-whole-vector",
        file="simulator/collectives/patterns.py",
        old="ring_all_reduce(len(nodes), nbytes / size)) for shard",
        new="ring_all_reduce(len(nodes), nbytes)) for shard",
        bug="Between nodes each ring of a two-level all-reduce carries the whole vector instead of its share.",
        tests=("closed_form/test_patterns.py",),
    ),
    Mutant(
        name="rings-equal-shares",
        file="simulator/collectives/rings.py",
        old="Channel(order, width / sum(widths))",
        new="Channel(order, 1 / len(widths))",
        bug="Rings side by side carry equal shares, however fast their slowest hops are.",
        tests=("property/test_rings.py", "closed_form/test_patterns.py"),
    ),
    Mutant(
        name="contention-ignores-messages",
        file="simulator/collectives/contention.py",
        old=" and all(map(ports.isdisjoint, self._messages.values()))",
        new="",
        bug="A collective that begins beside a message takes its standalone time.",
        tests=("closed_form/test_patterns.py", "property/test_contention.py"),
    ),
    Mutant(
        name="doubling-sends-all",
        file="simulator/collectives/patterns.py",
        old="(2**k, min(2**k, p - 2**k))",
        new="(2**k, 2**k)",
        bug="The last round of Bruck's all-gather sends more blocks than are missing.",
        tests=("closed_form/test_patterns.py",),
    ),
)

FAULTS = (
    Mutant(
        name="shares-of-normal-numbers",
        file="topologies/faults/step_times.py",
        old="explained(times.law), np.linspace(0.0, 1.0, 1025)",
        new="np.linspace(0.0, 1.0, 1025), np.linspace(0.0, 1.0, 1025)",
        bug="Shares are those of the normal numbers behind the factors, not of the factors, which vary otherwise.",
        tests=("property/test_step_times.py",),
    ),
    Mutant(
        name="phases-of-another-process",
        file="topologies/faults/step_times.py",
        old="parts = _parts_of(seed, rank, node, self.correlation_time_s, self.node_correlation_time_s)",
        new="parts = _parts_of(seed, rank, node, 1.0, 1.0)",
        bug="A rank by itself has slow phases of another length than in a cohort.",
        tests=("property/test_step_times.py",),
    ),
    Mutant(
        name="factor-of-the-first-instant",
        file="simulator/interpreter/compute.py",
        old="samples.number, samples.count, self.env.now)",
        new="samples.number, samples.count, 0.0)",
        bug="Slow phases never end in the event engine: each step has the factor of the run's first instant.",
        tests=("property/test_step_times.py",),
    ),
    Mutant(
        name="redraw-leaves-timers",
        file="simulator/network/outages.py",
        old="        self._contention.disturb(ports)\n",
        new="",
        bug="A collective that a timer represents ends as if its links had kept the bandwidth that they began with.",
        tests=("property/test_link_changes.py", "closed_form/test_varying_links.py"),
    ),
    Mutant(
        name="mean-above-one",
        file="topologies/graphs/links.py",
        old="math.exp(self._sigma * self._z - self._sigma**2 / 2)",
        new="math.exp(self._sigma * self._z)",
        bug="The mean bandwidth of a link that varies is larger than the given one.",
        tests=("closed_form/test_varying_links.py",),
    ),
    Mutant(
        name="link-never-repaired",
        file="topologies/faults/link_faults.py",
        old="if fault.at_s <= at_s < fault.at_s + fault.lasts_s",
        new="if fault.at_s <= at_s <= fault.at_s + fault.lasts_s",
        bug="A link is still broken at the moment of its repair, after which nobody looks again.",
        tests=("unit/test_outages.py",),
    ),
    Mutant(
        name="checkpoint-survives-crash",
        file="simulator/kernel/crash_timeline.py",
        old="self.kept_s = self.written_s = 0.0\n        self.up_s",
        new="self.kept_s = 0.0\n        self.up_s",
        bug="A checkpoint that a crash interrupted is continued instead of written anew.",
        tests=("property/test_faults.py", "closed_form/test_faults.py"),
    ),
    Mutant(
        name="redo-at-full-speed",
        file="simulator/kernel/crash_timeline.py",
        old='return "redo", lost_s, speed.end_s(self.now_s, lost_s)',
        new='return "redo", lost_s, self.now_s + lost_s',
        bug="Work that is done again after a crash ignores slowdowns.",
        tests=("property/test_faults.py", "closed_form/test_faults.py", "unit/test_faults.py"),
    ),
    Mutant(
        name="node-fails-rank-by-rank",
        file="simulator/kernel/crash_timeline.py",
        old="poisson(crashes.node_mtbf_s, seed, NODE_FAILURES, node)",
        new="poisson(crashes.node_mtbf_s, seed, NODE_FAILURES, rank)",
        bug="The workers of a node crash at different times when their node fails.",
        tests=("property/test_faults.py", "unit/test_faults.py", "closed_form/test_faults.py"),
    ),
    Mutant(
        name="slowdown-work-multiplied",
        file="topologies/faults/worker_faults.py",
        old="work_s = max(0.0, work_s - (until_s - now_s) / factor)",
        new="work_s = max(0.0, work_s - (until_s - now_s) * factor)",
        bug="More work is done during a slowdown instead of less.",
        tests=("property/test_faults.py", "closed_form/test_faults.py"),
    ),
    Mutant(
        name="jitter-mean-not-one",
        file="topologies/faults/jitter.py",
        old="    rows /= _mean(jitter)\n",
        new="",
        bug="Jitter is not scaled to mean 1, so it makes devices slower or faster on average.",
        tests=("unit/test_topologies.py", "closed_form/test_spread.py"),
    ),
    Mutant(
        name="jitter-alike-on-all-ranks",
        file="topologies/faults/jitter.py",
        old="np.random.SeedSequence((seed, stream, place, *rest))",
        new="np.random.SeedSequence((seed, stream, *rest))",
        bug="All ranks draw the same jitter, so nobody ever waits for a straggler.",
        tests=("unit/test_topologies.py", "closed_form/test_spread.py"),
    ),
)

STORAGE = (
    Mutant(
        name="read-ahead-survives-seek",
        file="simulator/interpreter/storage.py",
        old="seeks, self._run = seeks + 1, 0",
        new="seeks += 1",
        bug="After a seek the bytes of the run before still count as read ahead.",
        tests=("closed_form/test_storage.py", "unit/test_storage.py"),
    ),
    Mutant(
        name="disk-head-always-returns",
        file="simulator/interpreter/storage.py",
        old="(asked.returns if head.last is not reader else 0)",
        new="asked.returns",
        bug="A disk pays for coming back to a reader although it has served no other one since.",
        tests=("closed_form/test_storage.py", "unit/test_storage.py"),
    ),
    Mutant(
        name="disk-serves-all-at-once",
        file="simulator/interpreter/storage.py",
        old="len(self._requests) * request.beside_s)",
        new="request.beside_s)",
        bug="Readers of one disk do not slow each other down.",
        tests=("closed_form/test_storage.py", "property/test_storage.py"),
    ),
    Mutant(
        name="prefetch-one-deeper",
        file="simulator/interpreter/loading.py",
        old="self._now is None and len(self._ready) <= self._depth:",
        new="self._now is None and len(self._ready) <= self._depth + 1:",
        bug="One batch more than asked for is read ahead.",
        tests=("unit/test_storage.py", "property/test_storage.py", "closed_form/test_storage.py"),
    ),
)

COMPUTE = (
    Mutant(
        name="cancelled-gradient-computed",
        file="simulator/interpreter/compute.py",
        old="self._waiting.pop(pending, None)",
        new="pass",
        bug="Gradients that were cancelled are still computed with the next one that is needed.",
        tests=("unit/test_joint.py",),
    ),
    Mutant(
        name="backward-in-forward-order",
        file="simulator/interpreter/compute.py",
        old="rest = reversed(backward)",
        new="rest = iter(backward)",
        bug="Backward passes take the layers' times in the order of forward.",
        tests=("closed_form/test_layerwise_times.py", "unit/test_simulator_programs.py"),
    ),
)

STAGING = (
    Mutant(
        name="result-not-copied-back",
        file="simulator/interpreter/collectives.py",
        old="self._copies.after(rank, task.step, received)",
        new="self._copies.after(rank, task.step, 0)",
        bug="The result of a collective among hosts reaches the devices for free.",
        tests=("closed_form/test_staging.py",),
    ),
    Mutant(
        name="one-batch-too-few-ahead",
        file="simulator/interpreter/batch_staging.py",
        old="while len(self._queue) < self._depth:",
        new="while len(self._queue) < self._depth - 1:",
        bug="With a prefetch of 1, no batch is copied during the gradient before it.",
        tests=("closed_form/test_staging.py",),
    ),
    Mutant(
        name="detour-inside-a-node",
        file="simulator/flows/fabric.py",
        old="if (apart := self.node_of(source) != self.node_of(to)) and cluster.has_cards:",
        new="if (apart := self.node_of(source) == self.node_of(to)) and cluster.has_cards:",
        bug="Without GPUDirect, messages inside a node pass the host, and those between nodes do not.",
        tests=("closed_form/test_staging.py",),
    ),
)

MUTANTS = NETWORK + COLLECTIVES + FAULTS + STORAGE + COMPUTE + STAGING
