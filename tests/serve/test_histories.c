/* The real serving loop in virtual time: the files of serve/, sched/ and kv/ as they are, with a
 * clock that the test turns and a model that computes nothing. Requests come, are canceled and
 * refused, outgrow their memory and are preempted, steps stall, and what must hold is checked
 * after each event. What the model "computes" is a hash of a sequence's ids, which it keeps as
 * keys and values and reads again in each step: keys and values of another sequence, or moved
 * wrongly, are found, and each request must get the tokens that it would get alone.
 *
 *     HISTORIES=1000000 build/tests/serve/test_histories          that many, one seed each
 *     HISTORIES=1 TEST_SEED=77 build/tests/serve/test_histories   the one that failed */
#include "kv/kv.h"
#include "serve/engine.h"
#include "tests/serve/tiny.h"

#define N_REQUESTS 24
#define EOS        7
#define NO_TOKEN   (-1) /* the logits are not finite */
#define HASH_EMPTY UINT64_C(0x9e3779b97f4a7c15)

/* A request as its client sees it. */
struct client {
    int32_t prompt[SEQ];
    int n_prompt, max_new, n_got;
    bool ignore_eos, canceled;
    int64_t id;
    uint64_t hash; /* of the prompt and the tokens that came */
    enum serve_finish finish;
};

struct world {
    struct serve_engine *s;
    struct rng rng;
    struct client c[N_REQUESTS];
    int n, n_sent, n_ended;
    int n_idle; /* steps in a row that computed nothing */
    bool cancels, stalls, ticks, fails, from_callbacks;
    uint64_t forward_ns; /* of the present step */
    int64_t forward_tok;
    int64_t n_submits_in_step;
};

static struct world w;
static uint64_t now_ns;
static int64_t n_preempted, n_overflows, n_refused, n_moved; /* over all histories */

/* ---- a clock and a model ---- */

uint64_t __wrap_clock_ns(void);
int __wrap_model_forward(struct model_phase *p, const struct model_chunk *chunks,
                         int n_chunks, float *logits);

uint64_t __wrap_clock_ns(void)
{
    now_ns += w.ticks;
    return now_ns;
}

static uint64_t hash_next(uint64_t h, int32_t id)
{
    h = (h ^ (uint64_t)(id + 1)) * UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ h >> 29;
}

static int32_t token_of(uint64_t h)
{
    if (h % 61 == 0)
        return NO_TOKEN;
    return h % 16 == 0 ? EOS : (int32_t)(h / 64 % VOCAB);
}

/* What is kept for a token: the first and the last word of each key and value. */
#define N_PARTS (4 * LAYERS * KV_HEADS)

static uint64_t *kept_at(const struct model_chunk *c, int part, int64_t pos)
{
    const size_t bytes = DIM / HEADS * sizeof(float);
    uint64_t *first =
        kv_token_at(c->kv, part / 4 % LAYERS, part / 4 / LAYERS, part % 2, pos, bytes);

    return part / 2 % 2 ? first + bytes / sizeof(*first) - 1 : first;
}

/* Returns the hash of all tokens of the chunk and before. */
static uint64_t compute_chunk(const struct model_chunk *c)
{
    const int32_t *ids = c->ids - c->pos0;
    uint64_t h = HASH_EMPTY;

    assert_true(c->n_tok > 0 && c->pos0 + c->n_tok <= c->kv->cap_tok);
    for (int64_t pos = 0; pos < c->pos0 + c->n_tok; pos++) {
        h = hash_next(h, ids[pos]);
        for (int part = 0; part < N_PARTS; part++) {
            if (pos >= c->pos0)
                *kept_at(c, part, pos) = h + (uint64_t)part;
            else if (*kept_at(c, part, pos) != h + (uint64_t)part)
                fail_msg("keys and values: token %lld, part %d: not what was kept there",
                         (long long)pos, part);
        }
    }
    return h;
}

static void fill_logits(float *row, int32_t id)
{
    for (int i = 0; i < VOCAB; i++)
        row[i] = id == NO_TOKEN && i == 3 ? NAN : 0;
    if (id != NO_TOKEN)
        row[id] = 1;
}

