"""Tells the story of a violation: runs its case again, records what every rank does, and converts that to sentences.

Rules of this file:

* `NextStep`, `Load`, `Charge` and `Now` give no sentence: every sentence names the step, and times are in the others.
* Without a clock an operation happens when it is answered. A simulated message leaves when it is requested.
* A collective gives one sentence, when its last member enters it. A member that waits is named at the end, if the run
  ends in a deadlock.
"""

from __future__ import annotations

import dataclasses
import warnings
from bdb import BdbQuit
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.algorithms.core.errors import DeadlockError, MismatchedCollectives
from paceline.algorithms.core.job import Job
from paceline.algorithms.core.operations import (
    Access,
    Cancel,
    Gradient,
    Handle,
    LayerGradients,
    Lock,
    NextStep,
    Op,
    Receive,
    RecordUpdate,
    Send,
    Start,
    Unlock,
    Wait,
    WaitFor,
)
from paceline.algorithms.core.values import Group, Message, Rank
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, Collective, signature
from paceline.algorithms.runtime.weights_owner import Update, UpdateLog
from paceline.checking.cases import Case, Violation, performed
from paceline.checking.cases.performing import Outcome
from paceline.checking.check_guarantees import Difference
from paceline.checking.counterexamples import wording
from paceline.checking.counterexamples.differing_values import Focus, differing_values
from paceline.checking.counterexamples.recording import Moment, OperationRecord, RecordedOperation
from paceline.checking.counterexamples.story import DIGITS, Act, Sentence, Story
from paceline.checking.counterexamples.wording import ranks
from paceline.records.figures import SECONDS

MOST_SENTENCES = 120
"""more sentences are left out in the middle; provenance: ours, 3 ranks and 5 steps give at most 100"""
SHOWN_AT_START = 40
"""sentences before those that are left out"""


def story(violation: Violation) -> Story:
    """Runs the case of a violation again and describes it.

    Args:
        violation: the violated guarantee, with the case that shows it.

    >>> from paceline.algorithms import find
    >>> case = Case(method=find("async-sgd")(), nodes=(1,), steps=1)
    >>> told = story(Violation(guarantee="example", words="nothing is wrong", case=case))
    >>> for sentence in told.sentences[:3]:
    ...     print(sentence.number, sentence.subject, sentence.words)
    1 rank 0 (worker), step 0 computes a gradient at version 0 and sends Push to rank 1
    2 rank 1 (server), step 0 receives Push from rank 0, sent in 1
    3 rank 1 (server), step 0 applies update 0 with rank 0's gradient of step 0 from version 0 (staleness 0)
    """
    return story_of(violation, *recorded(violation.case))


def story_of(violation: Violation, outcome: Outcome, record: OperationRecord) -> Story:
    """Describes a run of the case of a violation.

    Args:
        violation: the violated guarantee.
        outcome: the run.
        record: its operations.
    """
    values = differing_values(violation.guarantee, outcome, record)
    timed, tells_ends = violation.case.times is not None, bool(violation.case.stops or outcome.error)
    drafting = Drafting(
        record, outcome.job, Focus(values.element, values.update, values.digits), timed=timed, tells_ends=tells_ends
    )
    drafts = drafting.all(outcome.error)
    decisive = next((at for at, draft in enumerate(drafts) if draft.decisive), len(drafts) - 1)
    sentences = numbered(drafts[: decisive + 1])
    unread = tuple(
        Difference(what=f"message {name} of rank {source} to rank {to}", values=(("received", "never"),))
        for source, to, _, name in drafting.mail.unread()
        if "message" in violation.guarantee
    )
    shown, left_out = _shortened(sentences)
    return Story(
        method=violation.case.method.name,
        guarantee=violation.guarantee,
        words=violation.words,
        setting=_setting(violation.case),
        ranks=tuple((int(me.rank), me.role) for me in outcome.job.team),
        sentences=shown,
        left_out=left_out,
        left_out_after=SHOWN_AT_START if left_out else 0,
        differences=(*values.differences, *unread),
    )


