"""How floats are rounded, and which types hold which."""

from __future__ import annotations

import numpy as np
import pytest

from mdsx.format.families import floats
from mdsx.format.families.floats import BFLOAT16

torch = pytest.importorskip("torch")


def test_a_type_holds_itself_and_the_types_whose_numbers_it_has() -> None:
    held = {base.name: {other.name for other in floats.BASES if base.holds(other)} for base in floats.BASES}
    assert held == {
        "float8_e4m3fn": {"float8_e4m3fn"},
        "bfloat16": {"float8_e4m3fn", "bfloat16"},
        "float16": {"float8_e4m3fn", "float16"},
        "float32": {"float8_e4m3fn", "bfloat16", "float16", "float32"},
        "float64": {base.name for base in floats.BASES},
    }


def test_arrays_become_the_nearest_bfloat16_as_in_pytorch() -> None:
    upper = np.array([0, 1, 0x3F80, 0x3F81, 0x4049, 0x7F7E, 0x7F7F, 0x8000, 0xBF80, 0xFF7F], np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)  # around the middle of two neighbours, too
    items = (upper[:, None] | lower).view(np.float32)
    narrowed = BFLOAT16.narrow(items)
    assert narrowed.dtype == "<u2"
    assert narrowed.tobytes() == torch.from_numpy(items).to(torch.bfloat16).view(torch.int16).numpy().tobytes()


@pytest.mark.filterwarnings("error")
def test_a_float64_too_large_for_bfloat16_becomes_infinite() -> None:
    assert BFLOAT16.narrow(np.array([1e300, -1e300, np.inf])).tolist() == [0x7F80, 0xFF80, 0x7F80]


def test_a_nan_stays_one_with_its_sign_and_payload_in_bfloat16() -> None:
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7FC50000, 0x7F800001, 0xFF80FFFF], np.uint32)  # the last two signal
    assert BFLOAT16.narrow(bits.view(np.float32)).tolist() == [0x7FC0, 0xFFC0, 0x7FC5, 0x7FC0, 0xFFC0]
