"""S3 through boto3: the clients of this process, and errors of mdsx.

Storages with the same options and configuration share one boto3 client, because making one takes 0.3 seconds. The
configuration is what boto3 reads: environment variables, and the current content of its two files. A client whose
credentials were refused is dropped, so that the next request reads them again. A forked child makes its own clients.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from mdsx.errors import (
    ChangedError,
    ForbiddenError,
    MdsxError,
    MissingError,
    TransportError,
    TruncatedError,
    UsageError,
)
from mdsx.process import Owner, at_fork, exhausted
from mdsx.secret import Secret, hide
from mdsx.storage.base import MissingBucketError
from mdsx.storage.options import RemoteOptions
from mdsx.storage.remote import limits, parse
from mdsx.storage.remote.answer import excess, safe
from mdsx.storage.remote.http import asked_pause
from mdsx.storage.remote.logs import keep_secrets
from mdsx.storage.remote.s3_answers import asking, bound_client
from mdsx.storage.remote.trust import endpoint
from mdsx.storage.retry import TransientError

REGION = "x-amz-bucket-region"
"""The header in which AWS names the region of a bucket, also to strangers."""

_MISSING = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
_FORBIDDEN = {"401", "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId"}
_FORBIDDEN |= {"InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "Unauthorized", "TokenRefreshRequired"}
_FOR_NOW = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
_FOR_NOW |= {"RequestLimitExceeded", "ThrottlingException", "TooManyRequests", "429", "500", "502", "503", "504"}
_FOR_NOW |= {"ConditionalRequestConflict"}  # another write of the same object is under way
_LIMITED = {"SlowDown", "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequests"}
_FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}  # the codes of several servers
_CREDENTIALS_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role, as for any boto3 program"
_NONE_HINT = f"{_CREDENTIALS_HINT}; or the option anonymous, for a public bucket"
_PERMISSION = "the credentials are valid, but lack a permission: s3:ListBucket on the bucket, s3:GetObject to read, "
_PERMISSION += "s3:PutObject and s3:DeleteObject to write"
_EXPIRED = "get new temporary credentials, for example with `aws sso login`"
_WAYS_OUT = {
    "AccessDenied": _PERMISSION,
    "InvalidAccessKeyId": "the endpoint does not know the access key: check AWS_ACCESS_KEY_ID or the profile, and that "
    "the key is for this endpoint",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key: check AWS_SECRET_ACCESS_KEY or the "
    "profile",
    "RequestTimeTooSkewed": "set this machine's clock, which differs by more than 15 minutes from the server's",
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
}
_ELSEWHERE = {"301", "307", "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}
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
_LONG = 12  # characters of a key whose last four may be shown
_CONNECTIONS = 64
_KEPT = 8  # clients, each for one configuration
_VARIABLES = ("AWS_", "BOTO_")
_OTHERS = {"HOME", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}


@dataclass(frozen=True, kw_only=True, repr=False)
class S3Options(RemoteOptions):
    """What boto3 finds in its configuration otherwise. `token` is a session token, of temporary credentials."""

    profile: str | None = None
    region: str | None = None
    requester_pays: bool = False
    access_key_id: Secret | None = None
    secret_access_key: Secret | None = None
    token: Secret | None = None


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
    """Keep the parent's clients forever: closing their connections here could wait for a lock of the parent's."""
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
    """Return where the credentials are from, and the last characters of the access key, which is no secret."""
    if options.anonymous:
        return "none: requests are anonymous"
    with _configured():
        session = _session(options)
        found = session.get_credentials()
        key = found.get_frozen_credentials().access_key if found else ""
    if found is None:
        raise ForbiddenError("boto3 finds no credentials", hint=_NONE_HINT)
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
    """Return the time that a text says. botocore's own parser guesses, and takes 40 µs: half the time of a listing."""
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
        # mdsx has checksums of its own, and many servers do not know these newer ones.
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
    """Hides boto3's credentials, which may change, before they sign a request."""

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
    """Raise TransportError in place of what boto3 raises if its configuration is wrong."""
    try:
        yield
    except Exception as error:  # botocore's, of many kinds: no region, no such profile, a broken configuration file
        if isinstance(error, ValueError) and "endpoint" in str(
            error
        ):  # the message has the URL, which may have secrets
            hint = "the endpoint (AWS_ENDPOINT_URL) must be a complete URL, like http://localhost:9000"
            raise TransportError("S3 is not configured: the endpoint is not a URL", hint=hint) from None
        if (too_many := exhausted(error, "S3")) is not None:
            raise too_many from safe(error)
        raise TransportError(f"S3 is not configured: {error}", hint=_CREDENTIALS_HINT) from safe(error)


