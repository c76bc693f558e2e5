"""`register_method` by its place in hidet 0.6. hidet's own methods of torch are handlers of its front-end."""

from hidet.graph.frontend.torch.registry import register_method

__all__ = ["register_method"]
