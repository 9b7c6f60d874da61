"""What is done to checkpoints is what the restore must notice, and nothing but a volume of theirs is filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from robustrl.checkpoint.folder import BadCopy, seal, verify
from robustrl.checkpoint.shelf import Shelf
from robustrl_api.version import Version
from robustrl_operator.local.storage_harm import NoVolume, StorageHarm, damage_copies

OLD, NEW = Version(1, 6), Version(1, 7)


def made(root: Path, version: Version, rank: int) -> tuple[Path, frozenset[str]]:
    folder = Shelf(root, 2).folder(version, rank)
    folder.mkdir(parents=True)
    (folder / "state.distcp").write_bytes(bytes(range(256)) * 16)
    (folder / ".metadata").write_bytes(b"small")
    return folder, frozenset({seal(folder).root})


def test_each_copy_of_the_version_is_damaged_and_no_other(tmp_path: Path) -> None:
    new, old = [made(tmp_path, NEW, rank) for rank in (0, 1)], made(tmp_path, OLD, 0)
    assert damage_copies(tmp_path, NEW) == 2
    for folder, roots in new:
        with pytest.raises(BadCopy, match=r"state\.distcp is damaged"):
            verify(folder, roots)
    verify(*old)
    assert damage_copies(tmp_path / "nothing", NEW) == 0


@pytest.mark.parametrize("harm", [StorageHarm.fill, StorageHarm.seal])
def test_a_folder_on_this_machines_disk_is_left_alone(tmp_path: Path, harm: object) -> None:
    assert callable(harm)
    with pytest.raises(NoVolume, match="no volume of its own"):
        harm(StorageHarm(tmp_path))
    assert list(tmp_path.iterdir()) == []
