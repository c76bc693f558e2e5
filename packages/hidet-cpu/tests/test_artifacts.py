"""Saved graphs: every damage is found before it does any, and nothing but ArtifactError says so."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hidet
from hidet import dims, dtypes
from hidet.cli import main
from hidet.compiler.graphs import compile_graph
from hidet.context import make_context
from hidet.errors import ArtifactError, CodegenError, OptionError
from hidet.graph import GraphBuilder, TensorType
from hidet.plugins.host import load_registry
from hidet.runtime.archive import Archive, copy_bytes, sha256_of, write_archive
from hidet.runtime.artifact import verify_file

X = np.random.default_rng(0).standard_normal((5, 24)).astype(np.float32)
WEIGHTS = "weights.safetensors"


def saved(path: Path, scale: float = 1.0, columns: int = 24, operator: str = "relu") -> Path:
    ctx = make_context("cpu", {"threads": 1, "verify": True})
    b = GraphBuilder(ctx.registry.operators)
    x = b.input(TensorType(dtypes.f32, (dims.symbol("rows", 1, 64), columns)), "x")
    weight = np.random.default_rng(1).standard_normal((columns, 40)).astype(np.float32) * np.float32(scale)
    y = b.emit(operator, b.emit("matmul", x, b.constant(weight)))
    y = b.emit("softmax", b.emit("add", y, b.constant(np.ones(40, np.float32))), axis=0)
    compile_graph(b.build([b.emit("matmul", y, b.constant(np.eye(40, 3, dtype=np.float32)))]), ctx).save(path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return saved(tmp_path_factory.mktemp("model") / "model.hidet").read_bytes()


@pytest.fixture
def path(tmp_path: Path, model: bytes) -> Path:
    (tmp_path / "model.hidet").write_bytes(model)
    return tmp_path / "model.hidet"


def flip_weight(path: Path) -> None:
    """One bit of the last weight."""
    data = bytearray(path.read_bytes())
    data[data.rindex(np.ones(40, np.float32).tobytes()) + 80] ^= 0x40
    path.write_bytes(data)


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(path: Path, found: dict[str, bytes], codes: bool = True) -> Path:
    """Write a file whose digests are right, those of codes as well or not."""
    manifest = json.loads(found["manifest.json"])
    manifest["program"] = sha256_of(found["program.json"])
    if codes:
        names = json.loads(found["program.json"])["code"]
        pairs = [(name, found[f"code/{number}"]) for number, name in enumerate(names)]
        manifest["code"] = [sha256_of(manifest["program"].encode(), n.encode(), b"\0", c) for n, c in pairs]
    found["manifest.json"] = json.dumps(manifest).encode()
    write_archive(path, [(name, [content]) for name, content in found.items()], aligned=WEIGHTS)
    return path


def with_program(path: Path, change: Callable[[dict[str, Any]], None], codes: bool = True) -> Path:
    """The file with a changed program.json behind digests that are right."""
    found = members(path.read_bytes())
    program = json.loads(found["program.json"])
    change(program)
    found["program.json"] = json.dumps(program).encode()
    path.unlink()
    return sealed(path, found, codes)


def assert_refused(path: Path, message: str, **options: Any) -> None:
    with pytest.raises(ArtifactError, match=message):
        hidet.load(path, **options)


# --- weights ---------------------------------------------------------------------------------------------------------


def test_damaged_weights_are_refused_when_they_are_loaded(path: Path) -> None:
    """red-team.md finding 3, user-walk.md bug 2."""
    flip_weight(path)
    assert_refused(path, "weight [012] is damaged")


def test_damaged_weights_are_refused_at_the_first_call_where_that_is_asked_for(path: Path) -> None:
    """red-team.md finding 3."""
    expected = hidet.load(path)(X)
    lazy = hidet.load(path, verify="lazy")
    np.testing.assert_array_equal(lazy(X), expected)
    np.testing.assert_array_equal(lazy(X), expected)
    flip_weight(path)
    damaged = hidet.load(path, verify="lazy")
    for use in (lambda: damaged(X), lambda: damaged(X), lambda: damaged.save(path), lambda: damaged.__reduce__()):
        with pytest.raises(ArtifactError, match=r"weight [012] is damaged"):
            use()


def test_nobody_looks_at_weights_where_that_is_asked_for(path: Path) -> None:
    flip_weight(path)
    assert hidet.load(path, verify="none")(X).shape == (5, 3)


def test_an_unknown_way_of_verifying_is_refused(path: Path) -> None:
    with pytest.raises(OptionError, match="verify='often' is not known"):
        hidet.load(path, verify="often")  # type: ignore[arg-type]


def test_bytes_that_nothing_depends_on_may_differ(path: Path) -> None:
    expected = hidet.load(path)(X)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\3\4") + 10] ^= 1  # a time
    path.unlink()
    path.write_bytes(data)
    np.testing.assert_array_equal(hidet.load(path)(X), expected)


# --- the whole file --------------------------------------------------------------------------------------------------


def test_a_digest_of_the_whole_file_is_required_where_it_is_given(path: Path) -> None:
    """red-team.md goal 3."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    expected = hidet.load(path)(X)
    np.testing.assert_array_equal(hidet.load(path, sha256=digest.upper())(X), expected)
    assert_refused(path, "has the SHA-256 .* expected 0000", sha256="0" * 64)
    with pytest.raises(OptionError, match="is no SHA-256"):
        hidet.load(path, sha256="abc")


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe", "reduceer", "missing", "empty", "text", "link"])
def test_what_is_no_file_of_ours_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """red-team.md finding 13: /dev/zero was read until memory ended."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "reduceer").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("PK\3\4 and nothing else")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    assert_refused(tmp_path / name, "is not a readable hidet artifact")


def test_a_file_of_another_format_is_refused(path: Path) -> None:
    found = members(path.read_bytes())
    for manifest, message in ((b'{"format": 6}', "has format 6"), (b"[]", "has format None"), (b"null", "format None")):
        path.unlink()
        write_archive(
            path,
            [("manifest.json", [manifest]), *((n, [c]) for n, c in found.items() if n != "manifest.json")],
            WEIGHTS,
        )
        assert_refused(path, message)


def test_compressed_members_are_refused(path: Path) -> None:
    found = members(path.read_bytes())
    path.unlink()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    assert_refused(path, "is compressed or encrypted")


def test_members_beyond_two_gigabytes_are_aligned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """zip writes a longer header for them."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    file = io.BytesIO()
    write_archive(file, [("a", [b"x"]), (WEIGHTS, [b"y" * 50, b"z" * 60])], aligned=WEIGHTS)
    member = Archive("file", copy_bytes(file.getvalue())).member(WEIGHTS)
    assert member.tobytes() == b"y" * 50 + b"z" * 60
    assert member.ctypes.data % 64 == 0


