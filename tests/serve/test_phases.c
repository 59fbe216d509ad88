/* Steps of different phases: ranks, plans whose phases differ, mixed batches and random
 * changes of phase give the same tokens, and nothing is copied. */
#include "tests/serve/tiny.h"
#include "tests/support/tuned_plan.h"

static struct cpu_budget budget;

static int64_t fact(struct serve *s, const char *group, const char *key)
{
    json_t *j, *of;
    int64_t n;

    assert_ok(serve_describe(s, &j));
    of = group ? json_object_get(j, group) : j;
    assert_true(json_is_integer(json_object_get(of, key)));
    n = json_integer_value(json_object_get(of, key));
    json_decref(j);
    return n;
}

static void assert_chosen_by(struct serve *s, const char *by)
{
    json_t *j;

    assert_ok(serve_describe(s, &j));
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(j, "phase_choice"), "by")), by);
    json_decref(j);
}

/* Ranks x threads of prefill and of decode, on two CPUs; which is decode's first. */
static const struct shape {
    int prefill[2], decode[2], first;
} shapes[] = {
    {{2, 1}, {1, 1}, 0}, {{2, 1}, {1, 1}, 1}, {{1, 2}, {2, 1}, 0}, {{2, 1}, {1, 2}, 1},
    {{1, 2}, {1, 1}, 0}, {{2, 1}, {2, 1}, 1}, {{1, 1}, {1, 1}, 0},
};
#define N_SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))
#define DIFFER   2 /* 1 x 2 and 2 x 1 */

static void set_phase(struct plan_phase *f, const int shape[2], const int *cpus)
{
    f->n_ranks = shape[0];
    f->n_threads = shape[1];
    f->expected_s = NAN;
    for (int i = 0; i < 2; i++) {
        f->cpus[i] = cpus[i];
        f->nodes[i] = -1;
    }
}

static void plan_of(struct plan *p, const struct shape *x)
{
    const int turned[2] = {budget.cpus[x->first], budget.cpus[1 - x->first]};

    *p = (struct plan){.machine = "host"};
    set_phase(&p->prefill, x->prefill, budget.cpus);
    set_phase(&p->decode, x->decode, turned);
}

static struct serve *open_plan(struct serve_opts *o, const struct plan *p)
{
    char file[600];

    snprintf(file, sizeof(file), "%s/plan.json", test_dir());
    assert_ok(plan_write(p, file));
    o->plan = mem_strdup(MEM_TEST, file);
    assert_non_null(o->plan);
    return tiny_open(o);
}

static struct serve *open_shape(const struct shape *x)
{
    struct serve_opts o = tiny_opts();
    struct plan p;

    plan_of(&p, x);
    return open_plan(&o, &p);
}

static void need_two_cpus(void)
{
    assert_ok(cpu_budget_get(&budget));
    if (budget.n < 2)
        test_skip("phases that differ need two CPUs, this process has one");
}

/* The same tokens, by one rank and by two, and by plans that change ranks, threads and
 * order between the phases; what a switch would have to copy is counted, and is nothing. */
TEST(test_ranks)
{
    struct serve *s = tiny_open_default();
    struct serve_opts o;
    struct tiny_got one, g;

    assert_chosen_by(s, "one");
    tiny_generate(s, 40, 20, 7, &one);
    tiny_assert_same(&one, &one);
    serve_close(&s);
    need_two_cpus();
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *x = &shapes[i];
        bool same = memcmp(x->prefill, x->decode, sizeof(x->decode)) == 0 && !x->first;

        s = open_shape(x);
        tiny_generate(s, 40, 20, 7, &g);
        tiny_assert_same(&g, &one);
        assert_chosen_by(s, same ? "one" : "rows");
        assert_int_equal(fact(s, "work", "n_switches"), !same);
        assert_int_equal(fact(s, "work", "switch_copied_bytes"), 0);
        assert_int_equal(fact(s, NULL, "decode_threads"), x->decode[0] * x->decode[1]);
        serve_close(&s);
    }
    for (int i = 0; i < 2; i++) { /* deterministic, too */
        o = tiny_opts();
        o.deterministic = true;
        o.ranks = o.threads = 1 + i;
        s = tiny_open(&o);
        tiny_generate(s, 40, 20, 7, &g);
        tiny_assert_same(&g, &one);
        serve_close(&s);
    }
    o = tiny_opts();
    o.ranks = o.threads = 2;
    s = tiny_open(&o);
    tiny_generate(s, 40, 20, 7, &g);
    tiny_assert_same(&g, &one);
    assert_int_equal(fact(s, "work", "n_switches"), 0);
    serve_close(&s);
}

