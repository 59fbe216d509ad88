/* The seven metrics from recorded raw counts, worked by hand; lists of events that are
 * wrong are refused with file and key. */
#include <glob.h>
#include <math.h>

#include "base/json.h"
#include "characterize/counters/metrics.h"
#include "tests/support/test.h"

static struct counters_list list;

static void read_list(const char *name)
{
    char path[200];

    snprintf(path, sizeof(path), COUNTERS_EVENTS_DIR "/%s.json", name);
    assert_ok(counters_list_read(&list, path));
}

/* A count of an event by name; `parts` for units. */
static void put(struct counters_value *raw, const char *name, double value,
                const double *parts, int n_parts)
{
    int i = 0;

    while (i < list.n_events && strcmp(list.events[i].name, name) != 0)
        i++;
    assert_true(i < list.n_events);
    raw[i] = counters_zero();
    raw[i].value = value;
    raw[i].n_parts = n_parts ? n_parts : 1;
    raw[i].part[0] = value;
    for (int k = 0; k < n_parts; k++)
        raw[i].part[k] = parts[k];
}

static void check(const struct counters_value *out, enum counters_metric_id m,
                  double expected)
{
    if (!(fabs(out[m].value - expected) <= 1e-12 * fabs(expected)))
        fail_msg("%s: %.15g (%s), expected %.15g", counters_metric_name(m), out[m].value,
                 out[m].why, expected);
}

/* A decode phase as two sockets of a Cascade Lake would count it: 8e9 instructions. */
TEST(cascade_lake)
{
    const double channels[12] = {41e6, 41e6, 41e6, 41e6, 41e6, 41e6,
                                 39e6, 39e6, 39e6, 39e6, 39e6, 39e6};
    struct counters_value raw[COUNTERS_EVENTS_MAX], out[COUNTERS_N_METRICS];

    read_list("skylake_sp");
    put(raw, "instructions", 8e9, NULL, 0);
    put(raw, "cycles", 16e9, NULL, 0);
    put(raw, "l3_loads", 500e6, NULL, 0);
    put(raw, "tlb_walks", 6e6, NULL, 0);
    put(raw, "tlb_loads", 2.4e9, NULL, 0);
    put(raw, "dram_local", 30e6, NULL, 0);
    put(raw, "dram_remote", 10e6, NULL, 0);
    put(raw, "controller_reads", 480e6, channels, 12);
    put(raw, "bus_cycles", 640e6, NULL, 0);
    counters_metrics(&list, raw, out);
    check(out, COUNTERS_IPC, 0.5);          /* 8 / 16 */
    check(out, COUNTERS_L3LPKI, 62.5);      /* 500e6 / 8e6 */
    check(out, COUNTERS_DTLB_MISS, 0.0025); /* 6 / 2400 */
    check(out, COUNTERS_RAR, 0.25);         /* 10 / (30 + 10) */
    check(out, COUNTERS_MCLPKI, 60);        /* 480e6 / 8e6 */
    check(out, COUNTERS_MCIPKI, 0.125);     /* every channel 1e6 off 40e6: 1e6 / 8e6 */
    check(out, COUNTERS_BUSPKI, 80);        /* 640e6 / 8e6 */
}

