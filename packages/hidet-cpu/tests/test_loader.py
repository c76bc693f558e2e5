"""Loading objects: what they may refer to, what is said when they refer to more, and how long code lives."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import struct
import threading

import pytest

from hidet.cpu.arch import arch_from_text, host_arch
from hidet.cpu.loader import LoadedCode, load_objects
from hidet.cpu.object_symbols import ObjectSymbols, read_symbols
from hidet.cpu.toolchain import compile_object
from hidet.errors import CodegenError

ADD = "define i64 @add(i64 %a, i64 %b) nounwind {\n  %c = add i64 %a, %b\n  ret i64 %c\n}"
CALLS_ADD = """
declare i64 @add(i64, i64)
define i64 @double(i64 %a) nounwind {
  %c = call i64 @add(i64 %a, i64 %a)
  ret i64 %c
}"""
TABLE = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
define i64 @look(i64 %i) nounwind {
  %p = getelementptr i64, ptr @table, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}"""
COPY = """
declare ptr @memcpy(ptr, ptr, i64)
define void @copy(ptr %to, ptr %from, i64 %bytes) nounwind {
  %unused = call ptr @memcpy(ptr %to, ptr %from, i64 %bytes)
  ret void
}"""
MIXED = """
declare float @expf(float)
@shared = global [4 x i64] zeroinitializer
define internal float @helper(float %x) noinline {
  %y = call float @expf(float %x)
  ret float %y
}
define float @visible(float %x) {
  %y = call float @helper(float %x)
  ret float %y
}"""


def compiled(text: str) -> bytes:
    return compile_object(text, host_arch(), 1)


def call(code: LoadedCode, name: str, *arguments: int) -> int:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return int(prototype(code.address(name))(*arguments))


def test_a_loaded_function_runs() -> None:
    code = load_objects([compiled(ADD)])
    assert call(code, "add", 40, 2) == 42
    assert code.names == {"add"}


def test_constants_of_a_module_are_loaded_with_it() -> None:
    assert call(load_objects([compiled(TABLE)]), "look", 2) == 30


def test_objects_of_one_call_see_each_other() -> None:
    assert call(load_objects([compiled(CALLS_ADD), compiled(ADD)]), "double", 21) == 42


def test_objects_see_the_symbols_that_are_passed() -> None:
    first = load_objects([compiled(ADD)])
    second = load_objects([compiled(CALLS_ADD)], {"add": first.address("add")})
    assert call(second, "double", 21) == 42


def test_a_python_function_may_be_passed_as_symbol() -> None:
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(lambda a, b: 100 * a + b)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    assert call(load_objects([compiled(CALLS_ADD)], {"add": address}), "double", 3) == 303


def test_the_allowed_libc_functions_are_found() -> None:
    source, target = ctypes.create_string_buffer(b"0123456"), ctypes.create_string_buffer(8)
    code = load_objects([compiled(COPY)])
    call(code, "copy", ctypes.addressof(target), ctypes.addressof(source), 5)
    assert target.value == b"01234"


def test_other_functions_of_the_process_are_not_visible() -> None:
    with pytest.raises(CodegenError, match="calls 'expf', which nothing defines"):
        load_objects([compiled(MIXED)])


def test_all_missing_symbols_are_named() -> None:
    text = "declare void @b()\ndeclare void @a()\ndefine void @f() {\n  call void @b()\n  call void @a()\n  ret void\n}"
    with pytest.raises(CodegenError, match="'a', 'b'"):
        load_objects([compiled(text)])


def test_a_symbol_that_is_defined_twice_is_named() -> None:
    with pytest.raises(CodegenError, match="several objects define 'add'"):
        load_objects([compiled(ADD), compiled(ADD)])


def test_the_same_name_may_be_loaded_again_in_another_call() -> None:
    first = load_objects([compiled(ADD)])
    second = load_objects([compiled(ADD.replace("add i64", "sub i64"))])
    assert (call(first, "add", 5, 3), call(second, "add", 5, 3)) == (8, 2)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(CodegenError, match=r"(?s)no symbol 'ad'.*'add'"):
        load_objects([compiled(ADD)]).address("ad")


def test_loading_nothing_is_allowed() -> None:
    assert load_objects([]).names == frozenset()


def test_code_stays_when_the_code_that_used_it_goes() -> None:
    first = load_objects([compiled(ADD)])
    for _ in range(20):
        call(load_objects([compiled(CALLS_ADD)], {"add": first.address("add")}), "double", 1)
        gc.collect(1)
    assert call(first, "add", 1, 1) == 2


def test_threads_may_load_at_once() -> None:
    sums: list[int] = []
    data = compiled(ADD)

    def load_and_run() -> None:
        for number in range(10):
            sums.append(call(load_objects([data]), "add", number, 1))

    threads = [threading.Thread(target=load_and_run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == sorted([*range(1, 11)] * 4)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "aarch64-generic", "apple-m1"])
def test_symbol_tables_are_read_for_each_object_format(cpu: str) -> None:
    arch = arch_from_text(cpu)
    if cpu == "apple-m1":
        arch = dataclasses.replace(arch, triple="arm64-apple-darwin")
    symbols = read_symbols(compile_object(MIXED, arch, 1))
    assert (set(symbols.defined), symbols.undefined) == ({"visible", "shared"}, ("expf",))


def test_what_is_no_object_file_is_refused() -> None:
    with pytest.raises(CodegenError, match="not an object file"):
        load_objects([b"PK\x03\x04 something else"])


def test_a_cut_object_file_is_refused() -> None:
    data = compiled(ADD)
    with pytest.raises(CodegenError, match="damaged"):
        load_objects([data[: len(data) // 2]])


def test_a_symbol_table_that_points_outside_the_file_is_refused() -> None:
    data = bytearray(compiled(ADD))
    if data[:4] != b"\x7fELF":
        pytest.skip("patches an ELF header")
    struct.pack_into("<Q", data, 40, 1 << 40)
    with pytest.raises(CodegenError, match="damaged"):
        read_symbols(bytes(data))


def test_symbols_are_plain_data() -> None:
    assert read_symbols(compiled(ADD)) == ObjectSymbols(("add",), ())
