#include "tests/support/test.h"

#include "cpu/assume.h"
#include "cpu/sysfile.h"

TEST(lists_parse)
{
    static const struct {
        const char *text;
        int n, cpus[8];
    } cases[] = {
        {"0-3,8\n", 5, {0, 1, 2, 3, 8}},
        {"7", 1, {7}},
        {"", 0, {0}},
        {"\n", 0, {0}},
        {"2,1", 2, {2, 1}},
        {"5-5", 1, {5}},
        {" 1 ", 1, {1}},
    };
    int cpus[8], n;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(cpu_list_parse(cases[i].text, cpus, 8, &n));
        assert_int_equal(n, cases[i].n);
        for (int k = 0; k < n; k++)
            assert_int_equal(cpus[k], cases[i].cpus[k]);
    }
}

TEST(bad_lists_are_refused)
{
    static const char *const bad[] = {"x",  "1,",  "1,,2",  "3-1",         "1-",
                                      "-1", "1;2", "1-2-3", "99999999999", ",1"};
    int cpus[4], n;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_err(cpu_list_parse(bad[i], cpus, 4, &n), ERR_FORMAT, "offset");
    assert_err(cpu_list_parse("0-4", cpus, 4, &n), ERR_LIMIT, "more than 4");
    assert_err(cpu_list_parse("0-2147483647", cpus, 4, &n), ERR_LIMIT, "more than 4");
    assert_ok(cpu_list_parse("0-3", cpus, 4, &n));
    assert_int_equal(n, 4);
}

TEST(lists_print)
{
    char text[32];

    cpu_list_print((int[]){0, 1, 2, 3, 8}, 5, text, sizeof(text));
    assert_string_equal(text, "0-3,8");
    cpu_list_print((int[]){5}, 1, text, sizeof(text));
    assert_string_equal(text, "5");
    cpu_list_print((int[]){1, 3, 4}, 3, text, sizeof(text));
    assert_string_equal(text, "1,3-4");
    cpu_list_print(NULL, 0, text, sizeof(text));
    assert_string_equal(text, "");
    memset(text, '#', sizeof(text));
    cpu_list_print((int[]){100, 200, 300}, 3, text, 6); /* cut, never past the end */
    assert_string_equal(text, "100,2");
    assert_int_equal(text[6], '#');
}

TEST(fields_of_files)
{
    static const char text[] = "model name\t: Some CPU @ 2 GHz\nmodel\t\t: 26\n"
                               "nr_periods 5\nnr_throttled 7\nempty :\n";
    char v[32];

    assert_true(cpu_file_field(text, "model", v, sizeof(v)));
    assert_string_equal(v, "26");
    assert_true(cpu_file_field(text, "model name", v, sizeof(v)));
    assert_string_equal(v, "Some CPU @ 2 GHz");
    assert_true(cpu_file_field(text, "nr_throttled", v, sizeof(v)));
    assert_string_equal(v, "7");
    assert_true(cpu_file_field(text, "empty", v, sizeof(v)));
    assert_string_equal(v, "");
    assert_false(cpu_file_field(text, "nr", v, sizeof(v)));
    assert_false(cpu_file_field("", "nr", v, sizeof(v)));
}

TEST(identity)
{
    struct cpu_info a, b;

    cpu_info_get(&a);
    cpu_info_get(&b);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_true(a.line_bytes >= 16 && a.line_bytes <= 1024);
    if (!a.vendor[0])
        test_skip("/proc/cpuinfo names no vendor");
    assert_true(a.model_name[0] && a.family > 0);
}

TEST(caches_are_what_the_kernel_says)
{
    struct cpu_info info;

    cpu_info_get(&info);
    if (info.l1d_bytes > 0)
        assert_int_equal(cpu_cache_bytes(1), info.l1d_bytes);
    if (info.l2_bytes > 0)
        assert_int_equal(cpu_cache_bytes(2), info.l2_bytes);
    if (info.l3_bytes > 0)
        assert_int_equal(cpu_cache_bytes(3), info.l3_bytes);
    for (int level = 1; level <= 3; level++) /* said or not, it is a size */
        assert_true(cpu_cache_bytes(level) >= 4096);
    assert_int_equal(cpu_cache_bytes(0), cpu_cache_bytes(1));
    assert_int_equal(cpu_cache_bytes(9), cpu_cache_bytes(3));
}

/* Regression: the cost model took Zen 4 for twice as fast at 512-bit multiply-adds, and
 * chose slow slices for 5 to 10 rows. */
