#include "kv/evict.h"

#include <math.h>

#include "base/name.h"

#define SHORTEST_S 1e-3 /* of which a logarithm is taken */
#define LEAST_STD  0.1  /* equal pauses do not make the next one certain */
#define FAR_IN_TAIL                                                                      \
    6 /* standard deviations beyond which the ratio of tails loses its digits */

int kv_evict_find(const char *name, const struct kv_evict **out)
{
    *out = name_find(kv_evicts, name, "eviction policy");
    return *out ? OK : ERR_NOTFOUND;
}

void kv_pauses_add(struct kv_pauses *p, double seconds)
{
    double x = log(fmax(seconds, SHORTEST_S));

    p->n++;
    p->sum += x;
    p->sum_sq += x * x;
}

void kv_pauses_expect(const struct kv_pauses *all, const struct kv_pauses *own,
                      double *log_mean, double *log_std)
{
    double mean = all->n > 0 ? all->sum / all->n : 0;
    double variance = all->n > 1 ? fmax(0, all->sum_sq / all->n - mean * mean) : 1;

    *log_mean = (mean + own->sum) / (1 + own->n);
    *log_std = fmax(LEAST_STD, sqrt(variance * (0.5 + 0.5 / (1 + own->n))));
}

/* Of a standard normal number: the probability to be above x. */
static double above(double x)
{
    return 0.5 * erfc(x * M_SQRT1_2);
}

double kv_pause_left_s(double log_mean, double log_std, double idle_s)
{
    double t = fmax(idle_s, SHORTEST_S), x = (log(t) - log_mean) / log_std;

    if (x > FAR_IN_TAIL) /* where the tail is a power of the time */
        return t * log_std / (x + 1 / x - log_std);
    return exp(log_mean + log_std * log_std / 2) * above(x - log_std) / above(x) - t;
}
