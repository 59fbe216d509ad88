/* Asking for memory nodes, and about them; and a kernel that refuses. */
#include <errno.h>

#include "base/pages.h"
#include "tests/support/test.h"

#define BYTES ((size_t)6 << 20)

TEST(pages_are_counted)
{
    char *p = (char *)(mem_page_bytes() * 100);
    size_t page = mem_page_bytes();

    assert_int_equal(mem_n_pages(p, 0), 0);
    assert_int_equal(mem_n_pages(p, 1), 1);
    assert_int_equal(mem_n_pages(p, page), 1);
    assert_int_equal(mem_n_pages(p, page + 1), 2);
    assert_int_equal(mem_n_pages(p + page - 1, 2), 2);
    assert_int_equal(mem_n_pages(p + 1, page), 2);
}

TEST(a_page_is_where_it_was_asked_for)
{
    size_t n = BYTES / mem_page_bytes();
    int *node = mem_new(MEM_TEST, n, sizeof(*node)), rc;
    char *p = mem_map(MEM_TEST, BYTES, MEM_NODE_ANY);

    assert_non_null(node);
    assert_non_null(p);
    rc = mem_nodes_of(p, BYTES, node);
    for (size_t i = 0; i < n && rc == OK; i++)
        assert_true(node[i] < 0); /* nothing touched yet */
    if (rc == OK)
        rc = mem_prefer_node(p, BYTES, 0);
    if (rc == OK) {
        memset(p, 1, BYTES);
        assert_ok(mem_nodes_of(p, BYTES, node));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(node[i], 0);
        assert_err(mem_prefer_node(p, BYTES, 1000), ERR_ARG, "memory node 1000");
    }
    mem_unmap(MEM_TEST, p, BYTES);
    mem_free(node);
    if (rc == ERR_UNSUPPORTED)
        test_skip("%s", err_msg());
    assert_ok(rc);
}

TEST(nonsense_is_refused)
{
    char *p = mem_map(MEM_TEST, BYTES, MEM_NODE_ANY);

    assert_err(mem_prefer_node(p + 1, BYTES - 1, 0), ERR_ARG, "begin on a page");
    assert_err(mem_prefer_node(p, BYTES, -1), ERR_ARG, "node -1");
    assert_err(mem_prefer_node(p, BYTES, 1024), ERR_ARG, "node 1024: expected 0 .. 1023");
    mem_unmap(MEM_TEST, p, BYTES);
}

/* ---- a kernel that refuses ---- */

static int refusal;
static unsigned long n_calls, largest_call;

static long no_mbind(void *p, size_t bytes, int node)
{
    (void)p, (void)bytes, (void)node;
    errno = refusal;
    return -1;
}

static long no_move_pages(unsigned long n, void **pages, int *status)
{
    (void)n, (void)pages, (void)status;
    errno = refusal;
    return -1;
}

static long counting_move_pages(unsigned long n, void **pages, int *status)
{
    for (unsigned long i = 0; i < n; i++)
        status[i] = (int)((size_t)pages[i] / mem_page_bytes() % 1000);
    n_calls++;
    largest_call = n > largest_call ? n : largest_call;
    return 0;
}

TEST(a_refusal_is_named)
{
    const struct mem_kernel k = {no_mbind, no_move_pages, "/nowhere/smaps"};
    char *p = mem_map(MEM_TEST, BYTES, MEM_NODE_ANY);
    size_t resident, huge;
    int node[2];

    mem_kernel_set(&k);
    refusal = EPERM;
    assert_err(mem_prefer_node(p, BYTES, 0), ERR_UNSUPPORTED, "not permitted");
    assert_err(mem_nodes_of(p, 1, node), ERR_UNSUPPORTED, "not permitted");
    refusal = ENOSYS;
    assert_err(mem_prefer_node(p, BYTES, 0), ERR_UNSUPPORTED, "not implemented");
    assert_err(mem_nodes_of(p, 1, node), ERR_UNSUPPORTED, "not implemented");
    refusal = EINVAL;
    assert_err(mem_prefer_node(p, BYTES, 9), ERR_ARG, "memory node 9");
    assert_err(mem_huge_of(p, 1, &resident, &huge), ERR_UNSUPPORTED, "/nowhere/smaps");
    mem_kernel_set(NULL);
    mem_unmap(MEM_TEST, p, BYTES);
}

/* Many pages are asked for in turns, each once, from the page that holds the first byte.
 */
TEST(every_page_is_asked_for)
{
    const struct mem_kernel k = {no_mbind, counting_move_pages, ""};
    size_t page = mem_page_bytes(), n = 1234;
    int *node = mem_new(MEM_TEST, n + 1, sizeof(*node));

    assert_non_null(node);
    node[n] = -7;
    mem_kernel_set(&k);
    assert_ok(mem_nodes_of((char *)(page * 5000 + 3), n * page - 3, node));
    mem_kernel_set(NULL);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(node[i], i % 1000);
    assert_int_equal(node[n], -7);
    assert_true(n_calls > 1 && largest_call < n);
    mem_free(node);
}

/* ---- huge pages ---- */

TEST(huge_pages_are_read_from_smaps)
{
    static const char text[] = "10000000-10200000 rw-p 00000000 00:00 0 \n"
                               "Rss:                2048 kB\n"
                               "AnonHugePages:      2048 kB\n"
                               "10200000-10400000 rw-p 00000000 00:00 0  [heap]\n"
                               "Rss:                 100 kB\n"
                               "AnonHugePages:         0 kB\n"
                               "ShmemPmdMapped:       64 kB\n"
                               "10400000-10600000 rw-p 00000000 00:00 0 \n"
                               "Rss:                   8 kB\n";
    struct mem_kernel k = {0};
    size_t resident, huge;
    char path[600];

    snprintf(path, sizeof(path), "%s/smaps", test_dir());
    test_write(path, text, sizeof(text) - 1);
    k.smaps = path;
    mem_kernel_set(&k);
    assert_ok(mem_huge_of((void *)0x10000000, 0x200000, &resident, &huge));
    assert_int_equal(resident, 2048 << 10);
    assert_int_equal(huge, 2048 << 10);
    assert_ok(mem_huge_of((void *)0x101fffff, 2, &resident, &huge));
    assert_int_equal(resident, 2148 << 10);
    assert_int_equal(huge, (2048 + 64) << 10);
    assert_ok(mem_huge_of((void *)0x10400000, 1, &resident, &huge));
    assert_int_equal(resident, 8 << 10);
    assert_int_equal(huge, 0);
    assert_err(mem_huge_of((void *)0x10600000, 1, &resident, &huge), ERR_UNSUPPORTED,
               "no entry for this memory");
    mem_kernel_set(NULL);
}

TEST(this_process_has_smaps)
{
    char *p = mem_map(MEM_TEST, BYTES, MEM_NODE_ANY);
    size_t resident, huge;
    int rc;

    memset(p, 1, BYTES);
    rc = mem_huge_of(p, BYTES, &resident, &huge);
    mem_unmap(MEM_TEST, p, BYTES);
    if (rc == ERR_UNSUPPORTED)
        test_skip("%s", err_msg());
    assert_ok(rc);
    assert_true(resident >= BYTES);
    assert_true(huge <= resident);
}
