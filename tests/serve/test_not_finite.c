/* Weights that are NaN or infinite: a request whose logits they spoil ends with an error that
 * says where, the others of its batch get the tokens they would have got, and so do later
 * requests in the same memory. In each rank mode, greedy and sampled. */
#include "tests/support/test.h"

#include <math.h>

#include "base/log.h"
#include "tests/serve/tiny.h"

/* Regression: weights that are NaN or infinite gave ids "0 0 0" and published
 * speeds. */

/* Where the tensors of the file are, in floats after the header. The head is not tied, so
 * that a row of the embedding concerns the requests that hold its id only. */
enum {
    KV_DIM = DIM / HEADS * KV_HEADS,
    EMBED = 0,
    ATTN_NORM = EMBED + VOCAB * DIM,
    Q = ATTN_NORM + LAYERS * DIM,
    O = Q + LAYERS * (DIM * DIM + 2 * DIM * KV_DIM),
    FFN_NORM = O + LAYERS * DIM * DIM,
    DOWN = FFN_NORM + LAYERS * (DIM + DIM * HIDDEN),
    OUT_NORM = DOWN + 2 * LAYERS * DIM * HIDDEN,
    HEAD = OUT_NORM + DIM + SEQ * DIM / HEADS,
    N_FLOATS = HEAD + VOCAB * DIM,
};

enum { SPOILED_ID = 7 };

/* The same weights each time, but for this one. at < 0: none. */
static void make(int at, float value)
{
    const int32_t header[7] = {DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, -VOCAB, SEQ};
    static float w[N_FLOATS];
    char *buf = mem_new(MEM_TEST, 1, sizeof(header) + sizeof(w));
    struct rng rng;

    rng_init(&rng, test_seed(), "weights");
    for (int i = 0; i < N_FLOATS; i++)
        w[i] = (float)(rng_normal(&rng) * 0.5);
    if (at >= 0)
        w[at] = value;
    memcpy(buf, header, sizeof(header));
    memcpy(buf + sizeof(header), w, sizeof(w));
    snprintf(tiny_path, sizeof(tiny_path), "%s/model.bin", test_dir());
    test_write(tiny_path, buf, sizeof(header) + sizeof(w));
    mem_free(buf);
}

struct mode {
    const char *name;
    int64_t ranks, threads;
    int rank_mode;
    double temperature;
};
static const struct mode modes[] = {
    {"one thread", 1, 1, SERVE_RANKS_THREADS, 0},
    {"one thread, sampled", 1, 1, SERVE_RANKS_THREADS, 1},
    {"ranks as threads", 2, 2, SERVE_RANKS_THREADS, 0},
    {"ranks as processes", 2, 2, SERVE_RANKS_PROCESSES, 0},
    {"ranks as processes, sampled", 2, 2, SERVE_RANKS_PROCESSES, 1},
};
#define N_MODES ((int)(sizeof(modes) / sizeof(modes[0])))

static void no_sink(void *ctx, enum log_level level, const char *line)
{
    (void)ctx, (void)level, (void)line;
}

static struct serve *open_mode(const struct mode *m)
{
    struct serve_opts o = tiny_opts();
    struct serve *s;

    o.threads = m->threads;
    o.ranks = m->ranks;
    o.rank_mode = m->rank_mode;
    if (serve_open(&s, &o) != OK) {
        tiny_free_opts(&o);
        test_skip("%s: %s", m->name, err_msg());
    }
    tiny_free_opts(&o);
    return s;
}

/* What a request got, and its reason if it failed. */
struct outcome {
    struct tiny_got got;
    char why[300];
};

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct outcome *o = ctx;

    tiny_on_token(&o->got, request, id, logits, finish);
    if (finish == SERVE_ERROR)
        snprintf(o->why, sizeof(o->why), "%s", err_msg());
}

enum { N_REQUESTS = 4, N_PROMPT = 5, N_NEW = 6 };

/* Request i of a batch; `spoiled` has SPOILED_ID in its prompt, the others have not. */
static void submit(struct serve *s, const struct mode *m, int i, bool spoiled,
                   struct outcome *out)
{
    struct serve_request r;
    int32_t ids[N_PROMPT];
    int64_t id;

    tiny_prompt(ids, N_PROMPT, test_seed() + (uint64_t)i);
    for (int k = 0; k < N_PROMPT; k++)
        ids[k] += ids[k] == SPOILED_ID;
    if (spoiled)
        ids[2] = SPOILED_ID;
    memset(out, 0, sizeof(*out));
    r = tiny_request(ids, N_PROMPT, N_NEW, &out->got);
    r.on_token = on_token;
    r.ctx = out;
    r.sampling.temperature = m->temperature;
    r.sampling.seed = i;
    assert_ok(serve_submit(s, &r, &id));
}

