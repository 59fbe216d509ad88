#include "tests/support/fake_root.h"

#include <math.h>

#define CPU_DIR     "/sys/devices/system/cpu"
#define SIBLINGS(n) CPU_DIR "/cpu" #n "/topology/thread_siblings_list"
/* 8 CPUs, 4 cores; siblings are n and n + 4, as on most Intel servers */
#define SMT_MACHINE                                                                      \
    {CPU_DIR "/online", "0-7\n"}, {SIBLINGS(0), "0,4\n"}, {SIBLINGS(1), "1,5\n"},        \
        {SIBLINGS(2), "2,6\n"}, {SIBLINGS(3), "3,7\n"}, {SIBLINGS(4), "0,4\n"},          \
        {SIBLINGS(5), "1,5\n"}, {SIBLINGS(6), "2,6\n"},                                  \
    {                                                                                    \
        SIBLINGS(7), "3,7\n"                                                             \
    }
#define MOUNT_V2                                                                         \
    {                                                                                    \
        "/proc/self/mountinfo", "22 1 0:20 / / rw - ext4 /dev/sda rw\n"                  \
                                "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - "      \
                                "cgroup2 cgroup2 rw,nsdelegate\n"                        \
    }
#define MOUNT_V1                                                                         \
    {                                                                                    \
        "/proc/self/mountinfo",                                                          \
            "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n"                 \
            "35 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"          \
            "36 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "                \
            "rw,cpuacct,cpu\n"                                                           \
    }

static const int eight[8] = {0, 1, 2, 3, 4, 5, 6, 7};

static void expect(const struct cpu_budget *b, int n, int cores, double quota,
                   const char *reason)
{
    if (b->n != n || b->n_cores != cores || !strstr(b->reason, reason) ||
        (isnan(quota) ? !isnan(b->quota_cpus) : fabs(b->quota_cpus - quota) > 1e-9))
        fail_msg("n %d (wanted %d), cores %d (%d), quota %g (%g), \"%s\" (\"%s\")", b->n,
                 n, b->n_cores, cores, b->quota_cpus, quota, b->reason, reason);
}

TEST(quota_of_version_2)
{
    const struct fake_file files[] = {
        SMT_MACHINE,
        MOUNT_V2,
        {"/proc/self/cgroup", "0::/a/b\n"},
        {"/sys/fs/cgroup/a/cpu.max", "200000 100000\n"},
        {"/sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
        {0},
    };
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, fake_root(files), eight, 8));
    expect(&b, 2, 4, 2.0, "2 of 8 CPUs: quota 2.00 CPUs (cgroup v2)");
    assert_int_equal(b.cpus[0], 0);
    assert_int_equal(b.cpus[1], 1);
    assert_int_equal(b.n_online, 8);
    assert_int_equal(b.n_allowed, 8);
}

TEST(quota_of_version_1)
{
    const struct fake_file files[] = {
        SMT_MACHINE,
        MOUNT_V1,
        {"/proc/self/cgroup", "7:cpuset:/\n4:cpuacct,cpu:/job/step\n1:name=systemd:/x\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n"},
        {0},
    };
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, fake_root(files), eight, 8));
    expect(&b, 3, 4, 3.0, "quota 3.00 CPUs (cgroup v1)");
}

/* Every ancestor binds: the tightest counts, also at the mount point itself. */
TEST(the_tightest_of_the_tree)
{
    const struct fake_file files[] = {
        SMT_MACHINE,
        MOUNT_V2,
        {"/proc/self/cgroup", "0::/a/b/c\n"},
        {"/sys/fs/cgroup/cpu.max", "150000 50000\n"},
        {"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
        {"/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n"},
        {0},
    };
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, fake_root(files), eight, 8));
    expect(&b, 3, 4, 3.0, "quota 3.00");
}

/* Both versions mounted, as systemd's hybrid mode does. */
TEST(both_versions)
{
    const struct fake_file files[] = {
        SMT_MACHINE,
        {"/proc/self/mountinfo",
         "36 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
         "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
        {"/proc/self/cgroup", "4:cpu:/j\n0::/j\n"},
        {"/sys/fs/cgroup/cpu/j/cpu.cfs_quota_us", "250000\n"},
        {"/sys/fs/cgroup/cpu/j/cpu.cfs_period_us", "100000\n"},
        {"/sys/fs/cgroup/unified/j/cpu.max", "350000 100000\n"},
        {0},
    };
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, fake_root(files), eight, 8));
    expect(&b, 2, 4, 2.5, "2 of 8 CPUs: quota 2.50 CPUs (cgroup v1)");
}

