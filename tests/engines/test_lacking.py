"""Without an engine's packages, its functions say how to install them: before they look at their arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mdsx.engines import spark
from mdsx.errors import UsageError


@pytest.mark.parametrize("use", [lambda: spark.write(None, "rows"), lambda: spark.register(None)])
@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_spark_names_its_extra(use: Callable[[], object], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdsx.engines.spark_source.find_spec", lambda name: None if name == package else name)
    with pytest.raises(UsageError, match=rf"(?s)needs the package {package}.*pip install 'mdsx\[spark\]'"):
        use()


def test_spark_names_a_module_that_its_tasks_lack() -> None:
    class Results:
        def collect(self) -> None:
            raise RuntimeError("from the JVM:\nModuleNotFoundError: No module named 'ours.parts'\n")

    with pytest.raises(UsageError, match=r"install ours in the Python that spark\.pyspark\.python names"):
        spark._collect(Results())
