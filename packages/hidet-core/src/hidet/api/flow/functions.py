"""The functions of `hidet.ops`: operators by name, and in the words of hidet 0.6 where those differ.

    hidet.ops.relu(x), hidet.ops.matmul(a, b), hidet.ops.softmax(x, axis=1)

A name that stands in no table here is the operator of the graph IR of that name, with its attributes as keywords.

    products.py, movement.py, layers.py   functions that are more than an operator with other words
    examples.py                           a call of each, for its documentation
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any, cast

from hidet.api.flow import arithmetic, layers, movement, products
from hidet.api.flow.examples import example
from hidet.api.flow.operation import apply, apply_one, number_dtype
from hidet.api.tensors import create
from hidet.api.tensors.tensor import Tensor
from hidet.errors import suggestion
from hidet.graph.operator import REQUIRED, OperatorSpec
from hidet.plugins.attributes import find, names_of
from hidet.plugins.host import load_registry


def function(name: str) -> Callable[..., Any]:
    """What `hidet.ops.<name>` is. AttributeError where there is none."""
    found = _NAMED.get(name)
    if found is not None:
        return found
    if name in _FUNCTIONS or name in _ROWS:
        _NAMED[name] = _of_tables(name)
        return _NAMED[name]
    operator = load_registry().operators.get(name)
    if operator is None:
        if name in names_of("hidet.ops"):
            return cast("Callable[..., Any]", find("hidet.ops", name))
        raise AttributeError(f"hidet.ops has no operator {name!r}; {suggestion(name, names())}")
    known = _MADE.get(name)
    if known is None or known[0] is not operator:
        known = _MADE[name] = (operator, _made(name, operator))
    return known[1]


def names() -> list[str]:
    """What `hidet.ops` has."""
    return sorted({*_FUNCTIONS, *_ROWS, *load_registry().operators, *names_of("hidet.ops")})


_NAMED: dict[str, Callable[..., Any]] = {}
_MADE: dict[str, tuple[OperatorSpec, Callable[..., Any]]] = {}


def _of_tables(name: str) -> Callable[..., Any]:
    if name not in _ROWS:
        return named(name, _FUNCTIONS[name], example(name))
    operator, given = _ROWS[name]
    return named(name, given, example(name), _documentation(load_registry().operators[operator]))


def named(name: str, given: Callable[..., Any], shown: str, doc: str | None = None) -> Callable[..., Any]:
    """A function of `hidet.ops` with a name of its own, and the documentation of `given`, or `doc`, and an example."""
    assert isinstance(given, FunctionType)
    made = FunctionType(given.__code__, given.__globals__, name, given.__defaults__, given.__closure__)
    made.__kwdefaults__ = given.__kwdefaults__
    made.__annotations__ = given.__annotations__
    made.__qualname__ = name
    made.__module__ = "hidet.ops"
    made.__doc__ = (doc or given.__doc__ or "") + shown
    return made


def _made(name: str, operator: OperatorSpec) -> Callable[..., Any]:
    """The function that applies an operator: its only result, or a tuple of several; `help` tells what it takes."""

    def call(*inputs: Any, **attributes: Any) -> Any:
        results = apply(operator.name, inputs, attributes)
        return results[0] if len(results) == 1 else results

    call.__name__ = call.__qualname__ = name
    call.__module__ = "hidet.ops"
    call.__doc__ = _documentation(operator) + example(name)
    call.__signature__ = _signature(operator)  # type: ignore[attr-defined]  # what `inspect.signature` reads
    return call


def _documentation(operator: OperatorSpec) -> str:
    lines = [operator.doc or f"The operator {operator.name!r} of the graph IR."]
    told = [attribute for attribute in operator.attributes if attribute.doc]
    lines += ["", *[f"{attribute.name}: {attribute.doc}" for attribute in told]] if told else []
    return "\n".join(lines)


def _signature(operator: OperatorSpec) -> Signature:
    """Inputs by position, None where they may be absent; attributes by name."""
    optional = 0
    for name in reversed(operator.inputs):
        if not name.endswith(("?", "*")):
            break
        optional += 1
    required = len(operator.inputs) - optional
    parameters = []
    for number, name in enumerate(operator.inputs):
        kind = Parameter.VAR_POSITIONAL if name.endswith("*") else Parameter.POSITIONAL_ONLY
        has_default = number >= required and kind is not Parameter.VAR_POSITIONAL
        parameters.append(Parameter(name.rstrip("?*"), kind, default=None if has_default else Parameter.empty))
    for attribute in operator.attributes:
        default = Parameter.empty if attribute.default is REQUIRED else attribute.default
        parameters.append(Parameter(attribute.name, Parameter.KEYWORD_ONLY, default=default))
    return Signature(parameters)


def _unary(operator: str) -> Callable[..., Tensor]:
    return lambda x: apply_one(operator, x)


def _binary(operator: str) -> Callable[..., Tensor]:
    return lambda x, y: arithmetic.compute(operator, x, y)


def _reduction(operator: str) -> Callable[..., Tensor]:
    return lambda x, dims=None, keep_dim=False: apply_one(operator, x, axes=_axes(dims), keepdim=keep_dim)


def _spread(operator: str) -> Callable[..., Tensor]:
    return lambda x, dims=None, keep_dim=False, correction=0: apply_one(
        operator, x, axes=_axes(dims), keepdim=keep_dim, correction=correction
    )


def _truth(operator: str) -> Callable[..., Tensor]:
    return lambda x, axis=None, keepdims=False: apply_one(operator, x, axes=_axes(axis), keepdim=keepdims)


def _axes(dims: Any) -> list[int] | None:
    return None if dims is None else movement.listed(dims)


_SAME = {
    **dict.fromkeys(("add", "remainder", "pow", "atan2", "logaddexp", "bitwise_and", "bitwise_or", "bitwise_xor")),
    **dict.fromkeys(("equal", "not_equal", "less", "greater", "less_equal", "greater_equal")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor")),
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "mod": "fmod",
    "bitwise_left_shift": "shift_left",
    "bitwise_right_shift": "shift_right",
}
"""Operators of two tensors, and what the graph IR calls them where that differs."""

_ROWS: dict[str, tuple[str, Callable[..., Tensor]]] = {
    **{name: (operator or name, _binary(operator or name)) for name, operator in _SAME.items()},
    "negative": ("neg", _unary("neg")),
    "bitwise_invert": ("bitwise_not", _unary("bitwise_not")),
    "logsigmoid": ("log_sigmoid", _unary("log_sigmoid")),
    **{name: (name, _reduction(name)) for name in ("sum", "mean", "prod")},
    "max": ("amax", _reduction("amax")),
    "min": ("amin", _reduction("amin")),
    **{name: (name, _spread(name)) for name in ("var", "std")},
    **{name: (name, _truth(name)) for name in ("any", "all")},
    **{name: (name, layers.argument(name)) for name in ("argmin", "argmax")},
    **{name: (name, layers.extreme(name)) for name in ("maximum", "minimum")},
    "prelu": ("prelu", lambda x, slope: apply_one("prelu", x, slope)),
    "softmax": ("softmax", lambda x, axis=1: apply_one("softmax", x, axis=axis)),
    "logsoftmax": ("log_softmax", lambda x, axis=1: apply_one("log_softmax", x, axis=axis)),
    "gelu": (
        "gelu",
        lambda x, approximate=False: apply_one("gelu", x, approximate="tanh" if approximate else "none"),
    ),
    "clip": ("clamp", lambda x, min_val=None, max_val=None: apply_one("clamp", x, min=min_val, max=max_val)),
    "hardtanh": (
        "clamp",
        lambda x, min_val=-1.0, max_val=1.0, inplace=False: apply_one("clamp", x, min=min_val, max=max_val),
    ),
    "leaky_relu": ("leaky_relu", lambda x, alpha=0.01: apply_one("leaky_relu", x, negative_slope=alpha)),
    "celu": ("celu", lambda x, alpha=1.0: apply_one("celu", x, alpha=alpha)),
    "hardshrink": ("hardshrink", lambda x, lambda_val=0.5: apply_one("hardshrink", x, lambd=lambda_val)),
    "softshrink": ("softshrink", lambda x, lambda_val=0.5: apply_one("softshrink", x, lambd=lambda_val)),
    "softplus": (
        "softplus",
        lambda x, beta=1, threshold_val=20: apply_one("softplus", x, beta=beta, threshold=threshold_val),
    ),
    "instance_norm": (
        "instance_norm",
        lambda x, epsilon=1e-5, accumulate_dtype="float32": apply_one("instance_norm", x, None, None, eps=epsilon),
    ),
    "layer_norm": (
        "layer_norm",
        lambda x, num_last_dims=1, epsilon=1e-5, accumulate_dtype="float32": apply_one(
            "layer_norm", x, None, None, rank=num_last_dims, eps=epsilon
        ),
    ),
    "group_norm": (
        "group_norm",
        lambda x, num_groups, epsilon=1e-5, accumulate_dtype="float32": apply_one(
            "group_norm", x, None, None, groups=num_groups, eps=epsilon
        ),
    ),
    **{
        f"max_pool{axes}d": (
            "max_pool",
            lambda x, kernel, stride=None, padding=0, ceil_mode=False: apply_one(
                "max_pool", x, kernel=_extents(x, kernel), stride=stride, padding=_pads(x, padding), ceil_mode=ceil_mode
            ),
        )
        for axes in (2, 3)
    },
    **{
        f"avg_pool{axes}d": (
            "avg_pool",
            lambda x, kernel, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None: (
                apply_one(
                    "avg_pool",
                    x,
                    kernel=_extents(x, kernel),
                    stride=stride,
                    padding=_pads(x, padding),
                    ceil_mode=ceil_mode,
                    count_include_pad=count_include_pad,
                    divisor_override=divisor_override,
                )
            ),
        )
        for axes in (2, 3)
    },
    **{
        f"adaptive_{kind}_pool{axes}d": (
            f"adaptive_{kind}_pool",
            layers.adaptive_pool(f"adaptive_{kind}_pool", axes),
        )
        for kind in ("avg", "max")
        for axes in (1, 2, 3)
    },
    "cumsum": (
        "cumsum",
        lambda x, dim, exclusive=False, reverse=False: apply_one(
            "cumsum", x, axis=dim, exclusive=exclusive, reverse=reverse
        ),
    ),
    "im2col": (
        "im2col",
        lambda x, kernel_size, dilation=1, padding=0, stride=1: apply_one(
            "im2col", x, kernel=_extents(x, kernel_size), dilation=dilation, padding=padding, stride=stride
        ),
    ),
    "as_strided": (
        "as_strided",
        lambda x, size, stride, storage_offset=None: apply_one(
            "as_strided", x, shape=movement.listed(size), strides=movement.listed(stride), offset=storage_offset or 0
        ),
    ),
    "flip": ("flip", lambda x, dims: apply_one("flip", x, axes=movement.listed(dims))),
    "tile": ("tile", lambda data, repeats: apply_one("tile", data, repeats=list(repeats))),
    "gather": ("gather", lambda data, indices, axis=0: apply_one("gather", data, indices, axis=axis)),
    "index_select": ("index_select", lambda data, index, dim: apply_one("index_select", data, index, axis=dim)),
    "triu": ("triu", lambda x, diagonal=0: apply_one("triu", x, offset=diagonal)),
    "tril": ("tril", lambda x, diagonal=0: apply_one("tril", x, offset=diagonal)),
}
"""Operators in the words of hidet 0.6: the name of the operator, and a function with its parameters. accumulate_dtype:
sums are kept in f32, or wider, whatever it says."""


def _pads(x: Tensor, padding: Any) -> Any:
    return products.pads_of(padding, len(x.shape) - 2)


def _extents(x: Tensor, kernel: Any) -> list[int]:
    return [kernel] * (len(x.shape) - 2) if isinstance(kernel, int) else list(kernel)


def _full(shape: Sequence[int], value: Any, dtype: Any = None, device: str = "cpu") -> Tensor:
    """A tensor of one value, and of its type where none is given: bool, int64 or float32."""
    number = value.item() if isinstance(value, Tensor) else value
    kind = "bool" if isinstance(number, bool) else "int64" if isinstance(number, int) else "float32"
    return create.full(shape, number, kind if dtype is None else dtype, device)


def _tri(n: int, m: int | None = None, k: int = 0, dtype: Any = "float32", device: str = "cpu") -> Tensor:
    """A matrix [n, m] of ones up to the diagonal that lies k right of the main one, of zeros behind it."""
    made = apply_one("tri", rows=n, columns=n if m is None else m, offset=k, dtype=number_dtype(dtype))
    return made.to(device=device)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{made.__name__: made for made in (products.matmul, products.matmul_nt)},
    "attention": products.attention,
    "einsum": products.einsum,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), products.conv),
    **dict.fromkeys(("conv1d_transpose", "conv2d_transpose", "conv3d_transpose"), products.conv_transpose),
    **{
        made.__name__: made
        for made in (
            *(movement.concat, movement.transpose, movement.reshape, movement.view, movement.squeeze),
            *(movement.unsqueeze, movement.expand_dims, movement.flatten, movement.rearrange),
            *(movement.broadcast, movement.cast, movement.take, movement.split, movement.strided_slice, movement.pad),
            *(movement.repeat_interleave, movement.roll, layers.clamp),
        )
    },
    "permute_dims": movement.transpose,
    "full": _full,
    "tri": _tri,
    "arange": create.arange,
    "linspace": create.linspace,
}
"""What is more than an operator in other words."""
