"""Which products read copies whose rows start at multiples of 16 bytes."""

from __future__ import annotations

import textwrap

import pytest

from hidet.cuda.passes.pad_leading_dim import PadLeadingDim
from hidet.cuda.testing.schedules import context_for
from hidet.graph.parser import parse_graph
from hidet.graph.printer import print_graph


def rewritten(text: str, arch: str = "sm_90a") -> str:
    """The graph after the pass, without its first and last lines."""
    ctx = context_for(arch)
    graph = parse_graph(textwrap.dedent(text), ctx.registry.operators)
    return "\n".join(line.strip() for line in print_graph(PadLeadingDim().run(graph, ctx)).splitlines()[1:-1])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_both_operands_of_a_large_product_are_copied_apart(arch: str) -> None:
    text = """
    graph g(%a: f16[2048, 2047], %b: f16[2047, 2041]):
      %0: f16[2048, 2041] = matmul(%a, %b)
      return %0
    """
    found = rewritten(text, arch)
    assert "f16[2048, 2047]{2048, 1} = copy(%a)" in found
    assert "f16[2047, 2041]{2048, 1} = copy(%b)" in found


def test_an_operand_with_aligned_rows_is_read_where_it_lies() -> None:
    text = """
    graph g(%x: f16[8, 256, 1001], param %w: f16[1000, 1001]{1008, 1}):
      %0: f16[8, 256, 1000] = linear(%x, %w)
      return %0
    """
    found = rewritten(text)
    assert "f16[8, 256, 1001]{258048, 1008, 1} = copy(%x)" in found
    assert "copy(%w)" not in found


def test_a_matrix_that_lies_transposed_keeps_its_order_and_is_copied_once() -> None:
    text = """
    graph g(%a: f16[2048, 2047]{1, 2049}, %b: f16[2047, 2048]):
      %0: f16[2048, 2048] = matmul(%a, %b)
      %1: f16[2048, 2048] = matmul(%a, %b)
      return %0, %1
    """
    found = rewritten(text)
    assert "f16[2048, 2047]{1, 2048} = copy(%a)" in found
    assert found.count("copy(") == 1


@pytest.mark.parametrize(
    "text",
    [
        # A copy takes as long as the product.
        "graph g(%a: f16[16, 33], %b: f16[33, 16]):\n  %0: f16[16, 16] = matmul(%a, %b)\n  return %0\n",
        "graph g(%a: f16[512, 512], %b: f16[512, 512]):\n  %0: f16[512, 512] = matmul(%a, %b)\n  return %0\n",
        # Not multiplied by matrix units.
        "graph g(%a: f32[2048, 2047], %b: f32[2047, 2048]):\n  %0: f32[2048, 2048] = matmul(%a, %b)\n  return %0\n",
        # Its size is not known.
        "symbol s: 1..\ngraph g(%a: f16[s, 99], %b: f16[99, 88]):\n  %0: f16[s, 88] = matmul(%a, %b)\n  return %0\n",
    ],
)
def test_other_products_stay_as_they_are(text: str) -> None:
    assert "copy(" not in rewritten(text)


def test_a_constant_is_copied_for_a_product_that_is_hardly_slower() -> None:
    """Its copy is made once and for all, that of a parameter in every call."""
    text = """
    graph g(%x: f16[16, 640]{inputs}):
      {constant}
      %0: f16[16, 33] = matmul(%x, %w)
      return %0
    """
    constant = f"const %w: f16[640, 33] = [{', '.join(['0.5'] * 640 * 33)}]"
    assert "copy(%w)" in rewritten(text.format(inputs="", constant=constant))
    assert "copy(%w)" not in rewritten(
        text.format(inputs=", param %w: f16[640, 33]", constant="").replace("      \n", "")
    )
