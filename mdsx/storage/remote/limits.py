"""The limits of everything that a server sends, and of every wait for it. docs/operations.md lists them in a table.

`answer.py` enforces the limits of connections and bodies, `parse.py` those of their content. These limits allow 64
concurrent requests over 20 kB/s.
"""

from __future__ import annotations

CONNECT = 10
"""Seconds for a connection to an address."""
SILENCE = 30
"""Seconds for the first byte of a response, and for each next one."""

HEAD_SECONDS = 60
"""Seconds of waiting for the status and the headers of a response."""
HEAD = 256 * 1024
"""Bytes of the status and the headers of a response, with all interim responses (100 Continue) before it."""

TRICKLE = 60
"""Seconds of waiting within which `LEAST` bytes of a body, or its rest, must arrive. Otherwise it counts as broken."""
LEAST = 16 * 1024
WRITE_SECONDS = 600
"""Seconds of waiting for the whole response to a write: S3 sends spaces while it assembles a large object."""
FRAMING = 64 * 1024
"""Bytes of chunk sizes and trailers without a byte of the body."""
FRAMING_SHARE = 8
"""Bytes of a body for each further byte of chunk sizes: a body of tiny chunks would take minutes of processor time."""

OBJECT = 2 * 2**30
"""Bytes of an object that is read whole. A range has as many as requested; a download keeps none in memory."""
DOCUMENT = 32 * 2**20
"""Bytes of a page of a listing, and of every other response in XML or JSON."""
ERROR = 64 * 1024
"""Bytes of an error's body that are read."""
TOKEN = 2**20
"""Bytes of a response that has a token."""

DEPTH = 64
"""Levels in XML."""
ELEMENTS = 2**19
"""Elements and attributes in XML."""
DIGITS = 18
"""Digits of a number in a header or a listing."""
ETAG = 1024
"""Characters of an ETag, of printable ASCII."""
DATE = 64
"""Characters of a date."""

PAGES = 100_000
"""Pages of a listing. No page's mark may come twice."""
EMPTY_PAGES = 10_000
"""Consecutive pages without an object: buckets with many deleted versions have them."""
HOPS = 5
"""Redirects that one request follows."""
