/* Measures from which length of prompts on layer-wise transfers are faster than serial ones. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "roles/roles.h"

#define FIRST_TOK   16
#define LENGTHS_MAX 16
#define ROUNDS      5
#define LONGEST_NS  UINT64_C(500000000)

struct probe {
    int n;
    uint64_t second_ns;
    enum serve_finish finish;
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct probe *p = ctx;

    (void)request, (void)logits;
    p->n += id >= 0;
    if (p->n == 2)
        p->second_ns = clock_ns();
    p->finish = finish;
}

/* Until the second token. */
static int probe(struct serve *s, int64_t n_tok, uint64_t *ns)
{
    int32_t *ids = mem_new(MEM_OTHER, (size_t)n_tok, sizeof(*ids));
    struct probe p = {.n = 0};
    const struct serve_request r = {.prompt = ids,
                                    .n_prompt = n_tok,
                                    .max_new = 2,
                                    .ignore_eos = true,
                                    .sampling = {.top_p = 1},
                                    .on_token = on_token,
                                    .ctx = &p};
    uint64_t begin;
    int64_t id;
    bool busy;
    int rc;

    if (!ids)
        return ERR_NOMEM;
    for (int64_t i = 0; i < n_tok; i++)
        ids[i] = (int32_t)((7 * i + 3) % serve_vocab(s));
    begin = clock_ns();
    rc = serve_submit(s, &r, &id);
    mem_free(ids);
    while (rc == OK && p.finish == SERVE_RUNNING) {
        rc = serve_step(s, &busy);
        if (rc == OK && !busy)
            serve_wait(s, LONGEST_NS);
    }
    if (rc == OK && p.n != 2)
        rc = err_set(ERR_STATE, "a prompt of %lld tokens could not be measured: %s",
                     (long long)n_tok, err_msg());
    *ns = p.second_ns - begin;
    return rc;
}

/* *sooner: layer by layer is; *most_ns: the longest that any took. */
static int compare(struct serve *s, struct roles_link l, int64_t n_tok, bool *sooner,
                   uint64_t *most_ns)
{
    double ms[2][ROUNDS];
    uint64_t ns;

    *most_ns = 0;
    for (int r = 0; r < ROUNDS; r++)
        for (int k = 0; k < 2; k++) {
            int layer_wise = k ^ (r % 2);

            l.serial_below_tok = layer_wise ? 0 : INT64_MAX;
            TRY(roles_link_set(s, &l));
            TRY(probe(s, n_tok, &ns));
            ms[layer_wise][r] = 1e-6 * (double)ns;
            *most_ns = ns > *most_ns ? ns : *most_ns;
        }
    *sooner = stats_median(ms[1], ROUNDS) < stats_median(ms[0], ROUNDS);
    return OK;
}

int roles_link_measure(struct serve *s, const struct roles_opts *o,
                       int64_t *serial_below_tok)
{
    struct roles_link l = {.gbps = o->link_gbps, .latency_ms = o->link_latency_ms};
    int64_t from = INT64_MAX, n_tok = FIRST_TOK;
    uint64_t ns = 0;
    bool sooner;

    TRY(compare(s, l, 1, &sooner, &ns)); /* warms up */
    for (int i = 0; i < LENGTHS_MAX && n_tok + 2 <= s->max_tok; i++, n_tok *= 2) {
        TRY(compare(s, l, n_tok, &sooner, &ns));
        if (!sooner)
            from = INT64_MAX;
        else if (from == INT64_MAX)
            from = n_tok;
        if (2 * ns > LONGEST_NS)
            break;
    }
    l.serial_below_tok = *serial_below_tok = from;
    return roles_link_set(s, &l);
}
