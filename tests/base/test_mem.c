#include "tests/support/test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

static bool all_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

TEST(objects)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1000003};
    size_t before = mem_used_bytes(MEM_TEST);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *p = mem_new(MEM_TEST, sizes[i], 1), *q = mem_new(MEM_TEST, 1, sizes[i]);
        assert_non_null(p);
        assert_non_null(q);
        assert_ptr_not_equal(p, q); /* of 0 bytes too */
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(all_zero(p, sizes[i]));
        memset(p, 0xff, sizes[i]);
        assert_true(all_zero(q, sizes[i]));
        assert_int_equal(mem_used_bytes(MEM_TEST), before + 2 * sizes[i]);
        mem_free(p);
        mem_free(q);
        assert_int_equal(mem_used_bytes(MEM_TEST), before);
    }
    mem_free(NULL);
    assert_true(mem_peak_bytes(MEM_TEST) >= before + 2 * 1000003);
}

TEST(overflow_is_refused)
{
    static const size_t bad[][2] = {
        {SIZE_MAX, 1},
        {1, SIZE_MAX},
        {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 2 + 1, 2},
        {SIZE_MAX, 2},
        {1, SIZE_MAX - 63},
        {(size_t)1 << 32, 1UL << 32},
        {1, PTRDIFF_MAX},
    };
    size_t before = mem_used_bytes(MEM_TEST);
    char *p = mem_new(MEM_TEST, 3, 1);

    memcpy(p, "ab", 3);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err_clear();
        assert_null(mem_new(MEM_TEST, bad[i][0], bad[i][1]));
        assert_non_null(strstr(err_msg(), "out of memory"));
        assert_null(mem_resize(MEM_TEST, p, bad[i][0], bad[i][1]));
        assert_null(mem_map(MEM_TEST, SIZE_MAX - i, MEM_NODE_ANY));
    }
    assert_string_equal(p, "ab");
    mem_free(p);
    assert_int_equal(mem_used_bytes(MEM_TEST), before);
}

TEST(resize)
{
    size_t before = mem_used_bytes(MEM_TEST), other = mem_used_bytes(MEM_OTHER);
    char *p = mem_resize(MEM_TEST, NULL, 10, 1);

    assert_true(all_zero(p, 10));
    memset(p, 7, 10);
    p = mem_resize(MEM_TEST, p, 1000, 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(p[i], 7);
    assert_true(all_zero(p + 10, 990));
    assert_int_equal(mem_used_bytes(MEM_TEST), before + 1000);
    p = mem_resize(MEM_OTHER, p, 5, 1); /* the tag goes with it */
    assert_int_equal(mem_used_bytes(MEM_TEST), before);
    assert_int_equal(mem_used_bytes(MEM_OTHER), other + 5);
    assert_int_equal(p[4], 7);
    p = mem_resize(MEM_OTHER, p, 0, 8);
    assert_non_null(p);
    mem_free(p);
    assert_int_equal(mem_used_bytes(MEM_OTHER), other);
}

TEST(strings)
{
    char *a = mem_strdup(MEM_TEST, "hello"), *b = mem_strndup(MEM_TEST, "hello", 2);
    char *c = mem_strndup(MEM_TEST, "hi", 100), *d = mem_strdup(MEM_TEST, "");

    assert_string_equal(a, "hello");
    assert_string_equal(b, "he");
    assert_string_equal(c, "hi");
    assert_string_equal(d, "");
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
}

TEST(maps)
{
    static const size_t sizes[] = {0,      1, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1,
                                   9 << 20};
    size_t before = mem_used_bytes(MEM_TEST);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int node = MEM_NODE_ANY; node <= 0; node++) {
            char *p = mem_map(MEM_TEST, sizes[i], node);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % (2 << 20), 0);
            assert_true(mem_used_bytes(MEM_TEST) >= before + sizes[i]);
            assert_true(all_zero(p, sizes[i]));
            memset(p, 1, sizes[i]);
            mem_unmap(MEM_TEST, p, sizes[i]);
            assert_int_equal(mem_used_bytes(MEM_TEST), before);
        }
    assert_null(
        mem_map(MEM_TEST, 4096, 1023)); /* no machine of the tests has this node */
    assert_non_null(strstr(err_msg(), "node 1023"));
    assert_null(mem_map(MEM_TEST, 4096, 1 << 20));
    assert_int_equal(mem_used_bytes(MEM_TEST), before);
    mem_unmap(MEM_TEST, NULL, 4096);
}

/* What a child of fork() writes its parent sees, and nobody else has a name for it. */
/* Another mapping of the file sees what this one writes, also when this one is gone. */
TEST(shared_maps_by_descriptor)
{
    size_t n = 5 << 20;
    int fd;
    char *p = mem_map_shared_fd(MEM_TEST, n, &fd), *other;

    assert_non_null(p);
    assert_true(fd >= 0);
    other = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(other, MAP_FAILED);
    p[0] = 1;
    p[n - 1] = 2;
    assert_true(other[0] == 1 && other[n - 1] == 2);
    mem_unmap(MEM_TEST, p, n);
    assert_true(other[0] == 1 && other[n - 1] == 2);
    munmap(other, n);
    close(fd);
    assert_null(mem_map_shared_fd(MEM_TEST, SIZE_MAX, &fd));
    assert_int_equal(fd, -1);
}