# --- errors


@contextmanager
def errors(file: str) -> Iterator[None]:
    """Raise an MdsxError or TransientError in place of boto3's errors."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    asking(file)
    try:
        yield
    except (BotoCoreError, ClientError, HTTPError, OSError) as error:
        raise exhausted(error, file) or excess(error, file) or _translated(error, file) from safe(error)
    except (MdsxError, TransientError):
        raise
    except (ResponseParserError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
        raise not_s3(file) from None  # not shown: it may quote what was sent


def not_s3(file: str) -> TransportError:
    hint = "check AWS_ENDPOINT_URL or the option endpoint"
    return TransportError("the answer is not one of S3", file=file, hint=hint)


def said(answer: Mapping[str, Any], name: str, file: str) -> str:
    """Return a field of an answer that S3 always sends."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise not_s3(file)
    return value


def _translated(error: Exception, file: str) -> Exception:
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        return _client_error(error.response, file)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.TokenRetrievalError):
        return ForbiddenError(f"no credentials: {error}", file=file, hint=_NONE_HINT)
    broken = (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError)
    if isinstance(error, boto.ConnectionError) and not isinstance(error, broken):  # not what came through it
        hint = "check AWS_ENDPOINT_URL; the option connect_timeout retries a first contact for longer"
        return TransientError(TransportError, f"no answer: {error}", "endpoint", file=file, hint=hint)
    if isinstance(error, boto.ParamValidationError):
        return UsageError(f"S3 cannot have such a name: {error}", file=file)
    if isinstance(error, boto.BotoCoreError) and not isinstance(error, (*broken, boto.HTTPClientError)):
        return TransportError(f"{type(error).__name__}: {error}", file=file)
    return TransientError(TruncatedError, f"the answer broke off: {error}", file=file)


def _client_error(response: dict[str, Any], file: str) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
    text = f"{code} {response.get('Error', {}).get('Message', '')}".strip()
    if code == "NoSuchBucket":
        hint = "create it, or check the URL and AWS_ENDPOINT_URL"
        return TransientError(MissingBucketError, f"there is no such bucket: {text}", "bucket", file=file, hint=hint)
    if code in _ELSEWHERE:
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = response["Error"].get("Region") or headers.get(REGION)
        named = f"AWS_DEFAULT_REGION={region}" if region else "AWS_DEFAULT_REGION"
        hint = f"set {named} or the option region, and no endpoint of another region"
        message = f"the bucket is in another region{f', {region}' if region else ''}: {text}"
        return TransportError(message, file=file, hint=hint)
    if code in _MISSING or status == "404":
        return MissingError(f"it is not there: {text}", file=file)
    if code in _FULL or status == "507":
        hint = "free some space or raise the quota, and resume"
        return TransportError(f"S3 answered {status} {text}", file=file, hint=hint)
    if code in _FORBIDDEN or status in ("401", "403"):
        hint = _WAYS_OUT.get(code, "check the credentials and their permissions")
        return ForbiddenError(f"S3 refused: {text}", file=file, hint=hint)
    if status == "412":
        return ChangedError("the object was replaced while it was read", file=file)
    if status == "416":
        return TruncatedError("the object ends before the bytes asked for", file=file)
    if code in _FOR_NOW or status in _FOR_NOW:
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        after = asked_pause({"Retry-After": headers.get("retry-after", "")})
        limited = code in _LIMITED or status in ("429", "503")
        message = f"S3 answered {status} {text}"
        return TransientError(TransportError, message, file=file, after=after, limited=limited)
    return TransportError(f"S3 answered {status} {text}", file=file)
