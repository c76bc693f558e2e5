"""The models that have to compile and be right: a table from name to entry."""

from collections.abc import Mapping
from types import MappingProxyType

from .entry import ZooModel
from .language import LANGUAGE_MODELS
from .vision import VISION_MODELS

MODELS: Mapping[str, ZooModel] = MappingProxyType({model.name: model for model in (*VISION_MODELS, *LANGUAGE_MODELS)})
"""All models of the zoo by name."""
