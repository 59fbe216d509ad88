#include "tests/support/faults.h"

#include <math.h>

#include "kernels/kern.h"
#include "plan/plan.h"

static const struct cpu_budget budget = {.n = 4, .cpus = {2, 3, 6, 7}, .reason = "test"};

/* Two ranks of prefill over two nodes, in an order of a tree; decode on some of them. */
static void make(struct plan *p)
{
    static const int prefill[] = {0, 2, 4, 6, 1, 3, 5, 7}, decode[] = {1, 3, 0, 2};

    memset(p, 0, sizeof(*p));
    p->prefill = (struct plan_phase){.n_ranks = 2, .n_threads = 4, .expected_s = 0.25};
    p->decode = (struct plan_phase){.n_ranks = 1, .n_threads = 4, .expected_s = NAN};
    memcpy(p->prefill.cpus, prefill, sizeof(prefill));
    memcpy(p->decode.cpus, decode, sizeof(decode));
    for (int i = 0; i < 8; i++)
        p->prefill.nodes[i] = i / 4;
    for (int i = 0; i < 4; i++)
        p->decode.nodes[i] = decode[i] % 2;
    snprintf(p->prefill.why, sizeof(p->prefill.why), "every CPU pays");
    snprintf(p->decode.why, sizeof(p->decode.why), "the nodes are read at full speed");
    snprintf(p->machine, sizeof(p->machine), "a_machine");
    snprintf(p->evidence, sizeof(p->evidence), "simulated");
    assert_ok(plan_number_cpus(p));
}

static void same_phase(const struct plan_phase *a, const struct plan_phase *b)
{
    int n = a->n_ranks * a->n_threads;

    assert_int_equal(a->n_ranks, b->n_ranks);
    assert_int_equal(a->n_threads, b->n_threads);
    for (int i = 0; i < n; i++) {
        assert_int_equal(a->cpus[i], b->cpus[i]);
        assert_int_equal(a->nodes[i], b->nodes[i]);
    }
    assert_string_equal(a->why, b->why);
    if (isnan(a->expected_s))
        assert_true(isnan(b->expected_s));
    else
        assert_true(a->expected_s == b->expected_s);
    assert_int_equal(a->allreduce.n, b->allreduce.n);
    for (int i = 0; i < a->allreduce.n; i++) {
        assert_int_equal(a->allreduce.row[i].coll, b->allreduce.row[i].coll);
        if (i + 1 < a->allreduce.n)
            assert_int_equal(a->allreduce.row[i].bytes, b->allreduce.row[i].bytes);
    }
    assert_int_equal(a->costs.n, b->costs.n);
    for (int i = 0; i < a->costs.n; i++) {
        assert_int_equal(a->costs.rows[i], b->costs.rows[i]);
        assert_true(a->costs.seconds[i] == b->costs.seconds[i]);
    }
}

static void same_number(double a, double b)
{
    assert_true(a == b || (isnan(a) && isnan(b)));
}

static void same_tries(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->n_tries, b->n_tries);
    assert_string_equal(a->why, b->why);
    for (int i = 0; i < a->n_tries; i++) {
        const struct plan_replay *x = &a->tries[i], *y = &b->tries[i];

        assert_int_equal(a->chosen_try, b->chosen_try);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->tuned, y->tuned);
        assert_int_equal(x->n, y->n);
        same_number(x->seconds, y->seconds);
        same_number(x->lo, y->lo);
        same_number(x->hi, y->hi);
    }
}

static void same_schedules(const struct tune_cache *a, const struct tune_cache *b)
{
    json_t *x, *y;

    assert_true(!a == !b);
    if (!a)
        return;
    x = tune_cache_to_json(a);
    y = tune_cache_to_json(b);
    assert_true(x && y && json_equal(x, y));
    json_decref(x);
    json_decref(y);
}

