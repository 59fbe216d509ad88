#include "tests/support/faults.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "topo/machine_text.h"

/* What every machine must satisfy, wherever it came from. */
static void check_sane(const struct topo_machine *m)
{
    int n_with_node = 0;

    assert_true(m->n_pus >= 1 && m->n_nodes >= 1);
    assert_true(m->name[0] && m->source[0]);
    for (int i = 0; i < m->n_pus; i++) {
        const struct topo_pu *p = &m->pus[i];

        assert_true(i == 0 || m->pus[i - 1].os_index < p->os_index);
        assert_in_range(p->core + 1, m->n_cores ? 1 : 0, m->n_cores);
        assert_in_range(p->l2 + 1, 0, m->n_l2);
        assert_in_range(p->l3 + 1, 0, m->n_l3);
        assert_in_range(p->package + 1, 0, m->n_packages);
        assert_in_range(p->cluster + 1, 0, m->n_clusters);
        assert_in_range(p->node + 1, 0, m->n_nodes);
        assert_int_equal(topo_node_of_cpu(m, p->os_index),
                         p->node < 0 ? -1 : m->nodes[p->node].os_index);
        n_with_node += p->node >= 0;
    }
    assert_int_equal(n_with_node, m->n_pus);
    assert_int_equal(topo_node_of_cpu(m, INT_MAX), -1);
}

/* How many groups of `m` (by the member at `offset`) hold exactly `n_cores` cores. */
static int groups_of(const struct topo_machine *m, size_t offset, int n_groups,
                     int n_cores)
{
    int found = 0;

    for (int g = 0; g < n_groups; g++) {
        char *seen = mem_new(MEM_TEST, (size_t)m->n_cores + 1, 1);
        int n = 0;

        assert_non_null(seen);
        for (int i = 0; i < m->n_pus; i++) {
            int core = m->pus[i].core;

            if (*(const int *)((const char *)&m->pus[i] + offset) == g && !seen[core]) {
                seen[core] = 1;
                n++;
            }
        }
        found += n == n_cores;
        mem_free(seen);
    }
    return found;
}

static int64_t get(const json_t *row, const char *key)
{
    int64_t v;

    assert_ok(json_get_int(row, key, 0, INT_MAX, &v, "topologies.json"));
    return v;
}

static void check_row(const json_t *row)
{
    const json_t *mib = json_object_get(row, "numa_mib");
    const json_t *kib = json_object_get(row, "l3_kib"), *v;
    const char *file, *key;
    struct topo_machine *m;
    char relative[256];
    int64_t l3 = 0;
    size_t i;

    assert_ok(json_get_str(row, "file", &file, "topologies.json"));
    snprintf(relative, sizeof(relative), "hwloc/%s", file);
    printf("# %s\n", file);
    assert_ok(topo_machine_open(&m, test_data(relative)));
    check_sane(m);
    assert_string_equal(m->source, "xml");
    assert_int_equal(m->n_pus, get(row, "pus"));
    assert_int_equal(m->n_cores, get(row, "cores"));
    assert_int_equal(m->n_packages, get(row, "packages"));
    assert_int_equal(m->n_nodes, get(row, "numa"));
    assert_int_equal(m->n_l3, get(row, "l3"));
    json_array_foreach((json_t *)mib, i, v)
        assert_int_equal(m->nodes[i].bytes >> 20, json_integer_value(v));
    json_array_foreach((json_t *)kib, i, v) l3 =
        json_integer_value(v) > l3 ? json_integer_value(v) : l3;
    assert_int_equal(m->l3_bytes, l3 << 10);
    json_object_foreach((json_t *)json_object_get(row, "cores_per_l3"), key, v)
        assert_int_equal(groups_of(m, offsetof(struct topo_pu, l3), m->n_l3, atoi(key)),
                         json_integer_value(v));
    topo_machine_close(&m);
    assert_null(m);
}

TEST(real_machines)
{
    const char *path = test_need_data("hwloc/topologies.json");
    json_t *rows, *row;
    size_t i;

    assert_ok(json_read_file(&rows, path, 1 << 20));
    assert_true(json_array_size(rows) > 0);
    json_array_foreach(rows, i, row) check_row(row);
    json_decref(rows);
}

static struct topo_machine *open_data(const char *relative)
{
    struct topo_machine *m;

    assert_ok(topo_machine_open(&m, test_need_data(relative)));
    check_sane(m);
    return m;
}

