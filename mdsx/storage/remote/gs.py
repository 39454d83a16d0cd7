"""Storage in Google Cloud Storage, through its JSON API.

The ETag of an object is its generation: a number that changes with each write, and that listings have too. Objects are
read as stored, even those with `Content-Encoding: gzip`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from mdsx.base.pieces import Pieces
from mdsx.errors import ForbiddenError, MissingError, TransportError
from mdsx.secret import Secret
from mdsx.storage.base import Choose, Entry, MissingBucketError, check_key
from mdsx.storage.options import StorageOptions, parsed
from mdsx.storage.remote import parse
from mdsx.storage.remote.answer import Body
from mdsx.storage.remote.gs_credentials import WAY_OUT, Credentials, GsOptions, shared_credentials
from mdsx.storage.remote.http import Headers, HttpStorage, asked_pause, shortened
from mdsx.storage.remote.storage import Pages, bucket_and_prefix
from mdsx.storage.remote.trust import Address, endpoint, followed
from mdsx.storage.retry import TransientError, Tries, tried

MULTIPART = 64 * 2**20  # bytes; larger objects are uploaded in parts of this size, which must be a multiple of 256 KiB
_GOOGLE = "https://storage.googleapis.com"
_FIELDS = "items(name,size,generation,updated),nextPageToken"
_FOR_NOW = {"rateLimitExceeded", "userRateLimitExceeded"}
_NO_BUCKET = "The specified bucket does not exist"
_KEPT = re.compile(r"bytes=0-(\d{1,18})", re.ASCII)


class _Object(msgspec.Struct):
    name: str
    size: int
    generation: str
    updated: datetime | None = None

    @property
    def modified(self) -> float:
        return parse.seconds(self.updated) if self.updated else 0.0


class _Page(msgspec.Struct):
    items: list[_Object] = []
    nextPageToken: str = ""  # noqa: N815  Google's name


class _Reason(msgspec.Struct):
    reason: str = ""


class _Failure(msgspec.Struct):
    message: str = ""
    errors: list[_Reason] = []


class _ErrorBody(msgspec.Struct):
    """The body of an error."""

    error: _Failure


class GsStorage(HttpStorage):
    """The objects below `gs://bucket/prefix`."""

    way_out = "check STORAGE_EMULATOR_HOST or the option endpoint"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        bucket, prefix = bucket_and_prefix(url, credentials=_CREDENTIALS, versions="a generation")
        shown = f"gs://{bucket}/{prefix}".rstrip("/")
        self._options = options = parsed(GsOptions, given, shown)
        super().__init__(shown, bucket, prefix, options.connect_timeout)
        emulator = "" if options.endpoint else os.environ.get("STORAGE_EMULATOR_HOST", "")
        if emulator and "://" not in emulator:  # as Google's library for Go accepts it
            emulator = f"http://{emulator}"
        self._server = endpoint(options.endpoint or emulator or _GOOGLE, file=shown, form=f"one like {_GOOGLE}")
        self._anonymous = options.anonymous or bool(emulator and not options.token and not options.credentials)
        self._payer = {"userProject": options.requester_pays} if options.requester_pays else {}
        self._held: Credentials | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_held": None}

    def _store(self, key: str, data: Pieces, etag: str | None) -> None:
        if len(data) <= MULTIPART:
            url = self._uploading("media", key, etag)
            self._ask(self._file(key), "POST", url, headers={"Content-Type": _BYTES}, body=data)
            return
        try:
            self._put_parts(key, data, etag)
        except MissingBucketError:
            raise
        except MissingError:  # the server has lost the session
            self._put_parts(key, data, etag)

    def _put_parts(self, key: str, data: Pieces, etag: str | None) -> None:
        """Upload in a session. The server drops an unfinished session after a week."""
        file, total = self._file(key), len(data)
        announced = {"X-Upload-Content-Type": _BYTES, "X-Upload-Content-Length": str(total)}
        begin = self._address(self._uploading("resumable", key, etag), file)
        _, started = self._ask(file, "POST", begin, headers=announced)
        hosts = ("*.googleapis.com",) if self._server == _GOOGLE else ()
        session = followed(begin, started.get("Location") or ":", hosts, file=file, what="sends the upload")
        kept, most, known, stored, tries = 0, 0, True, False, Tries(self._limit)
        while not stored:
            stop = min(kept + MULTIPART, total)
            place, part = (f"{kept}-{stop - 1}", data[kept:stop]) if known else ("*", data[:0])
            try:
                headers = {"Content-Range": f"bytes {place}/{total}"}
                response = self._send(file, "PUT", session, headers=headers, body=part, accepted=(200, 201, 308))
                Body(response, file).whole()
                found = _KEPT.fullmatch(response.headers.get("Range") or "")
                stored = response.status != 308
                reached = total if stored else int(found[1]) + 1 if found else 0
                if reached >= total and not stored:
                    raise TransientError(TransportError, "the server has all bytes, but not the object yet", file=file)
                if known and reached <= kept:
                    raise TransientError(TransportError, "the server kept no bytes of a part", file=file)
                if reached > most:
                    most = reached
                    tries.progressed()
                kept, known = reached, True
            except TransientError as failure:
                known = False  # whether it is known how much of the part the server has kept
                tries.failed(failure)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        asked = {"prefix": self._prefix + prefix, "fields": _FIELDS, **self._payer}
        pages = Pages(self.url)
        while True:
            body, _ = self._ask(self.url, "GET", f"{self._objects()}?{urlencode(asked)}")
            try:
                page = parse.json(body, _Page, strict=False)  # numbers are texts
            except ValueError as error:
                message = f"the endpoint did not return a listing of Google Cloud Storage: {error}"
                raise TransportError(message, file=self.url, hint=self.way_out) from None
            for item in page.items:
                key = item.name[len(self._prefix) :]
                if key and not key.endswith("/"):  # a directory marker, as some tools make
                    yield parse.entry(key, item.size, item.generation, item.modified, self.url)
            if not page.nextPageToken:
                return
            asked["pageToken"] = pages.following(page.nextPageToken, len(page.items))

    def delete(self, key: str) -> None:
        try:
            self._ask(self._file(key), "DELETE", self._object(key))
        except MissingBucketError:
            raise
        except MissingError:
            pass

    def discard_unfinished(self, prefix: str = "", *, choose: Choose | None = None) -> None:
        """Do nothing: unfinished uploads are neither listed nor billed, and end by themselves."""

    def identity(self) -> str:
        if self._anonymous:
            return "none: requests are anonymous"
        if self._options.token:
            return "the option token"
        return tried(lambda: self._credentials.owner(self.url), self._limit)

    def landmark(self) -> str:
        return f"{self._server}/storage/v1/b/{quote(self._bucket, safe='')}"

    def recognises(self, headers: Mapping[str, str], body: bytes) -> bool:
        return body[:1] == b"{"

    def _endpoint(self) -> str:
        return self._server

    def _objects(self, api: str = "/storage/v1") -> str:
        return f"{self._server}{api}/b/{quote(self._bucket, safe='')}/o"

    def _object(self, key: str, **query: str) -> str:
        query.update(self._payer)
        name = quote(self._prefix + check_key(key), safe="")
        return f"{self._objects()}/{name}" + (f"?{urlencode(query)}" if query else "")

    def _uploading(self, kind: str, key: str, etag: str | None) -> str:
        query = {"uploadType": kind, "name": self._prefix + check_key(key), **_if_match(etag), **self._payer}
        return f"{self._objects('/upload/storage/v1')}?{urlencode(query)}"

    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        url = self._object(key, alt="media", **_if_match(etag or None))
        return url, {"Accept-Encoding": "gzip"}  # otherwise the server may decompress it

    def _etag(self, headers: Mapping[str, str]) -> str:
        return headers.get("X-Goog-Generation", "")

    def _authorised(self, method: str, address: Address, headers: Headers, file: str) -> tuple[Address, Headers]:
        if self._anonymous:
            return address, headers
        token = self._options.token or self._credentials.token(file)
        return address, {**headers, "Authorization": Secret.bearer(token)}

    @property
    def _credentials(self) -> Credentials:
        if self._held is None:
            self._held = shared_credentials(self._options.credentials)
        return self._held

    def _sent(self, method: str, address: Address, headers: Headers, *, file: str, body: Pieces | None) -> Any:
        """Retry with another token if the server refuses one that may have expired."""
        response = super()._sent(method, address, headers, file=file, body=body)
        sent = headers.get("Authorization")
        refused = sent if response.status == 401 and not self._options.token else None
        if isinstance(refused, Secret) and self._credentials.refused(refused):
            response.close()
            raise TransientError(ForbiddenError, "the access token was refused", file=file, hint=WAY_OUT)
        return response

    def _error(self, status: int, text: str, headers: Mapping[str, str], file: str) -> Exception:
        reason, text = _reason_and_message(text)
        text = shortened(text)
        what = f"Google Cloud Storage answered {status} {text}"
        if status == 404 and (file == self.url or text.startswith(_NO_BUCKET)):
            hint = "create it, or check the URL and the endpoint"
            message = f"no such bucket: {text}"
            return TransientError(MissingBucketError, message, "bucket", file=file, hint=hint)
        if status == 403 and reason in _FOR_NOW:
            return TransientError(TransportError, what, file=file, after=asked_pause(headers), limited=True)
        if status == 400 and "requester pays" in text:
            hint = "give the option requester_pays, with the project to bill"
            return ForbiddenError(f"refused: {what}", file=file, hint=hint)
        if status == 401:
            return ForbiddenError(f"refused: {what}", file=file, hint=WAY_OUT)
        return super()._error(status, text, headers, file)


_CREDENTIALS = "google-auth finds those of gcloud, of the machine, or of GOOGLE_APPLICATION_CREDENTIALS"
_BYTES = "application/octet-stream"


def _if_match(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"ifGenerationMatch": etag or "0"}


def _reason_and_message(text: str) -> tuple[str, str]:
    """Return the reason and the message of an error's body, which is JSON or plain text."""
    try:
        error = parse.json(text, _ErrorBody).error
        return error.errors[0].reason if error.errors else "", error.message
    except ValueError:
        return "", text
