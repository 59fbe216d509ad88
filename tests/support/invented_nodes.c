#include "tests/support/invented_nodes.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/pages.h"
#include "placement/placement.h"
#include "tests/support/test.h"

struct invented_nodes invented_nodes;

static long obey(void *p, size_t bytes, int node)
{
    struct invented_nodes *v = &invented_nodes;

    if (v->n_binds == v->max_binds) {
        errno = v->refusal;
        return -1;
    }
    if (v->n_binds++ == 0 && !v->base)
        v->base = p;
    assert_int_equal((uintptr_t)p % MODEL_LARGE_PAGE, 0);
    assert_int_equal(bytes % MODEL_LARGE_PAGE, 0);
    for (size_t i = 0; i < bytes / MODEL_LARGE_PAGE; i++)
        v->node_of[(size_t)((char *)p - v->base) / MODEL_LARGE_PAGE + i] = node;
    return 0;
}

static long tell(unsigned long n, void **pages, int *status)
{
    const struct invented_nodes *v = &invented_nodes;

    if (v->mute) {
        errno = v->refusal;
        return -1;
    }
    for (unsigned long i = 0; i < n; i++) {
        size_t page = (size_t)((char *)pages[i] - v->base) / MODEL_LARGE_PAGE;

        status[i] = v->stray >= 0 ? v->stray : v->base ? v->node_of[page] : 0;
    }
    return 0;
}

void invented_nodes_begin(int refusal, size_t max_binds)
{
    static const struct mem_kernel k = {obey, tell, "/proc/self/smaps"};

    memset(&invented_nodes, 0, sizeof(invented_nodes));
    memset(invented_nodes.node_of, -1, sizeof(invented_nodes.node_of));
    invented_nodes.refusal = refusal;
    invented_nodes.max_binds = max_binds;
    invented_nodes.stray = -1;
    mem_kernel_set(&k);
}

void invented_nodes_end(void)
{
    mem_kernel_set(NULL);
}

int invented_nodes_warnings(const char *code)
{
    struct log_warning w[16];
    int n = log_warnings_take(w, 16), found = 0;

    for (int i = 0; i < n; i++)
        found += strcmp(w[i].code, code) == 0;
    return found;
}

void invented_nodes_sum(const struct model_numa_report *places,
                        struct model_numa_row *all)
{
    memset(all, 0, sizeof(*all));
    for (int w = 0; w < MODEL_N_WEIGHT_KINDS; w++) {
        const struct model_numa_row *r = &places->rows[w];

        assert_true(r->elsewhere_bytes + r->local_bytes >= r->mixed_bytes);
        all->local_bytes += r->local_bytes;
        all->elsewhere_bytes += r->elsewhere_bytes;
        all->shared_bytes += r->shared_bytes;
        all->absent_bytes += r->absent_bytes;
        all->mixed_bytes += r->mixed_bytes;
        all->mixed_elsewhere_bytes += r->mixed_elsewhere_bytes;
    }
}
