"""Strings, and numbers made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from hidet import dtypes
from hidet.errors import ImportFailed, UnsupportedOp
from hidet.frontend import Emitter, Handler
from hidet.graph import Value
from hidet.onnx.mapping import Key


def handlers() -> Mapping[Key, Handler]:
    """The handlers of this family."""
    return {
        ("StringConcat", 20): lambda e, a, b: e.emit("string_concat", a, b),
        ("RegexFullMatch", 20): lambda e, x, pattern: e.emit("regex_full_match", x, pattern=pattern),
        ("StringSplit", 20): _split,
        ("StringNormalizer", 10): _normalize,
        ("TfIdfVectorizer", 9): _count_ngrams,
    }


def _split(e: Emitter, x: Value, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[Value, ...]:
    width = e.builder.fresh_size()
    return e.emit_all("string_split", [x], {"delimiter": delimiter, "most": maxsplit, "defines": (width,)})


def _normalize(
    e: Emitter,
    x: Value,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Sequence[str] = (),
) -> Value:
    """Letters change their case as Unicode has it, which most locales do too: others are refused."""
    if locale not in (None, "", "C", "en_US", "en_US.UTF-8", "en-US"):
        raise UnsupportedOp(f"StringNormalizer in locale {locale!r}: only case changes of en_US are known")
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise UnsupportedOp(f"StringNormalizer: case_change_action is {case_change_action!r}")
    return e.emit(
        "string_normalize",
        x,
        case=case_change_action.lower(),
        stopwords=tuple(stopwords),
        is_case_sensitive=bool(is_case_sensitive),
        defines=(e.builder.fresh_size(),),
    )


def _count_ngrams(
    e: Emitter,
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Value:
    """How often each n-gram of the pool occurs in the rows of x, its tokens up to `max_skip_count` apart; f32."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise UnsupportedOp(f"TfIdfVectorizer: mode is {mode!r}, expected TF, IDF or TFIDF")
    pool: Any = numpy.asarray(pool_int64s, numpy.int64)
    tokens = x
    if pool_strings:
        words = {word: number for number, word in enumerate(dict.fromkeys(pool_strings))}
        pool = numpy.asarray([words[word] for word in pool_strings], numpy.int64)
        table = {"keys": tuple(words), "values": tuple(words.values()), "default": -1, "dtype": dtypes.i64}
        tokens = e.emit("lookup", x, **table)
    rows = e.cast(tokens if x.tensor.rank == 2 else e.unsqueeze(tokens, (0,)), dtypes.i64)
    # One column an n-gram of the pool, in order; then columns are brought to their places.
    columns = [
        _occurrences(e, rows, ngrams, max_skip_count if ngrams.shape[1] > 1 else 0)
        if min_gram_length <= ngrams.shape[1] <= max_gram_length
        else e.emit("full", shape=(rows.tensor.shape[0], len(ngrams)), value=0, dtype=dtypes.i64)
        for ngrams in _collections(pool, ngram_counts)
        if len(ngrams)
    ]
    width = max(ngram_indexes, default=-1) + 1
    total = sum(len(ngrams) for ngrams in _collections(pool, ngram_counts))
    if total != len(ngram_indexes):
        raise ImportFailed(f"TfIdfVectorizer: {total} n-grams and {len(ngram_indexes)} ngram_indexes")
    counts = e.cast(e.emit("concat", *columns, axis=1), dtypes.f32)
    if mode == "IDF":
        counts = e.emit("minimum", counts, e.constant(1, dtypes.f32))
    if mode != "TF" and weights:
        counts = e.emit("mul", counts, e.array(numpy.asarray(weights, numpy.float32)))
    places = numpy.zeros((total, width), numpy.float32)
    places[numpy.arange(total), numpy.asarray(ngram_indexes)] = 1
    result = e.emit("matmul", counts, e.array(places))
    return result if x.tensor.rank == 2 else e.emit("squeeze", result, axes=(0,))


def _collections(pool: Any, starts: Sequence[int]) -> list[Any]:
    """The n-grams of the pool as arrays [count, n], for n from 1 up."""
    ends = (*starts[1:], len(pool))
    found = []
    for n, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if (end - start) % n or end < start:
            raise ImportFailed(f"TfIdfVectorizer: {end - start} numbers of {n}-grams in the pool")
        found.append(pool[start:end].reshape(-1, n))
    return found


def _occurrences(e: Emitter, rows: Value, ngrams: Any, skips: int) -> Value:
    """i64[rows, n-grams]: at how many places of each row the tokens of an n-gram stand, over all distances."""
    batch, length = rows.tensor.shape
    count, n = ngrams.shape
    if not isinstance(length, int):
        raise UnsupportedOp(f"TfIdfVectorizer of rows of symbolic length {length}")
    result = e.emit("full", shape=(batch, count), value=0, dtype=dtypes.i64)
    for step in range(1, skips + 2):
        places = length - (n - 1) * step
        if places < 1:
            break
        hit: Value | None = None
        for number in range(n):
            start = number * step
            token = e.emit("slice", rows, starts=(0, start), stops=(batch, start + places), steps=(1, 1))
            same = e.emit("equal", e.unsqueeze(token, (2,)), e.array(ngrams[:, number]))
            hit = same if hit is None else e.emit("logical_and", hit, same)
        assert hit is not None
        result = e.emit("add", result, e.emit("sum", e.cast(hit, dtypes.i64), axes=(1,)))
    return result
