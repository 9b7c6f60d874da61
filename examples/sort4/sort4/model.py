"""A two-layer causal transformer over 16 characters: 104,208 parameters, and it learns on one core."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

VOCAB_SIZE = 16
MAX_LENGTH = 32
_WIDTH = 64
_HEADS = 4
_LAYERS = 2


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.out = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, _HEADS, _WIDTH // _HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, _WIDTH))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(_WIDTH)
        self.attention = Attention()
        self.norm_mlp = nn.LayerNorm(_WIDTH)
        self.mlp = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class CharTransformer(nn.Module):
    """Token ids ``[B, T]`` to logits ``[B, T, 16]``; T at most ``max_length``."""

    max_length = MAX_LENGTH

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCAB_SIZE, _WIDTH)
        self.position = nn.Embedding(MAX_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(_LAYERS))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, VOCAB_SIZE)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build_model(seed: int = 0) -> CharTransformer:
    """The model with its initial weights, which are the same in every process that builds it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CharTransformer()
