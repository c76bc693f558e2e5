"""The functions of `hidet.ops`: operators by name, and in the words of earlier versions where those differ.

    hidet.ops.relu(x), hidet.ops.matmul(a, b), hidet.ops.softmax(x, axis=1)

A name that stands in no table here is the operator of the graph IR of that name, with its attributes as keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from hidet.api.flow.operation import apply, number_dtype
from hidet.api.tensors.tensor import Tensor
from hidet.errors import ShapeError, suggestion
from hidet.graph.operator import REQUIRED, OperatorSpec
from hidet.plugins.host import load_registry

Numbers = int | Sequence[int]


def function(name: str) -> Callable[..., Any]:
    """What `hidet.ops.<name>` is. AttributeError where there is none."""
    found = _FUNCTIONS.get(name)
    if found is not None:
        return found
    operator = load_registry().operators.get(_OTHER_NAMES.get(name, name))
    if operator is None:
        raise AttributeError(f"hidet.ops has no operator {name!r}; {suggestion(name, names())}")
    known = _MADE.get(name)
    if known is None or known[0] is not operator:
        known = _MADE[name] = (operator, _made(name, operator))
    return known[1]


def names() -> list[str]:
    """What `hidet.ops` has."""
    return sorted({*_FUNCTIONS, *_OTHER_NAMES, *load_registry().operators})


_MADE: dict[str, tuple[OperatorSpec, Callable[..., Any]]] = {}


def _made(name: str, operator: OperatorSpec) -> Callable[..., Any]:
    """The function that applies an operator: its only result, or a tuple of several; `help` tells what it takes."""

    def call(*inputs: Any, **attributes: Any) -> Any:
        results = apply(operator.name, inputs, attributes)
        return results[0] if len(results) == 1 else results

    call.__name__ = call.__qualname__ = name
    call.__module__ = "hidet.ops"
    call.__doc__ = _documentation(operator)
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


_OTHER_NAMES = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "negative": "neg",
    "mod": "fmod",
    "bitwise_invert": "bitwise_not",
    "bitwise_left_shift": "shift_left",
    "bitwise_right_shift": "shift_right",
    "logsigmoid": "log_sigmoid",
}
"""Operators by the names of earlier versions, which take the same."""


def matmul(a: Tensor, b: Tensor, require_prologue: bool = False) -> Tensor:
    """The product of matrices; axes before the last two broadcast. require_prologue: a matter of the compiler now."""
    return _one("matmul", a, b)


def matmul_nt(a: Tensor, b: Tensor, require_prologue: bool = False) -> Tensor:
    """`matmul` of a matrix that is stored transposed: b is [..., n, k]."""
    return _one("matmul", a, b, trans_b=True)


def conv(
    data: Tensor, weight: Tensor, stride: Any = 1, dilations: Any = 1, groups: int = 1, padding: Any = 0
) -> Tensor:
    """A convolution of images [n, c, ...] with filters [o, c / groups, ...]."""
    return _one("conv", data, weight, stride=stride, padding=padding, dilation=dilations, groups=groups)


def softmax(x: Tensor, axis: int = 1) -> Tensor:
    """exp(x) divided by its sum along an axis: numbers from 0 to 1 whose sum there is 1."""
    return _one("softmax", x, axis=axis)


def logsoftmax(x: Tensor, axis: int = 1) -> Tensor:
    """The logarithm of `softmax`."""
    return _one("log_softmax", x, axis=axis)


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    """x Phi(x); approximate: by tanh."""
    return _one("gelu", x, approximate="tanh" if approximate else "none")


def clip(x: Tensor, min_val: float | None = None, max_val: float | None = None) -> Tensor:
    """x, limited to lie between two numbers; None for no bound."""
    return _one("clamp", x, min=min_val, max=max_val)


def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    """x, or alpha x where it is negative."""
    return _one("leaky_relu", x, negative_slope=alpha)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """softmax(q k + mask) v, where k [..., width, keys] is transposed, and q or k scaled already."""
    turned = transpose(k, [*range(len(k.shape) - 2), len(k.shape) - 1, len(k.shape) - 2])
    return _one("attention", q, turned, v, mask, scale=1.0, is_causal=is_causal)


def layer_norm(x: Tensor, num_last_dims: int = 1, epsilon: float = 1e-5, accumulate_dtype: str = "float32") -> Tensor:
    """x, normalised along its last dims to mean 0 and variance 1, without weights; sums are kept in f32."""
    return _one("layer_norm", x, None, None, rank=num_last_dims, eps=epsilon)


def concat(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The tensors, one behind the other along an axis."""
    return _one("concat", *tensors, axis=axis)


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """x with its dims in another order; None is the reverse one."""
    return _one("transpose", x, perm=list(reversed(range(len(x.shape)))) if axes is None else list(axes))


