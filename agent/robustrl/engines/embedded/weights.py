"""Loading weights from a directory into the live model, all or nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file


class WeightsRefused(Exception):
    """The directory does not hold the model's weights; the model is as it was."""


def load(model: torch.nn.Module, directory: Path) -> None:
    """Copy ``directory/*.safetensors`` into the model. Names and shapes are checked before the first byte
    changes."""
    tensors = _read(directory)
    own = model.state_dict()
    _check(tensors, own)
    with torch.no_grad():
        for name, target in own.items():
            target.copy_(tensors[name])


def _read(directory: Path) -> dict[str, torch.Tensor]:
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise WeightsRefused(f"no *.safetensors in {directory}")
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            tensors.update(load_file(str(file)))
        except (OSError, SafetensorError) as error:
            raise WeightsRefused(f"cannot read {file}: {error}") from error
    return tensors


def _check(tensors: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> None:
    if missing := sorted(own.keys() - tensors.keys()):
        raise WeightsRefused(f"missing tensors: {', '.join(missing[:5])}")
    if unknown := sorted(tensors.keys() - own.keys()):
        raise WeightsRefused(f"unknown tensors: {', '.join(unknown[:5])}")
    for name, target in own.items():
        if tensors[name].shape != target.shape:
            raise WeightsRefused(f"{name}: shape {list(tensors[name].shape)}, the model has {list(target.shape)}")


def checksums(model: torch.nn.Module) -> dict[str, str]:
    """SHA-256 of each tensor's bytes, by name."""
    return {
        name: hashlib.sha256(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()
        for name, tensor in model.state_dict().items()
    }
