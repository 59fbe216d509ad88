/* tests/kernels/check.h - what the kernel tests share: a case per variant, guarded
 * buffers, random and extreme numbers, and failures that say seed, shape and first
 * difference.
 *
 * These programs print TAP themselves and need nothing but base and kernels, so that they
 * also run cross-compiled under an emulator (test_arm.sh). A buffer ends at a page that
 * cannot be touched and begins after bytes that are checked; reading or writing past its
 * end is caught as a failure of the case. TEST_SEED chooses the seed,
 * TEST_FEWER=8 draws one in eight of the cases. */
#ifndef TESTS_KERNELS_CHECK_H
#define TESTS_KERNELS_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "cpu/cpu.h"
#include "kernels/kern.h"

#define EPS 5.9604644775390625e-8 /* half a unit in the last place of an f32 */

/* ---- cases ---- */

static sigjmp_buf check_escape;
static char check_where[256]; /* the shape at hand, for the failure line */
static uint64_t check_seed;
static int check_n, check_n_failed;

/* Say which shape is being tried. */
#define AT(...) snprintf(check_where, sizeof(check_where), __VA_ARGS__)

static inline __attribute__((format(printf, 1, 2), noreturn)) void
check_fail(const char *fmt, ...)
{
    va_list ap;

    printf("# seed %llu, %s: ", (unsigned long long)check_seed, check_where);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    siglongjmp(check_escape, 1);
}

#define CHECK(cond, ...)                                                                 \
    do {                                                                                 \
        if (!(cond))                                                                     \
            check_fail(__VA_ARGS__);                                                     \
    } while (0)

static inline void check_on_signal(int sig)
{
    /* The kernel under test is plain computation, so leaving it from here is sound. */
    check_fail("%s", sig == SIGSEGV  ? "touched memory outside its buffers"
                     : sig == SIGILL ? "an instruction this CPU lacks"
                                     : "a fatal signal");
}

/* n random cases, or one in TEST_FEWER of them, as where a processor is emulated. */
static inline int check_cases(int n)
{
    const char *s = getenv("TEST_FEWER");
    int fewer = s ? atoi(s) : 1;

    return fewer > 1 ? (n + fewer - 1) / fewer : n;
}

static inline uint64_t check_init(void)
{
    const char *s = getenv("TEST_SEED");
    struct sigaction act = {.sa_handler = check_on_signal, .sa_flags = SA_NODEFER};

    setvbuf(stdout, NULL, _IOLBF, 0);
    sigaction(SIGSEGV, &act, NULL);
    sigaction(SIGBUS, &act, NULL);
    sigaction(SIGILL, &act, NULL);
    check_seed = s ? strtoull(s, NULL, 0) : 1;
    return check_seed;
}

typedef void (*check_fn)(const struct kern_variant *v, struct rng *r);

/* Run one case under its own random stream; v may be NULL. */
static inline void check_case(const char *name, check_fn fn, const struct kern_variant *v)
{
    struct rng r;

    check_n++;
    AT("start");
    rng_init(&r, check_seed, name);
    if (sigsetjmp(check_escape, 1) == 0) {
        fn(v, &r);
        printf("ok %d - %s\n", check_n, name);
    } else {
        check_n_failed++;
        printf("not ok %d - %s\n", check_n, name);
    }
}

/* A case for a variant, which is skipped by name where this CPU cannot execute it. */
static inline void check_variant(const struct kern_variant *v, check_fn fn)
{
    uint64_t have = cpu_isa_detected();
    char name[128], words[128];

    snprintf(name, sizeof(name), "%s %s", kern_op_name(v->op), v->name);
    if ((v->isa & ~have) == 0) {
        check_case(name, fn, v);
        return;
    }
    cpu_isa_words(v->isa & ~have, words, sizeof(words));
    printf("# skip: this CPU lacks %s\n", words);
    printf("ok %d - %s # SKIP\n", ++check_n, name);
}

/* A case for every variant of `op`. */
static inline void check_variants(enum kern_op op, check_fn fn)
{
    for (const struct kern_variant *const *p = kern_variants; *p; p++)
        if ((*p)->op == op)
            check_variant(*p, fn);
}

static inline int check_done(void)
{
    printf("1..%d\n", check_n);
    return check_n_failed ? 1 : 0;
}