/* One batch, of which request `spoiled` (-1: none) has the id, then the others again, where the
 * first batch has left its keys and values. */
static void run(const struct mode *m, int spoiled, struct outcome out[2][N_REQUESTS])
{
    struct serve *s = open_mode(m);

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N_REQUESTS; i++)
            submit(s, m, i, round == 0 && i == spoiled, &out[round][i]);
        tiny_run(s);
    }
    serve_close(&s);
}

/* The ids that are chosen may include the spoiled one, which then fails like a prompt's. */
static void check_others(const struct mode *m, const struct outcome *clean,
                         const struct outcome *got)
{
    int n = 0;

    while (n < clean->got.n && clean->got.ids[n] != SPOILED_ID)
        n++;
    if (n >= clean->got.n - 1) { /* the last one chosen is not computed with */
        assert_int_equal(got->got.finish, SERVE_LENGTH);
        tiny_assert_same(&got->got, &clean->got);
        return;
    }
    if (got->got.finish != SERVE_ERROR || got->got.n != n + 1)
        fail_msg("%s: finish %d after %d tokens, wanted an error after %d", m->name,
                 got->got.finish, got->got.n, n + 1);
}

TEST(one_request_of_a_batch)
{
    static struct outcome clean[2][N_REQUESTS], got[2][N_REQUESTS];

    for (int i = 0; i < N_MODES; i++) {
        make(-1, 0);
        run(&modes[i], -1, clean);
        make(EMBED + SPOILED_ID * DIM + 3, i % 2 ? INFINITY : NAN);
        run(&modes[i], 1, got);
        assert_int_equal(got[0][1].got.finish, SERVE_ERROR);
        assert_int_equal(got[0][1].got.n, 0);
        assert_non_null(
            strstr(got[0][1].why, "new token 1, at position 5: the logit of "));
        for (int k = 0; k < N_REQUESTS; k++) {
            if (k != 1)
                check_others(&modes[i], &clean[0][k], &got[0][k]);
            check_others(&modes[i], &clean[1][k], &got[1][k]);
        }
    }
}

/* A weight that every token meets: no request gets a single one. */
TEST(every_request)
{
    static const struct {
        const char *tensor;
        int at;
    } places[] = {
        {"attn_norm", ATTN_NORM + DIM + 1},
        {"ffn_norm", FFN_NORM + 2},
        {"out_norm", OUT_NORM + DIM - 1},
        {"q", Q + DIM * DIM + 5},
        {"o", O + 6},
        {"down", DOWN + 7},
        {"head", HEAD + (VOCAB - 1) * DIM},
    };
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static struct outcome got[2][N_REQUESTS];

    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        for (int v = 0; v < 3; v++) {
            const struct mode *m = &modes[((int)p * 3 + v) % N_MODES];

            make(places[p].at, values[v]);
            run(m, -1, got);
            for (int i = 0; i < 2 * N_REQUESTS; i++) {
                const struct outcome *o = &got[i / N_REQUESTS][i % N_REQUESTS];

                if (o->got.finish != SERVE_ERROR || o->got.n != 0)
                    fail_msg("%s is %g, %s: request %d: finish %d, %d tokens",
                             places[p].tensor, values[v], m->name, i, o->got.finish,
                             o->got.n);
            }
        }
    }
}

TEST(norms_are_checked_while_loading)
{
    static const struct {
        int at;
        const char *text;
    } places[] = {
        {ATTN_NORM + DIM + 1, "blk.1.attn_norm.weight: number 1 of 32 is "},
        {FFN_NORM, "blk.0.ffn_norm.weight: number 0 of 32 is "},
        {OUT_NORM + DIM - 1, "output_norm.weight: number 31 of 32 is "},
        {Q, NULL},
    };
    struct log_warning w[8];

    for (int i = 0; i < 4; i++) {
        struct serve *s;
        bool seen = false;
        int n;

        make(places[i].at, i % 2 ? NAN : -INFINITY);
        while (log_warnings_take(w, 8) > 0)
            ;
        s = open_mode(&modes[0]);
        n = log_warnings_take(w, 8);
        serve_close(&s);
        for (int k = 0; k < n; k++) {
            if (strcmp(w[k].code, "weights_not_finite") != 0)
                continue;
            assert_false(seen);
            seen = true;
            assert_true(w[k].observed == 1);
            if (!places[i].text || !strstr(w[k].text, places[i].text))
                fail_msg("warned \"%s\"", w[k].text);
        }
        assert_int_equal(seen, places[i].text != NULL);
    }
}

int main(void)
{
    log_set_sink(no_sink, NULL);
    return test_main();
}