def recorded(case: Case) -> tuple[Outcome, OperationRecord]:
    """Runs a case and records the operations of its programs."""
    record = OperationRecord()

    def read_clock(run: object) -> None:
        environment = run.env  # type: ignore[attr-defined]
        record.clock = lambda: float(environment.now)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's program; they were shown when the violation was found
        outcome = performed(dataclasses.replace(case, method=record.of(case.method)), simulation=read_clock)
    if isinstance(outcome.error, BdbQuit):  # the user has left the debugger
        raise outcome.error
    return dataclasses.replace(outcome, case=case, job=case.job()), record


def _shortened(sentences: tuple[Sentence, ...]) -> tuple[tuple[Sentence, ...], int]:
    """Leaves out sentences in the middle of a long story; returns the others and how many are missing."""
    if len(sentences) <= MOST_SENTENCES:
        return sentences, 0
    at_end = MOST_SENTENCES - SHOWN_AT_START
    return (*sentences[:SHOWN_AT_START], *sentences[-at_end:]), len(sentences) - MOST_SENTENCES


def _setting(case: Case) -> str:
    """Describes the ranks, steps and interpreter of a case."""
    workers = f"{case.workers} worker{'s' * (case.workers != 1)}"
    if len(case.nodes) > 1 and case.workers > 1:
        workers += f" on nodes of {', '.join(map(str, case.nodes))}"
    server = " and a server" if case.method.has_server else ""
    steps = f"{case.steps} step{'s' * (case.steps != 1)}"
    batches = f"batches {', '.join(map(str, case.batch_of_each))}" if case.batches else f"batch {case.batch}"
    words = f"{workers}{server}, {steps} of {batches}, seed {case.seed}"
    if case.times is None:
        words += ", in any order"
    else:
        compute = ", ".join(SECONDS.text(seconds, DIGITS) for seconds in case.times.compute_s)
        latency = SECONDS.with_symbol(case.times.latency_s, DIGITS)
        words += f", simulated: gradients of {compute} s, latency {latency}"
    if not case.gradients:
        words += ", all gradients 0"
    if case.stops:
        words += f", stopped and entered again at step {', '.join(map(str, case.stops))}"
    if case.deaths:
        words += "".join(f", rank {rank} dies at move {move}" for rank, move in case.deaths)
    hyper = [
        f"{field.name}={getattr(case.method, field.name)!r}"
        for field in dataclasses.fields(case.method)
        if getattr(case.method, field.name) != field.default and field.default is not dataclasses.MISSING
    ]
    return f"{words}{'; ' if hyper else ''}{', '.join(hyper)}."


