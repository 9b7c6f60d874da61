"""Manifests that must be refused, shown to a real API server: schema and CEL rules are its to enforce."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from robustrl_e2e import cluster
from robustrl_e2e.cluster import Api, ClusterError, binaries

ROOT = Path(__file__).parents[1]
GOOD = yaml.safe_load((ROOT / "examples/sort4/rljob.yaml").read_text())
BAD = yaml.safe_load((ROOT / "tests/crds/bad_manifests.yaml").read_text())
NAMESPACE = "bad-manifests"
JOBS = f"/apis/robustrl.dev/v1alpha1/namespaces/{NAMESPACE}/rljobs"
DRY = "dryRun=All&fieldValidation=Strict"
CLUSTER = os.environ.get("ROBUSTRL_CLUSTER", "robustrl")

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """A cluster with our CRD, a namespace, and one good job that nobody acts on."""
    try:
        cluster.require(CLUSTER)
    except ClusterError as error:
        pytest.skip(f"no cluster {CLUSTER!r} is up ({error}): make cluster")
    _kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds/rljob.yaml"))
    _kubectl("wait", "--for=condition=Established", "crd/rljobs.robustrl.dev", "--timeout=20s")
    api = Api(cluster.kubeconfig(CLUSTER))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    api.apply(f"/api/v1/namespaces/{NAMESPACE}", namespace)
    api.apply(f"{JOBS}/sort4", merge(GOOD, {"spec": {"managedBy": "robustrl.dev/tests"}}))
    yield api
    _kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _kubectl(*words: str) -> None:
    command = [str(binaries.kubectl()), f"--kubeconfig={cluster.kubeconfig(CLUSTER)}", *words]
    subprocess.run(command, check=True, timeout=60)


def merge(base: Any, patch: Any) -> Any:
    """RFC 7396: what null names is taken away, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    merged = deepcopy(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def refusal(call: Any, *arguments: Any) -> str:
    """The words with which the API server refuses a call."""
    with pytest.raises(HTTPError) as caught:
        call(*arguments)
    status = json.loads(caught.value.read())
    assert status["code"] in (400, 422), status["message"]
    message: str = status["message"]
    return message


def test_good_manifest_is_taken(api: Api) -> None:
    fresh = merge(GOOD, {"metadata": {"name": "sort4-fresh"}})
    assert api.post(f"{JOBS}?{DRY}", fresh)["spec"]["recovery"]["strategy"] == "RoleBased"


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_bad_manifest_is_refused_with_field_and_remedy(api: Api, case: dict[str, Any]) -> None:
    if case.get("update"):
        message = refusal(api.patch, f"{JOBS}/sort4?{DRY}", case["patch"])
    else:
        bad = merge(merge(GOOD, {"metadata": {"name": "sort4-bad"}}), case["patch"])
        message = refusal(api.post, f"{JOBS}?{DRY}", bad)
    missing = [word for word in case["words"] if word not in message]
    assert not missing, f"the refusal says: {message}"


def test_role_and_status_are_separate(api: Api) -> None:
    """A write of the whole object cannot change status: only the operator's own writes to /status do."""
    api.patch(f"{JOBS}/sort4", {"status": {"epoch": 7}})
    assert api.get(f"{JOBS}/sort4").get("status", {}).get("epoch") != 7


def test_scale_speaks_of_rollouts(api: Api) -> None:
    assert api.get(f"{JOBS}/sort4/scale")["spec"]["replicas"] == 4
