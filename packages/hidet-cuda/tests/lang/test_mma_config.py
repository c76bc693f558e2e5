"""The mappings of MmaConfig say what the hardware's fragments hold, as the simulator has them."""

import pytest

from hidet.cuda.simulator.fragments import accumulator, operand_a, operand_b
from hidet.errors import ScriptError
from hidet.lang.cuda import MmaConfig, WgmmaConfig, make_wgmma_desc


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


@pytest.mark.parametrize("config", [config for config in WgmmaConfig.all() if config.n in (8, 32, 256)], ids=str)
def test_a_warp_group_holds_16_rows_a_warp(config):
    mapping = config.c_store_map
    rows, columns = accumulator(16, config.n)
    assert (mapping.num_workers, mapping.task_shape) == (128, (64, config.n))
    assert config.c_elements == mapping.tasks_per_worker
    of_a_rows, of_a_columns = operand_a(16, config.k, config.shape.a.nbytes)
    for thread in (0, 1, 37, 127):
        warp, lane = divmod(thread, 32)
        assert mapping.map(thread) == list(zip((16 * warp + rows[lane]).tolist(), columns[lane].tolist(), strict=True))
        expected = list(zip((16 * warp + of_a_rows[lane]).tolist(), of_a_columns[lane].tolist(), strict=True))
        assert config.a_load_map.map(thread) == expected
    assert config.a_elements == config.a_load_map.tasks_per_worker
    assert 128 * config.c_regs * 4 == 64 * config.n * config.output_dtype.nbytes


def test_products_of_warp_groups_are_found_by_shape_and_types():
    config = WgmmaConfig.get(64, 128, 16, "f16", "f16", "f32")
    assert (config.m, config.n, config.k, str(config)) == (64, 128, 16, "m64n128k16_f16_f16_f32")
    with pytest.raises(ScriptError, match="a warp group has no product m64n12k16_f16_f16_f32") as caught:
        WgmmaConfig.get(64, 12, 16, "f16", "f16", "f32")
    assert "m64n128k16_f16_f16_f32" in caught.value.hint


def test_descriptors_count_in_sixteen_bytes():
    assert make_wgmma_desc(128, 256, 1) == 8 << 16 | 16 << 32 | 1 << 62
    with pytest.raises(ScriptError, match="make_wgmma_desc got offsets"):
        make_wgmma_desc(100, 256, 1)
