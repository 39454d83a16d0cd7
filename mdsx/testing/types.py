"""The contract of a package's column type."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import mdsx


class TypeContract:
    """The tests that a column type must pass. A subclass names it, and some values:

        class TestFrame(mdsx.testing.TypeContract):
            type = "acme.Frame"
            values = (Frame(1), Frame(2))
            refused = ("text", None)

    Values are compared by `same`.
    """

    type: ClassVar[str]
    values: ClassVar[Sequence[Any]]
    """At least two different values."""
    refused: ClassVar[Sequence[Any]]
    """At least one value that cannot be stored."""

    def same(self, found: Any, value: Any) -> bool:
        """Return whether a value that was read equals the one that was written."""
        return bool(found == value)

    @property
    def _samples(self) -> list[dict[str, Any]]:
        one, other, *more = self.values
        return [
            {"one": one, "maybe": other, "many": [*self.values]},
            *({"one": each, "maybe": None, "many": []} for each in (other, *more)),
        ]

    @property
    def _columns(self) -> dict[str, str]:
        return {"one": self.type, "maybe": f"{self.type}?", "many": f"{self.type}[*]"}

    def _all_same(self, found: Any, value: Any) -> bool:
        if isinstance(value, list):
            return len(found) == len(value) and all(map(self._all_same, found, value))
        return found is None if value is None else self.same(found, value)

    @pytest.fixture
    def dataset(self, tmp_path: Path) -> Path:
        with mdsx.Writer(tmp_path / "dataset", self._columns) as out:
            for sample in self._samples:
                out.write(sample)
        return tmp_path / "dataset"

    def test_values_are_written_and_read(self, dataset: Path, tmp_path: Path) -> None:
        found, samples = mdsx.Dataset(dataset), self._samples
        assert dict(found.columns) == self._columns
        assert len(found) == len(samples)
        for name in self._columns:
            assert self._all_same([sample[name] for sample in found], [sample[name] for sample in samples])
        assert mdsx.verify(dataset).ok
        with mdsx.Writer(tmp_path / "batch", self._columns) as out:
            out.write_batch({name: [sample[name] for sample in samples] for name in self._columns})
        assert mdsx.Dataset(tmp_path / "batch").fingerprint == found.fingerprint

    def test_different_values_have_different_bytes(self, dataset: Path) -> None:
        stored = mdsx.Dataset(dataset, columns={"many": mdsx.Cast("many", "bytes[*]")})[0]["many"]
        assert len(set(stored)) == len(self.values)

    def test_a_value_has_the_same_bytes_again(self, dataset: Path, tmp_path: Path) -> None:
        """A value that was read has the same bytes too."""
        read = mdsx.Dataset(dataset)
        with mdsx.Writer(tmp_path / "again", self._columns) as out:
            for sample in read:
                out.write(sample)
        assert mdsx.Dataset(tmp_path / "again").fingerprint == read.fingerprint

    def test_wrong_values_are_refused(self, tmp_path: Path) -> None:
        """The sample is not written, and the error names the column."""
        with mdsx.Writer(tmp_path / "dataset", {"id": "int64", "value": self.type}) as out:
            for value in self.refused:
                with pytest.raises(mdsx.SampleError, match="value"):
                    out.write({"id": 0, "value": value})
            out.write({"id": 1, "value": self.values[0]})
        assert [sample["id"] for sample in mdsx.Dataset(tmp_path / "dataset")] == [1]

    def test_no_bytes_are_decoded_with_another_error(self, tmp_path: Path, dataset: Path) -> None:
        """Bytes that are not a value raise CorruptError, unless they decode to one."""
        stored = mdsx.Dataset(dataset, columns={"one": mdsx.Cast("one", "bytes")})[0]["one"]
        bad = [b"", stored[:-1], stored + b"\0", b"\xff" * 64]
        pa = pytest.importorskip("pyarrow")
        with mdsx.Writer(tmp_path / "bad", {"one": self.type}) as out:
            out.write_batch({"one": pa.array(bad, pa.binary())})  # as they are stored
        damaged = mdsx.Dataset(tmp_path / "bad")
        for number in range(len(bad)):
            try:
                damaged[number]
            except mdsx.CorruptError as error:
                assert "one" in str(error)  # noqa: PT017  # there may be none

    @pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
    def test_worker_processes_know_the_type(self, dataset: Path, context: Any) -> None:
        loader = mdsx.Loader(
            dataset, batch_size=1, shuffle=False, num_workers=1, multiprocessing_context=context, columns=["one"]
        )
        found = [value for batch in loader for value in batch["one"]]
        assert self._all_same(found, [sample["one"] for sample in self._samples])
