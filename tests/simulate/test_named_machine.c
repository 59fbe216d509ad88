/* The shipped machines, and finding one by name. */
#include <sys/stat.h>

#include "tests/simulate/contention.h"
#include "tests/support/faults.h"
#include "topo/service_config.h"

static char *join(const char *dir, const char *file)
{
    static char path[2][600];
    static int at;

    at = !at;
    snprintf(path[at], sizeof(path[at]), "%s/%s", dir, file);
    return path[at];
}

static void write_text(const char *path, const char *text)
{
    test_write(path, text, strlen(text));
}

/* Every shipped machine opens, is symmetric as a whole, and prices a step. */
TEST(all_shipped)
{
    const struct topo_limits any = {0};
    struct simulate_workload w = {TOPO_DECODE, 1, {{.weight = 1, .weight_bytes = 1e9}}};
    const char *const *names;
    char list[16][96], note[256];
    int n = 0;

    assert_ok(simulate_named_machines(MACHINES, &names));
    for (; names[n]; n++)
        snprintf(list[n], sizeof(list[n]), "%s", names[n]);
    assert_true(n >= 6);
    for (int i = 0; i < n; i++) {
        struct topo_machine *m;
        struct topo_tree *tree;
        struct topo_config c;
        struct simulate_machine *s;
        double seconds;

        assert_true(i == 0 || strcmp(list[i - 1], list[i]) < 0); /* sorted */
        open_shipped(list[i], &m, &s);
        assert_string_equal(m->name, list[i]);
        assert_string_equal(simulate_params(s)->name, list[i]);
        assert_true(m->nodes[0].bytes > 0 && m->l3_bytes > 0);
        assert_ok(topo_tree_open(&tree, m, NULL, note, sizeof(note)));
        assert_string_equal(note, "");
        assert_int_equal(tree->n_pus, m->n_pus);
        assert_ok(topo_config_cut(&c, tree, 1, &any));
        assert_ok(simulate_seconds(s, &c, NULL, &w, &seconds));
        assert_true(seconds > 1e-4 && seconds < 1); /* 1 to 10000 GB/s */
        mem_free(tree);
        simulate_machine_close(&s);
        topo_machine_close(&m);
    }
}

/* What the paper and the vendors say of them; 24 products of removals of the paper. */
TEST(shapes)
{
    static const struct {
        const char *name;
        int n_pus, n_cores, n_packages, n_nodes, n_l3;
        int64_t n_removals;
    } want[] = {
        {"kunpeng920x4", 192, 192, 4, 8, 8, 4 * 2 * 24},
        {"epyc7h12x2-nps1", 256, 128, 2, 2, 32, 256},
        {"epyc7h12x2-nps4", 256, 128, 2, 8, 32, 256},
        {"xeon6230x2", 80, 40, 2, 2, 2, 80},
        {"xeon6151x2", 72, 36, 2, 2, 2, 72},
        {"xeon8272clx2", 104, 52, 2, 2, 2, 104},
    };
    char params[512];

    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct topo_machine *m;
        struct topo_tree *tree;

        assert_ok(simulate_named_machine_open(&m, want[i].name, MACHINES, params, 512));
        assert_int_equal(m->n_pus, want[i].n_pus);
        assert_int_equal(m->n_cores, want[i].n_cores);
        assert_int_equal(m->n_packages, want[i].n_packages);
        assert_int_equal(m->n_nodes, want[i].n_nodes);
        assert_int_equal(m->n_l3, want[i].n_l3);
        assert_ok(topo_tree_open(&tree, m, NULL, NULL, 0));
        assert_int_equal(topo_tree_remove_count(tree), want[i].n_removals);
        /* siblings are numbered i and i + all cores, so child order keeps them apart */
        if (m->n_pus > m->n_cores) {
            assert_int_equal(tree->levels[tree->n_levels - 2].arity, 2);
            assert_int_equal(m->pus[tree->pus[1]].os_index, m->n_cores);
        }
        mem_free(tree);
        topo_machine_close(&m);
    }
}

