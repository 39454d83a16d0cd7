"""Build a dataset with a Python function, in the converters' pipeline. The function's inputs are the source."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from multiprocessing.process import current_process
from tempfile import SpooledTemporaryFile
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import xxhash

from mdsx.base.arguments import check_choice, check_count
from mdsx.base.process import Engine, Workers
from mdsx.base.progress import Progress, StatusLine
from mdsx.base.warn import warn
from mdsx.errors import MdsxError, SampleError, UsageError, restated, shown
from mdsx.format import Schema, build_index
from mdsx.storage import StorageOptions
from mdsx.transfer.converting.conversion import Conversion, convert_source, open_output
from mdsx.transfer.converting.files import File
from mdsx.transfer.converting.source import Block, Row, SampleSource, Unit
from mdsx.writer import checked_lengths

_log = logging.getLogger("mdsx")

_PARTS = 16
_UNITS = 4096
_HELD = 2**26  # bytes of an input's samples in memory, with on_error="skip"
_LINE_EVERY = 30.0  # seconds

Function = Callable[[Any], Mapping[str, Any] | Iterable[Mapping[str, Any]]]


def build(
    function: Function,
    sources: Iterable[Any],
    url: str | os.PathLike[str],
    columns: Mapping[str, str],
    *,
    num_workers: int | None = None,
    engine: Engine | None = None,
    parts: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    shard_size: int | str = "64MiB",
    compression: str | None = None,
    metadata: dict[str, Any] | None = None,
    lengths: Sequence[str] = (),
    overwrite: bool = False,
    storage_options: StorageOptions | None = None,
    watch: Callable[[Progress], object] | None = None,
) -> Conversion:
    """Build a dataset at `url` from the samples that `function` returns for each source, in order.

        def tokenize(path):
            for line in open(path):
                yield {"tokens": np.array(encode(line), np.uint16)}

        mdsx.build(tokenize, sorted(glob("*.txt")), "s3://bucket/corpus", {"tokens": "uint16[*]"}, num_workers=8)

    After a kill, the same call continues: the function is not called again for finished sources. So it must return the
    same samples for the same source. The bytes of the dataset are the same for any number of processes.

    Args:
        function: Takes a source, and returns a sample (column name -> value), a list of samples, or a generator of
            samples. With several processes, define it at the top level of a module. A script must call `build` under
            `if __name__ == "__main__":`.
        sources: The arguments to call the function with: paths, URLs, numbers, or anything else that can be pickled.
            A build continues only with the same ones. So give lists instead of sets that mix types, or that are in an
            object of a class other than a dataclass: their order changes from process to process.
        url: Where to write the dataset.
        columns: Column name -> type, as in `mdsx.Writer`.
        num_workers: How many processes call the function: 1 by default; with `engine`, as many as the cluster has CPUs.
        engine: "ray" calls the function on a Ray cluster (docs/engines.md), and needs the extra ray of mdsx. The
            function may then be defined anywhere, and all nodes must have the modules that it imports.
        parts: In how many parts to write the dataset; they are merged at the end. No more processes than parts can
            work. The default is 16, or the number of sources if that is less.
        on_error: "skip" leaves out sources for which the function raises an exception, with all their samples, and
            single samples that do not fit the columns. Each is counted and reported to `watch`. The samples of a source
            are held until the function has made all of them: up to 64 MiB in memory, more in a temporary file.
        shard_size: As in `mdsx.Writer`.
        compression: As in `mdsx.Writer`.
        metadata: As in `mdsx.Writer`. A resumed build must give the same.
        lengths: As in `mdsx.Writer`. A resumed build must give the same.
        overwrite: Whether to replace a finished dataset at `url`, as in `mdsx.Writer`. After a kill, the build then
            starts again.
        storage_options: Options for the storage of `url`, as in `mdsx.Dataset`.
        watch: Called with an `mdsx.Progress` now and then, and for each skipped source or sample. Its sizes are numbers
            of sources. The default shows a line on a terminal, and logs one every 30 seconds elsewhere.

    Returns:
        The result of the build.

    Raises:
        SampleError: The function raised an exception, or a sample does not fit the columns. The error names the source.
        UsageError: An argument is invalid, or `url` holds something else.
    """
    if not callable(function):
        raise UsageError("function must be callable", found=shown(function))
    if getattr(current_process(), "_inheriting", False):  # a worker imports the script
        hint = 'call it under `if __name__ == "__main__":`'
        raise UsageError("mdsx.build is called while a worker process imports the script", hint=hint)
    if parts is not None:
        check_count("parts", parts)
    check_choice("on_error", on_error, "raise", "skip")
    if isinstance(sources, str | bytes) or not isinstance(sources, Iterable):
        raise UsageError("sources must be a list of arguments for the function", found=shown(sources))
    sources = sources if isinstance(sources, Sequence) else list(sources)
    source = FunctionSource(function, sources, columns, metadata, lengths, whole=on_error == "skip")
    source.check(os.fspath(url))
    parts = min(parts or _PARTS, len(source.units))
    workers = Workers.of(num_workers, engine)
    if engine is None and (num_workers or 1) > 1:
        _check_pickled(function)
    if (num_workers or 1) > parts and parts < len(source.units):
        warn(f"only {parts} of {num_workers} processes can work, one for each part: give parts={num_workers}")
    storage, shown_line = open_output(url, storage_options), None
    if watch is None:
        watch = shown_line = _Line()
    try:
        return convert_source(
            source,
            storage,
            on_error=on_error,
            shard_size=shard_size,
            compression=compression,
            workers=workers,
            storage_options=storage_options,
            watch=watch,
            parts=parts,
            overwrite=overwrite,
        )
    finally:
        if shown_line is not None:
            shown_line.close()


def _check_pickled(function: Function) -> None:
    try:
        data = pickle.dumps(function)
        if b"__main__" in data and not hasattr(sys.modules["__main__"], "__file__"):
            raise AttributeError("other processes cannot import names from a notebook, an interactive session or -c")
    except Exception as error:
        raise UsageError(
            "the function cannot be sent to other processes",
            found=f"{shown(function)}: {error}",
            hint="define it at the top level of a module that is a file, or give num_workers=1",
        ) from None


class FunctionSource(SampleSource):
    """The samples that `function` returns for each input, with `columns`. A unit is a run of inputs.

    `whole`: if the function raises an exception for an input, leave out all of its samples.
    """

    kind: ClassVar[str] = "build"

    def __init__(
        self,
        function: Function,
        inputs: Sequence[Any],
        columns: Mapping[str, str],
        metadata: dict[str, Any] | None,
        lengths: Sequence[str],
        *,
        whole: bool,
    ) -> None:
        count = len(inputs)
        if not count:
            raise UsageError("no source is given")
        self._function, self._inputs, self._whole = function, inputs, whole
        self._columns = {column.name: str(column.type) for column in Schema.from_columns(columns).columns}
        self.files = [File("the list of sources", count, "", _identity(inputs))]
        edges = [number * count // min(count, _UNITS) for number in range(min(count, _UNITS) + 1)]
        self.units = [Unit(0, start, stop, stop - start) for start, stop in pairwise(edges)]
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.lengths, self._metadata = lengths, {} if metadata is None else metadata
        self.settings = {"function": name}
        if lengths:
            self.settings["lengths"] = list(lengths)
        if metadata:
            self.settings["metadata"] = self._metadata

    def check(self, url: str) -> None:
        """Raise UsageError for metadata or lengths that a writer does not accept."""
        schema = Schema.from_columns(self._columns)
        build_index(schema, None, [], self._metadata)
        checked_lengths(schema, self.lengths, url)
        if "converted" in self._metadata:
            raise UsageError("the metadata has the key 'converted', which a build adds", hint="give it another name")

    def metadata(self, columns: Mapping[str, str]) -> dict[str, Any]:
        return self._metadata

    def columns(self) -> tuple[dict[str, str], list[str]]:
        return self._columns, []

    def read(
        self, unit: Unit, columns: Mapping[str, str], count: Callable[[int], object]
    ) -> Generator[Row | Block | MdsxError, None, None]:
        for number in range(unit.start, unit.stop):
            with closing(self._of_input(number)) as made:
                yield from self._held(made) if self._whole else made
            count(1)

    def _of_input(self, number: int) -> Generator[Row | MdsxError, None, None]:
        """Yield the samples of an input; then an error if the function raised one."""
        place = -1
        with closing(_samples(self._function, self._inputs[number])) as samples:
            try:
                for place, sample in enumerate(samples):
                    yield Row(sample, (number, place))
            except _ReturnedError as error:
                yield SampleError(str(error), place=self.place_of((number, place)), hint=error.hint)
            except Exception as error:
                if isinstance(error, MdsxError) and type(error).__module__ == MdsxError.__module__:
                    error.add_note(f"mdsx: the function raised it for {self.place_of((number, place))}")
                    yield error
                    return
                message = f"the function raised {type(error).__name__}: {error}"
                wrapped = SampleError(message, place=self.place_of((number, place)))
                wrapped.add_note("".join(traceback.format_exception(error)).rstrip())  # it reaches other processes
                yield wrapped

    def _held(self, made: Iterator[Row | MdsxError]) -> Generator[Row | MdsxError, None, None]:
        """Yield the samples of an input after all are made; if there is an error, yield only the error."""
        count = 0
        with SpooledTemporaryFile(max_size=_HELD) as held:
            for item in made:
                if isinstance(item, MdsxError):
                    yield item
                    return
                try:
                    _Pickler(held, protocol=5).dump(item)
                except (pickle.PicklingError, TypeError, AttributeError) as error:
                    yield SampleError(f"the sample cannot be pickled: {error}", place=self.place_of(item.place))
                    return
                count += 1
            held.seek(0)
            for _ in range(count):
                yield pickle.load(held)

    def place_of(self, place: Any) -> str:
        number, sample = place
        after = f", sample {sample}" if sample > 0 else ""
        return f"source {number} ({shown(self._inputs[number], 100)}){after}"

    def refused(self, unit: Unit, place: Any, error: SampleError) -> SampleError:
        where = ", ".join(filter(None, (self.place_of(place), error.place)))
        return restated(error, file=None, place=where)


class _Pickler(pickle.Pickler):
    """Pickles memory views too."""

    def reducer_override(self, value: Any) -> Any:
        return (bytes, (value.tobytes(),)) if isinstance(value, memoryview) else NotImplemented


class _ReturnedError(Exception):
    """The function returned something other than samples."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _samples(function: Function, given: Any) -> Generator[Mapping[str, Any], None, None]:
    """Yield the samples of an input."""
    result = function(given)
    if isinstance(result, Mapping):
        yield result
        return
    if result is None or not isinstance(result, Iterable) or isinstance(result, str | bytes):
        hint = "return a dict, a list of dicts or a generator; an empty list for a source without samples"
        raise _ReturnedError(f"the function returned {type(result).__name__}, not samples", hint)
    iterator: Iterator[Any] = iter(result)
    for sample in iterator:
        if not isinstance(sample, Mapping):
            raise _ReturnedError(f"the function made {type(sample).__name__}, not a sample", "make dicts")
        yield sample


