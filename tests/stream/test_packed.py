"""Packed batches have what plain loops put into them, for every type and layout; each problem names its sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsx import CorruptError, MaxTokens, Pack, UsageError
from mdsx.format import NUMBERS, ColumnType, Encoder, Schema, ShardBuilder, ShardView, to_items
from mdsx.shards import Columns, Selection
from mdsx.shards.gather import gather
from mdsx.stream import Packing, RankGroups, packed_samples
from mdsx.stream.rows import Layout

Sample = dict[str, Any]
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = tuple(name for name, base in NUMBERS.items() if base.kind == "float")


def columns_of(
    kinds: Mapping[str, str], shards: Sequence[Sequence[Sample]], *, stored: bool = True, damage: bytes = b""
) -> Columns:
    """Return the columns of the samples of several shards, as a reader gets them."""
    schema = Schema.from_columns(kinds)
    encoder, sources = Encoder(schema), list[Selection]()
    for samples in filter(None, shards):
        builder = ShardBuilder(schema, 2**40)
        builder.add(encoder.gather([value for sample in samples for value in encoder.sample(sample)[0]]))
        data = bytes(builder.finish())
        data = data.replace(damage, b"\7" * len(damage)) if damage else data
        sources.append(ShardView.parse(data, file="a shard").select(np.arange(len(samples)), verify=False))
    count = sum(map(len, shards))
    numbers = tuple(range(len(kinds)))
    every = gather(schema, [(each, numbers) for each in sources], np.arange(count), [count], stored=stored)
    (columns,) = every
    return columns


def groups_of(
    sizes: Sequence[Sequence[int]],
    firsts: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    shards: Sequence[int] | None = None,
) -> RankGroups:
    """Return groups of samples of these sizes; by default, the samples have no more values."""
    joined = np.array([size for row in sizes for size in row], np.int64)
    edges = np.cumsum([0, *map(len, sizes)])
    starts, none = np.array(firsts or np.zeros(len(joined)), np.int64), np.zeros(len(joined), np.int64)
    located = [none, none if shards is None else shards, none, joined + starts if lengths is None else lengths]
    return RankGroups(edges, np.stack([*located, starts, joined]).astype(np.int64), 70, 900)


def pack(
    kinds: Mapping[str, str], samples: Sequence[Sample], groups: RankGroups, layout: Layout, column: str | None = "a"
) -> Columns:
    """Return the only batch of samples."""
    (batch,) = Packing(Schema.from_columns(kinds), layout).batches(columns_of(kinds, [samples]), [groups])
    return batch


# --- the same as plain loops


@dataclass
class Case:
    kinds: dict[str, str]
    shards: list[list[Sample]]
    steps: list[RankGroups]
    layout: Layout
    stored: bool
    rows: int  # of a static batch


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw columns, samples in shards, their groups in a few steps, and a layout."""
    capacity = draw(st.sampled_from([4, 12]))
    fixed = draw(st.sampled_from([None, None, 3]))
    star = "*" if fixed is None else str(fixed)
    kind = draw(st.sampled_from(["rows", "flat", "concat rows", "concat flat", "max tokens"]))
    oversize: Any = draw(st.sampled_from(["error", "truncate"] + ["split"] * (kind != "max tokens")))
    extras = draw(extra_arguments()) if kind != "max tokens" else {}
    tokens = {"labels", "begin", "end"} & extras.keys()
    bases = draw(st.lists(st.sampled_from(list(NUMBERS)), min_size=1, max_size=3))
    if tokens:
        bases[0] = draw(st.sampled_from(["uint8", "int32", "uint32", "int64"]))
    kinds = {f"{chr(97 + k)}": f"{base}[{star}]{draw(st.sampled_from(['', '?']))}" for k, base in enumerate(bases)}
    kinds |= {"text": "str?", "flag": "bool", "pixels": "uint8[2,2]", "maybe": "int16?"}
    pads = {name: draw(st.integers(0, 1)) for name in kinds if len(name) == 1}
    dtypes = {name: "float64" for name in pads if draw(st.booleans())}
    if tokens:
        dtypes["a"] = draw(st.sampled_from([bases[0], "int64"]))
    shared: dict[str, Any] = {"length": "a", "oversize": oversize, "pad_value": pads, "dtypes": dtypes}
    layout: Layout
    if kind == "max tokens":
        layout = MaxTokens(capacity, pad_to_multiple_of=draw(st.sampled_from([1, 4])), **shared)
    else:
        if kind.startswith("concat"):
            shared |= {"kind": "concat", "oversize": None}
        layout = Pack(capacity, layout=kind.split()[-1], **shared, **extras)  # type: ignore[arg-type]  # it is one of them
    samples, steps = list[Sample](), list[RankGroups]()
    for _ in range(draw(st.integers(1, 3))):
        rows, firsts, lengths = list[list[int]](), list[int](), list[int]()
        for _ in range(1 if kind == "max tokens" else draw(st.integers(0, 3))):
            row = list[int]()
            for _ in range(draw(st.integers(0, 4))):
                room = capacity if kind == "max tokens" else capacity - sum(row)
                stored = fixed if fixed is not None else draw(st.integers(0, 2 * capacity))
                length = stored + layout.extras.added * (stored > 0)
                first = 0
                if layout.oversize == "split":
                    first = draw(st.sampled_from(range(0, max(length, 1), capacity)))
                elif layout.oversize is None:
                    first = draw(st.integers(0, max(length - 1, 0)))
                size = min(length - first, capacity)
                if layout.oversize is None and size:
                    size = min(size, draw(st.integers(0, room)))
                if size > room or (layout.oversize == "error" and length > capacity) or (length and not size):
                    continue
                row.append(size)
                firsts.append(first)
                lengths.append(length)
                samples.append(
                    {name: [draw(st.integers(0, 1)) for _ in range(stored)] for name in kinds if len(name) == 1}
                    | {"text": draw(st.sampled_from([None, "", "ö"])), "flag": stored % 2 == 0}
                    | {"pixels": [[1, 2], [3, stored]], "maybe": draw(st.sampled_from([None, 3]))}
                )
            rows.append(row)
        steps.append(groups_of(rows, firsts, lengths))
    cut, done = draw(st.integers(0, len(samples))), 0
    for groups in steps:  # the shard of each
        shards, done = np.arange(done, done + len(groups.sizes)) >= cut, done + len(groups.sizes)
        groups.items[1] = shards
    return Case(kinds, [samples[:cut], samples[cut:]], steps, layout, draw(st.booleans()), draw(st.integers(3, 4)))


