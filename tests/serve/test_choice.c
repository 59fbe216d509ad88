/* The phase of a step: by the rule of rows, by a table, and what hysteresis promises,
 * against sums over all runs of steps. */
#include <math.h>

#include "serve/phase_choice.h"
#include "tests/support/test.h"

#define MAX_STEP_TOK 512

static void plan_of(struct plan *p, int prefill_threads, int decode_threads)
{
    *p = (struct plan){.prefill = {.n_ranks = 1, .n_threads = prefill_threads},
                       .decode = {.n_ranks = 1, .n_threads = decode_threads}};
    for (int i = 0; i < 4; i++)
        p->prefill.cpus[i] = p->decode.cpus[i] = i;
}

TEST(test_one)
{
    struct serve_choice c;
    struct plan p;

    plan_of(&p, 2, 2);
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_string_equal(serve_choice_by_name(&c), "one");
    assert_int_equal(c.decode_rows_max, MAX_STEP_TOK);
    assert_int_equal(serve_choice_next(&c, 3, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 300, false), SERVE_DECODE);
}

TEST(test_rows)
{
    struct serve_choice c;
    struct plan p;

    plan_of(&p, 2, 1);
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_string_equal(serve_choice_by_name(&c), "rows");
    assert_int_equal(c.decode_rows_max, 31);
    assert_int_equal(serve_choice_next(&c, 31, true), SERVE_DECODE);
    assert_int_equal(serve_choice_next(&c, 32, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 1, false), SERVE_DECODE);
    assert_int_equal(c.n_steps[SERVE_PREFILL], 1);
    assert_int_equal(c.n_steps[SERVE_DECODE], 2);
    serve_choice_init(&c, &p, 100, MAX_STEP_TOK);
    assert_int_equal(c.decode_rows_max, 100); /* that many may decode at once */
    assert_int_equal(serve_choice_next(&c, 100, false), SERVE_DECODE);
    serve_choice_init(&c, &p, 100, 16);
    assert_int_equal(c.decode_rows_max, 16);
    p.prefill.costs = (struct plan_costs){1, {1}, {1}}; /* half a table is none */
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_string_equal(serve_choice_by_name(&c), "rows");
}

/* Decode's costs 1 s and 0.02 s a row, prefill's 2 s: equal at 50 rows. */
static void crossing(struct plan *p)
{
    plan_of(p, 2, 1);
    p->prefill.costs = (struct plan_costs){2, {1, 512}, {2, 2}};
    p->decode.costs = (struct plan_costs){2, {1, 512}, {1.02, 11.24}};
}

TEST(test_table)
{
    struct serve_choice c;
    struct plan p;

    crossing(&p);
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_string_equal(serve_choice_by_name(&c), "table");
    assert_int_equal(c.decode_rows_max, 55); /* 1 + 0.02 n <= 2.1 */
    assert_int_equal(serve_choice_next(&c, 8, true), SERVE_DECODE);
    assert_int_equal(serve_choice_next(&c, 300, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 52, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 1, false), SERVE_DECODE);
    assert_int_equal(serve_choice_next(&c, 50, true), SERVE_DECODE);
    assert_int_equal(serve_choice_next(&c, 56, true), SERVE_PREFILL);
    /* A batch of decoding sequences goes where it is cheaper, too. */
    serve_choice_init(&c, &p, 100, MAX_STEP_TOK);
    assert_int_equal(c.decode_rows_max, 100);
    assert_int_equal(serve_choice_next(&c, 2, false), SERVE_DECODE);
    assert_int_equal(serve_choice_next(&c, 100, false), SERVE_PREFILL);
}

static int count_switches(struct serve_choice *c, int n, int64_t lo, int64_t hi,
                          struct rng *r)
{
    enum serve_phase last = c->now;
    bool begun = c->begun;
    int switches = 0;

    for (int i = 0; i < n; i++) {
        int64_t rows =
            r ? lo + (int64_t)rng_below(r, (uint64_t)(hi - lo + 1)) : (i % 2 ? lo : hi);
        enum serve_phase now = serve_choice_next(c, rows, rows > 1 || i % 3);

        switches += (i > 0 || begun) && now != last;
        last = now;
    }
    return switches;
}

TEST(test_no_flapping)
{
    struct serve_choice c;
    struct plan p;
    struct rng r;

    rng_init(&r, test_seed(), "rows");
    crossing(&p);
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_int_equal(serve_choice_next(&c, 4, true), SERVE_DECODE);
    assert_int_equal(count_switches(&c, 1000, 49, 51, NULL), 0);
    assert_int_equal(serve_choice_next(&c, 400, true), SERVE_PREFILL);
    assert_int_equal(count_switches(&c, 1000, 49, 51, NULL), 0);
    p.decode.costs = p.prefill.costs; /* equality */
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_int_equal(count_switches(&c, 1000, 1, MAX_STEP_TOK, &r), 0);
}

