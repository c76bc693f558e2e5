"""`hidet.nn.Module`: models of tensors of hidet, for inference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hidet.api.flow import FlowGraph, trace_from
from hidet.api.tensors.create import asarray, symbol_like
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ShapeError

Kind = TypeVar("Kind", bound="Module")


class Module:
    """A model: tensors and modules that are its attributes are its parameters and parts. To be derived from.

    class Twice(hidet.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = hidet.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(self.inner(x))
    """

    def __init__(self) -> None:
        self.name: str | None = None

    @property
    def submodules(self) -> dict[str, Module]:
        """Parts by their names."""
        return {name: part for name, part in vars(self).items() if isinstance(part, Module)}

    def __call__(self, *args: Any) -> Any:
        """What the model makes of tensors; symbolic for symbolic ones."""
        return self.forward(*args)

    def forward(self, *args: Any) -> Any:
        """What the model computes; to be written by the class."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """Tensors with names such as "inner.weight"."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                yield f"{prefix}{name}", value
        for name, part in self.submodules.items():
            yield from part.named_parameters(f"{prefix}{name}.")

    def parameters(self) -> list[Tensor]:
        """The tensors."""
        return [tensor for _, tensor in self.named_parameters()]

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by their names."""
        return dict(self.named_parameters())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take other elements for tensors by name, as tensors of any library. Names of others are not read. KeyError
        for one that is missing, ShapeError for one of another shape."""
        for name, old in self.named_parameters():
            given = state_dict[name]
            new = asarray(given.detach() if hasattr(given, "detach") else given, dtype=old.dtype, device=old.device)
            if tuple(new.shape) != tuple(old.shape):
                raise ShapeError(f"{name} has shape {list(old.shape)}, got {list(new.shape)}")
            self._set(name, new)

    def to(self: Kind, dtype: Any = None, device: str | None = None) -> Kind:
        """The same model, its tensors of floats in another type, all of them on another device."""
        for name, tensor in list(self.named_parameters()):
            self._set(name, tensor.to(dtype if tensor.dtype.is_float else None, device))
        return self

    def cpu(self: Kind) -> Kind:
        """The same model, on the host."""
        return self.to(device="cpu")

    def cuda(self: Kind) -> Kind:
        """The same model, on a GPU."""
        return self.to(device="cuda")

    def float(self: Kind) -> Kind:
        """The same model in float32."""
        return self.to("float32")

    def half(self: Kind) -> Kind:
        """The same model in float16."""
        return self.to("float16")

    def flow_graph_for(self, inputs: Sequence[Tensor]) -> FlowGraph:
        """The graph of the model for inputs like these."""
        symbols = [tensor if tensor.is_symbolic() else symbol_like(tensor) for tensor in inputs]
        return trace_from(self(*symbols), inputs=symbols)

    def extra_str(self) -> str:
        """What a model shows of itself between its parentheses."""
        return ""

    def __repr__(self) -> str:
        parts = [f"({name}): {part!r}".replace("\n", "\n  ") for name, part in self.submodules.items()]
        lines = [line for line in (self.extra_str(), *parts) if line]
        kind = type(self).__name__
        return f"{kind}({lines[0] if lines else ''})" if not parts else "\n  ".join([f"{kind}(", *lines]) + "\n)"

    def _set(self, name: str, tensor: Tensor) -> None:
        owner: Module = self
        *path, last = name.split(".")
        for part in path:
            owner = vars(owner)[part]
        setattr(owner, last, tensor)


class Sequential(Module):
    """Models one after the other: given one by one, or as a list."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        listed = modules[0] if len(modules) == 1 and not isinstance(modules[0], Module) else modules
        for number, part in enumerate(listed):
            setattr(self, str(number), part)

    def forward(self, *args: Any) -> Any:
        """What the last one gives."""
        first, *others = self
        result = first(*args)
        for part in others:
            result = part(result)
        return result

    def __iter__(self) -> Iterator[Module]:
        return iter(self.submodules.values())

    def __len__(self) -> int:
        return len(self.submodules)

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]


class ModuleList(Sequential):
    """Models in a list, which their owner calls."""

    def append(self, module: Module) -> None:
        """One more."""
        setattr(self, str(len(self)), module)

    def forward(self, *args: Any) -> Any:
        """A list computes nothing."""
        raise NotImplementedError("a ModuleList is no model: call its parts")