/* Any size from and to any address, and no byte more. */
TEST(copies_past_the_caches)
{
    unsigned char from[600], to[600];
    struct rng r;

    rng_init(&r, test_seed(), "copy");
    for (int round = 0; round < 5000; round++) {
        size_t n = rng_below(&r, round % 2 ? 30 : 400);
        size_t a = rng_below(&r, sizeof(from) - n), b = rng_below(&r, sizeof(to) - n);

        for (size_t i = 0; i < sizeof(from); i++)
            from[i] = (unsigned char)(1 + rng_below(&r, 255));
        memset(to, 0, sizeof(to));
        mem_copy_stream(to + b, from + a, n);
        assert_memory_equal(to + b, from + a, n);
        for (size_t i = 0; i < sizeof(to); i++)
            assert_true((to[i] != 0) == (i >= b && i < b + n));
    }
}

TEST(shared_maps)
{
    size_t before = mem_used_bytes(MEM_TEST), n = (2 << 20) + 1;
    char *p = mem_map_shared(MEM_TEST, n);
    int status;
    pid_t pid;

    assert_non_null(p);
    assert_int_equal((uintptr_t)p % (2 << 20), 0);
    assert_true(mem_used_bytes(MEM_TEST) >= before + n);
    assert_true(all_zero(p, n));
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        p[0] = p[n - 1] = 7;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(p[0] == 7 && p[n - 1] == 7);
    mem_unmap(MEM_TEST, p, n);
    assert_int_equal(mem_used_bytes(MEM_TEST), before);
    mem_fail_after(0, 1);
    p = mem_map_shared(MEM_TEST, n);
    mem_fail_after(-1, 0);
    assert_null(p);
    assert_null(mem_map_shared(MEM_TEST, SIZE_MAX));
    assert_int_equal(mem_used_bytes(MEM_TEST), before);
}

/* Every kind of allocation obeys the hook, once or from then on. */
TEST(fails_on_request)
{
    char *old = mem_new(MEM_TEST, 4, 1);

    for (int once = 0; once < 2; once++) {
        void *p[6];
        long n = mem_n_allocs();
        for (int k = 0; k <= 5; k++) {
            mem_fail_after(k, once);
            p[0] = mem_new(MEM_TEST, 1, 1);
            p[1] = mem_strdup(MEM_TEST, "a");
            p[2] = mem_strndup(MEM_TEST, "a", 1);
            p[3] = mem_map(MEM_TEST, 1, MEM_NODE_ANY);
            p[4] = mem_resize(MEM_TEST, NULL, 1, 1);
            mem_fail_after(-1, 0);
            for (int i = 0; i < 5; i++) {
                bool want = once ? i != k : i < k;
                assert_int_equal(p[i] != NULL, want);
            }
            for (int i = 0; i < 5; i++)
                i == 3 ? mem_unmap(MEM_TEST, p[i], 1) : mem_free(p[i]);
        }
        assert_int_equal(mem_n_allocs() - n, 6 * 5);
    }
    mem_fail_after(0, 0);
    assert_null(mem_resize(MEM_TEST, old, 100, 1));
    assert_int_equal(mem_alloc_refused(), 1);
    mem_fail_after(-1, 0);
    assert_int_equal(mem_alloc_refused(), 0);
    assert_true(all_zero(old, 4));
    mem_free(old);
}

/* A program that ends without memory: only for objects of its own side. */
TEST(ends_when_short)
{
    static const struct {
        enum mem_tag tag;
        bool map;
        int status;
    } rows[] = {{MEM_OTHER, false, 42},     {MEM_DATASET, false, 42},
                {MEM_HARNESS, false, 42},   {MEM_WEIGHTS, false, 0},
                {MEM_KV, false, 0},         {MEM_TOKENIZER, false, 0},
                {MEM_MODEL_FILE, false, 0}, {MEM_OTHER, true, 0}};
    int status;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pid_t pid = fork();

        if (pid == 0) {
            process_exit_when_short("t", 42);
            mem_fail_after(0, 0);
            void *p = rows[i].map ? mem_map(rows[i].tag, 1, MEM_NODE_ANY)
                                  : mem_resize(rows[i].tag, NULL, 1, 1);
            _exit(p != NULL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), rows[i].status);
    }
}

TEST(rss)
{
    const size_t n = 32 << 20;
    size_t before = mem_rss_bytes();
    char *p;

    if (before == 0)
        test_skip("/proc/self/status is not there");
    p = mem_map(MEM_TEST, n, MEM_NODE_ANY);
    memset(p, 1, n);
    assert_true(mem_rss_bytes() >= before + n / 2);
    mem_unmap(MEM_TEST, p, n);
    assert_true(mem_rss_peak_bytes() >= before + n / 2);
    if (mem_rss_peak_reset() != OK)
        test_skip("the kernel keeps the peak: %s", err_msg());
    assert_true(mem_rss_peak_bytes() < before + n / 2);
}

TEST(tags)
{
    for (int i = 0; i < MEM_N_TAGS; i++) {
        assert_non_null(mem_tag_name((enum mem_tag)i));
        assert_string_not_equal(mem_tag_name((enum mem_tag)i), "?");
    }
    assert_string_equal(mem_tag_name(MEM_N_TAGS), "?");
}

static void *churn(void *arg)
{
    struct rng r;
    void *held[16] = {0};

    rng_init(&r, (uint64_t)(uintptr_t)arg, "churn");
    for (int i = 0; i < 4000; i++) {
        size_t k = rng_below(&r, 16);
        mem_free(held[k]);
        held[k] = mem_new(MEM_TEST, rng_below(&r, 300), 1);
    }
    for (int k = 0; k < 16; k++)
        mem_free(held[k]);
    return NULL;
}

TEST(threads_add_up)
{
    size_t before = mem_used_bytes(MEM_TEST);
    pthread_t t[4];

    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)i), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(mem_used_bytes(MEM_TEST), before);
    assert_true(mem_peak_bytes(MEM_TEST) >= before);
}