@st.composite
def extra_arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what Pack may add."""
    every: dict[str, Any] = {"labels": True, "begin": 6, "end": 7, "component_ids": True, "static": True}
    return {name: value for name, value in every.items() if draw(st.booleans())}


def plain(case: Case) -> Iterator[Columns]:
    """Yield the batches as plain loops make them; numbers as lists."""
    layout, samples = case.layout, iter(sample for shard in case.shards for sample in shard)
    flat = isinstance(layout, Pack) and layout.layout == "flat"
    static = isinstance(layout, Pack) and layout.static
    extras, names = layout.extras, [name for name in case.kinds if len(name) == 1]
    pads: Any = layout.pad_value
    for groups in case.steps:
        places = list(zip(groups.firsts.tolist(), groups.sizes.tolist(), groups.items[1].tolist(), strict=True))
        rows = [[(next(samples), *place) for place in places[a:b]] for a, b in pairwise(groups.edges.tolist())]
        rows += [[]] * (case.rows - len(rows) if static else 0)
        everything = [each for row in rows for each in row]
        batch: Columns = {"global_samples": 70, "global_tokens": 900}
        others = [name for name in case.kinds if name not in names]
        if isinstance(layout, MaxTokens):
            rows = [[each] for each in everything]
            step, longest = layout.pad_to_multiple_of, max([size for _, _, size, _ in everything], default=0)
            width = next(width for width in range(longest, 99) if width % step == 0)
            batch["lengths"] = [size for _, _, size, _ in everything]
        else:
            width = layout.capacity or 0
        total = width * len(rows)

        def laid(values: list[list[list[int]]], pad: int) -> Any:
            """Return the values of each item of each row as the layout has them."""
            joined = [list(chain(*row)) for row in values]
            if not flat:
                return [row + [pad] * (width - len(row)) for row in joined]  # noqa: B023
            found = list(chain(*joined))
            return found + [pad] * (total - len(found)) if static else found  # noqa: B023

        def values_of(name: str, sample: Sample) -> list[int]:
            """Return a sample's values with the added tokens."""
            if not sample[name]:
                return []
            begin, end = (extras.begin or 0, extras.end or 0) if name == "a" else (pads[name], pads[name])
            found: list[int] = sample[name]
            return [begin] * (extras.begin is not None) + found + [end] * (extras.end is not None)

        for name in names:
            cut = [[values_of(name, each)[at : at + size] for each, at, size, _ in row] for row in rows]
            batch[name] = laid(cut, pads[name])
        for name in others:
            batch[name] = [[each[name] for each, *_ in row] for row in rows]
            if flat or isinstance(layout, MaxTokens):
                batch[name] = list(chain(*batch[name]))
        if extras.labels:
            following = [
                [[*values_of("a", each), -100][at + 1 : at + size + 1] for each, at, size, _ in r] for r in rows
            ]
            batch["labels"] = laid(following, -100)
        if extras.component_ids:
            batch["component_ids"] = laid([[[shard] * size for _, _, size, shard in row] for row in rows], -1)
        counted = [[list(range(size)) for _, _, size, _ in row] for row in rows]
        if flat:
            used = sum(size for _, _, size, _ in everything)
            batch["position_ids"] = laid(counted, 0)[:used]
            sizes = [size for _, _, size, _ in everything]
            if static:
                while sum(sizes) < total:
                    sizes.append(min(total - sum(sizes), width))
                    batch["position_ids"] += range(sizes[-1])
                sizes = [size for size in sizes if size]
                sizes += [0] * ((64 if layout.oversize else 16) * len(rows) - len(sizes))  # of a row, by kind
            batch["cu_seqlens"] = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
            batch["max_seqlen"] = width if static else max(sizes, default=0)
        elif isinstance(layout, Pack):
            positions = [list(chain(*row)) for row in counted]
            batch["position_ids"] = [row + list(range(width - len(row))) for row in positions]
            batch["segment_ids"] = laid([[[k] * size for k, (_, _, size, _) in enumerate(row, 1)] for row in rows], 0)
        yield batch


