"""The comparison of decoders: backends of mdsx.Image are as near to Pillow as docs/images.md says. Nothing is timed."""

from __future__ import annotations

import re

from tools.decoders import FULL, PAGE, RESIZED, SIZE, decoders, difference, jpeg


def test_backends_are_near_pillow() -> None:
    files = [jpeg(375, 500, seed) for seed in range(2)]
    ours = [each for each in decoders() if each.ours]
    assert len(ours) == 2
    for decoder in ours:
        assert difference(decoder, files, None).most <= FULL
        assert difference(decoder, files, SIZE).most <= RESIZED


def test_a_smaller_scale_changes_little_on_average() -> None:
    files = [jpeg(768, 1024, 0)]
    for decoder in decoders():
        if decoder.ours:
            assert difference(decoder, files, SIZE).mean < 2


def test_the_page_has_a_row_for_each_backend() -> None:
    rows = re.findall(r'^\| `mdsx.Image\(backend="(\w+)"\)` \|', PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == ["pillow", "pillow", "turbo", "turbo"]
