"""Run random torch programs in processes of their own, compiled and in eager mode, and say how each ended.

    python -m tests.fuzz.torch_programs --count 2000 --seed 0

`tests.fuzz.torch_statements` writes the programs. Good ends are agreement with eager mode, and programs that torch
itself cannot trace. Integers and truths are equal; floats satisfy the rule of the design against a float64 run of the
same program; types, strides, aliases, written arguments and gradients are those of eager mode.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tests.fuzz.children import End, ends, in_batches, report, serve
from tests.fuzz.torch_judge import RUNS, Rounded, error_of, restrided
from tests.fuzz.torch_statements import write
from tests.fuzz.torch_writer import FLOATS, INTEGERS, PRELUDE, Names, Unfit, Writer, is_tensor_name, namespace

MODULE = "tests.fuzz.torch_programs"
SECONDS_OF_MINIMISING = 25.0

CHANGES = (
    "for p in model.parameters(): p.data.mul_(1.5)",
    "with torch.no_grad():\n    for p in model.parameters(): p.add_(0.25)",
    "for p in model.parameters(): p.data = p.data + 0.5",
    "for p in model.parameters(): p.data.reshape(-1)[:1] = 2",
    "for p in model.parameters(): p.data.lerp_(torch.ones_like(p), 0.25)",
    "for p in model.parameters(): p.untyped_storage().copy_((p.detach() + 0.5).untyped_storage())",
    "model.load_state_dict({k: v + 0.25 if v.is_floating_point() else v for k, v in model.state_dict().items()})",
    "state = {k: v * 1.25 if v.is_floating_point() else v.clone() for k, v in model.state_dict().items()}\n"
    "model.load_state_dict(state, assign=True)",
    "with torch.no_grad(): torch._foreach_add_(list(model.parameters()), 0.5)",
    "for p in model.parameters():\n"
    "    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(p): p.mul_(1.5)",
    "for p in model.parameters(): p.grad = torch.ones_like(p)\n"
    "torch.optim.SGD(model.parameters(), lr=0.25).step(); model.zero_grad()",
    "for p in model.parameters(): p.grad = torch.ones_like(p)\n"
    "torch.optim.Adam(model.parameters(), lr=0.25, fused=True).step(); model.zero_grad()",
)
"""Ways to change weights between calls."""


# --- programs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """A program. sizes: the `n` of its calls, in order. changes: what is done to weights before calls but the first.
    device: where its tensors are."""

    seed: int
    inputs: tuple[str, ...]
    layers: tuple[str, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    sizes: tuple[int, ...]
    changes: tuple[str, ...]
    dynamic: bool | None
    has_gradients: bool
    autocasts: bool
    device: str = "cpu"

    def text(self) -> str:
        """Python source that defines `inputs(n)` and `Model`; names of `PRELUDE` are free in it."""
        names = [text.partition(" ")[0] for text in self.inputs]
        defined = {*names, *(text.partition(" = ")[0] for text in self.statements)}
        results = [each for each in self.results if set(re.findall(r"\b[xv]\d+\b", each)) <= defined]
        lines = [
            "def inputs(n):",
            *(f"    {text}" for text in self.inputs),
            f"    return ({', '.join(names)},)",
            "",
            "",
        ]
        lines += ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += [f"        {text}" for text in self.layers]
        lines += ["", f"    def forward(self, {', '.join(names)}):"]
        indent = "        "
        if self.autocasts:
            lines.append(f"{indent}with torch.autocast(DEVICE, torch.bfloat16, enabled=AUTOCAST):")
            indent += "    "
        lines += [f"{indent}{text}" for text in self.statements or ("pass",)]
        return "\n".join([*lines, f"        return ({', '.join(results)}{',' if results else ''})"]) + "\n"

    def script(self) -> str:
        """Python source that runs the program compiled and in eager mode."""
        prelude = PRELUDE.replace('DEVICE = "cpu"', f'DEVICE = "{self.device}"')
        lines = [prelude, self.text(), "", "eager, model = Model(), Model()"]
        lines.append(f'compiled = torch.compile(model, backend="hidet", dynamic={self.dynamic})')
        lines.append(f"torch.set_grad_enabled({self.has_gradients})")
        for call, size in enumerate(self.sizes):
            if call and self.changes:
                lines += [f"for model in (eager, compiled._orig_mod):\n    exec({self.changes[call - 1]!r})"]
            lines.append(f"given, others = inputs({size}), inputs({size})")
            lines.append("print(compiled(*given), given, 'expected', eager(*others), others, sep='\\n')")
        return "\n".join(lines) + "\n"


def program(seed: int) -> Program:
    """The program of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _written(seed)


