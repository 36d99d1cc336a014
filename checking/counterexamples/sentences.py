"""Converts a record of operations to the sentences of a story.

Rules of this file:

* `NextStep`, `Load`, `Charge` and `Now` give no sentence: every sentence names the step, and times are in the others.
* Without a clock an operation happens when it is answered. A simulated message leaves when it is requested.
* A collective gives one sentence, when its last member enters it. A member that waits is named at the end, if the run
  ends in a deadlock.
"""

from __future__ import annotations

from collections import defaultdict
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
from paceline.algorithms.core.values import Message, Rank
from paceline.algorithms.runtime.collective_matching import COLLECTIVES, signature
from paceline.algorithms.runtime.update_log import Update, UpdateLog
from paceline.checking.counterexamples import wording
from paceline.checking.counterexamples.drafts import Draft, Entries, Mail
from paceline.checking.counterexamples.focus import Focus
from paceline.checking.counterexamples.recording import Moment, Record, Request
from paceline.checking.counterexamples.story_model import Act


class Drafting:
    """Drafts the sentences of one run.

    Args:
        record: the operations of the run.
        job: its job.
        focus: the element of the weights to follow.
        timed: whether the run has a clock.
        tells_ends: whether the ends of programs are sentences, as they matter in a deadlock or a run in parts.
    """

    def __init__(self, record: Record, job: Job, focus: Focus, *, timed: bool, tells_ends: bool) -> None:
        self.record, self.job, self.focus, self.timed, self.tells_ends = record, job, focus, timed, tells_ends
        self.drafts: list[Draft] = []
        self.mail, self._entries = Mail(), Entries()
        self._logs = {me.rank: UpdateLog(job.method.staleness_kind, job.workers) for me in job.team}
        self._holders: dict[tuple[Any, str], Rank] = {}
        self._entered: defaultdict[Rank, int] = defaultdict(int)
        self._mismatch = False
        self._failures: list[BaseException] = []
        self._finished_starts: set[Request | None] = set()
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

    def _between_steps(self, moment: Moment, request: Request) -> None:
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

    def _answered(self, moment: Moment, request: Request) -> None:
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
        for index, one in answer:
            self._finished(moment, handles[index], one, note)

    def _update(self, moment: Moment, request: Request, op: RecordUpdate) -> None:
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