static void round_trip(const struct plan *a)
{
    struct plan b;

    assert_ok(plan_write(a, test_path("plan.json")));
    assert_ok(plan_read(&b, test_path("plan.json")));
    same_phase(&a->prefill, &b.prefill);
    same_phase(&a->decode, &b.decode);
    assert_string_equal(a->machine, b.machine);
    assert_string_equal(a->evidence, b.evidence);
    assert_string_equal(b.source, test_path("plan.json"));
    assert_string_equal(a->method, b.method);
    assert_string_equal(a->model_id, b.model_id);
    same_tries(a, &b);
    same_schedules(a->schedules, b.schedules);
    assert_int_equal(a->n_cpus, b.n_cpus);
    assert_memory_equal(a->cpus, b.cpus, sizeof(a->cpus));
    plan_fini(&b);
    plan_fini(&b);
}

TEST(test_default)
{
    struct plan p;

    assert_ok(plan_default(&p, &budget, 0));
    assert_int_equal(p.n_cpus, 4);
    assert_int_equal(p.cpus[3], 7);
    assert_int_equal(p.prefill.n_threads, 4);
    assert_int_equal(p.decode.n_threads, 4);
    assert_string_equal(p.source, "default");
    assert_ok(plan_runnable(&p, &budget));
    round_trip(&p);
    assert_ok(plan_default(&p, &budget, 2));
    assert_int_equal(p.n_cpus, 2);
    assert_int_equal(p.decode.n_threads, 2);
    assert_string_equal(p.source, "--threads");
    assert_err(plan_default(&p, &budget, 5), ERR_ARG, "5 asked for, 4 allowed (test)");
    assert_err(plan_default(&p, &budget, -1), ERR_ARG, "found -1");
}

/* Ranks, their order of CPUs, and memory nodes that alternate within a rank survive. */
TEST(test_round_trip)
{
    struct plan p;

    make(&p);
    round_trip(&p);
    snprintf(p.model_id, sizeof(p.model_id), "0123456789abcdef");
    round_trip(&p);
    for (int i = 0; i < 4; i++)
        p.decode.nodes[i] = i / 2 * 3; /* two runs: written as [0, 3] */
    round_trip(&p);
    p.decode.nodes[2] = -1; /* one unknown: none is written, all are unknown */
    assert_ok(plan_write(&p, test_path("plan.json")));
    assert_ok(plan_read(&p, test_path("plan.json")));
    for (int i = 0; i < 4; i++)
        assert_int_equal(p.decode.nodes[i], -1);
    snprintf(p.machine, sizeof(p.machine), "caf\xe9"); /* of a file's name, for example */
    assert_ok(plan_write(&p, test_path("plan.json")));
    assert_ok(plan_read(&p, test_path("plan.json")));
    assert_string_equal(p.machine, "caf?");
}

static void set_costs(struct plan *p)
{
    p->prefill.costs = (struct plan_costs){3, {1, 2, 512}, {0.1, 0.1, 1.0 / 3}};
    p->decode.costs = (struct plan_costs){2, {1, 64}, {0.05, 0.25}};
}

/* Tables of costs: to the last bit, of both phases, of one, as long as there may be. */
TEST(test_costs)
{
    struct plan p;

    make(&p);
    set_costs(&p);
    round_trip(&p);
    p.prefill.costs.n = 0;
    round_trip(&p);
    p.decode.costs.n = PLAN_COSTS_MAX;
    for (int i = 0; i < PLAN_COSTS_MAX; i++) {
        p.decode.costs.rows[i] = PLAN_ROWS_MAX - PLAN_COSTS_MAX + 1 + i;
        p.decode.costs.seconds[i] = 1e-300 * (i + 1);
    }
    round_trip(&p);
}

static void set_sums(struct plan *p)
{
    assert_ok(par_choice_one(&p->decode.allreduce, "master_copy"));
    par_choice_default(&p->prefill.allreduce);
}

