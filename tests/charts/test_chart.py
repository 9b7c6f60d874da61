"""The chart renders, with the rights it says and no others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from robustrl.node.settings import Settings as NodeSettings
from robustrl_api.job import RLJob
from robustrl_api.names import CONTROL_AUDIENCE, Role
from robustrl_e2e.cluster import binaries
from robustrl_operator.kubernetes.pod_factory import CA_CONFIG_MAP, build_pod
from robustrl_operator.plan import CreatePod

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/robustrl"
BUILT = binaries.HELM.built(*binaries.HELM.packages)
HELM = shutil.which("helm") or (str(BUILT) if BUILT.exists() else None)
pytestmark = pytest.mark.skipif(HELM is None, reason="no helm in PATH and none built: make cluster builds one")

NAMESPACED = ["watchNamespace=research"]
EXPORTER = "http://$(ROBUSTRL_NODE_IP):9400/metrics"
NODE_AGENT = ["nodeAgent.enabled=true", f"nodeAgent.exporterUrl={EXPORTER}"]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(HELM), *words], capture_output=True, text=True, timeout=60, check=False)


def rendered(*values: str, namespace: str = "robustrl-system") -> list[dict[str, Any]]:
    sets = [word for value in values for word in ("--set", value)]
    done = helm("template", "r", str(CHART), "--namespace", namespace, *sets)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] in kinds]


def test_a_private_registry_s_secrets_reach_every_pod() -> None:
    documents = rendered(*NODE_AGENT, "imagePullSecrets[0].name=my-registry")
    pods = [each["spec"]["template"]["spec"] for each in of_kind(documents, "Deployment", "DaemonSet")]
    assert [pod["imagePullSecrets"] for pod in pods] == [[{"name": "my-registry"}]] * 2


def test_lint() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "values",
    [[], NAMESPACED, NODE_AGENT, NAMESPACED + NODE_AGENT],
    ids=["all namespaces", "one namespace", "node agents", "one namespace and node agents"],
)
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
            if "configmaps" in words and rule["verbs"] != ["create"]:
                assert rule.get("resourceNames") == [CA_CONFIG_MAP], "no other ConfigMap is its business"


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


@pytest.mark.parametrize("values", [[], NAMESPACED], ids=["all namespaces", "one namespace"])
def test_pods_may_be_evicted_where_they_may_be_deleted(values: list[str]) -> None:
    """For a drain on purpose, of the job's own pod: no more than deleting it, and under its disruption budget."""
    (jobs,) = (r for r in of_kind(rendered(*values), "Role", "ClusterRole") if r["metadata"]["name"].endswith("-jobs"))
    verbs = {resource: rule["verbs"] for rule in jobs["rules"] for resource in rule["resources"]}
    assert verbs["pods/eviction"] == ["create"]
    assert "delete" in verbs["pods"]


def test_two_teams_may_install_it_each_for_a_namespace() -> None:
    """What has no namespace has a name for each of them."""
    names = []
    for team in ("red", "blue"):
        documents = rendered(f"watchNamespace={team}", *NODE_AGENT, namespace=f"{team}-system")
        names += [(d["kind"], d["metadata"]["name"]) for d in documents if "namespace" not in d["metadata"]]
    assert len(names) == len(set(names)) > 0, names


def test_job_rights_are_in_the_served_namespace() -> None:
    roles = {role["metadata"]["name"]: role for role in of_kind(rendered(*NAMESPACED), "Role")}
    assert roles["robustrl-operator-jobs"]["metadata"]["namespace"] == "research"


