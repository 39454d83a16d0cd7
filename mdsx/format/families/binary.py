"""Bytes, stored unchanged: any buffer of single bytes; encoded pictures, sound and video, which must begin with their
format's signature."""

from __future__ import annotations

from mdsx.format.families.record import Beginning, Object
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
            "encode it: text.encode(), the bytes of a file, or the bytes that image.save(buffer, format) of PIL writes"
        )
        raise Refused("bytes", describe(value), hint=hint) from None
    if view.format not in ("B", "c") or view.ndim != 1:
        raise Refused("bytes, or a one-dimensional uint8 array", describe(value))
    return view.tobytes()


def _encoded(
    name: str, *magic: Beginning, media: str, extensions: tuple[str, ...], aliases: str = "", minor: int = 0
) -> Object:
    def encode(value: object) -> bytes:
        data = _encode(value)
        if not base.matches(data):
            raise _refused(base, data)
        return data

    base = Object(
        name=name, kind="bytes", arrow="binary", form="its bytes", encoder=lambda: encode, decode=bytes, magic=magic,
        media=media, extensions=extensions, aliases=aliases, minor=minor,
    )  # fmt: skip
    return base


def _refused(base: Object, data: bytes) -> Refused:
    ways = [", ".join(f"{part!r}" + (f" at byte {at}" if at else "") for at, part in each) for each in base.magic]
    length = max(8, *(at + len(part) for each in base.magic for at, part in each))
    hint = f"pass the bytes of the encoded {base.name} file"
    return Refused(f"{base.name} data, which begins with {', or '.join(ways)}", f"{data[:length]!r}", hint=hint)


def _boxes(*brands: bytes) -> tuple[Beginning, ...]:
    """Return how files of ISO media formats begin: with a box `ftyp`, of one of these brands if any are given."""
    return tuple(((4, b"ftyp" + brand),) for brand in brands)


def _chunks(form: bytes, *ids: bytes) -> tuple[Beginning, ...]:
    """Return how RIFF-like files begin: an identifier, 4 bytes of size, the form."""
    return tuple(((0, each), (8, form)) for each in ids)


_ID3 = ((0, b"ID3"),)
"""The tag that may precede the first frame of an MP3, and that some programs write before FLAC too."""
_FRAMES = tuple(((0, bytes((0xFF, second))),) for second in (0xFB, 0xFA, 0xF3, 0xF2, 0xE3, 0xE2))
"""The headers of MPEG audio frames of layer III: versions 1, 2 and 2.5, each without and with a checksum."""

BYTES = Object(
    name="bytes", kind="bytes", arrow="binary", python=bytes, form="its bytes",
    aliases="binary large_binary bytearray memoryview blob buffer raw bin",
    encoder=lambda: _encode, decode=bytes,
)  # fmt: skip
JPEG = _encoded(
    "jpeg", ((0, b"\xff\xd8\xff"),), media="image/jpeg", extensions=("jpg", "jpeg"),
    aliases="jpg pil image jpeg_array jpegarray img",
)  # fmt: skip
PNG = _encoded("png", ((0, b"\x89PNG\r\n\x1a\n"),), media="image/png", extensions=("png",))
BASES = (
    BYTES,
    JPEG,
    PNG,
    _encoded("webp", *_chunks(b"WEBP", b"RIFF"), media="image/webp", extensions=("webp",), minor=1),
    _encoded("avif", *_boxes(b"avif", b"avis"), media="image/avif", extensions=("avif",), minor=1),
    _encoded(
        "wav", *_chunks(b"WAVE", b"RIFF", b"RF64", b"BW64"), media="audio/wav", extensions=("wav",), aliases="wave",
        minor=1,
    ),
    _encoded("flac", ((0, b"fLaC"),), _ID3, media="audio/flac", extensions=("flac",), minor=1),
    _encoded("mp3", _ID3, *_FRAMES, media="audio/mpeg", extensions=("mp3",), aliases="mpga mpeg3", minor=1),
    _encoded("mp4", *_boxes(b""), media="video/mp4", extensions=("mp4", "m4v"), aliases="m4v video", minor=1),
)  # fmt: skip
