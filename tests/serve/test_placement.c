/* What a record says of where memory is: on this machine, under a kernel that reports
 * wrong nodes for it, and under one that does not tell. */
#include <errno.h>

#include "base/log.h"
#include "base/pages.h"
#include "cpu/cpu.h"
#include "tests/serve/tiny.h"
#include "topo/machine.h"

static json_t *member(const json_t *j, const char *a, const char *b)
{
    json_t *of = json_object_get(j, a);

    if (!of)
        fail_msg("no %s", a);
    if (b && !json_object_get(of, b))
        fail_msg("no %s in %s", b, a);
    return b ? json_object_get(of, b) : of;
}

/* The placement of an engine; new reference. */
static json_t *placement(struct serve *s)
{
    json_t *all, *j;

    assert_ok(serve_describe(s, &all));
    j = json_incref(member(all, "placement", NULL));
    json_decref(all);
    return j;
}

static int64_t sum_of(const json_t *j, const char *key)
{
    json_t *groups = member(j, "weights", "groups"), *row;
    int64_t sum = 0;
    size_t i;

    assert_true(json_array_size(groups) >= 6); /* a tied embedding is the head */
    json_array_foreach(groups, i, row)
    {
        assert_true(json_string_length(json_object_get(row, "group")) > 0);
        assert_true(json_is_integer(json_object_get(row, key)));
        sum += json_integer_value(json_object_get(row, key));
    }
    return sum;
}

static int64_t node_sum(const json_t *j, const char *what)
{
    json_t *nodes = member(j, what, "node_bytes"), *n;
    const char *key;
    int64_t sum = 0;

    json_object_foreach(nodes, key, n)
    {
        if (!json_is_integer(n))
            fail_msg("%s: %s: %s", what, key, json_string_value(n));
        sum += json_integer_value(n);
    }
    return sum;
}

static int take_warnings(struct log_warning *out)
{
    struct log_warning w[64];
    int n = log_warnings_take(w, 64), found = 0;

    for (int i = 0; i < n; i++) {
        if (strcmp(w[i].code, "weights_elsewhere") != 0)
            continue;
        *out = w[i];
        found++;
    }
    return found;
}

static void needs_one_node(void)
{
    struct topo_machine *m;
    int n;

    assert_ok(topo_machine_open(&m, NULL));
    n = m->n_nodes;
    topo_machine_close(&m);
    if (n > 1)
        test_skip("this machine has %d memory nodes", n);
}

static struct serve *open_isa(const char *isa, int ranks)
{
    struct serve_opts o = tiny_opts();
    struct cpu_budget b;
    struct serve *s;

    assert_ok(cpu_budget_get(&b));
    o.threads = b.n > 1 ? 2 : 1;
    o.ranks = ranks < o.threads ? ranks : o.threads;
    mem_free(o.isa);
    o.isa = mem_strdup(MEM_OTHER, isa);
    s = tiny_open(&o);
    return s;
}

/* ---- what is so ---- */

static void check_one_node(struct serve *s)
{
    struct tiny_got got;
    struct log_warning w;
    json_t *j;

    tiny_generate(s, 10, 5, 1, &got);
    j = placement(s);
    assert_string_equal(json_string_value(member(j, "nodes", NULL)),
                        "one memory node: every page is local");
    assert_string_equal(json_string_value(member(j, "weights", "how")),
                        "first touch: all threads are on one node");
    assert_int_equal(json_integer_value(member(j, "weights", "bound_bytes")), 0);
    assert_int_equal(json_integer_value(member(j, "weights", "n_owner_nodes")), 1);
    if (json_is_array(member(j, "weights", "groups"))) {
        assert_true(sum_of(j, "bytes") >= serve_token_bytes(s, 0));
        assert_int_equal(sum_of(j, "local_bytes"), sum_of(j, "bytes"));
        assert_int_equal(sum_of(j, "elsewhere_bytes") + sum_of(j, "mixed_bytes"), 0);
        assert_true(node_sum(j, "weights") >= sum_of(j, "bytes"));
        assert_true(node_sum(j, "kv") > 0);
        assert_true(node_sum(j, "activations") > 0);
    } else {
        assert_true(json_string_length(json_object_get(member(j, "weights", "groups"),
                                                       "unavailable")) > 0);
    }
    assert_int_equal(take_warnings(&w), 0);
    json_decref(j);
}

