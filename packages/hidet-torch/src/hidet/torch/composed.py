"""aten operators written in others, which AOTAutograd traces instead of them: those that torch does not take apart.

Each function has the signature of its operator, and overwrites nothing: it is traced after functionalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import log1p, prod
from typing import Any

import torch
from hidet.torch import compat
from hidet.torch.encoder import encoder_layer, multi_head_attention
from torch import Tensor

Number = bool | int | float


@cache
def composed() -> Mapping[Any, Callable[..., Any]]:
    """Operator -> function."""
    return {operator: _FUNCTIONS[name] for name, operator in compat.operators_of(_FUNCTIONS).items()}


def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Sums of products are products of longer rows."""
    rows = a.transpose(0, 1).reshape(a.shape[1], a.shape[0] * a.shape[2])
    return torch.addmm(x, rows, b.reshape(b.shape[0] * b.shape[1], b.shape[2]), beta=beta, alpha=alpha)


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    product: Tensor | None = None
    for factor, axes in ((a, expand1), (b, expand2), (c, expand3)):
        for axis in sorted(axes):
            factor = factor.unsqueeze(axis)
        product = factor if product is None else product * factor
    assert product is not None
    return product.sum(tuple(sumdim)) if sumdim else product


def _median(x: Tensor) -> Tensor:
    if _has_nothing(x):
        return x.new_full((), _of_nothing(x.dtype))
    return x.flatten().median(0).values


def _has_nothing(x: Tensor) -> bool:
    """Whether a tensor surely has no elements; asking a symbolic extent would add a guard."""
    extents: Sequence[object] = x.shape
    return any(type(extent) is int and extent == 0 for extent in extents)


def _of_nothing(dtype: torch.dtype) -> float | int:
    """What torch gives as the median of no elements: NaN, or what it converts that to."""
    if dtype.is_floating_point:
        return float("nan")
    if dtype == torch.bool:
        return 1
    # The processor converts to 32 bits at least, and narrow types keep the low ones.
    return torch.iinfo(dtype).min if dtype.itemsize >= 4 else 0


def _nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """NaN is sorted last; the middle of what stands before."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, order = torch.sort(x, dim=dim, stable=True)
    count = torch.isnan(x).logical_not().sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp(min=0)
    found = values.gather(dim, middle), order.gather(dim, middle)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _nanmedian_of_all(x: Tensor) -> Tensor:
    if _has_nothing(x):
        return x.new_full((), _of_nothing(x.dtype))
    return _nanmedian(x.flatten(), 0)[0]


def _index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    if x.dim() == 0:
        x, source = x.unsqueeze(0), source.reshape(-1)
        return _index_reduce(x, 0, index.reshape(-1), source, reduce, include_self=include_self).squeeze(0)
    shape = [1] * source.dim()
    shape[dim] = -1
    places = index.to(torch.int64).reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = x.reshape(-1)
    return torch.index_put(flat, (index.reshape(-1),), source.reshape(-1), accumulate).reshape(x.shape)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """torch's own makes a number of an index without axes, which depends on data."""
    taken: Tensor = torch.ops.aten.index(x.reshape(-1), [index])
    return taken


def _nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Each place that is not zero is written to its number, those after `size` of them, and the others, behind all."""
    chosen = (x != 0).reshape(-1)
    number = torch.cumsum(chosen, 0) - 1
    target = torch.where(chosen & (number < size), number, size)
    place = torch.arange(chosen.shape[0], device=x.device)
    found = torch.full((size + 1,), -1, dtype=torch.int64, device=x.device).scatter(0, target, place)[:size]
    columns, rest = [], found.clamp(min=0)
    for extent in reversed(x.shape):
        columns.append(torch.where(found < 0, fill_value, rest % extent))
        rest = rest // extent
    if not columns:
        return torch.empty((size, 0), dtype=torch.int64, device=x.device)
    return torch.stack(columns[::-1], 1)


def _distances(x: Tensor, p: float = 2.0) -> Tensor:
    """Between every row and all later ones."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device).unbind(0)
    distances: Tensor = torch.linalg.vector_norm(x[first] - x[second], p, -1)
    return distances


