"""Two cores as a prompt machine and a token machine, or as one engine: goodput with the interval of the
seeds, and every trial of the searches."""

from lib import goodput

goodput.draw("split_or_switch", "Split the cores, or switch? (Sandwich 3.1, Splitwise VI)", "llama-160m")