/* Knights Landing in flat mode: MCDRAM and DRAM; CPUs belong to their DRAM. */
TEST(fast_memory_is_not_the_default)
{
    struct topo_machine *m = open_data("hwloc/deeper-knl-snc4-flat.xml");

    for (int i = 0; i < m->n_pus; i++) {
        assert_true(m->nodes[m->pus[i].node].bytes > INT64_C(20) << 30);
        assert_int_equal(m->pus[i].l3, -1);
    }
    assert_non_null(strstr(m->note, "4 memory nodes besides"));
    assert_non_null(strstr(m->note, "no L3"));
    assert_int_equal(m->l3_bytes, 0);
    topo_machine_close(&m);
}

TEST(hybrid_kinds)
{
    struct topo_machine *m = open_data("hwloc/hwloc-RaptorLake-i7-1370P-hybrid.xml");
    int weak = 0, strong = 0;

    for (int i = 0; i < m->n_pus; i++) {
        weak += m->pus[i].kind == 0;
        strong += m->pus[i].kind > 0;
    }
    assert_int_equal(strong, 12); /* 6 performance cores with SMT */
    assert_int_equal(weak, 8);    /* 8 efficiency cores */
    topo_machine_close(&m);
}

/* Five kinds by capacity, 718 731 997 1017 1024: two types of core. */
TEST(kinds_that_hardly_differ)
{
    struct topo_machine *m = open_data("hwloc/hwloc-DGX-GB10-biglittle.xml");
    int n[2] = {0};

    for (int i = 0; i < m->n_pus; i++) {
        assert_in_range(m->pus[i].kind, 0, 1);
        n[m->pus[i].kind]++;
        assert_int_equal(m->pus[i].kind, m->pus[i].os_index / 5 % 2);
    }
    assert_true(n[0] == 10 && n[1] == 10);
    topo_machine_close(&m);
}

TEST(synthetic)
{
    struct topo_machine *m;

    assert_ok(topo_machine_open(&m, "synthetic:node:2 l3:1 core:4 pu:2"));
    check_sane(m);
    assert_int_equal(m->n_pus, 16);
    assert_int_equal(m->n_cores, 8);
    assert_int_equal(m->n_nodes, 2);
    assert_int_equal(m->n_l3, 2);
    assert_int_equal(m->nodes[0].n_pus, 8);
    assert_int_equal(topo_node_of_cpu(m, 7), m->nodes[0].os_index);
    assert_int_equal(topo_node_of_cpu(m, 8), m->nodes[1].os_index);
    assert_int_equal(m->pus[0].core, m->pus[1].core);
    topo_machine_close(&m);
    assert_ok(topo_machine_open(&m, "synthetic:pu:1"));
    check_sane(m);
    assert_int_equal(m->n_nodes, 1);
    topo_machine_close(&m);
    assert_ok(topo_machine_open(&m, "synthetic:core:4 pu:2(indexes=2*4:4*1)"));
    check_sane(m);
    assert_int_equal(m->pus[4].core, m->pus[0].core);
    assert_null(strstr(m->note, "indexes"));
    topo_machine_close(&m);
    assert_ok(topo_machine_open(&m, "synthetic:core:4 pu:2(indexes=nonsense)"));
    assert_int_equal(m->pus[1].core, m->pus[0].core);
    assert_non_null(strstr(m->note, "indexes"));
    topo_machine_close(&m);
}

static void assert_same(const struct topo_machine *a, const struct topo_machine *b)
{
    assert_int_equal(a->n_pus, b->n_pus);
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_cores, b->n_cores);
    assert_int_equal(a->n_l2, b->n_l2);
    assert_int_equal(a->n_l3, b->n_l3);
    assert_int_equal(a->n_clusters, b->n_clusters);
    assert_int_equal(a->n_packages, b->n_packages);
    assert_int_equal(a->l1d_bytes, b->l1d_bytes);
    assert_int_equal(a->l2_bytes, b->l2_bytes);
    assert_int_equal(a->l3_bytes, b->l3_bytes);
    assert_string_equal(a->note, b->note);
    assert_memory_equal(a->pus, b->pus, sizeof(*a->pus) * (size_t)a->n_pus);
    assert_memory_equal(a->nodes, b->nodes, sizeof(*a->nodes) * (size_t)a->n_nodes);
}

