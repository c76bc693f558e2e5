"""The mappings of MmaConfig say what the hardware's fragments hold, as the simulator has them."""

import pytest

from hidet.ir.simulator.semantics.fragments import accumulator, operand_a, operand_b
from hidet.lang.cuda import MmaConfig


@pytest.mark.parametrize("name", MmaConfig.names())
def test_mappings_are_the_fragments_of_the_hardware(name):
    config = getattr(MmaConfig, name)()
    held = {
        config.a_load_map: operand_a(config.m, config.k, config.shape.a.nbytes),
        config.b_load_map: operand_b(config.k, config.shape.b.nbytes),
        config.c_store_map: accumulator(config.m, config.n),
    }
    for mapping, (rows, columns) in held.items():
        assert mapping.num_workers == 32
        for lane in range(32):
            assert mapping.map(lane) == list(zip(rows[lane].tolist(), columns[lane].tolist(), strict=True))
    assert config.a_load_map.task_shape == (config.m, config.k)
    assert config.b_load_map.task_shape == (config.k, config.n)
    assert config.c_store_map.task_shape == (config.m, config.n)
    assert config.c_elements == config.c_store_map.tasks_per_worker


def test_names_say_shape_and_types():
    assert str(MmaConfig.m16n8k16_f16_f32()) == "m16n8k16_f16_f32"
    assert {"m16n8k8_f16_f16", "m16n8k8_tf32_f32", "m16n8k32_i8_i32"} <= set(MmaConfig.names())
