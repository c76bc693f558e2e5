"""What functions, methods and modules of torch are made of, said by users in operators of hidet.

    @register_function(torch.nn.functional.softmax)
    def softmax(x, dim, **more):
        return ops.softmax(x, dim)

Functions and methods hold for torch.compile, modules for `hidet.frontend.from_torch`; what is compiled already stays as
it is (`torch.compiler.reset()`). Where autograd records a function, torch's own is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

from hidet.api.tensors.create import from_torch
from hidet.errors import OptionError

Written = TypeVar("Written", bound=Callable[..., Any])


class Registered(MutableMapping[Any, "OverloadedFunction"]):
    """What stands for functions of torch: what users have registered, and, for all others, what hidet has.

    Deleting one makes it unsupported: compiling a graph that calls it raises NotImplementedError.
    """

    def __getitem__(self, key: Any) -> OverloadedFunction:
        stand_ins = _stand_ins()
        if key in stand_ins.FUNCTIONS:
            found: OverloadedFunction = stand_ins.FUNCTIONS[key]
            return found
        if key in stand_ins.REFUSED or not callable(key):
            raise KeyError(key)
        return OverloadedFunction(key)

    def __setitem__(self, key: Any, function: Any) -> None:
        _stand_ins().REFUSED.discard(key)
        _stand_ins().FUNCTIONS[key] = function

    def __delitem__(self, key: Any) -> None:
        _ = self[key]
        _stand_ins().FUNCTIONS.pop(key, None)
        _stand_ins().REFUSED.add(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(_stand_ins().FUNCTIONS)

    def __len__(self) -> int:
        return len(_stand_ins().FUNCTIONS)

    def clear(self) -> None:
        """Everything as hidet has it."""
        _stand_ins().FUNCTIONS.clear()
        _stand_ins().REFUSED.clear()


class RegisteredModules(MutableMapping[Any, "type[HidetModule]"]):
    """Classes that stand for classes of modules of torch."""

    def __getitem__(self, key: Any) -> type[HidetModule]:
        found: type[HidetModule] = _stand_ins().MODULES[key]
        return found

    def __setitem__(self, key: Any, value: type[HidetModule]) -> None:
        _stand_ins().MODULES[key] = value

    def __delitem__(self, key: Any) -> None:
        del _stand_ins().MODULES[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(_stand_ins().MODULES)

    def __len__(self) -> int:
        return len(_stand_ins().MODULES)


class OverloadedFunction:
    """Functions of which a call takes the first that its arguments fit."""

    def __init__(self, original: Any) -> None:
        self.original = original
        self.functions: list[Callable[..., Any]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """TypeError where no function takes such arguments."""
        for function in self.functions:
            try:
                inspect.signature(function).bind(*args, **kwargs)
            except TypeError:
                continue
            return function(*args, **kwargs)
        given = ", ".join([*(type(arg).__name__ for arg in args), *kwargs])
        raise TypeError(f"no function that is registered for {self.original} takes ({given})")


class Registry:
    """What is registered. registered_methods: of `torch.Tensor`, beside functions."""

    registered_functions = Registered()
    registered_methods = Registered()
    registered_modules = RegisteredModules()


class HidetModule:
    """What stands for a module of torch, `mod`; to be derived from, and registered by `register_module`."""

    def __init__(self, torch_module: Any) -> None:
        self.mod = torch_module

    def param(self, name: str, optional: bool = False, steal: bool = False) -> Any:
        """A parameter or buffer as a tensor of hidet, over the same memory. optional: None for one that is absent,
        which is a KeyError otherwise. steal: memory is shared in any case."""
        found = {**dict(self.mod.named_parameters()), **dict(self.mod.named_buffers())}.get(name)
        if found is None and not optional:
            raise KeyError(f"{type(self.mod).__name__} has no parameter {name}")
        return None if found is None else from_torch(found.detach())

    def __call__(self, *args: Any) -> Any:
        """What the module makes of tensors of hidet."""
        raise NotImplementedError(f"{type(self).__name__}.__call__")


def register_function(func: Any) -> Callable[[Written], Written]:
    """The decorator of what stands for a function of torch, or for one named "torch.ops.acme.swish". Several for one
    function are told apart by the arguments that they take."""
    return _register(_found(func) if isinstance(func, str) else func)


def register_method(method: Any) -> Callable[[Written], Written]:
    """The decorator of what stands for a method: `torch.Tensor.relu`."""
    return _register(method)


def register_module(torch_cls: Any) -> Callable[[type[HidetModule]], type[HidetModule]]:
    """The decorator of a class, derived from `HidetModule`, that stands for a class of modules."""

    def register(cls: type[HidetModule]) -> type[HidetModule]:
        Registry.registered_modules[torch_cls] = cls
        return cls

    return register


def _register(key: Any) -> Callable[[Written], Written]:
    def register(function: Written) -> Written:
        known = _stand_ins().FUNCTIONS.get(key)
        overloads = known if isinstance(known, OverloadedFunction) else OverloadedFunction(key)
        overloads.functions.append(function)
        Registry.registered_functions[key] = overloads
        return function

    return register


def _found(path: str) -> Any:
    """What a dotted name of torch means. OptionError where it is none."""
    first, *rest = path.split(".")
    found: Any = import_module(first)
    try:
        for part in rest:
            found = getattr(found, part)
    except AttributeError as error:
        raise OptionError(f"{path} is no function of torch") from error
    return found


def _stand_ins() -> Any:
    # torch is heavy, and hidet-torch may be missing.
    return import_module("hidet.torch.stand_ins")


__all__ = [
    "HidetModule",
    "OverloadedFunction",
    "Registry",
    "register_function",
    "register_method",
    "register_module",
]
