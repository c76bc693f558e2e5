"""Random statements of torch programs: views, writes, casts, indexing, arithmetic, reductions, products, layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tests.fuzz.torch_writer import FLOATS, INTEGERS, Unfit, Writer, broadcasts

Made = tuple[str, Sequence[str]]
"""Text of a statement, and the names that it reads."""


def write(w: Writer) -> bool:
    """Try one more statement; whether it was kept."""
    kind = w.source.choices(tuple(KINDS), WEIGHTS)[0]
    name = f"v{w.count}"
    try:
        text, reads = KINDS[kind](w, name)
    except (Unfit, IndexError, ValueError):
        return False
    return w.keeps(text, name, reads, is_exact=kind in EXACT_KINDS)


def _index(w: Writer, name: str) -> str:
    """Slices, positions and new axes in brackets."""
    items = []
    for axis in range(w.source.randint(1, max(1, w.value(name).dim()))):
        extent, choice = w.extent(name, axis), w.source.random()
        if choice < 0.2 and extent:
            items.append(str(w.source.randrange(-extent, extent)))
        elif choice < 0.3:
            items.append("None")
        elif choice < 0.5:
            items.append(":")
        else:
            first = w.source.choice(("", "", "1", "-2", "2", f"{name}.shape[{axis}] // 2"))
            last = w.source.choice(("", "", "-1", "3", "100", str(extent)))
            items.append(f"{first}:{last}" + w.source.choice(("", "", ":2", ":3")))
    if w.source.random() < 0.15:
        items.insert(0, "...")
    return f"[{', '.join(items)}]"


def _view_text(w: Writer, v: str) -> str:
    rank = w.value(v).dim()
    a, b = (w.axis(v), w.axis(v)) if rank else (0, 0)
    extent = w.extent(v, a) if rank else 0
    shape = w.value(v).shape
    order = w.source.sample(range(rank), rank)
    choices = [
        f"{v}.reshape(-1)",
        f"{v}.unsqueeze({w.source.randint(-rank - 1, rank)})",
        f"{v}.view_as({v})",
        f"{v}.detach()",
    ]
    if not rank:
        return w.source.choice((*choices, f"{v}.expand(3)", f"{v}.expand(2, {w.size()})"))
    choices += [
        *[f"{v}{_index(w, v)}"] * 5,
        f"{v}.transpose({a}, {b})",
        f"{v}.permute({', '.join(map(str, order))})",
        f"{v}.select({a}, {w.source.randint(0, max(extent - 1, 0))})",
        f"{v}.narrow({a}, {w.source.randint(0, 1)}, {max(extent - 1, 0)})",
        f"{v}.unfold({a}, {w.source.randint(1, 3)}, {w.source.randint(1, 3)})",
        f"{v}.unfold({a}, {w.source.randint(1, 3)}, {w.source.randint(1, 3)})",
        f"{v}.squeeze()",
        f"{v}.squeeze({a})",
        f"{v}.movedim({a}, {b})",
        f"{v}.mT",
        f"{v}.flatten({w.source.randrange(rank)})",
        f"{v}.unbind({a})[{w.source.randint(-1, 0)}]",
        f"{v}.chunk(2, {a})[{w.source.randint(-1, 0)}]",
        f"{v}.split({w.source.randint(1, 3)}, {a})[0]",
        f"{v}.tensor_split(2, {a})[-1]",
        f"{v}.unsqueeze(0).expand(2, {', '.join(['-1'] * rank)})",
        f"{v}.expand({v}.shape[0], {', '.join(['-1'] * rank)})",
        f"{v}.expand({w.size()}, {', '.join(['-1'] * rank)})",
        f"{v}.reshape({v}.shape[0], -1)",
        f"{v}.reshape(-1, {v}.shape[-1])",
        f"{v}.view({v}.shape[0], -1)",
        f"{v}.view(-1, {v}.shape[-1])",
        f"{v}.unflatten({a}, (-1, {w.source.choice((1, 2, 3))}))",
        f"{v}.as_strided(({shape[0]}, 2), (1, 1), {w.source.randint(0, 2)})",
        f"{v}.as_strided((2, 3), ({w.source.choice((3, 1, 0))}, 1))",
        f"torch.broadcast_to({v}, (2, *{v}.shape))",
        f"torch.atleast_3d({v})",
    ]
    if rank > 1:
        c, d = w.source.sample(range(rank), 2)
        offset = w.source.randint(-1, 1)
        choices += [f"{v}.diagonal({offset}, {c}, {d})"] * 2 + [f"{v}.swapaxes({c}, {d})", f"{v}.flatten(0, 1)"]
    return w.source.choice(choices)


def _view(w: Writer, name: str) -> Made:
    v = w.any()
    return f"{name} = {_view_text(w, v)}", (v,)


def _copied(w: Writer, name: str) -> Made:
    """Results with memory of their own that hold what their arguments hold."""
    v = w.any()
    u = w.like(v)
    a = w.axis(v)
    text = w.source.choice(
        (
            f"{v}.contiguous()",
            f"{v}.clone()",
            f"{v}.flip({a})",
            f"{v}.roll({w.source.randint(-2, 3)}, {a})",
            f"torch.cat([{v}, {v}], {a})",
            f"torch.cat([{v}, {u}.expand_as({v})], {a})",
            f"torch.cat([{v}, {u}.expand_as({v}).to({v}.dtype)[1:]], 0)",
            f"torch.stack([{v}, {v}], {a})",
            f"torch.stack([{v}.expand_as({u}), {u}.to({v}.dtype)])",
            f"{v}.repeat({', '.join(str(w.source.randint(1, 2)) for _ in range(w.value(v).dim()))})",
            f"{v}.repeat_interleave(2, {a})",
            f"torch.tile({v}, (2,))",
            f"{v}.tril()",
            f"{v}.triu({w.source.randint(-1, 1)})",
            f"{v}.diag_embed()",
            f"F.pad({v}, ({w.source.randint(-1, 2)}, {w.source.randint(0, 2)}), value={w.number(v)})",
            f"F.pad({v}, (1, 1, 0, {w.source.randint(0, 2)}))",
            f"F.pad({v}, (1, 1), mode={w.source.choice(('reflect', 'replicate', 'circular'))!r})",
            f"torch.where({w.truth()}, {v}, {v}.flip(0))",
            f"{v} if {w.truth()} else {v}.flip({a})",
            f"{v} + 1 if {w.truth()} else {v} * 2",
            f"torch.cond({w.truth()}, lambda t: t + 1, lambda t: t * 2, ({v},))",
            f"torch.zeros_like({v})",
            f"torch.full_like({v}, {w.number(v)})",
            f"{v}.new_zeros({v}.shape[0], 2) + {w.number(v)}",
            f"torch.full(({v}.shape[{a}], 2), {w.number(v)}, dtype={w.dtype_name(v)}, device=DEVICE)",
            f"torch.arange({v}.shape[{a}], device=DEVICE)",
            f"torch.arange({v}.shape[{a}], 0, -1, dtype={w.source.choice(FLOATS)}, device=DEVICE) / 2",
            f"torch.tensor([1, {w.number(v)}, 2], device=DEVICE)",
            f"torch.eye({v}.shape[{a}], dtype={w.source.choice(FLOATS)}, device=DEVICE)",
            f"torch.meshgrid({v}.reshape(-1)[:4], {u}.reshape(-1)[:3], indexing='ij')[{w.source.randint(0, 1)}]",
        )
    )
    return f"{name} = {text}", (v, u)


def _pointwise_exact(w: Writer, name: str) -> Made:
    v = w.any()
    u = w.like(v)
    n = w.number(v)
    text = w.source.choice(
        (
            f"{v} + {u}",
            f"{v} - {u}",
            f"{v} * {u}",
            f"{v} + {n}",
            f"{v} * {n}",
            f"{n} - {v}",
            f"torch.add({v}, {u}, alpha={w.source.choice((2, -1))})",
            f"-{v}",
            f"{v}.abs()",
            f"{v}.relu()",
            f"{v}.clamp({w.source.choice((-1, 0))}, {w.source.choice((1, 2))})",
            f"{v}.clamp(min={w.number(v)})",
            f"torch.maximum({v}, {u})",
            f"torch.minimum({v}, {u})",
            f"{v}.square()",
            f"F.leaky_relu({v}, 0.25)",
            f"F.hardtanh({v})",
        )
    )
    return f"{name} = {text}", (v, u)


def _decided(w: Writer, name: str) -> Made:
    """Comparisons, roundings and casts: of exact numbers only."""
    v = w.exact_one()
    near = [n for n in w.tensors(lambda t: broadcasts(t.shape, w.value(v).shape)) if n in w.exact]
    u, n = w.source.choice(near), w.number(v)
    small = f"({u}.abs() + 1)"
    text = w.source.choice(
        (
            f"{v} {w.source.choice(('<', '<=', '==', '!=', '>', '>='))} {u}",
            f"{v} {w.source.choice(('<', '<=', '==', '!=', '>', '>='))} {n}",
            f"torch.where({v} > {n}, {v}, {u})",
            f"torch.where({v} > {n}, {u}, {w.number(u)})",
            f"torch.where({v} <= {u}, {v}, {n})",
            f"{v}.masked_fill({u} > 1, {n})",
            f"{v}.floor()",
            f"{v}.ceil()",
            f"{v}.round()",
            f"{v}.trunc()",
            f"{v}.sign()",
            f"{v} // {small}",
            f"{v} % {small}",
            f"torch.div({v}, {small}, rounding_mode={w.source.choice(('trunc', 'floor'))!r})",
            f"torch.fmod({v}, {small})",
            f"torch.remainder({v}, {w.source.choice((2, 3, 1.5, -2))})",
            f"{v}.to({w.source.choice(FLOATS)})",
            f"{v}.to({w.source.choice(FLOATS)})",
            f"{v}.abs().to({w.source.choice(INTEGERS)})",
            f"{v}.to({w.source.choice(('i64', 'i32', 'i16', 'bool'))})",
            f"{v}.bool()",
            f"{v}.type_as({u})",
            f"{v}.logical_not()",
            f"{v}.logical_xor({u})",
            f"{v} & {u}",
            f"{v} | {u}",
            f"{v} ^ {u}",
            f"~{v}",
            f"{v} << 1",
            f"{v} >> 1",
            f"torch.gcd({v}, {u})",
            f"torch.bitwise_left_shift({v}, 2)",
            f"torch.isin({v}, {u})",
            f"torch.heaviside({v}, {u})",
            f"torch.sgn({v})",
            f"{v}.eq({u}).any()",
            f"torch.isclose({v}, {u})",
            f"{v}.nonzero()",
            f"{v}[{v} > 1]",
            f"torch.argwhere({v} > 0).sum()",
            f"torch.bucketize({v}, torch.tensor([-1.0, 0.0, 1.0], device=DEVICE))",
        )
    )
    return f"{name} = {text}", (v, u)


FUNCTIONS = "tanh sigmoid sin cos erf exp expm1 log1p sqrt rsqrt reciprocal atan asinh sinh square exp2"
ACTIVATIONS = "gelu silu softplus elu selu mish hardswish hardsigmoid logsigmoid softsign relu6"


def _pointwise(w: Writer, name: str) -> Made:
    v = w.any()
    u = w.like(v)
    function = w.source.choice(FUNCTIONS.split())
    safe = f"({v}.abs() + 1)" if function in ("log1p", "sqrt", "rsqrt", "reciprocal") else f"{v}"
    name_of = w.source.choice(ACTIVATIONS.split())
    text = w.source.choice(
        (
            *[f"{safe}.{function}()"] * 4,
            *[f"F.{name_of}({v})"] * 2,
            f"{v} / ({u}.abs() + 1)",
            f"{v} / {w.source.choice((2, 3, 0.7))}",
            f"{v} ** {w.source.choice((2, 3, 0, 1))}",
            f"({v}.abs() + 1) ** {w.source.choice((0.5, -1.0, 1.7))}",
            f"torch.lerp({v}, {u}, {w.source.choice((0.3, 0.5))})",
            f"torch.addcmul({v}, {u}, {u}, value=0.5)",
            f"torch.addcdiv({v}, {u}, {u}.abs() + 1)",
            f"torch.atan2({v}, {u}.abs() + 1)",
            f"torch.hypot({v}, {u})",
            f"torch.logaddexp({v}, {u})",
            f"torch.xlogy({v}, {u}.abs() + 1)",
            f"{v}.nan_to_num()",
            f"torch.copysign({v}, {u}.abs() + 1)",
            f"{v} * {w.number()} + {w.number()}",
            f"{v}.clamp(-1.5, 0.7)",
        )
    )
    return f"{name} = {text}", (v, u)


def _positions(w: Writer, extent: int, is_unique: bool) -> str:
    count = w.source.randint(1, 4)
    if is_unique:
        chosen = w.source.sample(range(extent), min(count, extent))
    else:
        chosen = [w.source.randrange(-extent, extent) for _ in range(count)]
    return f"torch.tensor({chosen}, device=DEVICE)"


def _indexed(w: Writer, name: str) -> Made:
    v = w.any(lambda t: t.dim() > 0)
    a = w.axis(v)
    extent, first = w.extent(v, a), w.extent(v, 0)
    if not extent or not first:
        raise Unfit
    i = w.whole()
    leading = "1, " * (w.value(v).dim() - 1)
    size = f"{v}.shape[{a}]"
    held = f"({i}.long() % {size})"
    text = w.source.choice(
        (
            f"{v}[{_positions(w, first, False)}]",
            f"{v}[..., {_positions(w, w.extent(v, -1), False)}]",
            f"{v}[{_positions(w, first, False)}, 0]",
            f"{v}[{_positions(w, first, False)}[:, None], {_positions(w, w.extent(v, -1), False)}]",
            f"{v}[:, {_positions(w, w.extent(v, -1), False)}]",
            f"{v}[{i}.long() % {v}.shape[0]]",
            f"{v}.index_select({a}, torch.tensor([0, {extent - 1}, 0], device=DEVICE))",
            f"{v}.index_select({a}, {held}.reshape(-1))",
            f"{v}.gather({a}, torch.zeros_like({v}, dtype=i64))",
            f"torch.take_along_dim({v}, {held}.reshape({leading}-1), -1)",
            f"torch.take({v}, {i}.long() % {v}.numel())",
            f"F.embedding({i}.long() % {v}.shape[0], {v})",
            f"F.one_hot({i}.long() % 7, 7)",
            f"{v}.scatter({a}, torch.zeros_like({v}, dtype=i64).narrow({a}, 0, 1), {w.source.choice((1, 2))})",
            f"{v}.index_add({a}, torch.tensor([0, {extent - 1}, 0], device=DEVICE), "
            f"{v}.narrow({a}, 0, 1).repeat_interleave(3, {a}))",
            f"{v}.index_fill({a}, torch.tensor([0, {extent - 1}], device=DEVICE), 2)",
            f"{v}.index_put((torch.tensor([0, {first - 1}, 0], device=DEVICE),), {v}[:1], accumulate=True)",
        )
    )
    return f"{name} = {text}", (v, i)


def _reduced(w: Writer, name: str) -> Made:
    v = w.any()
    rank = w.value(v).dim()
    a = w.axis(v) if rank else 0
    axes = w.source.choice(
        (
            "",
            f"{a}",
            f"{a}, keepdim=True",
            str(tuple(w.source.sample(range(rank), w.source.randint(1, rank)))) if rank else "0",
        )
    )
    function = w.source.choice(("sum", "sum", "mean", "amax", "amin", "std", "var", "logsumexp"))
    axes = axes or str(a) if function == "logsumexp" else axes
    text = w.source.choice(
        (
            *[f"{v}.{function}({axes})"] * 6,
            f"{v}.sum({axes or None}, dtype={w.source.choice(('f32', 'f64'))})",
            f"{v}.clamp(-1, 1).prod({a})",
            f"{v}.norm()",
            f"torch.linalg.vector_norm({v}, {w.source.choice((1, 2, 3))}, {a})",
            f"{v}.cumsum({a})",
            f"{v}.clamp(-1, 1).cumprod({a})",
            f"{v}.softmax({a})",
            f"{v}.softmax({a}, dtype={w.source.choice(('f32', 'f64'))})",
            f"F.log_softmax({v}, {a})",
            f"F.layer_norm({v}, ({v}.shape[-1],))",
            f"F.rms_norm({v}, ({v}.shape[-1],), eps=1e-5)",
            f"F.normalize({v}, dim={a})",
            f"{v}.max({a}).values",
            f"{v}.min({a}, keepdim=True)[0]",
            # Where equal elements go, and which of them is among the largest, is no promise, and gradients show it.
            f"{v}.sort(dim={a}, stable={torch.is_grad_enabled()}, descending={w.source.choice((True, False))}).values",
            f"{v}.topk(2, {a}).values" if not torch.is_grad_enabled() else f"{v}.amax({a})",
            f"{v}.median()",
            f"{v}.cummax({a}).values",
            f"{v}.logcumsumexp({a})",
            f"{v}.diff(dim={a})",
            f"{v}.trace()",
        )
    )
    return f"{name} = {text}", (v,)


def _reduced_exact(w: Writer, name: str) -> Made:
    v = w.exact_one()
    a = w.axis(v)
    text = w.source.choice(
        (
            f"{v}.sum({a})",
            f"{v}.sum()",
            f"{v}.amax({a})",
            f"{v}.any({a})",
            f"({v} > 0).all({a}, keepdim=True)",
            f"({v} != 0).sum({a})",
            f"{v}.count_nonzero({a})",
            f"{v}.argmax({a})",
            f"{v}.argmin()",
            f"{v}.max({a}).values",
            f"{v}.cumsum({a})",
            f"{v}.sort({a}, stable=True).indices",
            f"{v}.argsort({a}, stable=True)",
        )
    )
    return f"{name} = {text}", (v,)


def _product(w: Writer, name: str) -> Made:
    v = w.real(1)
    shape, dtype = w.value(v).shape, w.dtype_name(v)
    rank, seed = len(shape), w.source.randrange(1000)
    last = shape[-1]
    if any(world[v].shape[-1] != last for world, _ in w.worlds):
        return f"{name} = {v} @ {v}.{'mT' if rank > 1 else 'clone()'}", (v,)
    kind = w.source.choice(("linear", "matmul", "self", "einsum", "conv1", "conv2", "pool", "outer", "sdpa", "addmm"))
    if kind == "linear":
        m = w.added_input(f"data({seed}, ({w.source.randint(1, 5)}, {last}), {dtype})")
        return f"{name} = F.linear({v}, {m})", (v,)
    if kind == "matmul":
        m = w.added_input(f"data({seed}, ({last}, {w.source.randint(1, 5)}), {dtype})")
        return f"{name} = {v} @ {m}" + w.source.choice(("", f" + {w.number()}")), (v,)
    if kind == "einsum":
        m = w.added_input(f"data({seed}, (3, {last}), {dtype})")
        return f"{name} = torch.einsum('...i,oi->...o', {v}, {m})", (v,)
    if kind == "addmm":
        m = w.added_input(f"data({seed}, ({last}, 3), {dtype})")
        return f"{name} = torch.addmm({m}[0], {v}.reshape(-1, {last}), {m}, beta=0.5, alpha=2)", (v,)
    if kind == "self":
        return f"{name} = {v} @ {v}.mT", (v,)
    if kind == "outer":
        return f"{name} = torch.outer({v}.reshape(-1)[:5], {v}.reshape(-1)[-4:])", (v,)
    if kind == "sdpa":
        return f"{name} = F.scaled_dot_product_attention({v}, {v}, {v}, is_causal={w.source.choice((True, False))})", (
            v,
        )
    if rank not in (3, 4):
        raise Unfit
    if kind == "pool":
        function = w.source.choice(("avg_pool", "max_pool", "adaptive_avg_pool"))
        return f"{name} = F.{function}{rank - 2}d({v}, 2)", (v,)
    if any(world[v].shape[-3 if rank == 4 else -2] != shape[-3 if rank == 4 else -2] for world, _ in w.worlds):
        raise Unfit
    channels = shape[1]
    m = w.added_input(f"data({seed}, (2, {channels}, {', '.join(['2'] * (rank - 2))}), {dtype})")
    options = w.source.choice(("", ", padding=1", ", stride=2", ", dilation=2, padding=2"))
    return f"{name} = F.conv{rank - 2}d({v}, {m}{options})", (v,)


def _resized(w: Writer, name: str) -> Made:
    v = w.any(lambda t: t.dim() == 4 and t.is_floating_point())
    mode = w.source.choice(("nearest", "bilinear", "nearest-exact"))
    text = w.source.choice(
        (
            f"F.interpolate({v}, scale_factor=2, mode={mode!r})",
            f"F.pixel_shuffle({v}.repeat(1, 4, 1, 1), 2)",
            f"F.group_norm({v}, 1)",
            f"F.instance_norm({v})",
            f"{v}.contiguous(memory_format=torch.channels_last)",
            f"{v}.to(memory_format=torch.channels_last) * 2",
        )
    )
    return f"{name} = {text}", (v,)


def _written(w: Writer, name: str) -> Made:
    """Writes to a tensor, of which others are views."""
    v = w.target()
    u = w.like(v)
    if not w.can_write(v, u):
        raise Unfit
    n = w.number(v)
    inner = ("add_", "sub_", "mul_", "copy_")
    text = w.source.choice(
        (
            *[f"{v}.{w.source.choice(inner)}({u})"] * 3,
            *[f"{v}.{w.source.choice(inner[:3])}({n})"] * 2,
            f"{v} += {u}",
            f"{v} *= {n}",
            f"{v}.fill_({n})",
            f"{v}.zero_()",
            f"{v}.neg_()",
            f"{v}.abs_()",
            f"{v}.relu_()",
            f"F.relu({v}, inplace=True)",
            f"{v}.clamp_(-1, 1)",
            f"{v}.triu_()",
            f"{v}.fill_diagonal_(2)",
            f"torch.add({v}, 1, out={v})",
            f"{v}.diagonal().mul_(2)",
            f"{v}.transpose(0, 1).add_({n})",
            f"{v}.reshape(-1)[::2].add_(1)",
            f"{v}.view(-1)[1:3].fill_({n})",
            f"{v}.unsqueeze(0).sub_({n})",
        )
    )
    return text, (v, u)


def _assigned(w: Writer, name: str) -> Made:
    v = w.target(accepts=lambda t: t.dim() > 0)
    first = w.extent(v, 0)
    if not first:
        raise Unfit
    a, extent = w.axis(v), w.extent(v, -1)
    place, n, u = _index(w, v), w.number(v), w.any()
    if not w.can_write(v, u) or not extent:
        raise Unfit
    text = w.source.choice(
        (
            f"{v}{place} = {n}",
            f"{v}{place} = {u}",
            f"{v}{place} += {n}",
            f"{v}{place} *= {u}",
            f"{v}{place}.copy_({u})",
            f"{v}{place}.add_({u})",
            f"{v}[{_positions(w, first, True)}] = {n}",
            f"{v}[{_positions(w, first, True)}] = {u}",
            f"{v}[..., {_positions(w, extent, True)}] = {n}",
            f"{v}[{_positions(w, first, True)}, {w.source.randrange(extent)}] = {n}",
            f"{v}.index_put_(({_positions(w, first, True)},), {u})",
            f"{v}.index_put_((torch.tensor([0, {first - 1}, 0], device=DEVICE),), {u}, accumulate=True)",
            f"{v}.index_add_({a}, torch.tensor([0], device=DEVICE), {u})",
            f"{v}.index_copy_({a}, torch.tensor([0], device=DEVICE), {u})",
            f"{v}.index_fill_({a}, torch.tensor([0], device=DEVICE), {n})",
            f"{v}.scatter_({a}, torch.zeros_like({v}, dtype=i64).narrow({a}, 0, 1), 1)",
            f"{v}.scatter_add_({a}, torch.zeros_like({v}, dtype=i64), torch.ones_like({v}))",
            f"{v}.select({a}, 0).fill_({n})",
            f"{v}.narrow({a}, 0, 1).mul_({n})",
        )
    )
    return text, (v, u)


def _masked(w: Writer, name: str) -> Made:
    v = w.target()
    masks = w.tensors(lambda t: t.dtype == torch.bool and broadcasts(t.shape, w.value(v).shape))
    if not masks:
        raise Unfit
    m = w.source.choice(masks)
    if not w.can_write(v, m):
        raise Unfit
    n = w.number(v)
    text = w.source.choice(
        (
            f"{v}[{m}] = {n}",
            f"{v}.masked_fill_({m}, {n})",
            f"{name} = torch.where({m}, {v}, {n})",
            f"{name} = {v} * {m}",
        )
    )
    return text, (v, m)


def _layer(w: Writer, name: str) -> Made:
    """A module's layer."""
    v = w.real(1)
    shape, dtype = w.value(v).shape, w.dtype_name(v)
    rank, last = len(shape), shape[-1]
    if w.layers and w.source.random() < 0.3:
        return f"{name} = self.layer{w.source.randrange(len(w.layers))}({v})", (v,)
    if w.source.random() < 0.2:
        layer = w.layer(f"nn.Embedding(7, {w.source.randint(1, 4)}, dtype={w.source.choice(('f32', 'bf16'))})")
        return f"{name} = {layer}({w.whole()}.long() % 7)", (v,)
    images = rank == 4 and all(world[v].shape[1] == shape[1] for world, _ in w.worlds)
    if images and w.source.random() < 0.8:
        channels = shape[1]
        kind = w.source.choice(
            (
                f"nn.Conv2d({channels}, 3, 2, padding=1, dtype={dtype})",
                f"nn.BatchNorm2d({channels}, dtype={dtype}).eval()",
                f"nn.GroupNorm(1, {channels}, dtype={dtype})",
                f"nn.Sequential(nn.Conv2d({channels}, 2, 1, bias=False, dtype={dtype}), "
                f"nn.BatchNorm2d(2, dtype={dtype}).eval())",
                f"nn.ConvTranspose2d({channels}, 2, 2, dtype={dtype})",
            )
        )
        return f"{name} = {w.layer(kind)}({v})", (v,)
    if any(world[v].shape[-1] != last for world, _ in w.worlds):
        raise Unfit
    kind = w.source.choice(
        (
            f"nn.Linear({last}, {w.source.randint(1, 5)}, dtype={dtype})",
            f"nn.Linear({last}, {last}, bias=False, dtype={dtype})",
            f"nn.Sequential(nn.Linear({last}, 4, dtype={dtype}), nn.Tanh(), nn.Linear(4, 2, dtype={dtype}))",
            f"nn.LayerNorm({last}, dtype={dtype})",
            f"nn.RMSNorm({last}, eps=1e-5, dtype={dtype})",
        )
    )
    return f"{name} = {w.layer(kind)}({v})", (v,)


KINDS: dict[str, Callable[[Writer, str], Made]] = {
    "view": _view,
    "copied": _copied,
    "pointwise exact": _pointwise_exact,
    "decided": _decided,
    "pointwise": _pointwise,
    "indexed": _indexed,
    "reduced": _reduced,
    "reduced exact": _reduced_exact,
    "product": _product,
    "resized": _resized,
    "written": _written,
    "assigned": _assigned,
    "masked": _masked,
    "layer": _layer,
}
WEIGHTS = (9, 5, 4, 5, 4, 4, 4, 2, 3, 1, 5, 4, 2, 3)
EXACT_KINDS = {*KINDS} - {"pointwise", "reduced", "product", "resized", "layer"}
"""Those whose results are exact where they equal the float64 run's."""