/* Schedules of both phases' thread sets, and what was tried. */
static void set_tuned(struct plan *p)
{
    const struct kern_variant *v = kern_variants[0];
    const struct measure_report t = {.estimate = 0.5, .lo = 0.25, .hi = 1, .n = 3};
    struct kern_schedule s = {.mr = 1, .np = 1, .bm = 1, .bn = 1, .bk = 16};
    struct tune_shape x = {.m = 3, .n = 64, .k = 32};
    struct tune_cache *c;

    for (int i = 0; kern_variants[i]; i++)
        if (kern_variants[i]->op == KERN_GEMM_F32)
            v = kern_variants[i];
    x.v = v;
    assert_ok(tune_cache_of_json(&p->schedules, NULL, "none"));
    for (int f = 0; f < 2; f++) {
        const struct plan_phase *ph = f ? &p->decode : &p->prefill;

        assert_ok(plan_schedules(p, ph, &c));
        assert_ptr_equal(c, p->schedules);
        s.pm = 1, s.pk = 1, s.pn = ph->n_ranks * ph->n_threads;
        assert_ok(tune_cache_put(c, &x, &s, &t));
    }
    assert_int_equal(tune_cache_n(p->schedules), 2);
    p->n_tries = 2;
    p->chosen_try = 1;
    p->tries[0] = (struct plan_replay){
        .name = "one rank", .seconds = 1.0 / 3, .lo = 0.25, .hi = 0.5, .n = 7};
    p->tries[1] = (struct plan_replay){
        .name = "two ranks", .tuned = true, .seconds = NAN, .lo = NAN, .hi = NAN};
    snprintf(p->why, sizeof(p->why), "it was surely faster");
    snprintf(p->method, sizeof(p->method), "search");
}

/* How ranks sum, schedules and what was tried come back from a file and from a copy. */
TEST(test_tuned)
{
    struct plan p, copy;
    struct tune_cache *c;
    char *text;

    make(&p);
    set_sums(&p);
    round_trip(&p);
    set_tuned(&p);
    round_trip(&p);
    assert_ok(plan_copy(&copy, &p));
    same_tries(&p, &copy);
    same_schedules(p.schedules, copy.schedules);
    assert_true(copy.schedules != p.schedules);
    plan_fini(&copy);
    assert_null(copy.schedules);
    assert_ok(plan_schedules(&copy, &copy.decode, &c));
    assert_null(c);
    assert_ok(plan_text(&p, &text));
    assert_non_null(strstr(text, "\nmethod: search\n"));
    assert_non_null(
        strstr(text, "\n  ranks sum by symmetric up to 2048 bytes, rank_shifted\n"));
    assert_non_null(strstr(text, "\n  ranks sum by master_copy\n"));
    assert_non_null(strstr(text, "\nschedules of 2 matrix shapes"));
    assert_non_null(strstr(text, "0.3333 [0.2500, 0.5000] of 7    one rank; default"));
    assert_non_null(strstr(text, "-> not measured"));
    assert_non_null(
        strstr(text, "two ranks; tuned schedules\n  why: it was surely faster\n"));
    mem_free(text);
    plan_fini(&p);
}

TEST(test_is_one)
{
    struct plan p;

    assert_ok(plan_default(&p, &budget, 4));
    assert_true(plan_is_one(&p));
    p.decode.cpus[0] = p.prefill.cpus[1], p.decode.cpus[1] = p.prefill.cpus[0];
    assert_false(plan_is_one(&p)); /* threads sit elsewhere */
    assert_ok(plan_default(&p, &budget, 4));
    p.decode.n_threads = 3;
    assert_false(plan_is_one(&p));
    p.decode.n_ranks = 2, p.decode.n_threads = 2;
    assert_false(plan_is_one(&p));
}

TEST(test_numbering)
{
    static const int want[] = {1, 3, 0, 2, 4, 6, 5, 7};
    struct plan p;

    make(&p);
    assert_int_equal(p.n_cpus, 8);
    assert_memory_equal(p.cpus, want, sizeof(want));
    p.decode.cpus[1] = CPU_MAX;
    assert_err(plan_number_cpus(&p), ERR_LIMIT, "found 1024");
}

TEST(test_runnable)
{
    struct plan p;

    make(&p);
    assert_err(plan_runnable(&p, &budget), ERR_ARG, "CPU 1 is not");
    assert_non_null(strstr(err_msg(), "a_machine"));
    assert_ok(plan_default(&p, &budget, 0));
    p.decode.n_threads = 2;
    memcpy(p.decode.cpus, (int[]){7, 3}, 2 * sizeof(int));
    assert_ok(plan_number_cpus(&p));
    assert_memory_equal(p.cpus, ((int[]){7, 3, 2, 6}), 4 * sizeof(int));
    assert_ok(plan_runnable(&p, &budget));
    p.prefill.cpus[1] = 1; /* decode keeps CPU 3 */
    assert_ok(plan_number_cpus(&p));
    assert_err(plan_runnable(&p, &budget), ERR_UNSUPPORTED, "decode's CPU 3");
    p.decode.cpus[1] = 1;
    assert_ok(plan_number_cpus(&p));
    assert_err(plan_runnable(&p, &budget), ERR_ARG, "CPU 1 is not");
}