/* ---- how ranks sum ---- */

static json_t *sums_of(struct serve *s, const char *phase)
{
    json_t *j, *sums;

    assert_ok(serve_describe(s, &j));
    sums = json_incref(
        json_object_get(json_object_get(json_object_get(j, "plan"), phase), "allreduce"));
    assert_non_null(sums);
    json_decref(j);
    return sums;
}

static void assert_sums(struct serve *s, const char *phase, const char *by,
                        int n_measured)
{
    json_t *sums = sums_of(s, phase);
    const json_t *measured = json_object_get(sums, "measured");

    assert_string_equal(json_string_value(json_object_get(sums, "by")), by);
    assert_int_equal(json_array_size(measured) > 0, n_measured);
    for (size_t i = 0; i < json_array_size(measured); i++) {
        const json_t *row = json_array_get(measured, i);

        assert_true(json_integer_value(json_object_get(row, "message_bytes")) > 0);
        for (int k = 0; par_colls[k]; k++) {
            char key[40];

            snprintf(key, sizeof(key), "%s_us", par_colls[k]->name);
            assert_true(json_number_value(json_object_get(row, key)) > 0);
        }
    }
    json_decref(sums);
}

/* Chosen by measuring when the engine opens, unless the plan names it; a deterministic engine
 * has an order of its own. */
TEST(test_sums)
{
    struct serve_opts o = tiny_opts();
    struct tiny_got one, g;
    struct serve *s = tiny_open_default();
    struct plan p;
    json_t *sums;

    assert_sums(s, "decode", "one rank", 0);
    tiny_generate(s, 40, 20, 7, &one);
    serve_close(&s);
    need_two_cpus();
    plan_of(&p, &shapes[DIFFER]); /* prefill by one rank, decode by two */
    s = open_plan(&o, &p);
    assert_sums(s, "prefill", "one rank", 0);
    assert_sums(s, "decode", "measured", 1);
    tiny_generate(s, 40, 20, 7, &g);
    tiny_assert_same(&g, &one);
    serve_close(&s);
    for (int i = 0; par_colls[i]; i++) { /* the same tokens by every algorithm */
        o = tiny_opts();
        assert_ok(par_choice_one(&p.decode.allreduce, par_colls[i]->name));
        s = open_plan(&o, &p);
        assert_sums(s, "decode", "plan", 0);
        sums = sums_of(s, "decode");
        assert_string_equal(json_string_value(json_object_get(sums, "algorithms")),
                            par_colls[i]->name);
        json_decref(sums);
        tiny_generate(s, 40, 20, 7, &g);
        tiny_assert_same(&g, &one);
        serve_close(&s);
    }
    o = tiny_opts();
    o.deterministic = true;
    s = open_plan(&o, &p);
    assert_sums(s, "decode", "deterministic order", 0);
    serve_close(&s);
}

/* ---- schedules of a plan ---- */

/* They are looked up for what the ranks of each phase compute, on the CPUs of that phase in
 * its order, and the engine needs no file but the plan.
 * Regression: tuned schedules were looked up under decode's order of CPUs for prefill's
 * ranks, too, and were not found. */
TEST(test_schedules)
{
    struct serve *s = tiny_open_default();
    struct tiny_got one, g;
    struct serve_opts o;
    struct plan p;

    tiny_generate(s, 40, 20, 7, &one);
    assert_int_equal(fact(s, "schedules", "n_tuned"), 0);
    serve_close(&s);
    need_two_cpus();
    for (int phase = 0; phase < 2; phase++) { /* schedules of one phase at a time */
        o = tiny_opts();
        plan_of(&p, &shapes[3]); /* whose phases have the CPUs in another order */
        assert_true(tuned_plan_add(&p, phase ? &p.decode : &p.prefill, tiny_path,
                                   KERN_ORDER_NMK) > 0);
        s = open_plan(&o, &p);
        assert_true(fact(s, "schedules", "n_tuned") > 0);
        tiny_generate(s, 40, 20, 7, &g);
        tiny_assert_same(&g, &one);
        serve_close(&s);
        plan_fini(&p);
    }
}

/* ---- who chooses ---- */

