"""The contract of a stored format."""

from __future__ import annotations

from mdsx.testing.format_damage import Damage
from mdsx.testing.format_lengths import LengthsOfSamples
from mdsx.testing.format_protocol import Protocols
from mdsx.testing.format_requests import Requests
from mdsx.testing.format_resume import Resume
from mdsx.testing.format_samples import Samples


class FormatContract(Samples, Damage, Protocols, Requests, Resume, LengthsOfSamples):
    """The tests that a stored format must pass. A subclass has a fixture that says how to write a dataset in it.

        class TestLines(mdsx.testing.FormatContract):
            @pytest.fixture
            def subject(self):
                columns = ["id", "text", "vector", "extra"]
                return mdsx.testing.Subject("lines", LinesFormat(), columns, ReadsWhole, write_lines)

    They read every sample in every way, from a disk and as from a cloud, with caches of every size; resume a run; count
    requests; and damage, swap and replace objects, files of the cache and the index. `pytest --long` tries random cases
    far more often, if your conftest.py adds that option.
    """
