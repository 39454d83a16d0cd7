"""A read with `format("mdsx")`: its partitions, and Arrow batches in types that Spark knows.

Spark has no unsigned integers, no float16 and no arrays of a fixed size. Unsigned integers become the next larger
signed ones, uint64 a decimal of 20 digits, as in Spark's own Parquet reader; float16 becomes float; all arrays become
lists. docs/engines.md shows the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from mdsx.datasets import Dataset, arrow_type_of, decoded, excerpt_of
from mdsx.engines.spark_options import ReadOptions
from mdsx.errors import UsageError
from mdsx.foreign.arrow import pa, to_table
from mdsx.format import Schema
from mdsx.shards import Columns

_BATCH = 10_000  # samples at most, as in Spark's own batches
_WIDER = {"uint8": "int16", "uint16": "int32", "uint32": "int64", "halffloat": "float32"}


@dataclass(frozen=True, slots=True)
class Scan:
    """A read of the dataset that `options` name, in the state of its snapshot's fingerprint."""

    options: ReadOptions

    @classmethod
    def begin(cls, options: ReadOptions) -> Scan:
        """Return a read of the dataset as it is now. Raise MdsxError."""
        fingerprint = excerpt_of(_open(options)).shards.index.fingerprint
        return cls(replace(options, snapshot=fingerprint))

    @property
    def dataset(self) -> Dataset:
        """Return the dataset, with the chosen columns. A process opens it once."""
        return _opened(self.options)

    def arrow_schema(self) -> Any:
        """Return the `pyarrow.Schema` of all batches. Raise UsageError for a column that Arrow has no type for."""
        dataset = self.dataset
        columns = excerpt_of(dataset).schema.columns
        fields = [
            pa.field(column.name, spark_type(arrow_type_of(dataset, column)), column.type.nullable)
            for column in columns
        ]
        return pa.schema(fields)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the samples [start, stop) of each partition: whole shards of about `partition_size` bytes together, or
        one larger shard."""
        index = excerpt_of(self.dataset).shards.index
        group = (np.cumsum(index.raw_sizes) - 1) // self.options.partition_size
        firsts = np.flatnonzero(np.diff(group, prepend=-1))  # the first shard of each partition
        cuts = np.concatenate(([0], np.cumsum(index.counts)))[[*firsts, len(index.counts)]].tolist()
        return [(start, stop) for start, stop in pairwise(cuts) if start < stop]

    def read(self, start: int, stop: int, schema: Any) -> Iterator[Any]:
        """Return the samples [start, stop) as record batches of `schema`. This call, or a batch, may raise
        MdsxError."""
        dataset = self.dataset

        def batch(columns: Columns, first: int) -> Any:
            arrays = [
                _array(dataset.url, column, columns[column.name], schema.field(column.name).type, first)
                for column in excerpt_of(dataset).schema.columns
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        return decoded(dataset, start, stop, batch, most=_BATCH)


def _open(options: ReadOptions) -> Dataset:
    return Dataset(
        options.url,
        columns=None if options.columns is None else dict(options.columns),
        cache=options.cache,
        storage_options=dict(options.storage) or None,
        index=options.index,
        snapshot=options.snapshot,
    )


_opened = lru_cache(maxsize=4)(_open)  # for Spark workers, which run many tasks of a few reads


def spark_type(type: Any) -> Any:
    """Return the Arrow type in which values of the Arrow type `type` are passed to Spark."""
    if pa.types.is_list(type) or pa.types.is_fixed_size_list(type) or pa.types.is_large_list(type):
        return pa.list_(pa.field("element", spark_type(type.value_type), nullable=False))
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(spark_type(field.type)) for field in type])
    if pa.types.is_uint64(type):
        return pa.decimal128(20, 0)
    return pa.type_for_alias(_WIDER[str(type)]) if str(type) in _WIDER else type


def _array(url: str, column: Any, values: Any, type: Any, first: int) -> Any:
    """Return the values of a column, which begin at sample `first`, as one array of `type`."""
    try:
        return to_table(Schema((column,)), {column.name: values}).column(0).cast(type).combine_chunks()
    except (UsageError, pa.ArrowException) as error:
        message = f"values of type '{column.type}' do not have the type of the first samples"
        place, hint = f"samples from {first} on, column {column.name!r}", 'choose the other columns: .option("columns")'
        raise UsageError(message, file=url, place=place, found=str(error), expected=str(type), hint=hint) from None
