/* The least recently used first, as in vLLM, whatever is known of the session. */
#include "kv/evict.h"

static double lru_worth(const struct kv_idle *k)
{
    return -k->idle_s;
}

const struct kv_evict kv_evict_lru = {
    .name = "lru",
    .help = "the least recently used first",
    .worth = lru_worth,
};