def _written(seed: int) -> Program:
    source = random.Random(seed)
    dynamic = source.choice((True, None, None))
    sizes = tuple(source.sample((3, 5, 6, 8, 2), 3 if dynamic else source.choice((1, 1, 2))))
    has_gradients = source.random() < 0.2
    writer = Writer(source, sizes, source.random() < 0.1, _inputs(source, has_gradients))
    writer.exact.update(text.partition(" ")[0] for text in writer.inputs)
    torch.set_grad_enabled(has_gradients)
    try:
        writer.restart()
        wanted, tries = source.randint(5, 20), 0
        while len(writer.statements) < wanted and tries < 100:
            tries += 1
            write(writer)
    finally:
        torch.set_grad_enabled(True)
    names = [n for n, v in writer.worlds[0][0].items() if is_tensor_name(n, v)]
    made = [n for n in names if n.startswith("v")] or names
    results = [*made[-2:], *source.sample(names, min(len(names), source.randint(1, 5)))]
    with contextlib.suppress(Unfit):
        if source.random() < 0.2:
            results.append(writer.size())
        if source.random() < 0.1:
            results.append(writer.truth())
    changes: tuple[str, ...] = ()
    if writer.layers and source.random() < 0.7:
        sizes = sizes * 2 if len(sizes) == 1 else sizes
        changes = tuple(source.choice(CHANGES) for _ in sizes[1:])
    texts = tuple(writer.inputs), tuple(writer.layers), tuple(writer.statements), tuple(results)
    return Program(seed, *texts, sizes, changes, dynamic, has_gradients, writer.autocasts)


SHAPES = (
    "n, 4",
    "n, 4",
    "n",
    "2, n, 3",
    "4, n",
    "3, 4",
    "n, n",
    "2, 3, 4, 4",
    "n, 2, 4, 3",
    "6",
    "",
    "0, 3",
    "n, 1",
    "1, n",
)


def _inputs(source: random.Random, has_gradients: bool) -> list[str]:
    """Statements that make arguments: contiguous, strided, expanded, and views of one another."""
    texts: list[str] = []
    for number in range(source.randint(2, 4)):
        name, choice = f"x{number}", source.random()
        if texts and choice < 0.15:
            other = f"x{source.randrange(number)}"
            forms = ("{}", "{}[1:]", "{}.view(-1)", "{}.t()", "{}.detach()", "{}.reshape(-1)[::2]", "{}[..., :2]")
            form = source.choice(forms).format(other)
            fits = f"{form} if {other}.dim() == 2 else {other}"
            texts.append(f"{name} = {fits}")
            continue
        dtype = source.choice((*FLOATS, *FLOATS, source.choice(INTEGERS), "bool"))
        shape = source.choice(SHAPES)
        text = f"data({source.randrange(1000)}, ({shape}{',' if shape else ''}), {dtype})"
        if has_gradients and dtype in FLOATS and source.random() < 0.7:
            text += ".requires_grad_()"
        else:
            rank = shape.count(",") + 1 if shape else 0
            forms = ["", "", "", ".transpose(0, -1)"] if rank else ["", ".expand(3)"]
            forms += ["[::2]", "[1:]", ".flip(0)[:, ::2]", ".unsqueeze(0).expand(2, -1, -1)"] if rank == 2 else []
            forms += [".contiguous(memory_format=torch.channels_last)"] * 3 if rank == 4 else []
            text += source.choice(forms)
        texts.append(f"{name} = {text}")
    return texts


