/* The memory that may still be taken, on machines made of files. */
#include "tests/support/fake_root.h"

static int64_t available(const struct fake_file *files, const char *reason)
{
    struct cpu_memory m;

    cpu_memory_set_root(fake_root(files));
    assert_ok(cpu_memory_get(&m));
    cpu_memory_set_root(NULL);
    if (!strstr(m.reason, reason))
        fail_msg("%lld bytes, \"%s\", wanted \"%s\"", (long long)m.bytes, m.reason,
                 reason);
    return m.bytes;
}

#define MEMINFO                                                                          \
    {                                                                                    \
        "/proc/meminfo", "MemTotal:       8000000 kB\nMemFree:          100000 kB\n"     \
                         "MemAvailable:    4000000 kB\nSwapFree:      9000000 kB\n"      \
    }
#define MOUNT_V2                                                                         \
    {                                                                                    \
        "/proc/self/mountinfo", "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - "      \
                                "cgroup2 cgroup2 rw,nsdelegate\n"                        \
    }

TEST(of_the_machine)
{
    const struct fake_file files[] = {MEMINFO, {0}};

    assert_int_equal(available(files, "MemAvailable"), 4000000 * INT64_C(1024));
}

TEST(unknown_is_no_limit)
{
    const struct fake_file none[] = {{"/proc/self/cgroup", "0::/a\n"}, {0}};
    const struct fake_file odd[] = {{"/proc/meminfo", "MemAvailable: many kB\n"},
                                    MOUNT_V2,
                                    {"/proc/self/cgroup", "0::/a\n"},
                                    {"/sys/fs/cgroup/a/memory.max", "a lot\n"},
                                    {0}};

    assert_true(available(none, "no limit is known") == INT64_MAX);
    assert_true(available(odd, "no limit is known") == INT64_MAX);
}

/* Each group above ours limits, too. Pages of files do not count as used. */
TEST(of_version_2)
{
    struct fake_file files[] = {
        MEMINFO,
        MOUNT_V2,
        {"/proc/self/cgroup", "0::/a/b\n"},
        {"/sys/fs/cgroup/a/memory.max", "2000000000\n"},
        {"/sys/fs/cgroup/a/memory.current", "700000000\n"},
        {"/sys/fs/cgroup/a/memory.stat",
         "anon 1\ninactive_file 100000000\nactive_file 50000000\n"},
        {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
        {"/sys/fs/cgroup/a/b/memory.current", "650000000\n"},
        {0},
    };

    assert_int_equal(
        available(files,
                  "2.000 GB by /sys/fs/cgroup/a/memory.max, of which 0.550 GB are used"),
        1450000000);
    files[6].text = "500000000\n"; /* less than is used there */
    assert_int_equal(available(files, "0.500 GB by /sys/fs/cgroup/a/b/memory.max, of"),
                     0);
    files[6].text = "9000000000\n";
    files[3].text = "max\n";
    assert_int_equal(available(files, "MemAvailable"), 4000000 * INT64_C(1024));
}

TEST(of_version_1)
{
    struct fake_file files[] = {
        MEMINFO,
        {"/proc/self/mountinfo",
         "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n"
         "36 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
         "35 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"},
        {"/proc/self/cgroup", "4:cpu:/x\n3:memory:/job\n0::/\n"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000000\n"},
        {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "300000000\n"},
        {"/sys/fs/cgroup/memory/job/memory.stat",
         "inactive_file 5\ntotal_inactive_file 200000000\ntotal_active_file 0\n"},
        {0},
    };

    assert_int_equal(
        available(files, "1.000 GB by /sys/fs/cgroup/memory/job/memory.limit"),
        900000000);
    files[4].text = "9223372036854771712\n";
    assert_int_equal(available(files, "MemAvailable"), 4000000 * INT64_C(1024));
}
