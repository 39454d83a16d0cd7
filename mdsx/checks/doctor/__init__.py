"""Checks of a storage, a dataset and a machine, each with what to do: what `mdsx doctor` prints."""

from mdsx.checks.doctor.dataset import Job
from mdsx.checks.doctor.examination import examine
from mdsx.checks.doctor.finding import Finding, State

__all__ = ["Finding", "Job", "State", "examine"]
