#include "characterize/counters/trust.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "characterize/counters/publish.h"

/* Beyond the last-level cache of one core complex and small enough for any machine. */
#define BUFFER_BYTES ((size_t)256 << 20)
#define LINE         64
#define FMA_ROUNDS   20000000
#define N_FAULTS     4096
#define N_SLEEPS     200
#define N_STEPS      1000003 /* of the published total; no round number */

/* The state that the pieces of work share; each leaves the number that arithmetic gives. */
struct bench {
    char *buffer;
    size_t page;
    int64_t published;
    double task_ns;
    volatile double sink;
};

/* ---- work of a known amount ---- */

/* A chain of dependent multiplications and additions: the compiler can neither shorten nor
 * widen it. Two operations a round; at -O2 a round is at least three instructions. */
static void fma_chain(struct bench *b)
{
    double x = 1.0;

    for (int i = 0; i < FMA_ROUNDS; i++)
        x = x * 0.9999999 + 1e-9;
    b->sink = x;
}

/* One volatile load a line: that many loads, that many lines from memory. */
static void read_lines(struct bench *b)
{
    const volatile char *p = b->buffer;

    for (size_t i = 0; i < BUFFER_BYTES; i += LINE)
        (void)p[i];
}

/* One load a page in random order, over far more pages than a TLB holds: a walk each. */
static void read_pages(struct bench *b)
{
    size_t n = BUFFER_BYTES / b->page;
    const volatile char *p = b->buffer;
    struct rng rng;

    rng_init(&rng, 1, "pages");
    for (size_t i = 0; i < n; i++)
        (void)p[rng_below(&rng, n) * b->page];
}

static void touch_new_pages(struct bench *b)
{
    size_t bytes = N_FAULTS * b->page;
    char *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return; /* the counter then says 0 of 4096: off */
    madvise(p, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += b->page)
        p[i] = 1;
    munmap(p, bytes);
}

