"""Which operator the Service finds: the one that leads, whatever the API server answers in between."""

from __future__ import annotations

import pytest
from lightkube import ApiError, AsyncClient
from tests.operator.kubernetes.fake_api import FakeApi

from robustrl_operator.kubernetes.leader_label import LABEL, stand_in_front

PODS = "/api/v1/namespaces/sys/pods"


@pytest.fixture
def api(empty_api: FakeApi) -> FakeApi:
    for name, labels in (("me", {}), ("before", {LABEL: "true"})):
        empty_api.put(f"{PODS}/{name}", {"kind": "Pod", "metadata": {"name": name, "labels": labels}})
    return empty_api


def in_front(api: FakeApi) -> list[str]:
    return [pod["metadata"]["name"] for pod in api.under(PODS) if (pod["metadata"].get("labels") or {}).get(LABEL)]


async def test_the_label_moves(api: FakeApi) -> None:
    await stand_in_front(AsyncClient(), "sys", "me")
    assert in_front(api) == ["me"]


async def test_a_label_that_is_not_set_is_no_success(api: FakeApi) -> None:
    """The agents would find nobody for the whole term, and every pod would be taken for silent."""
    api.refusing[f"{PODS}/me"] = 1
    with pytest.raises(ApiError):
        await stand_in_front(AsyncClient(), "sys", "me")
    await stand_in_front(AsyncClient(), "sys", "me")
    assert in_front(api) == ["me"]


async def test_a_label_that_stays_on_another_is_tried_again_and_keeps_no_leader_from_its_own(api: FakeApi) -> None:
    api.refusing[f"{PODS}/before"] = 1
    with pytest.raises(ApiError):
        await stand_in_front(AsyncClient(), "sys", "me")
    assert sorted(in_front(api)) == ["before", "me"]
    await stand_in_front(AsyncClient(), "sys", "me")
    assert in_front(api) == ["me"]
