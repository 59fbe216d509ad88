/* Truths: from files, good and bad, and from a host's figures. */
#include "tests/simulate/contention.h"
#include "tests/support/faults.h"

static const char good[] =
    "{\n"
    "\"bandwidth_domains\": [{\"name\": \"C\", \"of\": 4, \"stride\": 1, "
    "\"gbps\": 30}],\n"
    "\"core_gbps\": 10,\n\"sharpness\": 2,\n\"node_gbps\": 80,\n"
    "\"node_factor\": [1, 0.5],\n"
    "\"contention_from\": 4,\n\"contention_per_core\": 0.01,\n"
    "\"same_package_factor\": 0.9,\n\"other_package_factor\": 0.6,\n"
    "\"link_gbps\": null,\n\"latency_ns\": 90,\n\"mlp\": 10,\n"
    "\"kappa\": 0,\n\"core_gflops\": 50,\n\"smt_factor\": 0.55,\n"
    "\"sync_ns\": [30, 40, 50, 60],\n\"noise_frac\": 0.01,\n"
    "\"spike_frac\": 0.05,\n\"spike_chance\": 0.01,\n"
    "\"assumed\": [\"kappa\"],\n\"sources\": [\"made up\"]\n}";

static const char *const two_nodes = "synthetic:node:2 core:8 pu:1";

static struct topo_machine *machine;

static int open_machine(void **state)
{
    (void)state;
    return topo_machine_open(&machine, two_nodes);
}

static int close_machine(void **state)
{
    (void)state;
    topo_machine_close(&machine);
    return 0;
}

TEST_GROUP(open_machine, close_machine);

/* Whatever opens prices a stream in finite time. */
static int parse(const char *path)
{
    static const int pus[] = {0, 3, 9};
    struct simulate_machine *s;
    double gbps;
    int rc = simulate_machine_open(&s, machine, path);

    if (rc != OK) {
        assert_null(s);
        return rc;
    }
    assert_ok(simulate_stream_gbps(s, pus, 3, &gbps));
    assert_true(isfinite(gbps) && gbps > 0);
    simulate_machine_close(&s);
    return OK;
}

static struct test_document document(void)
{
    return (struct test_document){
        .path = test_memory_file(), .data = good, .n = strlen(good), .parse = parse};
}

TEST(whole_file)
{
    const struct simulate_machine_params *t;
    struct simulate_machine *s;

    test_write(test_path("t.json"), good, strlen(good));
    assert_ok(simulate_machine_open(&s, machine, test_path("t.json")));
    t = simulate_params(s);
    assert_int_equal(t->n_domains, 1);
    assert_string_equal(t->domains[0].name, "C");
    assert_int_equal(t->domains[0].of, 4);
    assert_true(t->domains[0].gbps == 30 && t->core_gbps == 10 && t->node_gbps == 80);
    assert_true(t->node_factor[0] == 1 && t->node_factor[1] == 0.5);
    assert_true(t->sync_ns[3] == 60 && t->spike_chance == 0.01);
    assert_true(isinf(t->link_gbps)); /* null */
    simulate_machine_close(&s);
    assert_null(s);
}

/* Each slip is one line with the file and the key. */
TEST(bad_files)
{
    static const struct test_fault faults[] = {
        {"\"core_gbps\": 10,", "", ERR_FORMAT,
         "core_gbps: expected a number, found nothing"},
        {"\"core_gbps\": 10", "\"core_gbps\": -10", ERR_FORMAT,
         "core_gbps: expected a number in"},
        {"\"core_gbps\": 10", "\"core_gbps\": null", ERR_FORMAT, "core_gbps"},
        {"\"core_gbps\": 10", "\"core_gbps\": \"10\"", ERR_FORMAT, "core_gbps"},
        {"core_gbps", "core_gbsp", ERR_FORMAT, "did you mean \"core_gbps\"?"},
        {"\"smt_factor\": 0.55", "\"smt_factor\": 55", ERR_FORMAT, "smt_factor"},
        {"[30, 40, 50, 60]", "[30, 40, 50]", ERR_FORMAT, "sync_ns: expected 4 numbers"},
        {"[30, 40, 50, 60]", "[30, -1, 50, 60]", ERR_FORMAT, "sync_ns"},
        {"[30, 40, 50, 60]", "[30, 0, \"x\", 60]", ERR_FORMAT, "sync_ns[2]"},
        {"[1, 0.5]", "[1]", ERR_FORMAT, "node_factor: expected 2 numbers"},
        {"[1, 0.5]", "[1, 0]", ERR_FORMAT, "node_factor"},
        {"\"of\": 4", "\"of\": 0", ERR_FORMAT, "bandwidth_domains[0]: of"},
        {"\"of\": 4", "\"off\": 4", ERR_FORMAT, "did you mean \"of\"?"},
        {"\"of\": 4", "\"of\": 3", ERR_ARG,
         "bandwidth domain C of 3 at stride 1 does not tile the 8 cores"},
        {"\"stride\": 1", "\"stride\": 4", ERR_ARG, "of 4 at stride 4 does not tile"},
        {"\"gbps\": 30", "\"gbps\": 0", ERR_FORMAT, "bandwidth_domains[0]: gbps"},
        {"\"name\": \"C\"", "\"name\": \"longer than fifteen\"", ERR_LIMIT,
         "name: longer"},
        {"{\"name\": \"C\", \"of\": 4, \"stride\": 1, \"gbps\": 30}",
         "{}, {}, {}, {}, {}", ERR_LIMIT, "bandwidth_domains: 5, at most 4"},
        {"{\"name\": \"C\", \"of\": 4, \"stride\": 1, \"gbps\": 30}", "4", ERR_FORMAT,
         "bandwidth_domains[0]: expected an object"},
        {"[\"kappa\"]", "[\"kapa\"]", ERR_FORMAT, "did you mean \"kappa\""},
        {"[\"kappa\"]", "[7]", ERR_FORMAT, "assumed[0]"},
        {"\"sources\": [\"made up\"]", "\"note\": \"\"", ERR_FORMAT, "sources"},
        {NULL, "[]", ERR_FORMAT, "expected an object"},
    };
    const struct test_document d = document();
    struct simulate_machine *s;

    test_faults(&d, faults);
    assert_err(simulate_machine_open(&s, machine, "no/such.json"), ERR_NOTFOUND,
               "no/such.json");
}