static void sleep_often(struct bench *b)
{
    (void)b;
    for (int i = 0; i < N_SLEEPS; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
}

static double thread_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void timed_chain(struct bench *b)
{
    double t0 = thread_ns();

    fma_chain(b);
    b->task_ns = thread_ns() - t0;
}

static void step_published(struct bench *b)
{
    for (int i = 0; i < N_STEPS; i++)
        b->published++;
}

/* ---- the table ---- */

enum expect { FIXED, PER_LINE, PER_PAGE, TASK_NS };

static const struct check {
    const char *provider, *event, *work;
    void (*run)(struct bench *b);
    enum expect expect;
    double amount;    /* FIXED, or a factor */
    double low, high; /* of counted / expected */
} checks[] = {
    /* Exact by construction; the kernel's own pages and others' switches come on top. */
    {"sde", "trust.steps", "1000003 additions to a published total", step_published,
     FIXED, N_STEPS, 1, 1},
    {"perf_event", "page-faults", "touch 4096 new pages", touch_new_pages, FIXED,
     N_FAULTS, 1, 1.02},
    {"perf_event", "context-switches", "sleep 200 times", sleep_often, FIXED, N_SLEEPS, 1,
     1.25},
    {"perf_event", "task-clock", "20 M dependent FMAs", timed_chain, TASK_NS, 1, 0.98,
     1.02},
    /* Loop instructions come on top of one load or two operations. */
    {"perf_event", "instructions", "20 M dependent FMAs", fma_chain, FIXED,
     3.0 * FMA_ROUNDS, 0.99, 1.7},
    {"perf_event", "L1-dcache-loads", "read a byte of each of 4 M lines", read_lines,
     PER_LINE, 1, 0.98, 1.1},
    {"perf_event", "LLC-load-misses", "read a byte of each of 4 M lines", read_lines,
     PER_LINE, 1, 0.7, 1.1},
    {"perf_event", "uncore_imc_*/cas_count_read/", "read a byte of each of 4 M lines",
     read_lines, PER_LINE, 1, 0.9, 1.5},
    {"perf_event", "dTLB-load-misses", "read a byte of 64 Ki random pages", read_pages,
     PER_PAGE, 1, 0.8, 1.2},
    {"papi", "perf::PAGE-FAULTS", "touch 4096 new pages", touch_new_pages, FIXED,
     N_FAULTS, 1, 1.02},
    {"papi", "PAPI_TOT_INS", "20 M dependent FMAs", fma_chain, FIXED, 3.0 * FMA_ROUNDS,
     0.99, 1.7},
    {"papi", "PAPI_TOT_CYC", "20 M dependent FMAs", fma_chain, FIXED, 8.0 * FMA_ROUNDS,
     0.5, 1.6},
    {"papi", "PAPI_DP_OPS", "20 M dependent FMAs", fma_chain, FIXED, 2.0 * FMA_ROUNDS,
     0.99, 1.01},
    {"papi", "PAPI_LD_INS", "read a byte of each of 4 M lines", read_lines, PER_LINE, 1,
     0.98, 1.1},
    {"papi", "PAPI_L3_TCM", "read a byte of each of 4 M lines", read_lines, PER_LINE, 1,
     0.7, 1.1},
    {"papi", "PAPI_TLB_DM", "read a byte of 64 Ki random pages", read_pages, PER_PAGE, 1,
     0.8, 1.2},
};
#define N_CHECKS ((int)(sizeof(checks) / sizeof(checks[0])))

static double expected_of(const struct check *k, const struct bench *b)
{
    switch (k->expect) {
    case PER_LINE:
        return k->amount * (double)(BUFFER_BYTES / LINE);
    case PER_PAGE:
        return k->amount * (double)(BUFFER_BYTES / b->page);
    case TASK_NS:
        return k->amount * b->task_ns;
    default:
        return k->amount;
    }
}

static void judge(struct counters_trust *t, const struct counters_value *v)
{
    t->counted = v->value;
    t->ratio = v->value / t->expected;
    if (isnan(v->value)) {
        t->verdict = COUNTERS_UNAVAILABLE;
        memcpy(t->why, v->why, sizeof(t->why));
    } else {
        t->verdict =
            t->ratio >= t->low && t->ratio <= t->high ? COUNTERS_TRUSTED : COUNTERS_OFF;
    }
}

static int one_check(const struct check *k, struct bench *b, struct counters_trust *t)
{
    const struct counters_provider *p;
    struct counters_value v;
    struct counters *c = NULL;
    int rc = counters_provider_find(k->provider, &p);

    *t = (struct counters_trust){.work = k->work, .low = k->low, .high = k->high};
    snprintf(t->provider, sizeof(t->provider), "%s", k->provider);
    snprintf(t->event, sizeof(t->event), "%s", k->event);
    if (rc == OK)
        rc = counters_open(&c, p, &k->event, 1);
    if (rc != OK)
        return rc;
    if (counters_passes(c) > 0) {
        counters_start(c, 0);
        k->run(b);
        counters_stop(c, 0);
    }
    counters_read(c, &v);
    counters_close(&c);
    t->expected = expected_of(k, b);
    judge(t, &v);
    return OK;
}

int counters_trust_run(struct counters_trust out[COUNTERS_TRUST_MAX], int *n)
{
    struct bench b = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    int rc;

    _Static_assert(N_CHECKS <= COUNTERS_TRUST_MAX, "room for every row");
    *n = 0;
    b.buffer = mem_map(MEM_OTHER, BUFFER_BYTES, MEM_NODE_ANY);
    if (!b.buffer)
        return ERR_NOMEM;
    madvise(b.buffer, BUFFER_BYTES, MADV_NOHUGEPAGE); /* walks need small pages */
    memset(b.buffer, 1, BUFFER_BYTES);
    rc = counters_publish("trust.steps", &b.published);
    for (int i = 0; i < N_CHECKS && rc == OK; i++)
        rc = one_check(&checks[i], &b, &out[(*n)++]);
    counters_withdraw("trust.steps");
    mem_unmap(MEM_OTHER, b.buffer, BUFFER_BYTES);
    return rc;
}

/* ---- the record ---- */

static const char *const verdicts[] = {"trusted", "off", "unavailable"};

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

int counters_trust_json(const struct counters_trust *t, int n, json_t **out)
{
    json_t *events = json_array();
    int counts[3] = {0};

    for (int i = 0; i < n; i++) {
        bool known = t[i].verdict != COUNTERS_UNAVAILABLE;

        counts[t[i].verdict]++;
        json_array_append_new(
            events, json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s}", "provider",
                              t[i].provider, "event", t[i].event, "work", t[i].work,
                              "expected", number(known ? t[i].expected : NAN), "counted",
                              number(t[i].counted), "ratio", number(t[i].ratio),
                              "verdict", verdicts[t[i].verdict], "why", t[i].why));
    }
    *out = json_pack("{s:i, s:i, s:i, s:o}", "n_trusted", counts[COUNTERS_TRUSTED],
                     "n_off", counts[COUNTERS_OFF], "n_unavailable",
                     counts[COUNTERS_UNAVAILABLE], "events", events);
    return *out ? OK : err_set(ERR_NOMEM, "no memory for the table of events");
}