def packing_of(case: Case) -> Packing:
    """Return what packs a case, as a loader makes it: each shard is a component of a mixture."""
    schema = Schema.from_columns(case.kinds)
    view: Any = SimpleNamespace(schema=schema, packed_schema=schema, firsts=np.arange(3))
    batching: Any = case.layout
    found: Packing = batching.packing(view, None, rows=case.rows, transformed=False)
    return found


@settings(max_examples=150, deadline=None)
@given(cases())
def test_batches_are_those_of_plain_loops(case: Case) -> None:
    packing = packing_of(case)
    found = list(packing.batches(columns_of(case.kinds, case.shards, stored=case.stored), case.steps))
    assert len(found) == len(case.steps)
    for batch, expected in zip(found, plain(case), strict=True):
        assert set(batch) == set(expected)
        for name, value in expected.items():
            if len(name) == 1:
                base = packing.types[name].base
                assert batch[name].dtype == NUMBERS[base].item
                assert batch[name].flags.writeable
                rows = value if value and isinstance(value[0], list) else [value]
                items = [to_items(NUMBERS[base], row) for row in rows]
                assert batch[name].tobytes() == b"".join(row.tobytes() for row in items)
            elif name in ("flag", "pixels") and isinstance(batch[name], np.ndarray):  # as in batches of samples
                assert batch[name].dtype == np.uint8
                assert batch[name].tolist() == value
                assert batch[name].flags.owndata
            elif isinstance(batch[name], np.ndarray):
                assert batch[name].dtype == (np.int64 if name in ("lengths", "labels") else np.int32)
                assert batch[name].tolist() == value
            else:
                assert str(listed(batch[name])) == str(value)


