/* What the kernel may refuse, hide or cut short is NaN with errno and remedy, never 0; and
 * what it really counts on this machine is right. */
#include <math.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/counters/fake_kernel.h"
#include "tests/counters/shadow.h"
#include "tests/support/faults.h"

static struct counters *open_events(const char *const *events, int n)
{
    const struct counters_provider *p;
    struct counters *c;

    assert_ok(counters_provider_find("perf_event", &p));
    assert_ok(counters_open(&c, p, events, n));
    return c;
}

static void run(struct counters *c)
{
    for (int i = 0; i < counters_passes(c); i++) {
        counters_start(c, i);
        counters_stop(c, i);
    }
}

TEST_WITH(refused_is_nan, fake_begin, fake_end)
{
    static const struct {
        int error;
        const char *part;
    } cases[] = {
        {EACCES, "perf_event_paranoid is 3: sysctl kernel.perf_event_paranoid=2"},
        {EPERM, "perf_event_paranoid is 3"},
        {ENOENT, "no such event here: no PMU"},
        {ENODEV, "no such event here"},
        {EINVAL, "refuses the event's settings"},
        {ENOSYS, "CONFIG_PERF_EVENTS"},
        {EMFILE, "ulimit -n"},
        {EBUSY, "nmi_watchdog"},
        {ENOMEM, "emory"},
    };
    static const char *const events[] = {"cycles", "instructions"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct counters_value v[2];
        struct counters *c;

        fake.refuse = cases[i].error;
        c = open_events(events, 2);
        assert_int_equal(counters_passes(c), 0);
        run(c);
        counters_read(c, v);
        for (int k = 0; k < 2; k++) {
            assert_true(isnan(v[k].value));
            assert_int_equal(v[k].error, cases[i].error);
            assert_non_null(strstr(v[k].why, cases[i].part));
            assert_non_null(strstr(v[k].why, events[k]));
            assert_true(strlen(v[k].why) < 96); /* records keep no more */
        }
        counters_close(&c);
    }
}

TEST_WITH(no_level_to_read, fake_begin, fake_end)
{
    static const char *const event = "cycles";
    struct counters_value v;
    struct counters *c;

    snprintf(fake_paranoid, sizeof(fake_paranoid), "%s/none", test_dir());
    fake.refuse = EACCES;
    c = open_events(&event, 1);
    counters_read(c, &v);
    assert_true(isnan(v.value));
    assert_non_null(strstr(v.why, "seccomp"));
    counters_close(&c);
}

TEST_WITH(counts_and_times_add_up, fake_begin, fake_end)
{
    static const char *const events[] = {"cycles", "instructions"};
    struct counters_value v[2];
    struct counters *c = open_events(events, 2);

    counters_read(c, v);
    assert_true(isnan(v[0].value)); /* nothing ran yet */
    assert_non_null(strstr(v[0].why, "no run"));
    run(c);
    run(c);
    counters_read(c, v);
    assert_true(v[0].value == 2000 && v[1].value == 2002); /* the fake adds the fd */
    assert_int_equal(v[0].enabled_ns, 2000000);
    assert_int_equal(v[0].running_ns, 2000000);
    counters_close(&c);
}

TEST_WITH(short_running_is_nan, fake_begin, fake_end)
{
    static const char *const event = "cycles";
    struct counters_value v;
    struct counters *c = open_events(&event, 1);

    fake.running_ns = 400000;
    run(c);
    counters_read(c, &v);
    assert_true(isnan(v.value));
    assert_non_null(strstr(v.why, "ran 0.4 of the time"));
    assert_int_equal(v.enabled_ns, 1000000); /* both are kept */
    assert_int_equal(v.running_ns, 400000);
    counters_close(&c);
}

TEST_WITH(never_ran_is_nan, fake_begin, fake_end)
{
    static const char *const event = "cycles";
    struct counters_value v;
    struct counters *c = open_events(&event, 1);

    fake.running_ns = fake.count = 0;
    run(c);
    counters_read(c, &v);
    assert_true(isnan(v.value));
    assert_non_null(strstr(v.why, "never ran"));
    counters_close(&c);
}

TEST_WITH(short_read_is_nan, fake_begin, fake_end)
{
    static const ssize_t sizes[] = {8, -1};
    static const char *const event = "cycles";

    for (int i = 0; i < 2; i++) {
        struct counters_value v;
        struct counters *c = open_events(&event, 1);

        fake.read_bytes = sizes[i];
        run(c);
        counters_read(c, &v);
        assert_true(isnan(v.value));
        assert_non_null(strstr(v.why, "cannot be read"));
        assert_int_equal(v.error, i ? EIO : 0);
        counters_close(&c);
    }
}

