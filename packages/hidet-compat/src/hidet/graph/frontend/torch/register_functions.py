"""`register_function` by its place in hidet 0.6. hidet's own functions of torch are handlers of its front-end."""

from hidet.graph.frontend.torch.registry import register_function

__all__ = ["register_function"]
