"""Private names of torch that tell what a trace of AOTAutograd depends on, and what became of it. See `compat`.

Checked against torch 2.11 and 2.13; a name that moves is to be followed here. Where one is not there, nothing is told,
and graphs are traced each time.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch
from hidet.torch import compat, compat_memory
from torch import fx


def trace_state(device: torch.device) -> str | None:
    """The settings of torch that a trace of a graph on a device may depend on, as text; None where something is active
    that changes what operators mean: modes, transforms, implementations that are not torch's."""
    try:
        if torch._C._len_torch_function_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
            return None
        return _text_where_all_is_torchs(_settings(device))
    except (AttributeError, ImportError):
        return None


def lasting_state() -> str | None:
    """As `trace_state`, without what dynamo guards: what would be the same for all calls of a compiled function."""
    try:
        return _text_where_all_is_torchs(_lasting_settings())
    except (AttributeError, ImportError):
        return None


def _text_where_all_is_torchs(settings: tuple[object, ...]) -> str | None:
    return repr(settings) if _implementations_are_torchs() and _decompositions_are_torchs() else None


def _settings(device: torch.device) -> tuple[object, ...]:
    kinds = filter(torch.amp.is_autocast_available, dict.fromkeys(("cpu", device.type)))
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds],
        torch.is_autocast_cache_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_deterministic_debug_mode(),
        *_lasting_settings(),
    )


def _lasting_settings() -> tuple[object, ...]:
    """What dynamo has no guards for."""
    from torch._functorch import config
    from torch.backends import opt_einsum

    return (
        torch.__version__,
        torch.version.git_version,
        torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # set by its module
        [read() for read in _SDP_SETTINGS],
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        (opt_einsum.is_available(), opt_einsum.enabled, opt_einsum.strategy),
        config.get_hash().hex(),
    )


_SDP_SETTINGS: tuple[Callable[[], bool], ...] = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.cudnn_sdp_enabled,
)


def _implementations_are_torchs() -> bool:
    """Whether no operator of torch is traced through a Python function of somebody else: torch's own are for shapes,
    for devices, on which nothing is traced, and for `torch.vmap`, under which nothing is kept."""
    from torch.library import _impls

    return all(key.rpartition("/")[2] in _NOT_TRACED for key in _impls if key.startswith("aten/"))


_NOT_TRACED = frozenset({"Meta", "CPU", "CUDA", "MPS", "XPU", "FuncTorchBatched"})


def _decompositions_are_torchs() -> bool:
    """Whether all functions that torch takes operators apart with are its own."""
    from torch._decomp import global_decomposition_table

    return all(_is_in_torch(rule) for rule in global_decomposition_table["post_autograd"].values())


def _is_in_torch(function: Any) -> bool:
    return str(getattr(function, "__module__", None)).partition(".")[0] == "torch"


def function_text(target: Any) -> str | None:
    """The name of a function of torch, or of Python's operators, that tells which it is; None for any other."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target) if target.namespace == "aten" else None
    return _names_of_functions().get(target) if isinstance(target, _FUNCTIONS) else None


def method_text(name: str) -> str | None:
    """The name of a method of tensors, where it is torch's; None where somebody else has put it there."""
    return name if _is_of_torch(getattr(torch.Tensor, name, None), name) else None


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
"""Types of functions that are nothing but their code."""


@cache
def _names_of_functions() -> dict[Any, str]:
    """Functions by the first of their names in modules that users call."""
    found: dict[Any, str] = {}
    modules: tuple[Any, ...] = (
        *(operator, torch, torch.nn.functional, torch.nn.init, torch.functional),
        *(torch.special, torch.linalg, torch.fft, torch.Tensor),
        *(vars(torch._C)[name] for name in ("_nn", "_special", "_linalg", "_fft") if name in vars(torch._C)),
    )
    for module in modules:
        for name, value in vars(module).items():
            if _is_of_torch(value, name):
                found.setdefault(value, f"{module.__name__}.{name}")
    return found


