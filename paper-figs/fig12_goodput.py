"""Sandwich Fig. 12: goodput of each system by model, with the interval of its seeds, and every trial of
the searches: the share of requests within the objectives against the rate."""

from lib import goodput

goodput.draw("fig12_goodput", "Goodput by Poisson rate (Sandwich Fig. 12)", "")
