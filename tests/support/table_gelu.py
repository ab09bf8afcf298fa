"""The GELU of llama.cpp's CPU kernels: its tanh form, looked up in a table of 16-bit floats."""

import torch
from torch import Tensor, nn


class TableGelu(nn.Module):
    """Takes and gives float32, rounded to what the table holds."""

    def forward(self, x: Tensor) -> Tensor:
        inexact = nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        # Beyond this the kernels do not look up.
        return torch.where(x.abs() < 10, inexact, nn.functional.relu(x))


def use_table_gelu(model: nn.Module) -> None:
    """Put it in the place of every activation named `act`."""
    for module in model.modules():
        if hasattr(module, "act"):
            module.act = TableGelu()
