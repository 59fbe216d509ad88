/* The one that is wanted last first, by the truth: what no policy can know (Belady). */
#include "kv/evict.h"

static double oracle_worth(const struct kv_idle *k)
{
    return -k->next_s;
}

const struct kv_evict kv_evict_oracle = {
    .name = "oracle",
    .help = "the one whose next request is farthest, which nobody knows",
    .worth = oracle_worth,
};
