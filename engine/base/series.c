#include "base/series.h"

static void merge(struct series *s)
{
    for (int i = 0; i < SERIES_POINTS / 2; i++)
        s->mean[i] = (s->mean[2 * i] + s->mean[2 * i + 1]) / 2;
    s->n = SERIES_POINTS / 2;
    s->each *= 2;
}

void series_add(struct series *s, double x)
{
    if (s->n == 0)
        s->each = 1;
    if (s->n == 0 || s->in_last == s->each) {
        if (s->n == SERIES_POINTS)
            merge(s);
        s->mean[s->n++] = 0;
        s->in_last = 0;
    }
    s->in_last++;
    s->mean[s->n - 1] += (x - s->mean[s->n - 1]) / (double)s->in_last;
}
