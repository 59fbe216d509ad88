/* The engine and the replay run the same loop: for the same arrivals the same requests are
 * admitted, preempted and answered in the same order, with each allocator. */
#include "experiments/study/support/kv_replay.h"
#include "serve/engine.h"
#include "tests/serve/tiny.h"

#define N         60
#define CLIENTS   24
#define N_SEQS    3 /* memory, in sequences of the longest */
#define RELEARN   8
#define PATIENCE  2
#define N_EVENTS  4000
#define STEP_MOST 65536

struct events {
    struct {
        enum sched_event event;
        int64_t id;
    } e[N_EVENTS];
    int n, n_preempted;
};

static struct kv_example requests[N];

static void on_event(void *ctx, enum sched_event event, const struct sched_request *r)
{
    struct events *all = ctx;

    assert_true(all->n < N_EVENTS);
    all->e[all->n].event = event;
    all->e[all->n++].id = r->id;
    all->n_preempted += event == SCHED_PREEMPTED;
}

static void draw_requests(void)
{
    struct rng r;

    rng_init(&r, test_seed(), "requests");
    for (int i = 0; i < N; i++) {
        requests[i].prompt_tok = 1 + (int64_t)rng_below(&r, SEQ / 3);
        requests[i].output_tok = 1 + (int64_t)rng_below(&r, SEQ / 2);
    }
}

static void set(struct serve_opts *o, const char *key, const char *value)
{
    assert_ok(opt_set(serve_opt_table, o, key, value, "test"));
}

static struct serve *open_engine(const char *alloc, const char *predictor)
{
    struct serve_opts o = tiny_opts();

    set(&o, "policy", "chunked");
    set(&o, "kv_alloc", alloc);
    set(&o, "kv_predict", predictor);
    o.kv_predict_tok = SEQ / 8;
    o.kv_relearn = RELEARN;
    o.kv_patience = PATIENCE;
    o.kv_budget = N_SEQS * SEQ * 2 * LAYERS * KV_HEADS * DIM / HEADS * 4;
    o.max_seqs = CLIENTS;
    o.max_step_tok = STEP_MOST;
    return tiny_open(&o);
}

static void run_engine(struct serve *s, struct events *events, int64_t *overflow)
{
    static struct tiny_got got[N];
    struct serve_kv_stat kv;
    int n_sent = 0, n_done = 0;

    memset(got, 0, sizeof(got));
    serve_engine_of(s)->loop.o.trace = on_event;
    serve_engine_of(s)->loop.o.trace_ctx = events;
    while (n_done < N) {
        bool busy;

        for (; n_sent < N && n_sent - n_done < CLIENTS; n_sent++) {
            int32_t ids[SEQ] = {0};
            struct serve_request r =
                tiny_request(ids, (int)requests[n_sent].prompt_tok,
                             (int)requests[n_sent].output_tok, &got[n_sent]);
            int64_t id;

            assert_ok(serve_submit(s, &r, &id));
            assert_int_equal(id, n_sent);
        }
        assert_ok(serve_step(s, &busy));
        n_done = 0;
        for (int i = 0; i < n_sent; i++)
            n_done += got[i].finish == SERVE_LENGTH;
        assert_true(serve_engine_of(s)->n_steps < 100 * N);
    }
    serve_kv_stat(s, &kv);
    *overflow = kv.n_overflow;
}

static void run_replay(struct serve *s, const char *alloc, const char *predictor,
                       struct events *events, struct study_kv_result *out)
{
    static struct kv_outcome outcomes[N];
    struct study_kv_opts o = {
        .buckets = {.max_tok = SEQ,
                    .align_tok = KV_ALIGN_TOK,
                    .window = 1024,
                    .every = RELEARN,
                    .of_total = true,
                    .steps = true,
                    .detect = true,
                    .n_first = 10,
                    .n = KV_N_QUANTILES,
                    .p = KV_QUANTILES},
        .predict = {.max_tok = SEQ, .constant_tok = SEQ / 8, .sigma = 0.3, .seed = 1},
        .caution = {.alpha = 0.5, .tau = 0.8},
        .co_batch = true,
        .migrate = true,
        .clients = CLIENTS,
        .patience = PATIENCE,
        .max_age = 256,
        .max_step_tok = STEP_MOST,
        .trace = on_event,
        .trace_ctx = events,
    };
    struct kv_stat kv;

    kv_pool_stat(serve_engine_of(s)->pool, &kv);
    o.arena = (struct kv_arena){.n_tok = kv.pool_tok,
                                .max_tok = SEQ,
                                .align_tok = KV_ALIGN_TOK,
                                .block_tok = 16,
                                .max_seqs = CLIENTS,
                                .keep_frac = 0.02,
                                .n_fixed = 10};
    assert_ok(sched_policy_find("chunked", &o.policy));
    assert_ok(kv_alloc_find(alloc, &o.alloc));
    assert_ok(kv_predictor_find(predictor, &o.predictor));
    assert_ok(study_kv_replay(out, &o, requests, N, outcomes));
}

TEST(the_same_order)
{
    static const char *const predictors[] = {"oracle", "noisy", "constant"};
    static struct events engine, replay;
    int64_t n_preempted = 0, n_overflow = 0;

    draw_requests();
    for (int a = 0; kv_allocs[a]; a++)
        for (int p = 0; p < 3; p++) {
            const char *alloc = kv_allocs[a]->name, *predictor = predictors[p];
            struct serve *s = open_engine(alloc, predictor);
            struct study_kv_result result;
            int64_t overflow;

            memset(&engine, 0, sizeof(engine));
            memset(&replay, 0, sizeof(replay));
            run_engine(s, &engine, &overflow);
            run_replay(s, alloc, predictor, &replay, &result);
            for (int i = 0; i < engine.n && i < replay.n; i++)
                if (engine.e[i].event != replay.e[i].event ||
                    engine.e[i].id != replay.e[i].id)
                    fail_msg("%s, %s, seed %llu: event %d: the engine %d of %lld, the "
                             "replay %d of %lld",
                             alloc, predictor, (unsigned long long)test_seed(), i,
                             engine.e[i].event, (long long)engine.e[i].id,
                             replay.e[i].event, (long long)replay.e[i].id);
            assert_int_equal(engine.n, replay.n);
            assert_true(engine.n >= 2 * N);
            assert_int_equal(result.n_steps, serve_engine_of(s)->n_steps);
            assert_int_equal(result.n_preempted, engine.n_preempted);
            n_preempted += engine.n_preempted;
            n_overflow += overflow;
            assert_true((overflow > 0) == (result.n_overflow > 0));
            serve_close(&s);
        }
    assert_true(n_preempted > 10 && n_overflow > 10); /* or there was little to compare */
}

TEST_GROUP(tiny_make, NULL);
