"""The parts of mdsx that are mutated, each with the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """`files`: patterns of those that are mutated, in which * matches any path. `tests`: folders, or files. `without`:
    tests that look at the call stack or at all code, both of which mutmut changes, or that take long."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()


PARTS = (
    Part(
        "format",
        ("mdsx/format/*",),
        (
            *(f"tests/{name}" for name in ("format", "vectors", "datasets")),
            *(f"tests/foreign/{name}" for name in ("mds", "parquet", "tars", "tokens")),
            *(
                f"tests/shards/test_{name}.py"
                for name in ("choices", "decoded", "gather", "ranges", "row_key", "shards", "where")
            ),
            "tests/shards/formats/test_estimates.py",
            *(f"tests/writer/test_{name}.py" for name in ("lengths", "merge", "selections", "sizes", "writer")),
        ),
        (
            "tests/format/test_every_check.py",
            "tests/format/test_filenames.py::test_file_names_are_written_in_one_module",
            "tests/format/test_decode.py::test_json_of_500_levels_works_in_a_deep_stack",
            "tests/format/families/test_contract.py::test_no_other_module_names_a_type",
        ),
    ),
    Part(
        "order",
        ("mdsx/order/*",),
        (
            *(f"tests/{name}" for name in ("order", "vectors", "datasets")),
            *(f"tests/shards/test_{name}.py" for name in ("choices", "where")),
            *("tests/simulate/test_advice.py", "tests/checks/doctor/test_dataset.py"),
            *("tests/loader/test_change.py", "tests/stream/test_machine.py"),
        ),
    ),
    Part("cache", ("mdsx/storage/cache/*",), ("tests/storage/cache",)),
    Part(
        "cursor",
        ("mdsx/stream/run.py", "mdsx/stream/samples.py", "mdsx/stream/state.py", "mdsx/stream/steps.py"),
        ("tests/stream", "tests/loader", *(f"tests/torch/test_{name}.py" for name in ("states", "groups", "passes"))),
        (
            "tests/stream/test_run.py::test_an_abandoned_pass_reports_its_missed_batches",
            "tests/torch/test_passes.py::test_the_next_pass_is_as_in_the_table",
            "tests/loader/test_agreement.py",
            "tests/loader/test_changing_runs.py",
        ),
    ),
    Part("executors", ("mdsx/base/work/*",), ("tests/base/work",)),
)
