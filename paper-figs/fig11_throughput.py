"""Sandwich Fig. 11: output tokens per second in single sequence serving, by model and what
serves it, with the rate at which the measured read bandwidth would deliver them."""

from lib import bars, read

STEM = "fig11_throughput"
bars.draw(
    read.latest(STEM), STEM,
    title="Output token throughput, single sequence (Sandwich Fig. 11)",
    value="decode_tok_s", share="decode_bandwidth_frac",
    xlabel="decoded tokens per second (% of the read bandwidth)",
    bound=lambda c: read.ratio(c.value("decode_tok_s"), c.value("decode_bandwidth_frac")),
    ratio=("over_one_plan", "Throughput relative to one_plan (above 1: faster)"))
