import base64
import json
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from robustrl_e2e.cluster import archive, binaries, control_plane, dns, kind, machine, node, pki
from robustrl_e2e.cluster.api import Api
from robustrl_e2e.cluster.layout import Cluster
from robustrl_e2e.cluster.machine import Daemon

CLUSTER = Cluster("robustrl", 8, slot=5)
NODE3 = CLUSTER.worker("node3")


def test_the_machine_s_scripts_are_shell(tmp_path: Path) -> None:
    daemons = [Daemon("one", ("one", "--text=it's two words")), Daemon("two", ("two",), after="/run/one.sock")]
    folder = tmp_path / "with space"
    for script in (
        machine.render_boot(NODE3, folder, daemons, tmp_path / "bin"),
        machine.render_launch(NODE3, folder, [tmp_path / "cgroup"]),
    ):
        assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_daemon_starts_after_what_it_needs(tmp_path: Path) -> None:
    script = machine.render_boot(NODE3, tmp_path, node.daemons(CLUSTER, NODE3), tmp_path)
    assert script.index("keep containerd") < script.index(f"-e {node.CONTAINERD_SOCKET}") < script.index("keep kubelet")


def test_the_machine_sees_its_disk_only_after_all_else_is_mounted_in_it(tmp_path: Path) -> None:
    script = machine.render_boot(NODE3, tmp_path, [], tmp_path)
    assert script.index("robustrl/bin") < script.index("mount --rbind")


def test_containerd_s_configuration() -> None:
    config = tomllib.loads(node.render_containerd(Path("/some/cni")))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == node.PAUSE_IMAGE
    assert cri["cni"]["bin_dir"] == "/some/cni"
    assert cri["restrict_oom_score_adj"]


def test_pods_get_addresses_of_their_node() -> None:
    plugin = node.cni_config(NODE3)["plugins"][0]
    assert plugin["ipam"]["ranges"] == [[{"subnet": str(NODE3.pods)}]]
    assert plugin["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}]


def test_a_dead_node_is_seen_only_after_several_missed_signs_of_life() -> None:
    config = node.kubelet_config(NODE3)
    assert config["cgroupRoot"] == "/robustrl-robustrl/node3"
    renewal = config["nodeLeaseDurationSeconds"] / 4
    assert 3 * renewal <= control_plane.GRACE_SECONDS


def test_the_node_s_pool_is_its_label() -> None:
    for name, pool in (("node7", "gpu"), ("node8", "cpu")):
        assert f"--node-labels=robustrl.dev/pool={pool}" in node.kubelet_command(CLUSTER, CLUSTER.worker(name))


def test_programs_are_named_as_the_machine_sees_them() -> None:
    commands = [d.command[0] for d in (*control_plane.daemons(CLUSTER), *node.daemons(CLUSTER, NODE3))]
    built = [command for command in commands if "/" in command]
    assert len(built) == 6
    assert all(command.startswith("/var/robustrl/bin/") for command in built)


def test_dns_answers_from_the_control_plane_s_address() -> None:
    assert f"bind {CLUSTER.control_plane.address}" in dns.render_corefile(CLUSTER)
    slice_ = next(body for body in dns.objects(CLUSTER).values() if body["kind"] == "EndpointSlice")
    assert slice_["endpoints"][0]["addresses"] == [CLUSTER.control_plane.address]


def test_tokens_are_new_for_each_cluster() -> None:
    first, second = pki.make_users(CLUSTER), pki.make_users(CLUSTER)
    tokens = [user.token for users in (first, second) for user in users.values()]
    assert len(set(tokens)) == len(tokens)


def test_the_token_file_names_groups() -> None:
    users = [pki.User("admin", "t0", "system:masters"), pki.User("system:kube-proxy", "t1")]
    assert pki.render_tokens(users) == 't0,admin,admin,"system:masters"\nt1,system:kube-proxy,system:kube-proxy,""\n'


def test_certificates_are_signed_by_the_cluster_s_ca(tmp_path: Path) -> None:
    pki.make_certificates(tmp_path, CLUSTER)
    for name in ("apiserver", "kubelet-client"):
        check = ["openssl", "verify", "-CAfile", tmp_path / "ca.crt", tmp_path / f"{name}.crt"]
        assert subprocess.run(check, capture_output=True, check=False).returncode == 0
    shown = ["openssl", "x509", "-in", tmp_path / "apiserver.crt", "-noout", "-ext", "subjectAltName"]
    names = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert "kubernetes.default.svc" in names
    assert CLUSTER.control_plane.address in names


def test_a_kubeconfig_stands_alone(tmp_path: Path) -> None:
    pki.make_certificates(tmp_path, CLUSTER)
    text = pki.render_kubeconfig(CLUSTER, pki.User("admin", "secret", "system:masters"), tmp_path / "ca.crt")
    (tmp_path / "kubeconfig").write_text(text)
    assert Api(tmp_path / "kubeconfig").server == CLUSTER.api_url
    authority = json.loads(text)["clusters"][0]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(authority) == (tmp_path / "ca.crt").read_bytes()


def test_the_same_program_gives_the_same_image(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF")
    for name in ("one", "two"):
        archive.write_layer(tmp_path / f"{name}.layer", {"pause": tmp_path / "program"})
        archive.write_image(tmp_path / name, tmp_path / f"{name}.layer", "x:1", entrypoint=["/pause"])
        (tmp_path / "program").touch()
    with tarfile.open(tmp_path / "one") as image:
        content = image.extractfile("manifest.json")
        assert content is not None
        manifest = json.load(content)[0]
        assert set(image.getnames()) == {"manifest.json", manifest["Config"], *manifest["Layers"]}
    assert manifest["RepoTags"] == ["x:1"]
    with tarfile.open(tmp_path / "two") as image:
        assert manifest["Config"] in image.getnames()


@pytest.mark.parametrize(("kernel", "name"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_an_image_names_the_machine_that_it_was_made_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str, name: str
) -> None:
    monkeypatch.setattr(archive.platform, "machine", lambda: kernel)
    archive.write_layer(tmp_path / "layer", {})
    archive.write_image(tmp_path / "image", tmp_path / "layer", "x:1")
    with tarfile.open(tmp_path / "image") as image:
        config = image.extractfile(image.getnames()[0])
        assert config is not None
        assert json.load(config)["architecture"] == name


@pytest.mark.parametrize("module", [binaries.KUBERNETES, binaries.COREDNS, binaries.HELM])
def test_versions_are_pinned(module: binaries.Module) -> None:
    folder = binaries.GO_FOLDER / module.name
    assert (folder / "go.sum").stat().st_size > 0
    assert all(package in (folder / "go.mod").read_text() for package in module.packages)


def test_the_stamped_versions_are_those_that_are_built() -> None:
    pinned = (binaries.GO_FOLDER / "kubernetes" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {binaries.KUBERNETES_VERSION}" in pinned
    assert f"helm.sh/helm/v3 {binaries.HELM_VERSION}" in (binaries.GO_FOLDER / "helm" / "go.mod").read_text()


def test_other_flags_are_another_build() -> None:
    plain = binaries.Module("kubernetes", binaries.KUBERNETES.packages)
    assert plain.digest != binaries.KUBERNETES.digest
    assert binaries.KUBECTL.digest == binaries.KUBERNETES.digest


def test_kind_s_configuration() -> None:
    config = json.loads(kind.render_config(3))
    assert [entry["role"] for entry in config["nodes"]] == ["control-plane", "worker", "worker", "worker"]
    assert Cluster("x", 3, "kind").node_names == ("x-worker", "x-worker2", "x-worker3")