/* A container sees its own part of the tree mounted at the top. */
TEST(inside_a_container)
{
    const struct fake_file files[] = {
        SMT_MACHINE,
        {"/proc/self/mountinfo",
         "36 31 0:30 /docker/c0ffee /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
        {"/proc/self/cgroup", "4:cpu:/docker/c0ffee\n"},
        {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
        {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
        {0},
    };
    const struct fake_file outside[] = {
        SMT_MACHINE,
        MOUNT_V2,
        {"/proc/self/cgroup", "0::/../../sibling\n"},
        {"/sys/fs/cgroup/cpu.max", "100000 100000\n"},
        {0},
    };
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, fake_root(files), eight, 8));
    expect(&b, 1, 4, 1.0, "quota 1.00");
    assert_ok(cpu_budget_get_at(&b, fake_root(outside), eight, 8));
    expect(&b, 1, 4, 1.0, "quota 1.00");
}

/* Less than one CPU still gives one thread; 3.99 pays for three, not four. */
TEST(fractions)
{
    static const struct {
        const char *name, *max;
        double quota;
        int n;
    } cases[] = {
        {"f1", "50000 100000\n", 0.5, 1},
        {"f2", "399000 100000\n", 3.99, 3},
        {"f3", "800000 100000\n", 8, 4},
        {"f4", "max 100000\n", NAN, 4},
        {"f5", "max\n", NAN, 4},
        {"f6", "200000\n", 2, 2},
        {"f7", "", NAN, 4},
        {"f8", "0 100000\n", NAN, 4},
        {"f9", "100000 garbage\n", 1, 1},
        {"fa", "garbage\n", NAN, 4},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct fake_file files[] = {
            SMT_MACHINE,
            MOUNT_V2,
            {"/proc/self/cgroup", "0::/a\n"},
            {"/sys/fs/cgroup/a/cpu.max", cases[i].max},
            {0},
        };
        struct cpu_budget b;

        assert_ok(cpu_budget_get_at(&b, fake_root(files), eight, 8));
        expect(&b, cases[i].n, 4, cases[i].quota,
               isnan(cases[i].quota) ? "no cgroup quota" : "quota");
    }
}

TEST(siblings_count_once)
{
    const struct fake_file files[] = {SMT_MACHINE, {0}};
    const char *root = fake_root(files);
    const int pair[] = {1, 5}, uppers[] = {7, 6, 2}, twice[] = {3, 3};
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, root, eight, 8));
    expect(&b, 4, 4, NAN, "4 of 8 CPUs: no cgroup quota, affinity allows 8, 4 physical");
    assert_ok(cpu_budget_get_at(&b, root, pair, 2));
    expect(&b, 1, 1, NAN, "affinity allows 2, 1 physical");
    assert_int_equal(b.cpus[0], 1);
    assert_ok(cpu_budget_get_at(&b, root, uppers, 3));
    expect(&b, 2, 2, NAN, "affinity allows 3");
    assert_int_equal(b.cpus[0], 2);
    assert_int_equal(b.cpus[1], 7);
    assert_ok(cpu_budget_get_at(&b, root, twice, 2));
    expect(&b, 1, 1, NAN, "affinity allows 1");
}

/* No /proc, no /sys: the affinity is all there is to know, and it says so. */
TEST(missing_files)
{
    const struct fake_file nothing[] = {{"/proc/empty", ""}, {0}};
    const struct fake_file broken[] = {
        {CPU_DIR "/online", "zero\n"},
        {SIBLINGS(0), "0-\n"},
        {"/proc/self/cgroup", "nonsense\n"},
        {"/proc/self/mountinfo", "x - y\n\n1 2 3 - cgroup2\n"},
        {0},
    };
    struct cpu_budget b;

    assert_ok(cpu_budget_get_at(&b, fake_root(nothing), eight, 8));
    expect(&b, 8, 8, NAN, "8 of 8 CPUs: no cgroup quota, affinity allows 8, 8 taken as");
    assert_ok(cpu_budget_get_at(&b, fake_root(broken), eight, 3));
    expect(&b, 3, 3, NAN, "3 of 3 CPUs");
    assert_err(cpu_budget_get_at(&b, "/", eight, 0), ERR_ARG, "empty");
    assert_err(cpu_budget_get_at(&b, "/", (int[]){-1}, 1), ERR_ARG, "CPU -1");
}

TEST(memory_runs_out)
{
    const struct fake_file files[] = {
        SMT_MACHINE, MOUNT_V2, {"/proc/self/cgroup", "0::/a\n"}, {0}};
    const char *root = fake_root(files);
    struct cpu_budget b;

    mem_fail_after(0, 1);
    assert_int_equal(cpu_budget_get_at(&b, root, eight, 8), ERR_NOMEM);
    mem_fail_after(-1, 0);
    assert_ok(cpu_budget_get_at(&b, root, eight, 8));
}

TEST(this_machine)
{
    struct cpu_budget b;

    assert_ok(cpu_budget_get(&b));
    assert_true(b.n >= 1 && b.n <= b.n_cores && b.n_cores <= b.n_allowed);
    assert_true(b.n_allowed <= b.n_online);
    for (int i = 1; i < b.n_cores; i++)
        assert_true(b.cpus[i - 1] < b.cpus[i]);
    assert_ok(cpu_pin_self(b.cpus[b.n - 1]));
    assert_int_equal(cpu_current(), b.cpus[b.n - 1]);
}
