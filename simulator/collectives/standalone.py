"""Carrying out a play alone, from nought to its end, without SimPy. The same as `performance`, on tables of numbers.

Rules of this file:

* All is indexing, arithmetic and loops, as in `fluid`: the same source runs on lists, as it stands, and as machine
  code.
* What happens at one instant is solved once, afterwards. Instants that only rounding tells apart are one.
* Who has nothing left to wait for goes on after all that ends at once has ended; so nothing calls itself.
"""

from __future__ import annotations

from paceline.simulator.collectives.pattern_tables import Evaluation
from paceline.simulator.flows.indexed_heap import least, put, take
from paceline.simulator.flows.max_min import enter, leave, solve, together
from paceline.simulator.flows.network_state import NONE, Net


def perform(score: Evaluation, net: Net) -> None:
    """Everything, from the entries in the queue of events on."""
    now = 0.0
    while score.events.size[0] > 0 or net.ends.size[0] > 0:
        soonest = min(least(score.events), least(net.ends))
        latest = together(soonest, now)
        now = soonest
        while least(net.ends) <= latest:
            flow = net.ends.order[0]
            leave(net, flow, now)
            pass_on(score, score.carries[flow], now)
        while least(score.events) <= latest:
            item = score.events.order[0]
            take(score.events, item)
            happen(score, item, now)
            while score.size[0] > 0:
                score.size[0] -= 1
                go_on(score, net, score.ready[score.size[0]], now)
        while score.size[0] > 0:
            score.size[0] -= 1
            go_on(score, net, score.ready[score.size[0]], now)
        solve(net, now)


def happen(score: Evaluation, item: int, now: float) -> None:
    """What the queue says is due."""
    count = len(score.messages)
    if item < count:
        arrive(score, item, now)
    elif item < 2 * count:
        end_one(score, score.messages[item - count].target)
    elif item < 3 * count:
        pass_on(score, item - 2 * count, now)
    else:
        score.ready[score.size[0]] = item - 3 * count
        score.size[0] += 1


def go_on(score: Evaluation, net: Net, number: int, now: float) -> None:
    """A player who is done with a repetition of a round comes to the next, and to the one after it if that is over."""
    player = score.players[number]
    going = True
    while going and player.pending == 0:
        if player.turn != NONE and player.repetition + 1 < player.times:
            player.repetition += 1
        elif player.next < player.last:
            player.turn, player.repetition = player.next, 0
            player.times = score.turns[player.turn].times
            player.next += 1
        else:
            player.turn, player.finish_s, going = NONE, now, False
        if going:
            come(score, net, number, now)


def come(score: Evaluation, net: Net, number: int, now: float) -> None:
    """A player is ready for a round: those of its messages begin whose other end is, too."""
    player = score.players[number]
    turn = score.turns[player.turn]
    player.pending = turn.count
    score.entered[3 * player.turn + player.repetition % 3] = now
    for at in range(turn.first, turn.first + turn.count):
        index = score.parts[at]
        message = score.messages[index]
        begins = False
        if not turn.buffered:
            begins = message.waiting == 1
            message.waiting = 1 - message.waiting
        elif message.source == number:
            begins = True
        elif message.arrived > player.repetition:
            if message.adding_s > 0.0:
                put(score.events, len(score.messages) + index, now + message.adding_s)
            else:
                player.pending -= 1
        if begins:
            if message.flow == NONE or message.nbytes == 0.0:
                put(score.events, 2 * len(score.messages) + index, now)
            else:
                net.flows[message.flow].remaining = message.nbytes
                score.carries[message.flow] = index
                enter(net, message.flow, now)


def pass_on(score: Evaluation, index: int, now: float) -> None:
    """A message's bytes are through its ports: it will arrive."""
    message = score.messages[index]
    due = now + message.latency_s
    score.dues[message.due + message.sent % message.ahead] = due
    message.sent += 1
    if message.sent == message.arrived + 1:
        put(score.events, index, due)
    if not score.turns[score.players[message.source].turn].blocking:
        end_one(score, message.source)


def arrive(score: Evaluation, index: int, now: float) -> None:
    """A message is there: its receiver takes it if he has come to its round, and to this repetition."""
    message = score.messages[index]
    message.arrived += 1
    if message.sent > message.arrived:
        put(score.events, index, score.dues[message.due + message.arrived % message.ahead])
    sender, receiver = score.players[message.source], score.players[message.target]
    if sender.turn != NONE:
        turn = score.turns[sender.turn]
        if turn.round == message.round and turn.blocking:
            end_one(score, message.source)
    if receiver.turn != NONE:
        turn = score.turns[receiver.turn]
        if turn.round == message.round and (not turn.buffered or receiver.repetition == message.arrived - 1):
            if message.adding_s > 0.0:
                put(score.events, len(score.messages) + index, now + message.adding_s)
            else:
                end_one(score, message.target)


def end_one(score: Evaluation, number: int) -> None:
    """One of a player's messages is over for it; after the last, it goes on."""
    player = score.players[number]
    player.pending -= 1
    if player.pending == 0:
        score.ready[score.size[0]] = number
        score.size[0] += 1
