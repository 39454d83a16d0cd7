"""What mdsx is to reach: the table of goals. docs/benchmarks.md shows how each of them was judged."""

from __future__ import annotations

from collections.abc import Iterator

from tools.bench.subject import Goal

_ONE, _TWO, _PERSISTENT = "mdsx, 0 workers", "mdsx, 2 workers", "mdsx, 2 persistent workers"
_BARE, _LITDATA, _MOSAICML, _MEMCPY = "bare downloader*", "LitData*", "mosaicml*", "memcpy, gather"
_BY_ONE = ("LitData*", "mosaicml*", "WebDataset*", "Grain*")
_CPU, _MANY = "CPU s/GB", "512 at once/s"

# subject | goal | contestant | bound | of (the best of these; else it is a value) | figure, if not the subject's
_ROWS: list[tuple[str, str, str, str, str | tuple[str, ...], str | None]] = [
    ("s3-near", "cold epoch from S3: CPU seconds a GB, sequential, by a bare downloader's", "mdsx, sequential", "<= 1.15", _BARE, _CPU),
    ("s3-near", "cold epoch from S3: CPU seconds a GB, shuffled, by a bare downloader's", "mdsx", "<= 1.2", _BARE, _CPU),
    ("s3-near", "cold epoch from S3: CPU seconds a GB by s3torchconnector's", "mdsx", "<= 1.2", "s3torchconnector*", _CPU),
    ("s3-near", "cold epoch from S3: rows a second by LanceDB's", "mdsx", ">= 5", "LanceDB*", "samples/s"),
    ("s3-near", "cold epoch from S3, one shuffle block: MB/s by a bare downloader's", "mdsx", ">= 0.65", _BARE, None),
    ("s3-near-blocks", "cold epoch from S3, several blocks: MB/s by a bare downloader's", "mdsx", ">= 0.75", _BARE, None),
    ("s3-far", "cold epoch from S3, 50 ms, 100 MB/s, one block: MB/s", "mdsx", ">= 95", "", None),
    ("s3-first-plain", "first batch from S3, 50 ms, 100 MB/s: seconds", "mdsx", "<= 0.5", "", None),
    ("s3-first-plain", "first batch from S3: round trips", "mdsx, 500 ms", "<= 4", "", "round trips"),
    ("s3-first-zstd", "first batch from S3, zstd, 50 ms, 100 MB/s: seconds", "mdsx", "<= 0.5", "", None),
    ("s3-first-zstd", "first batch from S3, zstd: round trips", "mdsx, 500 ms", "<= 4", "", "round trips"),
    ("resume", "resume at 90 % among 100,000 shards: seconds", "mdsx", "<= 0.3", "", None),
    ("loader-tokens-32", "end of an epoch to the next first batch: ms, thread", _ONE, "<= 3", "", "next epoch ms"),
    ("loader-tokens-32", "end of an epoch to the next first batch: ms, 2 persistent workers", _PERSISTENT, "<= 10", "", "next epoch ms"),
    ("epochs-tokens", "tokens, 5 epochs from a fresh process, by LitData's", "mdsx", ">= 9", _LITDATA, None),
    ("epochs-tokens", "tokens: first epoch by a steady one", "mdsx", "<= 1.25", "", "first epoch x"),
    ("epochs-text", "text, 5 epochs from a fresh process, by LitData's", "mdsx", ">= 5", _LITDATA, None),
    ("epochs-text", "text: first epoch by a steady one", "mdsx", "<= 1.25", "", "first epoch x"),
    ("loader-tokens-32", "tokens, batch 32: 2 workers by the thread", _TWO, ">= 0.8", _ONE, None),
    ("loader-tokens-512", "tokens, batch 512: 2 workers by the thread", _TWO, ">= 0.8", _ONE, None),
    ("loader-tokens-32", "tokens, batch 32, steady, by LitData's", _ONE, ">= 8", _LITDATA, None),
    ("loader-tokens-32", "tokens, batch 32, steady, by mosaicml-streaming's", _ONE, ">= 60", _MOSAICML, None),
    ("loader-text-32", "text, batch 32, columns, steady, by LitData's", _ONE, ">= 3", _LITDATA, None),
    ("loader-text-32", "text, batch 32, a dict per sample, steady, by LitData's", "mdsx, dicts, 0 workers", ">= 1.5", _LITDATA, None),
    ("loader-images-32", "images as bytes, by gathering them with memcpy", _ONE, ">= 0.75", _MEMCPY, None),
    *((subject, f"JPEGs decoded{words}, by the decoder alone on all cores", "mdsx, threads", ">= 0.95", "decoder", None)
      for subject, words in (("decode-images", ""), ("decode-images-224", " to 224 x 224"))),
    ("decode-images", "JPEGs decoded, by PyTorch's DataLoader with Pillow", "mdsx, threads", ">= 1.15", "PyTorch DataLoader*", None),
    ("decode-images-224", "JPEGs decoded to 224 x 224, by PyTorch's DataLoader with Pillow", "mdsx, threads", ">= 2", "PyTorch DataLoader*", None),
    ("ranks-tokens", "2 ranks on 2 cores by one rank", "mdsx, 2 ranks", ">= 1.8", "mdsx, 1 rank", None),
    ("packed-rows", "packed rows by fixed ones", "mdsx, packed", ">= 0.4", "mdsx, fixed rows", None),
    ("packed-rows", "packed rows by the best peer that packs", "mdsx, packed", ">= 20", "peer", None),
    ("packed-rows", "packed rows: share that is full", "mdsx, packed", ">= 0.995", "", "fill"),
    ("packed-rows", "concatenated rows by packed ones", "mdsx, concatenated", ">= 1", "mdsx, packed", None),
    ("packed-rows", "concatenated rows: share that is full", "mdsx, concatenated", ">= 0.999", "", "fill"),
    ("packed-rows", "length-bounded batches: share that is full", "mdsx, max tokens", ">= 0.94", "", "fill"),
    ("random-tokens", "tokens, ds[i], by mosaicml-streaming's", "mdsx", ">= 8", _MOSAICML, None),
    ("random-images", "images, ds[i], by mosaicml-streaming's", "mdsx", ">= 4", _MOSAICML, None),
    ("random-text", "text, ds[i], by mosaicml-streaming's", "mdsx", ">= 8", _MOSAICML, None),
    ("random-tokens", "tokens, ds[512 numbers], by mosaicml-streaming's", "mdsx", ">= 30", _MOSAICML, _MANY),
    ("random-images", "images, ds[512 numbers], by mosaicml-streaming's", "mdsx", ">= 8", _MOSAICML, _MANY),
    ("random-images", "images, ds[512 numbers], by gathering them with memcpy", "mdsx", ">= 0.75", _MEMCPY, _MANY),
    ("random-text", "text, ds[512 numbers], by mosaicml-streaming's", "mdsx", ">= 25", _MOSAICML, _MANY),
    ("write-tokens", "tokens, written one by one, by the best peer", "mdsx, one by one", ">= 4", _BY_ONE, None),
    ("write-images", "images, written one by one, by the best peer", "mdsx, one by one", ">= 2", _BY_ONE, None),
    ("write-text", "text, written one by one, by the best peer", "mdsx, one by one", ">= 2.5", _BY_ONE, None),
    ("write-tokens", "tokens, written in batches, by write() and fsync", "mdsx, batches", ">= 0.85", "write() and fsync", None),
    ("write-images", "images, written in batches, by write() and fsync", "mdsx, batches", ">= 0.75", "write() and fsync", None),
    ("write-text", "text, written in batches, by Parquet", "mdsx, batches", ">= 1", "Parquet, batches", None),
    ("write-tokens", "tokens, written as Arrow arrays, by write() and fsync", "mdsx, Arrow", ">= 0.9", "write() and fsync", None),
    ("write-text", "text, written as Arrow arrays, by Parquet", "mdsx, Arrow", ">= 3", "Parquet, Arrow", None),
    ("verify", "mdsx verify by reading and hashing on all cores", "mdsx verify", ">= 0.7", "XXH3-128, all cores", None),
    ("convert-tar", "mdsx convert tar, 2 processes, by copying with fsync", "mdsx convert tar", ">= 0.8", "copy and fsync", None),
    ("tokenize", "mdsx.tokenize by the tokenizer's own batches", "mdsx.tokenize, 2 processes", ">= 0.9", "tokenizers*", None),
    *(("spark", f"Spark, {kind}, by a mapInArrow that drops all rows", "mdsx", ">= 0.75", "mapInArrow*", f"{kind}/s")
      for kind in ("text", "bytes", "records")),
    ("cache-half", "cache of half the dataset: downloaded each epoch, by the dataset", "mdsx, one dataset", "<= 0.52", "", None),
    ("cache-half", "mixture in a cache of half: downloaded, by eviction by true next use", "mdsx, mixture", "<= 1.1", "", "by the least"),
    ("memory-tokens", "memory of the tokens loader beyond PyTorch, thread: MB", _ONE, "<= 100", "", None),
    ("memory-tokens", "memory of the tokens loader beyond PyTorch, a worker: MB", "mdsx, a worker", "<= 60", "", None),
    ("opening", "fresh process to the first sample: seconds", "mdsx", "<= 0.25", "", None),
    ("opening", "import mdsx: seconds", "mdsx", "<= 0.1", "", "import s"),
    ("mds-loader-tokens", "MDS files in place, tokens, by mosaicml-streaming's", _ONE, ">= 20", _MOSAICML, None),
    ("mds-loader-images", "MDS files in place, images, by mosaicml-streaming's", _ONE, ">= 8", _MOSAICML, None),
    ("mds-loader-text", "MDS files in place, text, by mosaicml-streaming's", _ONE, ">= 8", _MOSAICML, None),
    ("filter", "a condition on 100,000,000 rows: seconds", "mdsx, condition", "<= 5", "", None),
    ("idle", "idle loader, thread: CPU seconds", _ONE, "<= 0.02", "", None),
    ("idle", "idle loader, 2 workers: CPU seconds", _TWO, "<= 0.02", "", None),
    ("order", "order of 10^12 samples in 2,000,000 shards: seconds to construct", "mdsx, 10^12 samples", "<= 1", "", None),
    ("order", "order of 10^12 samples: seconds to its first batch", "mdsx, 10^12 samples", "<= 0.5", "", "first batch s"),
    ("order", "order of 10^12 samples: ns for each that follows", "mdsx, 10^12 samples", "<= 100", "", "ns/sample"),
    ("order", "order of 10^12 samples: MB in all", "mdsx, 10^12 samples", "<= 600", "", "MB in all"),
]  # fmt: skip


_BOUNDS = {">=": "at_least", "<=": "at_most"}


def _goals(subject: str) -> Iterator[Goal]:
    for name, text, contestant, bound, of, figure in _ROWS:
        if name == subject:
            sign, value = bound.split()
            others = (of,) if isinstance(of, str) else of
            limits = {_BOUNDS[sign]: float(value)}
            yield Goal(
                text, contestant, tuple(filter(None, others)), limits.get("at_least"), limits.get("at_most"), figure
            )


GOALS = {name: tuple(_goals(name)) for name, *_ in _ROWS}
"""The goals of each subject that has some."""
