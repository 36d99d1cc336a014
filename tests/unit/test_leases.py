"""Leases: all hosts stop at the same step, and shared counts never exceed the total."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch.distributed as dist

from paceline.algorithms.core.values import Rank
from paceline.backend.multihost import host_sync
from paceline.backend.multihost.host_sync import Lease, Shares
from paceline.backend.status.status_board import Bound, StatusBoard

BOTH = [Rank(0), Rank(1)]
NEVER = 2**63 - 1


def boards(folder: Path, kind: type[Lease | Shares], limit: int) -> list[StatusBoard]:
    """Two hosts with one weights' owner each, and the store between them."""
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch re-exports it without saying so
    made = []
    for host in range(2):
        (folder / str(host)).mkdir()
        grants = Lease(store, limit) if kind is Lease else Shares(store, limit, 2)
        made.append(
            StatusBoard(2, BOTH, limit=limit, together=kind is Shares, folder=folder / str(host), grants=grants)
        )
    return made


def taken(board: StatusBoard, rank: Rank, most: int) -> int:
    """Returns the steps that an owner is granted, one after the other."""
    return next((step for step in range(most) if not board.grant(rank, step)), most)


def test_everybody_stops_at_the_same_step(tmp_path: Path) -> None:
    """One host is far ahead when the other one ends the run: all continue up to the furthest lease."""
    ahead, behind = boards(tmp_path, Lease, NEVER)
    assert taken(ahead, Rank(0), 37) == 37
    assert taken(behind, Rank(1), 5) == 5
    behind.stop("accuracy")
    ends = [taken(ahead, Rank(0), 10_000), taken(behind, Rank(1), 10_000)]
    assert ends[0] == ends[1] and 37 <= ends[0] <= 37 + host_sync.MOST
    assert (ahead.stop_reason, behind.stop_reason) == ("accuracy", "accuracy")


def test_the_lease_is_closed_at_its_end_and_not_at_the_step_of_the_host_that_ends_the_run() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    ahead, behind = Lease(store, NEVER), Lease(store, NEVER)
    granted = [ahead.extend(step).steps for step in range(5)][-1]
    assert behind.close("accuracy", 2) == Bound(granted, "accuracy")
    assert ahead.extend(granted) == Bound(granted, "accuracy")


def test_the_first_reason_stands(tmp_path: Path) -> None:
    one, other = boards(tmp_path, Lease, NEVER)
    assert one.grant(Rank(0), 0)
    one.stop("seconds")
    other.stop("loss")
    assert (one.stop_reason, other.stop_reason) == ("seconds", "seconds")
    assert taken(one, Rank(0), 100) == taken(other, Rank(1), 100)


@pytest.mark.parametrize("kind", [Lease, Shares])
def test_the_budget_is_never_overdrawn(tmp_path: Path, kind: type[Lease | Shares]) -> None:
    """Two hosts ask at once; steps of all workers end at the limit for each, others for both together."""
    made = boards(tmp_path, kind, 200)
    found = [0, 0]

    def take(host: int) -> None:
        found[host] = taken(made[host], Rank(host), 1000)

    threads = [threading.Thread(target=take, args=(host,)) for host in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200, 200] if kind is Lease else sum(found) == 200
    made[0].stop("loss")
    assert made[0].stop_reason is None, "the run had ended anyway"


def test_a_host_gets_less_and_less_towards_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast it is: steps that it takes in advance are not available to other hosts."""
    monkeypatch.setattr(host_sync, "AHEAD_S", 1e9)
    shares = Shares(dist.HashStore(), 100, 2)  # type: ignore[attr-defined]
    given = [steps for _ in range(100) if (steps := shares.extend(0).steps)]
    assert max(given) <= 100 // 8 and given[-1] == 1 and sum(given) == 100


def test_shares_that_are_closed_give_no_more() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    one, other = Shares(store, 100, 2), Shares(store, 100, 2)
    assert other.extend(0).steps > 0
    assert one.close("loss", 7) == Bound(7, "loss")
    assert other.extend(3) == Bound(3, "loss")
