"""A training run planned with a simulated clock and link: what it reads, waits for, keeps and costs, and how well it
shuffles. It downloads nothing but the index."""

from mdsx.simulating import words
from mdsx.simulating.page import page
from mdsx.simulating.planned import simulate
from mdsx.simulating.report import Cost, Report
from mdsx.simulating.settings import Cluster, Loading, Prices
from mdsx.simulating.source import Source, invented, labels_of, opened

__all__ = [
    "Cluster",
    "Cost",
    "Loading",
    "Prices",
    "Report",
    "Source",
    "invented",
    "labels_of",
    "opened",
    "page",
    "simulate",
    "words",
]
