"""Taking out the tokens by which AOTAutograd orders effects: nodes of a graph are in order already.

An operator with an effect and nothing to show for it (`aten._linalg_check_errors`) is traced as
`with_effects(token, operator, *arguments)`, which returns the next token before the operator's own results. At run time
tokens are None.
"""

from __future__ import annotations

import copy

from torch import fx

EFFECT = "has_effect"
_WRAPPER = "with_effects"


def without_tokens(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph with direct calls, whose `meta[EFFECT]` is true, in the place of calls with tokens.

    Inputs that are tokens stay, as None; so does the number of outputs. The same object where there are none.
    """
    if not any(_is_wrapped(node) for node in gm.graph.nodes):
        return gm
    graph = copy.deepcopy(gm.graph)
    for node in list(graph.nodes):
        if _is_wrapped(node):
            _unwrap(graph, node)
    return fx.GraphModule(gm, graph)


def _is_wrapped(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == _WRAPPER


def _unwrap(graph: fx.Graph, node: fx.Node) -> None:
    token, operator, *arguments = node.args
    if isinstance(token, fx.Node) and token.op == "placeholder":
        token.meta["val"] = None
    with graph.inserting_before(node):
        call = graph.call_function(operator, tuple(arguments), dict(node.kwargs))  # type: ignore[arg-type]  # a function
    _, *results = node.meta["val"]
    is_single = len(operator._schema.returns) == 1  # type: ignore[union-attr]  # an operator
    call.meta = {**node.meta, "val": results[0] if is_single else tuple(results) or None, EFFECT: True}
    for reader in list(node.users):
        number = reader.args[1]
        assert isinstance(number, int)
        if number == 0:
            reader.replace_all_uses_with(None)  # type: ignore[arg-type]  # arguments may be None
        elif is_single:
            reader.replace_all_uses_with(call)
        else:
            reader.args = (call, number - 1)
            continue
        graph.erase_node(reader)
    graph.erase_node(node)