int __wrap_model_forward(struct model_phase *p, const struct model_chunk *chunks,
                         int n_chunks, float *logits)
{
    uint64_t ns = 1000000;
    int64_t n_tok = 0;

    (void)p;
    assert_in_range(n_chunks, 1, w.s->api.o.max_seqs);
    for (int i = 0; i < n_chunks; i++) {
        uint64_t h = compute_chunk(&chunks[i]);

        n_tok += chunks[i].n_tok;
        if (!chunks[i].want_logits)
            continue;
        fill_logits(logits, token_of(h));
        logits += VOCAB;
    }
    assert_true(n_tok <= w.s->api.o.max_step_tok);
    ns += (uint64_t)n_tok * 10000;
    if (w.stalls && rng_below(&w.rng, 40) == 0)
        ns += UINT64_C(3600000000000); /* the machine slept */
    now_ns += ns;
    w.forward_ns += ns;
    w.forward_tok += n_tok;
    return OK;
}

/* ---- clients ---- */

static void submit(void);
static void cancel(void);

static void expect_token(struct client *c, int32_t id, enum serve_finish finish)
{
    enum serve_finish want = SERVE_RUNNING;

    assert_int_equal(id, token_of(c->hash));
    c->hash = hash_next(c->hash, id);
    c->n_got++;
    if (c->n_got == c->max_new)
        want = SERVE_LENGTH;
    if (serve_is_stop(&w.s->api, id) && !c->ignore_eos)
        want = SERVE_EOS;
    assert_int_equal(finish, want);
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct client *c = ctx;

    assert_int_equal(request, c->id);
    assert_int_equal(c->finish, SERVE_RUNNING); /* nothing comes after the end */
    assert_true(c->n_got < c->max_new && (id < 0) == (logits == NULL));
    if (id >= 0)
        expect_token(c, id, finish);
    else if (finish == SERVE_ERROR)
        assert_int_equal(token_of(c->hash), NO_TOKEN);
    else
        assert_true(finish == SERVE_CANCELED && c->canceled);
    err_clear();
    c->finish = finish;
    w.n_ended += finish != SERVE_RUNNING;
    if (w.from_callbacks && rng_below(&w.rng, 16) == 0)
        cancel();
    if (w.from_callbacks && rng_below(&w.rng, 16) == 0)
        submit();
}

static void cancel(void)
{
    int i = (int)rng_below(&w.rng, N_REQUESTS);

    if (i < w.n_sent)
        w.c[i].canceled = true;
    serve_cancel(&w.s->api, i < w.n_sent ? w.c[i].id : 1000 + i);
}

/* What serve_submit() should say to it. */
static int verdict(const struct serve_request *r)
{
    const struct kv_predictor *p = w.s->lengths.predictor;

    if (r->n_prompt < 1 || r->max_new < 1)
        return ERR_ARG;
    if (r->n_prompt + r->max_new > w.s->api.max_tok)
        return ERR_LIMIT;
    for (int64_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= VOCAB)
            return ERR_ARG;
    return p && p->reads_truth && !r->ignore_eos ? ERR_ARG : OK;
}

static struct serve_request make_request(struct client *c)
{
    bool odd = rng_below(&w.rng, 12) == 0; /* most of these are refused */
    uint64_t n = (uint64_t)w.s->api.max_tok - !odd,
             n_prompt = !odd + rng_below(&w.rng, n);

    *c = (struct client){.n_prompt = (int)n_prompt, .hash = HASH_EMPTY};
    for (int i = 0; i < c->n_prompt; i++) {
        c->prompt[i] = (int32_t)rng_below(&w.rng, VOCAB + (odd && i == 0));
        c->hash = hash_next(c->hash, c->prompt[i]);
    }
    c->max_new = !odd + (int)rng_below(&w.rng, odd ? SEQ : n + 1 - n_prompt);
    c->ignore_eos = rng_below(&w.rng, 2);
    return (struct serve_request){.prompt = c->prompt,
                                  .n_prompt = c->n_prompt,
                                  .max_new = c->max_new,
                                  .ignore_eos = c->ignore_eos,
                                  .sampling = {.top_p = 1},
                                  .on_token = on_token,
                                  .ctx = c};
}

