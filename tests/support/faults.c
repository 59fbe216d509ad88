#include "tests/support/faults.h"

#include <pthread.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tests/support/mutate.h"

const char *test_memory_file(void)
{
    static char path[64];

    if (!path[0])
        snprintf(path, sizeof(path), "/proc/self/fd/%d",
                 memfd_create("test", MFD_CLOEXEC));
    return path;
}

int test_parse(const struct test_document *d, const void *data, size_t n)
{
    const char *named = d->named ? d->named : d->path;
    int rc;

    test_write(d->path, data, n);
    err_clear();
    rc = d->parse(d->opened ? d->opened : d->path);
    if (rc != OK && (!strstr(err_msg(), named) || strchr(err_msg(), '\n')))
        fail_msg("%s: \"%s\", wanted one line with %s", err_name(rc), err_msg(), named);
    return rc;
}

int test_edited(const struct test_document *d, const char *from, const char *to)
{
    size_t n_to = strlen(to), n_from = from ? strlen(from) : d->n, before;
    const char *at = from ? memmem(d->data, d->n, from, n_from) : d->data;
    char *text = mem_new(MEM_TEST, d->n + n_to + 1, 1);
    int rc;

    if (!at || !text)
        fail_msg("no \"%s\" in the document", from);
    before = (size_t)(at - (const char *)d->data);
    memcpy(text, d->data, before);
    memcpy(text + before, to, n_to);
    memcpy(text + before + n_to, at + n_from, d->n - before - n_from);
    rc = test_parse(d, text, d->n - n_from + n_to);
    mem_free(text);
    return rc;
}

void test_faults_of(const struct test_document *d, const struct test_fault *f, size_t n)
{
    assert_ok(test_parse(d, d->data, d->n));
    for (size_t i = 0; i < n; i++) {
        int rc = test_edited(d, f[i].from, f[i].to);

        if (rc != f[i].code || !strstr(err_msg(), f[i].part))
            fail_msg("\"%s\" for \"%s\": got %s \"%s\", wanted %s with \"%s\"", f[i].to,
                     f[i].from ? f[i].from : "all of it", err_name(rc), err_msg(),
                     err_name(f[i].code), f[i].part);
    }
}

/* Every offset of a short document; of a long one `dense` bytes, the end and one in 37. */
static size_t next_offset(size_t at, size_t end, size_t dense)
{
    return at + (end <= 4096 || at < dense || end - at < 64 ? 1 : 37);
}

static int sum_up(int n_refused, int n_all, int *n_read)
{
    if (n_read)
        *n_read = n_all - n_refused;
    return n_refused;
}

int test_cuts(const struct test_document *d, size_t end, int *n_read)
{
    int n_refused = 0, n = 0;

    for (size_t at = 0; at < end; at = next_offset(at, end, 2048), n++)
        n_refused += test_parse(d, d->data, at) != OK;
    return sum_up(n_refused, n, n_read);
}

int test_fields(const struct test_document *d, size_t end, int *n_read)
{
    static const struct {
        uint64_t value;
        size_t min_width; /* in fewer bytes it is another value of the table */
    } extreme[] = {{0, 1},          {1, 1},          {0x7fffffff, 4}, {1ull << 31, 4},
                   {1ull << 32, 8}, {1ull << 63, 8}, {UINT64_MAX, 1}};
    uint8_t *bytes = mem_new(MEM_TEST, d->n, 1);
    int n_refused = 0, n = 0;

    assert_non_null(bytes);
    memcpy(bytes, d->data, d->n);
    for (size_t at = 0; at < end; at = next_offset(at, end, 256))
        for (size_t width = 1; width <= 8 && at + width <= d->n; width *= 2)
            for (size_t e = 0; e < sizeof(extreme) / sizeof(extreme[0]); e++) {
                if (width < extreme[e].min_width)
                    continue;
                memcpy(bytes + at, &extreme[e].value, width);
                n_refused += test_parse(d, bytes, d->n) != OK;
                n++;
                memcpy(bytes + at, (const uint8_t *)d->data + at, width);
            }
    mem_free(bytes);
    return sum_up(n_refused, n, n_read);
}

int test_mutants(const struct test_document *d, int n)
{
    uint8_t *mutant = mem_new(MEM_TEST, d->n + MUTATE_EXTRA, 1);
    int n_refused = 0;
    struct rng r;

    assert_non_null(mutant);
    rng_init(&r, test_seed(), "mutants");
    for (int i = 0; i < n; i++)
        n_refused += test_parse(d, mutant, mutate(&r, d->data, d->n, mutant)) != OK;
    mem_free(mutant);
    return n_refused;
}

static void *nothing(void *arg)
{
    return arg;
}

void test_one_thread(void)
{
    pthread_t t;

    assert_int_equal(pthread_create(&t, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
}

void test_no_more_threads(int n)
{
    uint64_t end = clock_ns() + 20000000000;

    while (left_files("/proc/self/task") > n) {
        if (clock_ns() > end)
            fail_msg("%d threads, wanted at most %d", left_files("/proc/self/task"), n);
        clock_sleep_until_ns(clock_ns() + 1000000, 0);
    }
}
