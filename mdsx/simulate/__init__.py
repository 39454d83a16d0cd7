"""A training run planned with a simulated clock and link: what it reads, waits for, keeps and costs, and how well it
shuffles. It downloads nothing but the index."""

from mdsx.simulate import words
from mdsx.simulate.page import page
from mdsx.simulate.planned import simulate
from mdsx.simulate.report import Cost, Report
from mdsx.simulate.settings import Cluster, Loading, Prices
from mdsx.simulate.source import SimulatedData, invented, labels_of, opened

__all__ = [
    "Cluster",
    "Cost",
    "Loading",
    "Prices",
    "Report",
    "SimulatedData",
    "invented",
    "labels_of",
    "opened",
    "page",
    "simulate",
    "words",
]