TEST(test_one_node)
{
    static const char *const isas[] = {"ref", "auto"};

    needs_one_node();
    for (int i = 0; i < 4; i++) {
        struct serve *s = open_isa(isas[i / 2], 1 + i % 2);

        check_one_node(s);
        serve_close(&s);
    }
    assert_ok(cpu_isa_limit("auto"));
}

TEST(test_huge_pages)
{
    struct serve *s = tiny_open_default();
    json_t *j = placement(s);
    static const char *const of[] = {"weights", "kv", "activations"};

    for (int i = 0; i < 3; i++) {
        json_t *h = member(j, of[i], "huge_pages");
        double frac = json_real_value(json_object_get(h, "huge_frac"));
        int64_t resident = json_integer_value(json_object_get(h, "resident_bytes"));
        int64_t huge = json_integer_value(json_object_get(h, "huge_bytes"));

        if (json_object_get(h, "unavailable"))
            continue;
        assert_true(resident > 0 && huge >= 0 && huge <= resident);
        assert_true(frac == (double)huge / (double)resident);
    }
    json_decref(j);
    serve_close(&s);
}

/* ---- what is not ---- */

static int refusal;

static long refuse_mbind(void *p, size_t bytes, int node)
{
    (void)p, (void)bytes, (void)node;
    errno = refusal;
    return -1;
}

static long refuse_pages(unsigned long n, void **pages, int *status)
{
    (void)n, (void)pages, (void)status;
    errno = refusal;
    return -1;
}

static long far_pages(unsigned long n, void **pages, int *status)
{
    (void)pages;
    for (unsigned long i = 0; i < n; i++)
        status[i] = 77;
    return 0;
}

TEST(test_elsewhere_is_a_warning)
{
    static const struct mem_kernel far = {refuse_mbind, far_pages, "/proc/self/smaps"};
    struct log_warning w = {{0}, 0, 0, {0}};
    struct serve *s;
    json_t *j;

    needs_one_node();
    s = tiny_open_default();
    take_warnings(&w);
    mem_kernel_set(&far);
    for (int i = 0; i < 2; i++) {
        j = placement(s);
        assert_int_equal(sum_of(j, "elsewhere_bytes"), sum_of(j, "bytes"));
        assert_int_equal(sum_of(j, "local_bytes"), 0);
        assert_true(json_integer_value(json_object_get(member(j, "weights", "node_bytes"),
                                                       "absent")) > 0);
        json_decref(j);
        assert_int_equal(take_warnings(&w), i == 0); /* once */
    }
    mem_kernel_set(NULL);
    assert_true(w.observed == 1 && w.threshold == 0.01);
    assert_non_null(strstr(w.text, "100.0 % of the weights are on another memory node"));
    serve_close(&s);
}

static void unavailable(const json_t *j, const char *a, const char *b, const char *why)
{
    const char *text = json_string_value(json_object_get(member(j, a, b), "unavailable"));

    if (!text || !strstr(text, why))
        fail_msg("%s, %s: \"%s\", wanted \"%s\"", a, b, text ? text : "none", why);
}

TEST(test_a_kernel_that_does_not_tell)
{
    static const struct mem_kernel mute = {refuse_mbind, refuse_pages, "/nowhere/smaps"};
    struct serve *s = tiny_open_default();

    mem_kernel_set(&mute);
    for (int i = 0; i < 2; i++) {
        const char *why = i ? "not implemented" : "not permitted";
        struct log_warning w;
        json_t *j;

        refusal = i ? ENOSYS : EPERM;
        j = placement(s);
        unavailable(j, "weights", "groups", why);
        unavailable(j, "weights", "node_bytes", why);
        unavailable(j, "kv", "node_bytes", why);
        unavailable(j, "activations", "node_bytes", why);
        unavailable(j, "weights", "huge_pages", "/nowhere/smaps: cannot open");
        json_decref(j);
        assert_int_equal(take_warnings(&w), 0);
    }
    mem_kernel_set(NULL);
    serve_close(&s);
}

TEST_GROUP(tiny_make, NULL);
