"""Find the tiling that a device runs each product of a model in the least time."""

from vkcat.tune.graphs import graphs_run
from vkcat.tune.search import Found, tune
from vkcat.tune.subject import tunable

__all__ = ["Found", "graphs_run", "tunable", "tune"]
