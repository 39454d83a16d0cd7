"""Bytes, stored unchanged: any buffer of single bytes, and encoded pictures, which must begin as their format does."""

from __future__ import annotations

from mdsx.format.families.record import Object
from mdsx.format.inputs import Refused, as_array, describe


def _encode(value: object) -> bytes:
    """Return a buffer's bytes. Raise Refused."""
    if type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    given = None if isinstance(value, memoryview) else as_array(value)
    try:
        view = memoryview(value if given is None else given[0])  # type: ignore[arg-type]  # checked by trying
    except (TypeError, ValueError):  # a dtype without a buffer format, or released memory
        hint = (
            "encode it: text.encode(), or the bytes of a file; of a PIL image, what image.save(buffer, format) writes"
        )
        raise Refused("bytes", describe(value), hint=hint) from None
    if view.format not in ("B", "c") or view.ndim != 1:
        raise Refused("bytes, or a one-dimensional uint8 array", describe(value))
    return view.tobytes()


def _picture(
    name: str, magic: tuple[tuple[int, bytes], ...], *, extensions: tuple[str, ...], aliases: str = "", minor: int = 0
) -> Object:
    def encode(value: object) -> bytes:
        data = _encode(value)
        for offset, part in magic:
            if not data.startswith(part, offset):
                raise _refused(base, data)
        return data

    base = Object(
        name=name, kind="bytes", arrow="binary", form="its bytes", encoder=lambda: encode, decode=bytes, magic=magic,
        media=f"image/{name}", extensions=extensions, aliases=aliases, minor=minor,
    )  # fmt: skip
    return base


def _refused(base: Object, data: bytes) -> Refused:
    parts = [f"{part!r}" + (f" at byte {offset}" if offset else "") for offset, part in base.magic]
    offset, last = base.magic[-1]
    found = f"{data[: max(offset + len(last), 8)]!r}"
    hint = "pass the bytes of the encoded image file"
    return Refused(f"{base.name} data, which begins with {', '.join(parts)}", found, hint=hint)


BYTES = Object(
    name="bytes", kind="bytes", arrow="binary", python=bytes, form="its bytes",
    aliases="binary large_binary bytearray memoryview blob buffer raw bin",
    encoder=lambda: _encode, decode=bytes,
)  # fmt: skip
JPEG = _picture(
    "jpeg", ((0, b"\xff\xd8\xff"),), extensions=("jpg", "jpeg"), aliases="jpg pil image jpeg_array jpegarray img"
)
PNG = _picture("png", ((0, b"\x89PNG\r\n\x1a\n"),), extensions=("png",))
BASES = (BYTES, JPEG, PNG, _picture("webp", ((0, b"RIFF"), (8, b"WEBP")), extensions=("webp",), minor=1))
