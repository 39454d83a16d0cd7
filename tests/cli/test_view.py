"""`mdsx view` prints the address of its page, serves until Ctrl-C, and says what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import mdsx
from tests.cli.conftest import Run
from tests.waiting import wait_until
from tools.fault_proxy import Proxy, stall


def test_it_serves_until_ctrl_c(dataset: Path) -> None:
    command = [sys.executable, "-m", "mdsx", "view", str(dataset), "--columns", "label,name", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urlopen(f"{address}api/overview", timeout=20) as answer:
            (found,) = json.loads(answer.read())["datasets"]
        assert [column["name"] for column in found["columns"]] == ["label", "name"]
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert errors == "mdsx: serving until Ctrl-C\nmdsx: ended\n"


def test_a_check_that_waits_for_its_storage_does_not_delay_the_end(proxy: Proxy, s3_url: str) -> None:
    with mdsx.Writer(s3_url, {"text": "str"}) as out:
        out.write({"text": "x"})
    stalled = proxy.add(stall(), key="*.mdsx")
    command = [sys.executable, "-m", "mdsx", "view", s3_url, "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    urlopen(f"{address}api/overview", timeout=20).close()

    def check() -> None:
        with suppress(OSError, HTTPException):
            urlopen(Request(f"{address}api/0/shards/0/check", method="POST"), timeout=30).close()

    checking = threading.Thread(target=check)
    checking.start()
    wait_until(lambda: stalled.hits)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    checking.join()
    assert process.returncode == 0
    assert errors.endswith("mdsx: ended\n")


def test_it_opens_a_browser_unless_asked_not_to(dataset: Path, tmp_path: Path) -> None:
    """With a program as browser that keeps what it is given."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened} && kill -INT $PPID\n')
    browser.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-m", "mdsx", "view", str(dataset)],
        env={**os.environ, "BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert opened.read_text() == done.stdout
    assert done.stdout.startswith("http://127.0.0.1:")


def test_missing_packages_are_named(run: Run, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = run("view", dataset, "--no-open")
    assert ran.status == 1
    assert "pip install 'mdsx[view]'" in ran.err
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    ran = run("view", dataset, "--no-open", "--tokenizer", "x.json")
    assert ran.status == 1
    assert "tokenizers" in ran.err


def test_wrong_arguments_are_explained(run: Run, dataset: Path, tmp_path: Path) -> None:
    assert "nothing" in run("view", dataset, "--no-open", "--columns", "nothing").err
    assert "no such tokenizer" in run("view", dataset, "--no-open", "--tokenizer", tmp_path / "t.json").err
    (tmp_path / "t.json").write_text("{}")
    assert "not a tokenizer" in run("view", dataset, "--no-open", "--tokenizer", tmp_path / "t.json").err
    assert run("view", tmp_path / "missing", "--no-open").status == 1
    for image in ("name=224", "name={size}", 'name={"sizes": 224}', "name"):  # the last is a column of text
        ran = run("view", dataset, "--no-open", "--image", image)
        assert ran.status
        assert "name" in ran.err
    assert "one dataset" in run("view", dataset, dataset, "--no-open", "--snapshot", "0" * 32).err