/* From a string, and from the file that hwloc once made of it. */
TEST(xml_of_synthetic)
{
    struct topo_machine *a, *b;
    char *xml;
    size_t n;

    assert_ok(topo_machine_open(&a, "synthetic:package:2 node:2 l3:1 l2:2 core:1 pu:2"));
    assert_ok(topo_machine_open(&b, "tests/fuzz/corpus/topology/good.xml"));
    assert_string_equal(b->name, "good");
    assert_string_equal(b->source, "xml");
    assert_int_equal(a->n_pus, 16);
    assert_same(a, b);
    assert_err(topo_machine_xml(b, &xml, &n), ERR_UNSUPPORTED, "only this host");
    topo_machine_close(&a);
    topo_machine_close(&b);
}

/* What a child read of this host's XML is what this process read of the host. */
TEST(xml_of_this_host)
{
    struct topo_machine *a, *b;
    char path[512], *xml;
    size_t n;

    assert_ok(topo_machine_open(&a, NULL));
    assert_ok(topo_machine_xml(a, &xml, &n));
    assert_int_equal(strlen(xml), n);
    assert_non_null(strstr(xml, "<topology version=\"2.0\""));
    snprintf(path, sizeof(path), "%s/round.xml", test_dir());
    test_write(path, xml, n);
    assert_ok(topo_machine_open(&b, path));
    assert_string_equal(b->name, "round");
    assert_same(a, b);
    mem_free(xml);
    topo_machine_close(&a);
    topo_machine_close(&b);
}

TEST(this_host)
{
    struct topo_machine *m;
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    assert_ok(topo_machine_open(&m, NULL));
    check_sane(m);
    assert_string_equal(m->source, "host");
    assert_true(m->n_pus <= online);
    topo_machine_close(&m);
}

TEST(sysfs_dumps)
{
    static const struct {
        const char *stem;
        int n_pus, n_nodes, n_packages, n_clusters, cluster_cores;
    } dumps[] = {{"128arm-2pa2n8cluster4co", 128, 4, 2, 32, 4},
                 {"nvidia-dgx-gb10", 20, 1, 1, 2, 10}}; /* its clusters are caches too */

    unsetenv("HWLOC_DONT_MERGE_CLUSTER_GROUPS");
    setenv("HWLOC_COMPONENTS", "no_os", 1); /* not asked, and not lost */
    for (size_t i = 0; i < 2; i++) {
        char relative[128], cmd[2400], spec[512];
        struct topo_machine *m;
        const char *tar;

        snprintf(relative, sizeof(relative), "hwloc/fsroot/%s.tar.bz2", dumps[i].stem);
        tar = test_need_data(relative);
        snprintf(cmd, sizeof(cmd), "tar xjf '%s' -C '%s' 2>/dev/null", tar, test_dir());
        if (system(cmd) != 0)
            test_skip("cannot unpack %s (tar or bzip2 missing)", relative);
        snprintf(spec, sizeof(spec), "fsroot:%s/%s", test_dir(), dumps[i].stem);
        assert_ok(topo_machine_open(&m, spec));
        check_sane(m);
        assert_string_equal(m->name, dumps[i].stem);
        assert_int_equal(m->n_pus, dumps[i].n_pus);
        assert_int_equal(m->n_nodes, dumps[i].n_nodes);
        assert_int_equal(m->n_packages, dumps[i].n_packages);
        assert_int_equal(m->n_clusters, dumps[i].n_clusters);
        assert_int_equal(groups_of(m, offsetof(struct topo_pu, cluster), m->n_clusters,
                                   dumps[i].cluster_cores),
                         m->n_clusters);
        topo_machine_close(&m);
    }
    assert_null(getenv("HWLOC_FSROOT"));
    assert_null(getenv("HWLOC_DONT_MERGE_CLUSTER_GROUPS"));
    assert_string_equal(getenv("HWLOC_COMPONENTS"), "no_os");
    unsetenv("HWLOC_COMPONENTS");
}

