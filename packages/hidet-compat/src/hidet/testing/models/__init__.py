"""Models by their names in hidet 0.6, with parameters drawn at random."""

from hidet.testing.models.resnet import resnet18, resnet34, resnet50, resnet101, resnet152

__all__ = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
