"""What the box must have: which Go is taken, and that an installation leaves no policy of ours behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustrl_e2e.cluster import preflight
from robustrl_e2e.cluster.errors import ClusterError


def toolchain(folder: Path, version: str) -> Path:
    folder.mkdir()
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go is looked for in the folders a and b of this one, in this order."""
    monkeypatch.setattr(preflight, "GO_FOLDERS", ())
    monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    return tmp_path


def test_an_old_go_does_not_hide_a_new_one(search: Path) -> None:
    toolchain(search / "a", "go1.19.8")
    new = toolchain(search / "b", "go1.26.1")
    assert preflight.go() == str(new)


@pytest.mark.parametrize("version", ["go1.24", "go1.25rc1", "devel go1.27-6d8a9b1 Mon Jan 5"])
def test_versions_that_will_do(search: Path, version: str) -> None:
    program = toolchain(search / "a", version)
    assert preflight.go() == str(program)


@pytest.mark.parametrize("version", ["go1.23.9", "nonsense"])
def test_only_old_ones_are_named_with_the_remedy(search: Path, version: str) -> None:
    program = toolchain(search / "a", version)
    with pytest.raises(ClusterError, match=rf"{program} is Go .*install Go 1\.24 or newer"):
        preflight.go()


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(preflight, "POLICY", tmp_path / "policy-rc.d")
    return tmp_path / "policy-rc.d"


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 104\n"])
@pytest.mark.parametrize("killed", [False, True])
def test_the_policy_is_as_it_was_before(policy: Path, before: str | None, killed: bool) -> None:
    if before is not None:
        policy.write_text(before)
        policy.chmod(0o700)
    if killed:
        with pytest.MonkeyPatch.context() as patch, preflight.no_service_starts():
            patch.setattr(preflight, "_put_back_policy", lambda: None)
        assert "exit 101" in policy.read_text()
    with preflight.no_service_starts():
        assert "exit 101" in policy.read_text()
    assert (policy.read_text() if policy.exists() else None) == before
    assert before is None or policy.stat().st_mode & 0o777 == 0o700
    assert sorted(policy.parent.iterdir()) == ([policy] if before else [])
