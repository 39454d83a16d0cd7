"""Descriptions of values for the page: strict JSON, bounded in size, with a kind.

"null"; "number" (as text, so that no digit is lost); "text", "bytes", "image", "audio" and "video", shortened; "array"
with its summary, and maybe its tokens; "json" with a tree; "list" with its first items.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsx.format import BASES
from mdsx.view.arrays import scalar_text, summary
from mdsx.view.pictures import PNG, image_type, is_pixels, media_type, png
from mdsx.view.tokens import Tokenizer
from mdsx.view.trees import shortened, tree

TEXT = 20_000
"""Characters of a text that are shown first, and with each request for more."""

_HEX = 512  # bytes
_HEX_LINE = 16
_ITEMS = 100  # of a list
_LINE = 160  # characters of a value in a list of samples


def described(value: Any, kind: str, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """Return the description of a value in a column of type `kind`."""
    base = base_of(kind)
    if value is None:
        return {"kind": "null"}
    if base in BASES and BASES[base].kind == "document" and "[" not in kind:
        return {"kind": "json", "tree": tree(value)}
    if isinstance(value, np.ndarray) and value.ndim:
        return _array(value, tokenizer)
    if isinstance(value, str):
        return {"kind": "text", "text": value[:TEXT], "length": len(value)}
    if isinstance(value, bytes | memoryview):
        return _bytes(bytes(value), base)
    if isinstance(value, list | tuple):
        items = [described(item, base, tokenizer) for item in value[:_ITEMS]]
        return {"kind": "list", "length": len(value), "items": items}
    if isinstance(value, dict):
        return {"kind": "json", "tree": tree(value)}
    return {"kind": "number", "text": _number(value)}


def base_of(kind: str) -> str:
    """Return the base of a column's type: that of `json[*]?` is `json`."""
    return kind.partition("[")[0].rstrip("?")


def _array(value: np.ndarray[Any, Any], tokenizer: Tokenizer | None) -> dict[str, Any]:
    found = {"kind": "array", "pixels": is_pixels(value), **summary(value)}
    tokens = tokenizer.decode(value) if tokenizer is not None else None
    return found if tokens is None else {**found, "tokens": tokens}


def _bytes(value: bytes, base: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "bytes", "size": len(value), "hex": hex_lines(value[:_HEX])}
    if (media := media_type(value, base)) is not None:
        return {**found, "kind": media.partition("/")[0], "media": media}
    if (text := _as_text(value[:_HEX])) is not None:
        found["text"] = text
    return found


def _as_text(head: bytes) -> str | None:
    """Return bytes as text if they look like it, or None. The last character may be incomplete."""
    for cut in range(min(4, len(head))):
        try:
            text = head[: len(head) - cut].decode()
        except UnicodeDecodeError:
            continue
        return text if text and all(each.isprintable() or each in "\t\r\n" for each in text) else None
    return None


def hex_lines(data: bytes) -> list[list[str]]:
    """Return lines of 16 bytes: the offset, the bytes in hexadecimal, and as ASCII with dots for other bytes."""
    lines = []
    for start in range(0, len(data), _HEX_LINE):
        part = data[start : start + _HEX_LINE]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append([f"{start:06x}", part.hex(" "), ascii_text])
    return lines


def _number(value: Any) -> str:
    return scalar_text(value[()] if isinstance(value, np.ndarray) else value)


def brief(value: Any) -> str:
    """Return a value in one short line."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return shortened(" ".join(value[: 4 * _LINE].split()), _LINE)
    if isinstance(value, bytes | memoryview):
        return f"{len(value):,} bytes"
    if isinstance(value, np.ndarray) and value.ndim:
        head = " ".join(scalar_text(item) for item in value.ravel()[:8])
        shape = "x".join(map(str, value.shape))
        return shortened(f"{value.dtype} {shape}: {head}{' …' if value.size > 8 else ''}", _LINE)
    if isinstance(value, dict):
        return f"{{{len(value):,} keys}}"
    if isinstance(value, list | tuple):
        return f"[{len(value):,} items]"
    return _number(value)


def media_of(value: Any, kind: str, item: int | None = None) -> tuple[str, bytes] | None:
    """Return the media type and bytes of an image, sound or video: a value of a column of type `kind`, or an item of a
    list. Return None for other values."""
    if item is not None:
        value = value[item] if isinstance(value, list | tuple) and 0 <= item < len(value) else None
    if isinstance(value, np.ndarray):
        return (PNG, png(value)) if is_pixels(value) else None
    if not isinstance(value, bytes | memoryview):
        return None
    data = bytes(value)
    media = media_type(data, base_of(kind))
    return None if media is None else (media, data)


def has_picture(value: Any) -> bool:
    """Return whether a value is an image."""
    if isinstance(value, np.ndarray):
        return is_pixels(value)
    return isinstance(value, bytes | memoryview) and image_type(bytes(value[:16])) is not None
