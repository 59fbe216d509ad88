/* Truths: from files, good and bad, and from a host's figures. */
#include "tests/simulate/contention.h"

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

static const char *path_of_params(void)
{
    static char path[600];

    snprintf(path, sizeof(path), "%s/t.json", test_dir());
    return path;
}

/* `good` with the first `from` replaced; owned by the caller. */
static char *changed(const char *from, const char *to)
{
    const char *at = strstr(good, from);
    size_t n = sizeof(good) + strlen(to);
    char *text = mem_new(MEM_TEST, n, 1);

    assert_non_null(at);
    assert_non_null(text);
    snprintf(text, n, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    return text;
}

static int open_text(struct simulate_machine **s, const struct topo_machine *m,
                     const char *text, size_t n)
{
    test_write(path_of_params(), text, n);
    return simulate_machine_open(s, m, path_of_params());
}

TEST(whole_file)
{
    const struct simulate_machine_params *t;
    struct topo_machine *m;
    struct simulate_machine *s;

    assert_ok(topo_machine_open(&m, two_nodes));
    assert_ok(open_text(&s, m, good, strlen(good)));
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
    topo_machine_close(&m);
}

/* Each slip is one line with the file and the key. */
TEST(bad_files)
{
    static const struct {
        const char *from, *to, *part;
        int code;
    } bad[] = {
        {"\"core_gbps\": 10,", "", "core_gbps: expected a number, found nothing",
         ERR_FORMAT},
        {"\"core_gbps\": 10", "\"core_gbps\": -10", "core_gbps: expected a number in",
         ERR_FORMAT},
        {"\"core_gbps\": 10", "\"core_gbps\": null", "core_gbps", ERR_FORMAT},
        {"\"core_gbps\": 10", "\"core_gbps\": \"10\"", "core_gbps", ERR_FORMAT},
        {"core_gbps", "core_gbsp", "did you mean \"core_gbps\"?", ERR_FORMAT},
        {"\"smt_factor\": 0.55", "\"smt_factor\": 55", "smt_factor", ERR_FORMAT},
        {"[30, 40, 50, 60]", "[30, 40, 50]", "sync_ns: expected 4 numbers", ERR_FORMAT},
        {"[30, 40, 50, 60]", "[30, -1, 50, 60]", "sync_ns", ERR_FORMAT},
        {"[30, 40, 50, 60]", "[30, 0, \"x\", 60]", "sync_ns[2]", ERR_FORMAT},
        {"[1, 0.5]", "[1]", "node_factor: expected 2 numbers", ERR_FORMAT},
        {"[1, 0.5]", "[1, 0]", "node_factor", ERR_FORMAT},
        {"\"of\": 4", "\"of\": 0", "bandwidth_domains[0]: of", ERR_FORMAT},
        {"\"of\": 4", "\"off\": 4", "did you mean \"of\"?", ERR_FORMAT},
        {"\"of\": 4", "\"of\": 3",
         "bandwidth domain C of 3 at stride 1 does not tile the 8 cores", ERR_ARG},
        {"\"stride\": 1", "\"stride\": 4", "of 4 at stride 4 does not tile", ERR_ARG},
        {"\"gbps\": 30", "\"gbps\": 0", "bandwidth_domains[0]: gbps", ERR_FORMAT},
        {"\"name\": \"C\"", "\"name\": \"longer than fifteen\"", "name: longer",
         ERR_LIMIT},
        {"{\"name\": \"C\", \"of\": 4, \"stride\": 1, \"gbps\": 30}",
         "{}, {}, {}, {}, {}", "bandwidth_domains: 5, at most 4", ERR_LIMIT},
        {"{\"name\": \"C\", \"of\": 4, \"stride\": 1, \"gbps\": 30}", "4",
         "bandwidth_domains[0]: expected an object", ERR_FORMAT},
        {"[\"kappa\"]", "[\"kapa\"]", "did you mean \"kappa\"", ERR_FORMAT},
        {"[\"kappa\"]", "[7]", "assumed[0]", ERR_FORMAT},
        {"\"sources\": [\"made up\"]", "\"note\": \"\"", "sources", ERR_FORMAT},
    };
    struct topo_machine *m;
    struct simulate_machine *s;

    assert_ok(topo_machine_open(&m, two_nodes));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *text = changed(bad[i].from, bad[i].to);

        assert_err(open_text(&s, m, text, strlen(text)), bad[i].code, bad[i].part);
        assert_ptr_equal(strstr(err_msg(), path_of_params()), err_msg());
        assert_null(s);
        mem_free(text);
    }
    assert_err(open_text(&s, m, "[]", 2), ERR_FORMAT, "expected an object");
    assert_err(simulate_machine_open(&s, m, "no/such.json"), ERR_NOTFOUND,
               "no/such.json");
    topo_machine_close(&m);
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

/* ---- bytes nobody meant ---- */

/* Whatever opens prices a stream in finite time; whatever does not names the file. */
static void check_mutant(const struct topo_machine *m, const char *text, size_t n)
{
    static const int pus[] = {0, 3, 9};
    struct simulate_machine *s;
    double gbps;

    if (open_text(&s, m, text, n) != OK) {
        assert_non_null(strstr(err_msg(), path_of_params()));
        assert_null(strchr(err_msg(), '\n'));
        return;
    }
    assert_ok(simulate_stream_gbps(s, pus, 3, &gbps));
    assert_true(isfinite(gbps) && gbps > 0);
    simulate_machine_close(&s);
}

TEST(mutants)
{
    static const char interesting[] = "0123456789-+eE.,:\"[]{}nul \\\xff";
    char text[sizeof(good)];
    struct topo_machine *m;
    struct rng r;

    assert_ok(topo_machine_open(&m, two_nodes));
    rng_init(&r, test_seed(), "mutants");
    for (int i = 0; i < 3000; i++) {
        size_t n = strlen(good);

        memcpy(text, good, sizeof(good));
        for (uint64_t k = 1 + rng_below(&r, 4); k > 0; k--)
            text[rng_below(&r, n)] = interesting[rng_below(&r, sizeof(interesting) - 1)];
        if (rng_below(&r, 10) == 0)
            n = rng_below(&r, n);
        check_mutant(m, text, n);
    }
    topo_machine_close(&m);
}

TEST(out_of_memory)
{
    struct topo_machine *m;
    struct simulate_machine *s;
    int rc = ERR_NOMEM;

    assert_ok(topo_machine_open(&m, two_nodes));
    test_write(path_of_params(), good, strlen(good));
    for (long n = 0; rc != OK; n++) {
        assert_true(n < 1000);
        mem_fail_after(n, 1);
        rc = simulate_machine_open(&s, m, path_of_params());
        mem_fail_after(-1, 0);
        if (rc != OK) {
            assert_int_equal(rc, ERR_NOMEM);
            assert_null(s);
        }
    }
    simulate_machine_close(&s);
    topo_machine_close(&m);
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