def _geometric(x: Tensor, p: float, generator: object = None) -> Any:
    """How many trials until one succeeds, from a uniform number; as many as float64 tells apart for whole numbers.
    NotImplemented, which leaves it to torch, for what torch may refuse."""
    if generator is not None or not 0 < p < 1 or x.dtype == torch.bool or x.is_complex():
        return NotImplemented
    wide = torch.float32 if x.is_floating_point() and x.dtype != torch.float64 else torch.float64
    uniform = torch.rand_like(x, dtype=wide)
    return (torch.floor(torch.log1p(-uniform) / log1p(-p)) + 1).to(x.dtype)


def _multinomial(
    weights: Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None
) -> Any:
    """With replacement, by searching uniform numbers among the running sums; without, the largest weights after each is
    divided by an exponential number (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006)."""
    if generator is not None:
        return NotImplemented
    wide = weights.to(torch.float64 if weights.dtype == torch.float64 else torch.float32)
    if not replacement or num_samples == 1:
        drawn = -torch.log1p(-torch.rand(wide.shape, dtype=wide.dtype, device=wide.device))
        return torch.topk(wide / drawn.clamp_min(torch.finfo(wide.dtype).tiny), num_samples, dim=-1).indices
    sums = torch.cumsum(wide, -1)
    uniform = torch.rand((*weights.shape[:-1], num_samples), dtype=wide.dtype, device=weights.device)
    found = torch.searchsorted(sums, uniform * sums[..., -1:], right=True)
    # A product that was rounded up to the whole sum is the last one that has a weight.
    last = (wide.shape[-1] - 1) - (wide > 0).to(torch.int64).flip(-1).argmax(-1, keepdim=True)
    return torch.minimum(found, last)


def _normal(mean: Tensor | float = 0.0, std: Tensor | float = 1.0, *size: Any, **layout: Any) -> Any:
    """`mean` plus `std` times standard normal numbers, of their shape or of a given one."""
    if layout.pop("generator", None) is not None:
        return NotImplemented
    if size:
        return torch.randn(*size, **layout) * std + mean
    given = [value for value in (mean, std) if isinstance(value, Tensor)]
    shape = given[0].shape if len(given) == 1 else (given[0] + given[1]).shape
    return torch.randn(shape, dtype=given[0].dtype, device=given[0].device) * std + mean


def _rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """Negative elements times slopes that are drawn in training; and these slopes, 1 elsewhere."""
    if generator is not None:
        return NotImplemented
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise.clone()
    slope = torch.rand(x.shape, dtype=x.dtype, device=x.device) * (upper - lower) + lower
    slope = torch.where(x <= 0, slope, 1.0)
    return x * slope, slope


def _embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are read, made no longer than `max_norm`."""
    rows = weight[indices.reshape(-1)]
    norms = torch.linalg.vector_norm(rows, norm_type, 1, keepdim=True)
    shorter = torch.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
    return torch.index_put(weight, (indices.reshape(-1),), shorter)


def _fractional_max_pool(
    x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Windows begin at floor((i + u) * a) - floor(u * a), where a spreads them and u is drawn for each channel; the
    last one ends with the image (Graham, "Fractional max-pooling", 2014)."""
    axes = len(kernel_size)
    lead, space = x.shape[:-axes], x.shape[-axes:]
    # One sample an axis: of images the innermost axis first, of volumes the outermost one.
    drawn = samples.reshape(*(lead if len(lead) == 2 else (1, *lead)), axes).reshape(*lead, axes)
    place: Tensor | None = None
    for axis, (extent, kernel, count) in enumerate(zip(space, kernel_size, output_size, strict=True)):
        sample = drawn[..., axis if axes == 3 else axes - 1 - axis].unsqueeze(-1)
        number = torch.arange(count, dtype=samples.dtype, device=x.device)
        spread = (extent - kernel) / (count - 1) if count > 1 else 0.0
        start = ((number + sample) * spread).to(torch.int64) - (sample * spread).to(torch.int64)
        start = torch.where(number < count - 1, start, extent - kernel)
        taps = start.unsqueeze(-1) + torch.arange(kernel, device=x.device)
        shape = [*lead, *[1] * (2 * axes)]
        shape[len(lead) + axis], shape[len(lead) + axes + axis] = count, kernel
        taps = taps.reshape(shape)
        place = taps if place is None else place * extent + taps
    assert place is not None
    place = place.reshape(*lead, *output_size, prod(kernel_size))
    values = x.flatten(-axes).gather(-1, place.flatten(len(lead))).reshape(place.shape)
    found = values.max(-1)
    return found.values, place.gather(-1, found.indices.unsqueeze(-1)).squeeze(-1)


