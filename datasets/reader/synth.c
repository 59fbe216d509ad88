#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "datasets/build.h"
#include "datasets/fit.h"

#define DEFAULT_ITEMS 1000
/* A window may begin late in the trace, and a filter leaves out; a filter that no draw passes
 * must end. */
#define MAX_DRAWS 100000000

static int synth_open(struct dataset *d, const struct dataset_opts *o)
{
    int64_t n = o->n > 0 ? o->n : DEFAULT_ITEMS;
    struct dataset_fit *fit;
    struct rng lengths, arrivals;
    double clock_s = 0;
    bool full = false;
    int rc;

    rc = dataset_fit_open(&fit, o->fit ? o->fit : "sharegpt");
    if (rc != OK)
        return rc;
    snprintf(d->name, sizeof(d->name), "synth %.50s", fit->name);
    snprintf(d->source, sizeof(d->source), "%s", fit->path);
    rng_init(&lengths, (uint64_t)o->seed, "sample");
    rng_init(&arrivals, (uint64_t)o->seed, "arrival");
    for (int64_t i = 0; rc == OK && !full && d->n_items < n && i < MAX_DRAWS; i++) {
        struct dataset_item it = {.arrival_s = NAN};

        dataset_fit_draw(fit, &lengths, &it.n_prompt, &it.n_output);
        if (fit->rate_per_s > 0) {
            it.arrival_s = clock_s;
            clock_s += dataset_fit_gap_s(fit, &arrivals);
        }
        rc = dataset_offer(d, &it, &full);
    }
    dataset_fit_close(&fit);
    return rc;
}

const struct dataset_reader dataset_reader_synth = {
    .name = "synth",
    .help = "lengths and arrivals drawn from the fit of a published trace; needs no file",
    .open = synth_open,
};
