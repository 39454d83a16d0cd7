"""A TLS server on this machine, with an unknown certificate. It ends each connection after the handshake."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from tempfile import TemporaryDirectory
from threading import Thread

# openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj /CN=localhost
PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg2rV4A9FkEDleL1hd
Waqudyoxr6kPivU75Gps1mpMvK2hRANCAASjtWELBPuPlnDrWmjKHYqo48/qJWvH
8rGr1YRCIsGTh+6gr/XWXLm1jN6bjELSPnEWXFGroZCSFTEqKBT+vkx6
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUKWC2rAhey6pdr2JWjomesKqIb9wwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTIyMzQxMloYDzIxMjYxMDI4
MjIzNDEyWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASjtWELBPuPlnDrWmjKHYqo48/qJWvH8rGr1YRCIsGTh+6gr/XWXLm1
jN6bjELSPnEWXFGroZCSFTEqKBT+vkx6o28wbTAdBgNVHQ4EFgQUm3vQEP2zBOSd
B2gsH1qYiHFDwh8wHwYDVR0jBBgwFoAUm3vQEP2zBOSdB2gsH1qYiHFDwh8wDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhAPVUKXX011PCCLbjW8FxDar1xgDjW/ZNB9/1ZNyqR+MrAiEA
iEq40QcNUUXwF5zoSt50Gg5BUUDlI7RqOQM1j0hOOh4=
-----END CERTIFICATE-----
"""


@contextmanager
def tls_server() -> Iterator[int]:
    """The port at which it listens while the context lasts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:
        path = Path(folder, "pem")
        path.write_text(PEM)
        context.load_cert_chain(path)

    class Handshake(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # no TLS, or no trust
                context.wrap_socket(self.request, server_side=True).close()

    # A thread for each connection: one that says nothing must not keep the others waiting.
    with ThreadingTCPServer(("127.0.0.1", 0), Handshake) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), name="tls")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
