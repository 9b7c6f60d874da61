"""The chart renders, with the rights it says and no others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustrl_api.job import RLJob
from robustrl_api.names import CONTROL_AUDIENCE, Role
from robustrl_e2e.cluster import binaries
from robustrl_operator.kubernetes.pod_factory import build_pod
from robustrl_operator.plan import CreatePod

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/robustrl"
BUILT = binaries.HELM.built(*binaries.HELM.packages)
HELM = shutil.which("helm") or (str(BUILT) if BUILT.exists() else None)
pytestmark = pytest.mark.skipif(HELM is None, reason="no helm in PATH and none built: make cluster builds one")

NAMESPACED = ["watchNamespace=research"]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *words], capture_output=True, text=True, timeout=60, check=False)


def rendered(*values: str) -> list[dict[str, Any]]:
    sets = [word for value in values for word in ("--set", value)]
    done = helm("template", "r", str(CHART), "--namespace", "robustrl-system", *sets)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] in kinds]


def test_lint() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", [[], NAMESPACED], ids=["all namespaces", "one namespace"])
def test_no_rule_has_a_wildcard_or_gives_more_than_it_must(values: list[str]) -> None:
    roles = of_kind(rendered(*values), "Role", "ClusterRole")
    assert roles
    for role in roles:
        for rule in role["rules"]:
            words = [*rule.get("apiGroups", ()), *rule["resources"], *rule["verbs"]]
            assert "*" not in "".join(words), role["metadata"]["name"]
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(words)
            assert "pods/exec" not in words
            if "secrets" in words and "create" not in words:
                assert rule.get("resourceNames"), "secrets are named one by one"


def test_cluster_wide_rights_are_read_only_when_one_namespace_is_served() -> None:
    for role in of_kind(rendered(*NAMESPACED), "ClusterRole"):
        for rule in role["rules"]:
            if rule["resources"] != ["tokenreviews"]:
                assert set(rule["verbs"]) <= {"get", "list", "watch"}, rule
            assert "pods" not in rule["resources"]


def test_the_operator_may_delete_jobs_but_not_write_their_specs() -> None:
    """Deleting is for `ttlSecondsAfterFinished`."""
    rules = [r for role in of_kind(rendered(), "ClusterRole") for r in role["rules"] if r["resources"] == ["rljobs"]]
    assert [sorted(rule["verbs"]) for rule in rules] == [["delete", "get", "list", "watch"]]


def test_job_rights_are_in_the_served_namespace() -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(rendered(*NAMESPACED), "Role")}
    assert roles["robustrl-operator-jobs"]["metadata"]["namespace"] == "research"


@pytest.mark.parametrize("values", [[], NAMESPACED])
def test_every_binding_is_to_the_operator_alone(values: list[str]) -> None:
    """No right of the chart reaches a job's pod."""
    documents = rendered(*values)
    (account,) = of_kind(documents, "ServiceAccount")
    for binding in of_kind(documents, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["name"]) == ("ServiceAccount", account["metadata"]["name"])


def test_the_operator_runs_restricted() -> None:
    (deployment,) = of_kind(rendered(), "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("role", [Role.TRAINER, Role.ROLLOUT, Role.MANAGER])
def test_agents_have_no_rights_at_the_api_server(role: Role) -> None:
    """Their only credential is a token with our audience."""
    job = RLJob.model_validate(yaml.safe_load((ROOT / "examples/sort4/rljob.yaml").read_text()))
    spec = build_pod(job, CreatePod("p", role), "https://operator")["spec"]
    assert spec["automountServiceAccountToken"] is False
    tokens = [
        source["serviceAccountToken"]
        for volume in spec["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        if "serviceAccountToken" in source
    ]
    assert [token["audience"] for token in tokens] == [CONTROL_AUDIENCE]


@pytest.mark.parametrize(
    "junk",
    [
        "watchNamspace=typo",
        "logLevel=LOUD",
        "image.tag=",
        "networkPolicy.enabled=perhaps",
        "image.pullPolicy=Sometimes",
    ],
)
def test_values_that_mean_nothing_are_refused(junk: str) -> None:
    done = helm("template", "r", str(CHART), "--set", junk)
    assert done.returncode != 0
    assert junk.partition("=")[0].rpartition(".")[2] in done.stderr


def test_the_defaults_are_the_schemas_own() -> None:
    """Every value has a schema, so that no typo passes."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_optional_parts() -> None:
    assert not of_kind(rendered(), "ServiceMonitor")
    assert of_kind(rendered("serviceMonitor.enabled=true"), "ServiceMonitor")
    assert of_kind(rendered(), "NetworkPolicy")
    assert not of_kind(rendered("networkPolicy.enabled=false"), "NetworkPolicy")