/* Numbers without a file are held to the same ranges. */
TEST(bad_numbers)
{
    struct simulate_machine_params t = plain_params();
    struct topo_machine *m;
    struct simulate_machine *s;

    assert_ok(topo_machine_open(&m, two_nodes));
    t.latency_ns = NAN;
    assert_err(simulate_machine_new(&s, m, &t), ERR_ARG, "latency_ns");
    t = plain_params();
    t.node_factor[1] = 0;
    assert_err(simulate_machine_new(&s, m, &t), ERR_ARG, "node_factor");
    t = plain_params();
    t.n_domains = 5;
    assert_err(simulate_machine_new(&s, m, &t), ERR_ARG, "5 bandwidth domains");
    t.n_domains = 2;
    t.domains[0] = domain("a", 2, 1, 15);
    t.domains[1] = domain("b", 4, 2, 15); /* of 4 ports a node */
    assert_err(simulate_machine_new(&s, m, &t), ERR_ARG,
               "bandwidth domain b of 4 at stride 2 does not tile the 4 domains");
    topo_machine_close(&m);
    t = plain_params();
    assert_ok(topo_machine_open(&m, "synthetic:node:65 core:1 pu:1"));
    assert_err(simulate_machine_new(&s, m, &t), ERR_LIMIT, "65 memory nodes");
    topo_machine_close(&m);
}

TEST(mutants)
{
    const struct test_document d = document();

    assert_true(test_mutants(&d, 3000) > 0);
}

TEST(out_of_memory)
{
    const char *path = test_path("t.json");
    struct simulate_machine *s;

    test_write(path, good, strlen(good));
    assert_true(test_allocations(simulate_machine_open(&s, machine, path), !s) > 0);
    simulate_machine_close(&s);
}

/* ---- from a host's figures ---- */

/* The simulator reads with one thread and with all what the host did. */
static void check_calibrated(const char *spec, double one, double all)
{
    struct topo_machine *m;
    struct simulate_machine_params t;
    struct simulate_machine *s;
    int pus[256];

    assert_ok(topo_machine_open(&m, spec));
    assert_ok(simulate_machine_params_calibrate(&t, m, one, all, 400));
    assert_int_equal(t.n_domains, 0);
    assert_ok(simulate_machine_new(&s, m, &t));
    for (int i = 0; i < m->n_pus; i++)
        pus[i] = i;
    assert_near(stream(s, pus, m->n_pus), all, 1e-9, "all");
    if (all <= one * m->n_cores)
        assert_near(stream(s, pus, 1), one, 1e-9, "one");
    else /* faster together than apart: the figure of all counts */
        assert_near(stream(s, pus, 1), all / m->n_cores, 1e-9, "one's share");
    assert_near(t.core_gflops * m->n_cores, 400, 1e-12, "peak");
    simulate_machine_close(&s);
    topo_machine_close(&m);
}

TEST(calibrate)
{
    static const char *const specs[] = {
        "synthetic:core:2 pu:1", "synthetic:core:2 pu:2", "synthetic:node:2 core:16 pu:2",
        "synthetic:package:2 node:4 core:12 pu:1", "synthetic:core:1 pu:2"};
    struct topo_machine *m;
    struct simulate_machine_params t;
    struct rng r;

    rng_init(&r, test_seed(), "hosts");
    for (int i = 0; i < 200; i++) {
        const char *spec = specs[i % 5];
        int n_cores[] = {2, 2, 32, 96, 1}, n_nodes[] = {1, 1, 2, 8, 1};
        int n = n_cores[i % 5], nodes = n_nodes[i % 5];
        double one = 2 + 30 * rng_f64(&r);

        /* from a node that one thread fills to more than perfect scaling */
        check_calibrated(spec, one, one * (nodes + rng_f64(&r) * (1.1 * n - nodes)));
        check_calibrated(spec, one, one * n);
    }
    check_calibrated("synthetic:core:8 pu:1", 17, 17); /* one thread is enough */
    check_calibrated("synthetic:core:2 pu:1", 17.5, 34);

    assert_ok(topo_machine_open(&m, two_nodes));
    assert_err(simulate_machine_params_calibrate(&t, m, 20, 30, 400), ERR_ARG,
               "busy machine");
    assert_err(simulate_machine_params_calibrate(&t, m, 0, 30, 400), ERR_ARG,
               "cannot calibrate");
    assert_err(simulate_machine_params_calibrate(&t, m, 20, NAN, 400), ERR_ARG,
               "cannot calibrate");
    assert_err(simulate_machine_params_calibrate(&t, m, 20, 30, -1), ERR_ARG,
               "cannot calibrate");
    topo_machine_close(&m);
}
