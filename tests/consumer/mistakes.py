"""Mistakes that a type checker finds: the lines marked `wrong`, and no other."""

from __future__ import annotations

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

data = StreamingDataset("data")
mdsx.Dataset("data", cache_limit="2GB")  # wrong
mdsx.Dataset("data", ["tokens"])  # wrong
mdsx.Cache("cache", verify="none")  # wrong
mdsx.Writer("data")  # wrong
mdsx.Writer("data", {"a": "int64"}, size_limit="64MB")  # wrong
mdsx.Mixture()  # wrong
mdsx.convert_tars("x.tar", "data", on_error="ignore")  # wrong
mdsx.convert_tars("x.tar", "data", key_after="dot")  # wrong
StreamingDataset("data", num_canonical_nodes=8)  # wrong
StreamingDataset("data", shuffle="py1e")  # wrong
StreamingDataLoader(data, 32, True)  # wrong
StreamingDataLoader(data, 32, shuffle=True)  # wrong
StreamingDataLoader(data, 32, persistent_workers="yes")  # wrong
