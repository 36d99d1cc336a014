"""Indexed binary heaps: the position of each item is stored, so that its key can change.

The same source runs as plain Python on lists and, compiled, on arrays; the rules of `max_min` apply. In all functions,
`item` is the number of an item and `at` a position in `Queue.order`.
"""

from __future__ import annotations

from paceline.simulator.flows.network_state import NONE, Queue


def put(queue: Queue, item: int, key: float) -> None:
    """Inserts an item, or moves it to the position of its new key."""
    at = queue.place[item]
    if at < 0:
        at = queue.size[0]
        queue.size[0] += 1
    queue.key[item] = key
    sift_down(queue, item, sift_up(queue, item, at))


def take(queue: Queue, item: int) -> None:
    """Removes an item."""
    at = queue.place[item]
    queue.place[item] = NONE
    queue.size[0] -= 1
    last = queue.order[queue.size[0]]
    if last != item:
        sift_down(queue, last, sift_up(queue, last, at))


def least(queue: Queue) -> float:
    """Returns the smallest key; infinity if the heap is empty."""
    return queue.key[queue.order[0]] if queue.size[0] > 0 else float("inf")


def sift_up(queue: Queue, item: int, at: int) -> int:
    """Returns the position, from `at` towards the root, where the item belongs; moves the items on the way down."""
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


def sift_down(queue: Queue, item: int, at: int) -> None:
    """Stores the item where its key is in order, from `at` towards the leaves."""
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