static void set_costs(struct plan *p, double prefill_s, double decode_s, double per_row_s)
{
    p->prefill.costs =
        (struct plan_costs){2, {1, 2}, {prefill_s, prefill_s * (1 + 1e-9)}};
    p->decode.costs =
        (struct plan_costs){2, {1, 64}, {decode_s, decode_s + 63 * per_row_s}};
    p->prefill.costs.rows[1] = 64;
}

/* A short prompt is decode's by the rule of rows; a table says otherwise, or from how many
 * rows on. What a step was counts by its content, whoever ran it. */
TEST(test_short_prompts)
{
    static const struct {
        double prefill_s, decode_s, per_row_s; /* prefill's costs are flat */
        int64_t n_prefill, n_decode, n_switches;
    } rows[] = {
        {0, 0, 0, 0, 20, 0},      /* no table */
        {1, 0.5, 0.01, 0, 20, 0}, /* 21 rows still cheaper as decode's */
        {1, 0.5, 0.1, 1, 19, 1},  /* ... no longer */
        {1, 2, 0, 20, 0, 0},      /* decode's configuration never pays */
        {1, 1, 0, 20, 0, 0},      /* equal: it stays where it began */
    };
    struct tiny_got g;
    struct plan p;

    need_two_cpus();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct serve_opts o = tiny_opts();
        struct serve *s;

        plan_of(&p, &shapes[DIFFER]);
        if (rows[i].prefill_s > 0)
            set_costs(&p, rows[i].prefill_s, rows[i].decode_s, rows[i].per_row_s);
        s = open_plan(&o, &p);
        tiny_generate(s, 21, 20, 7, &g);
        assert_chosen_by(s, rows[i].prefill_s > 0 ? "table" : "rows");
        assert_int_equal(fact(s, "phase_choice", "n_prefill_steps"), rows[i].n_prefill);
        assert_int_equal(fact(s, "phase_choice", "n_decode_steps"), rows[i].n_decode);
        assert_int_equal(fact(s, "work", "n_switches"), rows[i].n_switches);
        assert_int_equal(serve_totals_of(s, SERVE_PREFILL)->n_steps, 1);
        assert_int_equal(serve_totals_of(s, SERVE_PREFILL)->n_tok, 21);
        assert_int_equal(serve_totals_of(s, SERVE_DECODE)->n_steps, 19);
        serve_close(&s);
    }
}

/* ---- random arrivals ---- */

#define N_REQUESTS 10

struct traffic {
    int n_prompt[N_REQUESTS], max_new[N_REQUESTS];
};

static void draw_traffic(struct traffic *t, struct rng *r)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        t->n_prompt[i] = 1 + (int)rng_below(r, 40);
        t->max_new[i] = 1 + (int)rng_below(r, 20);
    }
}

/* A cost for each number of rows, at random, even numbers of rows cost half as much
 * again, or odd ones: the choice goes to and fro. */
static void random_costs(struct plan_costs *c, int parity, struct rng *r)
{
    c->n = PLAN_COSTS_MAX;
    for (int i = 0; i < c->n; i++) {
        c->rows[i] = 1 + i;
        c->seconds[i] = (i % 2 == parity ? 1.5 : 1) + 0.3 * rng_f64(r);
    }
}

/* Submit at random moments while others run. */
static void play(struct serve *s, const struct traffic *t, struct rng *r,
                 struct tiny_got g[N_REQUESTS])
{
    bool busy = true;
    int n = 0;

    for (int steps = 0; busy || n < N_REQUESTS; steps++) {
        while (n < N_REQUESTS && rng_below(r, 3) == 0) {
            int32_t ids[SEQ] = {0};
            struct serve_request q =
                tiny_request(ids, t->n_prompt[n], t->max_new[n], &g[n]);
            int64_t id;

            tiny_prompt(ids, t->n_prompt[n], (uint64_t)n);
            assert_ok(serve_submit(s, &q, &id));
            n++;
        }
        assert_ok(serve_step(s, &busy));
        assert_true(steps < 10000);
    }
}

static void serially(const struct traffic *t, struct tiny_got g[N_REQUESTS])
{
    struct serve *s = tiny_open_default();

    for (int i = 0; i < N_REQUESTS; i++)
        tiny_generate(s, t->n_prompt[i], t->max_new[i], (uint64_t)i, &g[i]);
    serve_close(&s);
}

/* How an engine is opened for mixed batches. */
struct mix {
    const char *policy;
    int shape; /* of shapes[] */
    bool deterministic, table, processes;
};

