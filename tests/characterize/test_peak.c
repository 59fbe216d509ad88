/* The loops of arithmetic that a peak is measured with do all of it, on this processor and, by
 * tests/kernels/test_arm.sh, on an emulated one. */
#include "characterize/peak/peak.h"
#include "tests/kernels/check.h"

static const struct probe_arith *loop;
static const struct probe_isa *mixed;

/* More rounds, another sum; never a special value. Sums of integers grow alike in each round. */
static void test_rounds(const struct kern_variant *v, struct rng *r)
{
    const double none = loop->run(0), one = loop->run(1), two = loop->run(2);

    (void)v;
    AT("%s", loop->family);
    CHECK(isfinite(one) && isfinite(two) && one != two, "sums %g and %g", one, two);
    CHECK(isfinite(loop->run(100000)), "sum %g", loop->run(100000));
    CHECK(loop->ops > 0, "%g operations", loop->ops);
    for (int i = 0; i < 20 && strcmp(loop->family, "i8_dot") == 0; i++) {
        int64_t n = rng_range(r, 3, 200);
        double sum = loop->run(n);

        CHECK(sum - none == (double)n * (one - none), "%d rounds: %g, of one %g", (int)n,
              sum - none, one - none);
    }
}

/* A sum halves before each number is added, here 1. Of each of the
 * 8 sums, the first number of its vector is in the result. */
static void test_mixed(const struct kern_variant *v, struct rng *r)
{
    const struct probe_isa *isa = mixed;
    size_t step = 8 * (size_t)isa->vec_bytes;
    float *x = aligned_alloc(64, 4 * step);

    (void)v;
    for (size_t i = 0; i < 4 * step / sizeof(*x); i++)
        x[i] = 1;
    for (int i = 0; i < 20; i++) {
        int n_steps = (int)rng_range(r, 1, 4), n_fma = (int)rng_range(r, 1, 5);
        double want = 0;
        double got = isa->mixed(x, (size_t)n_steps * step, n_fma);

        for (int k = 0; k < n_steps * n_fma; k++)
            want = want / 2 + 8;
        AT("%d vectors, %d multiply-adds", 8 * n_steps, n_fma);
        CHECK(got == want, "sum %.17g, not %.17g", got, want);
    }
    free(x);
}

int main(void)
{
    uint64_t have = cpu_isa_detected();
    char name[80], words[128];

    check_init();
    for (int i = 0; probe_isas[i]; i++)
        for (int k = 0; k < PROBE_ARITH_MAX && probe_isas[i]->arith[k].run; k++) {
            loop = &probe_isas[i]->arith[k];
            snprintf(name, sizeof(name), "%s %s", loop->family, probe_isas[i]->name);
            if ((probe_isas[i]->isa & ~have) == 0) {
                check_case(name, test_rounds, NULL);
                continue;
            }
            cpu_isa_words(probe_isas[i]->isa & ~have, words, sizeof(words));
            printf("# skip: this CPU lacks %s\nok %d - %s # SKIP\n", words, ++check_n,
                   name);
        }
    for (int i = 0; probe_isas[i]; i++)
        if (probe_isas[i]->mixed && (probe_isas[i]->isa & ~have) == 0) {
            mixed = probe_isas[i];
            snprintf(name, sizeof(name), "mixed %s", mixed->name);
            check_case(name, test_mixed, NULL);
        }
    return check_done();
}
