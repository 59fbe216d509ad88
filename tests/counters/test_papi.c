/* The way through PAPI: what this program publishes comes back to the count, what nobody
 * publishes and what the hardware lacks is NaN with the reason. */
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "characterize/counters/counters.h"
#include "characterize/counters/publish.h"
#include "tests/counters/shadow.h"
#include "tests/support/test.h"

static int64_t bytes, tokens;

static struct counters *open_events(const char *provider, const char *const *e, int n)
{
    const struct counters_provider *p;
    struct counters *c;

    assert_ok(counters_provider_find(provider, &p));
    assert_ok(counters_open(&c, p, e, n));
    return c;
}

static int publish(void **state)
{
    (void)state;
    assert_ok(counters_publish("decode.bytes", &bytes));
    assert_ok(counters_publish("decode.tokens", &tokens));
    return 0;
}

static int withdraw(void **state)
{
    (void)state;
    counters_withdraw(NULL);
    return 0;
}

TEST_WITH(published_comes_back, publish, withdraw)
{
    static const char *const events[] = {"decode.bytes", "decode.tokens"};
    struct counters_value v[2];
    struct counters *c = open_events("sde", events, 2);

    bytes = 12345, tokens = 7; /* before the start: not counted */
    assert_int_equal(counters_passes(c), 1);
    counters_start(c, 0);
    bytes += (int64_t)3 << 40;
    counters_stop(c, 0);
    bytes += 99; /* between: not counted */
    counters_start(c, 0);
    bytes += 1;
    tokens += 5;
    counters_stop(c, 0);
    counters_read(c, v);
    assert_true(v[0].value == (double)(((int64_t)3 << 40) + 1));
    assert_true(v[1].value == 5);
    assert_true(v[1].running_ns == v[1].enabled_ns && v[1].running_ns > 0);
    counters_close(&c);
}

/* PAPI itself counts 0 for a name that nobody registered. */
TEST_WITH(unpublished_is_nan, publish, withdraw)
{
    static const char *const events[] = {"decode.tokens", "decode.token"};
    struct counters_value v[2];
    struct counters *c = open_events("sde", events, 2);

    counters_start(c, 0);
    counters_stop(c, 0);
    counters_read(c, v);
    assert_true(v[0].value == 0); /* counted, and nothing happened */
    assert_true(isnan(v[1].value));
    assert_non_null(
        strstr(v[1].why, "decode.token: this program does not publish this event"));
    counters_close(&c);
}

TEST_WITH(published_once, publish, withdraw)
{
    char name[COUNTERS_NAME_MAX + 1];

    assert_err(counters_publish("decode.bytes", &bytes), ERR_ARG, "published already");
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = 0;
    assert_err(counters_publish(name, &bytes), ERR_ARG, "too long");
    assert_int_equal(counters_published("decode.bytes"), 1);
    counters_withdraw(NULL);
    assert_int_equal(counters_published("decode.bytes"), 0);
}

static void *in_thread(void *arg)
{
    static const char *const events[] = {"decode.bytes"};
    struct counters_value *v = arg;
    struct counters *c = open_events("sde", events, 1);

    counters_start(c, 0);
    counters_stop(c, 0);
    counters_read(c, v);
    counters_close(&c);
    return NULL;
}

TEST_WITH(any_thread_may_read, publish, withdraw)
{
    struct counters_value v;
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, in_thread, &v), 0);
    pthread_join(t, NULL);
    assert_true(v.value == 0);
}

/* Hardware events: a count where there is a PMU, else the reason. */
TEST(hardware_or_reason)
{
    static const char *const events[] = {"PAPI_TOT_INS", "PAPI_NOSUCH",
                                         "perf::INSTRUCTIONS"};
    struct counters_value v[3];
    struct counters *c = open_events("papi", events, 3);

    for (int i = 0; i < counters_passes(c); i++) {
        counters_start(c, i);
        counters_stop(c, i);
    }
    counters_read(c, v);
    assert_true(isnan(v[1].value));
    for (int i = 0; i < 3; i++) {
        if (isnan(v[i].value)) {
            assert_non_null(strstr(v[i].why, events[i]));
            assert_non_null(strstr(v[i].why, "PAPI: "));
        } else {
            assert_true(v[i].value > 0);
        }
    }
    counters_close(&c);
}

/* Software events of the kernel need no PMU, only a processor that PAPI knows: test_papi_kernel.sh
 * gives it one. */
TEST(kernel_counts_page_faults)
{
    static const char *const events[] = {"perf::PAGE-FAULTS"};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 4096;
    struct counters *c = open_events("papi", events, 1);
    struct counters_value v;
    char *p =
        mmap(NULL, n * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    madvise(p, n * page, MADV_NOHUGEPAGE);
    if (counters_passes(c) > 0) {
        counters_start(c, 0);
        for (size_t i = 0; i < n; i++)
            p[i * page] = 1;
        counters_stop(c, 0);
    }
    counters_read(c, &v);
    counters_close(&c);
    munmap(p, n * page);
    if (isnan(v.value))
        test_skip("%s", v.why);
    printf("# counted %.0f page faults of %zu pages\n", v.value, n);
    assert_true(v.value >= (double)n && v.value < test_shadow() * (double)n);
}
