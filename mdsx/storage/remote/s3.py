"""Storage in S3 and compatible servers, through boto3.

Endpoint, region and credentials come from boto3's own configuration (`AWS_ENDPOINT_URL`, profiles, roles), or from the
options. Only `retry.py` retries: botocore's retries would multiply ours, and stop if many requests fail at once.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from mdsx.base.pieces import Pieces
from mdsx.errors import ForbiddenError, MissingError, TransportError
from mdsx.storage.base import Choose, Entry, check_key
from mdsx.storage.options import StorageOptions, parsed
from mdsx.storage.remote import parse
from mdsx.storage.remote.answer import Answer
from mdsx.storage.remote.s3_client import Client, S3Options, errors, identity_of, retire, shared_client
from mdsx.storage.remote.s3_errors import REGION, required_field
from mdsx.storage.remote.storage import Pages, RemoteStorage, bucket_and_prefix, covering, ranged
from mdsx.storage.retry import tried

MULTIPART = 64 * 2**20  # bytes; larger objects are uploaded in parts of this size
_MOST_PARTS = 10_000

T = TypeVar("T")


class S3Storage(RemoteStorage):
    """The objects below `s3://bucket/prefix`. Each process gets its shared client on first use."""

    way_out = "check AWS_ENDPOINT_URL or the option endpoint"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        bucket, prefix = bucket_and_prefix(url, credentials=_CREDENTIALS, versions="a versionId")
        shown = f"s3://{bucket}/{prefix}".rstrip("/")
        self._options = parsed(S3Options, given, shown)
        super().__init__(shown, bucket, prefix, self._options.connect_timeout)
        self._payer: dict[str, Any] = {"RequestPayer": "requester"} if self._options.requester_pays else {}
        self._held: Client | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_held": None}

    def _store(self, key: str, data: Pieces, etag: str | None) -> None:
        condition: dict[str, Any] = {"IfMatch": etag} if etag else {} if etag is None else {"IfNoneMatch": "*"}
        try:
            self._store_if(key, data, condition)
        except TransportError as error:  # a server without conditions; `create` and `replace` have looked just before
            if not condition or "NotImplemented" not in error.message:
                raise
            self._store_if(key, data, {})

    def _store_if(self, key: str, data: Pieces, condition: dict[str, Any]) -> None:
        file, where = self._file(key), self._where(key)
        if len(data) <= MULTIPART:
            self._ask(file, "put_object", data, **where, **condition)
            return
        try:
            self._put_parts(file, where, data, condition)
        except MissingError as error:  # if the response to the completion was lost, a retry finds no upload
            if "NoSuchUpload" not in error.message:
                raise
            self._put_parts(file, where, data, condition)

    def _put_parts(self, file: str, where: dict[str, Any], data: Pieces, condition: dict[str, Any]) -> None:
        size = max(MULTIPART, -(-len(data) // _MOST_PARTS))
        begun = self._ask(file, "create_multipart_upload", **where)
        upload = {**where, "UploadId": required_field(begun, "UploadId", file)}
        try:
            parts = []
            for number, part in enumerate(data.cut(size), 1):
                answer = self._ask(file, "upload_part", part, **upload, PartNumber=number)
                parts.append({"PartNumber": number, "ETag": required_field(answer, "ETag", file)})
            self._ask(file, "complete_multipart_upload", **upload, **condition, MultipartUpload={"Parts": parts})
        except BaseException:
            with suppress(Exception):  # report the first failure; a resume aborts the upload
                self._request(file, lambda client: client.abort_multipart_upload(**upload))
            raise

    def list(self, prefix: str = "") -> Iterator[Entry]:
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **self._payer}
        pages = Pages(self.url)
        while True:
            page = self._ask(self.url, "list_objects_v2", **asked)
            items = page.get("Contents", ())
            for item in items:
                key = required_field(item, "Key", self.url)[len(self._prefix) :]
                if key and not key.endswith("/"):  # a directory marker, as some tools make
                    etag, modified = parse.quoted(item.get("ETag", "")), _seconds(item.get("LastModified"))
                    yield parse.entry(key, item.get("Size"), etag, modified, self.url)
            if "NextContinuationToken" not in page:
                return
            asked["ContinuationToken"] = pages.following(page["NextContinuationToken"], len(items))

    def delete(self, key: str) -> None:
        self._ask(self._file(key), "delete_object", **self._where(key))

    def discard_unfinished(self, prefix: str = "", *, choose: Choose | None = None) -> None:
        file = self.url
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, **self._payer}
        uploads: list[Any] = []
        pages = Pages(file)
        try:
            while True:
                page = self._ask(file, "list_multipart_uploads", **asked)
                found = page.get("Uploads", ())
                uploads += found
                if not page.get("IsTruncated"):
                    break
                key, number = (required_field(page, name, file) for name in ("NextKeyMarker", "NextUploadIdMarker"))
                asked.update(KeyMarker=key, UploadIdMarker=number)
                pages.following(f"{key}\n{number}", len(found))
        except MissingError as error:
            if "NoSuchUpload" not in error.message:  # rclone's response if a bucket has no uploads
                raise
        for upload in uploads:
            where = {name: required_field(upload, name, file) for name in ("Key", "UploadId")}
            key, begun = where["Key"][len(self._prefix) :], _seconds(upload.get("Initiated"))
            if choose is not None and not choose(Entry(key, 0, where["UploadId"], begun)):
                continue
            with suppress(MissingError):  # it was aborted already
                self._ask(file, "abort_multipart_upload", None, Bucket=self._bucket, **where, **self._payer)

    def identity(self) -> str:
        return identity_of(self._options)

    def landmark(self) -> str:
        return f"{self._endpoint()}/{self._bucket}?max-keys=1"

    def recognises(self, headers: Mapping[str, str], body: bytes) -> bool:
        return not body or _XML.match(body) is not None

    def regions(self, headers: Mapping[str, str]) -> tuple[str, str] | None:
        bucket = headers.get(REGION)
        return (self._client.boto.meta.region_name, bucket) if bucket else None

    def _ask(self, file: str, verb: str, body: Pieces | None = None, **options: Any) -> Any:
        """Return the response to the client's `verb`."""

        def ask() -> Any:
            sent = {} if body is None else {"Body": _Body(body), "ContentLength": len(body)}
            return self._request(file, lambda client: getattr(client, verb)(**options, **sent))

        return tried(ask, self._limit)

    def _where(self, key: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + check_key(key), **self._payer}

    @property
    def _client(self) -> Client:
        held = self._held
        if held is None or not held.owner.here:
            held = self._held = shared_client(self._options)
        return held

    def _endpoint(self) -> str:
        return self._client.url

    def _has_endpoint(self) -> bool:
        return self._held is not None

    def _refused(self, error: ForbiddenError) -> None:
        client, self._held = self._held, None
        if client is not None and "AccessDenied" not in error.message:
            retire(client)

    def _request(self, file: str, ask: Callable[[Any], T]) -> T:
        """Return the result of `ask(client)`."""
        client = self._client

        def asked() -> T:
            with errors(file):
                return ask(client.boto)

        return self._asked(file, asked)

    def _open(self, key: str, start: int, stop: int | None, etag: str | None) -> Answer:
        file, where = self._file(key), self._where(key)
        if etag:
            where["IfMatch"] = etag
        if wanted := ranged(start, stop):
            where["Range"] = wanted
        answer = self._request(file, lambda client: client.get_object(**where))
        size, named = answer.get("ContentLength", ""), answer.get("ContentRange", "")
        about: dict[str, Any] = {
            "status": answer["ResponseMetadata"]["HTTPStatusCode"],
            "headers": {"Content-Length": str(size), "Content-Range": named},
        }
        raw, found = answer["Body"]._raw_stream, answer.get("ETag", "")  # botocore's read() waits for all bytes
        return covering(raw, file, start, stop, etag=found, wanted=etag, **about)


_XML = re.compile(rb"\s*(<\?xml[^>]*>)?\s*<(Error|ListBucketResult)\b")
_CREDENTIALS = "boto3 finds AWS_ACCESS_KEY_ID, a profile or a role"


class _Body(io.RawIOBase):
    """Bytes as a file, to upload them without a copy."""

    def __init__(self, data: Pieces) -> None:
        self._data = data
        self._at = 0

    def __len__(self) -> int:
        return len(self._data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, len(self._data))[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        first = self._at
        for piece in self._data[first : first + len(buffer)]:
            buffer[self._at - first : self._at - first + len(piece)] = piece
            self._at += len(piece)
        return self._at - first


def _seconds(date: datetime | None) -> float:
    return parse.seconds(date) if date else 0.0