TEST(bad_input_is_refused)
{
    struct topo_machine *m;
    char path[512], spec[600];

    assert_err(topo_machine_open(&m, "nonsense"), ERR_ARG, "expected host");
    assert_null(m);
    assert_err(topo_machine_open(&m, "/no/such.xml"), ERR_IO, "/no/such.xml");
    assert_err(topo_machine_open(&m, "synthetic:"), ERR_FORMAT, "synthetic");
    assert_err(topo_machine_open(&m, "synthetic:core:x"), ERR_FORMAT, "core:x");
    assert_err(topo_machine_open(&m, "synthetic:node:1000 core:1000 pu:1000"), ERR_LIMIT,
               "more than");
    assert_err(topo_machine_open(&m, "fsroot:/no/such"), ERR_IO, "not a directory");
    snprintf(path, sizeof(path), "%s/bad.xml", test_dir());
    test_write(path, "<topology><object </topology>", 29);
    assert_err(topo_machine_open(&m, path), ERR_FORMAT, "bad.xml");
    test_write(path, "", 0);
    assert_err(topo_machine_open(&m, path), ERR_FORMAT, "bad.xml");
    assert_null(m);
    snprintf(spec, sizeof(spec), "%s/dir.xml", test_dir());
    assert_int_equal(mkdir(spec, 0755), 0);
    assert_err(topo_machine_open(&m, spec), ERR_LIMIT, "expected a file");
    topo_machine_close(&m); /* NULL is fine */
}

/* A cut file is refused; the error is ours, not a crash. */
TEST(truncated_xml)
{
    struct topo_machine *m;
    char path[512], *xml;
    size_t n;

    xml = test_read("tests/fuzz/corpus/topology/good.xml", &n);
    snprintf(path, sizeof(path), "%s/cut.xml", test_dir());
    for (size_t cut = 0; cut + 12 < n; cut += 1 + n / 97) {
        test_write(path, xml, cut);
        assert_err(topo_machine_open(&m, path), ERR_FORMAT, "cut.xml");
    }
    mem_free(xml);
}

/* Files on which hwloc 2.9 ends the process that reads them: a set that is missing, and a set
 * that begins with a comma. Other versions may refuse or load them. */
TEST(xml_that_crashes_hwloc)
{
    static const char *const names[] = {"no_nodeset.xml", "odd_set.xml"};
    struct topo_machine *m;
    char path[128];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "tests/fuzz/corpus/topology/%s", names[i]);
        if (topo_machine_open(&m, path) == OK)
            check_sane(m);
        else
            assert_non_null(strstr(err_msg(), names[i]));
        topo_machine_close(&m);
    }
}

/* What a broken process might print is checked. */
TEST(text_is_checked)
{
    static const char good[] = "2 1 1 0 0 0 1\n32768 0 0\nno L2\n0 1024 2 HBM\n"
                               "0 0 -1 -1 -1 0 0 -1\n3 0 -1 -1 -1 0 0 1\n";
    static const struct {
        const char *from, *to;
    } changes[] = {
        {"2 1 1", "0 1 1"},
        {"2 1 1", "3 1 1"},
        {"2 1 1", "99999999 1 1"},
        {"2 1 1", "2 0 1"},
        {"\n3 0 -1", "\n0 0 -1"},
        {"\n3 0 -1", "\n3 1 -1"},
        {"\n3 0 -1", "\n3 0 0"},
        {"32768", "-1"},
        {"1024 2", "1024 9"},
        {"-1 0 0 1", "-1 1 0 1"},
        {"-1 0 0 1", "-1 0 0 -2"},
        {"-1 0 0 1\n", "-1 0 0"},
        {"32768", ""},
    };
    struct topo_machine m = {.name = "made up"};
    const char *rest;

    assert_ok(topo_machine_parse(&m, good, &rest, "good"));
    assert_string_equal(rest, "");
    assert_int_equal(m.pus[1].os_index, 3);
    assert_int_equal(m.pus[1].kind, 1);
    assert_string_equal(m.nodes[0].subtype, "HBM");
    assert_string_equal(m.note, "no L2");
    mem_free(m.pus);
    mem_free(m.nodes);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        const char *at = strstr(good, changes[i].from);
        char text[256];

        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, changes[i].to,
                 at + strlen(changes[i].from));
        m = (struct topo_machine){.name = "made up"};
        assert_err(topo_machine_parse(&m, text, &rest, "FILE"), ERR_FORMAT,
                   "FILE: expected 1 to");
        mem_free(m.pus);
        mem_free(m.nodes);
    }
}

TEST(memory_runs_out)
{
    struct topo_machine *m;

    assert_true(test_allocations(topo_machine_open(&m, "synthetic:node:2 core:2 pu:1"),
                                 !m) >= 3); /* the machine, its nodes, its CPUs */
    topo_machine_close(&m);
}