def _is_of_torch(value: Any, name: str) -> bool:
    """Whether a value of a module is the function of this name, rather than what somebody has put in its place."""
    if not isinstance(value, _FUNCTIONS) or value.__name__ != name:
        return False
    if isinstance(value, FunctionType):
        return value.__code__.co_filename.startswith(_FOLDER)
    module = getattr(value, "__module__", None)
    return module is None or module.partition(".")[0] in ("torch", "_operator")


_FOLDER = f"{Path(torch.__file__).parent}{os.sep}"


def argument_text(value: Any, is_static: bool) -> str | None:
    """All that is known of a tensor which a graph takes, real or fake, but for its elements; None for one of a
    subclass, of symbolic sizes, or in a layout that strides do not tell."""
    if not compat.is_fake(value) and not compat.is_plain_class(type(value)):
        return None
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return None
    sizes = (*value.shape, *value.stride(), value.storage_offset(), value.untyped_storage().nbytes())
    if not all(type(size) is int for size in sizes):
        return None
    facts = (
        *(value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), value.untyped_storage().nbytes()),
        *(value.device, value.requires_grad, value.is_leaf, value.is_conj(), value.is_neg(), value.is_inference()),
        *(isinstance(value, torch.nn.Parameter), is_static),
    )
    return repr(facts)


def are_apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no two tensors share memory."""
    return len(set(map(compat.storage_key, tensors))) == len(tensors)


def calls_compiler_alone() -> bool:
    """Whether what AOTAutograd makes of the inference graph that is being compiled calls what the compiler returns,
    with the same arguments, and returns what that does, with `dynamic_axes` marked, and has added no guards."""
    context = torch._guards.TracingContext.try_get()
    found = compat.traced_metadata()
    if context is None or found is None or context.guards_context.aotautograd_guards or compat_memory.guards_places():
        return False
    try:
        has_none_of = (
            *(found.num_mutated_inp_runtime_indices, found.num_mutated_graph_handled_indices),
            *(found.num_outputs_aliased, found.num_intermediate_bases, found.tokens),
            *(found.is_rng_op_functionalized, found.num_graphsafe_rng_states, getattr(found, "act_input_indices", ())),
        )
        metas = [*found.subclass_inp_meta, *found.subclass_fw_graph_out_meta]
    except AttributeError:
        return False
    changes_mode = found.grad_enabled_mutation is not None
    return not any(has_none_of) and not changes_mode and all(type(m).__name__ == "PlainTensorMeta" for m in metas)


def dynamic_axes() -> tuple[tuple[int, frozenset[int]], ...]:
    """Results of the graph that is being compiled whose sizes are symbolic: the number of each, and these axes."""
    found = compat.traced_metadata()
    infos = enumerate(() if found is None else found.output_info)
    return tuple([(number, frozenset(info.dynamic_dims)) for number, info in infos if info.dynamic_dims])


def mark_axes(tensor: torch.Tensor, axes: frozenset[int]) -> None:
    """Tell dynamo that sizes of a result are symbolic in the graph that it came from, as AOTAutograd does: a graph that
    takes it need not be compiled for its size first."""
    setattr(tensor, _name_of_mark(), set(axes))


@cache
def _name_of_mark() -> str:
    from torch._functorch._aot_autograd import runtime_wrappers

    # Since torch 2.13 such marks are apart from those of users.
    is_apart = hasattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices")
    return "_dynamo_propagated_dynamic_indices" if is_apart else "_dynamo_weak_dynamic_indices"


def has_symbols(node: fx.Node) -> bool:
    """Whether dynamo knows a value of a node by a symbol alone, as far as numbers and sizes go."""
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    for leaf in compat.leaves(node.meta.get("example_value")):
        numbers = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
        if any(isinstance(number, symbolic) for number in numbers):
            return True
    return False
