#include "tests/support/test.h"

#include <unistd.h>

#include "cpu/cpu.h"
#include "topo/machine.h"

#define BYTES ((size_t)6 << 20)

TEST(pages_are_found)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct topo_machine *m;
    int64_t *counts, resident = 0;
    char *p;
    int rc;

    assert_ok(topo_machine_open(&m, NULL));
    counts = mem_new(MEM_TEST, (size_t)m->n_nodes + 1, sizeof(*counts));
    p = mem_map(MEM_TEST, BYTES, MEM_NODE_ANY);
    assert_non_null(counts);
    assert_non_null(p);
    rc = topo_pages_on(m, p, BYTES, counts);
    if (rc == OK) {
        assert_int_equal(counts[m->n_nodes], BYTES / page); /* nothing touched yet */
        memset(p, 1, BYTES);
        assert_ok(topo_pages_on(m, p, BYTES, counts));
        for (int i = 0; i < m->n_nodes; i++)
            resident += counts[i];
        assert_int_equal(resident, BYTES / page);
        assert_int_equal(counts[m->n_nodes], 0);
        assert_ok(topo_pages_on(m, p + page - 1, 2, counts)); /* on two pages */
        resident = 0;
        for (int i = 0; i < m->n_nodes; i++)
            resident += counts[i];
        assert_int_equal(resident, 2);
    }
    mem_unmap(MEM_TEST, p, BYTES);
    mem_free(counts);
    topo_machine_close(&m);
    if (rc == ERR_UNSUPPORTED)
        test_skip("%s", err_msg());
    assert_ok(rc);
}
