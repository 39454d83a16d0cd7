"""Storage in S3 or anything that speaks its protocol, through boto3.

Endpoint, region and credentials come from boto3's own configuration (`AWS_ENDPOINT_URL`, profiles, roles). Only
`retry.py` retries: botocore's own retries would multiply ours, and stop if many requests fail at once. A body that
breaks off is continued from the byte that it had reached. Some servers answer a range with 200 instead of 206, or
ignore `If-Match` or `Range`, so the headers of an answer decide which bytes it holds, and of what object.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, TruncatedError, UsageError, shown
from mdsx.process import REQUESTS, Share, at_fork
from mdsx.storage.base import Entry, Piece, Sink, check_key
from mdsx.storage.retry import FIRST_CONTACT, Contact, TransientError, Tries, tried
from mdsx.storage.s3_client import LEAST, SILENCE, Client, Response, errors, retire, shared_client

if TYPE_CHECKING:
    from typing_extensions import Buffer

MULTIPART = 64 * 2**20  # bytes; larger objects are uploaded in parts of this size
_MOST_PARTS = 10_000

T = TypeVar("T")


class S3Storage:
    """The objects below `s3://bucket/prefix`. Each process takes its shared client when it first needs one.

    `connect_timeout`: seconds for which to retry a first contact that fails in a way that a retry rarely cures: an
    unknown host, a refused connection, TLS, a bucket that does not exist.
    """

    def __init__(self, url: str, connect_timeout: float | None = None) -> None:
        try:
            parts = urlsplit(url)
        except ValueError as error:  # brackets that hold no IPv6 address
            raise UsageError(f"this is not a URL: {error}", found=shown(url)) from None
        bucket = parts.netloc.rpartition("@")[2]
        # Nothing of a wrong URL is shown: a password with a slash in it ends up in the bucket's place and in the path.
        if not _BUCKET.fullmatch(bucket):
            hint = "credentials are boto3's own: AWS_ACCESS_KEY_ID, a profile, a role"
            raise UsageError("an S3 URL is s3://bucket/prefix", expected="letters, digits, '.', '_', '-'", hint=hint)
        if parts.query or parts.fragment:
            hint = "remove what follows '?' or '#'; mdsx reads the current version of each object, never a versionId"
            raise UsageError("an S3 URL is s3://bucket/prefix, without a query or a fragment", hint=hint)
        self._bucket = bucket
        prefix = parts.path.strip("/")
        self._prefix = check_key(prefix) + "/" if prefix else ""
        self._connect_timeout = connect_timeout
        self._held: Client | None = None
        self._answered = (False, False)  # endpoint and bucket, in the process that pickled this

    def __getstate__(self) -> dict[str, object]:
        answered = self._answered
        if self._held is not None:
            answered = self._held.endpoint.answered, self._held.bucket(self._bucket).answered
        return {**self.__dict__, "_held": None, "_answered": answered}

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def path(self, key: str) -> Path | None:
        check_key(key)
        return None

    def get(self, key: str, *, start: int = 0, stop: int | None = None, etag: str | None = None) -> Piece:
        def read() -> Piece:
            answer = self._open(key, start, stop, etag)
            return Piece(answer.read(), answer.etag, answer.total)

        return tried(read, self._limit)

    def download(self, key: str, sink: Sink, *, size: int, etag: str | None = None) -> None:
        file, tries, reached, mark = self._file(key), Tries(self._limit), 0, 0
        while True:
            try:
                answer = self._open(key, reached, None, etag)
                if answer.total != size:
                    kind = TruncatedError if answer.total < size else ChangedError
                    raise kind("the object has another size", file=file, found=answer.total, expected=size)
                etag = answer.etag or None
                for chunk in answer.chunks():
                    sink(chunk)
                    reached += len(chunk)
                return
            except TransientError as failure:
                if reached - mark >= LEAST:
                    mark = reached
                    tries.progressed()
                tries.failed(failure)

    def connect(self, key: str, count: int) -> None:
        client, where = self._client.boto, self._where(key)

        def ask() -> None:  # boto3 opens a connection only for a request
            with suppress(Exception):
                client.get_object(**where, Range="bytes=0-0")["Body"].read()

        threads = Share(REQUESTS)
        for _ in range(count):
            future = threads.submit(ask)
            _connecting.add(future)
            future.add_done_callback(_connecting.discard)

    def put(self, key: str, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        file, where = self._file(key), self._where(key)
        if len(view) <= MULTIPART:
            self._ask(file, "put_object", view, **where)
            return
        try:
            self._put_parts(file, where, view)
        except MissingError as error:  # if the answer to its completion was lost, a retry finds no upload
            if "NoSuchUpload" not in str(error):
                raise
            self._put_parts(file, where, view)

    def _put_parts(self, file: str, where: dict[str, Any], view: memoryview) -> None:
        size = max(MULTIPART, -(-len(view) // _MOST_PARTS))
        upload = {**where, "UploadId": self._ask(file, "create_multipart_upload", **where)["UploadId"]}
        try:
            parts = []
            for number, start in enumerate(range(0, len(view), size), 1):
                part = view[start : start + size]
                answer = self._ask(file, "upload_part", part, **upload, PartNumber=number)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            self._ask(file, "complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
        except BaseException:
            with suppress(Exception):  # report the first failure; a resume aborts the upload
                self._client.boto.abort_multipart_upload(**upload)
            raise

    def list(self, prefix: str = "") -> Iterator[Entry]:
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            page = self._ask(self.url, "list_objects_v2", **asked)
            for item in page.get("Contents", ()):
                key = item["Key"][len(self._prefix) :]
                if key and not key.endswith("/"):  # a directory marker, as some tools make
                    yield Entry(key, item["Size"], _quoted(item.get("ETag", "")))
            if "NextContinuationToken" not in page:
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        self._ask(self._file(key), "delete_object", **self._where(key))

    def discard_unfinished(self, prefix: str = "") -> None:
        file = self.url
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        uploads: list[Any] = []
        try:
            while True:
                page = self._ask(file, "list_multipart_uploads", **asked)
                uploads += page.get("Uploads", ())
                if not page.get("IsTruncated"):
                    break
                asked.update(KeyMarker=page["NextKeyMarker"], UploadIdMarker=page["NextUploadIdMarker"])
        except MissingError as error:
            if "NoSuchUpload" not in str(error):  # rclone's answer if a bucket has none
                raise
        for upload in uploads:
            where = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
            with suppress(MissingError):  # it was aborted already
                self._ask(file, "abort_multipart_upload", Bucket=self._bucket, **where)

    def _ask(self, file: str, verb: str, body: memoryview | None = None, **options: Any) -> Any:
        """Return the answer to the client's `verb`."""

        def ask() -> Any:
            sent = {} if body is None else {"Body": _Body(body), "ContentLength": len(body)}
            return self._request(file, lambda client: getattr(client, verb)(**options, **sent))

        return tried(ask, self._limit)

    def _where(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key)}

    def _file(self, key: str) -> str:
        return f"{self.url}/{check_key(key)}"

    @property
    def _client(self) -> Client:
        held = self._held
        if held is None or not held.owner.here:
            held = self._held = shared_client()
            held.endpoint.answered |= self._answered[0]
            held.bucket(self._bucket).answered |= self._answered[1]
        return held

    def _request(self, file: str, ask: Callable[[Any], T]) -> T:
        """Return what `ask` gets from the client. Note what answered; drop a client whose credentials were refused."""
        client = self._client
        endpoint, bucket = client.endpoint, client.bucket(self._bucket)
        try:
            with errors(file):
                result = ask(client.boto)
        except TransientError as failure:
            if failure.lasting != "endpoint":
                if not endpoint.answered and failure.kind is TruncatedError and client.speaks_tls():
                    raise TransientError(TransportError, _TLS, "endpoint", file=file, found=client.url) from failure
                endpoint.found(client.url)
            raise
        except ForbiddenError as error:
            self._held = None
            if "AccessDenied" not in error.message:
                retire(client)
            raise
        except MissingError:
            endpoint.found(client.url)
            bucket.found(f"s3://{self._bucket}")
            raise
        endpoint.found(client.url)
        bucket.found(f"s3://{self._bucket}")
        return result

    def _limit(self, failure: TransientError) -> float | None:
        """Return for how many seconds to retry; None for the usual time."""
        contact: Contact | None = {
            "endpoint": self._client.endpoint,
            "bucket": self._client.bucket(self._bucket),
        }.get(failure.lasting or "")
        if contact is None:
            return None
        if contact.answered:
            contact.lost(str(failure.final()))
            return None
        if self._connect_timeout is not None:
            return self._connect_timeout
        return 0.0 if failure.lasting == "bucket" else FIRST_CONTACT

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Response:
        """Send a GET for bytes [start, stop), of the object with `etag` if one is given; return the open response."""
        file, options = self._file(key), {"IfMatch": etag} if etag else {}
        if start or stop is not None:
            options["Range"] = f"bytes={start}-{'' if stop is None else max(stop - 1, start)}"
        where = self._where(key)
        answer = self._request(file, lambda client: client.get_object(**where, **options))
        body, found = answer["Body"], answer.get("ETag", "")
        if etag and found and found != etag:
            body.close()
            raise ChangedError("the object was replaced while it was read", file=file)
        covered = _CONTENT_RANGE.fullmatch(answer.get("ContentRange") or "")
        if covered is None:  # the whole object, whatever range was requested
            return Response(body, file, found, answer["ContentLength"], skip=start, stop=stop)
        if int(covered[1]) != start:
            body.close()
            asked = options.get("Range", "the whole object")
            message = "the server answered with another range"
            raise TransientError(TransportError, message, file=file, found=covered[0], expected=asked)
        return Response(body, file, found, int(covered[2]), at=start, stop=stop)


_TLS = "the endpoint speaks https://, not http://: check AWS_ENDPOINT_URL"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


class _Body(io.RawIOBase):
    """A memory view as a file, to upload it without a copy."""

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
    """Wait for connections being opened: a fork could copy locks that they hold, and nothing would release them."""
    wait(set(_connecting), SILENCE)


at_fork(before=_settle)


def _quoted(etag: str) -> str:
    """Return an ETag from a listing in the form of GET's: rclone lists it without its quotes."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag
