/* tests/run/http_run.h - one cell of load over HTTP on a server that does what it was told
 * (tests/support/web_server.h). */
#ifndef TESTS_RUN_HTTP_RUN_H
#define TESTS_RUN_HTTP_RUN_H

#include "tests/metrics/rows.h"

#include "experiments/run/run.h"
#include "tests/support/web_server.h"

struct fixture {
    struct web_server *web;
    struct run_system *system;
    struct run_requests requests;
    struct run_result result;
};

static inline void run(struct fixture *x, const struct web_script *s, const char *process,
                       int64_t n, double rate_rps, int64_t n_output, double timeout_s)
{
    static const struct dataset_opts wide = {
        .min_prompt_tok = 1, .max_prompt_tok = 1 << 20, .max_output_tok = 1 << 20};
    static const struct load_seeds seeds = {1, 1, 1, 1};
    struct dataset_item item = {.n_prompt = 6, .n_output = n_output, .arrival_s = NAN};
    const struct dataset d = {.source = "test", .items = &item, .n_items = 1};
    char name[16];
    const struct load_opts load = {.process = name,
                                   .concurrency = rate_rps > 0 ? 1 : 4,
                                   .rate_rps = rate_rps,
                                   .n_requests = n,
                                   .timeout_s = timeout_s};
    json_t *config;

    snprintf(name, sizeof(name), "%s", process);
    *x = (struct fixture){.web = web_start(s)};
    config = json_pack("{s:s, s:s}", "adapter", "openai_http", "url", web_url(x->web));
    assert_ok(run_system_open(&x->system, config));
    json_decref(config);
    assert_ok(run_requests_new(&x->requests, x->system, &d, &wide, &load, &seeds));
    assert_ok(run_cell(&x->result, x->system, &x->requests, &load, NULL, NULL));
}

static inline void end(struct fixture *x)
{
    run_system_close(&x->system);
    run_result_fini(&x->result);
    run_requests_fini(&x->requests);
    web_stop(x->web);
}

static inline void compute(struct metrics *m, const struct fixture *x, double ttft_ms,
                           double tpot_ms)
{
    const struct metrics_input in = {.rows = x->result.rows,
                                     .n_rows = x->result.n,
                                     .slo = {.ttft_ms = ttft_ms, .tpot_ms = tpot_ms},
                                     .read_gbps = NAN,
                                     .peak_gflops = NAN,
                                     .read_why = "",
                                     .peak_why = "",
                                     .timer_error_us = x->result.timer_error_us,
                                     .n_timer_error = x->result.n_timer_error};

    metrics_compute(m, &in);
}

/* What the server has seen of row i: each request has a seed of its own. */
static inline struct web_seen seen_of(const struct fixture *x, size_t i)
{
    char seed[40];

    snprintf(seed, sizeof(seed), "\"seed\":%lld,",
             (long long)(x->requests.v[i].seed & 0x7fffffff));
    for (int k = 1; k < web_n_seen(x->web); k++) {
        struct web_seen seen = web_seen_at(x->web, k);

        if (strstr(seen.body, seed))
            return seen;
    }
    fail_msg("the server has not seen request %zu", i);
    return (struct web_seen){0};
}

#endif