static void submit(void)
{
    struct client *c = &w.c[w.n_sent];
    struct serve_request r;
    int rc, want;
    bool fails;

    if (w.n_sent == w.n)
        return;
    r = make_request(c);
    want = verdict(&r);
    fails = w.fails && rng_below(&w.rng, 8) == 0;
    if (fails)
        mem_fail_after((long)rng_below(&w.rng, 4), 1);
    rc = serve_submit(&w.s->api, &r, &c->id);
    mem_fail_after(-1, 0);
    w.n_submits_in_step++;
    if (rc != ERR_NOMEM || !fails)
        assert_int_equal(rc, want);
    if (rc != OK) {
        assert_int_equal(c->id, -1);
        err_clear();
        n_refused++;
        return;
    }
    assert_int_equal(c->id, w.n_sent);
    w.n_sent++;
}

/* ---- what holds ---- */

static void check_live(const struct serve_seq *q, int64_t *used, int64_t *n_seqs)
{
    const struct client *c = &w.c[q->r.id];

    assert_true(c->finish == SERVE_RUNNING && c->n_got == q->r.n_new);
    assert_memory_equal(q->ids, c->prompt, (size_t)c->n_prompt * sizeof(c->prompt[0]));
    assert_true(q->r.n_ctx <= sched_request_n_known(&q->r));
    if (q->r.state == SCHED_WAITING) {
        assert_true(q->r.n_ctx == 0 && q->kv.n_tok == 0);
        return;
    }
    assert_true(q->r.n_ctx <= q->kv.cap_tok && q->kv.n_tok <= q->kv.cap_tok);
    *used += q->r.n_ctx;
    ++*n_seqs;
}

static void check(void)
{
    struct serve_engine *s = w.s;
    int64_t used = 0, n_seqs = 0, n = s->loop.n_live, last = -1;
    struct serve_kv_stat report;
    struct kv_stat kv;

    for (int i = 0; i < s->loop.n_live; i++) {
        assert_true(s->loop.live[i]->id > last); /* neither lost nor twice */
        last = s->loop.live[i]->id;
        check_live((const struct serve_seq *)s->loop.live[i], &used, &n_seqs);
    }
    for (const struct serve_seq *q = s->queue_head; q; q = q->next, n++) {
        assert_true(q->r.id > last);
        last = q->r.id;
    }
    assert_int_equal(n, w.n_sent - w.n_ended);
    kv_pool_stat(s->pool, &kv);
    serve_kv_stat(&s->api, &report);
    assert_true(kv.n_live == n_seqs && s->loop.n_seqs == n_seqs);
    assert_true(n_seqs <= s->api.o.max_seqs && kv.reserved_tok <= kv.limit_tok);
    assert_true(kv.reserved_bytes <= kv.pool_bytes && used == s->loop.used_tok);
    assert_true((n_seqs > 0) == (kv.reserved_tok > 0));
    assert_true(report.used_bytes == used * s->kv_token_bytes);
    assert_true(report.used_bytes <= report.reserved_bytes);
}

static int64_t total_ns(const struct serve_totals *t)
{
    return t->forward_ns + t->sample_ns + t->sched_ns;
}

/* A step takes no memory, ends what was canceled, goes on with somebody, and the time that is
 * reported is the time that passed. */
static void step(void)
{
    struct serve_engine *s = w.s;
    const struct serve_totals *p = &s->totals[SERVE_PREFILL],
                              *d = &s->totals[SERVE_DECODE];
    int64_t ns0 = total_ns(p) + total_ns(d), tok0 = p->n_tok + d->n_tok, ns;
    int n_ended = w.n_ended, n_sent = w.n_sent;
    uint64_t t0 = now_ns;
    long n_allocs = mem_n_allocs();
    bool busy, canceled[N_REQUESTS];

    for (int i = 0; i < w.n_sent; i++)
        canceled[i] = w.c[i].canceled;
    w.forward_ns = 0;
    w.forward_tok = w.n_submits_in_step = 0;
    assert_ok(serve_step(&s->api, &busy));
    assert_true(busy == (w.n_sent > w.n_ended));
    assert_true(mem_n_allocs() == n_allocs || w.n_submits_in_step > 0);
    for (int i = 0; i < n_sent; i++)
        assert_true(!canceled[i] || w.c[i].finish != SERVE_RUNNING);
    w.n_idle =
        n_sent == n_ended || w.forward_tok > 0 || w.n_ended > n_ended ? 0 : w.n_idle + 1;
    assert_true(w.n_idle < 2); /* where all are preempted, the next step admits one */
    ns = total_ns(p) + total_ns(d) - ns0;
    assert_int_equal(p->n_tok + d->n_tok - tok0, w.forward_tok);
    assert_true(ns >= (int64_t)w.forward_ns && ns <= (int64_t)(now_ns - t0));
    assert_true(w.ticks || ns == (int64_t)w.forward_ns);
}

