"""The example's model with ballast: 48 MB of weights that change in every step and say nothing."""

import torch
from sort4.model import CharTransformer, build_model

BALLAST = 12_000_000


class Big(torch.nn.Module):
    def __init__(self, model: CharTransformer) -> None:
        super().__init__()
        self.model, self.max_length = model, model.max_length
        self.ballast = torch.nn.Parameter(torch.ones(BALLAST))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        # Its gradient is zero, and the optimizer's weight decay changes it all the same.
        return self.model(ids) + 0.0 * self.ballast[0]


def build() -> Big:
    return Big(build_model())
