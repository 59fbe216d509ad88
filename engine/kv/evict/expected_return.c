/* By expected return: the time to compute a token again over the time until it is expected to be
 * wanted, which is how much of each second of memory keeping it saves. */
#include <math.h>

#include "kv/evict.h"

#define SOONEST_S 1e-3

static double expected_return_worth(const struct kv_idle *k)
{
    double left_s =
        k->queued ? 0 : kv_pause_left_s(k->pause_log_mean, k->pause_log_std, k->idle_s);

    return k->ended ? -k->idle_s : k->token_s / fmax(left_s, SOONEST_S);
}

const struct kv_evict kv_evict_expected_return = {
    .name = "expected_return",
    .help = "by the time saved / the time until the session is expected to go on",
    .worth = expected_return_worth,
};
