"""Two runs on one machine have nothing in common."""

from __future__ import annotations

import pytest

from robustrl_operator.local import network
from robustrl_operator.local.network import NoNetwork, claimed


def test_two_runs_at_once_have_different_addresses_and_the_next_one_those_of_who_has_ended() -> None:
    with claimed() as first:
        with claimed() as second:
            assert first != second
        with claimed() as third:
            assert third == second


def test_too_many_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with claimed() as free:
        number = int(free.removeprefix("127."))
        monkeypatch.setattr(network, "FIRST", number)
        monkeypatch.setattr(network, "LAST", number)
        with pytest.raises(NoNetwork, match="1 jobs run on this machine"), claimed():
            pass
