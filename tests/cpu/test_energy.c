/* Energy counters of other machines, as files below a folder. */
#include "tests/support/fake_root.h"

#include <math.h>

#include "cpu/energy.h"

#define ZONE(dir, name, uj, range)                                                       \
    {"/sys/class/powercap/" dir "/name", name "\n"},                                     \
        {"/sys/class/powercap/" dir "/energy_uj", uj "\n"},                              \
    {                                                                                    \
        "/sys/class/powercap/" dir "/max_energy_range_uj", range "\n"                    \
    }

static int read_root(struct cpu_energy *e, const struct fake_file *files, double *joules)
{
    int rc;

    cpu_energy_set_root(fake_root(files));
    rc = cpu_energy_read(e, joules);
    cpu_energy_set_root(NULL);
    return rc;
}

/* Two packages and the memory of one; cores are within their package, psys is around all, and the
 * same package is there twice. The second package's counter starts over. */
TEST(packages_and_memory_are_summed)
{
    static const struct fake_file before[] = {
        ZONE("intel-rapl:0", "package-0", "1000000", "262143328850"),
        ZONE("intel-rapl:0:0", "core", "900000", "262143328850"),
        ZONE("intel-rapl:0:1", "dram", "500000", "65712999613"),
        ZONE("intel-rapl:1", "package-1", "262143000000", "262143328850"),
        ZONE("intel-rapl:2", "psys", "9000000", "262143328850"),
        ZONE("intel-rapl-mmio:0", "package-0", "1000000", "262143328850"),
        {"/sys/class/powercap/intel-rapl/enabled", "1\n"},
        {0}};
    static const struct fake_file after[] = {
        ZONE("intel-rapl:0", "package-0", "3500000", "262143328850"),
        ZONE("intel-rapl:0:0", "core", "990000", "262143328850"),
        ZONE("intel-rapl:0:1", "dram", "750000", "65712999613"),
        ZONE("intel-rapl:1", "package-1", "671150", "262143328850"),
        ZONE("intel-rapl:2", "psys", "99000000", "262143328850"),
        ZONE("intel-rapl-mmio:0", "package-0", "3500000", "262143328850"),
        {0}};
    struct cpu_energy e = {0};
    double joules = -1;

    assert_ok(read_root(&e, before, &joules));
    assert_true(joules == 0 && e.n == 3);
    assert_ok(read_root(&e, after, &joules));
    assert_true(fabs(joules - (2.5 + 0.25 + 1.0)) < 1e-9);
    assert_ok(read_root(&e, after, &joules)); /* nothing was taken since */
    assert_true(fabs(joules - 3.75) < 1e-9);
}

TEST(what_is_missing_is_said)
{
    static const struct fake_file none[] = {{"/sys/class/net/lo/name", "lo\n"}, {0}};
    static const struct fake_file locked[] = {
        {"/sys/class/powercap/intel-rapl:0/name", "package-0\n"}, {0}};
    static const struct fake_file odd[] = {
        {"/sys/class/powercap/intel-rapl:0/name", "package-0\n"},
        {"/sys/class/powercap/intel-rapl:0/energy_uj", "many\n"},
        {0}};
    static const struct fake_file there[] = {ZONE("intel-rapl:0", "package-0", "5", "9"),
                                             {0}};
    struct cpu_energy e = {0};
    double joules;

    assert_err(read_root(&e, none, &joules), ERR_NOTFOUND, "shows no counter");
    assert_err(read_root(&e, locked, &joules), ERR_NOTFOUND, "only root may read");
    assert_err(read_root(&e, odd, &joules), ERR_NOTFOUND, "only root may read");
    assert_ok(read_root(&e, there, &joules));
    assert_err(read_root(&e, none, &joules), ERR_NOTFOUND, "intel-rapl:0 is gone");
}

/* Whatever this machine has: a reading or a reason. */
TEST(this_machine)
{
    struct cpu_energy e = {0};
    double joules, again;

    if (cpu_energy_read(&e, &joules) != OK)
        test_skip("%s", err_msg());
    assert_ok(cpu_energy_read(&e, &again));
    assert_true(joules == 0 && again >= 0);
}
