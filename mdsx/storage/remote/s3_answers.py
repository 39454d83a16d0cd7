"""What S3 answers, read here in botocore's place, within the limits of everything that a server sends.

botocore reads listings and errors by itself, without a limit, and asks where a bucket is for each redirect.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from mdsx.errors import TransportError
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Body
from mdsx.storage.remote.wire import bounded
from mdsx.storage.retry import TransientError

_REFUSED = 300  # and greater: the status of an answer that is an error


def bound_client(client: Any) -> None:
    """Let the client's connections be bounded ones, and read all answers here that are not objects.

    botocore has no other way to say so: "before-send" may answer in its place. Without its header Expect, it never
    reads interim answers by itself, without an end.
    """
    from botocore.handlers import add_expect_header

    session = client._endpoint.http_session
    pools = session._pool_classes_by_scheme  # of the manager, and of those of proxies
    pools.update({scheme: bounded(pool) for scheme, pool in pools.items()})
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register("before-send.s3", lambda request, **_: _sent(session, request))


class _Document(io.BytesIO):
    """A body that has been read, as botocore expects it."""

    def stream(self) -> Iterator[bytes]:
        yield self.read()


class _Asking(threading.local):
    """What this thread asks for, in how many requests."""

    file = ""
    requests = 0


_asking = _Asking()


def asking(file: str) -> None:
    """Note that this thread begins to ask for `file`."""
    _asking.file, _asking.requests = file, 0


def _sent(session: Any, request: Any) -> Any:
    """Return the answer to a `request` of botocore: open if it is an object, else whole."""
    from botocore.awsrequest import AWSResponse

    _asking.requests += 1
    if _asking.requests > limits.HOPS:  # botocore asks where the bucket is, for each redirect
        message = "the endpoint redirects without an end"
        raise TransportError(message, file=_asking.file, hint="check AWS_ENDPOINT_URL or the option endpoint")
    streams, request.stream_output = request.stream_output, True
    answer = session.send(request)
    refused = answer.status_code >= _REFUSED
    if streams and not refused:
        return answer
    body = Body(answer.raw, _asking.file)
    if refused:
        data = _said(body)
        answer.raw.close()
    elif data := body.whole():
        parse.check_xml(data)
    return AWSResponse(answer.url, answer.status_code, answer.headers, _Document(data))


def _said(body: Body) -> bytes:
    """Return what an answer says of an error; nothing if that is no XML, as from a proxy: its status remains."""
    with suppress(TransientError, TransportError, ValueError):
        data = body.start()
        parse.check_xml(data)
        return data
    return b""