TEST(test_split)
{
    struct plan p;

    assert_ok(plan_default(&p, &budget, 4));
    assert_ok(plan_split(&p, 2));
    assert_int_equal(p.prefill.n_ranks, 2);
    assert_int_equal(p.decode.n_threads, 2);
    assert_ok(plan_runnable(&p, &budget));
    round_trip(&p);
    assert_err(plan_split(&p, 3), ERR_ARG, "prefill's 4 threads do not divide by 3");
    p.decode.n_ranks = 3, p.decode.n_threads = 1;
    assert_err(plan_split(&p, 4), ERR_ARG, "decode's 3 threads");
    assert_err(plan_split(&p, 0), ERR_ARG, "divide by 0");
}

TEST(test_text)
{
    struct plan p;
    char *text;

    make(&p);
    assert_ok(plan_text(&p, &text));
    assert_non_null(strstr(text, "plan for a_machine (simulated)"));
    assert_non_null(strstr(text, "prefill: 2 ranks of 4 threads, 250 ms a step"));
    assert_non_null(strstr(text, "  rank 1: CPUs 1,3,5,7; memory node 1\n"));
    assert_non_null(strstr(text, "  rank 0: CPUs 1,3,0,2; memory node 1,0\n"));
    assert_non_null(strstr(text, "why: the nodes are read at full speed\n"));
    mem_free(text);
    assert_ok(plan_render(&p, &text));
    assert_string_equal(text, "PREFILL_RANKS=2\nPREFILL_THREADS=4\n"
                              "PREFILL_CPUS='0,2,4,6|1,3,5,7'\nPREFILL_NODES='0|1'\n"
                              "DECODE_RANKS=1\nDECODE_THREADS=4\n"
                              "DECODE_CPUS='1,3,0,2'\nDECODE_NODES='1,0'\n");
    mem_free(text);
}

static void assert_says(const struct plan *p, const char *part)
{
    char *text;

    assert_ok(plan_text(p, &text));
    if (!strstr(text, part))
        fail_msg("no \"%s\" in:\n%s", part, text);
    mem_free(text);
}

TEST(test_costs_text)
{
    struct plan p;
    char *text;

    make(&p);
    set_costs(&p);
    assert_says(&p, "\n  ms a step: 1 row 100, 2 rows 100, 512 rows 333.3\n");
    assert_says(&p, "\n  ms a step: 1 row 50, 64 rows 250\n");
    /* 0.05 + 0.2 (n - 1) / 63 against 0.1 + 0.2333 (n - 2) / 510 */
    assert_says(&p, "\na step of more than 19 rows costs less as prefill's\n");
    assert_ok(plan_render(&p, &text));
    assert_non_null(strstr(text, "\nDECODE_STEP_S='1:0.05|64:0.25'\n"));
    assert_non_null(strstr(text, "\nPREFILL_STEP_S='1:0.1|2:0.1|512:0.333333333'\n"));
    mem_free(text);
    p.decode.costs.seconds[0] = p.decode.costs.seconds[1] = 0.01;
    assert_says(&p, "\na step of 512 rows still costs no more as decode's\n");
    p.decode.costs.seconds[0] = p.decode.costs.seconds[1] = 5;
    assert_says(&p, "\na step of any rows costs less as prefill's\n");
    p.decode.costs.n = 0;
    assert_ok(plan_text(&p, &text));
    assert_null(strstr(text, "costs"));
    mem_free(text);
}

