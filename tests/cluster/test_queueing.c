/* Histories whose answer is known: an M/D/1 queue, Little's law, transfers layer by layer, the
 * order of events, and 200 requests that a small reference computes by hand. */
#include "cluster/event.h"
#include "cluster/transfer.h"
#include "tests/cluster/world.h"

/* ---- events ---- */

TEST(events_come_in_order)
{
    struct cluster_events q = {0};
    struct cluster_event e;
    struct rng r;
    int64_t last = -1;
    uint64_t order = 0;

    rng_init(&r, 1, "events");
    for (int i = 0; i < 5000; i++)
        assert_ok(cluster_events_push(
            &q, (struct cluster_event){.t_ns = (int64_t)rng_below(&r, 300)}));
    for (int i = 0; i < 5000; i++) {
        assert_true(cluster_events_pop(&q, &e));
        assert_true(e.t_ns > last || (e.t_ns == last && e.order > order));
        last = e.t_ns;
        order = e.order;
    }
    assert_false(cluster_events_pop(&q, &e));
    assert_err(cluster_events_push(&q, (struct cluster_event){.t_ns = last - 1}),
               ERR_STATE, "the clock is at");
    cluster_events_fini(&q);
}

/* ---- transfers ---- */

/* Layer after layer: computed, then sent when the link has sent the one before. */
static double by_layers(const struct cluster_transfer *t)
{
    double computed = 0, sent = 0;

    for (int i = 0; i < t->n_layers; i++) {
        computed += t->compute_ns;
        sent = fmax(sent, computed) + t->send_ns;
    }
    return sent + t->alpha_ns;
}

TEST(transfer_is_the_closed_form)
{
    struct rng r;

    rng_init(&r, 2, "transfer");
    for (int i = 0; i < 2000; i++) {
        struct cluster_transfer t = {.n_layers = 1 + (int)rng_below(&r, 80),
                                     .compute_ns = 1e6 * rng_f64(&r),
                                     .send_ns = 2e6 * rng_f64(&r),
                                     .alpha_ns = 1e6 * rng_f64(&r),
                                     .layer_wise = true};
        struct cluster_link out = {0}, in = {0};
        double finish = cluster_transfer_finish_ns(&t);

        assert_true(fabs(finish - by_layers(&t)) < 1e-6 * finish);
        assert_true(fabs(cluster_transfer_send(&t, 0, &out, &in) - finish) <
                    1e-6 * finish);
        if (t.send_ns <= t.compute_ns)
            assert_true(fabs(cluster_transfer_visible_ns(&t) - t.send_ns - t.alpha_ns) <
                        1e-6 * finish);
        t.layer_wise = false;
        assert_true(fabs(cluster_transfer_visible_ns(&t) - t.n_layers * t.send_ns -
                         t.alpha_ns) < 1e-6 * finish);
    }
}

/* Two flows that are ready at once share a link: the second ends when both are sent. */
TEST(flows_share_a_link)
{
    struct cluster_transfer t = {.n_layers = 4, .send_ns = 25};
    struct cluster_link out = {0}, in[2] = {{0}, {0}};

    assert_true(cluster_transfer_send(&t, 1000, &out, &in[0]) == 1100);
    assert_true(cluster_transfer_send(&t, 1000, &out, &in[1]) == 1200);
    assert_true(cluster_transfer_send(&t, 1150, &out, &in[0]) == 1300);
    assert_true(cluster_transfer_send(&t, 1000, NULL, NULL) == 1100);
}

/* ---- M/D/1 ---- */

static double constant_ms(const struct cluster_perf *p, double a, double b)
{
    (void)p, (void)a, (void)b;
    return 10;
}

static const struct cluster_perf_kind constant_kind = {
    .name = "constant", .prompt_ms = constant_ms, .token_ms = constant_ms};
static const struct cluster_perf constant_perf = {.kind = &constant_kind};

static double mean_wait_ms(uint64_t seed, double load, double *in_system)
{
    struct world w;

    world_init(&w, 0, 0, 1, seed);
    w.m[0].perf = &constant_perf;
    w.o.max_batch_prompt_tok = 1; /* one prompt a step */
    w.n_left = 20000;
    w.max_prompt = 10;
    w.max_output = 1;
    w.mean_gap_ns = (int64_t)(10e6 / load);
    world_run(&w);
    assert_string_equal(w.wrong, "");
    /* Little's law, both sides counted apart. */
    *in_system = w.stat.live_ns / (double)w.stat.end_ns;
    assert_true(fabs(*in_system / ((double)w.n_done / (double)w.stat.end_ns *
                                   (double)w.sum_latency_ns / (double)w.n_done) -
                     1) < 1e-9);
    return 1e-6 * (double)w.sum_latency_ns / (double)w.n_done - 10;
}

