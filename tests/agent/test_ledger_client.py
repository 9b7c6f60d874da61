"""The training process's calls to the managers: a refusal is final, an absence is waited out, a move is followed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from robustrl.sdk import ledger as module
from robustrl.sdk.ledger import Fenced, Ledger, LedgerRefused


class Managers(ThreadingHTTPServer):
    """Answers each call with the next of `answers`, the last one for ever."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answers: list[tuple[int, object]] = [(200, {"step": 1})]
        self.seen: list[tuple[str, object]] = []
        self.answer_seconds = 0.0
        self.raw = b""
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Managers

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body))
        time.sleep(self.server.answer_seconds)
        answers = self.server.answers
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        data = self.server.raw or (b"" if answer is None else json.dumps(answer).encode())
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def managers() -> Iterator[Managers]:
    server = Managers()
    yield server
    server.stop()


def test_every_call_carries_its_epoch(managers: Managers) -> None:
    ledger = Ledger(lambda: managers.url, epoch=3)
    ledger.join(0, 2, "p")
    ledger.commit(4, "b", {"0": "d"}, {})
    assert managers.seen[0][0] == "/v1/epochs/3/join"
    assert managers.seen[1][0] == "/v1/commits/4"
    assert managers.seen[1][1]["epoch"] == 3  # type: ignore[index]


def test_fenced_is_final(managers: Managers) -> None:
    managers.answers = [(409, {"error": "Fenced", "message": "epoch 4 rules"})]
    with pytest.raises(Fenced, match="epoch 4 rules"):
        Ledger(lambda: managers.url, 3).join(0, 2, "p")
    assert len(managers.seen) == 1


def test_refusal_is_final(managers: Managers) -> None:
    managers.answers = [(400, {"error": "WrongBatch", "message": "step 4 has another"})]
    with pytest.raises(LedgerRefused, match="WrongBatch: step 4 has another"):
        Ledger(lambda: managers.url, 3).commit(4, "b", {}, {})


def test_trouble_inside_the_managers_is_tried_again(managers: Managers) -> None:
    managers.answers = [(500, {}), (503, {}), (200, {"step": 5})]
    assert Ledger(lambda: managers.url, 3).join(0, 2, "p") == {"step": 5}
    assert len(managers.seen) == 3


@pytest.mark.parametrize(
    ("status", "answer"),
    [(404, None), (404, []), (405, {"detail": "Method Not Allowed"}), (200, "hello")],
)
def test_what_is_no_answer_of_the_managers_is_no_refusal(managers: Managers, status: int, answer: object) -> None:
    """Whoever has got the address of managers that are gone answers as he likes."""
    managers.answers = [(status, answer), (200, {"step": 5})]
    assert Ledger(lambda: managers.url, 3).join(0, 2, "p") == {"step": 5}


def test_trouble_inside_the_managers_is_told_in_their_words(
    managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    managers.raw = b"500 Internal Server Error\n\nServer got itself in trouble"
    managers.answers = [(500, None)]
    with pytest.raises(TimeoutError, match="status 500: 500 Internal Server Error"):
        Ledger(lambda: managers.url, 3).join(0, 2, "p")


def test_batch_that_is_not_full_is_asked_for_again(managers: Managers) -> None:
    managers.answers = [(200, None), (200, {"batch": "b"})]
    assert Ledger(lambda: managers.url, 3).batch(1, 0, 2) == {"batch": "b"}


def test_managers_away_and_back_elsewhere() -> None:
    """They come back at another address; the caller only sees that it took longer."""
    first = Managers()
    ledger, where = Ledger(lambda: where[0], 3), [first.url]
    ledger.join(0, 2, "p")
    first.stop()
    where[0] = ""
    answers: list[object] = []
    caller = threading.Thread(target=lambda: answers.append(ledger.join(0, 2, "p")), daemon=True)
    caller.start()
    caller.join(0.2)
    assert caller.is_alive()
    second = Managers()
    where[0] = second.url
    caller.join(10)
    assert answers == [{"step": 1}]
    second.stop()


def test_managers_on_a_dead_machine_are_not_waited_for_once_there_are_others(managers: Managers) -> None:
    """It answers nothing, and nobody closes its connections. A call alone would wait for `CALL_SECONDS`."""
    with socket.create_server(("127.0.0.1", 0)) as dead:
        where = [f"http://127.0.0.1:{dead.getsockname()[1]}"]
        answers: list[object] = []
        ledger = Ledger(lambda: where[0], 3)
        caller = threading.Thread(target=lambda: answers.append(ledger.batch(1, 0, 2)), daemon=True)
        caller.start()
        caller.join(2 * module.WATCH_SECONDS)
        assert caller.is_alive()
        where[0] = managers.url
        caller.join(10)
        assert answers == [{"step": 1}]


def test_a_batch_may_take_longer_to_fill_than_a_connection_to_be_made(
    managers: Managers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.05)
    managers.answer_seconds = 0.3
    assert Ledger(lambda: managers.url, 3).batch(1, 0, 2) == {"step": 1}
    assert len(managers.seen) == 1


def test_managers_that_stay_away_end_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.1)
    with pytest.raises(TimeoutError, match="have been away"):
        Ledger(lambda: "http://127.0.0.1:9", 3).join(0, 2, "p")