# --- one program -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call made. tensors: by what they are, arguments after the call, results and gradients."""

    tensors: dict[str, torch.Tensor]
    others: tuple[object, ...]
    aliases: tuple[tuple[str, str, int], ...]


Compile = Callable[[Any], Any]


_ALONE = " without a compiler"


def end_of(base: str, content: str, seed: int) -> End:
    """Write the program of a seed and compare its calls on the device that `content` names; with `_ALONE` behind it,
    torch's calls with themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # On the host, which refuses positions outside of a tensor; a GPU ends the process.
            made = replace(program(seed), device=content.removesuffix(_ALONE))
        except RuntimeError as error:
            return End(base, seed, "refused", f"while it is written, by eager mode: {str(error)[:100]}")
        if content.endswith(_ALONE):
            return End(base, seed, "ran", _compared(made, "eager")[1])
        found = _judged(made)
        if found[0] in ("ran", "refused"):
            return End(base, seed, *found)
        if not is_device_usable():
            return End(base, seed, found[0], f"{found[1]}\nit ended the CUDA context\n{made.script()}")
        small = _minimised(made, found[0], time.monotonic() + SECONDS_OF_MINIMISING)
        return End(base, seed, found[0], f"{_judged(small)[1]}\n{small.script()}")


def is_device_usable() -> bool:
    """Whether this process can still use its GPU: an assertion or a wrong address on it ends the context for good."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _judged(made: Program) -> tuple[str, str]:
    kind, detail = _compared(made, "hidet")
    if not is_device_usable():
        return ("uncaught", detail) if kind in ("ran", "wrong") else (kind, detail)
    if kind in ("wrong", "uncaught"):
        for backend in ("eager", "aot_eager"):
            theirs = _compared(made, backend)[0]
            # Where torch's own kernels fail in the traced program, it was traced with other strides than eager mode's.
            if theirs == kind or (theirs == "uncaught" and ": strides " in detail):
                return "refused", f"by torch's {backend}: {detail}"
    if ": strides " in detail and _compared(made, restrided)[0] == kind:
        return "refused", f"torch's fake tensors have other strides than its tensors: {detail}"
    return kind, detail