/* Poisson arrivals, constant service: the mean wait is load x service / (2 (1 - load)). */
TEST(one_machine_is_an_md1_queue)
{
    static const double loads[] = {0.3, 0.6, 0.8};

    for (int i = 0; i < 3; i++) {
        double expected = loads[i] * 10 / (2 * (1 - loads[i]));
        double sum = 0, sum_sq = 0, l, mean, half;

        for (uint64_t seed = 1; seed <= 20; seed++) {
            double x = mean_wait_ms(seed, loads[i], &l);

            sum += x;
            sum_sq += x * x;
        }
        mean = sum / 20;
        half = 2.093 * sqrt((sum_sq - 20 * mean * mean) / 19 / 20); /* Student, 95 % */
        if (fabs(mean - expected) > 1.6 * half)                     /* 99.6 % */
            fail_msg("load %g: mean wait %g ms +- %g, expected %g", loads[i], mean, half,
                     expected);
    }
}

/* ---- 200 requests on 4 machines, by hand ---- */

#define N 200
struct golden {
    int64_t arrival, n_prompt, n_output, first, last;
    int p, t;
};

static int64_t golden_at;
static bool golden_next(void *ctx, struct cluster_arrival *a)
{
    const struct golden *g = ctx;

    if (golden_at == N)
        return false;
    *a = (struct cluster_arrival){g[golden_at].arrival, g[golden_at].n_prompt,
                                  g[golden_at].n_output};
    golden_at++;
    return true;
}

static struct golden seen[N];
static void golden_done(void *ctx, const struct cluster_done *d)
{
    (void)ctx;
    seen[d->number] =
        (struct golden){d->arrival_ns, d->n_prompt,       d->n_output,     d->first_ns,
                        d->last_ns,    d->prompt_machine, d->token_machine};
}

/* Two prompt machines (0, 1) and two token machines (2, 3); requests arrive 400 us to 13 ms apart.
 * No two prompts fit into the 2048 tokens of a step: one at a time, first come, first served,
 * each of 1 ms and 10 us a token. The
 * transfer is serial: 0.1 ms and 4000 bytes a token at 1 GB/s, one after the other on each
 * link. A token machine's steps take 2 ms and 50 us a sequence; whoever has arrived when a step
 * begins takes part. The shortest queue: prompt tokens that are not computed, sequences that are
 * not finished; the first of equals. In steps of time: whatever happens next, by a plain search. */
struct reference {
    struct golden *g;
    int64_t done[N], ready[N], left[N]; /* prompt computed, transferred; tokens to come */
    int64_t busy_until[4], out_free[2], in_free[2];
    int running[2];  /* request of the prompt machine; -1 */
    bool in_step[N]; /* of a token machine */
    bool stepping[2];
};

static int64_t pending(const struct reference *r, int n_arrived, int p)
{
    int64_t sum = 0;

    for (int i = 0; i < n_arrived; i++)
        sum += r->g[i].p == p && r->done[i] < 0 ? r->g[i].n_prompt : 0;
    return sum;
}

static int sequences(const struct reference *r, int n_arrived, int t)
{
    int n = 0;

    for (int i = 0; i < n_arrived; i++)
        n += r->g[i].n_output > 1 && r->g[i].t == t && r->left[i] > 0;
    return n;
}

static void ref_prompts(struct reference *r, int64_t now, int n_arrived)
{
    for (int p = 0; p < 2; p++) {
        int i = r->running[p];

        if (i >= 0 && r->busy_until[p] == now) {
            int64_t work = r->g[i].n_prompt * 4000;
            int64_t *out = &r->out_free[p],
                    *in = &r->in_free[r->g[i].t - 2 < 0 ? 0 : r->g[i].t - 2];

            r->done[i] = r->g[i].first = r->g[i].last = now;
            r->left[i] = r->g[i].n_output - 1;
            r->running[p] = -1;
            if (r->left[i] > 0) {
                *out = (*out > now ? *out : now) + work;
                *in = (*in > now ? *in : now) + work;
                r->ready[i] = (*out > *in ? *out : *in) + 100000;
            }
        }
        for (i = 0; i < n_arrived && r->running[p] < 0; i++)
            if (r->g[i].p == p && r->done[i] < 0) {
                r->running[p] = i;
                r->busy_until[p] = now + MS + 10000 * r->g[i].n_prompt;
            }
    }
}

