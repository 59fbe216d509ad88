/* What a machine does not report, or the environment reports in its place. */
#include "tests/support/tree.h"

#include <sched.h>
#include <sys/resource.h>

/* Two packages of two CPUs and a memory node, then further nodes, and what follows them. */
static const char *write_xml(const char *node1, const char *node2, const char *rest)
{
    static const char text[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
        "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" complete_cpuset=\"0xf\""
        " allowed_cpuset=\"0xf\" nodeset=\"%s\" complete_nodeset=\"%s\""
        " allowed_nodeset=\"%s\" gp_index=\"1\">\n"
        "<object type=\"Package\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\""
        " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"2\">\n"
        "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\""
        " nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"3\""
        " local_memory=\"4294967296\"/>\n%s"
        "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\""
        " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"4\"/>\n"
        "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\""
        " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"5\"/></object>\n"
        "<object type=\"Package\" os_index=\"1\" cpuset=\"0xc\" complete_cpuset=\"0xc\""
        " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"6\">\n%s"
        "<object type=\"PU\" os_index=\"2\" cpuset=\"0x4\" complete_cpuset=\"0x4\""
        " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"7\"/>\n"
        "<object type=\"PU\" os_index=\"3\" cpuset=\"0x8\" complete_cpuset=\"0x8\""
        " nodeset=\"%s\" complete_nodeset=\"%s\" gp_index=\"8\"/></object>\n"
        "</object>\n%s</topology>\n";
    static char path[512];
    const char *all = *node2 ? "0x7" : *node1 ? "0x3" : "0x1";
    const char *a = *node2 ? "0x5" : "0x1", *b = *node1 ? "0x2" : "0x0";
    char xml[6000];
    int n = snprintf(xml, sizeof(xml), text, all, all, all, a, a, node2, a, a, a, a, b, b,
                     node1, b, b, b, b, rest);

    snprintf(path, sizeof(path), "%s/small.xml", test_dir());
    test_write(path, xml, (size_t)n);
    return path;
}

/* Node 1 is of the second package, node 2 another one of the first. */
#define NODE1(bytes) NODE("1", "0xc", "0x2", "9", bytes)
#define NODE2(bytes) NODE("2", "0x3", "0x4", "10", bytes)
#define NODE(os, cpus, set, gp, bytes)                                                   \
    "<object type=\"NUMANode\" os_index=\"" os "\" cpuset=\"" cpus "\""                  \
    " complete_cpuset=\"" cpus "\" nodeset=\"" set "\" complete_nodeset=\"" set "\""     \
    " gp_index=\"" gp "\" local_memory=\"" bytes "\"/>\n"
#define KIND(set, rank, infos)                                                           \
    "<cpukind cpuset=\"" set "\" forced_efficiency=\"" rank "\">" infos "</cpukind>\n"
#define INFO(name, value) "<info name=\"" name "\" value=\"" value "\"/>"

static struct topo_machine *open_small(const char *node1, const char *node2,
                                       const char *rest)
{
    struct topo_machine *m;

    assert_ok(topo_machine_open(&m, write_xml(node1, node2, rest)));
    assert_int_equal(m->n_pus, 4);
    return m;
}

/* CPUs of no memory node were refused by the simulator, and bound to none by the engine. */
TEST(cpus_without_a_memory_node)
{
    struct topo_machine *m = open_small("", "", "");

    for (int i = 0; i < 4; i++)
        assert_int_equal(m->pus[i].node, 0);
    topo_machine_close(&m);
    m = open_small(NODE1("0"), "", ""); /* a node without memory */
    assert_int_equal(m->n_nodes, 2);
    assert_int_equal(m->pus[1].node, 0);
    assert_int_equal(m->pus[2].node, 0);
    assert_non_null(strstr(m->note, "2 CPUs without a memory node of their own"));
    topo_machine_close(&m);
    m = open_small(NODE1("1024"), "", "");
    assert_int_equal(m->pus[2].node, 1);
    assert_null(strstr(m->note, "without a memory node"));
    topo_machine_close(&m);
}

/* A CPU number of a small file asked for 512 MB, and the refusal named the file's stem only. */
TEST(memory_of_a_small_file)
{
    const char *path = write_xml("", "", "");
    struct topo_machine *m;
    struct rusage used;
    size_t n;
    char *xml = test_read(path, &n), *text = mem_new(MEM_TEST, n + 12, 1), *at;

    memcpy(text, xml, n);
    at = strstr(text, "\"PU\" os_index=\"3\"");
    assert_non_null(at);
    memmove(at + 24, at + 15, strlen(at + 15) + 1);
    memcpy(at + 15, "4294967294", 10);
    test_write(path, text, strlen(text));
    assert_err(topo_machine_open(&m, path), ERR_FORMAT, path);
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
    assert_in_range(used.ru_maxrss, 1, 256 << 10); /* KiB */
    mem_free(xml);
    mem_free(text);
}

/* From a node without memory two others are at different distances, in either order. */
TEST(nearest_by_distance)
{
#define DISTANCES(to_0, to_2)                                                            \
    "<distances2 type=\"NUMANode\" nbobjs=\"3\" kind=\"5\" indexing=\"os\">\n"           \
    "<indexes length=\"6\">0 1 2 </indexes>\n<u64values length=\"27\">10 " to_0          \
    " 15 " to_0 " 10 " to_2 " 15 " to_2 " 10 </u64values></distances2>\n"
    static const char *const distances[] = {DISTANCES("30", "20"), DISTANCES("20", "30")};

    for (int i = 0; i < 2; i++) {
        struct topo_machine *m =
            open_small(NODE1("0"), NODE2("4294967296"), distances[i]);

        assert_int_equal(m->n_nodes, 3);
        assert_int_equal(topo_node_of_cpu(m, 3), i == 0 ? 2 : 0);
        assert_int_equal(topo_node_of_cpu(m, 0), 0);
        topo_machine_close(&m);
    }
}

/* The CPUs that stay in the tree, as bits. */
static int in_tree(const char *kinds, const char *note)
{
    struct topo_machine *m = open_small(NODE1("1024"), "", kinds);
    struct topo_tree *t;
    char text[256];
    int set = 0;

    assert_ok(topo_tree_open(&t, m, NULL, text, sizeof(text)));
    assert_string_equal(text, note);
    for (int i = 0; i < t->n_pus; i++)
        set |= 1 << m->pus[t->pus[i]].os_index;
    mem_free(t);
    topo_machine_close(&m);
    return set;
}

/* Of two CPUs of four nothing was known, and half of the machine was left out as less
 * powerful. */
TEST(unknown_kind_is_not_the_worst)
{
    assert_int_equal(in_tree(KIND("0x3", "1", INFO("FrequencyMaxMHz", "2400")), ""), 15);
    assert_int_equal(in_tree(KIND("0x3", "1", INFO("CoreType", "IntelCore")), ""), 15);
    assert_int_equal(
        in_tree(KIND("0x1", "1", INFO("LinuxCapacity", "500"))
                    KIND("0x2", "2", INFO("LinuxCapacity", "1024")),
                "1 of 4 CPUs left out: less powerful cores than the other 3; 1 of 3 CPUs "
                "left out for equal subtrees: 1 to 2 PU in a package+node"),
        6);
}

/* Clocks of equal cores differ: alone they make no kinds. */
TEST(clocks_alone_make_no_kind)
{
    assert_int_equal(in_tree(KIND("0x3", "1", INFO("FrequencyMaxMHz", "2400"))
                                 KIND("0xc", "2", INFO("FrequencyMaxMHz", "3600")),
                             ""),
                     15);
    assert_int_equal(
        in_tree(KIND("0x3", "1",
                     INFO("CoreType", "IntelAtom") INFO("FrequencyMaxMHz", "2400"))
                    KIND("0xc", "2",
                         INFO("CoreType", "IntelAtom") INFO("FrequencyMaxMHz", "3600")),
                "2 of 4 CPUs left out: less powerful cores than the other 2"),
        12);
    assert_int_equal(
        in_tree(KIND("0x3", "1", INFO("LinuxCapacity", "500"))
                    KIND("0xc", "2", INFO("LinuxCapacity", "1024")),
                "2 of 4 CPUs left out: less powerful cores than the other 2"),
        12);
}

/* hwloc 3 writes another format: it was refused as a file that may be cut. */
TEST(format_3_is_named)
{
    static const char text[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                               "<!DOCTYPE topology SYSTEM \"hwloc3.dtd\">\n"
                               "<topology version=\"3.0\">\n</topology>\n";
    struct topo_machine *m;
    char path[512];

    snprintf(path, sizeof(path), "%s/three.xml", test_dir());
    test_write(path, text, strlen(text));
    assert_err(topo_machine_open(&m, path), ERR_UNSUPPORTED,
               "three.xml: a topology in format 3.0 of hwloc, expected format 1 or 2");
}

/* Job managers set such variables; they made "host" another machine without a word. */
TEST(environment_is_not_the_host)
{
    static const char *const set[][2] = {
        {"HWLOC_XMLFILE", "tests/fuzz/corpus/topology/good.xml"},
        {"HWLOC_SYNTHETIC", "core:3 pu:5"},
        {"HWLOC_FSROOT", "/no/such/root"},
        {"HWLOC_THISSYSTEM", "0"},
        {"HWLOC_COMPONENTS", "no_os,stop"}};
    struct topo_machine *m;
    cpu_set_t allowed;
    char *before, *xml;
    size_t n;

    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    assert_ok(topo_machine_open(&m, NULL));
    assert_ok(topo_machine_xml(m, &before, &n));
    topo_machine_close(&m);
    for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
        setenv(set[i][0], set[i][1], 1);
        assert_ok(topo_machine_open(&m, NULL));
        for (int k = 0; k < m->n_pus; k++)
            CPU_CLR(m->pus[k].os_index, &allowed);
        assert_int_equal(CPU_COUNT(&allowed), 0);
        assert_null(strstr(m->note, "unknown to hwloc"));
        assert_ok(topo_machine_xml(m, &xml, &n));
        assert_string_equal(xml, before);
        assert_string_equal(getenv(set[i][0]), set[i][1]);
        unsetenv(set[i][0]);
        mem_free(xml);
        topo_machine_close(&m);
        assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    }
    mem_free(before);
}
