"""GPU memory as far as it can be looked at without a GPU: tensors as bytes. The rest is in tests/gpu."""

from __future__ import annotations

import pytest

from weightsync.device import as_bytes

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_a_tensor_is_its_bytes_whatever_its_type(dtype: str) -> None:
    kind = getattr(torch, dtype)
    pattern = torch.arange(64 * kind.itemsize, dtype=torch.uint8) % 2
    tensor = pattern.view(kind).reshape(8, 8)
    data = torch.as_tensor(as_bytes(tensor))
    assert data.dtype is torch.uint8
    assert data.tolist() == pattern.tolist()
    data[0] = 1 - data[0]
    assert tensor.view(-1).view(torch.uint8)[0] == data[0], "the same memory"


def test_bytes_that_do_not_lie_in_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        as_bytes(torch.zeros(4, 4).t()[1:])
