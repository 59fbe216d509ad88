#include "tune/validate.h"

#include <string.h>

#include "tune/space.h"

#define FEW_FLOP    1e9 /* of a run: shorter ones are repeated */
#define REPEATS_MAX 8.0

static int rounds_for(const struct tune_shape *s, int rounds)
{
    double n = FEW_FLOP / tune_flop(s);

    n = n < REPEATS_MAX ? n : REPEATS_MAX;
    return (int)(n > 1 ? n * rounds : rounds);
}

int tune_validate(struct tune_bench *b, const struct tune_shape *s, int n_threads,
                  int rounds, struct kern_schedule *found, struct measure_report t[2],
                  bool *lost)
{
    struct kern_schedule two[2] = {{0}, *found};

    *lost = false;
    memset(t, 0, 2 * sizeof(*t));
    TRY(tune_bench_shape(b, s));
    kern_schedule_default(&two[0], s->v, tune_bench_mat(b), s->m, n_threads);
    tune_clamp(&two[0], tune_bench_mat(b), s->m);
    if (tune_same(&two[0], &two[1]))
        return OK;
    TRY(tune_compare(b, two, 2, n_threads, rounds_for(s, rounds), t));
    *lost = t[1].estimate > t[0].estimate;
    if (*lost)
        *found = two[0];
    return OK;
}
