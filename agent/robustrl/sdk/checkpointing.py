"""Saving and loading a training process's state, in the form of torch.distributed.checkpoint.

That form is what storage keeps as well, so that a world of another size can load it. Data-parallel ranks hold equal
states, so each rank's folder is a whole checkpoint and any one of them restores any rank.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, load, save
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from robustrl.checkpoint.folder import put_in_place, seal
from robustrl.checkpoint.shelf import Shelf

logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message="torch.distributed is disabled", module="torch.distributed.checkpoint")


class _Writer(FileSystemWriter):  # type: ignore[misc]
    """Writes nothing but the state, so that equal states give equal folders, whoever saved them, when and where."""

    def storage_meta(self) -> None:
        """Without this the folder would name its own path and a random number."""


Stateful = Any
"""A module, an optimizer, or anything else with state_dict and load_state_dict."""


class Checkpointer:
    """Saves and loads a fixed set of named objects.

    Args:
        objects: exactly one module must be among them where there is an optimizer, because optimizer state is
            stored under the module's parameter names.
    """

    def __init__(self, objects: Mapping[str, Stateful]) -> None:
        self._objects = dict(objects)
        modules = [each for each in objects.values() if isinstance(each, torch.nn.Module)]
        optimizers = [each for each in objects.values() if isinstance(each, torch.optim.Optimizer)]
        if optimizers and len(modules) != 1:
            raise ValueError(
                f"restore() was given {len(modules)} modules with an optimizer: give the one module that it optimizes"
            )
        self.module = modules[0] if modules else None

    def save(self, folder: Path) -> str:
        """Write a checkpoint so that `folder` appears complete or not at all; its root digest."""
        temporary = folder.with_name(f".{folder.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        writer = _Writer(temporary, sync_files=False, thread_count=1)
        save(self._state(), storage_writer=writer, no_dist=True)
        root = seal(temporary).root
        put_in_place(temporary, folder)
        return root

    def load(self, folder: Path) -> None:
        """Bring every object to the state in a folder."""
        state = self._state()
        load(state, storage_reader=FileSystemReader(folder), no_dist=True)
        for name, each in self._objects.items():
            if isinstance(each, torch.nn.Module):
                set_model_state_dict(each, state[name])
            elif isinstance(each, torch.optim.Optimizer):
                assert self.module is not None
                set_optimizer_state_dict(self.module, each, state[name])
            else:
                each.load_state_dict(state[name])

    def _state(self) -> dict[str, Any]:
        return {name: self._state_of(each) for name, each in self._objects.items()}

    def _state_of(self, each: Stateful) -> Any:
        if isinstance(each, torch.nn.Module):
            return get_model_state_dict(each)
        if isinstance(each, torch.optim.Optimizer):
            assert self.module is not None
            return get_optimizer_state_dict(self.module, each)
        return each.state_dict()


def write_weights(module: torch.nn.Module, folder: Path) -> Path:
    """Copy a module's weights to a safetensors file that appears complete or not at all. The names in it are the
    module's own, whatever it is wrapped in."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    path, temporary = folder / "model.safetensors", folder / ".model.safetensors"
    save_file(_apart(get_model_state_dict(module)), temporary)
    temporary.rename(path)
    return path


def _apart(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, each with memory of its own: those that a model ties together have one, which the file
    format refuses."""
    tensors: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, tensor in state.items():
        there = tensor.detach().contiguous().cpu()
        memory = there.untyped_storage().data_ptr()
        tensors[name] = there.clone() if memory in taken else there
        taken.add(memory)
    return tensors


def drop_older(parent: Path, keep: int) -> None:
    """Remove all but the newest `keep` versions of weights. They are newest by name: clocks are set back at times."""
    for version in sorted(Shelf(parent, keep).versions())[:-keep]:
        shutil.rmtree(parent / str(version), ignore_errors=True)
