"""Sandwich Fig. 10: time to first token in single sequence serving, by model, data set and
what serves it."""

from lib import bars, read

STEM = "fig10_ttft"
bars.draw(
    read.latest(STEM), STEM, title="Time to first token, single sequence (Sandwich Fig. 10)",
    value="mean_ttft_ms", spread=("p50_ttft_ms", "p90_ttft_ms"), share="prefill_peak_frac",
    xlabel="mean TTFT in ms (% of the measured peak); line: p50 to p90",
    ratio=("over_one_plan", "TTFT relative to one_plan (below 1: faster)"))
