"""Check that a URL's server can be reached, speaks the right protocol, and agrees on the time.

One request without credentials shows all of this: every server answers it, if only with a refusal.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from mdsx.checks.doctor.finding import Finding, ok, problem, refusal, warning
from mdsx.errors import MdsxError
from mdsx.secret import redacted
from mdsx.storage.remote import Address, Proxy, RemoteStorage, bound, limits, parse, pool, proxy_for, speaks_tls

_BODY = 4096  # bytes read of an answer's body
_SKEWED, _OFF = 300, 60  # seconds by which a clock may be off
_OWN_TLS = (
    "if your own authority signed the server's certificate, set AWS_CA_BUNDLE (s3) or REQUESTS_CA_BUNDLE to that "
    "authority's file; never switch the check off"
)


def reach(storage: RemoteStorage) -> tuple[list[Finding], Mapping[str, str] | None]:
    """Return what a request to the endpoint shows, and the answer's headers; None unless the server is of the right
    kind."""
    try:
        url, endpoint = storage.landmark(), storage.endpoint
    except MdsxError as error:
        return [refusal("endpoint", error, advice="check the endpoint")], None
    findings = list(_bucket_in_endpoint(endpoint, storage))
    started = time.monotonic()
    try:
        headers, body = _asked(storage, url)
    except Exception as error:  # many types, of urllib3 and the system
        found, advice = _why(error, endpoint)
        return [*findings, problem("endpoint", redacted(f"{endpoint}: {found}"), advice)], None
    seconds = time.monotonic() - started
    through = f", through the proxy {proxy.url}" if (proxy := _proxy(url)) else ""
    clock = check_clock(headers, time.time())
    if not storage.recognises(headers, body):
        what = headers.get("Server") or headers.get("Content-Type") or "an unnamed server"
        scheme = storage.url.partition("://")[0]
        found = f"{redacted(endpoint)} answers{through}, but does not speak the protocol of {scheme}://; it is {what!r}"
        advice = f"{storage.way_out}: it must be the API's address, not a web page's"
        return [*findings, problem("endpoint", found, advice), *clock], None
    found = f"{redacted(endpoint)} answers in {1000 * seconds:.0f} ms{through}"
    return [*findings, ok("endpoint", found, seconds=seconds), *clock], headers


def check_clock(headers: Mapping[str, str], now: float) -> Iterator[Finding]:
    """Compare `now`, in seconds since 1970, with the time at which the server answered."""
    try:
        server = parse.date(headers.get("Date") or "")
    except ValueError:  # the server sends no date
        return
    skew = now - server - (parse.number_or_none(headers.get("Age")) or 0)  # a cache keeps the date of an old answer
    if abs(skew) <= _OFF:
        yield ok("clock", "this machine's clock agrees with the server's", seconds=skew)
        return
    found = f"this machine's clock is {abs(skew):,.0f} s {'fast' if skew > 0 else 'slow'}, by the server's"
    advice = "synchronise it (`timedatectl set-ntp true`, or chrony): clouds refuse requests more than 15 minutes off"
    yield (problem if abs(skew) > _SKEWED else warning)("clock", found, advice, seconds=skew)


def check_region(storage: RemoteStorage, headers: Mapping[str, str], *, works: bool) -> Iterator[Finding]:
    """Compare the requests' region with the bucket's. If requests with another region work, they were redirected."""
    regions = storage.regions(headers)
    if regions is None:
        return
    asked, bucket = regions
    if asked == bucket:
        yield ok("region", f"the bucket is in {bucket}, as requests say")
        return
    found = f"the bucket is in {bucket}, but requests name {asked}"
    advice = f"set AWS_DEFAULT_REGION={bucket} or the option region, and remove any endpoint of another region"
    if works:
        yield warning("region", f"{found}: each process is redirected first", advice)
    else:
        yield problem("region", found, advice)


def _bucket_in_endpoint(endpoint: str, storage: RemoteStorage) -> Iterator[Finding]:
    parts, bucket = urlsplit(endpoint), storage.bucket
    named = parts.path.strip("/").split("/")[0] == bucket or (parts.hostname or "").startswith(f"{bucket}.")
    if storage.url.startswith("s3://") and named:
        found = f"{redacted(endpoint)} contains the bucket's name, {bucket}"
        yield problem("endpoint", found, f"{storage.way_out}: leave out the bucket, which the URL names already")


def _asked(storage: RemoteStorage, url: str) -> tuple[Mapping[str, str], bytes]:
    import urllib3

    there = Address.of(url)
    connections: Any = pool(there.server)
    bundle = os.environ.get("AWS_CA_BUNDLE")
    if bundle and storage.url.startswith("s3://") and _proxy(url) is None:
        connections = bound(urllib3.PoolManager(ssl_context=ssl.create_default_context(cafile=bundle)))
    timeout = urllib3.Timeout(connect=limits.CONNECT, read=limits.CONNECT)
    options = {"redirect": False, "retries": False, "preload_content": False, "timeout": timeout}
    response = connections.request("GET", there.reveal(), **options)
    try:
        return response.headers, response.read(_BODY, decode_content=False)
    finally:
        response.close()


def _proxy(url: str) -> Proxy | None:
    return proxy_for(Address.of(url).server)


def _why(error: Exception, endpoint: str) -> tuple[str, str]:
    """Return why a request failed, and what to do."""
    parts, causes = urlsplit(endpoint), list(_causes(error))
    host = parts.hostname or endpoint
    port = parts.port or (443 if parts.scheme == "https" else 80)
    kinds = " ".join(type(cause).__name__ for cause in causes)

    def among(kind: type[BaseException]) -> BaseException | None:
        return next((cause for cause in causes if isinstance(cause, kind)), None)

    if "ProxyError" in kinds:
        return "the proxy does not answer", "check HTTPS_PROXY and HTTP_PROXY, or name the host in NO_PROXY"
    if among(socket.gaierror):
        return f"the host {host} is unknown", "correct the host's name in the endpoint, or this machine's DNS"
    if among(ConnectionRefusedError):
        return f"nothing listens on port {port} of {host}", "check the endpoint's port, and that the server runs"
    certificate = among(ssl.SSLCertVerificationError)
    if isinstance(certificate, ssl.SSLCertVerificationError):
        reason = certificate.verify_message
        advice = _OWN_TLS
        if "expired" in reason or "not yet valid" in reason:
            advice = "check this machine's clock; if it is right, the server needs a new certificate"
        elif "match" in reason or "valid for" in reason:
            advice = "use the host name in the certificate as the endpoint's host"
        return f"the server's TLS certificate is not trusted: {reason}", advice
    if among(ssl.SSLError):
        return "the server does not speak TLS", "write http:// in the endpoint, or the port for https://"
    if "Timeout" in kinds or among(TimeoutError):
        seconds = limits.CONNECT
        return f"no answer in {seconds} s", "check firewalls, security groups and routes, or set HTTPS_PROXY"
    if parts.scheme == "http" and speaks_tls(endpoint):
        return "the server speaks TLS", "write https:// in the endpoint"
    return f"no answer: {error}", "check the endpoint and the network"


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting and len(seen) < 20:
        cause = waiting.pop()
        if isinstance(cause, BaseException) and all(cause is not each for each in seen):
            seen.append(cause)
            yield cause
            waiting += [cause.__cause__, cause.__context__, *cause.args]