def _fractional_max_pool_backward(
    grad: Tensor, x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], indices: Tensor
) -> Tensor:
    axes = len(kernel_size)
    zeros = torch.zeros_like(x).flatten(-axes)
    return zeros.scatter_add(-1, indices.flatten(-axes), grad.flatten(-axes)).reshape(x.shape)


_COMPARISONS = 1 << 28
"""Comparisons of all elements with all others that take less than sorting would by far, or a fraction of a second."""


def _isin(elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element is among others, without torch's comparison of their numbers, which is a guard where these
    are symbolic; NotImplemented, which leaves it to torch, for very many of both."""
    numbers = [_likely_number(tensor.numel()) for tensor in (elements, test_elements)]
    if prod(numbers) > _COMPARISONS:
        return NotImplemented
    found = (elements.unsqueeze(-1) == test_elements.flatten()).any(-1)
    return found.logical_not() if invert else found


def _likely_number(number: int | torch.SymInt) -> int:
    """What a number was when it was traced; 0 where nobody knew."""
    return (compat.size_hint(number) or 0) if isinstance(number, torch.SymInt) else number


def _counted_from_the_front(operator: Callable[..., Any], axis: int, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Argument number `axis` or keyword "dim" counted from the first axis; NotImplemented, which keeps the operator,
    where it is."""
    given = list(args)
    dim = given[axis] if len(given) > axis else kwargs.get("dim")
    if dim is None or dim >= 0:
        return NotImplemented
    # Of a tensor without axes, -1 and 0 are the same.
    dim += max(x.dim(), 1)
    if len(given) > axis:
        given[axis] = dim
    else:
        kwargs = {**kwargs, "dim": dim}
    return operator(x, *given, **kwargs)


@cache
def corrected() -> Mapping[Any, Callable[..., Any]]:
    """Operator -> function that calls it with arguments for which torch traces the right shapes."""
    found = compat.operators_of(_AXES)
    return {operator: partial(_counted_from_the_front, operator, _AXES[name]) for name, operator in found.items()}


_AXES: Mapping[str, int] = {"aten.unique_dim.default": 0, "aten.unique_consecutive.default": 2}
"""Operators whose shapes torch traces wrongly for an axis counted from the last, by which argument behind the first it
is."""

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "aten._transformer_encoder_layer_fwd.default": encoder_layer,
    "aten._native_multi_head_attention.default": multi_head_attention,
    "aten.addbmm.default": _addbmm,
    "aten._trilinear.default": _trilinear,
    "aten.median.default": _median,
    "aten.nanmedian.default": _nanmedian_of_all,
    "aten.nanmedian.dim": _nanmedian,
    "aten.index_reduce.default": _index_reduce,
    "aten.isin.Tensor_Tensor": _isin,
    "aten.put.default": _put,
    "aten.take.default": _take,
    "aten.nonzero_static.default": _nonzero_static,
    "aten._pdist_forward.default": _distances,
    "aten.rrelu_with_noise_functional.default": _rrelu,
    "aten.embedding_renorm.default": _embedding_renorm,
    "aten.normal.Tensor_Tensor": _normal,
    "aten.normal.Tensor_float": _normal,
    "aten.normal.float_Tensor": _normal,
    "aten.normal.float_float": _normal,
    "aten.geometric.default": _geometric,
    "aten.multinomial.default": _multinomial,
    "aten.fractional_max_pool2d.default": _fractional_max_pool,
    "aten.fractional_max_pool3d.default": _fractional_max_pool,
    "aten.fractional_max_pool2d_backward.default": _fractional_max_pool_backward,
    "aten.fractional_max_pool3d_backward.default": _fractional_max_pool_backward,
}
"""Functions by the names of their operators."""
