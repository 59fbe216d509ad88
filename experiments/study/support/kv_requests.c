#include "experiments/study/support/kv_requests.h"

#include "base/mem.h"
#include "base/stats.h"
#include "datasets/dataset.h"

int study_kv_draw(struct study_kv_request *out, int64_t n, const char *fit, int64_t seed)
{
    struct dataset *d = NULL;
    struct dataset_opts o;
    int rc = opt_init(dataset_opt_table, &o);

    if (rc != OK)
        return rc;
    o.n = n;
    o.seed = seed;
    rc = opt_set(dataset_opt_table, &o, "fit", fit, "study.fit");
    if (rc == OK)
        rc = dataset_open(&d, &o);
    opt_free(dataset_opt_table, &o);
    for (int64_t i = 0; rc == OK && i < n; i++)
        out[i] = (struct study_kv_request){.prompt_tok = d->items[i].n_prompt,
                                           .output_tok = d->items[i].n_output};
    dataset_close(&d);
    return rc;
}

static int longest(const struct study_kv_request *r, int64_t n, double fit_frac,
                   int64_t align_tok, int64_t *out)
{
    double *total = mem_new(MEM_OTHER, (size_t)n, sizeof(*total));
    int64_t most;

    if (!total)
        return ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        total[i] = (double)(r[i].prompt_tok + r[i].output_tok);
    most = (int64_t)stats_percentile(total, (size_t)n, fit_frac);
    mem_free(total);
    most = (most + align_tok - 1) / align_tok * align_tok;
    *out = most < 16 ? 16 : most;
    return OK;
}

int study_kv_cut(struct study_kv_request *r, int64_t n, double fit_frac,
                 int64_t align_tok, int64_t *max_tok)
{
    if (*max_tok == 0)
        TRY(longest(r, n, fit_frac, align_tok, max_tok));
    for (int64_t i = 0; i < n; i++) {
        struct study_kv_request *q = &r[i];
        int64_t most;

        q->output_tok = q->output_tok < *max_tok ? q->output_tok : *max_tok - 1;
        q->output_tok = q->output_tok > 1 ? q->output_tok : 1;
        most = *max_tok - q->output_tok;
        q->prompt_tok = q->prompt_tok < most ? q->prompt_tok : most;
        q->prompt_tok = q->prompt_tok > 1 ? q->prompt_tok : 1;
    }
    return OK;
}