class Drafting:
    """Drafts the sentences of one run.

    Args:
        record: the operations of the run.
        job: its job.
        focus: the element of the weights to follow.
        timed: whether the run has a clock.
        tells_ends: whether the ends of programs are sentences, as they matter in a deadlock or a run in parts.
    """

    def __init__(self, record: OperationRecord, job: Job, focus: Focus, *, timed: bool, tells_ends: bool) -> None:
        self.record, self.job, self.focus, self.timed, self.tells_ends = record, job, focus, timed, tells_ends
        self.drafts: list[Draft] = []
        self.mail, self._entries = UnreadMail(), Entries()
        self._logs = {me.rank: UpdateLog(job.method.staleness_kind, job.workers) for me in job.team}
        self._holders: dict[tuple[Any, str], Rank] = {}
        self._entered: defaultdict[Rank, int] = defaultdict(int)
        self._mismatch = False
        self._failures: list[BaseException] = []
        self._finished_starts: set[RecordedOperation | None] = set()
        self._told: dict[Rank, str] = {}
        """the value of the element that was said last, for each rank"""

    def all(self, error: Exception | None) -> list[Draft]:
        """Drafts all sentences.

        Args:
            error: what ended the run, if it did not end normally.
        """
        for moment in self.record.moments:
            self._moment(moment)
        if isinstance(error, DeadlockError):
            self._waits()
        elif error is not None and error not in self._failures and not self._mismatch:
            words = f"ends with {type(error).__name__}: {error}"
            self.drafts.append(Draft((), words, "failure", "", 0, "", None))
        return self.drafts

    def _moment(self, moment: Moment) -> None:
        request = moment.request
        match moment.kind:
            case "requested":
                assert request is not None, "it is one of an operation"
                self._requested(moment, request.op)
            case "answered":
                assert request is not None, "it is one of an operation"
                self._answered(moment, request)
            case "raised":
                assert request is not None and request.failure is not None, "it is one of an operation"
                self._failed(moment, request.failure, f"gets no answer to {wording.operation(request.op)} but")
            case "failed":
                assert moment.failure is not None, "it has one"
                self._failed(moment, moment.failure, "raises")
            case "entered":
                self._entered[moment.me.rank] += 1
                if self._entered[moment.me.rank] > 1:
                    self._say(
                        moment, f"is entered again from its state after {_steps(moment.step)}", "state", "entered"
                    )
            case "ended":
                if not moment.lane and self.tells_ends:
                    self._say(moment, "ends", "state", "ends")

    def _failed(self, moment: Moment, failure: BaseException, verb: str) -> None:
        """Says once that an exception has occurred; of mismatched collectives there is a sentence already."""
        if failure in self._failures or (self._mismatch and isinstance(failure, MismatchedCollectives)):
            return
        self._failures.append(failure)
        kind = type(failure).__name__
        self._say(moment, f"{verb} {kind}: {failure}", "failure", f"✗ {kind}")

    def _say(self, moment: Moment, words: str, act: Act, label: str, to: tuple[int, ...] = ()) -> Draft:
        draft = Draft.of(moment, words, act, timed=self.timed, label=label, to=to)
        self.drafts.append(draft)
        return draft

    # --- requests -----------------------------------------------------------------------------------------------

    def _requested(self, moment: Moment, op: Op[Any]) -> None:
        started = isinstance(op, Start)
        what: Any = op.what if isinstance(op, Start) else op
        if isinstance(what, COLLECTIVES):
            self._enter(moment, what, started=started)
        elif isinstance(what, Send) and self.timed:
            self._send(moment, what, started=started)
        elif started and not isinstance(what, Send):
            self._say(moment, f"starts {wording.operation(what)}", "start", _short(what))
        elif isinstance(op, NextStep) and moment.request is not None:
            self._between_steps(moment, moment.request)

    def _between_steps(self, moment: Moment, request: RecordedOperation) -> None:
        step = getattr(getattr(request.op, "state", None), "step", 0)
        words = self.focus.words(request)
        if step and words and self._told.get(moment.me.rank) != words:  # else the update has just said so
            self._told[moment.me.rank] = words
            self._say(moment, f"has completed {_steps(step)}: {words}", "state", self.focus.label(request))

    def _enter(self, moment: Moment, op: Any, *, started: bool) -> None:
        rank = moment.me.rank
        if rank not in op.group:
            return
        verb, name = "starts" if started else "enters", wording.collective(op)
        last, other = self._entries.enter(rank, op, moment.lane)
        if other is not None:
            self._mismatch = True
            words = f"{verb} {signature(op)}, where rank {other[0]} entered {other[1]}: they do not match"
            self._say(moment, words, "failure", f"✗ {_short(op)}")
            return
        if not last:
            if started:
                self._say(moment, f"{verb} {name}", "start", _short(op))
            return
        if len(op.group) == 1:
            return
        others = [other for other in op.group if other != rank]
        words = f"{verb} {name}, in which {wording.ranks(others)} already wait{'s' * (len(others) == 1)}: it completes"
        draft = self._say(moment, words, "collective", _short(op))
        draft.ranks = (rank, *others)

    def _send(self, moment: Moment, op: Send, *, started: bool) -> None:
        name = wording.message(op.value, op.tag)
        verb = "starts to send" if started else "sends"
        label = wording.message_label(op.value, op.tag)
        draft = self._say(moment, f"{verb} {name} to rank {op.to}", "send", label, (op.to,))
        self.mail.send(moment.me.rank, op, draft, name)

    # --- answers ------------------------------------------------------------------------------------------------

    def _answered(self, moment: Moment, request: RecordedOperation) -> None:
        op, answer = request.op, request.answer
        match op:
            case Send() | Start(Send()) if not self.timed:
                what: Any = op.what if isinstance(op, Start) else op
                self._send(moment, what, started=isinstance(op, Start))
            case Receive():
                self._receive(moment, op, answer)
            case Gradient(weights):
                words = f"computes a gradient{wording.at_version(weights)}"
                self._say(moment, words, "compute", f"gradient{_version(weights)}")
            case LayerGradients(weights):
                words = f"starts a gradient by layers{wording.at_version(weights)}"
                self._say(moment, words, "compute", f"gradient{_version(weights)}")
            case RecordUpdate():
                self._update(moment, request, op)
            case Wait(handle):
                self._finished(moment, handle, answer)
            case WaitFor(handles):
                self._some_finished(moment, op, handles, answer)
            case Cancel(handle):
                how = "cancels" if answer else "is too late to cancel"
                self._say(moment, f"{how} {self._name(handle)}", "start", "cancel")
            case Access(cell, action):
                verb = {"read": "reads", "add": "adds to", "swap": "replaces"}[action]
                self._say(moment, f"{verb} cell {cell.name!r}", "memory", f"{action} {cell.name}")
            case Lock(cell):
                self._holders[moment.me.node, cell.name] = moment.me.rank
                self._say(moment, f"locks cell {cell.name!r}", "memory", f"lock {cell.name}")
            case Unlock(cell):
                self._holders.pop((moment.me.node, cell.name), None)
                self._say(moment, f"unlocks cell {cell.name!r}", "memory", f"unlock {cell.name}")
            case _:
                return

    def _receive(self, moment: Moment, op: Receive, answer: Message) -> None:
        name = wording.message(answer.value, answer.tag)
        label = wording.message_label(answer.value, answer.tag)
        draft = self._say(moment, f"receives {name} from rank {answer.source}", "receive", label)
        draft.sent = self.mail.receive(moment.me.rank, op, answer)

    def _finished(self, moment: Moment, handle: Handle[Any], answer: Any, note: str = "") -> None:
        """Says once that a rank has the answer of what it started."""
        start = self.record.started.get(handle)
        if start is None or isinstance(start.op, Start):
            if start in self._finished_starts:
                return
            self._finished_starts.add(start)
        what: Any = start.op.what if start is not None and isinstance(start.op, Start) else None
        if isinstance(what, Receive) and isinstance(answer, Message):
            self._receive(moment, what, answer)
        elif not isinstance(what, Send):
            self._say(
                moment,
                f"continues with the result of {self._name(handle)}{note}",
                "result",
                f"result of {_short(what)}",
            )

    def _name(self, handle: Handle[Any]) -> str:
        """Names what a handle represents, without the line that started it."""
        return wording.handle(handle, self.record.started).partition(", started at ")[0]

    def _some_finished(self, moment: Moment, op: WaitFor[Any], handles: Any, answer: Any) -> None:
        note = "" if op.need == "all" else f" ({len(answer)} of {len(handles)} are done)"
        for index, item in answer:
            self._finished(moment, handles[index], item, note)

    def _update(self, moment: Moment, request: RecordedOperation, op: RecordUpdate) -> None:
        booked = self._logs[moment.me.rank].book(op, 0.0)
        version = op.weights.version
        if op.layer is not None:
            inputs = " and ".join(_gradient(moment, row.rank, row.step) for row in booked.layers)
            self._say(moment, f"updates layer {op.layer!r} with {inputs}", "update", f"update {op.layer}")
            return
        verb = f"applies update {version}" if op.advance else f"takes a local step at version {version}"
        inputs = "; ".join(_input(moment, row) for row in booked.updates)
        words = f"{verb} with {inputs}" if inputs else f"{verb} without a gradient"
        if tail := self.focus.words(request):
            self._told[moment.me.rank] = tail
            words += f": {tail}"
        label = f"update {version}" if op.advance else "local step"
        if value := self.focus.label(request):
            label += f", {value}"
        draft = self._say(moment, words, "update", label)
        if any(map(self.focus.decides, booked.updates)):
            draft.decisive, draft.label = True, f"✗ {label}"
            draft.words += ", which violates the guarantee"

    # --- the end ------------------------------------------------------------------------------------------------

    def _waits(self) -> None:
        """Says what every lane waits for at the end."""
        for (_, lane), request in sorted(self.record.open.items()):
            missing: list[Rank] = []
            holder = ""
            if isinstance(request.op, COLLECTIVES):
                missing = self._entries.missing(request, request.op)
            elif isinstance(request.op, Lock):
                owner = self._holders.get((request.me.node, request.op.cell.name))
                holder = "" if owner is None else f", which rank {owner} holds"
            words = wording.awaited(request, self.record.started, missing, holder)
            moment = Moment("requested", request.me, lane, request.step, request.place, self._last_s(), request)
            self._say(moment, f"waits forever for {words}", "wait", "✗ waits")

    def _last_s(self) -> float:
        return max((moment.time_s for moment in self.record.moments), default=0.0)