TEST(by_name_and_path)
{
    const char *dir = test_dir();
    const char *text = "{\"machine\": \"M\", \"about\": \"a\", "
                       "\"synthetic\": \"node:2 core:2 pu:1\"}";
    struct topo_machine *m;
    char params[600], tight[8];

    write_text(join(dir, "two.json"), text);
    assert_ok(simulate_named_machine_open(&m, "two", dir, params, sizeof(params)));
    assert_string_equal(params, ""); /* it has none */
    assert_string_equal(m->name, "two");
    assert_int_equal(m->n_pus, 4);
    topo_machine_close(&m);

    assert_int_equal(mkdir(join(dir, "params"), 0777), 0);
    write_text(join(dir, "params/two.json"), "{}");
    assert_ok(
        simulate_named_machine_open(&m, join(dir, "two.json"), "no/such", params, 600));
    assert_string_equal(params, join(dir, "params/two.json"));
    topo_machine_close(&m);

    assert_err(simulate_named_machine_open(&m, "twoo", dir, params, 600), ERR_NOTFOUND,
               "did you mean \"two\"?");
    assert_null(m);
    assert_err(simulate_named_machine_open(&m, "kunpeng", MACHINES, params, 600),
               ERR_NOTFOUND, "did you mean \"kunpeng920x4\"?");
    assert_err(simulate_named_machine_open(&m, "./none.json", dir, params, 600),
               ERR_NOTFOUND, "none.json");
    assert_err(simulate_named_machine_open(&m, "two", "no/such", params, 600),
               ERR_NOTFOUND, "no/such");
    assert_err(simulate_named_machine_open(&m, "two", dir, tight, sizeof(tight)),
               ERR_LIMIT, "parameters");
}

TEST(bad_files)
{
    static const struct {
        const char *text, *part;
        int code;
    } bad[] = {
        {"[]", "expected an object", ERR_FORMAT},
        {"{\"about\": \"a\", \"synthetic\": \"pu:2\"}", "machine", ERR_FORMAT},
        {"{\"machine\": \"M\", \"synthetic\": \"pu:2\"}", "about", ERR_FORMAT},
        {"{\"machine\": \"M\", \"about\": \"a\"}", "synthetic", ERR_FORMAT},
        {"{\"machine\": \"M\", \"about\": \"a\", \"synthetic\": \"pu:x\"}", "levels",
         ERR_FORMAT},
        {"{\"machine\": \"M\", \"about\": \"a\", \"synthetc\": \"pu:2\"}",
         "did you mean \"synthetic\"?", ERR_FORMAT},
        {"{\"machine\": \"M\"", "bad.json", ERR_FORMAT},
    };
    const char *path = join(test_dir(), "bad.json");
    struct topo_machine *m;
    char params[600];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_text(path, bad[i].text);
        assert_err(simulate_named_machine_open(&m, path, "", params, 600), bad[i].code,
                   bad[i].part);
        assert_non_null(strstr(err_msg(), path));
        assert_null(m);
    }
}

/* Bytes nobody meant: a machine, or one line that names the file. */
TEST(mutants)
{
    static const char interesting[] = "0123456789:.,()[]{}\"nume =*\xff";
    const char *path = join(test_dir(), "mutant.json");
    struct topo_machine *m;
    struct rng r;
    char params[600], *text;
    size_t n, end;

    text = test_read(MACHINES "/xeon6230x2.json", &n);
    /* hwloc, which reads what follows, loses memory on some strings it refuses */
    end = (size_t)(strstr(text, "package:") - text);
    rng_init(&r, test_seed(), "mutants");
    for (int i = 0; i < 1000; i++) {
        char *mutant = mem_strndup(MEM_TEST, text, n);

        assert_non_null(mutant);
        for (uint64_t k = 1 + rng_below(&r, 3); k > 0; k--)
            mutant[rng_below(&r, end)] =
                interesting[rng_below(&r, sizeof(interesting) - 1)];
        test_write(path, mutant, n);
        if (simulate_named_machine_open(&m, path, "", params, sizeof(params)) != OK) {
            assert_non_null(strstr(err_msg(), path));
            assert_null(strchr(err_msg(), '\n'));
        } else {
            assert_true(m->n_pus > 0);
        }
        topo_machine_close(&m);
        mem_free(mutant);
    }
    mem_free(text);
}

/* Each allocation fails in turn. */
TEST(out_of_memory)
{
    struct topo_machine *m;
    char params[600];

    assert_true(test_allocations(
                    simulate_named_machine_open(&m, "xeon6230x2", MACHINES, params, 600),
                    !m) > 0);
    topo_machine_close(&m);
}
