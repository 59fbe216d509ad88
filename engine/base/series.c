#include "base/series.h"

#include <stdbool.h>

static void merge(struct series *s)
{
    int n = (s->n + 1) / 2;

    for (int i = 0; i < s->n / 2; i++) {
        bool last = 2 * i + 1 == s->n - 1;
        double each = (double)s->each, second = last ? (double)s->in_last : each;

        s->mean[i] =
            (s->mean[2 * i] * each + s->mean[2 * i + 1] * second) / (each + second);
    }
    if (s->n % 2)
        s->mean[n - 1] = s->mean[s->n - 1];
    else
        s->in_last += s->each;
    s->n = n;
    s->each *= 2;
}

void series_merge(struct series *s, int most)
{
    while (s->n > most)
        merge(s);
}

void series_add(struct series *s, double x)
{
    if (s->n == 0)
        s->each = 1;
    if (s->n == 0 || s->in_last == s->each) {
        series_merge(s, SERIES_POINTS - 1);
        s->mean[s->n++] = 0;
        s->in_last = 0;
    }
    s->in_last++;
    s->mean[s->n - 1] += (x - s->mean[s->n - 1]) / (double)s->in_last;
}
