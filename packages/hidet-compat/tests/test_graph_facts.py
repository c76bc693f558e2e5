"""What of a script has its graphs compiled step by step, in place of being read from the cache as a whole."""

from __future__ import annotations

import logging

import pytest

import hidet
import hidet.logging
from hidet.compat import _plugin
from hidet.context import Options, make_context


@pytest.fixture
def level():
    before = hidet.logging.logger.level
    yield hidet.logging.logger.setLevel
    hidet.logging.logger.setLevel(before)


def facts(**plugin_options: object) -> str | None:
    return _plugin.hidet_graph_facts(make_context("cpu", Options(plugin_options=plugin_options)))


def test_a_logger_counts_where_it_hears_of_passes(level) -> None:
    level(logging.WARNING)
    assert facts() == ""
    level(logging.DEBUG)
    assert facts() is None


def test_rules_of_quantization_count_for_the_graphs_that_they_are_for(level) -> None:
    level(logging.WARNING)
    with hidet.graph.PassContext() as passes:
        passes.add_quantize_rules([])
        assert facts(**{"compat.quantize": 0}) is None
    assert facts() == ""