/* Four registers: nine events take three runs, a wrong one among them none. */
TEST_WITH(passes_not_multiplexing, fake_begin, fake_end)
{
    static const char *const events[] = {"r1", "r2", "r3", "rbad", "r4",
                                         "r5", "r6", "r7", "r8",   "r9"};
    struct counters_value v[10];
    struct counters *c;

    fake.group_room = 4;
    fake.bad = 0xbad;
    c = open_events(events, 10);
    assert_int_equal(counters_passes(c), 3);
    run(c);
    counters_read(c, v);
    for (int i = 0; i < 10; i++) {
        assert_true(isnan(v[i].value) == (i == 3));
        assert_int_equal(v[i].running_ns, i == 3 ? 0 : 1000000); /* once each */
    }
    assert_int_equal(v[3].error, EINVAL);
    counters_close(&c);
}

/* ---- names ---- */

static void make_devices(void)
{
    static const char *const dirs[] = {"",
                                       "/cpu",
                                       "/cpu/format",
                                       "/cpu/events",
                                       "/uncore_imc_0",
                                       "/uncore_imc_0/format",
                                       "/uncore_imc_0/events",
                                       "/uncore_imc_1",
                                       "/uncore_imc_1/format",
                                       "/uncore_imc_1/events",
                                       "/uncore_imc_free_running_0",
                                       "/many"};
    char path[800];

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", fake_devices, dirs[i]);
        if (mkdir(path, 0777) != 0)
            assert_int_equal(errno, EEXIST);
    }
    fake_file(fake_devices, "cpu/type", "4\n");
    fake_file(fake_devices, "cpu/format/event", "config:0-7,32-35\n");
    fake_file(fake_devices, "cpu/format/umask", "config:8-15\n");
    fake_file(fake_devices, "cpu/format/edge", "config:18\n");
    fake_file(fake_devices, "cpu/format/broken", "config:70\n");
    fake_file(fake_devices, "cpu/format/ldlat", "config1:0-15\n");
    fake_file(fake_devices, "cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n");
    fake_file(fake_devices, "uncore_imc_free_running_0/type", "22\n");
    fake_file(fake_devices, "uncore_imc_free_running_0/cpumask", "0,24\n");
    fake_file(fake_devices, "many/type", "30\n");
    fake_file(fake_devices, "many/cpumask", "0-40\n");
    for (int i = 0; i < 2; i++) {
        char name[64];

        snprintf(name, sizeof(name), "uncore_imc_%d/type", i);
        fake_file(fake_devices, name, i ? "21" : "20");
        snprintf(name, sizeof(name), "uncore_imc_%d/cpumask", i);
        fake_file(fake_devices, name, "0,24\n");
        snprintf(name, sizeof(name), "uncore_imc_%d/format/event", i);
        fake_file(fake_devices, name, "config:0-7");
        snprintf(name, sizeof(name), "uncore_imc_%d/events/cas_count_read", i);
        fake_file(fake_devices, name, "event=0x04");
    }
}

TEST_WITH(names_of_sysfs, fake_begin, fake_end)
{
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t config, config1;
    } good[] = {
        {"cpu/event=0xd0,umask=0x81/", 4, 0x81d0, 0},
        {"cpu/event=0x1d0,edge/", 4, 0x1000400d0, 0},
        {"cpu/mem-loads/", 4, 0x1cd, 3},
        {"r81d0", PERF_TYPE_RAW, 0x81d0, 0},
        {"dTLB-loads", PERF_TYPE_HW_CACHE, 3, 0},
        {"dTLB-load-misses", PERF_TYPE_HW_CACHE, 0x10003, 0},
        {"instructions", PERF_TYPE_HARDWARE, 1, 0},
    };
    static const struct {
        const char *name, *part;
    } bad[] = {
        {"instrucions", "did you mean \"instructions\""},
        {"cpu/evnt=1/", "has no field \"evnt\""},
        {"cpu/event=x/", "expected a number, found \"x\""},
        {"cpu/event=0x1000/", "does not fit"},
        {"cpu/broken=1/", "does not fit"},
        {"cpu/nosuch/", "has no field"},
        {"cpu/../type/", "has no field"},
        {"gpu/event=1/", "no unit \"gpu\""},
        {"nothing_*/event=1/", "no unit \"nothing_*\" here"},
        {"uncore_imc_*/cas_count_wrong/", "has no field \"cas_count_wrong\""},
        {"many//", "cpumask of many"},
        {"", "no such event"},
    };
    struct counters_perf_event e[COUNTERS_PARTS_MAX];
    struct counters_value v;
    int n;

    make_devices();
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(counters_perf_parse(good[i].name, e, &n, &v), OK);
        assert_int_equal(n, 1);
        assert_int_equal(e[0].attr.type, good[i].type);
        assert_int_equal(e[0].attr.config, good[i].config);
        assert_int_equal(e[0].attr.config1, good[i].config1);
        assert_int_equal(e[0].cpu, -1);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_not_equal(counters_perf_parse(bad[i].name, e, &n, &v), OK);
        assert_true(isnan(v.value));
        if (!strstr(v.why, bad[i].part))
            fail_msg("%s: \"%s\", wanted \"%s\"", bad[i].name, v.why, bad[i].part);
    }
}