# --- program and code ------------------------------------------------------------------------------------------------


def _resize_buffers(program: dict[str, Any]) -> None:
    assert program["program"]["buffers"]
    for buffer in program["program"]["buffers"]:
        buffer[1] = 0


def _stretch(program: dict[str, Any]) -> None:
    program["program"]["outputs"][0][0][3][0] = 41


def _name_another_machine(program: dict[str, Any]) -> None:
    program["arch"] = program["arch"].replace("+avx2", "-avx2").replace("+sse2", "-sse2")


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "buffers without bytes": _resize_buffers,
    "another stride": _stretch,
    "another size": lambda program: program["program"]["sizes"][0].__setitem__(1, 63),
    "another processor": _name_another_machine,
    "no step": lambda program: program["program"].update(steps=[]),
    "the wrong constant": lambda program: program["program"].update(constants=program["program"]["constants"][:1] * 2),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("codes", [True, False])
def test_a_program_is_refused_with_code_that_was_not_compiled_for_it(path: Path, change: str, codes: bool) -> None:
    """red-team.md findings 4 and 14: behind right digests, too, because code is named after its program."""
    assert_refused(
        with_program(path, CHANGES[change], codes), "was compiled for another|is damaged|does not run|malformed"
    )


def test_code_of_another_program_is_noticed(path: Path, tmp_path: Path) -> None:
    """red-team.md finding 4: a build that mixes up files."""
    mine = members(path.read_bytes())
    other = members(saved(tmp_path / "other.hidet", columns=32).read_bytes())
    mixed = {name: other[name] if name.startswith("code/") else content for name, content in mine.items()}
    write_archive(tmp_path / "mixed.hidet", [(n, [c]) for n, c in mixed.items()], aligned=WEIGHTS)
    assert_refused(tmp_path / "mixed.hidet", "code of graph is damaged, or that of another program")
    assert_refused(sealed(tmp_path / "sealed.hidet", mixed), "its code cannot be loaded: .* no symbol")


def test_equal_models_have_equal_code(tmp_path: Path) -> None:
    """What code is named after does not depend on weights, so that the kernel cache serves both."""
    first, second = (members(saved(tmp_path / f"{s}.hidet", s).read_bytes()) for s in (1.0, 2.0))
    assert first["code/0"] == second["code/0"]