/* Who is preempted came last of those that have memory, so the oldest always ends. */
static void on_event(void *ctx, enum sched_event event, const struct sched_request *r)
{
    (void)ctx;
    for (int i = 0; event == SCHED_PREEMPTED && i < w.s->loop.n_live; i++)
        assert_true(w.s->loop.live[i]->id <= r->id ||
                    w.s->loop.live[i]->state == SCHED_WAITING);
}

/* ---- histories ---- */

static void set_text(char **option, const char *text)
{
    mem_free(*option);
    *option = text ? mem_strdup(MEM_OTHER, text) : NULL;
}

static void choose_opts(struct serve_engine *s)
{
    int n_allocs = 0, n_policies = 0;
    static const char *const predictors[] = {NULL, "constant", "noisy", "oracle"};
    int64_t longest = 2 + (int64_t)rng_below(&w.rng, SEQ - 1);

    while (kv_allocs[n_allocs])
        n_allocs++;
    while (sched_policies[n_policies])
        n_policies++;
    s->policy = sched_policies[rng_below(&w.rng, (uint64_t)n_policies)];
    set_text(&s->api.o.kv_alloc, kv_allocs[rng_below(&w.rng, (uint64_t)n_allocs)]->name);
    set_text(&s->api.o.kv_predict, predictors[rng_below(&w.rng, 4)]);
    s->api.o.kv_predict_sigma = rng_f64(&w.rng);
    s->api.o.kv_admit = (int)rng_below(&w.rng, 2);
    s->api.o.kv_block = INT64_C(16) << rng_below(&w.rng, 2);
    s->api.o.kv_relearn = (int64_t)rng_below(&w.rng, 8);
    s->api.o.kv_large_frac = rng_below(&w.rng, 2) ? 0 : 0.3;
    s->api.o.kv_patience = (int64_t)rng_below(&w.rng, 10);
    s->api.o.max_seqs = 1 + (int64_t)rng_below(&w.rng, 6);
    s->api.o.max_step_tok = 1 + (int64_t)rng_below(&w.rng, SEQ);
    s->api.o.kv_budget_tok = (int64_t)rng_below(&w.rng, 2) *
                             (2 + (int64_t)rng_below(&w.rng, 3 * (uint64_t)longest));
    s->api.max_tok = s->api.o.kv_budget_tok > 0 && s->api.o.kv_budget_tok < longest
                         ? s->api.o.kv_budget_tok
                         : longest;
    s->api.o.kv_predict_tok = 1 + (int64_t)rng_below(&w.rng, (uint64_t)s->api.max_tok);
}

/* Bytes for fewer sequences of max_tok than can have memory at once, and something. */
static int64_t choose_budget(const struct serve_engine *s)
{
    const struct kv_shape shape = {LAYERS, KV_HEADS, DIM / HEADS * sizeof(float)};
    const struct kv_pool_opts o = {.alloc = s->api.o.kv_alloc,
                                   .max_tok = s->api.max_tok,
                                   .block_tok = s->api.o.kv_block,
                                   .max_seqs = s->api.o.max_seqs};
    size_t bytes;

    if (rng_below(&w.rng, 3) == 0)
        return 0;
    assert_ok(kv_pool_bytes(&bytes, &shape, &o,
                            1 + (int64_t)rng_below(&w.rng, (uint64_t)s->api.o.max_seqs)));
    return (int64_t)(bytes + rng_below(&w.rng, 20000));
}