def _identity(inputs: Sequence[Any]) -> str:
    """Return a hash of the inputs."""
    if isinstance(inputs, range):
        inputs = [repr(inputs)]
    whole = xxhash.xxh3_128()
    for number, given in enumerate(inputs):
        try:
            whole.update(_encoded(given))
        except Exception as error:
            place, hint = f"source {number}", "give sources that can be pickled, such as paths"
            raise UsageError(
                "the source cannot be pickled", place=place, found=f"{shown(given)}: {error}", hint=hint
            ) from None
    return whole.hexdigest()


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value, enc_hook=_plain, order="deterministic")  # sets have no defined order
    except (
        OverflowError,
        UnicodeEncodeError,
        TypeError,
    ):  # a larger integer, a path that is not UTF-8, keys of two types
        return pickle.dumps(value)


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return pickle.dumps(value)


class _Line:
    """Shows progress: a line on a terminal; elsewhere, it is logged now and then."""

    def __init__(self) -> None:
        self._text, self._logged = "building", time.monotonic()
        self._line = StatusLine(lambda: self._text)

    def __call__(self, progress: Progress) -> None:
        for problem in progress.problems:
            _log.warning("on_error='skip' leaves out: %s", problem)
        self._text = f"{progress.size:,} of {progress.of_size:,} sources, {progress.samples:,} samples"
        if time.monotonic() - self._logged > _LINE_EVERY:
            self._logged = time.monotonic()
            _log.info("building: %s", self._text)

    def close(self) -> None:
        self._line.close()
