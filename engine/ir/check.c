/* A kernel against kernels/ref/, and its time next to that of others. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ir/problem.h"

const struct kern_variant *ir_reference(enum kern_op op)
{
    struct kern_table t;

    kern_table_choose(&t, 0, KERN_EXACT);
    return t.v[op];
}

static void compare(struct ir_check *c, const float *want, const float *got, int64_t n)
{
    double square = 0, most = 0;

    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);

        c->n_different += memcmp(&want[i], &got[i], sizeof(*got)) != 0;
        square += (double)want[i] * want[i];
        if (!(off <= most))
            most = isnan(off) ? INFINITY : off;
    }
    c->n_values += n;
    c->n_problems++;
    most /= sqrt(square / (double)n) + 1e-30;
    c->error = most > c->error ? most : c->error;
}

static int check_one(struct ir_check *c, const struct kern_variant *v, uint64_t seed)
{
    struct ir_problem *p;
    const float *result;
    float *want = NULL;
    int64_t n;
    int rc;

    TRY(ir_problem_random(&p, v->op, seed));
    rc = ir_problem_run(p, ir_reference(v->op), true);
    result = ir_problem_result(p, &n);
    if (rc == OK) {
        want = mem_new(MEM_OTHER, (size_t)n, sizeof(*want));
        rc = want ? OK : ERR_NOMEM;
    }
    if (rc == OK) {
        memcpy(want, result, (size_t)n * sizeof(*want));
        rc = ir_problem_run(p, v, true);
    }
    if (rc == OK) {
        result = ir_problem_result(p, &n);
        compare(c, want, result, n);
    }
    mem_free(want);
    ir_problem_close(&p);
    return rc;
}

int ir_check(struct ir_check *out, const struct kern_variant *v, int n, uint64_t seed)
{
    *out = (struct ir_check){.error = 0};
    for (int i = 0; i < n; i++)
        TRY(check_one(out, v, seed + (uint64_t)i));
    return OK;
}

int ir_check_verdict(const struct ir_check *c, bool keeps_bits)
{
    if (keeps_bits && c->n_different > 0)
        return err_set(ERR_STATE,
                       "%lld of %lld results differ from kernels/ref/: its parameters "
                       "should keep every bit",
                       (long long)c->n_different, (long long)c->n_values);
    if (!(c->error <= IR_ERROR_MAX))
        return err_set(ERR_STATE,
                       "results are off by %.2g of their RMS: more than %.0e, which no "
                       "order of sums explains",
                       c->error, IR_ERROR_MAX);
    return OK;
}

/* A trial is as many runs as the first variant does in this time. */
#define TRIAL_S 5e-4

struct bench {
    struct ir_problem *p;
    const struct kern_variant *const *v;
    int64_t n_runs;
};

static int trial(void *arg, int i, struct measure_trial *t)
{
    const struct bench *b = arg;
    uint64_t from = clock_ns();

    for (int64_t run = 0; run < b->n_runs; run++)
        TRY(ir_problem_run(b->p, b->v[i], false));
    t->seconds = (double)(clock_ns() - from) * 1e-9 / (double)b->n_runs;
    return OK;
}

int ir_bench(struct measure_report *out, struct ir_problem *p,
             const struct kern_variant *const *v, int n)
{
    struct measure_opts o = {.keep_all = true, .max_rounds = 25};
    struct bench b = {p, v, 1};
    struct measure_trial once = {.seconds = 0};
    struct measure *m;
    int rc;

    TRY(ir_problem_run(p, v[0], true)); /* all of it is in the caches then */
    TRY(trial(&b, 0, &once));
    if (once.seconds < TRIAL_S)
        b.n_runs = (int64_t)(TRIAL_S / (once.seconds + 1e-9)) + 1;
    TRY(measure_open(&m, n, 25));
    rc = measure_compare(m, n, &o, trial, &b);
    for (int i = 0; i < n && rc == OK; i++)
        measure_report(m, i, &out[i]);
    measure_close(&m);
    return rc;
}