TEST(zen_2)
{
    const double channels[8] = {13e6, 7e6, 10e6, 10e6, 10e6, 10e6, 10e6, 10e6};
    struct counters_value raw[COUNTERS_EVENTS_MAX], out[COUNTERS_N_METRICS];

    read_list("zen2");
    put(raw, "instructions", 4e9, NULL, 0);
    put(raw, "cycles", 1.6e9, NULL, 0);
    put(raw, "l2_demand_misses", 20e6, NULL, 0);
    put(raw, "l2_prefetch_l3_hits", 30e6, NULL, 0);
    put(raw, "l2_prefetch_l3_misses", 50e6, NULL, 0);
    put(raw, "tlb_walks", 3e6, NULL, 0);
    put(raw, "tlb_loads", 1.5e9, NULL, 0);
    put(raw, "dram_local", 18e6, NULL, 0);
    put(raw, "dram_remote", 2e6, NULL, 0);
    put(raw, "controller_reads", 80e6, channels, 8);
    put(raw, "clock_ns", 500e6, NULL, 0);
    counters_metrics(&list, raw, out);
    check(out, COUNTERS_IPC, 2.5);         /* 4 / 1.6 */
    check(out, COUNTERS_L3LPKI, 25);       /* (20 + 30 + 50)e6 / 4e6 */
    check(out, COUNTERS_DTLB_MISS, 0.002); /* 3 / 1500 */
    check(out, COUNTERS_RAR, 0.1);         /* 2 / (18 + 2) */
    check(out, COUNTERS_MCLPKI, 20);       /* 80e6 / 4e6 */
    check(out, COUNTERS_MCIPKI, 0.375);    /* sqrt((3^2 + 3^2) / 8) = 1.5: 1.5e6 / 4e6 */
    check(out, COUNTERS_BUSPKI, 12.5);     /* 500e6 ns at 0.1 a ns: 50e6 / 4e6 */
}

TEST(missing_stays_missing)
{
    struct counters_value raw[COUNTERS_EVENTS_MAX], out[COUNTERS_N_METRICS];

    read_list("neoverse_n1");
    for (int i = 0; i < list.n_events; i++)
        counters_none(&raw[i], 13, "%s: reason", list.events[i].name);
    counters_metrics(&list, raw, out);
    for (int m = 0; m < COUNTERS_N_METRICS; m++) {
        assert_true(isnan(out[m].value));
        assert_true(out[m].why[0] != 0);
    }
    assert_int_equal(out[COUNTERS_IPC].error, 13);
    assert_non_null(strstr(out[COUNTERS_IPC].why, "instructions: reason"));
    assert_non_null(strstr(out[COUNTERS_MCIPKI].why, "differ between makers"));
    put(raw, "instructions", 5, NULL, 0);
    put(raw, "cycles", 0, NULL, 0); /* nothing may be divided by it */
    counters_metrics(&list, raw, out);
    assert_true(isnan(out[COUNTERS_IPC].value));
    assert_non_null(strstr(out[COUNTERS_IPC].why, "divisor counted 0"));
}

/* ---- which processor ---- */

TEST(processors)
{
    static const struct {
        const char *text, *about;
    } cases[] = {
        {"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n", "Cascade Lake"},
        {"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n", "Ice Lake"},
        {"vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n", "Sapphire"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n", "Zen 2"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n", "Zen 3"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n", "Zen 4"},
        {"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: "
         "0xd0c\n",
         "Neoverse N1"},
        {"CPU implementer\t: 0x48\nCPU architecture: 8\nCPU part\t: 0xd01\n", "TaiShan"},
        {"vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n", "Any other"},
    };
    struct counters_cpu cpu;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(counters_cpu_parse(cases[i].text, &cpu));
        assert_ok(counters_list_find(&list, COUNTERS_EVENTS_DIR, &cpu));
        if (!strstr(list.about, cases[i].about))
            fail_msg("%s: found the list of %s", cases[i].about, list.about);
    }
    assert_err(counters_cpu_parse("processor : 0\n", &cpu), ERR_FORMAT, "vendor_id");
    assert_err(counters_list_find(&list, "no/such/dir", &cpu), ERR_IO, "no/such/dir");
}

/* ---- lists that are wrong ---- */

static char *list_text(void)
{
    size_t n;

    return test_read(COUNTERS_EVENTS_DIR "/zen2.json", &n);
}

static int read_text(const char *text)
{
    char path[700];

    snprintf(path, sizeof(path), "%s/list.json", test_dir());
    test_write(path, text, strlen(text));
    return counters_list_read(&list, path);
}