def _minimised(made: Program, kind: str, until: float) -> Program:
    """The program with fewer statements, that ends in the same way."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for number in reversed(range(len(made.statements))):
            if time.monotonic() > until:
                return made
            fewer = replace(made, statements=made.statements[:number] + made.statements[number + 1 :])
            if _judged(fewer)[0] == kind:
                made, is_smaller = fewer, True
    for number in reversed(range(len(made.results))):
        if time.monotonic() > until:
            return made
        fewer = replace(made, results=made.results[:number] + made.results[number + 1 :])
        if _judged(fewer)[0] == kind:
            made = fewer
    text = "\n".join((*made.statements, *made.results))
    kept = tuple(layer for layer in made.layers if layer.partition(" ")[0] + "(" in text)
    return replace(made, layers=kept, changes=made.changes if kept else ())


def _compared(made: Program, backend: Any) -> tuple[str, str]:
    """How its calls end under a backend: "ran", "wrong", "uncaught"; "refused" where eager mode refuses one."""
    torch._dynamo.reset()
    text = made.text()
    # The reference is on the host: kernels that small cost a device more than they compute.
    worlds = [namespace(is_wide=False, device=made.device) for _ in range(2)] + [namespace(is_wide=True)]
    for names in worlds:
        exec(text, names)
    models = [_at_width(names, names["Model"]) for names in worlds]
    compiled = torch.compile(models[1] if made.layers else models[1].forward, backend=backend, dynamic=made.dynamic)
    for call, size in enumerate(made.sizes):
        if call and made.changes:
            for names, model in zip(worlds, models, strict=True):
                exec(made.changes[call - 1], {**names, "model": model})
        try:
            expected = _outcome(worlds[0], models[0], models[0], size, made.has_gradients)
            exact = _outcome(worlds[2], models[2], models[2], size, made.has_gradients)
        except Exception as error:  # noqa: BLE001 - whatever eager mode refuses
            return "refused", f"by eager mode: {type(error).__name__}: {str(error)[:100]}"
        try:
            found = _outcome(worlds[1], compiled, models[1], size, made.has_gradients)
        except BaseException as error:  # noqa: BLE001 - every exception is what this looks for
            return "uncaught", f"n = {size}, call {call}: {type(error).__name__}: {str(error)[:1500]}"
        for difference in _differences(found, expected, exact, _coarsest(made), partial(_rounded, made, call)):
            return "wrong", f"n = {size}, call {call}: {difference}"
    return "ran", ""


def _rounded(made: Program, last: int) -> list[Outcome]:
    """What call number `last` makes in float64 with random rounding, several times."""
    found = []
    for seed in range(RUNS):
        names = namespace(is_wide=True)
        exec(made.text(), names)
        model = _at_width(names, names["Model"])
        for call, size in enumerate(made.sizes[: last + 1]):
            if call and made.changes:
                exec(made.changes[call - 1], {**names, "model": model})
            with Rounded(_coarsest(made), seed):
                outcome = _outcome(names, model, model, size, made.has_gradients)
        found.append(outcome)
    return found


def _at_width(names: Names, run: Callable[[], Any]) -> Any:
    default = torch.get_default_dtype()
    torch.set_default_dtype(names["f32"])
    try:
        return run()
    finally:
        torch.set_default_dtype(default)


def _outcome(names: Names, function: Any, model: torch.nn.Module, size: int, has_gradients: bool) -> Outcome:
    with torch.set_grad_enabled(has_gradients):
        given = names["inputs"](size)
        results = _at_width(names, lambda: function(*given))
    tensors = {f"argument {number}": tensor for number, tensor in enumerate(given)}
    others = []
    for number, result in enumerate(results):
        if isinstance(result, torch.Tensor):
            tensors[f"result {number}"] = result
        else:
            others.append(result)
    found = Outcome(dict(tensors), tuple(others), _aliases(tensors))
    if has_gradients:
        sums = [_weighed(t) for name, t in tensors.items() if t.requires_grad and t.is_floating_point()]
        if sums:
            torch.stack(sums).sum().backward()
        for name, tensor in (*tensors.items(), *model.named_parameters()):
            if tensor.is_leaf and tensor.grad is not None:
                found.tensors[f"gradient of {name}"] = tensor.grad.clone()
        model.zero_grad()
    return found


def _weighed(tensor: torch.Tensor) -> torch.Tensor:
    places = torch.arange(1, tensor.numel() + 1, dtype=torch.float64, device=tensor.device)
    weights = places.reshape(tensor.shape) / max(tensor.numel(), 1)
    return (tensor.double() * weights).sum()


def _aliases(tensors: dict[str, torch.Tensor]) -> tuple[tuple[str, str, int], ...]:
    """Pairs that share memory, and how many elements the second begins behind the first."""
    items = [(name, tensor) for name, tensor in tensors.items() if tensor.numel()]
    return tuple(
        (first, second, other.storage_offset() - tensor.storage_offset())
        for place, (first, tensor) in enumerate(items)
        for second, other in items[place + 1 :]
        if tensor.untyped_storage()._cdata == other.untyped_storage()._cdata
    )


def _coarsest(made: Program) -> torch.dtype:
    """The coarsest floats of a program."""
    text = " ".join((*made.inputs, *made.layers, *made.statements))
    return torch.bfloat16 if made.autocasts or "bf16" in text else torch.float16 if "f16" in text else torch.float32


def _differences(
    found: Outcome,
    expected: Outcome,
    exact: Outcome,
    coarsest: torch.dtype,
    rounded: Callable[[], list[Outcome]],
) -> Iterator[str]:
    if found.others != expected.others or list(map(type, found.others)) != list(map(type, expected.others)):
        yield f"numbers {found.others} instead of {expected.others}"
    # Behind a graph break AOTAutograd gives zeros for what no result depends on, where eager mode gives nothing.
    no_gradients = {
        name for name, tensor in found.tensors.items() if name.startswith("gradient of ") and not tensor.any()
    } - expected.tensors.keys()
    if found.tensors.keys() - no_gradients != expected.tensors.keys():
        yield f"{sorted(found.tensors)} instead of {sorted(expected.tensors)}"
        return
    again = functools.cache(rounded)
    for name, tensor in found.tensors.items():
        if name in no_gradients:
            continue
        right = expected.tensors[name]
        if isinstance(tensor, FakeTensor):
            yield f"{name}: a tensor without data"
            return
        fact = _facts(tensor, right)
        if fact:
            yield f"{name}: {fact}"
            return
        if not right.is_floating_point():
            if not torch.equal(tensor, right):
                yield f"{name}: {_shown(tensor)} instead of {_shown(right)}"
            continue
        error = error_of(
            tensor,
            right,
            exact.tensors[name],
            torch.finfo(coarsest).eps,
            lambda name=name: [each.tensors[name] for each in again() if name in each.tensors],  # type: ignore[misc]
        )
        if error:
            yield f"{name}: {error}: {_shown(tensor)} instead of {_shown(right)}"
    if found.aliases != expected.aliases:
        yield f"shared memory {found.aliases} instead of {expected.aliases}"


def _facts(tensor: torch.Tensor, right: torch.Tensor) -> str:
    for fact in ("dtype", "device", "shape", "requires_grad"):
        if getattr(tensor, fact) != getattr(right, fact):
            return f"{fact} {getattr(tensor, fact)} instead of {getattr(right, fact)}"
    strides = [[s for s, e in zip(t.stride(), t.shape, strict=True) if e > 1] for t in (tensor, right)]
    if right.numel() > 1 and strides[0] != strides[1]:
        return f"strides {tensor.stride()} instead of {right.stride()}"
    return ""


def _shown(tensor: torch.Tensor) -> str:
    text = str(tensor.detach().reshape(-1)[:12].tolist())
    return text if tensor.numel() <= 12 else f"{text}..."


# --- many programs ---------------------------------------------------------------------------------------------------


def run(count: int, jobs: int, first_seed: int = 0, device: str = "cpu") -> list[End]:
    """Compare `count` programs on a device, `jobs` at a time. Those that end their process run in torch alone as well:
    where that ends it too, eager mode refuses them in its own way."""
    found = ends(MODULE, [(f"torch on {device}", device, seed) for seed in range(first_seed, first_seed + count)], jobs)
    died = [end for end in found if end.kind == "died"]
    alone = ends(MODULE, [(end.base, device + _ALONE, end.seed) for end in died], jobs) if died else []
    theirs = {end.seed for end in alone if end.kind == "died"}
    refused = "by eager mode, which ends the process"
    return [replace(end, kind="refused", detail=refused) if end.seed in theirs else end for end in found]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--seeds", type=int, default=1, help="runs of --count programs, one behind the other")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--show", action="store_true", help="print the program of --seed")
    arguments = parser.parse_args()
    if arguments.child:
        torch.set_num_threads(1)
        # Eager mode's kernels round to tf32 where they please, and then others are as free.
        torch.backends.cudnn.allow_tf32 = False
        serve(end_of, is_device_usable=is_device_usable if torch.cuda.is_available() else None)
    elif arguments.show:
        print(replace(program(arguments.seed), device=arguments.device).script())
    else:
        count, jobs, seed, device = arguments.count * arguments.seeds, arguments.jobs, arguments.seed, arguments.device
        report(in_batches(count, lambda many, first: run(many, jobs, seed + first, device)))


if __name__ == "__main__":
    main()
