/* The adapter of our own engine: events arrive in order and end once, from its own
 * thread, for requests that overlap, that are canceled, and that live when it closes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "baselines/plan_cache.h"
#include "baselines/sut.h"
#include "tests/support/faults.h"
#include "tests/support/test.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tuned_plan.h"

#define MAX_REQUESTS 16

struct seen {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t harness;
    struct {
        int n_tok, n_ended;
        enum sut_event_kind end;
        int32_t ids[64];
        char error[64];
    } r[MAX_REQUESTS];
    int n_ended, n_bad;
};

static const struct sut_adapter *adapter;
static const char *model;

static int find_adapter(void **state)
{
    (void)state;
    model = tiny_model(KERN_BF16);
    assert_ok(sut_adapter_find("sandwich", &adapter));
    return 0;
}

/* Another thread: what is wrong is counted here and asserted there. */
static void on_event(void *ctx, const struct sut_event *e)
{
    struct seen *s = ctx;

    pthread_mutex_lock(&s->lock);
    s->n_bad += pthread_equal(pthread_self(), s->harness) != 0;
    s->n_bad += s->r[e->request].n_ended != 0;
    if (e->kind == SUT_TOKEN) {
        s->r[e->request].ids[s->r[e->request].n_tok++] = e->token;
    } else {
        s->r[e->request].n_ended++;
        s->r[e->request].end = e->kind;
        snprintf(s->r[e->request].error, sizeof(s->r[0].error), "%s",
                 e->kind == SUT_FAILED ? e->error : "");
        s->n_ended++;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void seen_init(struct seen *s)
{
    memset(s, 0, sizeof(*s));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->harness = pthread_self();
}

static void seen_wait(struct seen *s, int n_ended)
{
    pthread_mutex_lock(&s->lock);
    while (s->n_ended < n_ended)
        pthread_cond_wait(&s->changed, &s->lock);
    assert_int_equal(s->n_bad, 0);
    pthread_mutex_unlock(&s->lock);
}

/* roles: NULL, or of --roles. */
static struct sut *open_sut_as(struct seen *seen, const char *roles)
{
    json_t *config = json_pack("{s:s, s:b, s:i, s:s*}", "model", model, "pin", 0,
                               "max_tok", 128, "roles", roles);
    struct sut *s;

    assert_non_null(config);
    seen_init(seen);
    assert_ok(adapter->open(&s, config, on_event, seen));
    json_decref(config);
    return s;
}

static struct sut *open_sut(struct seen *seen)
{
    return open_sut_as(seen, NULL);
}

static void submit(struct sut *s, int64_t request, int32_t first, int n_output)
{
    const int32_t ids[5] = {first, 9, 4, 33, 7};
    const struct sut_request r = {
        .request = request, .prompt = ids, .n_prompt = 5, .n_output = n_output};

    assert_ok(adapter->submit(s, &r));
}

TEST(test_requests)
{
    struct seen seen;
    struct sut *s = open_sut(&seen);

    for (int i = 0; i < MAX_REQUESTS; i++)
        submit(s, i, i % 4, 3 + i);
    seen_wait(&seen, MAX_REQUESTS);
    for (int i = 0; i < MAX_REQUESTS; i++) {
        assert_int_equal(seen.r[i].end, SUT_DONE);
        assert_int_equal(seen.r[i].n_tok, 3 + i); /* exactly: EOS is ignored */
        assert_memory_equal(seen.r[i].ids, seen.r[i % 4].ids, 3 * sizeof(int32_t));
    }
    adapter->close(&s);
    assert_null(s);
}

/* Prompts and tokens by processes: the same tokens, and what was asked for is said. */
TEST(test_roles)
{
    struct seen one, split;
    struct sut *s = open_sut(&one);
    json_t *j;

    for (int i = 0; i < MAX_REQUESTS; i++)
        submit(s, i, i % 4, 3 + i);
    seen_wait(&one, MAX_REQUESTS);
    adapter->close(&s);
    s = open_sut_as(&split, "prompt=1:threads=1,token=1:threads=1");
    for (int i = 0; i < MAX_REQUESTS; i++)
        submit(s, i, i % 4, 3 + i);
    assert_ok(adapter->describe(s, &j)); /* while it works */
    assert_non_null(strstr(json_string_value(json_object_get(j, "configuration")),
                           "prompt=1:threads=1,token=1:threads=1; shm"));
    json_decref(j);
    seen_wait(&split, MAX_REQUESTS);
    for (int i = 0; i < MAX_REQUESTS; i++) {
        assert_int_equal(split.r[i].end, SUT_DONE);
        assert_int_equal(split.r[i].n_tok, 3 + i);
        assert_memory_equal(split.r[i].ids, one.r[i].ids, 3 * sizeof(int32_t));
    }
    assert_true(adapter->token_bytes(s, 100) == 0 && adapter->prefill_flop(s, 100) == 0);
    adapter->close(&s);
    assert_null(s);
}

TEST(test_cancel_and_close)
{
    struct seen seen;
    struct sut *s = open_sut(&seen);

    for (int i = 0; i < 4; i++)
        submit(s, i, i, 60);
    adapter->cancel(s, 2);
    adapter->cancel(s, 77); /* unknown: nothing happens */
    seen_wait(&seen, 2);    /* the canceled one and the first */
    adapter->close(&s);
    assert_int_equal(seen.n_ended, 4);
    assert_int_equal(seen.n_bad, 0);
    assert_int_equal(seen.r[2].end, SUT_FAILED);
    assert_string_equal(seen.r[2].error, "canceled");
}

TEST(test_facts)
{
    static const char *const keys[] = {
        "weight_type", "precision",  "prefill_threads", "decode_threads", "kernels",
        "placement",   "cpu_budget", "options",         "configuration",  NULL};
    int64_t vocab = 0, max_tok = 0;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    struct seen seen;
    struct sut *s = open_sut(&seen);
    json_t *j;

    assert_ok(adapter->limits(s, &vocab, &max_tok));
    assert_true(vocab > 256);
    assert_int_equal(max_tok, 128);
    assert_ok(adapter->encode(s, "hello world", 11, &ids, &n_ids));
    assert_true(n_ids >= 1);
    mem_free(ids);
    submit(s, 0, 1, 20);
    assert_ok(adapter->describe(s, &j)); /* while it works */
    for (int i = 0; keys[i]; i++)
        if (!json_object_get(j, keys[i]))
            fail_msg("describe lacks %s", keys[i]);
    json_decref(j);
    seen_wait(&seen, 1);
    /* "tiny" has 3 layers of 2 KV heads of 14, with keys and values in f32 */
    assert_true(adapter->token_bytes(s, 100) - adapter->token_bytes(s, 1) ==
                99 * 3 * 2 * 2 * 14 * 4);
    /* and 6 heads, dim 84, hidden 202, vocabulary 1003: the last layer behind its keys and
     * values, and the head, for the last token only */
    assert_true(adapter->prefill_flop(s, 100) ==
                2 * (3 * 84 * 140 * 100 + (84 * 84 + 3 * 84 * 202) * 201.0 + 1003 * 84) +
                    4 * 84 * (2 * 5050 + 100));
    adapter->close(&s);
}

/* What an engine with this plan states as its configuration; free(). */
static char *configuration_of(enum kern_order order, const char *precision)
{
    const char *path = tiny_model(KERN_F32);
    char file[600];
    struct cpu_budget b;
    struct seen seen;
    struct plan p;
    struct sut *s;
    json_t *config, *j;
    char *text;

    assert_ok(cpu_budget_get(&b));
    assert_ok(plan_default(&p, &b, 1));
    assert_true(tuned_plan_add(&p, &p.prefill, path, order) > 0);
    snprintf(file, sizeof(file), "%s/plan.json", test_dir());
    assert_ok(plan_write(&p, file));
    plan_fini(&p);
    config = json_pack("{s:s, s:b, s:s, s:i, s:s}", "model", path, "pin", 0, "plan", file,
                       "max_tok", 64, "precision", precision);
    seen_init(&seen);
    assert_ok(adapter->open(&s, config, on_event, &seen));
    assert_ok(adapter->describe(s, &j));
    text = strdup(json_string_value(json_object_get(j, "configuration")));
    adapter->close(&s);
    json_decref(config);
    json_decref(j);
    return text;
}

/* As many tuned schedules, but others: that is not the same system. */
TEST(test_configuration_tells_schedules)
{
    char *one = configuration_of(KERN_ORDER_NMK, "exact"),
         *same = configuration_of(KERN_ORDER_NMK, "exact");
    char *other = configuration_of(KERN_ORDER_MNK, "exact");
    char *relaxed = configuration_of(KERN_ORDER_NMK, "relaxed");
    const char *tuned = strstr(one, " tuned schedules");

    assert_string_equal(one, same);
    assert_non_null(tuned);
    assert_string_not_equal(one, other);
    assert_memory_equal(one, other, (size_t)(tuned - one)); /* as many of them */
    assert_non_null(strstr(one, "; exact"));
    assert_non_null(strstr(relaxed, "; relaxed"));
    free(relaxed);
    free(one);
    free(same);
    free(other);
}

static int n_one_sequence(const char *policy, int max_seqs)
{
    json_t *config = json_pack("{s:s, s:b, s:s, s:i}", "model", model, "pin", 0, "policy",
                               policy, "max_seqs", max_seqs);
    struct log_warning w;
    struct seen seen;
    struct sut *s;
    int n = 0;

    if (max_seqs == 0)
        json_object_del(config, "max_seqs");
    seen_init(&seen);
    assert_ok(adapter->open(&s, config, on_event, &seen));
    adapter->close(&s);
    json_decref(config);
    while (log_warnings_take(&w, 1) > 0)
        if (strcmp(w.code, "one_sequence") == 0) {
            assert_non_null(strstr(w.text, policy));
            assert_non_null(strstr(w.text, "system.max_seqs is 1"));
            n++;
        }
    return n;
}

/* Regression: a policy that batches requests served one at a time without a word, as
 * `max_seqs` is 1 by default. */
TEST(test_a_policy_needs_two_sequences)
{
    assert_int_equal(n_one_sequence("continuous", 0), 1);
    assert_int_equal(n_one_sequence("chunked", 1), 1);
    assert_int_equal(n_one_sequence("continuous", 2), 0);
    assert_int_equal(n_one_sequence("fcfs", 0), 0);
}

/* In place of the function that runs `sandwich plan`. */
static char asked[32];

int sut_plan_get(struct sut_plan *out, const struct sut_plan_request *r)
{
    (void)out;
    snprintf(asked, sizeof(asked), "%s", r->precision);
    return err_set(ERR_IO, "no plan is made here");
}

/* A plan is made for the arithmetic that the engine will use.
 * Regression: the adapter `sandwich` made its plan for `relaxed` where `a8` was asked
 * for. */
TEST(test_plan_precision)
{
    static const char *const names[] = {"exact", "relaxed", "a8"};
    struct seen seen;

    seen_init(&seen);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *config = json_pack("{s:s, s:s, s:s}", "model", model, "plan_by",
                                   "one_plan", "precision", names[i]);
        struct sut *s;

        assert_err(adapter->open(&s, config, on_event, &seen), ERR_IO, "no plan");
        assert_string_equal(asked, names[i]);
        json_decref(config);
    }
}

TEST(test_refusals)
{
    json_t *unknown = json_pack("{s:s, s:s}", "model", model, "thread", "2");
    json_t *missing = json_pack("{s:s}", "model", "/none.gguf");
    const int32_t id = 1 << 30;
    const struct sut_request bad = {.prompt = &id, .n_prompt = 1, .n_output = 1};
    struct seen seen;
    struct sut *s;

    seen_init(&seen);
    assert_err(adapter->open(&s, unknown, on_event, &seen), ERR_ARG, "threads");
    assert_null(s);
    assert_int_not_equal(adapter->open(&s, missing, on_event, &seen), OK);
    assert_non_null(strstr(err_msg(), "/none.gguf"));
    assert_null(s);
    s = open_sut(&seen);
    assert_err(adapter->submit(s, &bad), ERR_ARG, "id 1073741824");
    adapter->close(&s);
    assert_int_equal(seen.n_ended, 0); /* a refused request has no events */
    json_decref(unknown);
    json_decref(missing);
}

TEST_GROUP(find_adapter, NULL);

static int open_and_close(const json_t *config, struct seen *seen)
{
    struct sut *s;
    int rc = adapter->open(&s, config, on_event, seen);

    assert_true((rc == OK) == (s != NULL));
    if (s)
        adapter->close(&s);
    return rc;
}

/* In this thread or in the engine's. */
TEST(a_thread_or_lock_cannot_be_had)
{
    json_t *config = json_pack("{s:s, s:b, s:i}", "model", model, "pin", 0, "threads", 1);
    struct seen seen;

    seen_init(&seen);
    assert_true(test_thread_faults(open_and_close(config, &seen), true) >= 9);
    json_decref(config);
}
