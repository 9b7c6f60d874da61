"""Ranks that meet: whoever is first waits for rank 0, and comes as soon as it does."""

from __future__ import annotations

import socket
import sys
import threading
import time
from datetime import timedelta
from subprocess import PIPE, Popen

import pytest

from robustrl.sdk import rendezvous
from robustrl.sdk.rendezvous import await_rank_0

LONG = timedelta(minutes=5)
RANK = """
import sys
from robustrl.sdk.rendezvous import meet
from robustrl.sdk.worker_config import WorkerConfig
import torch.distributed as dist
config = WorkerConfig(
    job="j", pod="p", epoch=2, rank=int(sys.argv[1]), world_size=2, local_rank=0, rendezvous=sys.argv[2],
    agent_socket="/a", memory_dir="/m", steps=9, seed=0, phase_lease_seconds=900.0,
)
print("here", flush=True)
sys.stdin.readline()
meet(config, "gloo")
votes = [None, None]
dist.all_gather_object(votes, config.rank)
print(votes, flush=True)
dist.destroy_process_group()
"""


def test_rank_0_is_waited_for_until_it_listens(unused_tcp_port: int) -> None:
    looks = threading.Event()
    waiting = threading.Thread(target=lambda: (await_rank_0(f"127.0.0.1:{unused_tcp_port}", LONG), looks.set()))
    waiting.start()
    assert not looks.wait(0.2), "nobody listens yet"
    with socket.create_server(("127.0.0.1", unused_tcp_port)):
        assert looks.wait(20)
    waiting.join()


def test_one_that_never_comes_is_left_to_the_store(unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(rendezvous.time, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(rendezvous.time, "sleep", slept.append)
    await_rank_0(f"127.0.0.1:{unused_tcp_port}", timedelta(seconds=60))
    assert 60 <= sum(slept) < 61
    assert max(slept) <= rendezvous.LOOK_SECONDS[1], "however long it takes"
    assert len(slept) < 1000, "and not too often"


def test_ranks_meet_whoever_is_first(unused_tcp_port: int) -> None:
    ranks = [
        Popen((sys.executable, "-c", RANK, str(rank), f"127.0.0.1:{unused_tcp_port}"), stdin=PIPE, stdout=PIPE)
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == b"here\n"
        for rank in reversed(ranks):  # rank 1 first: there is no rank 0 yet
            assert rank.stdin is not None
            rank.stdin.write(b"go\n")
            rank.stdin.flush()
            time.sleep(0.1)
        assert [rank.stdout.readline() for rank in ranks if rank.stdout] == [b"[0, 1]\n"] * 2
        assert [rank.wait(30) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
