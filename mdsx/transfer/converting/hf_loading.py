"""Open Hugging Face datasets with the library `datasets`, which follows every name in a dataset.

A stranger's README or state.json can name URLs, absolute paths and `../`. mdsx checks these names before the library
sees them, and afterwards the files that the library found. `outside=True` skips both checks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NoReturn

from mdsx.errors import ForbiddenError, MdsxError, MissingError, TransportError, UsageError, shown
from mdsx.secret import Secret

_BUILDERS = {
    "arrow", "audiofolder", "csv", "fasta", "fastq", "imagefolder", "json", "niftifolder", "parquet", "pdffolder",
    "text", "videofolder", "webdataset", "xml",
}  # fmt: skip
"""The library's readers that open only the files they are given, and follow no names inside, as HDF5 would."""


def library() -> Any:
    """Return the package `datasets`. Raise UsageError if it is not installed."""
    try:
        import datasets
    except ImportError as error:
        message = "Hugging Face datasets need the package datasets"
        raise UsageError(message, hint="pip install 'mdsx[datasets]'") from error
    return datasets


def is_saved(folder: str) -> bool:
    """Return whether `save_to_disk` wrote a folder."""
    return any(os.path.exists(os.path.join(folder, name)) for name in ("state.json", "dataset_dict.json"))


def load_saved(folder: str, *, outside: bool) -> Any:
    """Return the dataset, or dict of datasets, that `save_to_disk` wrote to a folder."""
    with _Errors(folder):
        if not outside:
            _check_saved(folder)
        return library().load_from_disk(folder)


def saved_files(folder: str, split: str | None) -> tuple[str, list[str]]:
    """Return the folder that `save_to_disk` wrote for a dataset, or for a split of a dict, and the names of its files.

    Other files there, such as the library's caches of `map`, do not belong to the dataset.
    """
    own = ("dataset_info.json", "state.json")
    if split is not None and not all(os.path.isfile(os.path.join(folder, name)) for name in own):
        folder = os.path.join(folder, split)
    data = [str(file["filename"]) for file in _described(folder, "state.json")["_data_files"]]
    return folder, sorted({*own, *data})


def load(
    url: str, name: str | None, split: str | None, revision: str | None, token: Secret | None, *, streaming: bool,
    outside: bool,
) -> Any:  # fmt: skip
    """Return a dataset, or the dict of its splits, from a folder or, at the commit `revision`, from the Hub."""
    datasets = library()
    with _Errors(url):
        if not outside:
            for card in ("README.md", ".huggingface.yaml"):
                _check_card(url, card, revision, token)
        builder = datasets.load_dataset_builder(url, name, revision=revision, token=token.reveal() if token else None)
        if not outside:
            _check_builder(builder, url, revision)
        if streaming:
            return builder.as_streaming_dataset(split=split)
        builder.download_and_prepare()
        return builder.as_dataset(split=split)


def commit_of(url: str, revision: str | None, token: Secret | None) -> str:
    """Return the commit of a dataset on the Hub, so that a resumed conversion reads the same commit."""
    library()
    from huggingface_hub import HfApi

    with _Errors(url):
        return str(HfApi(token=token.reveal() if token else None).dataset_info(url, revision=revision).sha)


# --- what a dataset names


def _check_saved(folder: str) -> None:
    """Raise UsageError if the files that describe a saved dataset name files outside its folders."""
    splits = _described(folder, "dataset_dict.json").get("splits", [])
    for split in splits:
        _check_name(split, os.path.join(folder, "dataset_dict.json"), "splits")
    for part in (folder, *(os.path.join(folder, split) for split in splits)):
        for file in _described(part, "state.json").get("_data_files", []):
            _check_name(file["filename"], os.path.join(part, "state.json"), "_data_files")


def _described(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a JSON object")
    return found


def _check_card(url: str, name: str, revision: str | None, token: Secret | None) -> None:
    """Raise UsageError if a dataset's description names data files outside the dataset."""
    path = os.path.join(url, name) if revision is None else _of_the_hub(url, name, revision, token)
    if path is None or not os.path.isfile(path):
        return
    configs = _configs(path)
    for config in configs if isinstance(configs, list) else []:
        if not isinstance(config, dict):
            continue
        for field in ("data_dir", "data_files"):
            for pattern in _texts(config.get(field)):
                _check_name(pattern, f"{url}/{name}", f"configuration {config.get('config_name')!r}, {field}")


def _of_the_hub(url: str, name: str, revision: str, token: Secret | None) -> str | None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return str(
            HfApi(token=token.reveal() if token else None).hf_hub_download(
                url, name, repo_type="dataset", revision=revision
            )
        )
    except EntryNotFoundError:
        return None


def _configs(path: str) -> Any:
    """Return the field `configs` of a description, parsed as the library does."""
    if path.endswith(".md"):
        from huggingface_hub import DatasetCard

        return DatasetCard.load(path).data.to_dict().get("configs")
    import yaml  # a dependency of datasets

    with open(path, encoding="utf-8") as file:
        found = yaml.safe_load(file)
    return found.get("configs") if isinstance(found, dict) else None


def _texts(value: Any) -> Iterator[str]:
    """Yield the names in a value of `data_files`: a text, a list, or objects with a `split` and a `path`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from _texts(value.get("path"))


def _check_name(name: object, file: str, place: str) -> None:
    text = str(name).replace("\\", "/")
    if ":" in text or text.startswith(("/", "~")) or ".." in text.split("/"):
        _refuse(name, file, place)


def _check_builder(builder: Any, url: str, revision: str | None) -> None:
    """Raise UsageError if the library would read files outside the dataset."""
    kind = type(builder).__module__.rpartition(".")[2]
    if kind not in _BUILDERS:
        message, hint = f"files of the kind {kind} can refer to other files, which mdsx cannot check", _WAY_OUT
        raise UsageError(message, file=url, hint=hint)
    folder = os.path.realpath(url)
    for split, files in (builder.config.data_files or {}).items():
        for file in files:
            own = f"@{revision}/" in file if revision else os.path.normpath(file).startswith(os.path.join(folder, ""))
            if not own or ".." in file.split("/") or "::" in file:
                _refuse(file, url, f"split {split!r}")


_WAY_OUT = "give --outside (outside=True) if you trust the dataset"


def _refuse(name: object, file: str, place: str) -> NoReturn:
    message = "the dataset names a file outside its own folder, which mdsx does not read by default"
    raise UsageError(message, file=file, place=place, found=shown(name), hint=f"copy it into the folder, or {_WAY_OUT}")


# --- errors


class _Errors:
    """Raises MdsxErrors in place of the library's."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError | ValueError | RuntimeError | LookupError | TypeError) and not isinstance(
            error, MdsxError
        ):
            raise _cannot_load(error, self._url) from None


def _cannot_load(error: Exception, url: str) -> MdsxError:
    message = f"datasets cannot load it: {error}"
    if isinstance(error, FileNotFoundError) or type(error).__name__.endswith("NotFoundError"):
        return MissingError(message, file=url)
    if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
        hint = "give a token in HF_TOKEN, or as --source-option token=..."
        return ForbiddenError(message, file=url, hint=hint)
    return TransportError(message, file=url) if isinstance(error, OSError) else UsageError(message, file=url)
