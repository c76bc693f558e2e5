"""hidet.Tensor and what makes one."""

from __future__ import annotations

import numpy as np
import pytest

import hidet
from hidet import dtypes, option
from hidet.context import make_context
from hidet.errors import DTypeError, OptionError, ShapeError
from hidet.lang import f32


def test_tensors_are_made_with_shape_and_type():
    assert hidet.zeros([2, 3]).numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert hidet.ones(3, dtype="int32").tolist() == [1, 1, 1]
    assert hidet.full([2], 2.5, dtype=hidet.float16).dtype is dtypes.f16
    assert hidet.empty([4, 5], dtype=dtypes.bf16).nbytes == 40
    assert hidet.arange(3).tolist() == hidet.arange(0, 3, 1).tolist() == [0, 1, 2]
    assert hidet.linspace(0.0, 1.0, 3).tolist() == [0, 0.5, 1]
    drawn = hidet.randint(2, 5, [100])
    assert drawn.dtype is dtypes.i32 and set(drawn.tolist()) == {2, 3, 4}
    assert abs(hidet.randn([10000], mean=3.0).numpy().mean() - 3) < 0.1


def test_seeds_of_numpy_make_tensors_repeat():
    np.random.seed(1)
    first = hidet.randn([3]).tolist()
    np.random.seed(1)
    assert hidet.randn([3]).tolist() == first


def test_likes_take_what_is_not_given_from_the_tensor():
    x = hidet.ones([2, 3], dtype="float64")
    assert hidet.zeros_like(x).shape == (2, 3)
    assert hidet.zeros_like(x).dtype is dtypes.f64
    assert hidet.empty_like(x, shape=[4], dtype="int8").nbytes == 4
    assert hidet.full_like(x, 2).tolist() == [[2, 2, 2], [2, 2, 2]]


def test_memory_of_the_host_is_shared():
    array = np.zeros(3, np.float32)
    tensor = hidet.asarray(array)
    array[1] = 2
    assert tensor.tolist() == [0, 2, 0]
    assert np.from_dlpack(tensor).ctypes.data == array.ctypes.data
    assert np.asarray(tensor) is tensor.numpy()
    assert hidet.asarray([1.0, 2.0]).dtype == hidet.float32
    assert hidet.asarray(tensor, dtype="int64").tolist() == [0, 2, 0]


def test_tensors_are_shared_with_torch():
    torch = pytest.importorskip("torch")
    source = torch.zeros(2, 3)
    tensor = hidet.from_torch(source)
    tensor.numpy()[0, 0] = 4
    assert source[0, 0] == 4
    assert tensor.torch().data_ptr() == source.data_ptr()
    brain = hidet.full([2], 1.5, "bfloat16").torch()
    assert brain.dtype is torch.bfloat16 and brain.tolist() == [1.5, 1.5]


def test_types_of_scripts_are_types_of_tensors():
    assert hidet.randn([1]).dtype == f32 == hidet.float32
    assert hidet.float32 == dtypes.f32 and hidet.float32 != dtypes.f64
    assert hidet.float32 == "float32" == hidet.randn([1]).dtype and hidet.float32 != "float64"


def test_a_tensor_shows_its_head_and_elements():
    text = str(hidet.asarray([[1.0, -0.126]]))
    assert text == "Tensor(shape=(1, 2), dtype='float32', device='cpu')\n[[ 1.   -0.13]]"


def test_copies_and_conversions():
    x = hidet.asarray([[1.5, 2.0]])
    assert x.to("int32").tolist() == [[1, 2]]
    assert x.cpu() is x and x.astype("float32") is x
    assert x.copy().numpy() is not x.numpy()
    assert x.reshape([2, -1]).shape == (2, 1) and len(x) == 1
    assert hidet.full([], 3.0).item() == 3.0


def test_wrong_uses_say_what_is_expected():
    with pytest.raises(ShapeError, match="tensors with one element, this one has 2"):
        hidet.ones([2]).item()
    with pytest.raises(DTypeError, match="elements that are no numbers"):
        hidet.asarray(["a", None])
    with pytest.raises(DTypeError, match="unknown element type 'float33'"):
        hidet.zeros([1], dtype="float33")
    with pytest.raises(OptionError, match="no target is for devices of type 'nowhere'"):
        hidet.zeros([1], device="nowhere")


def test_a_kernel_takes_tensors():
    pytest.importorskip("hidet.cpu")

    @hidet.script
    def double(x: f32[3]):
        for i in range(3):
            x[i] *= 2.0

    x = hidet.ones([3])
    double(x)
    assert x.tolist() == [2, 2, 2]


def test_settings_reach_the_compilations_after_them(tmp_path):
    before = option.current()
    try:
        option.cache_dir(tmp_path / "cache")
        assert make_context("cpu").cache.status().directory == tmp_path / "cache"
        assert option.get_cache_dir() == str(tmp_path / "cache")
        option.cache_operator(False)
        assert make_context("cpu").cache.status().directory is None
        assert (option.get_search_space(), make_context("cpu").options.search_level) == (0, 0)
        option.search_space(2)
        assert make_context("cpu").options.search_level == 2
        assert make_context("cpu", {"search_space": 0}).options.search_level == 0
        assert (hidet.ones([2]) + hidet.ones([2])).tolist() == [2, 2], "an operator by itself is not tuned"
    finally:
        option._SETTINGS.set(before)
    with pytest.raises(OptionError, match="search_space is 0, 1 or 2, got 3"):
        option.search_space(3)


def test_only_a_tensor_of_one_whole_number_is_an_index():
    assert ["a", "b", "c"][hidet.asarray([2])] == "c"
    assert hidet.asarray([1.0, 2.0]).view("int32").tolist() == [0x3F800000, 0x40000000]
    assert hidet.asarray([[1, 2], [3, 4]]).rearrange([[1, 0]]).tolist() == [1, 3, 2, 4]
    with pytest.raises(TypeError):
        _ = ["a"][hidet.asarray([0.0])]
    with pytest.raises(ShapeError):
        _ = ["a"][hidet.asarray([0, 0])]


def test_tensors_have_the_methods_of_earlier_versions():
    x = hidet.arange(3, dtype="int32")
    assert x.detach() is x.contiguous() is x.to_device("cpu") is x
    assert x.float().dtype.name == "float32"
    assert x.signature() == "tensor(int32, [3], cpu)"
    assert x.unsqueeze(0).expand(2, -1).tolist() == [[0, 1, 2], [0, 1, 2]]
    assert x.masked_fill(x > 1, 7).tolist() == [0, 1, 7]
