"""Translate errors of boto3 and error responses of S3 to errors of mdsx."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, TruncatedError, UsageError
from mdsx.storage.base import MissingBucketError
from mdsx.storage.remote import parse
from mdsx.storage.remote.http import asked_pause
from mdsx.storage.retry import TransientError

REGION = "x-amz-bucket-region"
"""The header in which AWS names the region of a bucket, even without credentials."""

_MISSING = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
_FORBIDDEN = {"401", "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId"}
_FORBIDDEN |= {"InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "Unauthorized", "TokenRefreshRequired"}
_FOR_NOW = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
_FOR_NOW |= {"RequestLimitExceeded", "ThrottlingException", "TooManyRequests", "429", "500", "502", "503", "504"}
_FOR_NOW |= {"ConditionalRequestConflict"}  # another write of the same object is in flight
_LIMITED = {"SlowDown", "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequests"}
_FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}  # the codes of several servers
CREDENTIALS_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role, as for any boto3 program"
CREDENTIALS_HINT += " (`aws configure` saves keys)"
NONE_HINT = f"{CREDENTIALS_HINT}; or the option anonymous, for a public bucket"
_PERMISSION = "the credentials are valid, but lack a permission: s3:ListBucket on the bucket, s3:GetObject to read, "
_PERMISSION += "s3:PutObject and s3:DeleteObject to write"
_EXPIRED = "get new temporary credentials, for example with `aws sso login`"
_WAYS_OUT = {
    "AccessDenied": _PERMISSION,
    "InvalidAccessKeyId": "the endpoint does not know the access key: check AWS_ACCESS_KEY_ID or the profile, and that "
    "the key is for this endpoint",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key: check AWS_SECRET_ACCESS_KEY or the "
    "profile",
    "RequestTimeTooSkewed": "synchronise this machine's clock, which differs by more than 15 minutes from the server's "
    "(`timedatectl set-ntp true`, or chrony)",
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
}
_OF_TLS = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS: write http:// in AWS_ENDPOINT_URL or the option endpoint",
    "CERTIFICATE_VERIFY_FAILED": "if your own certificate authority signed the server's certificate, set AWS_CA_BUNDLE "
    "to its file; else check AWS_ENDPOINT_URL and this machine's clock",
}
_OF_PROXY = "check HTTPS_PROXY and HTTP_PROXY; NO_PROXY lists hosts to reach without a proxy"
_NOT_OF_S3 = f"a proxy or a gateway may have answered in place of S3: {_OF_PROXY}; or check the credentials"
_ELSEWHERE = {"301", "307", "AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect"}


def region_hint(region: str | None = None) -> str:
    """Return how to set the region: `region`, if it is known."""
    named = f"set AWS_DEFAULT_REGION={region} or the option region"
    hint = named if region else "set AWS_DEFAULT_REGION or the option region to the bucket's region, such as eu-west-1"
    ignored = "AWS_REGION" in os.environ and "AWS_DEFAULT_REGION" not in os.environ
    return f"{hint} (boto3 does not read AWS_REGION)" if ignored else hint


def not_s3(file: str) -> TransportError:
    hint = "check AWS_ENDPOINT_URL or the option endpoint"
    return TransportError("the endpoint did not return an S3 response", file=file, hint=hint)


def required_field(answer: Mapping[str, Any], name: str, file: str) -> str:
    """Return a field that S3 always sends in a response."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise not_s3(file)
    return value


def translated(error: Exception, file: str) -> Exception:
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        return _client_error(error.response, file)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.TokenRetrievalError):
        return ForbiddenError(f"no credentials: {error}", file=file, hint=NONE_HINT)
    broken = (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError)
    if isinstance(error, boto.ConnectionError) and not isinstance(error, broken):  # the connection itself failed
        hint = "check AWS_ENDPOINT_URL; to retry a first contact for longer, give the option connect_timeout"
        if "amazonaws.com" in str(error):
            hint = f"check the network, and {region_hint()}; or {hint}"
        if isinstance(error, boto.SSLError):
            hint = next((way_out for reason, way_out in _OF_TLS.items() if reason in str(error)), hint)
        if isinstance(error, boto.ProxyConnectionError):
            hint = _OF_PROXY
        return TransientError(TransportError, f"no answer: {error}", "endpoint", file=file, hint=hint)
    if isinstance(error, boto.ParamValidationError):
        return UsageError(f"not a valid name in S3: {error}", file=file)
    if isinstance(error, boto.BotoCoreError) and not isinstance(error, (*broken, boto.HTTPClientError)):
        return TransportError(f"{type(error).__name__}: {error}", file=file)
    return TransientError(TruncatedError, f"the response broke off: {error}", file=file)


def _client_error(response: dict[str, Any], file: str) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
    text = f"{code} {response.get('Error', {}).get('Message', '')}".strip()
    if code == "NoSuchBucket":
        hint = "create it, or check the URL and AWS_ENDPOINT_URL"
        return TransientError(MissingBucketError, f"no such bucket: {text}", "bucket", file=file, hint=hint)
    if code in _ELSEWHERE:
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = response["Error"].get("Region") or headers.get(REGION)
        hint = f"{region_hint(region)}, and do not set an endpoint of another region"
        message = f"the bucket is in another region{f', {region}' if region else ''}: {text}"
        return TransportError(message, file=file, hint=hint)
    if code in _MISSING or status == "404":
        return MissingError(f"not found: {text}", file=file)
    if code in _FULL or status == "507":
        hint = "free some space or raise the quota, and resume"
        return TransportError(f"S3 answered {status} {text}", file=file, hint=hint)
    if code in _FORBIDDEN or status in ("401", "403"):
        hint = _WAYS_OUT.get(code, "check the credentials and their permissions")
        if not code:  # the body is not S3's
            text, hint = f"status {status}, without S3's reason", _NOT_OF_S3
        seconds = parse.skew(response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))
        if abs(seconds) > parse.SKEWED:  # some servers call it AccessDenied
            text += f"; this machine's clock is {abs(seconds) / 60:,.0f} minutes {'fast' if seconds > 0 else 'slow'}"
            hint = _WAYS_OUT["RequestTimeTooSkewed"]
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
