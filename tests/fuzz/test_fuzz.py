"""Any bytes are read or raise a subclass of MdsxError.

Inputs are undamaged files that hypothesis breaks and whose checksums are then recomputed (`targets.py`). The test also
replays the inputs in `corpus/`, which atheris found (`python -m tests.fuzz`).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Often
from tests.fuzz.targets import TARGETS, allowed

CORPUS = sorted(path for path in Path(__file__).with_name("corpus").glob("*/*") if path.is_file())
_SLOW = {
    "arguments",
    "dataset",
    "mds",
    "megatron",
    "parquet",
    "parquet-index",
    "records",
    "stream",
    "tar",
    "tars-index",
    "tars-pointers",
    "tfrecord",
}  # milliseconds per input
_NUMBERS = [0, 1, 2, 7, 8, 64, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**40]
_NUMBERS += [2**62, 2**63 - 1, 2**63, 2**64 - 1]


@st.composite
def broken(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """Draw one of `seeds`, changed in a few places."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(at + 32, len(data))))
        match draw(st.sampled_from(["bit", "bytes", "number", "digits", "cut", "repeat", "splice"])):
            case "bit" if at < len(data):
                data = data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
            case "bytes":
                data = data[:at] + draw(st.binary(max_size=16)) + data[end:]
            case "number":
                size = draw(st.sampled_from([1, 2, 4, 8]))
                number = draw(st.sampled_from(_NUMBERS)) % 256**size
                data = data[:at] + number.to_bytes(size, draw(st.sampled_from(["little", "big"]))) + data[at + size :]
            case "digits":
                data = data[:at] + str(draw(st.sampled_from(_NUMBERS))).encode() + data[end:]
            case "cut":
                data = data[:at] + data[draw(st.integers(at, len(data))) :]
            case "repeat":
                data = data[:at] + data[at:end] * draw(st.integers(0, 300)) + data[end:]
            case "splice":
                other = draw(st.sampled_from(seeds))
                start = draw(st.integers(0, len(other)))
                data = data[:at] + other[start : start + draw(st.integers(0, 600))] + data[end:]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_raise_our_error(name: str, often: Often) -> None:
    examples = often(12, long=1000) if name in _SLOW else often(60, long=20_000)

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(broken(TARGETS[name].seeds))
    def run(data: bytes) -> None:
        allowed(name, data)

    run()


@pytest.mark.parametrize(
    "name",
    [
        "dataset",
        "frames",
        "index",
        "mds",
        "megatron",
        "npy",
        "parquet",
        "parquet-index",
        "records",
        "shard",
        "tar",
        "tf-example",
        "tfrecord",
    ],
)
def test_seeds_are_undamaged(name: str) -> None:
    """So the recomputed checksums are right, and only the change can fail."""
    for seed in TARGETS[name].seeds:
        TARGETS[name].run(seed)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_former_findings_stay_fixed(path: Path) -> None:
    allowed(path.parent.name, path.read_bytes())