@pytest.mark.parametrize("values", [[], NAMESPACED, NODE_AGENT, NAMESPACED + NODE_AGENT])
def test_every_binding_is_to_the_operator_alone(values: list[str]) -> None:
    """No right of the chart reaches a job's pod, nor a node agent."""
    documents = rendered(*values)
    account = next(each for each in of_kind(documents, "ServiceAccount") if "operator" in each["metadata"]["name"])
    for binding in of_kind(documents, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["name"]) == ("ServiceAccount", account["metadata"]["name"])


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_what_the_chart_runs_is_restricted(kind: str) -> None:
    (workload,) = of_kind(rendered(*NODE_AGENT), kind)
    spec = workload["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all(set(volume) <= {"name", "emptyDir", "projected"} for volume in spec["volumes"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["limits"]["memory"]
        assert all("hostPort" not in port for port in container.get("ports", ()))


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


def node_agent(*values: str) -> dict[str, Any]:
    (workload,) = of_kind(rendered(*NODE_AGENT, *values), "DaemonSet")
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def environment(spec: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in spec["containers"][0]["env"]}


def test_node_agents_have_no_rights_at_the_api_server() -> None:
    """Their only credential is a token with our audience, under the account that the operator is told."""
    spec = node_agent()
    assert spec["automountServiceAccountToken"] is False
    (identity,) = spec["volumes"]
    token, ca = identity["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == CONTROL_AUDIENCE
    assert ca["configMap"]["name"] == CA_CONFIG_MAP
    (operator,) = of_kind(rendered(*NODE_AGENT), "Deployment")
    told = environment(operator["spec"]["template"]["spec"])
    assert told["ROBUSTRL_NODE_AGENTS"] == spec["serviceAccountName"]


def test_a_node_agents_environment_is_what_it_reads() -> None:
    names = environment(node_agent("nodeAgent.xids.63=Gpu", "nodeAgent.xids.31=Ignore"))
    filled = {"ROBUSTRL_NODE_NAME": "n1", "ROBUSTRL_EXPORTER_URL": "http://10.0.0.1:9400/metrics"}
    assert names["ROBUSTRL_EXPORTER_URL"] == EXPORTER
    settings = NodeSettings.from_environment(names | filled)
    assert settings.access.url == "https://robustrl-operator.robustrl-system.svc:8443"
    assert [settings.xids[code].severity.value for code in (63, 31, 79)] == ["Gpu", "Ignore", "Gpu"]
    assert settings.cgroup_root is None


def test_processor_time_of_pods_costs_a_mount() -> None:
    spec = node_agent("nodeAgent.exporterUrl=", "nodeAgent.cgroups.enabled=true")
    (mount,) = [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert mount["hostPath"]["path"] == "/sys/fs/cgroup"
    (at,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == mount["name"]]
    assert at["readOnly"] is True
    assert environment(spec)["ROBUSTRL_CGROUP_ROOT"] == at["mountPath"]


def test_node_agents_reach_the_operator_and_nobody_reaches_them() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind(rendered(*NODE_AGENT), "NetworkPolicy")}
    labels = of_kind(rendered(*NODE_AGENT), "DaemonSet")[0]["spec"]["template"]["metadata"]["labels"]
    admitted = [
        source["podSelector"]["matchLabels"]
        for rule in policies["robustrl-operator"]["ingress"]
        for source in rule.get("from", ())
    ]
    assert any(selector.items() <= labels.items() for selector in admitted)
    assert policies["robustrl-node-agent"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert policies["robustrl-node-agent"]["ingress"] == []
    operators = of_kind(rendered(*NODE_AGENT), "Service")[0]["spec"]["selector"]
    assert not operators.items() <= labels.items(), "the operator's Service must not send agents to them"


def test_a_node_agent_with_nothing_to_look_at_is_refused() -> None:
    done = helm("template", "r", str(CHART), "--set", "nodeAgent.enabled=true")
    assert done.returncode != 0
    assert "nodeAgent.exporterUrl" in done.stderr


@pytest.mark.parametrize(
    "junk",
    [
        "nodeAgent.enabled=maybe",
        "nodeAgent.exporterUrl=localhost:9400",
        "nodeAgent.xids.63=Fatal",
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
    assert not of_kind(rendered(), "DaemonSet")
    assert of_kind(rendered(), "NetworkPolicy")
    assert not of_kind(rendered("networkPolicy.enabled=false", *NODE_AGENT), "NetworkPolicy")
