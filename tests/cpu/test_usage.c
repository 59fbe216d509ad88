/* What other machines report, as files below a folder. */
#include "tests/support/fake_root.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpu/usage.h"

#define CPU(n) "/sys/devices/system/cpu/cpu" #n

static const int two[] = {0, 2};

static void read_root(struct cpu_usage *u, const struct fake_file *files)
{
    cpu_usage_set_root(fake_root(files));
    assert_ok(cpu_usage_get(u, two, 2));
    cpu_usage_set_root(NULL);
}

/* Ticks are 10 ms. Of the CPUs 0 and 2 the programs, the kernel and the interrupts count,
 * neither idle time nor a guest's, which is in user time already. Of the processes count 50,
 * its children 51 and 52 and 53, a child of 51: in one of these a bracket in the name. */
TEST(all_is_read)
{
    static const struct fake_file files[] = {
        {"/proc/stat", "cpu  9 9 9 9 9 9 9 9 9 9\n"
                       "cpu0 100 20 30 4000 50 6 7 8 90 0\n"
                       "cpu1 1 1 1 1 1 1 1 1 1 1\n"
                       "cpu2 200 0 0 9000 0 0 0 2 0 0\n"
                       "intr 5 6 7\n"},
        {"/proc/self/stat", "50 (testbed) S 1 50 50 0 -1 0 1 2 3 4 10 20 3 4 20 0 1 0"},
        {"/proc/50/stat", "50 (testbed) S 1 50 50 0 -1 0 1 2 3 4 10 20 3 4 20 0 1 0"},
        {"/proc/51/stat", "51 (rank) 0)) R 50 50 50 0 -1 0 1 2 3 4 100 0 0 0 20 0 1 0"},
        {"/proc/52/stat", "52 (rank) S 50 50 50 0 -1 0 1 2 3 4 0 200 0 0 20 0 1 0"},
        {"/proc/9/stat", "9 (tool) S 51 50 50 0 -1 0 1 2 3 4 0 0 1000 0 20 0 1 0"},
        {"/proc/60/stat", "60 (cc1) R 1 60 60 0 -1 0 1 2 3 4 7777 0 0 0 20 0 1 0"},
        {"/proc/61/stat", "61 (cut"},
        {"/proc/loadavg", "2.96 2.52 2.08 4/109 6876\n"},
        {"/proc/sys/kernel/numa_balancing", "1\n"},
        {"/proc/self/cgroup", "0::/box\n"},
        {"/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
        {"/sys/fs/cgroup/box/cpu.stat",
         "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 1500\n"},
        {CPU(0) "/cpufreq/scaling_cur_freq", "1800000\n"},
        {CPU(2) "/cpufreq/scaling_cur_freq", "2100000\n"},
        {CPU(0) "/cpufreq/scaling_governor", "powersave\n"},
        {CPU(0) "/cpufreq/base_frequency", "2600000\n"},
        {CPU(0) "/thermal_throttle/core_throttle_count", "3\n"},
        {CPU(2) "/thermal_throttle/core_throttle_count", "4\n"},
        {0}};
    struct cpu_usage u;

    if (sysconf(_SC_CLK_TCK) != 100)
        test_skip("this kernel's tick is not 10 ms");
    read_root(&u, files);
    assert_int_equal(u.n_cpus, 2);
    assert_int_equal(u.busy_ns, (163 + 200) * 10000000ll);
    assert_int_equal(u.steal_ns, 10 * 10000000ll);
    assert_int_equal(u.self_ns, (37 + 100 + 200 + 1000) * 10000000ll);
    assert_int_equal(u.n_throttled, 4);
    assert_int_equal(u.throttled_ns, 1500000);
    assert_int_equal(u.n_hot, 7);
    assert_true(u.load_1min == 2.96 && u.mhz == 2100 && u.nominal_mhz == 2600);
    assert_string_equal(u.governor, "powersave");
    assert_string_equal(u.numa_balancing, "1");
}

/* Version 1 counts in ns, and another driver tells the nominal frequency in MHz. */
TEST(other_forms)
{
    static const struct fake_file files[] = {
        {"/proc/self/cgroup", "4:cpu,cpuacct:/box\n"},
        {"/proc/self/mountinfo",
         "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"},
        {"/sys/fs/cgroup/cpu/box/cpu.stat",
         "nr_periods 9\nnr_throttled 4\nthrottled_time 1500\n"},
        {CPU(0) "/acpi_cppc/nominal_freq", "2450\n"},
        {0}};
    struct cpu_usage u;

    read_root(&u, files);
    assert_int_equal(u.n_throttled, 4);
    assert_int_equal(u.throttled_ns, 1500);
    assert_true(u.nominal_mhz == 2450 && isnan(u.mhz));
}

/* What is not reported, or only as zeros, is unknown. */
TEST(nothing_is_known)
{
    static const struct fake_file none[] = {{"/proc/x", ""}, {0}};
    static const struct fake_file zeros[] = {
        {"/proc/stat",
         "cpu 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\n"},
        {0}};
    static const struct fake_file a_cpu_less[] = {
        {"/proc/stat", "cpu 1 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1 1\n"}, {0}};
    static const struct fake_file *const roots[] = {none, zeros, a_cpu_less};

    for (int i = 0; i < 3; i++) {
        struct cpu_usage u;

        read_root(&u, roots[i]);
        assert_int_equal(u.busy_ns, -1);
        assert_int_equal(u.steal_ns, -1);
        assert_int_equal(u.self_ns, -1);
        assert_int_equal(u.throttled_ns, -1);
        assert_int_equal(u.n_throttled, -1);
        assert_int_equal(u.n_hot, -1);
        assert_true(isnan(u.load_1min) && isnan(u.mhz) && isnan(u.nominal_mhz));
        assert_string_equal(u.governor, "");
        assert_string_equal(u.numa_balancing, "");
    }
}

/* The time of a child that runs counts as ours. */
TEST(this_machine)
{
    int cpus[CPU_MAX], n = cpu_usage_cpus(cpus), status;
    struct cpu_usage a, b;
    struct timespec none = {0, 1000000};
    pid_t child;

    assert_true(n >= 1);
    assert_ok(cpu_usage_get(&a, cpus, n));
    child = fork();
    if (child == 0) {
        volatile double x = 1;

        for (;;)
            x = x * 1.0000001;
    }
    do { /* until it had 50 ms of a CPU */
        nanosleep(&none, NULL);
        assert_ok(cpu_usage_get(&b, cpus, n));
    } while (b.self_ns >= 0 && b.self_ns - a.self_ns < 50000000);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(b.wall_ns > a.wall_ns && b.busy_ns >= a.busy_ns);
    assert_true(b.n_preempted >= a.n_preempted);
}

TEST(memory_runs_out)
{
    int cpus[CPU_MAX], n = cpu_usage_cpus(cpus), rc = ERR_NOMEM;
    struct cpu_usage u;

    for (long k = 0; rc != OK; k++) {
        mem_fail_after(k, 0);
        rc = cpu_usage_get(&u, cpus, n);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
        assert_true(k < 100);
    }
}
