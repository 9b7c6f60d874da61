"""The API server's client: whatever goes wrong on the way is an OSError, which waits take for "not yet"."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robustrl_e2e.cluster import api, pki
from robustrl_e2e.cluster.api import Api
from robustrl_e2e.cluster.layout import Cluster


@pytest.fixture
def client(tmp_path: Path) -> Api:
    cluster = Cluster("x", 1)
    pki.make_certificates(tmp_path, cluster)
    text = pki.render_kubeconfig(cluster, pki.User("admin", "secret"), tmp_path / "ca.crt")
    (tmp_path / "kubeconfig").write_text(text)
    return Api(tmp_path / "kubeconfig")


def test_an_answer_that_is_cut_off_is_no_answer_yet(client: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: Any, **__: Any) -> None:
        raise http.client.IncompleteRead(json.dumps({}).encode(), 7)

    monkeypatch.setattr(api.urllib.request, "build_opener", lambda *_: SimpleNamespace(open=cut_off))
    assert "cut off" in client.missing_ready()
