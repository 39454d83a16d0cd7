"""Parse what servers send in headers, XML and JSON, strictly: any invalid value is a ValueError.

Each storage turns that into its own error. Numbers have few digits, ETags are printable, dates exist, and XML has
neither entities nor many levels.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import time as now
from typing import TypeVar
from xml.parsers import expat

import msgspec

from mdsx.errors import TransportError
from mdsx.secret import Secret
from mdsx.storage.base import Entry
from mdsx.storage.remote import limits

T = TypeVar("T")

_NUMBER = re.compile(rf"[0-9]{{1,{limits.DIGITS}}}")
_CONTENT_RANGE = re.compile(
    rf"bytes ([0-9]{{1,{limits.DIGITS}}})-[0-9]{{1,{limits.DIGITS}}}/([0-9]{{1,{limits.DIGITS}}})"
)
_ISO = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?(?:Z|\+00:?00)?")
_ETAG = re.compile(rf"[\x20-\x7e]{{0,{limits.ETAG}}}")

SKEWED = 15 * 60
"""Seconds by which a clock may be off: S3 and Azure refuse requests from a clock that differs more."""


def number(text: str) -> int:
    """Return a number of bytes or seconds."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("this is not a number")
    return int(text)


def number_or_none(text: str | None) -> int | None:
    """Return a number of bytes or seconds; None if the header has none."""
    return int(text) if text and _NUMBER.fullmatch(text) else None


def content_range(text: str) -> tuple[int, int] | None:
    """Return the first byte and the size of the whole object from a Content-Range header; None if it has another
    form."""
    if text == "bytes 0--1/0":
        return 0, 0  # Azurite, of an empty object; others answer 416
    found = _CONTENT_RANGE.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def etag(text: str) -> str:
    """Return an ETag, which is safe to send back in a header."""
    if not _ETAG.fullmatch(text):
        raise ValueError("the ETag has characters that no header may have, or too many")
    return text


def quoted(etag: str) -> str:
    """Return an ETag from a listing with quotes, as GET returns it: Azure and rclone list it without."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag


def time(text: str) -> datetime:
    """Return the time of a date in a header or in a listing (ISO 8601)."""
    try:
        if len(text) > limits.DATE:
            raise ValueError
        if found := _ISO.fullmatch(text):
            return datetime.fromisoformat(f"{found[1]}{found[2] or '.0':0<7.7}+00:00")
        return parsedate_to_datetime(text)
    except (TypeError, ValueError, ArithmeticError, LookupError):
        raise ValueError("this is not a date") from None


def date(text: str) -> float:
    """Return the seconds since 1970 of such a date."""
    try:
        return seconds(time(text))
    except ArithmeticError:
        raise ValueError("this is not a date") from None


def skew(sent: str) -> float:
    """Return by how many seconds this machine's clock is fast, from the date of a response; 0 if it has none."""
    try:
        return now() - date(sent)
    except ValueError:
        return 0.0


def seconds(date: datetime) -> float:
    """Return the seconds since 1970. The date may lack a time zone."""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def entry(key: str, size: object, tag: str, modified: float, file: str) -> Entry:
    """Return an entry of a listing. Raise TransportError for an impossible size or ETag."""
    if isinstance(size, int) and 0 <= size < 10**limits.DIGITS and _ETAG.fullmatch(tag):
        return Entry(key, size, tag, modified)
    raise TransportError("the listing has an object with an impossible size or ETag", file=file, place=key)


def check_xml(data: bytes) -> None:
    """Raise ValueError unless `data` is XML without a document type, of few levels and elements."""
    depth = elements = 0

    def start(_name: str, attributes: list[str]) -> None:
        nonlocal depth, elements
        depth += 1
        elements += 1 + len(attributes)
        if depth > limits.DEPTH or elements > limits.ELEMENTS:
            raise ValueError("the XML has too many levels or elements")

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise ValueError("the XML has a document type, which could define entities")

    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:  # a LookupError for an unknown encoding
        raise ValueError(f"this is not XML: {error}") from None


def xml(data: bytes) -> ElementTree.Element:
    """Return the root of `data`. Raise ValueError as `check_xml` does."""
    check_xml(data)
    return ElementTree.fromstring(data)


def json(data: bytes | str, kind: type[T], *, strict: bool = True) -> T:
    """Parse `data` as a value of type `kind`."""
    try:
        return msgspec.json.decode(data, type=kind, strict=strict)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"this is not the JSON expected: {error}") from None


def token(text: object) -> Secret:
    """Return a token, which is safe to send in a header."""
    if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
        raise ValueError("the token is empty, or has characters that no header may have")
    return Secret(text)