static int write_read_print(const struct plan *p)
{
    struct plan b = {0};
    char *text = NULL;
    int rc = plan_write(p, test_path("plan.json"));

    if (rc == OK)
        rc = plan_read(&b, test_path("plan.json"));
    if (rc == OK)
        rc = plan_text(&b, &text);
    mem_free(text);
    text = NULL;
    if (rc == OK)
        rc = plan_render(&b, &text);
    mem_free(text);
    plan_fini(&b);
    return rc;
}

/* Each allocation fails in turn: an error, nothing lost. */
TEST(test_memory_short)
{
    struct plan p;

    make(&p);
    set_costs(&p);
    set_sums(&p);
    set_tuned(&p);
    assert_true(test_allocations(write_read_print(&p), true) > 10);
    plan_fini(&p);
}

#define PHASES "\"prefill\":{\"ranks\":[\"0-1\"]},\"decode\":{\"ranks\":[\"0\"]}"
#define PREFILL(members)                                                                 \
    "{\"version\":2,\"decode\":{\"ranks\":[\"0\"]},\"prefill\":{" members "}}"

#define ROOT(member) "{\"version\":2," PHASES "," member "}"
#define SUMS(text)   PREFILL("\"ranks\":[\"0\"],\"allreduce\":" text)
#define COSTS(text)  PREFILL("\"ranks\":[\"0\"],\"step_s\":" text)

struct refusal {
    const char *text, *part;
};

static int parse(const char *path)
{
    struct plan p;
    int rc = plan_read(&p, path);

    plan_fini(&p);
    return rc;
}

static void assert_refused(const struct refusal *rows, size_t n)
{
    const struct test_document d = {.path = test_path("bad.json"), .parse = parse};

    for (size_t i = 0; i < n; i++)
        if (test_parse(&d, rows[i].text, strlen(rows[i].text)) == OK ||
            !strstr(err_msg(), rows[i].part))
            fail_msg("%s: %s", rows[i].text, err_msg());
}

TEST(test_refusals_of_tuned)
{
    static const struct refusal rows[] = {
        {SUMS("7"), "allreduce: expected the name of an algorithm"},
        {SUMS("\"mastercopy\""), "\"master_copy\""},
        {SUMS("[]"), "an array of 1 to 16 entries"},
        {SUMS("[[\"symmetric\",4]]"), "entry 0: expected [algorithm], as it is the last"},
        {SUMS("[[\"symmetric\"],[\"rank_shifted\"]]"),
         "entry 0: expected [algorithm, by"},
        {SUMS("[[\"symmetric\",0],[\"rank_shifted\"]]"),
         "entry 0: expected bytes in [1,"},
        {SUMS("[[\"symmetric\",8],[\"symmetric\",8],[\"rank_shifted\"]]"), "in [9,"},
        {SUMS("[[\"symetric\"]]"), "prefill: allreduce: "},
        {ROOT("\"method\":3"), "method: expected a string"},
        {ROOT("\"tried\":[]"), "tried: expected an object"},
        {ROOT("\"tried\":{}"), "tried: configurations: expected an array"},
        {ROOT("\"tried\":{\"configurations\":[]}"), "expected 1 to 64, found 0"},
        {ROOT("\"tried\":{\"chosen\":1,\"configurations\":[{}]}"), "chosen: expected an"},
        {ROOT("\"tried\":{\"chosen\":0,\"configurations\":[7]}"),
         "configurations[0]: exp"},
        {ROOT("\"tried\":{\"chosen\":0,\"configurations\":[{\"lo_s\":\"\"}]}"),
         "lo_s: exp"},
        {ROOT("\"schedules\":7"), "schedules: expected an object"},
        {ROOT("\"schedules\":{\"version\":2}"), "schedules: groups: expected an array"},
        {ROOT("\"schedules\":{\"version\":2,\"groups\":[],\"checksum\":\"0\"}"),
         "schedules: checksum"},
    };

    assert_refused(rows, sizeof(rows) / sizeof(rows[0]));
}