static void ref_tokens(struct reference *r, int64_t now, int n_arrived)
{
    for (int t = 2; t < 4; t++) {
        int n = 0;

        if (r->stepping[t - 2] && r->busy_until[t] > now)
            continue;
        for (int i = 0; i < n_arrived; i++) {
            if (r->in_step[i] && r->g[i].t == t) {
                r->left[i]--;
                r->g[i].last = now;
            }
            if (r->g[i].t == t && r->done[i] >= 0 && r->g[i].n_output > 1) {
                r->in_step[i] = r->left[i] > 0 && r->ready[i] <= now;
                n += r->in_step[i];
            }
        }
        r->stepping[t - 2] = n > 0;
        r->busy_until[t] = now + 2 * MS + 50000 * n;
    }
}

static void ref_assign(struct reference *r, int i)
{
    struct golden *g = &r->g[i];

    g->p = pending(r, i, 1) < pending(r, i, 0) ? 1 : 0;
    g->t = g->n_output == 1 ? g->p : sequences(r, i, 3) < sequences(r, i, 2) ? 3 : 2;
    r->done[i] = -1;
    r->left[i] = g->n_output;
}

static int64_t ref_next(const struct reference *r, int64_t now, int n_arrived)
{
    int64_t next = n_arrived < N ? r->g[n_arrived].arrival : INT64_MAX;

    for (int p = 0; p < 2; p++)
        if (r->running[p] >= 0 && r->busy_until[p] < next)
            next = r->busy_until[p];
    for (int t = 0; t < 2; t++)
        if (r->stepping[t] && r->busy_until[2 + t] < next)
            next = r->busy_until[2 + t];
    for (int i = 0; i < n_arrived; i++)
        if (r->ready[i] > now && r->ready[i] < next)
            next = r->ready[i];
    return next;
}

static void ref_run(struct golden *g)
{
    struct reference r = {.g = g, .running = {-1, -1}};
    int64_t now = g[0].arrival;

    for (int n = 0; now < INT64_MAX; now = ref_next(&r, now, n)) {
        for (; n < N && g[n].arrival == now; n++)
            ref_assign(&r, n);
        ref_prompts(&r, now, n);
        ref_tokens(&r, now, n);
    }
}

TEST(two_hundred_requests_by_hand)
{
    static struct golden g[N];
    struct world w;
    struct rng r;
    int64_t t = 1000;

    rng_init(&r, 3, "golden");
    for (int i = 0; i < N; i++) {
        t += 400007 + (int64_t)rng_below(&r, 13 * MS);
        g[i] = (struct golden){.arrival = t,
                               .n_prompt = 1025 + (int64_t)rng_below(&r, 400),
                               .n_output = 1 + (int64_t)rng_below(&r, 30)};
    }
    world_init(&w, 2, 2, 0, 1);
    w.o.prompt_threshold = w.o.token_threshold = INT64_MAX;
    w.o.layer_wise_tok = INT64_MAX;
    w.o.observer = (struct cluster_observer){.done = golden_done};
    for (int i = 0; i < 4; i++)
        w.m[i].kv_tok = 1 << 20;
    w.o.next = golden_next;
    w.o.next_ctx = g;
    golden_at = 0;
    assert_ok(cluster_run(&w.stat, &w.o));
    ref_run(g);
    for (int i = 0; i < N; i++) {
        assert_int_equal(seen[i].p, g[i].p);
        assert_int_equal(seen[i].t, g[i].t);
        if (seen[i].first != g[i].first || seen[i].last != g[i].last)
            fail_msg("request %d: first %lld, last %lld; by hand %lld, %lld", i,
                     (long long)seen[i].first, (long long)seen[i].last,
                     (long long)g[i].first, (long long)g[i].last);
    }
}

/* Many requests, little memory: it is of the live requests only. */
TEST(memory_is_of_the_live_requests)
{
    int64_t most[2];

    for (int i = 0; i < 2; i++) {
        struct world w;

        world_init(&w, 2, 2, 0, 4);
        w.n_left = i ? 40000 : 4000;
        w.max_output = 4;
        w.mean_gap_ns = 5 * MS;
        world_run(&w);
        assert_string_equal(w.wrong, "");
        most[i] = w.stat.n_live_max;
    }
    assert_true(most[1] < 40 && most[0] < 40);
}
