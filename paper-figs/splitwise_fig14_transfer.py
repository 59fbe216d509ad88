"""Visible time of a transfer by prompt, for links of several speeds, and the closed form."""

from lib import read, reference, study, style

STEM = "splitwise_fig14_transfer"
WAYS = {"serial": "serial", "layer": "layer by layer"}

result = read.latest(STEM)
cells = sorted(result.cells, key=lambda c: study.setting(c, "x_over_c"))
fig, axes = style.panels(len(cells), 3)
for ax, c in zip(axes, cells):
    tok = c.series.get("prompt_tok", [])
    ax.set_xscale("log", base=2)
    ax.set_yscale("symlog", linthresh=1)  # differences of two times: some are below 0
    for i, (way, label) in enumerate(WAYS.items()):
        ax.plot(tok, c.series.get("visible_%s_ms" % way, []), "o", ms=4, color=style.COLORS[i], label=label)
        ax.plot(tok, c.series.get("form_%s_ms" % way, []), style.LINES[i], color=style.COLORS[i], lw=1,
                label=label + ", by the formula")
    for name, ls, how in ("crossing_tok", "-", ""), ("crossing_form_tok", ":", ", by the formula"):
        if c.value(name) == c.value(name):
            ax.axvline(c.value(name), color=style.GREY, lw=1.5, ls=ls, label="layer by layer is faster from here" + how)
    ax.set_title("sending / computing: %g" % study.setting(c, "x_over_c"))
    ax.set(xlabel="prompt, tokens", ylabel="visible, ms")
    if c is cells[0]:
        reference.mark(ax, [1500], [reference.value("splitwise", "Fig. 14", "transfer that is not overlapped, around",
                                                    machine="H100")], "splitwise", "Fig. 14",
                       list(c.series.get("visible_layer_ms", [])), "H100")
    style.legend_below(ax)
style.save(fig, result, STEM, "Transfer that is seen before the second token (Splitwise Fig. 14), by the time that "
           "sending a layer takes over that of computing it")
COLUMNS = ["x_layer", "c_layer", "link_speed", "alpha_serial", "alpha_layer", "form_error_serial", "form_error_layer",
           "form_error_max", "visible_layer_frac", "interference", "crossing_tok", "crossing_form_tok"]
study.write_table(STEM, ["sending / computing a layer"] + [c.replace("_", " ") for c in COLUMNS],
                  [["%g" % study.setting(c, "x_over_c")] + [style.number(c.value(m), "%.3g") for m in COLUMNS]
                   for c in cells])
