"""The file that a training process hands over to be published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402

from robustrl.sdk.checkpointing import drop_older, write_weights  # noqa: E402


class Tied(torch.nn.Module):  # type: ignore[misc, name-defined]
    """As language models are: what reads a token and what writes one are the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_tied_weights_are_written_under_both_names(tmp_path: Path) -> None:
    model = Tied()
    written = load_file(write_weights(model, tmp_path / "1.0"))
    assert sorted(written) == ["embedding.weight", "head.weight"]
    assert all(torch.equal(tensor, model.head.weight) for tensor in written.values())


def test_names_are_the_modules_own_whatever_it_is_wrapped_in(tmp_path: Path) -> None:
    """An engine refuses weights under names that its own model does not have."""
    wrapped = torch.compile(torch.nn.Linear(2, 2))
    assert sorted(wrapped.state_dict()) == ["_orig_mod.bias", "_orig_mod.weight"]
    assert sorted(load_file(write_weights(wrapped, tmp_path / "1.0"))) == ["bias", "weight"]


@pytest.mark.parametrize("newest", ["1.4", "2.0"])
def test_the_newest_weights_stay_though_the_clock_was_set_back(tmp_path: Path, newest: str) -> None:
    for second, version in enumerate((newest, "1.1", "1.2", "1.3")):
        (tmp_path / version).mkdir()
        os.utime(tmp_path / version, (second, second))
    (tmp_path / "lost+found").mkdir()
    drop_older(tmp_path, keep=3)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["1.2", "1.3", newest, "lost+found"])