def _gradient(moment: Moment, rank: Rank, step: int) -> str:
    return ("its" if rank == moment.me.rank else f"rank {rank}'s") + f" gradient of step {step}"


def _input(moment: Moment, row: Update) -> str:
    return f"{_gradient(moment, row.rank, row.step)} from version {row.version_read} (staleness {row.staleness})"


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def _version(weights: Any) -> str:
    version = getattr(weights, "version", None)
    return "" if version is None else f" v{version}"


def _short(what: Any) -> str:
    """Names an operation for a diagram."""
    if isinstance(what, COLLECTIVES):
        return f"{type(what).__name__} {what.key}"
    return "layers" if what is None else getattr(what, "name", type(what).__name__)


@dataclass(slots=True, eq=False)
class Draft:
    """A sentence whose number is not known yet; fields as in `Sentence`."""

    ranks: tuple[int, ...]
    words: str
    act: Act
    role: str
    step: int
    place: str
    time_s: float | None
    lane: str = ""
    label: str = ""
    to: tuple[int, ...] = ()
    sent: tuple[int, Draft] | None = None
    """of a receive: the sender, and the draft of its send"""
    before: tuple[str, ...] = ()
    """the words of the drafts that have been merged into this one"""
    decisive: bool = False
    """whether the action violates the guarantee, so that later ones do not matter"""
    part_of: Draft | None = None
    """the draft that it has been merged into"""

    @staticmethod
    def of(moment: Moment, words: str, act: Act, *, timed: bool, label: str = "", to: tuple[int, ...] = ()) -> Draft:
        """Returns the draft about what a rank did at a moment."""
        me = moment.me
        time_s = moment.time_s if timed else None
        return Draft((me.rank,), words, act, me.role, moment.step, moment.place, time_s, moment.lane, label, to)

    @property
    def whole(self) -> Draft:
        """The draft that contains this one after merging."""
        return self if self.part_of is None else self.part_of.whole