TEST(wrong_lists)
{
    static const struct {
        const char *from, *to, *part;
    } cases[] = {
        {"\"source\"", "\"sourc\"", "did you mean \"source\""},
        {"\"family\"", "\"famly\"", "did you mean \"family\""},
        {"\"scope\"", "\"scop\"", "did you mean \"scope\""},
        {"\"source\": \"Linux perf_event_open(2): PERF_COUNT_HW_INSTRUCTIONS\"",
         "\"source\": \"\"", "expected a manual or list of events"},
        {"\"note\"", "\"nota\"", "did you mean \"note\""},
        {"\"IPC\"", "\"ICP\"", "unknown key \"ICP\""},
        {"\"scale\"", "\"scal\"", "did you mean \"scale\""},
        {"\"num\": [\"instructions\"]", "\"num\": [\"instruction\"]",
         "did you mean \"instructions\""},
        {"\"num\": [\"instructions\"]", "\"num\": []", "expected 1 to 4 events"},
        {"\"scope\": \"machine\"", "\"scope\": \"core\"", "expected thread or machine"},
        {"\"family\": 23", "\"family\": -1", "family"},
        {"\"scale\": 1000", "\"scale\": 0", "expected above 0"},
        {"\"perf_event\": [\"instructions\"]", "\"perf_event\": [3]", "expected names"},
        {"48, 49", "48, \"49\"", "match.models: expected numbers"},
    };
    char *text = list_text();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *at = strstr(text, cases[i].from);
        size_t n = strlen(text) + strlen(cases[i].to) + 1;
        char *changed = mem_new(MEM_TEST, 1, n);

        assert_non_null(at);
        snprintf(changed, n, "%.*s%s%s", (int)(at - text), text, cases[i].to,
                 at + strlen(cases[i].from));
        assert_int_not_equal(read_text(changed), OK);
        if (!strstr(err_msg(), cases[i].part) || !strstr(err_msg(), "list.json"))
            fail_msg("%s: \"%s\"", cases[i].part, err_msg());
        mem_free(changed);
    }
    mem_free(text);
}

/* Whatever a byte becomes or where the file ends: an answer, and no crash. */
TEST(mutated_lists)
{
    static const char letters[] = "{}[]\",:0-9e\\ \x01\xff"
                                  "az";
    char *text = list_text();
    size_t n = strlen(text);
    int n_refused = 0;
    struct rng rng;

    rng_init(&rng, test_seed(), "lists");
    for (int i = 0; i < 400; i++) {
        size_t at = (size_t)(rng_f64(&rng) * (double)n);
        char old = text[at];

        text[at] = i % 8 ? letters[(size_t)(rng_f64(&rng) * (sizeof(letters) - 1))] : 0;
        n_refused += read_text(text) != OK;
        text[at] = old;
    }
    assert_true(n_refused > 100);
    mem_free(text);
}

TEST(shipped_lists)
{
    glob_t g;

    assert_int_equal(glob(COUNTERS_EVENTS_DIR "/*.json", 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= 9);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        assert_ok(counters_list_read(&list, g.gl_pathv[i]));
        for (int m = 0; m < COUNTERS_N_METRICS; m++)
            assert_true(list.metrics[m].unit[0] != 0);
    }
    globfree(&g);
}

/* The whole way on this machine: a number or a reason for each. */
TEST(meter_here)
{
    struct counters_value raw[COUNTERS_EVENTS_MAX], out[COUNTERS_N_METRICS];
    struct counters_meter *m;
    struct counters_cpu cpu;
    volatile double x = 1;

    assert_ok(counters_cpu_get(&cpu));
    assert_ok(counters_list_find(&list, COUNTERS_EVENTS_DIR, &cpu));
    assert_ok(counters_meter_open(&m, &list, true));
    for (int p = 0; p < counters_meter_passes(m); p++) {
        counters_meter_start(m, p);
        for (int i = 0; i < 100000; i++)
            x = x * 1.0000001;
        counters_meter_stop(m, p);
    }
    counters_meter_read(m, raw);
    counters_metrics(&list, raw, out);
    for (int i = 0; i < COUNTERS_N_METRICS; i++)
        assert_true(isnan(out[i].value) == (out[i].why[0] != 0));
    if (!isnan(out[COUNTERS_IPC].value))
        assert_true(out[COUNTERS_IPC].value > 0.01 && out[COUNTERS_IPC].value < 16);
    counters_meter_close(&m);
}
