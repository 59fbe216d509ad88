#include "kv/admit.h"

int kv_admit_next(const struct kv_waiting *w, int n, int tag, uint64_t refused,
                  int64_t max_age)
{
    int oldest = -1;

    if (n > 0 && w[0].age > max_age)
        return refused >> w[0].tag & 1 ? -1 : 0;
    for (int i = 0; i < n; i++) {
        if (refused >> w[i].tag & 1)
            continue;
        if (w[i].tag == tag)
            return i;
        if (oldest < 0)
            oldest = i;
    }
    return oldest;
}

int kv_preempt_next(const struct kv_running *r, int n, int64_t patience)
{
    int n_waiting = 0;
    bool too_long = false;

    for (int i = 0; i < n; i++) {
        n_waiting += r[i].n_waited > 0;
        too_long = too_long || r[i].n_waited > patience;
    }
    return too_long || (n > 0 && n_waiting == n) ? n - 1 : -1;
}
