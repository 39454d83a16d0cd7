"""Two independent witnesses: how full the cache is at any time, and how many bytes come over the wire."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from types import TracebackType
from typing import Self

_INTERVAL = 0.005  # seconds
_CHUNK = 2**16


class CacheWatch:
    """Adds up every file in a directory every 5 ms, as long as the `with` lasts.

    Files come and go during a look. So it is two looks; what counts is what both saw: all of that was there at once.
    """

    def __init__(self, directory: str) -> None:
        self.highest = 0
        self.looks = 0
        self._directory = directory
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_INTERVAL):
            before, after = _sizes(self._directory), _sizes(self._directory)
            self.highest = max(self.highest, sum(before[file] for file in before.keys() & after.keys()))
            self.looks += 1


def _sizes(directory: str) -> dict[tuple[int, int], int]:
    """The bytes of every file below `directory`, by inode and time of making; some may vanish meanwhile."""
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir():
                    found.update(_sizes(entry.path))
                else:
                    status = entry.stat()
                    found[status.st_ino, status.st_ctime_ns] = status.st_size
    return found


class Wire:
    """A local port that leads to `host:port` of a server, and counts the bytes that come from there."""

    def __init__(self, host: str, port: int) -> None:
        self.received = 0
        self._server = (host, port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def endpoint(self) -> str:
        return "http://{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            for end in (self._listener, *self._open):
                _shut(end)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, sink, source is server), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, count: bool) -> None:
        """Hand on what `source` sends; when it ends, both ends of the connection do."""
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if count:
                    with self._lock:
                        self.received += len(chunk)
                sink.sendall(chunk)
        _shut(source)
        _shut(sink)
        with self._lock:
            self._open.discard(source)
        source.close()  # the other direction's thread closes the other end


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