def listed(value: Any) -> Any:
    """Return arrays and NumPy's numbers in lists as Python's."""
    return [listed(each) for each in value] if isinstance(value, list) else getattr(value, "tolist", lambda: value)()


def test_shapes_of_batches_without_samples() -> None:
    nothing, kinds = groups_of([]), {"a": "uint16[*]", "b": "str"}
    shapes = {"a": (0, 8), "segment_ids": (0, 8), "position_ids": (0, 8)}
    for layout, expected in (
        (Pack(8, length="a"), shapes),
        (Pack(8, length="a", layout="flat"), {"a": (0,), "position_ids": (0,), "cu_seqlens": (1,)}),
        (MaxTokens(8, length="a"), {"a": (0, 0), "lengths": (0,)}),
    ):
        batch = pack(kinds, [], nothing, layout)
        assert {name: value.shape for name, value in batch.items() if isinstance(value, np.ndarray)} == expected
        assert batch["b"] == []
    assert pack(kinds, [], groups_of([[], []]), Pack(8, length="a", pad_value=7))["a"].tolist() == [[7] * 8] * 2


# --- types


@pytest.mark.parametrize("base", NUMBERS)
def test_each_type_becomes_each_wider_one(base: str) -> None:
    samples = [{"a": [0, 1, 1]}, {"a": [1]}]
    for target in NUMBERS:
        allowed = base == target or (target != "bool" and (target in FLOATS or base not in FLOATS))
        layout = Pack(6, length="a", dtypes={"a": target}, pad_value=1)
        if not allowed:
            with pytest.raises(UsageError, match=f"dtypes, column 'a': .* found {base} to {target}"):
                pack({"a": f"{base}[*]"}, samples, groups_of([[3, 1]]), layout)
            continue
        found = pack({"a": f"{base}[*]"}, samples, groups_of([[3, 1]]), layout)["a"]
        assert found.tobytes() == to_items(NUMBERS[target], [0, 1, 1, 1, 1, 1]).tobytes()


