/* The frame of studies on one that this file holds: what is put, reported, missing, closed. */
#include "tests/study/capture.h"

#include "experiments/frame/frame.h"

#define OPTIONS(X)                                                                       \
    X(INT, rounds, "5", "Rounds.", .min = 1, .max = 99)                                  \
    X(ENUM, what, "all", "What goes wrong.", .values = "all|unset|unknown|fails")
#define RESULTS(X)                                                                       \
    X(fast_s, "s", LOWER, "the faster one's time")                                       \
    X(gain, "x", HIGHER, "slow / fast")                                                  \
    X(share, "", EACH, "a number of each round")                                         \
    X(bytes, "B", MODEL, "arithmetic")                                                   \
    X(missing, "", 0, "cannot be measured")                                              \
    X(some, "", SOME, "not every cell has it")                                           \
    X(group_a, "", 0, "by a name that is made")

FRAME_TYPES;

enum { ALL, UNSET, UNKNOWN, FAILS };
enum { SLOW, FAST, N_WAYS };

struct frame_sample {
    FRAME_CELL;
    double own[N_WAYS];
    int n_closed;
    double inner_s;
};

static char closed[8];
static size_t n_closed;

static void close_a(int *p)
{
    closed[n_closed++] = (char)('a' + *p);
}

static int inner(void *arg, int i, struct measure_trial *t)
{
    (void)arg, (void)i;
    t->seconds = 0.5;
    return OK;
}

static int trial(void *arg, int way, struct measure_trial *t)
{
    struct frame_sample *c = arg;

    TRY(frame_rounds_within(c->f, &(struct measure_opts){MEASURE_EXACTLY(3)}, inner, c,
                            &c->inner_s));
    t->seconds = way == SLOW ? 4 : 2;
    frame_put(c->f, &c->own[way], c->f->round * 10 + way);
    if (way == FAST)
        frame_put(c->f, &c->r->share, c->f->round);
    return OK;
}

static int frame_sample_run(struct frame_sample *c)
{
    static int one = 0, two = 1;
    struct results *r = c->r;

    FRAME_CLOSE(c->f, close_a, &one);
    FRAME_CLOSE(c->f, close_a, &two);
    if (c->o->what == FAILS)
        return err_set(ERR_IO, "it fails");
    TRY(frame_rounds(c->f, "both in turn", N_WAYS, c->o->rounds, trial, c));
    r->fast_s = frame_seconds(c->f, FAST);
    frame_ratio(c->f, &r->gain, SLOW, FAST, 0);
    if (c->o->what != UNSET)
        r->bytes = r->fast_s * 8;
    r->missing = NAN;
    frame_why(c->f, NULL, "no such counter");
    *frame_named(c->f, "group_%s", c->o->what == UNKNOWN ? "b" : "a") = 7;
    frame_series(c->f, "own_slow", "s", &c->own[SLOW]);
    return OK;
}

STUDY(frame_sample, "a study that this test holds");

TEST_GROUP(NULL, capture_end);

static int run_sample(const char *options)
{
    n_closed = 0;
    memset(closed, 0, sizeof(closed));
    return capture_run(&study_frame_sample, "%s", options);
}

TEST(what_is_set_is_reported)
{
    static const double rounds[] = {1, 2, 3, 4, 5}, own[] = {10, 20, 30, 40, 50};

    assert_ok(run_sample("{}"));
    assert_value("fast_s", 2);
    assert_value("gain", 2);
    assert_value("share", 3);
    assert_value("bytes", 16);
    assert_value("group_a", 7);
    assert_true(isnan(value_of("missing")));
    assert_int_equal(series_of("share")->n, 5);
    assert_memory_equal(series_of("share")->v, rounds, sizeof(rounds));
    assert_memory_equal(series_of("own_slow")->v, own, sizeof(own));
    assert_string_equal(evidence_of("bytes"), "model");
    assert_string_equal(evidence_of("fast_s"), "");
    assert_string_equal(closed, "ba");
}

TEST(what_was_never_set_fails_the_cell)
{
    assert_err(run_sample("{\"what\": \"unset\"}"), ERR_STATE, "bytes");
    assert_string_equal(closed, "ba");
}

TEST(a_name_that_is_not_declared_fails_the_cell)
{
    assert_err(run_sample("{\"what\": \"unknown\"}"), ERR_ARG, "group_b");
}

TEST(what_was_opened_is_closed_after_an_error)
{
    assert_err(run_sample("{\"what\": \"fails\"}"), ERR_IO, "it fails");
    assert_string_equal(closed, "ba");
}
