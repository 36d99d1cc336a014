"""The state of a compiled run: arrays that the event loop reads and writes.

Numba passes a named tuple of arrays at once. Arrays have a fixed size; the event loop returns before one is full, and
`simulate` replaces it by a larger one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


class Count(IntEnum):
    """Positions in `State.counts`."""

    SEQUENCE = 0
    """events that were scheduled so far; the order of events of the same time"""
    HEAP = 1
    """events in the heap"""
    QUEUE_FIRST = 2
    QUEUE = 3
    """events at the present time that are not in the heap: position of the first, and their number"""
    FREE = 4
    """first unused message"""
    SPANS = 5
    UPDATES = 6
    """rows in the records"""
    RESUME = 7
    """the rank that goes on now; -1: the next event comes first"""
    LIMIT = 8
    """steps of the server until its budget is spent"""
    EVENTS = 9
    OPERATIONS = 10
    UPDATES_MADE = 11
    """updates so far, rows that were taken away included"""
    UNUSED = 12
    """number of unused messages"""
    CLASSES = 13
    """classes of flows"""
    FLOWS_BEGUN = 14
    GRADIENTS = 15
    """rows in the record of gradients"""
    BYTES_SENT = 16
    HEARD = 17
    """rows of messages that the server's program has not been shown"""
    SIZE = 18


class Second(IntEnum):
    """Positions in `State.seconds`."""

    NOW = 0
    LIMIT = 1
    """when the budget of seconds is spent"""
    END = 2
    """the latest end of a span"""
    SIZE = 3


class Exit(IntEnum):
    """Why the event loop returned."""

    DONE = 0
    """no events are left"""
    UNDERIVED = 1
    """a rank is at a node that has not been derived"""
    NEW_MESSAGE = 2
    """a rank received a message of a shape that its template does not have at this point"""
    STEP_TIMES = 3
    """a rank needs the times of further steps"""
    RECORDS = 4
    """the records are full"""
    MESSAGES = 5
    """all messages are in use"""
    SERVER = 6
    """the server's program, which runs outside, goes on, or `heard` is full"""
    STOP = 7
    """the server requests a step that its budget may not allow"""
    BAD_RECEIVER = 8
    """a rank sends to a rank that does not exist"""


class Kind(IntEnum):
    """The kind of a node, in its first column."""

    UNDERIVED = 0
    LOADS = 1
    COMPUTES = 2
    CHARGES = 3
    SENDS = 4
    RECEIVES = 5
    DECIDES = 6
    UPDATES = 7
    NEXT_STEPS = 8
    ENDS = 9
    OUTSIDE = 10
    """the server's program goes on outside"""


class What(IntEnum):
    """The kind of an event."""

    RANK = 0
    """a rank's own work is done"""
    TURN = 1
    """a rank that waits gets its message"""
    ARRIVAL = 2
    """a message arrives"""
    SENT = 3
    """the sender's processor has processed a message"""
    LATENCY = 4
    """the latency of a message is over"""
    PASSED = 5
    """a message without bytes has passed the ports"""
    KINDS = 8


class Phase(IntEnum):
    """What a rank has done of its node."""

    BEGINS = 0
    RESTED = 1
    """the time of a step outside all operations has passed"""
    ENDS = 2
    """its time has passed"""
    WAITS = 3
    """waits for a message"""
    HEARD = 4
    """has the message, and its time has passed"""
    BUSY = 5
    """a message is on its way, and the processor time of sending passes"""
    OVER = 6
    """the program has ended"""


class Row(IntEnum):
    """Columns of `State.ranks`."""

    NODE = 0
    PHASE = 1
    STEP = 2
    HELD = 3
    """the message that the rank is receiving"""
    INBOX_FIRST = 4
    INBOX_LAST = 5
    BASE = 6
    """where the registers of the rank begin"""
    SPARE = 7
    """where the rank has room for the integers of a state"""
    SIZE = 8


class Activity(IntEnum):
    """The activity of a span."""

    LOAD = 0
    COMPUTE = 1
    UPDATE = 2
    SEND = 3
    RECEIVE = 4


class Message(IntEnum):
    """Columns of `State.messages`."""

    SOURCE = 0
    TO = 1
    KIND = 2
    STEP = 3
    """the sender's step"""
    NEXT = 4
    """the next one in the inbox, or the next unused one"""
    BEHIND = 5
    """the next one of the same pair of ranks that has not been delivered"""
    ARRIVED = 6
    THROUGH = 7
    """whether it has passed the ports"""
    FOLLOWER = 8
    """the next one of its pair, which waits until it has passed the ports"""
    SIZE = 9


class State(NamedTuple):
    """All arrays; see the enumerations above for columns. R ranks, M messages, N nodes, K kinds of messages."""

    counts: Any
    seconds: Any
    # events
    heap_s: Any
    heap: Any
    """(., 2): order and what"""
    queue: Any
    """(., 2): order and what"""
    # ranks
    ranks: Any
    """(R, columns): see `Row`; one row is one line of a processor's cache"""
    begun_s: Any
    registers: Any
    # messages
    messages: Any
    sent_s: Any
    payload: Any
    pairs: Any
    """(2 W, 3): first and last message that has not been delivered, and the last that was sent, of each pair"""
    # templates
    nodes: Any
    operands: Any
    """(., 2): register or -1, and constant"""
    instructions: Any
    """(., 4): kind, target, source, number"""
    children: Any
    """(receives, K)"""
    heard: Any
    """(., 2): source and kind of the messages that a receive of a server's program outside of machine code kept"""
    # times
    load_s: Any
    rest_s: Any
    charge_s: Any
    """(charges, R)"""
    step_s: Any
    """(steps, W) the times of gradients, by the step modulo the number of rows"""
    step_until: Any
    """(W,) the first step whose time is not known"""
    message_counts: Any
    """(K, W) the number of messages so far"""
    message_s: Any
    """(K, W) the time of a message on a network that nothing shares"""
    send_s: Any
    receive_s: Any
    copy_s: Any
    """(K, W) processor times of programs, or (1, 1) if there are none"""
    # ports
    path_class: Any
    """(K, W) the class of a message's flow; -1: no bytes or no ports"""
    path_s: Any
    """(K, W, 3) the sender's processor, the latency, the receiver's processor"""
    sending_s: Any
    receiving_s: Any
    """(R,) until when each rank's processor is busy with messages"""
    class_port: Any
    class_limit: Any
    class_s: Any
    """(classes, 4): rate, bytes that a flow would have passed since 0, since when, when the next flow ends"""
    class_counts: Any
    """(classes, 2): number of flows, order of its event"""
    class_heap_s: Any
    """(classes, M): the value of the bytes at which a flow ends"""
    class_heap: Any
    """(classes, M, 2): the number of the flow, and its message"""
    port_rate: Any
    kind_bytes: Any
    kind_integers: Any
    """(K,) the bytes and the number of integers of a message"""
    # records
    kept: Any
    """(R,) whether the rank's spans are recorded"""
    spans: Any
    """(., 5): rank, activity, step, bytes, source"""
    spans_s: Any
    """(., 3): start, end, ready"""
    updates: Any
    """(., 5): rank, step, version read, version applied, samples"""
    updates_s: Any
    gradients: Any
    """(., 2): rank and step of each gradient, in the order of their ends; one row if they are not counted"""
    gradients_s: Any
    """(., 2): start and end"""
    activity_s: Any
    """(R, 5): seconds of loading, computing, updates, communication and waits"""
    ended_s: Any
    """(R,): the end of the last span"""
    span_counts: Any
    """(5,): number of spans by activity"""
