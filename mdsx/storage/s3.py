"""Storage in S3 or anything that speaks its protocol, by boto3.

Endpoint, region and credentials are boto3's own configuration (`AWS_ENDPOINT_URL`, profiles, roles). Requests are
retried by botocore ("standard" mode: bounded, exponential backoff with jitter, only what is worth it); a body that
breaks off is continued here, from the byte that it had reached. Some servers answer a range with 200 instead of 206, or
ignore `If-Match` or `Range`: what an answer covers, and of which object it is, is read from its own headers.
"""

from __future__ import annotations

import io
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, TruncatedError, UsageError
from mdsx.storage.base import Entry, Piece, Sink, check_key

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHUNK = 2**20
_TRIES = 5  # without a byte of progress between them
_TIMEOUT = 30  # seconds for a connection, and between two reads of a body
_CONNECTIONS = 64
_MULTIPART = 64 * 2**20  # above it, in parts of it
_MOST_PARTS = 10_000

_MISSING = {"404", "NoSuchKey", "NoSuchBucket", "NoSuchUpload", "NotFound"}
_FORBIDDEN = {"401", "403", "AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId"}
_FORBIDDEN |= {"InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "Unauthorized", "TokenRefreshRequired"}
_CREDENTIALS_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role, as for any boto3 program"


class S3Storage:
    """The objects below `s3://bucket/prefix`. The client is made when it is first used, in each process anew."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        bucket = parts.netloc.rpartition("@")[2]
        if not bucket or parts.query or parts.fragment:
            raise UsageError("an S3 URL is s3://bucket/prefix", found=repr(f"s3://{bucket}{parts.path}"))
        self._bucket = bucket
        prefix = parts.path.strip("/")
        self._prefix = check_key(prefix) + "/" if prefix else ""
        self._clients: dict[int, Any] = {}  # by process

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_clients": {}}

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def path(self, key: str) -> Path | None:
        check_key(key)
        return None

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        file = self._file(key)

        def read() -> Piece:
            with self._errors(file):
                answer = self._open(key, start, stop, etag)
                return Piece(answer.read(), answer.etag, answer.total)

        return _retry(read)

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None) -> None:
        file, reached, failures = self._file(key), 0, 0
        while reached < size or (size == 0 and reached == 0):
            before = reached
            try:
                with self._errors(file):
                    answer = self._open(key, reached, None, etag)
                    if answer.total != size:
                        kind = TruncatedError if answer.total < size else ChangedError
                        raise kind("the object has another size", file=file, found=answer.total, expected=size)
                    etag = answer.etag or None
                    for chunk in answer.chunks():
                        sink(chunk)
                        reached += len(chunk)
                if size == 0:
                    return
                if reached < size:
                    raise _Broken("the body ended early", file=file, found=reached, expected=size)
            except _Broken as error:
                failures = 1 if reached > before else failures + 1
                if failures >= _TRIES:
                    raise TruncatedError(str(error)) from error
                _pause(failures)

    def connect(self, key: str, count: int) -> None:
        client, where = self._client, {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

        def ask() -> None:  # boto3 opens a connection only for a request
            with suppress(Exception):
                client.get_object(**where, Range="bytes=0-0")["Body"].read()

        pool = ThreadPoolExecutor(count, thread_name_prefix="mdsx-connect")
        for _ in range(count):
            future = pool.submit(ask)
            _connecting.add(future)
            future.add_done_callback(_connecting.discard)
        pool.shutdown(wait=False)

    def put(self, key: str, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        where = {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}
        with self._errors(self._file(key)):
            if len(view) <= _MULTIPART:
                self._client.put_object(**where, Body=_View(view), ContentLength=len(view))
            else:
                self._put_parts(where, view)

    def _put_parts(self, where: dict[str, str], view: memoryview) -> None:
        client = self._client
        size = max(_MULTIPART, -(-len(view) // _MOST_PARTS))
        upload = {**where, "UploadId": client.create_multipart_upload(**where)["UploadId"]}
        try:
            parts = []
            for number, start in enumerate(range(0, len(view), size), 1):
                part = view[start : start + size]
                answer = client.upload_part(**upload, PartNumber=number, Body=_View(part), ContentLength=len(part))
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            client.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        except BaseException:
            client.abort_multipart_upload(**upload)
            raise

    def list(self, prefix: str = "") -> Iterator[Entry]:
        with self._errors(f"{self.url}/{prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            for page in pages:
                for item in page.get("Contents", ()):
                    key = item["Key"][len(self._prefix) :]
                    if key and not key.endswith("/"):  # a directory's marker, as some tools make
                        yield Entry(key, item["Size"], _quoted(item.get("ETag", "")))

    def delete(self, key: str) -> None:
        with self._errors(self._file(key)):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + check_key(key))

    def discard_unfinished(self, prefix: str = "") -> None:
        client = self._client
        with self._errors(f"{self.url}/{prefix}"):
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            try:
                uploads = [upload for page in pages for upload in page.get("Uploads", ())]
            except client.exceptions.NoSuchUpload:  # so rclone says that a bucket has none
                return
            for upload in uploads:
                client.abort_multipart_upload(Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    def _file(self, key: str) -> str:
        return f"{self.url}/{check_key(key)}"

    @property
    def _client(self) -> Any:
        client = self._clients.get(os.getpid())
        if client is None:
            client = self._clients[os.getpid()] = _make_client()
        return client

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> _Answer:
        """A GET from which bytes [start, stop) can be read, of the object with `etag` if one is given."""
        options = {"IfMatch": etag} if etag else {}
        if start or stop is not None:
            options["Range"] = f"bytes={start}-{'' if stop is None else max(stop - 1, start)}"
        answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, **options)
        found = answer.get("ETag", "")
        if etag and found and found != etag:
            answer["Body"].close()
            raise ChangedError("the object was replaced while it was read", file=self._file(key))
        covered = _CONTENT_RANGE.fullmatch(answer.get("ContentRange") or "")
        if covered is None:  # the whole object, whatever was asked for
            return _Answer(answer["Body"], found, answer["ContentLength"], skip=start, stop=stop)
        if int(covered[1]) != start:
            answer["Body"].close()
            raise TransportError(
                "the server answered another range",
                file=self._file(key),
                found=covered[0],
                expected=options.get("Range", "the whole object"),
            )
        return _Answer(answer["Body"], found, int(covered[2]), at=start, stop=stop)

    @contextmanager
    def _errors(self, file: str) -> Iterator[None]:
        from botocore import exceptions as boto
        from urllib3.exceptions import HTTPError

        try:
            yield
        except boto.ClientError as error:
            raise _client_error(error.response, file) from error
        except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.TokenRetrievalError) as error:
            raise ForbiddenError(f"no credentials: {error}", file=file, hint=_CREDENTIALS_HINT) from error
        except (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError) as error:
            raise _Broken(f"the answer broke off: {error}", file=file) from error
        except boto.ConnectionError as error:  # the connection, not what came through it
            raise TransportError(f"no answer: {error}", file=file, hint="check AWS_ENDPOINT_URL") from error
        except (boto.HTTPClientError, HTTPError, OSError) as error:
            raise _Broken(f"the answer broke off: {error}", file=file) from error
        except boto.ParamValidationError as error:
            raise UsageError(f"S3 cannot have such a name: {error}", file=file) from error
        except boto.BotoCoreError as error:
            raise TransportError(f"{type(error).__name__}: {error}", file=file) from error


class _Broken(TruncatedError):
    """An answer that broke off: worth another try."""


_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class _Answer:
    """A body that starts at byte `at` of an object of `total` bytes; only what lies in [at + skip, stop) is read."""

    def __init__(self, body: Any, etag: str, total: int, *, at: int = 0, skip: int = 0, stop: int | None) -> None:
        self.etag = etag
        self.total = total
        self._body = body
        self._skip = skip
        self._left = max((total if stop is None else min(stop, total)) - at - skip, 0)

    def chunks(self) -> Iterator[bytes]:
        try:
            while self._skip and (chunk := self._body.read(min(self._skip, _CHUNK))):
                self._skip -= len(chunk)
            while self._left and (chunk := self._body.read(min(self._left, _CHUNK))):
                self._left -= len(chunk)
                yield chunk
        finally:
            if self._left or self._skip:
                self._body.close()

    def read(self) -> bytes:
        data = b"".join(self.chunks())
        if self._left:
            raise _Broken("the body ended early", found=len(data), expected=len(data) + self._left)
        return data


class _View(io.RawIOBase):
    """A memory view as a file, so that what is uploaded is not copied first."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, len(self._view))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._view[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


_connecting: set[Future[None]] = set()


def _settle() -> None:
    """A fork in the midst of a connection could leave locks behind that nobody releases."""
    wait(set(_connecting), _TIMEOUT)


os.register_at_fork(before=_settle)


def _make_client() -> Any:
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=_TIMEOUT,
        read_timeout=_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": _TRIES},
        max_pool_connections=_CONNECTIONS,
        # Whole-object checksums are our own; many servers do not know these newer ones.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="mdsx",
    )
    try:
        return boto3.session.Session().client("s3", config=config)
    except Exception as error:  # botocore's, of many kinds: no region, no such profile, a broken configuration file
        url = isinstance(error, ValueError) and "endpoint" in str(error)
        hint = "AWS_ENDPOINT_URL is a whole URL, like http://localhost:9000" if url else _CREDENTIALS_HINT
        raise TransportError(f"S3 is not configured: {error}", hint=hint) from error


def _quoted(etag: str) -> str:
    """An ETag from a listing as GET gives it: rclone lists it without its quotes."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag


def _client_error(response: dict[str, Any], file: str) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = str(response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
    text = f"{code} {response.get('Error', {}).get('Message', '')}".strip()
    if code in _MISSING or status == "404":
        return MissingError(f"it is not there: {text}", file=file)
    if code in _FORBIDDEN or status in ("401", "403"):
        return ForbiddenError(f"S3 refused: {text}", file=file, hint="check the credentials and their rights")
    if status == "412":
        return ChangedError("the object was replaced while it was read", file=file)
    if status == "416":
        return TruncatedError("the object ends before what was asked for", file=file)
    return TransportError(f"S3 answered {status} {text}", file=file)


def _retry(attempt: Callable[[], Piece]) -> Piece:
    for failures in range(1, _TRIES):
        try:
            return attempt()
        except _Broken:
            _pause(failures)
    try:
        return attempt()
    except _Broken as error:
        raise TruncatedError(str(error)) from error


def _pause(failures: int) -> None:
    """Exponential backoff with full jitter: up to 0.1, 0.2, 0.4 ... seconds."""
    time.sleep(random.uniform(0, 0.05 * 2**failures))
