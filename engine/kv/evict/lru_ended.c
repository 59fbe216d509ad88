/* Those that have ended, then the least recently used. */
#include "kv/evict.h"

#define LONGEST_S 1e9

static double lru_ended_worth(const struct kv_idle *k)
{
    return -k->idle_s - (k->ended ? LONGEST_S : 0);
}

const struct kv_evict kv_evict_lru_ended = {
    .name = "lru_ended",
    .help = "what has ended first, then the least recently used",
    .worth = lru_ended_worth,
};
