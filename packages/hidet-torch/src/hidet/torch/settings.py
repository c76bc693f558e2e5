"""Settings of torch that options of a compilation follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def settings_of_torch() -> Mapping[str, Any]:
    """Options that follow torch, as it is set now."""
    return {
        "threads": torch.get_num_threads(),
        "tf32_products": torch.backends.cuda.matmul.fp32_precision == "tf32",
        # torch makes this module's attribute when it is imported, unseen by mypy.
        "tf32_convolutions": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
    }
