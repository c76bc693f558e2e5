"""`hidet.device`: names of devices."""

from __future__ import annotations

from hidet.api.tensors.tensor import Device, device_name


def device(device_type: str, device_index: int | None = None) -> Device:
    """A device by its type and number, "cuda" and 1, or by both in a text, "cuda:1". What takes devices takes texts."""
    return Device(device_name(device_type if device_index is None else f"{device_type}:{device_index}"))
