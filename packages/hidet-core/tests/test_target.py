"""What a target for GPUs states, and what happens where one does not."""

import pytest

from hidet.errors import PluginError
from hidet.target import gpu_target


class Plain:
    """A target without blocks of threads."""

    name = "acme"


class Gpu(Plain):
    """One with all facts, of which one needs the device."""

    warp_size, block_threads, block_shared_memory = 64, 256, 32 << 10
    multiprocessor_threads, multiprocessor_shared_memory, multiprocessor_registers = 1024, 64 << 10, 1 << 15

    @property
    def multiprocessors(self) -> int:
        raise AssertionError("the device was asked")

    def has(self, feature: str) -> bool:
        return False


def test_a_target_that_states_all_facts_is_a_gpu_and_its_device_is_not_asked():
    target = Gpu()
    assert gpu_target(target) is target


def test_a_target_without_facts_is_refused_with_the_missing_ones():
    with pytest.raises(PluginError, match=r"'acme' does not state warp_size, multiprocessors, .*has, which") as caught:
        gpu_target(Plain())
    assert "GpuTarget" in caught.value.hint
