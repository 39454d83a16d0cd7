"""Tokenize text: the entry point. It is a conversion of a source, in the converters' pipeline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from mdsx.base.arguments import check_choice, check_count
from mdsx.base.process import Engine, Workers
from mdsx.base.progress import Progress
from mdsx.base.sizes import parse_size
from mdsx.base.system import cores
from mdsx.datasets import Dataset, Mixture
from mdsx.errors import UsageError, shown
from mdsx.format import UINT16, UINT32, Index, Schema, parse_type
from mdsx.shards import read_index
from mdsx.storage import Storage, StorageOptions
from mdsx.transfer.converting import Conversion, ConversionProgress, convert_source, open_output
from mdsx.transfer.tokenizing.kinds import open_texts
from mdsx.transfer.tokenizing.source import AMOUNTS, TOKENS, TokenSource
from mdsx.transfer.tokenizing.vocabulary import Encoder, Vocabulary, open_vocabulary

_PARTS, _PART = 16, 2**22  # this many parts, if each has this many source bytes; more if shards are full
_MOST_PARTS = 4096  # more than in other conversions, so that many processes end at about the same time
_BATCH, _MOST_BATCHES = 2**20, 16  # characters, for each thread of the tokenizer
_JOINED = "nothing in the rows marks where a document ends: add a token with --end-of-text"

TextSource = str | os.PathLike[str] | Dataset | Mixture


@dataclass(frozen=True, slots=True)
class Tokenization:
    """How `tokenize` ended.

    Attributes:
        url: The dataset's URL.
        columns: Column name -> type.
        samples: How many rows it has.
        tokens: How many tokens the rows have.
        documents: How many documents they come from; None if an earlier call finished rows of a fixed length.
        left_out: How many tokens are in no row, because they remained at the end of a stretch of the sources; None in
            the same case.
        skipped: How many documents were left out. A damaged stretch of unknown length counts as one.
        already: Whether an earlier call had finished it.
    """

    url: str
    columns: Mapping[str, str]
    samples: int
    tokens: int
    documents: int | None
    left_out: int | None
    skipped: int
    already: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizationProgress(ConversionProgress):
    """The progress of `tokenize`: the progress of a conversion, and how many `documents` and `tokens` are done.

    `speed`: tokens a second since this call began.
    """

    documents: int
    tokens: int
    speed: float


def tokenize(
    sources: TextSource | Sequence[TextSource],
    url: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str],
    *,
    kind: Literal["jsonl", "parquet", "tar", "text", "dataset"] | None = None,
    text_column: str | None = None,
    keep: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    begin_of_text: str | int | None = None,
    end_of_text: str | int | None = None,
    rows: int | None = None,
    dtype: str | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_size: int | str = "64MiB",
    compression: str | None = None,
    num_workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    storage_options: StorageOptions | None = None,
    source_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
    nan: Literal["error", "null"] | None = None,
    per: Literal["file", "line"] | None = None,
) -> Tokenization:
    """Tokenize texts, and write the tokens as a dataset at `url`, in the order of the sources.

        mdsx.tokenize("corpus-*.jsonl.zst", "s3://bucket/corpus", "tokenizer.json", end_of_text="<|endoftext|>")

    A row is a document, to be packed on reading (`mdsx.Pack`), or `rows` tokens of successive documents. After a kill,
    the same call continues. The bytes of the dataset are the same for any number of processes. See docs/converting.md.

    Args:
        sources: Paths, globs or URLs, where `{0000..0099}` names several; also an `mdsx.Dataset`, or an `mdsx.Mixture`
            without proportions.
        url: Where to write the dataset.
        tokenizer: The path of a `tokenizer.json` (of the library tokenizers, the extra tokenize of mdsx). With "bytes",
            the tokens are the bytes of UTF-8, and 256 is `<|endoftext|>`, 257 `<|beginoftext|>`.
        kind: The kind of the sources: "jsonl", "parquet", "tar", "text" or "dataset". By default, it is taken from the
            suffix; without a usual suffix, a source is a dataset that `mdsx.Dataset` opens.
        text_column: The column of the texts: by default "text", in tars "txt".
        keep: Columns to store with the tokens of each document, such as ["id", "source"].
        columns: Column name -> type of kept columns, instead of types inferred from the first samples.
        begin_of_text: A token to insert before each document: its text, or its number.
        end_of_text: A token to insert after each document: its text, or its number.
        rows: The length of all rows. By default, a row is a document.
        dtype: The type of the tokens: by default uint16 if the tokenizer has at most 65,536, otherwise uint32.
        on_error: "skip" skips documents without a text, lines that are not JSON, damaged stretches and so on, and
            reports each to `watch`.
        shard_size: As in `mdsx.Writer`.
        compression: As in `mdsx.Writer`.
        num_workers: How many processes tokenize: 1 by default, which uses all CPUs; several processes share them. With
            `engine`, as many as the cluster has CPUs.
        engine: "ray" tokenizes on a Ray cluster (docs/engines.md), and needs the extra ray of mdsx.
        overwrite: Whether to replace a finished dataset at `url`, as in `mdsx.Writer`. After a kill, the call then
            starts again.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        source_options: Options for the storage of sources that are URLs.
        watch: Called with an `mdsx.Progress` now and then, and for each skipped document. The progress also has
            `documents`, `tokens` and `speed`, in tokens a second.
        nan: jsonl, tar: "null" reads NaN and Infinity in JSON as null; "error", the default, raises an error.
        per: text: what a document is: "file" (the default) or "line".

    Returns:
        The result of the call.

    Raises:
        MissingError: A source or the tokenizer is missing.
        CorruptError: A source is damaged. The error names the file and the place.
        SampleError: A document has no text. The error names the file and the place.
        UsageError: An argument is invalid, or `url` holds something else.
    """
    check_choice("on_error", on_error, "raise", "skip")
    if rows is not None:
        check_count("rows", rows)
    keep = _kept(keep, rows)
    if columns:
        Schema.from_columns(columns)
    workers, size = Workers.of(num_workers, engine), parse_size(shard_size, name="shard_size")
    threads = 1 if engine else max(cores() // (num_workers or 1), 1)
    encoder = _encoder(open_vocabulary(tokenizer, threads), dtype, begin_of_text, end_of_text)
    texts = open_texts(
        [sources] if isinstance(sources, str | os.PathLike | Dataset | Mixture) else list(sources),
        kind,
        text=text_column,
        keep=keep,
        columns=dict(columns or {}),
        skip=on_error == "skip",
        options=source_options,
        own={"nan": nan, "per": per},
    )
    batch = _BATCH * min(threads, _MOST_BATCHES)
    warnings = [*texts.warnings, _JOINED] if rows is not None and not encoder.added else texts.warnings
    source = TokenSource(texts, warnings, encoder, keep=keep, length=rows, batch=batch)
    storage, meter = open_output(url, storage_options), _Meter(watch)
    conversion = convert_source(
        source,
        storage,
        on_error=on_error,
        shard_size=size,
        compression=compression,
        workers=workers,
        storage_options=storage_options,
        watch=meter,
        parts=_parts(sum(unit.size for unit in source.units), size),
        overwrite=overwrite,
    )
    return meter.result(conversion, storage, rows)


def _parts(source_bytes: int, shard_size: int) -> int:
    """Return in how many parts to write the tokens of `source_bytes`. The number does not depend on the number of
    processes, but limits it. So there are many parts: tokenizing takes far longer than writing."""
    return min(max(-(-source_bytes // shard_size), min(source_bytes // _PART, _PARTS)), _MOST_PARTS)


def _kept(keep: Sequence[str], rows: int | None) -> list[str]:
    """Return the names of the kept columns. Raise UsageError."""
    if isinstance(keep, str):
        raise UsageError("keep must be a list of names", found=shown(keep))
    if keep and rows is not None:
        raise UsageError("rows= joins documents, so no columns can be kept", found=shown(list(keep)))
    for name in keep:
        if name == TOKENS:
            raise UsageError("a kept column has the name of the column of tokens", found=name)
    return list(dict.fromkeys(keep))


def _encoder(
    vocabulary: Vocabulary, dtype: str | None, begin_of_text: str | int | None, end_of_text: str | int | None
) -> Encoder:
    """Return the encoder. Raise UsageError if a token is unknown, or too large for the type."""
    begin, end = (None if given is None else vocabulary.token(given) for given in (begin_of_text, end_of_text))
    encoder = Encoder(vocabulary, UINT16.name, begin, end)
    if dtype is None:
        return encoder if encoder.size <= 2**16 else Encoder(vocabulary, UINT32.name, begin, end)
    kind = parse_type(dtype)
    if kind.kind != "integer" or kind.shape is not None or kind.nullable:
        raise UsageError("dtype must be an integer type", found=shown(dtype), expected="a type such as uint16")
    bits = int("".join(filter(str.isdigit, kind.base))) - (not kind.base.startswith("u"))
    if encoder.size > 2**bits:
        found = f"{encoder.size:,} tokens"
        raise UsageError(f"{dtype} cannot hold all tokens", file=vocabulary.name, found=found, expected=f"{2**bits:,}")
    return Encoder(vocabulary, kind.base, begin, end)


class _Meter:
    """Passes the progress to `watch` with tokens a second, and keeps the last sums."""

    def __init__(self, watch: Callable[[Progress], object]) -> None:
        self._watch, self._began = watch, time.monotonic()
        self._sums = (0, 0, 0)

    def __call__(self, progress: Progress) -> None:
        assert isinstance(progress, ConversionProgress)
        documents, tokens, left = progress.amounts
        self._sums = documents, tokens, left
        speed = (tokens - progress.earlier[AMOUNTS.index("tokens")]) / max(time.monotonic() - self._began, 1e-3)
        known: dict[str, Any] = {field.name: getattr(progress, field.name) for field in fields(progress)}
        self._watch(TokenizationProgress(**known, documents=documents, tokens=tokens, speed=speed))

    def result(self, conversion: Conversion, storage: Storage, rows: int | None) -> Tokenization:
        """Return the result of the call. What the dataset has is not summed: the sums have refused documents too."""
        documents: int | None
        left: int | None
        if rows is None:
            index = read_index(storage)
            assert isinstance(index, Index)
            documents, tokens, left = conversion.samples, index.lengths[TOKENS], 0
        else:
            tokens = conversion.samples * rows
            documents, _, left = (None, None, None) if conversion.already else self._sums
        return Tokenization(
            conversion.url,
            conversion.columns,
            conversion.samples,
            tokens,
            documents,
            left,
            conversion.skipped,
            conversion.already,
        )