def reshape(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """x with other extents; one of them may be -1."""
    return _one("reshape", x, shape=list(shape))


def squeeze(x: Tensor, dims: Numbers) -> Tensor:
    """x without dims of extent 1."""
    return _one("squeeze", x, axes=_listed(dims))


def unsqueeze(x: Tensor, dims: Numbers) -> Tensor:
    """x with new dims of extent 1."""
    return _one("unsqueeze", x, axes=_listed(dims))


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """x with several dims as one."""
    return _one("flatten", x, start=start_dim, end=end_dim)


def broadcast(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """x with dims of extent 1 repeated."""
    return _one("expand", x, shape=list(shape))


def cast(x: Tensor, dtype: Any) -> Tensor:
    """x with elements of another type."""
    return _one("cast", x, dtype=number_dtype(dtype))


def take(data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """Rows of `data` along an axis by the numbers in `indices`, whose shape takes the axis' place."""
    if len(indices.shape) == 1:
        return _one("index_select", data, indices, axis=axis)
    if axis != 0:
        raise ShapeError(f"take along axis {axis} wants indices of one dim, got {len(indices.shape)}")
    return _one("index", data, indices)


def split(x: Tensor, parts_or_sections: Numbers, axis: int = 0) -> list[Tensor]:
    """Parts along an axis: so many equal ones, or of these extents."""
    extent: Any = x.shape[axis]
    if isinstance(parts_or_sections, int):
        if extent % parts_or_sections:
            raise ShapeError(f"{extent} elements along axis {axis} make no {parts_or_sections} equal parts")
        sections = [extent // parts_or_sections] * parts_or_sections
    else:
        sections = list(parts_or_sections)
    parts, start = [], 0
    for section in sections:
        parts.append(part(x, {axis % len(x.shape): (start, start + section, 1)}))
        start += section
    return parts


def part(x: Tensor, ranges: dict[int, tuple[Any, Any, int]]) -> Tensor:
    """Some elements along axes: (start, stop, step) by axis."""
    whole = [(0, extent, 1) for extent in x.shape]
    chosen = [ranges.get(axis, everything) for axis, everything in enumerate(whole)]
    starts, stops, steps = (list(numbers) for numbers in zip(*chosen, strict=True))
    return _one("slice", x, starts=starts, stops=stops, steps=steps)


def getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]` for integers, slices, None and ...; a tensor of integers takes rows."""
    if isinstance(index, Tensor):
        return take(x, index)
    items = list(index) if isinstance(index, tuple) else [index]
    if ... in items:
        at = items.index(...)
        count = len(x.shape) - sum(item is not None for item in items) + 1
        items[at : at + 1] = [slice(None)] * count
    axis, new, ranges, numbers = 0, [], {}, []
    for place, item in enumerate(items):
        if item is None:
            new.append(place)
            continue
        if axis >= len(x.shape):
            raise ShapeError(f"a tensor of {len(x.shape)} dims has no dim {axis}")
        if isinstance(item, slice):
            ranges[axis] = item.indices(x.shape[axis])
        else:
            extent: Any = x.shape[axis]
            if not -extent <= item < extent:
                raise IndexError(f"index {item} of dim {axis} is outside of its {extent} elements")
            ranges[axis] = (item % extent, item % extent + 1, 1)
            numbers.append((place, axis))
        axis += 1
    taken = part(x, ranges)
    if numbers:
        taken = squeeze(taken, [axis for _, axis in numbers])
    dropped = [place for place, _ in numbers]
    places = [place - sum(d < place for d in dropped) for place in new]
    return unsqueeze(taken, places) if places else taken


def _listed(dims: Numbers) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims)


def _one(operator: str, *inputs: Any, **attributes: Any) -> Tensor:
    (result,) = apply(operator, inputs, attributes)
    return result


def _reduction(operator: str) -> Callable[..., Tensor]:
    def reduce(x: Tensor, dims: Numbers | None = None, keep_dim: bool = False, **more: Any) -> Tensor:
        axes = None if dims is None else _listed(dims)
        return _one(operator, x, axes=axes, keepdim=keep_dim, **more)

    reduce.__doc__ = f"The {operator} along dims, None for all; `keep_dim` leaves them with extent 1."
    reduce.__name__ = reduce.__qualname__ = operator
    return reduce


def _window(operator: str) -> Callable[..., Tensor]:
    def pool(x: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, **more: Any) -> Tensor:
        return _one(operator, x, kernel=kernel, stride=kernel if stride is None else stride, padding=padding, **more)

    pool.__doc__ = f"{operator} over windows of images [n, c, ...]."
    pool.__name__ = pool.__qualname__ = operator
    return pool


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{made.__name__: made for made in (matmul, matmul_nt, softmax, logsoftmax, gelu, clip, leaky_relu, attention)},
    **{made.__name__: made for made in (layer_norm, concat, transpose, reshape, squeeze, unsqueeze, flatten)},
    **{made.__name__: made for made in (broadcast, cast, take, split)},
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), conv),
    **{name: _reduction(name) for name in ("sum", "mean", "prod", "var", "std", "argmin", "argmax", "any", "all")},
    "max": _reduction("amax"),
    "min": _reduction("amin"),
    **dict.fromkeys(("max_pool2d", "max_pool3d"), _window("max_pool")),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _window("avg_pool")),
    "expand_dims": unsqueeze,
    "permute_dims": transpose,
}