/* The engine as it is once opened with these options, but for its model, which stays. */
static void reopen(struct serve_engine *s)
{
    serve_requests_close(s);
    s->lengths.predictor = NULL;
    s->lengths.state = NULL;
    s->lengths.n_predicted = s->lengths.predict_ns = s->lengths.learn_ns = 0;
    s->n_submitted = s->n_steps = s->n_tok = s->n_switches = 0;
    s->n_preempted = s->n_recomputed_tok = s->n_overflow = s->n_used_tok = 0;
    s->last = NULL;
    s->kv_use = (struct serve_kv_use){0};
    memset(s->totals, 0, sizeof(s->totals));
    choose_opts(s);
    serve_choice_init(&s->choice, &s->plan, s->api.o.max_seqs, s->api.o.max_step_tok);
    assert_ok(serve_lengths_open(s));
    s->api.o.kv_budget = choose_budget(s);
    assert_ok(serve_requests_open(s));
    s->loop.o.trace = on_event;
}

static void begin(struct serve_engine *s, uint64_t seed)
{
    memset(&w, 0, sizeof(w));
    w.s = s;
    rng_init(&w.rng, seed, "history");
    reopen(s);
    w.n = 1 + (int)rng_below(&w.rng, N_REQUESTS);
    w.cancels = rng_below(&w.rng, 2);
    w.stalls = rng_below(&w.rng, 2);
    w.ticks = rng_below(&w.rng, 2);
    w.fails = rng_below(&w.rng, 4) == 0;
    w.from_callbacks = rng_below(&w.rng, 4) == 0;
}

static void run_history(struct serve_engine *s, uint64_t seed)
{
    struct kv_stat kv;
    int rest = 0; /* events after which no more requests come */

    begin(s, seed);
    for (int event = 0; event < 4 * w.n || w.n_ended < w.n_sent; event++) {
        if (event < 4 * w.n && rng_below(&w.rng, 2))
            submit();
        if (w.cancels && rng_below(&w.rng, 10) == 0)
            cancel();
        if (rng_below(&w.rng, 100) == 0)
            now_ns += rng_below(&w.rng, UINT64_C(1) << 45);
        check();
        step();
        check();
        rest += event >= 4 * w.n;
        assert_true(rest < 100 * N_REQUESTS * SEQ); /* it ends */
    }
    kv_pool_stat(s->pool, &kv);
    assert_true(kv.reserved_tok == 0 && kv.n_live == 0 && s->loop.used_tok == 0);
    n_preempted += s->n_preempted;
    n_overflows += s->n_overflow;
    n_moved += kv.n_moved_total;
}

static int64_t n_histories(void)
{
    const char *n = getenv("HISTORIES");

    return n ? atoll(n) : 4000;
}

static uint64_t seed_now;

static int print_seed(void **state)
{
    (void)state;
    if (seed_now > 0)
        print_message(
            "# failed: HISTORIES=1 TEST_SEED=%llu: policy %s, allocator %s, predictor "
            "%s, "
            "max_tok %lld, max_seqs %lld, max_step_tok %lld, kv_budget_tok %lld, "
            "kv_budget %lld, patience %lld\n",
            (unsigned long long)seed_now, w.s->policy->name, w.s->api.o.kv_alloc,
            w.s->api.o.kv_predict ? w.s->api.o.kv_predict : "none",
            (long long)w.s->api.max_tok, (long long)w.s->api.o.max_seqs,
            (long long)w.s->api.o.max_step_tok, (long long)w.s->api.o.kv_budget_tok,
            (long long)w.s->api.o.kv_budget, (long long)w.s->api.o.kv_patience);
    return 0;
}

static int make_model(void **state)
{
    return tiny_make(state);
}

TEST_GROUP(make_model, NULL);

TEST_WITH(histories, NULL, print_seed)
{
    struct serve_opts o = tiny_opts();
    struct serve_engine *s;
    struct serve *api;

    o.threads = 1;
    api = tiny_open(&o);
    s = serve_engine_of(api);
    api->n_stop = 1;
    api->stops[0] = EOS;
    for (int64_t k = 0; k < n_histories(); k++) {
        seed_now = test_seed() + (uint64_t)k;
        run_history(s, seed_now);
    }
    seed_now = 0;
    if (n_histories() >= 4000)
        /* They were not all easy. */
        assert_true(n_preempted > 100 && n_overflows > 100 && n_refused > 100 &&
                    n_moved > 100);
    serve_close(&api);
    assert_int_equal(mem_used_bytes(MEM_OTHER), 0);
}