TEST(test_refusals)
{
    static const struct refusal rows[] = {
        {"[]", "expected an object"},
        {"{" PHASES "}", "version: expected an integer"},
        {"{\"version\":1,\"cpus\":\"0\"}", "make a new one with `sandwich plan"},
        {"{\"version\":3," PHASES "}", "version: expected an integer in [1, 2], found 3"},
        {"{\"version\":2,\"machin\":\"\"," PHASES "}", "did you mean \"machine\"?"},
        {"{\"version\":2,\"machine\":7," PHASES "}", "machine: expected a string"},
        {"{\"version\":2,\"evidence\":\"guessed\"," PHASES "}", "found \"guessed\""},
        {"{\"version\":2,\"truth\":\"guessed\"," PHASES "}", "found \"guessed\""},
        {"{\"version\":2,\"prefill\":{\"ranks\":[\"0\"]}}", "decode: expected an object"},
        {PREFILL(""), "prefill: ranks: expected an array"},
        {PREFILL("\"ranks\":[]"), "1 to 1024 lists, found 0"},
        {PREFILL("\"ranks\":[3]"), "rank 0: expected a list of CPUs"},
        {PREFILL("\"ranks\":[\"\"]"), "rank 0: expected a CPU at least"},
        {PREFILL("\"ranks\":[\"0-x\"]"), "rank 0: CPU list \"0-x\": offset 0"},
        {PREFILL("\"ranks\":[\"0-1\",\"2\"]"), "rank 1: expected 2 CPUs"},
        {PREFILL("\"ranks\":[\"0-1\",\"2,0\"]"), "rank 1: CPU 0 is named twice"},
        {PREFILL("\"ranks\":[\"0-1023\",\"1024\"]"), "more than 0 CPUs"},
        {PREFILL("\"ranks\":[\"1024\"]"), "CPUs below 1024, found 1024"},
        {PREFILL("\"ranks\":[\"0\"],\"rank\":1"), "did you mean \"ranks\"?"},
        {PREFILL("\"ranks\":[\"0-3\"],\"memory_nodes\":[]"), "expected 1 arrays"},
        {PREFILL("\"ranks\":[\"0-3\"],\"memory_nodes\":[[0,1,2]]"), "its 4 threads"},
        {PREFILL("\"ranks\":[\"0-3\"],\"memory_nodes\":[[]]"), "its 4 threads"},
        {PREFILL("\"ranks\":[\"0-3\"],\"memory_nodes\":[[-1]]"), "in [0, 1023]"},
        {PREFILL("\"ranks\":[\"0\"],\"expected_s\":\"1\""), "expected a number"},
        {PREFILL("\"ranks\":[\"0\"],\"expected_s\":0"), "seconds above 0, found 0"},
        {PREFILL("\"ranks\":[\"0\"],\"why\":[]"), "why: expected a string"},
        {COSTS("7"), "step_s: expected an array"},
        {COSTS("[]"), "prefill: step_s: expected 1 to 32 entries, found 0"},
        {COSTS("[1]"), "step_s: entry 0: expected [rows, seconds]"},
        {COSTS("[[1,1],[2]]"), "step_s: entry 1: expected [rows, seconds]"},
        {COSTS("[[1,2,3]]"), "expected [rows, seconds]"},
        {COSTS("[[1.5,1]]"), "expected [rows, seconds]"},
        {COSTS("[[1,\"1\"]]"), "expected [rows, seconds]"},
        {COSTS("[{\"1\":1,\"2\":1}]"), "expected [rows, seconds]"},
        {COSTS("[[0,1]]"), "entry 0: expected rows in [1, 65536]"},
        {COSTS("[[2,1],[2,1]]"), "entry 1: expected rows in [3, 65536]"},
        {COSTS("[[1,0]]"), "entry 0: expected seconds above 0, found 0"},
        {COSTS("[[1,-1e-3]]"), "found -0.001"},
    };
    char why[1024] = PREFILL("\"ranks\":[\"0\"],\"why\":\"");
    struct plan p;

    assert_refused(rows, sizeof(rows) / sizeof(rows[0]));
    why[strlen(why) - 2] = '\0'; /* without the braces that the macro closed */
    memset(why + strlen(why), 'x', 600);
    strcat(why, "\"}}");
    test_write(test_path("bad.json"), why, strlen(why));
    assert_err(plan_read(&p, test_path("bad.json")), ERR_LIMIT,
               "why: expected at most 599");
    assert_err(plan_read(&p, "/nonexistent/plan.json"), ERR_NOTFOUND, "/nonexistent");
}
