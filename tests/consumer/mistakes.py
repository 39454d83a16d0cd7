"""Mistakes that a type checker finds: the lines marked `wrong`, and no other.

Strict mypy, which the check runs, refuses a `type: ignore` without an error. `test_types.py` counts pyright's errors.
"""

from __future__ import annotations

import mdsx
from mdsx.torch import StreamingDataLoader, StreamingDataset

data = StreamingDataset("data")
mdsx.Dataset("data", cache_limit="2GB")  # type: ignore[call-arg]  # wrong
mdsx.Dataset("data", ["tokens"])  # type: ignore[call-arg]  # wrong
mdsx.Cache("cache", verify="none")  # type: ignore[arg-type]  # wrong
mdsx.Writer("data")  # type: ignore[call-arg]  # wrong
mdsx.Writer("data", {"a": "int64"}, size_limit="64MB")  # type: ignore[call-arg]  # wrong
mdsx.Mixture()  # type: ignore[call-arg]  # wrong
mdsx.convert("tar", "x.tar", "data", on_error="ignore")  # type: ignore[arg-type]  # wrong
mdsx.convert("tar", "x.tar", "data", key_after="dot")  # type: ignore[call-arg]  # wrong
StreamingDataset("data", num_canonical_nodes=8)  # type: ignore[call-arg]  # wrong
StreamingDataset("data", shuffle="py1e")  # type: ignore[arg-type]  # wrong
StreamingDataLoader(data, 32, True)  # type: ignore[arg-type, call-arg]  # wrong
StreamingDataLoader(data, 32, shuffle=True)  # type: ignore[call-arg]  # wrong
StreamingDataLoader(data, 32, persistent_workers="yes")  # type: ignore[arg-type]  # wrong