static struct serve *open_mixed(const struct mix *x, struct rng *r)
{
    struct serve_opts o = tiny_opts();
    struct plan p;

    plan_of(&p, &shapes[x->shape]);
    if (x->table) {
        random_costs(&p.prefill.costs, 0, r);
        random_costs(&p.decode.costs, 1, r);
    }
    mem_free(o.policy);
    o.policy = mem_strdup(MEM_TEST, x->policy);
    assert_non_null(o.policy);
    o.deterministic = x->deterministic;
    o.rank_mode = x->processes ? SERVE_RANKS_PROCESSES : SERVE_RANKS_THREADS;
    o.max_seqs = 4;
    o.max_step_tok = 24 + (int64_t)rng_below(r, 24);
    return open_plan(&o, &p);
}

/* Each request gets the tokens that it gets alone. Returns how often the phase changed. */
static int64_t check_mixed(const struct mix *x, const struct traffic *t, struct rng *r,
                           const struct tiny_got alone[N_REQUESTS])
{
    struct serve *s = open_mixed(x, r);
    struct tiny_got g[N_REQUESTS];
    int64_t n_switches;

    play(s, t, r, g);
    for (int k = 0; k < N_REQUESTS; k++)
        tiny_assert_same(&g[k], &alone[k]);
    assert_int_equal(fact(s, "work", "switch_copied_bytes"), 0);
    assert_int_equal(fact(s, "phase_choice", "n_prefill_steps") +
                         fact(s, "phase_choice", "n_decode_steps"),
                     fact(s, "work", "n_steps"));
    n_switches = fact(s, "work", "n_switches");
    serve_close(&s);
    return n_switches;
}

/* Whatever policy, phases and table. */
TEST(test_arrivals)
{
    static const char *const policies[] = {"fcfs", "continuous", "chunked"};
    static const int some[] = {1, DIFFER, 4};
    struct tiny_got alone[N_REQUESTS];
    int64_t n_switches[2] = {0}; /* by threads, by processes */
    struct traffic t;
    struct rng r;

    need_two_cpus();
    rng_init(&r, test_seed(), "traffic");
    draw_traffic(&t, &r);
    serially(&t, alone);
    for (int i = 0; i < 3 * 3 * 2 * 2; i++) {
        const struct mix x = {.policy = policies[i % 3],
                              .shape = some[i / 3 % 3],
                              .table = i / 9 % 2,
                              .deterministic = i / 18};

        n_switches[0] += check_mixed(&x, &t, &r, alone);
    }
    for (int i = 0; i < 3; i++) {
        const struct mix x = {.policy = policies[i],
                              .shape = DIFFER,
                              .table = true,
                              .deterministic = i % 2,
                              .processes = true};

        n_switches[1] += check_mixed(&x, &t, &r, alone);
    }
    assert_true(n_switches[0] > 36 && n_switches[1] > 3);
}

/* A prompt comes while another decodes: its pieces and the tokens share steps. */
TEST(test_chunked_mixes)
{
    struct serve_opts o = tiny_opts();
    int32_t ids[SEQ] = {0};
    struct tiny_got g[2];
    struct serve *s;
    int64_t id;
    bool busy;

    mem_free(o.policy);
    o.policy = mem_strdup(MEM_TEST, "chunked");
    assert_non_null(o.policy);
    o.max_seqs = 2;
    o.max_step_tok = 8;
    s = tiny_open(&o);
    tiny_prompt(ids, 32, 1);
    for (int i = 0; i < 2; i++) {
        struct serve_request r = tiny_request(ids, i ? 21 : 8, 20, &g[i]);

        assert_ok(serve_submit(s, &r, &id));
    }
    for (int i = 1; i <= 4; i++) { /* the second prompt in pieces of 7 */
        assert_ok(serve_step(s, &busy));
        assert_int_equal(g[0].n, i);
        assert_int_equal(g[1].n, i == 4);
    }
    assert_int_equal(serve_totals_of(s, SERVE_PREFILL)->n_steps, 4);
    assert_int_equal(serve_totals_of(s, SERVE_DECODE)->n_steps, 0);
    assert_ok(serve_step(s, &busy));
    assert_int_equal(g[0].n + g[1].n, 7);
    assert_int_equal(serve_totals_of(s, SERVE_DECODE)->n_tok, 2);
    serve_close(&s);
}

TEST_GROUP(tiny_make, NULL);