def numbered(drafts: Sequence[Draft]) -> tuple[Sentence, ...]:
    """Merges drafts that belong together, and numbers the sentences."""
    kept = merged(drafts)
    numbers = {draft: number for number, draft in enumerate(kept, start=1)}
    return tuple(_sentence(draft, numbers) for draft in kept)


def _sentence(draft: Draft, numbers: dict[Draft, int]) -> Sentence:
    words, sent_in = draft.words, None
    if draft.before:
        words = f"{', '.join(draft.before)} and {words}"
    if draft.sent is not None:
        source, send = draft.sent
        sent_in = (source, numbers[send.whole])
        words += f", sent in {sent_in[1]}"
    return Sentence(
        number=numbers[draft],
        ranks=draft.ranks,
        words=words,
        act=draft.act,
        role=draft.role,
        step=draft.step,
        place=draft.place,
        time_s=draft.time_s,
        label=draft.label,
        to=draft.to,
        sent_in=sent_in,
    )


def merged(drafts: Sequence[Draft]) -> list[Draft]:
    """Merges drafts of one rank that follow each other.

    These are equal messages of one line to several ranks, several started operations, and a gradient or a result with
    the action that follows.
    """
    kept: list[Draft] = []
    for draft in drafts:
        last = kept[-1] if kept else None
        if last is None or not _one_place(last, draft):
            kept.append(draft)
        elif last.act == "send" == draft.act and (last.label, last.place) == (draft.label, draft.place):
            last.to += draft.to
            last.words = f"{last.words.rpartition(' to ')[0]} to {ranks(last.to)}"
            draft.part_of = last
        elif (last.act, draft.act) in TOGETHER:
            draft.before = (*last.before, last.words)
            if last.act == draft.act == "start":
                draft.label = f"{last.label}, {draft.label}"
            last.part_of = draft
            kept[-1] = draft
        else:
            kept.append(draft)
    return kept