def test_floats_are_rounded_as_in_torch() -> None:
    values = np.random.default_rng(0).integers(0, 2**32, 4096, np.uint32).view(np.float32)
    values[:4] = [np.inf, -np.inf, 0.0, -0.0]
    layout = Pack(4096, length="a", dtypes={"a": "bfloat16"})
    (found,) = pack({"a": "float32[*]"}, [{"a": values}], groups_of([[4096]]), layout)["a"]
    expected = torch.from_numpy(values).bfloat16()
    found = torch.from_numpy(found).view(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize(
    ("kind", "target", "value"), [("int64", "int32", 2**31), ("int8", "uint8", -1), ("uint64", "int64", 2**63)]
)
def test_an_integer_that_does_not_fit_is_an_error(kind: str, target: str, value: int) -> None:
    samples: list[Sample] = [{"a": [1, 2]}, {"a": []}, {"a": [3, value]}]
    layout = Pack(6, length="a", dtypes={"a": target})
    with pytest.raises(UsageError, match=f"sample 2, column 'a': .*expected {target}, found {value}.*wider type"):
        pack({"a": f"{kind}[*]"}, samples, groups_of([[2], [0, 2]]), layout)


def test_a_pad_value_has_to_fit() -> None:
    schema = Schema.from_columns({"labels": "uint16[*]"})
    with pytest.raises(UsageError, match=r"pad_value of column 'labels', type 'uint16': .* found -100"):
        Packing(schema, Pack(8, length="labels", pad_value=-100))
    layout = Pack(4, length="labels", pad_value=-100, dtypes={"labels": "int64"})
    batch = pack({"labels": "uint16[*]"}, [{"labels": [65535]}], groups_of([[1]]), layout, "labels")
    assert batch["labels"].tolist() == [[65535, -100, -100, -100]]


@pytest.mark.parametrize("argument", [{"pad_value": {"b": 1}}, {"dtypes": {"b": "int64"}}, {"dtypes": {"c": "int64"}}])
def test_only_packed_columns_have_a_pad_value_and_a_type(argument: dict[str, Any]) -> None:
    schema = Schema.from_columns({"a": "int32[*]", "b": "int32"})
    with pytest.raises(UsageError, match=r"the column is not packed \(expected a\)"):
        Packing(schema, Pack(8, length="a", **argument))


@pytest.mark.parametrize("name", ["segment_ids", "position_ids", "cu_seqlens", "max_seqlen", "lengths"])
def test_a_column_with_the_name_of_a_key_is_an_error(name: str) -> None:
    with pytest.raises(UsageError, match=f"column '{name}': .*rename the column by columns="):
        Packing(Schema.from_columns({name: "int32[*]"}), Pack(8, length=name))


# --- lengths and damage


def test_a_value_of_another_length_names_its_sample() -> None:
    kinds = {"a": "uint16[*]", "b": "float32[*]", "c": "float32[2]"}
    fits = {"a": [1, 2], "b": [1, 2], "c": [1, 2]}
    for wrong, size, name, found in ((fits | {"b": [1]}, 2, "b", 1), (fits | {"a": [1], "b": [1]}, 1, "c", 2)):
        with pytest.raises(UsageError) as caught:
            pack(kinds, [fits, wrong], groups_of([[2, size]]), Pack(8, length="a"))
        assert str(caught.value) == (
            f"sample 1, column '{name}': a packed column has a value whose length differs from the sample's "
            f"(expected {size}, by 'a', found {found}); choose other columns by columns="
        )


def test_a_longer_value_is_found_where_samples_are_cut() -> None:
    kinds = {"a": "uint16[*]", "b": "uint16[*]"}
    samples = [{"a": [1] * 5, "b": [1] * 6}]
    with pytest.raises(UsageError, match=r"sample 0, column 'b': .*expected 5, by 'a', found 6"):
        pack(kinds, samples, groups_of([[4]], lengths=[5]), Pack(4, length="a", oversize="truncate"))
    with pytest.raises(UsageError, match=r"sample 0, column 'a': .*expected 2, by the given lengths, found 5"):
        pack(kinds, samples, groups_of([[2]]), Pack(4, length=[2], oversize="truncate"), None)  # type: ignore[list-item]


def test_a_null_is_a_value_without_length() -> None:
    kinds = {"a": "uint16[*]", "b": "uint16[*]?"}
    batch = pack(kinds, [{"a": [], "b": None}, {"a": [7], "b": [8]}], groups_of([[0, 1]]), Pack(2, length="a"))
    assert (batch["b"].tolist(), batch["segment_ids"].tolist()) == ([[8, 0]], [[2, 0]])
    with pytest.raises(UsageError, match=r"sample 0, column 'b': .*expected 1, by 'a', found 0"):
        pack(kinds, [{"a": [7], "b": None}], groups_of([[1]]), Pack(2, length="a"))


def test_lengths_that_are_not_those_of_the_rows_are_damage() -> None:
    with pytest.raises(CorruptError, match=r"sample 0, column 'a': .*\(expected 1, found 2\)"):
        pack({"a": "uint16[*]"}, [{"a": [1, 2]}], groups_of([[1]]), Pack(2, length="a"))


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [("uint16[*]", b"\3\0\0\0", "has the wrong size"), ("bool[*]", b"\1\1\1", "neither 0 nor 1")],
)
def test_damage_names_the_sample_and_the_column(kind: str, damage: bytes, message: str) -> None:
    columns = columns_of({"a": kind}, [[{"a": [1, 0]}, {"a": [1, 1, 1]}]], damage=damage)
    packing = Packing(Schema.from_columns({"a": kind}), Pack(8, length="a"))
    with pytest.raises(CorruptError, match=f"a shard: sample 1, column 'a': .*{message}"):
        list(packing.batches(columns, [groups_of([[2, 3]])]))


