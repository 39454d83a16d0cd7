"""Plan a training run with a simulated clock and link: reads, waits, cache, costs, and the quality of the shuffle. Only
the index is downloaded."""

from mdsx.simulate import words
from mdsx.simulate.page import page
from mdsx.simulate.report import Cost, Report
from mdsx.simulate.settings import Cluster, Loading, Prices
from mdsx.simulate.simulation import simulate
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
