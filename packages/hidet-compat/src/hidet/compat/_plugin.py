"""Plug-in module of hidet-compat: names that it adds to modules of hidet. Imports nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hidet.plugins.specs import AttributeSpec, OptionSpec, PassSpec

if TYPE_CHECKING:
    from hidet.context import CompileContext
    from hidet.graph.operator import OperatorSpec

HIDET_API = 1


def hidet_operators() -> Iterable[OperatorSpec]:
    """Tasks of users."""
    from hidet.compat.task_specs import OPERATORS

    return OPERATORS.values()


def hidet_attributes() -> Iterable[AttributeSpec]:
    """Settings of `hidet.option`, and names of other modules."""
    from hidet.compat.members import MEMBERS
    from hidet.compat.names import PLACES
    from hidet.compat.option import MACHINE, NAMES

    settings = {f"hidet.option.{name}": f"hidet.compat.option:{name}" for name in NAMES}
    settings |= {f"hidet.option.cuda.{name}": f"hidet.compat.option:{name}" for name in MACHINE}
    return [AttributeSpec(name=name, load=place) for name, place in {**PLACES, **MEMBERS, **settings}.items()]


def hidet_options() -> Iterable[OptionSpec]:
    """How models are computed that scripts convert."""
    return [
        OptionSpec(
            name="compat.precision",
            type=str,
            default=None,
            choices=("float16", "bfloat16", "float32"),
            affects_cache=False,
            doc="what a model of f32 computes in where that is safe: 'float16', 'bfloat16', or 'float32' as it is",
        ),
        OptionSpec(
            name="compat.attention",
            type=bool,
            default=True,
            affects_cache=False,
            doc="whether attention is computed by one kernel, or by products and a softmax",
        ),
        OptionSpec(
            name="compat.quantize",
            type=int,
            default=None,
            affects_cache=False,
            doc="the number of the rules that `PassContext.add_quantize_rules` was given in this process",
        ),
    ]


def hidet_graph_facts(ctx: CompileContext) -> str | None:
    """None where rules that users have registered are applied, or where passes and kernels are watched."""
    rules, contexts, logs = (
        sys.modules.get(name) for name in ("hidet.compat.rules", "hidet.compat.pass_context", "hidet.logging")
    )
    has_rules = rules is not None and bool(rules.REWRITE_RULES or rules.RESOLVE_RULES)
    is_logged = logs is not None and logs.logger.isEnabledFor(logs.DEBUG)
    is_watched = is_logged or (contexts is not None and contexts.is_watching())
    return None if has_rules or is_watched or ctx.option("compat.quantize") is not None else ""


def hidet_pass_done(name: str, level: str, before: object, after: object, seconds: float) -> None:
    """Instruments of `PassContext` hear of graph passes, and `hidet.logging` of all that change something."""
    logs = sys.modules.get("hidet.logging")
    if logs is not None and before is not after:
        logs.logger.debug("%s pass %s took %.2f ms", level, name, 1e3 * seconds)
    contexts = sys.modules.get("hidet.compat.pass_context")
    if contexts is not None and level == "graph":
        contexts.pass_done(name, before, after, seconds)


def hidet_kernel_built(name: str, target: str, cached: bool) -> None:
    """`hidet.logging` hears of kernels."""
    logs = sys.modules.get("hidet.logging")
    if logs is not None:
        logs.logger.debug("%s for %s %s", name, target, "was in the cache" if cached else "was compiled")


def hidet_passes() -> Iterable[PassSpec]:
    """Rules that users have registered, before hidet's own; attention taken apart, and mixed precision, where patterns
    have been recognised and batch norms been folded."""
    rules = (
        ("rewrite-subgraphs", "RewriteSubgraphs"),
        ("compat-quantize-weights", "QuantizeWeights"),
        ("resolve-operators", "ResolveOperators"),
    )
    return [
        *(
            PassSpec(
                name=name,
                level="graph",
                after=("unfold-control",),
                before=("decompose",),
                load=f"hidet.compat.rule_passes:{load}",
            )
            for name, load in rules
        ),
        PassSpec(
            name="compat-compose-attention",
            level="graph",
            after=("recompose",),
            before=("compat-convert-precision",),
            load="hidet.compat.passes.compose_attention:ComposeAttention",
            doc="attention as products and a softmax, where no kernel of its own is wanted",
        ),
        PassSpec(
            name="compat-convert-precision",
            level="graph",
            after=("fold-conv-batch-norm", "split-batch-norm", "gpu-split-batch-norm"),
            before=("narrow-captures",),
            load="hidet.compat.passes.convert_precision:ConvertPrecision",
            doc="products and what follows them compute in 16-bit floats",
        ),
    ]