# --- transformed samples


def test_transformed_samples_are_packed_like_columns() -> None:
    samples = [
        {"a": np.array([1, 2], np.int64), "b": torch.tensor([0.5, 1.5]).bfloat16(), "n": np.float32(1), "s": "x"},
        {"a": np.array([3], np.int64), "b": torch.tensor([2.5]).bfloat16(), "n": np.float32(2), "s": "y"},
    ]
    layout, groups = Pack(4, length="tokens", pad_value={"a": -100}), groups_of([[2, 1], []])
    batch, types = packed_samples(samples, groups, layout)
    assert batch["a"].tolist() == [[1, 2, 3, -100], [-100] * 4]
    assert torch.from_numpy(batch["b"]).view(torch.bfloat16).tolist() == [[0.5, 1.5, 2.5, 0.0], [0.0] * 4]
    assert (batch["s"], batch["n"]) == ([["x", "y"], []], [[1, 2], []])
    assert batch["segment_ids"].tolist() == [[1, 1, 2, 0], [0] * 4]
    assert {name: kind.base for name, kind in types.items()} == {"a": "int64", "b": "bfloat16"}
    empty, same = packed_samples([], groups_of([]), layout, like=samples[0])
    assert same == types
    assert {name: getattr(value, "shape", value) for name, value in empty.items()} == {
        "a": (0, 4), "b": (0, 4), "n": [], "s": [], "segment_ids": (0, 4), "position_ids": (0, 4),
        "global_samples": 70, "global_tokens": 900,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"a": np.array([1, 2])}, "sample 1, column 'a': .*expected 1, by 'tokens', found 2"),
        ({"a": np.array([1.0])}, "sample 1, 'a': .* different types .*one-dimensional array of int64.*found float64"),
        ({"a": [1]}, "sample 1, 'a': .* different types .*found list"),
        ({"b": np.array([1])}, "sample 1: the samples of a batch have different keys"),
    ],
)
def test_a_transform_has_to_keep_lengths_and_types(second: Sample, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        packed_samples([{"a": np.array([1])}, second], groups_of([[1, 1]]), Pack(4, length="tokens"))


def test_a_transform_that_changes_lengths_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"sample 0, column 'tokens': .*expected 1, .* found 2.*transform must keep"):
        packed_samples([{"tokens": np.array([1, 2])}], groups_of([[1]]), Pack(4, length="tokens"))


def test_a_transform_has_to_return_a_dict() -> None:
    for samples in ([np.array([1])], [{"a": np.array([1])}, np.array([1])]):
        with pytest.raises(UsageError, match=r"sample \d: .*found ndarray"):
            packed_samples(samples, groups_of([[1, 1]]), Pack(4, length="tokens"))  # type: ignore[arg-type]


def test_types_say_what_arrays_hold() -> None:
    schema = Schema.from_columns({"a": "bool[*]", "b": "uint16[3]", "c": "uint16[3,2]", "d": "str"})
    types = Packing(schema, Pack(8, length="a", dtypes={"b": "bfloat16"})).types
    assert types == {"a": ColumnType("bool", (None,)), "b": ColumnType("bfloat16", (None,))}