PRELIMINARY, NEXT = ("compute", "result"), ("send", "update", "start", "memory", "state")
TOGETHER = {*((before, other) for before in PRELIMINARY for other in NEXT), ("start", "start"), ("result", "result")}
"""the actions that one sentence describes if they follow each other"""


def _one_place(draft: Draft, other: Draft) -> bool:
    """Whether two drafts are about the same rank, lane, step and time."""
    return (draft.ranks, draft.lane, draft.step, draft.time_s) == (other.ranks, other.lane, other.step, other.time_s)


@dataclass(slots=True)
class UnreadMail:
    """Messages that have been sent and not received; first in, first out for each pair of ranks and tag."""

    waiting: defaultdict[tuple[Rank, Rank, str], deque[tuple[Draft, str]]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def send(self, source: Rank, op: Send, draft: Draft, name: str) -> None:
        """Adds a message.

        Args:
            source: the sender.
            op: its operation.
            draft: the sentence about it.
            name: what is sent.
        """
        self.waiting[source, op.to, op.tag].append((draft, name))

    def receive(self, rank: Rank, op: Receive, message: Message) -> tuple[int, Draft] | None:
        """Removes a message; returns its sender and the sentence about its sending, if there is one.

        Args:
            rank: the receiver.
            op: its operation.
            message: the answer.
        """
        queue = self.waiting[message.source, rank, op.tag]
        return (message.source, queue.popleft()[0]) if queue else None

    def unread(self) -> list[tuple[Rank, Rank, Draft, str]]:
        """Lists sender, receiver, sentence and name of every message that has not been received."""
        return [(source, to, draft, name) for (source, to, _), queue in self.waiting.items() for draft, name in queue]


@dataclass(slots=True)
class Entries:
    """The members that have entered each collective, in the order of each group and stream."""

    rooms: defaultdict[tuple[Group, str], list[dict[Rank, str]]] = field(default_factory=lambda: defaultdict(list))
    counts: defaultdict[tuple[Group, str, Rank], int] = field(default_factory=lambda: defaultdict(int))

    def enter(self, rank: Rank, op: Collective, lane: str) -> tuple[bool, tuple[Rank, str] | None]:
        """Notes that a rank enters its next collective of a group.

        Args:
            rank: the rank.
            op: the collective.
            lane: the lane whose order of collectives counts.

        Returns:
            Whether it is the last member; and a member that has entered another collective, with its name, if any.
        """
        rooms, position = self.rooms[op.group, lane], self.counts[op.group, lane, rank]
        self.counts[op.group, lane, rank] += 1
        if position == len(rooms):
            rooms.append({})
        room, own = rooms[position], signature(op)
        other = next(((member, name) for member, name in room.items() if name != own), None)
        room[rank] = own
        return len(room) == len(op.group), other

    def missing(self, request: RecordedOperation, op: Collective) -> list[Rank]:
        """Lists the members that have not entered the collective that a rank entered last.

        Args:
            request: the rank and its lane.
            op: the collective.
        """
        position = self.counts[op.group, request.lane, request.me.rank] - 1
        rooms = self.rooms[op.group, request.lane]
        return [rank for rank in op.group if not 0 <= position < len(rooms) or rank not in rooms[position]]
