"""The public names, and where each is: the only list of them. Type checkers read it, and `__init__.py` does."""

from mdsx.base.progress import Progress as Progress
from mdsx.base.work import WorkerInfo as WorkerInfo
from mdsx.base.work import worker_info as worker_info
from mdsx.checks.damage import Repair as Repair
from mdsx.checks.damage import ShardRepair as ShardRepair
from mdsx.checks.damage import Verification as Verification
from mdsx.checks.damage import repair as repair
from mdsx.checks.damage import verify as verify
from mdsx.datasets import Component as Component
from mdsx.datasets import Dataset as Dataset
from mdsx.datasets import Mixture as Mixture
from mdsx.datasets import zip as zip
from mdsx.errors import ChangedError as ChangedError
from mdsx.errors import CorruptError as CorruptError
from mdsx.errors import ForbiddenError as ForbiddenError
from mdsx.errors import FormatError as FormatError
from mdsx.errors import MdsxError as MdsxError
from mdsx.errors import MissingError as MissingError
from mdsx.errors import SampleError as SampleError
from mdsx.errors import SkippedError as SkippedError
from mdsx.errors import StateError as StateError
from mdsx.errors import TransportError as TransportError
from mdsx.errors import TruncatedError as TruncatedError
from mdsx.errors import UnsupportedError as UnsupportedError
from mdsx.errors import UsageError as UsageError
from mdsx.foreign.arrow import arrow_columns as arrow_columns
from mdsx.loader import Loader as Loader
from mdsx.loader import Stats as Stats
from mdsx.order import Groups as Groups
from mdsx.order import Order as Order
from mdsx.order import Shuffle as Shuffle
from mdsx.storage.cache import Cache as Cache
from mdsx.stream import MaxTokens as MaxTokens
from mdsx.stream import Pack as Pack
from mdsx.stream import Pad as Pad
from mdsx.transfer.converting import Conversion as Conversion
from mdsx.transfer.converting import build as build
from mdsx.transfer.converting import convert as convert
from mdsx.transfer.exporting import Export as Export
from mdsx.transfer.exporting import export as export
from mdsx.transfer.indexing import Indexed as Indexed
from mdsx.transfer.indexing import IndexedTars as IndexedTars
from mdsx.transfer.indexing import index_parquet as index_parquet
from mdsx.transfer.indexing import index_tars as index_tars
from mdsx.writer import Appended as Appended
from mdsx.writer import Writer as Writer
from mdsx.writer import WrittenLengths as WrittenLengths
from mdsx.writer import append as append
from mdsx.writer import merge as merge
from mdsx.writer import write_lengths as write_lengths
from mdsx.writer.runs import Cleaned as Cleaned
from mdsx.writer.runs import Leftover as Leftover
from mdsx.writer.runs import clean as clean

__all__: list[str]
__version__: str
