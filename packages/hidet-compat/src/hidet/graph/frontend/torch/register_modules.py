"""`register_module` by its place in hidet 0.6. hidet's own modules of torch are handlers of its front-end."""

from hidet.graph.frontend.torch.registry import register_module

__all__ = ["register_module"]
