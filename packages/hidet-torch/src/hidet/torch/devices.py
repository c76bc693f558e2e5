"""Which devices a dynamo graph is on, and the parts of one that is on several.

A part is a run of nodes on one device, or of nodes that stand between devices: copies, and indexing with positions of
the CPU. CPU tensors of rank 0 are numbers, which torch takes on every device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hidet.errors import ImportFailed, OptionError
from hidet.plugins.host import load_registry
from hidet.torch.eager_nodes import EagerNode
from hidet.torch.fx_nodes import function_name, location
from torch import fx
from torch.fx.passes.split_module import split_module

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a split graph: the name of its module there, its nodes, and its device, None between devices.

    is_bare: the split graph expects the part's only result, which `gm` returns in a tuple.
    """

    name: str
    gm: fx.GraphModule
    device: torch.device | None
    is_bare: bool = False

    @property
    def example_inputs(self) -> list[Any]:
        """What dynamo knows of the inputs: fake tensors and sizes."""
        return [_value(node) for node in self.gm.graph.find_nodes(op="placeholder")]


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """A graph that calls a module for each of its parts. between: the nodes that stand between devices."""

    gm: fx.GraphModule
    parts: tuple[Part, ...]
    between: tuple[EagerNode, ...]


def devices_of(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> dict[torch.device, str]:
    """The devices that a graph needs, and a tensor on each: "argument 1", "the result of cpu at model.py:3".

    What is computed from no input (`torch.arange(8).to(x.device)`) is computed where the rest is.
    """
    found: dict[torch.device, str] = {}
    for number, value in enumerate(example_inputs):
        for device in _devices(value):
            found.setdefault(device, f"argument {number}")
    for node, devices in _computed(gm):
        for device in devices:
            found.setdefault(device, _what(node))
    return found


def targets_of_devices(found: Mapping[torch.device, str], target: str | None) -> dict[torch.device, str]:
    """The target to compile for on each device: that which serves its type, on the device itself.

    found: as `devices_of` gives it. target: the name of one to take where it serves the device, None for none.
    ImportFailed for devices without a target, and for a target whose devices the graph is not on.
    """
    registry = load_registry()
    served = () if target is None else registry.target(target.partition(":")[0]).devices
    chosen: dict[torch.device, str] = {}
    for device, what in found.items():
        if target is not None and device.type in served:
            is_whole = device.type == "cpu" or ":" in target
            chosen[device] = target if is_whole else str(device).replace(device.type, target, 1)
            continue
        try:
            chosen[device] = registry.target_of_device(str(device))
        except OptionError as error:
            known = ", ".join(registry.device_types)
            message = f"the graph has {what} on device {device}, which no target is for; there are targets for {known}"
            raise ImportFailed(message, hint=error.hint) from None
    if target is not None and found and not any(device.type in served for device in found):
        device, what = next(iter(found.items()))
        types = " or ".join(served) or "no device"
        raise ImportFailed(
            f"target {target!r} is for tensors on {types}, the graph has {what} on {device}",
            hint="leave the option target away, or move the model and its inputs",
        )
    return chosen


def split_by_device(gm: fx.GraphModule) -> SplitGraph:
    """The parts of a graph in the order of its nodes, which keeps what is written in place in its order, too."""
    numbers: dict[fx.Node, int] = {}
    devices: list[frozenset[torch.device]] = []
    between: list[EagerNode] = []
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        needed = _devices_of_node(node)
        if len(needed) > 1:
            names = " and ".join(sorted(map(str, needed)))
            between.append(EagerNode(function_name(node), f"it is between {names}", location(node)))
        # Nodes without tensors, such as sizes, go with what is before them. All that is between devices is one kind.
        kind = needed if len(needed) < 2 else frozenset[torch.device]()
        if not devices or (needed and kind != devices[-1]):
            devices.append(kind)
        numbers[node] = len(devices) - 1
    made = split_module(gm, gm, numbers.__getitem__, keep_original_order=True)
    parts = tuple(_part(made, f"submod_{number}", kind) for number, kind in enumerate(devices))
    return SplitGraph(made, parts, tuple(between))


def _part(split: fx.GraphModule, name: str, kind: frozenset[torch.device]) -> Part:
    gm = split.get_submodule(name)
    assert isinstance(gm, fx.GraphModule)
    device = next(iter(kind), None)
    (output,) = gm.graph.find_nodes(op="output")
    is_bare = device is not None and not isinstance(output.args[0], tuple)
    if is_bare:
        output.args = ((output.args[0],),)
        gm.recompile()
    return Part(name, gm, device, is_bare)


def _devices_of_node(node: fx.Node) -> frozenset[torch.device]:
    """Where the tensors of a node are, of those that it reads without numbers."""
    read = [device for source in node.all_input_nodes for device in _devices(_value(source))]
    return frozenset([*read, *_devices(_value(node), with_numbers=True)])


def _devices(value: object, *, with_numbers: bool = False) -> list[torch.device]:
    """The devices of the tensors in a value. with_numbers: also of CPU tensors of rank 0."""
    if isinstance(value, tuple | list):
        return [device for item in value for device in _devices(item, with_numbers=with_numbers)]
    if not isinstance(value, torch.Tensor) or (value.device == CPU and value.dim() == 0 and not with_numbers):
        return []
    return [value.device]


def _computed(gm: fx.GraphModule) -> Iterator[tuple[fx.Node, list[torch.device]]]:
    """What a graph computes from tensors that it is given, and what it returns, with their devices."""
    from_inputs: set[fx.Node] = set()
    for node in gm.graph.nodes:
        value = _value(node)
        if node.op == "placeholder":
            if isinstance(value, torch.Tensor):
                from_inputs.add(node)
        elif node.op == "output":
            for returned in node.all_input_nodes:
                yield returned, _devices(_value(returned), with_numbers=returned.op != "placeholder")
        elif not from_inputs.isdisjoint(node.all_input_nodes):
            # A size of a tensor is a number, which is on no device.
            if not isinstance(value, int | torch.SymInt):
                from_inputs.add(node)
            is_copied = any(_devices(_value(source)) for source in node.all_input_nodes)
            yield node, _devices(value, with_numbers=is_copied)


def _value(node: fx.Node) -> Any:
    return node.meta.get("example_value")


def _what(node: fx.Node) -> str:
    """What made a value, and where in the user's model."""
    loc = location(node)
    what = f"the result of {function_name(node)}"
    return what if loc is None else f"{what} at {loc}"
