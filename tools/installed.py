"""What `python3 -m tools package` runs in an environment in which only mdsx and some extras are installed.

Arguments: the checkout, for its README and test data; the extras that are installed; all extras.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mdsx


def uses(checkout: Path) -> dict[str, Callable[[], object]]:
    """Return what needs each extra."""
    golden = checkout / "tests" / "foreign" / "mds" / "golden"
    records = checkout / "tests" / "transfer" / "converting" / "golden" / "tfrecord" / "plain.tfrecord"

    def view() -> None:
        from mdsx.view import check_installed

        check_installed()

    def spark() -> None:
        from mdsx.engines.spark import write

        write(None, "rows")

    def tokenize() -> None:
        Path("tokenizer.json").write_text('{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}')
        Path("a.txt").write_text("a")
        mdsx.tokenize("a.txt", "tokens", "tokenizer.json", overwrite=True)

    return {
        "torch": lambda: importlib.import_module("mdsx.torch"),
        "az": lambda: mdsx.Dataset("az://container@account.blob.core.windows.net/data"),
        "gs": lambda: mdsx.Dataset("gs://bucket/data"),
        "parquet": lambda: mdsx.Dataset("small").take([0], as_arrow=True),
        "datasets": lambda: mdsx.convert("hf", str(checkout / "tests" / "vectors"), "converted"),
        "mds": lambda: mdsx.Dataset(golden / "compression-br")[0],
        "tfrecord": lambda: mdsx.convert("tfrecord", str(records), "records"),
        "images": lambda: (mdsx.Dataset(golden / "encoding-pil")[0], mdsx.Image()),
        "audio": mdsx.Audio,
        "ray": lambda: importlib.import_module("mdsx.engines.ray").read("small"),
        "spark": spark,
        "polars": lambda: mdsx.Dataset("small").to_polars().collect(),
        "prometheus": lambda: importlib.import_module("mdsx.torch").PrometheusStats(),
        "simulate": lambda: command("simulate", "small", "--batch-size", "2"),
        "tokenize": tokenize,
        "view": view,
    }


def command(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "mdsx", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)


def lacks(use: Callable[[], object], extra: str) -> bool:
    """Return whether a use fails for want of its extra, and says so: with the one line that installs it."""
    try:
        use()
    except Exception as error:
        return f"pip install 'mdsx[{extra}]'" in str(error)
    return False


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (language, code) of each fenced block, with folders in place of buckets."""
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        yield match[1], match[2].replace("s3://bucket/", "")


def run_readme(page: Path) -> int:
    """Run the examples in Python, in one session, and the mdsx commands. Return how many there were."""
    session: dict[str, object] = {"__name__": "readme"}
    count = 0
    for language, code in blocks(page):
        if language == "python":
            exec(compile(code, str(page), "exec"), session)
            count += 1
        for line in code.splitlines() if language == "sh" else ():
            if re.match(r"mdsx (info|cat|verify|doctor)\b", line):
                command(*line.partition("#")[0].split()[1:])
                count += 1
    return count


def run_examples(folder: Path) -> int:
    """Run the programs that decode pictures and sound, each on two ranks. Return how many there are."""
    names = ("photo_classifier", "speech_classifier", "diffusion_buckets")
    for name in names:
        program = str(folder / f"{name}.py")
        for arguments in (
            [program, "write", f"{name}-data"],
            ["-m", "torch.distributed.run", "--nproc-per-node", "2", program, f"{name}-data", f"{name}-run"],
        ):
            subprocess.run([sys.executable, *arguments], check=True)
        count = [sys.executable, str(folder / "data.py"), "count", f"{name}-run"]
        counted = subprocess.run(count, capture_output=True, text=True, check=True).stdout.splitlines()
        assert counted, f"{name} trained on nothing"
        assert all(", 0 more than once" in line for line in counted), counted
    return len(names)


def main(checkout: Path, installed: set[str], extras: list[str]) -> None:
    where = Path(mdsx.__file__)
    assert checkout not in where.parents, f"mdsx is that of the checkout: {where}"
    with mdsx.Writer("small", {"n": "int64", "text": "str"}, shard_size=64) as out:
        for number in range(8):
            out.write({"n": number, "text": f"text {number}"})
    assert [sample["n"] for sample in mdsx.Dataset("small")] == list(range(8))
    assert sum(len(batch["n"]) for batch in mdsx.Loader("small", 3, drop_last=False)) == 8
    tried = uses(checkout)
    assert tried.keys() == set(extras), f"nothing tries {set(extras) ^ tried.keys()}"
    if "torch" not in installed:
        del tried["prometheus"]  # needs PyTorch, and asks for that first
    lacking = [extra for extra, use in tried.items() if lacks(use, extra)]
    assert not installed.intersection(lacking), f"{lacking} are lacking, although {installed} are installed"
    if installed <= {"torch"}:  # others bring packages that several extras need
        unnamed = tried.keys() - {*lacking, *installed}
        assert not unnamed, f"nothing says how to install {unnamed}"
        print(f"tried {len(lacking)} missing extras")
    if "torch" in installed:
        print(f"tried {run_readme(checkout / 'README.md')} examples of the README")
    if {"torch", "images", "audio"} == installed:
        print(f"tried {run_examples(checkout / 'examples')} programs of examples/")


if __name__ == "__main__":
    main(Path(sys.argv[1]), set(filter(None, sys.argv[2].split(","))), sys.argv[3:])