TEST(multiply_adds_in_a_cycle)
{
    const struct cpu_info zen3 = {.vendor = "AuthenticAMD", .family = 0x19};
    const struct cpu_info zen5 = {.vendor = "AuthenticAMD", .family = 0x1a};
    const struct cpu_info intel = {.vendor = "GenuineIntel", .family = 6};
    struct cpu_info here;

    assert_int_equal(cpu_fma_per_cycle_of(&zen3, 256),
                     2); /* Zen 4 is of this family, too */
    assert_int_equal(cpu_fma_per_cycle_of(&zen3, 512), 1);
    assert_int_equal(cpu_fma_per_cycle_of(&zen5, 512), 2);
    assert_int_equal(cpu_fma_per_cycle_of(&intel, 512), 2);
    assert_true(cpu_bf16_dot_fast_of(&zen5) && !cpu_bf16_dot_fast_of(&intel));
    cpu_info_get(&here);
    for (int bits = 128; bits <= 512; bits *= 2)
        assert_int_equal(cpu_fma_per_cycle(bits), cpu_fma_per_cycle_of(&here, bits));
}

TEST(prefetching_by_vendor)
{
    struct cpu_info zen = {.vendor = "AuthenticAMD", .family = 0x19};
    const struct cpu_info zen5 = {.vendor = "AuthenticAMD", .family = 0x1a};
    const struct cpu_info intel = {.vendor = "GenuineIntel", .family = 6};
    static const int zen3[] = {0x00, 0x01, 0x08, 0x21, 0x44, 0x50, 0x5f};
    static const int zen4[] = {0x10, 0x11, 0x1f, 0x61, 0x74, 0x78, 0xa0, 0xaf};
    struct cpu_prefetch p, q;
    struct cpu_info here;

    for (size_t i = 0; i < sizeof(zen3) / sizeof(zen3[0]); i++) {
        zen.model = zen3[i];
        cpu_prefetch_of(&p, &zen);
        assert_true(!p.sparse && p.later);
    }
    for (size_t i = 0; i < sizeof(zen4) / sizeof(zen4[0]); i++) {
        zen.model = zen4[i];
        cpu_prefetch_of(&p, &zen);
        assert_true(p.sparse && p.later);
    }
    cpu_prefetch_of(&q, &zen5);
    assert_true(!q.sparse && q.later && q.streams > 1 && q.streams_rows == 1);
    cpu_prefetch_of(&q, &intel);
    assert_true(!q.sparse && !q.later);
    assert_true(p.far_bytes > 0 && q.far_bytes > p.far_bytes);
    assert_true(p.streams == 1 && q.streams > 1 && q.streams_rows > 1);
    cpu_info_get(&here);
    cpu_prefetch_of(&p, &here);
    assert_true(p.sparse == cpu_prefetch()->sparse && p.later == cpu_prefetch()->later &&
                p.far_bytes == cpu_prefetch()->far_bytes &&
                p.streams == cpu_prefetch()->streams &&
                p.streams_rows == cpu_prefetch()->streams_rows);
}

TEST(another_core_can_be_assumed)
{
    const struct cpu_info other = {.vendor = "AuthenticAMD",
                                   .family = 0x19,
                                   .model = 0x11,
                                   .l1d_bytes = 12345,
                                   .l2_bytes = 123456,
                                   .l3_bytes = 1234567};
    const struct cpu_prefetch before = *cpu_prefetch();
    const int fma = cpu_fma_per_cycle(512);
    size_t bytes[3];

    for (int i = 0; i < 3; i++)
        bytes[i] = cpu_cache_bytes(i + 1);
    cpu_assume(&other);
    assert_int_equal(cpu_cache_bytes(1), 12345);
    assert_int_equal(cpu_cache_bytes(2), 123456);
    assert_int_equal(cpu_cache_bytes(3), 1234567);
    assert_int_equal(cpu_fma_per_cycle(512), 1);
    assert_true(cpu_prefetch()->sparse && cpu_bf16_dot_fast());
    cpu_assume(NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cpu_cache_bytes(i + 1), bytes[i]);
    assert_int_equal(cpu_fma_per_cycle(512), fma);
    assert_memory_equal(cpu_prefetch(), &before, sizeof(before));
}

TEST(bad_cpus_are_refused)
{
    assert_err(cpu_pin_self(-1), ERR_ARG, "CPU -1");
    assert_err(cpu_pin_self(1 << 20), ERR_ARG, "expected 0");
    assert_err(cpu_pin_self(1023), ERR_IO, "CPU 1023");
}
