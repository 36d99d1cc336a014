"""Binary heaps whose items know their places, so that a key can change: who is next in the network engine.

Rules of this file: those of `max_min`. The same source runs on lists, as it stands, and as machine code on arrays.
"""

from __future__ import annotations

from paceline.simulator.flows.network_state import NONE, Queue


def put(queue: Queue, item: int, key: float) -> None:
    """Takes the item in, or moves it to its new place."""
    at = queue.place[item]
    if at < 0:
        at = queue.size[0]
        queue.size[0] += 1
    queue.key[item] = key
    sink(queue, item, rise(queue, item, at))


def take(queue: Queue, item: int) -> None:
    """Takes the item out."""
    at = queue.place[item]
    queue.place[item] = NONE
    queue.size[0] -= 1
    last = queue.order[queue.size[0]]
    if last != item:
        sink(queue, last, rise(queue, last, at))


def least(queue: Queue) -> float:
    """The key of the first item; infinite where there is none."""
    return queue.key[queue.order[0]] if queue.size[0] > 0 else float("inf")


def rise(queue: Queue, item: int, at: int) -> int:
    """The place, from `at` towards the front, at which the item's key is in order; moves the others back."""
    key = queue.key[item]
    while at > 0:
        parent = (at - 1) // 2
        other = queue.order[parent]
        if queue.key[other] <= key:
            break
        queue.order[at] = other
        queue.place[other] = at
        at = parent
    return at


def sink(queue: Queue, item: int, at: int) -> None:
    """Puts the item where its key is in order, from `at` towards the back."""
    key, size = queue.key[item], queue.size[0]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and queue.key[queue.order[child + 1]] < queue.key[queue.order[child]]:
            child += 1
        other = queue.order[child]
        if key <= queue.key[other]:
            break
        queue.order[at] = other
        queue.place[other] = at
        at = child
    queue.order[at] = item
    queue.place[item] = at
