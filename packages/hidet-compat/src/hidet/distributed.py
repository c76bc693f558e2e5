"""`hidet.distributed`: collectives of torch on tensors of hidet, in their memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from hidet.api.tensors.tensor import Tensor
from hidet.errors import LaunchError

OPERATIONS = ("sum", "prod", "min", "max", "avg")
"""What collectives reduce by."""


def _torch() -> Any:
    try:
        return importlib.import_module("torch.distributed")
    except ImportError as error:
        raise LaunchError("hidet.distributed needs torch, which is not installed", hint="pip install torch") from error


def init_process_group(
    backend: str = "nccl",
    init_method: str | None = None,
    store: Any = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
) -> None:
    """Join a group of processes, as `torch.distributed.init_process_group`; "gloo" is for the host."""
    more = {} if timeout is None else {"timeout": timeout}
    _torch().init_process_group(backend, init_method, store=store, world_size=world_size, rank=rank, **more)


def all_reduce(tensor: Tensor, op: str = "sum", group: Any = None) -> None:
    """Overwrite a tensor with the sum (prod, min, max, avg) over all processes."""
    _torch().all_reduce(tensor.torch(), _operation(op), group)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> None:
    """Overwrite a tensor with that of one process."""
    _torch().broadcast(tensor.torch(), src, group)


def reduce(tensor: Tensor, dst: int, op: str = "sum", group: Any = None) -> None:
    """`all_reduce` whose result one process has; the tensors of others are then undefined."""
    _torch().reduce(tensor.torch(), dst, _operation(op), group)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None) -> None:
    """Overwrite the tensors of a list with those of all processes."""
    _torch().all_gather([each.torch() for each in tensor_list], tensor.torch(), group)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> None:
    """Overwrite a tensor with those of all processes, one behind the other."""
    _torch().all_gather_into_tensor(output_tensor.torch(), input_tensor.torch(), group)


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int = 0, group: Any = None) -> None:
    """`all_gather` whose result one process has."""
    given = None if gather_list is None else [each.torch() for each in gather_list]
    _torch().gather(tensor.torch(), given, dst, group)


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0, group: Any = None) -> None:
    """Overwrite a tensor with the one of a list of one process that is for this process."""
    given = None if scatter_list is None else [each.torch() for each in scatter_list]
    _torch().scatter(tensor.torch(), given, src, group)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: str = "sum", group: Any = None) -> None:
    """Reduce lists of tensors over all processes; this process gets its own place of the list."""
    _torch().reduce_scatter(output.torch(), [each.torch() for each in input_list], _operation(op), group)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: str = "sum", group: Any = None) -> None:
    """Reduce tensors over all processes; this process gets its part."""
    _torch().reduce_scatter_tensor(output.torch(), input.torch(), _operation(op), group)


def send(tensor: Tensor, dst: int, group: Any = None) -> None:
    """Send a tensor to a process."""
    _torch().send(tensor.torch(), dst, group)


def recv(tensor: Tensor, src: int, group: Any = None) -> None:
    """Overwrite a tensor with what a process sends."""
    _torch().recv(tensor.torch(), src, group)


def _operation(op: str) -> Any:
    if op not in OPERATIONS:
        raise LaunchError(f"processes reduce by {', '.join(OPERATIONS)}, got {op!r}")
    return getattr(_torch().ReduceOp, op.upper())


_SAME = (
    *("barrier", "is_initialized", "get_rank", "get_world_size", "destroy_process_group", "new_group", "FileStore"),
    "TCPStore",
)
"""What is torch's own."""


def __getattr__(name: str) -> Callable[..., Any]:
    if name in _SAME:
        found: Callable[..., Any] = getattr(_torch(), name)
        return found
    raise AttributeError(f"hidet.distributed has no {name!r}")