/* Every controller of every package is a part, counted for the whole machine; what is
 * named alike and knows no such event is left out. */
TEST_WITH(units_are_parts, fake_begin, fake_end)
{
    static const char *const event = "uncore_imc_*/cas_count_read/";
    struct counters_value v;
    struct counters *c;

    make_devices();
    c = open_events(&event, 1);
    run(c);
    counters_read(c, &v);
    assert_int_equal(v.n_parts, 4);
    for (int i = 0; i < 4; i++) {
        assert_true(v.part[i] == 1000 + i);
        assert_int_equal(fake.cpu[i], i % 2 ? 24 : 0);
        assert_int_equal(fake.attr[i].type, i < 2 ? 20 : 21);
        assert_int_equal(fake.attr[i].exclude_kernel, 0);
    }
    assert_true(v.value == 4006);
    counters_close(&c);
}

/* Units outside the core have four registers, and drivers that do not say so. */
TEST_WITH(units_take_passes, fake_begin, fake_end)
{
    static const char *const events[] = {
        "uncore_imc_0/event=1/", "uncore_imc_0/event=2/", "uncore_imc_0/event=3/",
        "uncore_imc_0/event=4/", "uncore_imc_0/event=5/", "uncore_imc_1/event=5/"};
    struct counters *c;

    make_devices();
    c = open_events(events, 6);
    assert_int_equal(counters_passes(c), 2);
    counters_close(&c);
}

/* Switches happen in the kernel: excluding it would count a 0 that is none. */
TEST_WITH(switches_include_the_kernel, fake_begin, fake_end)
{
    struct counters_perf_event e[COUNTERS_PARTS_MAX];
    struct counters_value v;
    int n;

    assert_int_equal(counters_perf_parse("context-switches", e, &n, &v), OK);
    assert_int_equal(e[0].attr.exclude_kernel, 0);
    assert_int_equal(counters_perf_parse("page-faults", e, &n, &v), OK);
    assert_int_equal(e[0].attr.exclude_kernel, 1);
}

/* ---- the real kernel ---- */

TEST(real_page_faults)
{
    static const char *const events[] = {"page-faults", "task-clock"};
    enum { PAGES = 1000 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct counters_value v[2];
    struct counters *c = open_events(events, 2);
    char *p;

    if (counters_passes(c) == 0) {
        counters_read(c, v);
        counters_close(&c);
        test_skip("%s", v[0].why);
    }
    p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
             0);
    assert_true(p != MAP_FAILED);
    madvise(p, PAGES * page, MADV_NOHUGEPAGE);
    counters_start(c, 0);
    for (int i = 0; i < PAGES; i++)
        p[(size_t)i * page] = 1;
    counters_stop(c, 0);
    counters_read(c, v);
    assert_true(v[0].value >= PAGES && v[0].value < test_shadow() * PAGES);
    assert_true(v[1].value > 0);
    munmap(p, PAGES * page);
    counters_close(&c);
}

TEST(unknown_provider)
{
    const struct counters_provider *p;

    assert_err(counters_provider_find("perf_evnt", &p), ERR_NOTFOUND,
               "did you mean \"perf_event\"");
    assert_null(p);
}

TEST_WITH(memory_runs_out, fake_begin, fake_end)
{
    static const char *const events[] = {"cycles", "instructions", "rbad"};
    const struct counters_provider *p;
    struct counters *c = NULL;

    fake.bad = 0xbad;
    assert_ok(counters_provider_find("perf_event", &p));
    assert_true(test_allocations(counters_open(&c, p, events, 3), !c) > 0);
    counters_close(&c);
    counters_close(&c); /* of nothing */
}
