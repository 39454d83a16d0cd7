"""Index token files, so that documents can be read in place: Megatron's, datatrove's, and raw arrays.

The index depends only on the files and the options: the same ones give the same bytes, with any number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mdsx.base.arguments import check_choice, check_count
from mdsx.base.process import REQUESTS, Engine, Share, Workers
from mdsx.base.progress import Progress, Totals
from mdsx.base.warn import warn
from mdsx.errors import MissingError, UsageError, shown
from mdsx.foreign.tokens import INDEX_KEY, LOSS, LOSS_TYPE, MODE, MODE_TYPE, TOKENS, TokensFormat, build_text, is_key
from mdsx.format import NUMBERS, filenames
from mdsx.storage import (
    Entry,
    Storage,
    StorageOptions,
    answered,
    describe,
    discard,
    file_of,
    find_entries,
    open_beside,
    remove,
)
from mdsx.transfer.indexing.sources import IndexedKind, Urls, expand, find_files, index_before, put_index
from mdsx.transfer.indexing.tokens.datatrove import DatatroveKind
from mdsx.transfer.indexing.tokens.megatron import MegatronKind
from mdsx.transfer.indexing.tokens.passes import FoundFile, TokensPass
from mdsx.transfer.indexing.tokens.raw import RawKind
from mdsx.transfer.indexing.tokens.source import TokensKind

_NAME = "token files"
_FILES = 32  # indexed at once, each in some 12 MiB of memory
_DTYPES = [name for name, base in NUMBERS.items() if base.kind == "integer"]


@dataclass(frozen=True, slots=True)
class IndexedTokenFiles:
    """What `index_megatron`, `index_datatrove` or `index_tokens` has indexed.

    Attributes:
        url: The common folder of the files, which is the URL for `mdsx.Dataset` and the loaders.
        files: How many token files have documents.
        samples: How many documents.
        tokens: How many tokens in all documents.
        shards: How many ranges of documents, of about 64 MiB each.
        size: Bytes of the token files.
        columns: Column -> type.
        left_out: How many tokens belong to no document.
        hashed: Whether the index has hashes of the bytes.
    """

    url: str
    files: int
    samples: int
    tokens: int
    shards: int
    size: int
    columns: Mapping[str, str]
    left_out: int
    hashed: bool


def index_megatron(
    sources: Urls,
    *,
    per: str = "document",
    modes: bool = True,
    hash: bool = False,
    index: str | os.PathLike[str] | None = None,
    num_workers: int | None = None,
    engine: Engine | None = None,
    replace_index: bool = False,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> IndexedTokenFiles:
    """Index Megatron-LM's indexed datasets, so that they can be read in place: each document is a sample.

        mdsx.index_megatron("s3://bucket/corpus")  # all PREFIX.bin below it, each with its PREFIX.idx
        loader = StreamingDataLoader(StreamingDataset("s3://bucket/corpus"), batching=mdsx.Pack(4096, length="tokens"))

    This reads the `.idx` files and 128 KiB of each `.bin`, not the tokens. Nothing is copied. A sample has `tokens`, an
    array of the stored type. See docs/data.md for what is checked, and what only `hash=True` finds.

    Args:
        sources: Paths, globs and URLs of `.bin` files, and folders with them, ordered by name. All must be in one
            storage.
        per: What a sample is: "document", whose sequences are joined, or "sequence".
        modes: Whether the modes of sequences, if the files have them, become a column `mode`. If documents have several
            sequences, this needs `per="sequence"`.
        hash: Whether to read all tokens once, and store a hash of each document and shard. The fingerprint stays the
            same.
        index: The folder to write the index to, if you cannot write next to the files. Give readers the same.
        num_workers: How many processes index files.
        engine: "ray" indexes on a Ray cluster (docs/engines.md).
        replace_index: Whether to replace an index of other files that still exist, or, in `index`, of only other files.
        storage_options: Options for the storage, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` now and then.

    Returns:
        What was indexed.

    Raises:
        MissingError: A source names no file, or a file that belongs to it is missing.
        FormatError: A file is damaged, or its documents cannot be read in place.
        UsageError: An argument is invalid, the files have tokens of different types, or the folder has another index.
        TransportError: Storage failed.
    """
    check_choice("per", per, "document", "sequence")
    kind = MegatronKind(per, modes)
    sources = [_without_idx(url) for url in expand(sources)]
    return _index(kind, sources, hash, index, Workers.of(num_workers, engine), replace_index, storage_options, watch)


def index_datatrove(
    sources: Urls,
    *,
    hash: bool = False,
    index: str | os.PathLike[str] | None = None,
    num_workers: int | None = None,
    engine: Engine | None = None,
    replace_index: bool = False,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> IndexedTokenFiles:
    """Index datatrove's token files, so that they can be read in place: each document is a sample.

        mdsx.index_datatrove("s3://bucket/tokenized")  # all .ds files below it, each with its .ds.index

    This reads the `.ds.index` files and 128 KiB of each `.ds`, not the tokens. A sample has `tokens`, whose type is
    determined by the sizes of the files. If there are `.ds.loss` files, it also has `loss`, a byte per token, which is
    packed like the tokens.

    Args:
        sources: Paths, globs and URLs of `.ds` files, and folders with them, ordered by name. All must be in one
            storage.
        hash: As in `mdsx.index_megatron`.
        index: As in `mdsx.index_megatron`.
        num_workers: As in `mdsx.index_megatron`.
        engine: As in `mdsx.index_megatron`.
        replace_index: As in `mdsx.index_megatron`.
        storage_options: As in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` now and then.

    Raises:
        MdsxError: As `mdsx.index_megatron` does.
    """
    workers = Workers.of(num_workers, engine)
    return _index(DatatroveKind(), expand(sources), hash, index, workers, replace_index, storage_options, watch)


def index_tokens(
    sources: Urls,
    *,
    dtype: str | None = None,
    separator: int | None = None,
    csv: bool = False,
    every: int | None = None,
    hash: bool = False,
    index: str | os.PathLike[str] | None = None,
    num_workers: int | None = None,
    engine: Engine | None = None,
    replace_index: bool = False,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] = lambda progress: None,
) -> IndexedTokenFiles:
    """Index raw arrays of tokens, so that they can be read in place.

        mdsx.index_tokens("s3://bucket/dolma", dtype="uint16", csv=True)  # .npy with .csv.gz, as dolma writes them
        mdsx.index_tokens("fineweb10B", every=1024)  # llm.c's .bin, whose header has the type: samples of 1,024 tokens

    The `.npy` files of dolma and OLMo have no header. Headers of NumPy and of llm.c are recognised by their first
    bytes. Give exactly one of `separator`, `csv` and `every`: it determines where samples end.

    Args:
        sources: Paths, globs and URLs of files, and folders with `.npy` and `.bin` files, ordered by name. All must be
            in one storage.
        dtype: The type of the tokens, such as "uint16". Files whose header has the type do not need it.
        separator: The token that ends each document; it stays the document's last token. All tokens are read.
        csv: Whether there is a `.csv.gz` next to each file, whose lines begin with the positions of a document's first
            token and of the token after its last.
        every: How many tokens each sample has. The column has a fixed size. Tokens that do not fill a sample at the end
            of a file are left out, with a warning.
        hash: As in `mdsx.index_megatron`.
        index: As in `mdsx.index_megatron`.
        num_workers: As in `mdsx.index_megatron`.
        engine: As in `mdsx.index_megatron`.
        replace_index: As in `mdsx.index_megatron`.
        storage_options: As in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` now and then.

    Raises:
        MdsxError: As `mdsx.index_megatron` does.
    """
    given = [
        name
        for name, said in (("separator", separator is not None), ("csv", csv), ("every", every is not None))
        if said
    ]
    if len(given) != 1:
        expected = "one of separator (--separator), csv (--csv) and every (--every)"
        message = "give exactly one option for where samples end"
        raise UsageError(message, found=", ".join(given) or "none", expected=expected)
    if dtype is not None and dtype not in _DTYPES:
        raise UsageError("tokens cannot be of this type", found=shown(dtype), expected=", ".join(_DTYPES))
    if separator is not None and type(separator) is not int:
        raise UsageError("separator must be an integer", found=shown(separator))
    if every is not None:
        check_count("every", every)
    kind = RawKind(dtype, separator, csv, every)
    workers = Workers.of(num_workers, engine)
    return _index(kind, expand(sources), hash, index, workers, replace_index, storage_options, watch)


def _without_idx(url: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the URL of the token file for the URL of its index."""
    text = os.fspath(url)
    return f"{text.removesuffix('.idx')}.bin" if text.endswith(".idx") else url


def _index(
    kind: TokensKind,
    given: Sequence[str | os.PathLike[str]],
    hash: bool,
    index: str | os.PathLike[str] | None,
    workers: Workers,
    replace_index: bool,
    options: StorageOptions | None,
    watch: Callable[[Progress], object],
) -> IndexedTokenFiles:
    """Index files of one kind: see `index_megatron`."""
    storage, entries = find_files(given, options, IndexedKind(_NAME, kind.suffixes, is_key), write=index is None)
    place = storage if index is None else open_beside(given[0], index, options, write=True)
    there, before = index_before(
        place,
        INDEX_KEY,
        TokensFormat().parse_index,
        storage=storage,
        entries=entries,
        name=_NAME,
        replace_index=replace_index,
    )
    tables = _tables(place)  # those of a pass that begins later stay
    discard(place, INDEX_KEY, filenames.TABLES_FOLDER)
    sources = _with_beside(storage, kind, [entry for entry in entries if entry.size])
    if not sources:
        raise UsageError("the files are empty", file=storage.url)
    local = storage.path(INDEX_KEY) is not None
    work = TokensPass(storage, place, kind, hash, answered(), local)
    paths = [place.url, file_of(storage, entries[0].key)]
    totals, of_size = Totals(3), sum(entry.size for entry in entries)

    def report(task: str, *numbers: int) -> None:
        totals.reach(task, *numbers)
        samples, size, shards = totals.sums
        watch(Progress(samples, size, of_size, shards))

    at_once = 1 if hash or kind.reads_values else _FILES
    tasks = [sources[start : start + at_once] for start in range(0, len(sources), at_once)]
    found = [each for some in workers.map(work, tasks, report, name="mdsx-index", paths=paths) for each in some]
    columns, hashed = _columns(storage, found, kind), [TOKENS, *([LOSS] if LOSS in sources[0] else [])] if hash else []
    data = build_text(kind.name, columns, [each.file for each in found if each.file.shards], hashed)
    made = TokensFormat().parse_index(data, file=file_of(place, INDEX_KEY))
    put_index(place, INDEX_KEY, data, there)
    remove(place, *sorted(tables - {*made.table_names, *(() if before is None else before.table_names)}))
    left_out = sum(each.left_out for each in found)
    if left_out:
        warn(f"{storage.url}: {left_out:,} tokens belong to no sample, and are left out")
    return IndexedTokenFiles(
        url=storage.url,
        files=len(made.names),
        samples=made.samples,
        tokens=made.tokens,
        shards=len(made.counts),
        size=of_size,
        columns=dict(columns),
        left_out=left_out,
        hashed=hash,
    )


def _with_beside(storage: Storage, kind: TokensKind, entries: Sequence[Entry]) -> list[dict[str, Entry]]:
    """Return the objects of each file, by role. Raise MissingError."""
    keys = [kind.beside(entry.key) for entry in entries]
    found = list[dict[str, Entry]]({TOKENS: entry} for entry in entries)
    for role in keys[0] if keys else ():
        names = [each[role] for each in keys]
        try:
            there = find_entries(storage, names)
        except MissingError:  # a web server lacks some of them
            if role != LOSS:
                raise
            losses = Share(REQUESTS).map(lambda name: _described(storage, name), names)
            there = {entry.key: entry for entry in losses if entry}
        missing = [name for name in names if name not in there]
        if role == LOSS and len(missing) == len(keys):
            continue
        if missing:
            message = (
                "only some of the files have losses" if role == LOSS else "a token file needs this file next to it"
            )
            raise MissingError(message, file=file_of(storage, missing[0]))
        for objects, name in zip(found, names, strict=True):
            objects[role] = there[name]
    return found


def _described(storage: Storage, key: str) -> Entry | None:
    """Return the entry of an object; None if it does not exist."""
    with suppress(MissingError):
        return describe(storage, key)
    return None


def _columns(storage: Storage, found: Sequence[FoundFile], kind: TokensKind) -> list[tuple[str, str]]:
    """Return the columns that all files have. Raise UsageError if they differ."""
    first = found[0]
    for other in found:
        for what, here, there in (
            ("tokens of another type", first.dtype, other.dtype),
            ("modes", first.modes, other.modes),
        ):
            if here != there:
                raise UsageError(
                    f"the files differ: {what}",
                    file=file_of(storage, other.file.name),
                    found=there,
                    expected=f"{here}, as in {first.file.name}",
                    hint="index them separately (--index), and mix them: mdsx.Mixture with "
                    'columns={"tokens": mdsx.Cast("tokens", "uint32")}',
                )
    every = kind.every if isinstance(kind, RawKind) else None
    columns = [(TOKENS, f"{first.dtype}[{'*' if every is None else every}]")]
    if first.file.loss is not None:
        columns.append((LOSS, str(LOSS_TYPE)))
    return [*columns, *([(MODE, str(MODE_TYPE))] if first.modes else [])]


def _tables(place: Storage) -> set[str]:
    return {entry.key for entry in place.list(filenames.TABLES_FOLDER) if filenames.is_token_table(entry.key)}