def test_sizes_and_nesting_are_limited(path: Path) -> None:
    """red-team.md findings 12 and 13: a text of 200,000 terms took more than a minute."""
    data = path.read_bytes()

    def nested(program: dict[str, Any]) -> None:
        program["signature"] = None
        program["program"]["sizes"] = "NESTED"

    for text in (
        "+".join(["rows"] * 200_000),
        "(" * 5000 + "rows" + ")" * 5000,
        "9" * 100_000,
        "rows*" * 3000 + "rows",
    ):
        start = time.perf_counter()
        assert_refused(
            with_program(path, lambda program, t=text: program["program"]["sizes"][0].__setitem__(1, t)),
            "malformed|another",
        )
        assert time.perf_counter() - start < 30
        path.unlink()
        path.write_bytes(data)
    found = members(with_program(path, nested).read_bytes())
    found["program.json"] = found["program.json"].replace(b'"NESTED"', b"[" * 200_000 + b"]" * 200_000)
    path.unlink()
    assert_refused(sealed(path, found, codes=False), "is not a readable hidet artifact: RecursionError")


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"0": 1, "1": 2}',
        b'{"0": {"dtype": "float32", "shape": [1], "data_offsets": [0]}}',
    ],
)
def test_a_malformed_header_of_weights_is_refused(path: Path, header: bytes) -> None:
    """red-team.md finding 12."""
    found = members(path.read_bytes())
    (length,) = struct.unpack_from("<Q", found[WEIGHTS])
    header += b" " * (-(len(header) + 8) % 64)
    found[WEIGHTS] = struct.pack("<Q", len(header)) + header + found[WEIGHTS][8 + length :]
    write_archive(path, [(n, [c]) for n, c in found.items()], aligned=WEIGHTS)
    assert_refused(path, "the header of the weights is damaged")
    program = json.loads(found["program.json"])
    program["weights"][0] = sha256_of(header)
    found["program.json"] = json.dumps(program).encode()
    path.unlink()
    assert_refused(sealed(path, found), "malformed|is not a readable hidet artifact")


@pytest.mark.parametrize(
    ("place", "format_", "value"),
    [(62, "<H", 0xFFF0), (60, "<H", 0xFFF0), (40, "<Q", 1 << 60), (58, "<H", 1)],
    ids=["section of names", "count of sections", "table of sections", "bytes of a section"],
)
def test_damaged_headers_of_objects_do_not_reach_the_linker(path: Path, place: int, format_: str, value: int) -> None:
    """red-team.md finding 13: LLVM ended the process for a wrong section index."""
    found = members(path.read_bytes())
    code = bytearray(found["code/0"])
    struct.pack_into(format_, code, place, value)
    found["code/0"] = bytes(code)
    path.unlink()
    assert_refused(sealed(path, found), "its code cannot be loaded")


def test_relocations_outside_of_their_section_are_refused(path: Path) -> None:
    """red-team.md finding 13: every section of an object is where its header says, or it is not linked."""
    from hidet.cpu.object_symbols import read_symbols

    code = members(path.read_bytes())["code/0"]
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    refused = 0
    for number in range(count):
        for field in (24, 32, 40, 44):  # offset, size, link, info
            damaged = bytearray(code)
            struct.pack_into("<Q" if field < 40 else "<I", damaged, table + number * size + field, 0x7FFFFFFF)
            try:
                read_symbols(bytes(damaged))
            except CodegenError:
                refused += 1
    assert refused > 2 * count


# --- the command -----------------------------------------------------------------------------------------------------


def test_verify_says_what_a_file_is_and_runs_none_of_it(path: Path) -> None:
    facts = verify_file(path)
    assert facts.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (facts.target, facts.inputs, facts.weights) == ("cpu", ("x",), 3)
    assert facts.weight_bytes >= 4 * (24 * 40 + 40 + 40 * 3)
    result = CliRunner().invoke(main, ["verify", str(path)])
    assert result.exit_code == 0, result.output
    assert facts.sha256 in result.output
    as_json = CliRunner().invoke(main, ["verify", str(path), "--json"])
    assert json.loads(as_json.output)["sha256"] == facts.sha256


def test_verify_fails_for_a_damaged_file(path: Path) -> None:
    digest = "0" * 64
    assert "has the SHA-256" in CliRunner().invoke(main, ["verify", str(path), "--sha256", digest]).output
    flip_weight(path)
    result = CliRunner().invoke(main, ["verify", str(path)])
    assert result.exit_code == 1
    assert "is damaged" in result.output


def test_a_file_of_several_signatures_says_which_one_is_damaged(tmp_path: Path) -> None:
    graphs = {name: _compiled_scale(factor) for name, factor in (("twice", 2.0), ("thrice", 3.0))}
    file = tmp_path / "both.hidet"
    hidet.save_signatures(graphs, file)
    x = np.arange(4, dtype=np.float32)
    for name, factor in (("twice", 2), ("thrice", 3)):
        assert np.array_equal(hidet.load(file, signature=name)(x), factor * x)
    assert verify_file(file).inputs == ("x", "x")
    data = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        place = data.index(archive.read("1/manifest.json"))
    file.write_bytes(data[: place + 20] + b"~" + data[place + 21 :])
    assert np.array_equal(hidet.load(file, signature="twice")(x), 2 * x)
    with pytest.raises(ArtifactError, match="thrice"):
        hidet.load(file, signature="thrice")
    with pytest.raises(ArtifactError):
        verify_file(file)


def _compiled_scale(factor: float) -> hidet.CompiledGraph:
    builder = GraphBuilder(load_registry().operators)
    x = builder.input(TensorType(dtypes.f32, (4,)), "x")
    return hidet.compile(builder.build([builder.emit("mul", x, builder.constant(factor, dtypes.f32))]), target="cpu")
