"""Storage in Azure Blob Storage, through its REST API, with or without a hierarchical namespace.

URLs are `az://container/prefix` or, with the account, `abfss://container@account.dfs.core.windows.net/prefix`.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import quote, unquote, urlencode

from mdsx.base.pieces import Pieces
from mdsx.errors import ChangedError, ForbiddenError, MissingError, TransportError, UsageError
from mdsx.storage.base import Choose, Entry, MissingBucketError, check_key
from mdsx.storage.options import StorageOptions, parsed
from mdsx.storage.remote import parse
from mdsx.storage.remote.az_account import Account, AzOptions, find_account
from mdsx.storage.remote.http import Headers, HttpStorage, shortened
from mdsx.storage.remote.storage import Pages, bucket_and_prefix, split
from mdsx.storage.remote.trust import Address
from mdsx.storage.retry import TransientError, contact

MULTIPART = 64 * 2**20  # bytes; larger objects are uploaded in blocks of this size
_MOST_BLOCKS = 50_000
_HOST = re.compile(r"([a-z0-9-]+)((?:\.[a-z0-9-]+)*)\.(?:blob|dfs)((?:\.[a-z0-9-]+)+)", re.IGNORECASE)
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TEXTS = re.compile(
    r"<(?:Message|AuthenticationErrorDetail)>([^<\r\n]*)"
)  # first lines: the others have the time and an id
_MAC = re.compile(r"'[\w+/]{43}='")  # the signature of a request
_CREDENTIALS = "give them by the options, the environment or azure-identity"


class AzStorage(HttpStorage):
    """The blobs below `az://container/prefix`."""

    way_out = "check the account's name or the option endpoint"

    def __init__(self, url: str, given: StorageOptions | None = None) -> None:
        parts = split(url)
        container, at, host = parts.netloc.rpartition("@") if "@" in parts.netloc else (parts.netloc, "", "")
        there = _HOST.fullmatch(host)
        if at and there is None:
            form = f"a URL is {parts.scheme}://container/prefix or {parts.scheme}://container@account.dfs.core.windows.net/prefix"
            raise UsageError(form, hint=f"a URL must not have credentials: {_CREDENTIALS}")
        bucket, prefix = bucket_and_prefix(parts._replace(netloc=container).geturl(), credentials=_CREDENTIALS)
        self._account_in_url = there[1].lower() if there else ""
        self._endpoint_in_url = f"https://{there[1]}{there[2]}.blob{there[3]}".lower() if there else ""
        shown = f"{parts.scheme}://{bucket}{at}{host}/{prefix}".rstrip("/")
        self._options = parsed(AzOptions, given, shown)
        super().__init__(shown, bucket, prefix, self._options.connect_timeout)
        self._held: Account | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_held": None}

    def _store(self, key: str, data: Pieces, etag: str | None) -> None:
        file, url, condition = self._file(key), self._blob(key), _condition(etag)
        if len(data) <= MULTIPART:
            self._put(file, url, data, {"x-ms-blob-type": "BlockBlob", **condition})
            return
        try:
            self._put_blocks(file, url, data, condition)
        except TransportError as error:  # another upload of the same object discards our blocks
            if "InvalidBlockList" not in error.message:
                raise
            self._put_blocks(file, url, data, condition)

    def _put_blocks(self, file: str, url: str, data: Pieces, condition: dict[str, str]) -> None:
        size = max(MULTIPART, -(-len(data) // _MOST_BLOCKS))
        upload = os.urandom(8).hex()  # so that another upload's blocks are not taken for ours
        blocks: list[str] = []
        for part in data.cut(size):
            block = b64encode(f"{upload}-{len(blocks):05}".encode()).decode()
            query = urlencode({"comp": "block", "blockid": block})
            self._put(file, f"{url}?{query}", part)
            blocks.append(f"<Latest>{block}</Latest>")
        text = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{"".join(blocks)}</BlockList>'.encode()
        self._put(file, f"{url}?comp=blocklist", Pieces(text), condition)

    def _put(self, file: str, url: str, data: Pieces, headers: Mapping[str, str] | None = None) -> None:
        headers = {"Content-Length": str(len(data)), "Content-Type": "application/octet-stream", **(headers or {})}
        self._ask(file, "PUT", url, headers=headers, body=data)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield the blobs sorted by key. A hierarchical namespace lists folder by folder, so the entries are
        sorted here."""
        asked = {"restype": "container", "comp": "list", "include": "metadata"}
        if prefix := self._prefix + prefix:
            asked["prefix"] = prefix
        entries: list[Entry] = []
        pages = Pages(self.url)
        while True:
            url = f"{self._endpoint()}/{self._bucket}?{urlencode(asked, quote_via=quote)}"
            page, _ = self._ask(self.url, "GET", url)
            found, marker = _listed(page, self.url)
            entries += [
                replace(entry, key=entry.key[len(self._prefix) :])
                for entry in found
                if not entry.key.endswith("/")  # a directory marker, as some tools make
            ]
            if not marker:
                break
            asked["marker"] = pages.following(marker, len(found))
        yield from sorted(entries, key=lambda entry: entry.key)

    def delete(self, key: str) -> None:
        try:
            self._ask(self._file(key), "DELETE", self._blob(key), headers={"x-ms-delete-snapshots": "include"})
        except MissingBucketError:
            raise
        except MissingError:
            pass

    def discard_unfinished(self, prefix: str = "", *, choose: Choose | None = None) -> None:
        """Do nothing: listings lack uncommitted blocks, and Azure removes them a week after the last one."""

    def _blob(self, key: str) -> str:
        return f"{self._endpoint()}/{self._bucket}/{quote(self._prefix + check_key(key))}"

    @property
    def _account(self) -> Account:
        held = self._held
        if held is None:
            held = self._held = find_account(self._options, self._account_in_url, self._endpoint_in_url, self.url)
        return held

    def identity(self) -> str:
        return f"account {self._account.name}: {self._account.uses}"

    def landmark(self) -> str:
        return f"{self._endpoint()}/{self._bucket}?restype=container"

    def recognises(self, headers: Mapping[str, str], body: bytes) -> bool:
        return "x-ms-request-id" in headers or "x-ms-error-code" in headers

    def _endpoint(self) -> str:
        return self._account.endpoint

    def _has_endpoint(self) -> bool:
        return self._held is not None

    def _refused(self, error: ForbiddenError) -> None:
        account, self._held = self._held, None
        if account and account.identity and "AuthorizationPermissionMismatch" not in error.message:
            account.identity.forget()

    def _reading(self, key: str, etag: str | None) -> tuple[str, dict[str, str]]:
        return self._blob(key), {"If-Match": etag} if etag else {}

    def _authorised(self, method: str, address: Address, headers: Headers, file: str) -> tuple[Address, Headers]:
        return self._account.authorised(method, address, headers, file)

    def _error(self, status: int, text: str, headers: Mapping[str, str], file: str) -> Exception:
        inside = _CODE.search(text)
        code = headers.get("x-ms-error-code") or (inside[1] if inside else "")
        text = _MAC.sub("***", " ".join([code, *_TEXTS.findall(text)])) if code else text
        text = shortened(text)
        what = f"the server answered {status} {text}".strip()
        if code == "ContainerNotFound":
            hint = "create it, or check the URL and the account"
            message = f"no such container: {text}"
            return TransientError(MissingBucketError, message, "bucket", file=file, hint=hint)
        if code == "ContainerBeingDeleted":
            return TransientError(TransportError, what, file=file)
        if code == "ResourceNotFound" and self._options.anonymous:
            hint = "if it is private, remove the option anonymous"
            return MissingError(f"not found, or private: {what}", file=file, hint=hint)
        if status == 401 and self._account.identity and contact(self._contacts()[1]).answered:  # a revoked token
            self._account.identity.forget()
            return TransientError(ForbiddenError, f"refused: {what}", file=file, hint=self._way_in(headers))
        if status in (401, 403) or code == "PublicAccessNotPermitted":
            return ForbiddenError(f"refused: {what}", file=file, hint=self._way_in(headers))
        if code == "BlobAlreadyExists":
            return ChangedError("the object exists already", file=file)
        if status == 412 and code and code != "ConditionNotMet":  # a lease, for example
            return TransportError(what, file=file)
        return super()._error(status, text, headers, file)

    def _way_in(self, headers: Mapping[str, str]) -> str:
        ahead = parse.skew(headers.get("Date", ""))
        if abs(ahead) > parse.SKEWED:
            wrong = "fast" if ahead > 0 else "slow"
            return f"this machine's clock is {abs(ahead) / 60:.0f} minutes {wrong}: set it"
        return f"mdsx used {self._account.uses}: check it, its permissions, and the account's network rules"


def _listed(page: bytes, file: str) -> tuple[list[Entry], str]:
    """Return the blobs of a page of a listing, with their full names, and the marker of the next page."""
    try:
        root = parse.xml(page)
        entries = []
        for blob in root.iterfind("Blobs/Blob"):
            name, about = blob.find("Name"), blob.find("Properties")
            if name is None or about is None:
                raise ValueError
            folder = about.findtext("ResourceType") == "directory" or blob.findtext("Metadata/hdi_isfolder") == "true"
            if not folder:
                key = unquote(name.text or "") if name.get("Encoded") == "true" else name.text or ""
                entries.append(
                    parse.entry(
                        key,
                        parse.number(about.findtext("Content-Length", "")),
                        parse.quoted(about.findtext("Etag", "")),
                        parse.date(date) if (date := about.findtext("Last-Modified", "")) else 0.0,
                        file,
                    )
                )
        return entries, root.findtext("NextMarker") or ""
    except ValueError:
        raise TransportError("the endpoint did not return a listing of Azure", file=file) from None


def _condition(etag: str | None) -> dict[str, str]:
    if etag is None:
        return {}
    return {"If-Match": etag} if etag else {"If-None-Match": "*"}
