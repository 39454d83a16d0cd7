"""S3 through boto3: the clients of this process, and the responses to them.

Storages with the same options and configuration share one boto3 client, because making one takes 0.3 seconds. The
configuration consists of environment variables and the current content of boto3's two files. A client whose credentials
were refused is dropped, so that the next request reads them again. A forked child makes its own clients.

botocore would read listings and errors without a limit, and look up a bucket's region after each redirect. So all
responses that are not objects are read here.
"""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from mdsx.base.process import Owner, at_fork, exhausted
from mdsx.errors import (
    ForbiddenError,
    MdsxError,
    TransportError,
)
from mdsx.secret import Secret, hide
from mdsx.storage.options import IN_HEADER, RemoteOptions
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import Body, bounded, excess, safe
from mdsx.storage.remote.logs import keep_secrets
from mdsx.storage.remote.s3_errors import CREDENTIALS_HINT, NONE_HINT, not_s3, region_hint, translated
from mdsx.storage.remote.trust import endpoint
from mdsx.storage.retry import TransientError

_SOURCES = {
    "explicit": "the options access_key_id and secret_access_key",
    "env": "the environment (AWS_ACCESS_KEY_ID)",
    "shared-credentials-file": "~/.aws/credentials",
    "config-file": "~/.aws/config",
    "iam-role": "the machine's role",
    "container-role": "the container's role",
    "assume-role": "an assumed role",
    "assume-role-with-web-identity": "a role for a web identity",
    "sso": "AWS SSO",
    "custom-process": "a program named in ~/.aws/config",
}
_REFUSED = 300  # the status of an error is this or greater
_LONG = 12  # characters of a key whose last four may be shown
_CONNECTIONS = 64
_KEPT = 8  # clients, each for one configuration
_VARIABLES = ("AWS_", "BOTO_")
_OTHERS = {"HOME", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


@dataclass(frozen=True, kw_only=True, repr=False)
class S3Options(RemoteOptions):
    """Used instead of boto3's configuration. `token`: the session token of temporary credentials."""

    profile: str | None = None
    region: str | None = None
    requester_pays: bool = False
    access_key_id: Secret | None = field(default=None, metadata=IN_HEADER)
    secret_access_key: Secret | None = None
    token: Secret | None = field(default=None, metadata=IN_HEADER)


# --- clients


class Client:
    """A boto3 client of this process."""

    def __init__(self, boto: Any) -> None:
        self.boto = boto
        self.owner = Owner()
        self.url: str = boto.meta.endpoint_url
        _alive.add(self)


def shared_client(options: S3Options) -> Client:
    """Return this process's client for these options and the current configuration."""
    configuration = options, *_configuration()
    with _lock:
        client = _clients.get(configuration)
        if client is None:
            client = _clients[configuration] = Client(_make_client(options))
            if len(_clients) > _KEPT:
                _clients.popitem(last=False)
        _clients.move_to_end(configuration)
        return client


def retire(client: Client) -> None:
    """Drop a client whose credentials were refused, so that the next request makes a new one."""
    with _lock:
        for configuration in [known for known, other in _clients.items() if other is client]:
            del _clients[configuration]


_lock = threading.Lock()
_clients: OrderedDict[object, Client] = OrderedDict()
_alive: WeakSet[Client] = WeakSet()
_of_the_parent: list[Client] = []


def _forget_in_child() -> None:
    """Keep the parent's clients alive but unused: closing their connections could wait for a lock of the parent."""
    global _lock
    _of_the_parent.extend(_alive)
    _lock = threading.Lock()
    _clients.clear()


at_fork(after_in_child=_forget_in_child)


def _configuration() -> tuple[object, ...]:
    """Return everything that boto3's configuration depends on."""
    variables = [
        (name, Secret(os.environ[name], ()))
        for name in sorted(os.environ)
        if name.startswith(_VARIABLES) or name.upper() in _OTHERS
    ]
    files = []
    for variable, default in _FILES.items():
        with suppress(OSError):
            status = os.stat(os.path.expanduser(os.environ.get(variable) or default))
            files.append((variable, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(variables), tuple(files), limits.SILENCE


def identity_of(options: S3Options) -> str:
    """Return the source of the credentials, and the last characters of the access key, which is not secret."""
    if options.anonymous:
        return "none: requests are anonymous"
    with _configured():
        session = _session(options)
        found = session.get_credentials()
        key = found.get_frozen_credentials().access_key if found else ""
    if found is None:
        raise ForbiddenError("boto3 finds no credentials", hint=NONE_HINT)
    source = _SOURCES.get(found.method, found.method)
    if found.method not in ("explicit", "env") and session.profile_name != "default":
        source += f", profile {session.profile_name}"
    return f"{source}; the access key ends in {key[-4:]}" if len(key) >= _LONG else source


def _session(options: S3Options) -> Any:
    import boto3
    import botocore.session

    session = botocore.session.get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
    return boto3.session.Session(
        botocore_session=session,
        profile_name=options.profile,
        region_name=options.region,
        aws_access_key_id=options.access_key_id and options.access_key_id.reveal(),
        aws_secret_access_key=options.secret_access_key and options.secret_access_key.reveal(),
        aws_session_token=options.token and options.token.reveal(),
    )


def _time(value: Any) -> Any:
    """Parse a time. botocore's own parser guesses, and takes 40 µs for each: half the time of a listing."""
    from botocore.utils import parse_timestamp

    return parse.time(value) if isinstance(value, str) else parse_timestamp(value)  # a number, of other services


def _make_client(options: S3Options) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        connect_timeout=limits.CONNECT,
        read_timeout=limits.SILENCE,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
        # mdsx has its own checksums, and many servers do not support these newer ones.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="mdsx",
        signature_version=UNSIGNED if options.anonymous else None,
    )
    with _configured():
        session = _session(options)
        client = session.client("s3", endpoint_url=options.endpoint, config=config)
        bound_client(client)
    endpoint(client.meta.endpoint_url, file="S3", form="http://localhost:9000")
    client.meta.events.register("before-sign.s3", _Hiding(session.get_credentials()))
    keep_secrets()
    return client


class _Hiding:
    """Registers boto3's credentials as secrets before they sign a request, as they may have changed."""

    def __init__(self, credentials: Any) -> None:
        self._credentials, self._hidden = credentials, Secret("")

    def __call__(self, **_: object) -> None:
        frozen = self._credentials and self._credentials.get_frozen_credentials()
        if frozen and (secret := Secret(frozen.secret_key)) != self._hidden:
            for text in (frozen.access_key, frozen.token or ""):
                hide(text)
            self._hidden = secret


@contextmanager
def _configured() -> Iterator[None]:
    """Replace boto3's errors about its configuration by TransportError."""
    try:
        yield
    except Exception as error:  # botocore has many: no region, no such profile, a broken configuration file
        text = str(error)
        if "s3..amazonaws" in text:
            raise TransportError("S3 is not configured: the region is empty", hint=region_hint()) from safe(error)
        if "region" in text:
            raise TransportError(f"S3 is not configured: {error}", hint=region_hint()) from safe(error)
        if isinstance(error, ValueError) and "endpoint" in text:  # the message has the URL, which may have secrets
            hint = "the endpoint (AWS_ENDPOINT_URL) must be a complete URL, like http://localhost:9000"
            raise TransportError("S3 is not configured: the endpoint is not a URL", hint=hint) from None
        if (too_many := exhausted(error, "S3")) is not None:
            raise too_many from safe(error)
        raise TransportError(f"S3 is not configured: {error}", hint=CREDENTIALS_HINT) from safe(error)


# --- responses, read here in botocore's place, within the limits of everything that a server sends


def bound_client(client: Any) -> None:
    """Make the client's connections bounded, and let all its responses that are not objects be read here.

    botocore's only hook for this is "before-send", which may return a response in its place. Without the header Expect,
    botocore does not read interim responses itself, which it would do without limit.
    """
    from botocore.handlers import add_expect_header

    session = client._endpoint.http_session
    pools = session._pool_classes_by_scheme  # of the manager, and of those of proxies
    pools.update({scheme: bounded(pool) for scheme, pool in pools.items()})
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register("before-send.s3", lambda request, **_: _sent(session, request))


class _Document(io.BytesIO):
    """A body that was read already, as botocore expects it."""

    def stream(self) -> Iterator[bytes]:
        yield self.read()


class _Asking(threading.local):
    """What this thread is requesting, and the number of requests so far."""

    file = ""
    requests = 0


_asking = _Asking()


def asking(file: str) -> None:
    """Note that this thread begins to request `file`."""
    _asking.file, _asking.requests = file, 0


def _sent(session: Any, request: Any) -> Any:
    """Return the response to a `request` of botocore: open if it is an object, otherwise read whole."""
    from botocore.awsrequest import AWSResponse

    _asking.requests += 1
    if _asking.requests > limits.HOPS:  # botocore looks up the bucket's region after each redirect
        message = "the endpoint redirects endlessly"
        raise TransportError(message, file=_asking.file, hint="check AWS_ENDPOINT_URL or the option endpoint")
    streams, request.stream_output = request.stream_output, True
    answer = session.send(request)
    refused = answer.status_code >= _REFUSED
    if streams and not refused:
        return answer
    body = Body(answer.raw, _asking.file)
    if refused:
        data = _error_body(body)
        answer.raw.close()
    elif data := body.whole():
        parse.check_xml(data)
    return AWSResponse(answer.url, answer.status_code, answer.headers, _Document(data))


def _error_body(body: Body) -> bytes:
    """Return the body of an error response; b"" if it is not XML, as from a proxy: then only the status counts."""
    with suppress(TransientError, TransportError, ValueError):
        data = body.start()
        parse.check_xml(data)
        return data
    return b""


# --- errors


@contextmanager
def errors(file: str) -> Iterator[None]:
    """Replace boto3's errors by an MdsxError or TransientError."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    asking(file)
    try:
        yield
    except (BotoCoreError, ClientError, HTTPError, OSError) as error:
        raise exhausted(error, file) or excess(error, file) or translated(error, file) from safe(error)
    except (MdsxError, TransientError):
        raise
    except (ResponseParserError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        raise not_s3(file) from None  # not shown: it may quote what was sent