static inline const struct kern_variant *check_ref(enum kern_op op)
{
    struct kern_table t;

    kern_table_choose(&t, 0, KERN_EXACT);
    return t.v[op];
}

/* ---- guarded buffers ---- */

#define GUARD_BYTES 64
#define GUARD_SLOTS 16
#define GUARD_FILL  0xa5

struct guard_slot {
    char *base; /* mapping: cap bytes, then a page that faults */
    size_t cap;
    unsigned char *at; /* the buffer handed out */
};
static struct guard_slot guard_slots[GUARD_SLOTS];

/* `bytes` ending at the end of slot `i`'s memory (less `slack` bytes, all of them
 * guarded), filled with a pattern. Valid until the slot is asked for again. */
static inline void *guard_get_slack(int i, size_t bytes, size_t slack)
{
    struct guard_slot *s = &guard_slots[i];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t need = (bytes + slack + GUARD_BYTES + page - 1) / page * page;

    if (s->cap < need) {
        if (s->base)
            munmap(s->base, s->cap + page);
        s->base = mmap(NULL, need + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (s->base == MAP_FAILED || mprotect(s->base + need, page, PROT_NONE) != 0)
            abort();
        s->cap = need;
    }
    s->at = (unsigned char *)s->base + s->cap - bytes - slack;
    memset(s->at - GUARD_BYTES, GUARD_FILL, bytes + slack + GUARD_BYTES);
    return s->at;
}

static inline void *guard_get(int i, size_t bytes)
{
    return guard_get_slack(i, bytes, 0);
}

/* The same, beginning on a 64-byte boundary; a multiple of 64 bytes ends at the faulting
 * page. */
static inline void *guard_get_aligned(int i, size_t bytes)
{
    return guard_get_slack(i, bytes, (64 - bytes % 64) % 64);
}

/* Nothing wrote before or (in the slack) after the buffer. */
static inline void guard_check(int i, size_t bytes)
{
    const struct guard_slot *s = &guard_slots[i];
    const unsigned char *end = (const unsigned char *)s->base + s->cap;

    for (int j = 1; j <= GUARD_BYTES; j++)
        CHECK(s->at[-j] == GUARD_FILL, "wrote %d bytes before buffer %d", j, i);
    for (const unsigned char *p = s->at + bytes; p < end; p++)
        CHECK(*p == GUARD_FILL, "wrote %d bytes after buffer %d",
              (int)(p - s->at - (ptrdiff_t)bytes), i);
}

/* Does this float still hold the fill pattern? */
static inline bool guard_untouched(const float *x)
{
    static const unsigned char fill[4] = {GUARD_FILL, GUARD_FILL, GUARD_FILL, GUARD_FILL};

    return memcmp(x, fill, sizeof(fill)) == 0;
}

/* ---- numbers ---- */

enum fill {
    FILL_NORMAL,
    FILL_HUGE,   /* about 1e15: products and their sums stay finite */
    FILL_TINY,   /* about 1e-25: products underflow */
    FILL_DENORM, /* denormals of f32 */
    FILL_ZERO,   /* zeros of both signs */
    FILL_CANCEL, /* pairs that add up to nearly nothing */
    FILL_MIXED,  /* exponents from -12 to 12 */
    FILL_N
};
static const char *const fill_names[FILL_N] = {"normal", "huge",   "tiny", "denormal",
                                               "zero",   "cancel", "mixed"};

static inline void fill_f32(struct rng *r, enum fill f, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double v = rng_normal(r);

        if (f == FILL_HUGE)
            v *= 1e15;
        else if (f == FILL_TINY)
            v *= 1e-25;
        else if (f == FILL_DENORM)
            v *= 1e-40;
        else if (f == FILL_ZERO)
            v = v < 0 ? -0.0 : 0.0;
        else if (f == FILL_CANCEL)
            v = i % 2 == 1 ? -(double)x[i - 1] * (1 + 1e-6 * v) : 1000 * v;
        else if (f == FILL_MIXED)
            v = ldexp(v, (int)rng_below(r, 25) - 12);
        x[i] = (float)v;
    }
}

static inline int64_t rng_range(struct rng *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)rng_below(r, (uint64_t)(hi - lo + 1));
}

/* Is `got` within `bound` of `want`? NaN matches NaN; infinities match themselves. */
static inline bool near_to(double got, double want, double bound)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= bound;
}

static inline uint32_t float_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float float_from(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

#endif