/* 2 % of a step of a second: the third step in a row owes 60 ms, more than 5 %. A step
 * that favours the present phase by as much forgives one. */
TEST(test_small_gain_has_to_last)
{
    struct serve_choice c;
    struct plan p;

    plan_of(&p, 2, 1);
    p.prefill.costs = (struct plan_costs){2, {1, 2}, {1, 0.98}};
    p.decode.costs = (struct plan_costs){2, {1, 2}, {0.98, 1}};
    serve_choice_init(&c, &p, 4, MAX_STEP_TOK);
    assert_int_equal(serve_choice_next(&c, 1, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 1, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 2, true), SERVE_PREFILL);
    assert_int_equal(serve_choice_next(&c, 1, true), SERVE_PREFILL);
    for (int i = 0; i < 100; i++)
        assert_int_equal(serve_choice_next(&c, 1, false), SERVE_DECODE);
    assert_int_equal(c.n_steps[SERVE_PREFILL], 4);
}

/* ---- what is promised, over all runs of steps ---- */

#define N_STEPS 400

struct walk {
    int64_t rows[N_STEPS];
    enum serve_phase ran[N_STEPS];
};

static void random_table(struct plan_costs *c, struct rng *r, double scale_s)
{
    int64_t rows = 0;

    c->n = 1 + (int)rng_below(r, 10);
    for (int i = 0; i < c->n; i++) {
        rows += 1 + (int64_t)rng_below(r, 60);
        c->rows[i] = rows;
        c->seconds[i] = scale_s * (1 + 0.3 * rng_f64(r));
    }
}

/* How much less steps first ... last would have taken in all under the phase that `now` is
 * not. */
static double gain(const struct plan *p, const struct walk *w, int first, int last,
                   enum serve_phase now)
{
    const struct plan_costs *a = &p->prefill.costs, *b = &p->decode.costs;
    double sum = 0;

    for (int i = first; i <= last; i++)
        sum += plan_costs_at(a, w->rows[i]) - plan_costs_at(b, w->rows[i]);
    return now == SERVE_PREFILL ? sum : -sum;
}

/* The most that any run of steps of this stay, up to step i, would have gained. */
static double best_gain(const struct plan *p, const struct walk *w, int stay, int i,
                        enum serve_phase now)
{
    double best = -INFINITY;

    for (int first = stay; first <= i; first++)
        best = fmax(best, gain(p, w, first, i, now));
    return best;
}

static double price(const struct plan *p, const struct walk *w, int i,
                    enum serve_phase now)
{
    const struct plan_costs *c =
        now == SERVE_PREFILL ? &p->prefill.costs : &p->decode.costs;

    return SERVE_CHOICE_MARGIN_FRAC * plan_costs_at(c, w->rows[i]) + SERVE_SWITCH_S;
}

/* A phase is left only for more than the margin and a switch, and never kept for longer. */
static void check_walk(const struct plan *p, const struct walk *w, int64_t rows_max)
{
    int stay = 0; /* the first step whose cost counts in this stay */

    for (int i = 1; i < N_STEPS; i++) {
        enum serve_phase now = w->ran[i - 1];
        double owed, most;

        if (w->rows[i] > rows_max) {
            assert_int_equal(w->ran[i], SERVE_PREFILL);
            stay = i + 1;
            continue;
        }
        owed = best_gain(p, w, stay, i, now);
        most = price(p, w, i, now);
        if (fabs(owed - most) < 1e-12)
            return; /* rounding decides */
        assert_true((w->ran[i] != now) == (owed > most));
        if (w->ran[i] != now)
            stay = i + 1;
    }
}

TEST(test_promises)
{
    struct serve_choice c;
    struct walk w;
    struct plan p;
    struct rng r;

    rng_init(&r, test_seed(), "walk");
    for (int k = 0; k < 60; k++) {
        double scale_s = k % 3 ? 0.01 : 50e-6; /* where a switch counts, too */
        int switches = 0;

        plan_of(&p, 2, 1);
        random_table(&p.prefill.costs, &r, scale_s);
        random_table(&p.decode.costs, &r, scale_s);
        serve_choice_init(&c, &p, 4, 200);
        assert_in_range(c.decode_rows_max, 4, 200);
        for (int i = 0; i < N_STEPS; i++) {
            w.rows[i] = 1 + (int64_t)rng_below(&r, 200);
            w.ran[i] = serve_choice_next(&c, w.rows[i], true);
            switches += i > 0 && w.ran[i] != w.ran[i - 1];
            assert_true(w.ran[i] == SERVE_PREFILL || w.rows[i] <= c.decode_rows_max);
        }
        assert_int_equal(c.n_steps[SERVE_PREFILL] + c.n_steps[SERVE_DECODE], N_STEPS);
        check_walk(&p, &w, c.decode_rows_max);
        assert_true(switches < N_STEPS);
    }
}
