"""What the parts of ODMA are worth: batches and memory with one part left out or one parameter changed."""

from lib import page, read, study, style

STEM = "odma_ablation"
WORDS = {"none": "all parts", "bounds=once": "learned once", "bounds=never": "equal parts",
         "migrate=false": "no migration", "co_batch=false": "no co-batching", "detect=false": "no detection",
         "paper=true": "the paper's rules", "detect=false;half_life=256": "weights by age", "least=true": "least memory",
         "large_pool_frac=0.125": "large blocks in reserve", "alloc=odma_paper": "blocks of three sizes",
         "large_pool_frac=0.125;tau=0.6": "reserve, uncertain too",
         "alloc=odma_paper;large_pool_frac=0.125": "three sizes, reserve",
         "lengths=output": "bounds of the output",
         "paper=true;lengths=output;alloc=odma_paper;large_pool_frac=0.125;tau=0.8": "all as in the paper",
         "calibrate=256": "predictions corrected", "calibrate=256;bounds=never": "corrected, equal parts"}


def label(change):
    if change.startswith("quantiles="):
        bounds = change.split("=")[1].split()
        return "B = %d, from %s" % (len(bounds), bounds[0])
    return WORDS.get(change, change.replace("=", " = "))


def mean(cells, metric):
    return study.mean([c.value(metric) for c in cells])


def effects(ax, cells, changes, metric, title, xlabel):
    """A row for each change: every seed, and the mean."""
    ax.set_title(title)
    usual = mean(study.where(cells, change="none"), metric)
    for i, change in enumerate(reversed(changes)):
        style.seeds(ax, i, [c.value(metric) for c in study.where(cells, change=change)])
    ax.axvline(usual, color=style.GREY, lw=0.8)
    ax.set_yticks(range(len(changes)), [label(c) for c in reversed(changes)], fontsize=7)
    ax.margins(y=0.05)
    ax.set_xlabel(xlabel)
    style.legend_below(ax)


result = read.latest(STEM)
streams = study.settings(result.cells, "stream")
changes = study.settings(result.cells, "change")
cells = study.where(result.cells, stream=streams[-1])
fig, axes = style.panels(4, columns=4)
for ax in axes:
    page.height(ax, max(1.75, 0.16 * len(changes)))
effects(axes[0], cells, changes, "over_static", "Batches", "tokens per step / static's")
effects(axes[1], cells, changes, "utilization_inner", "Memory used", "tokens held / reserved")
effects(axes[2], cells, changes, "overflow_frac", "Outgrown", "of all requests")
effects(axes[3], cells, changes, "recomputed_frac", "Computed again", "tokens / generated")
for ax in axes[1:]:
    ax.set_yticklabels([])
style.save(fig, result, STEM,
           "ODMA with one part left out or one parameter changed: %s" % streams[-1].replace("+", ", then "))
COLUMNS = ["over_static", "utilization_inner", "bucket_accuracy_frac", "overflow_frac", "large_frac", "migrated_frac",
           "recomputed_frac", "preempted_per_request", "waited_frac", "n_epochs"]
study.write_table(
    STEM, ["lengths", "changed"] + [c.replace("_", " ") for c in COLUMNS],
    [[s, label(ch)] + [style.number(mean(study.where(result.cells, stream=s, change=ch), c), "%.3g") for c in COLUMNS]
     for s in streams for ch in changes])
