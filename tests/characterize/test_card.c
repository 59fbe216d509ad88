#include "tests/support/test.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "characterize/trial.h"
#include "cpu/usage.h"
#include "measure/card.h"
#include "measure/compare.h"

static void near(double got, double wanted)
{
    if (isnan(wanted) ? !isnan(got) : !(fabs(got - wanted) < 1e-9))
        fail_msg("got %g, wanted %g", got, wanted);
}

/* ---- measuring and keeping ---- */

static int n_measured;

static void count_measurements(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)level;
    n_measured += strstr(line, "measuring this machine") != NULL;
}

/* Whatever runs on this machine meanwhile. */
static struct machine_card_opts opts(const char *dir)
{
    return (struct machine_card_opts){
        .dir = dir, .accept_noise = true, .budget_s = 0.05, .buffer_bytes = 16 << 20};
}

/* Of those kept since the last call, this many have this code and text. */
static void take_warnings(int n_expected, const char *code, const char *text)
{
    struct log_warning w[8];
    int n = log_warnings_take(w, 8), found = 0;

    for (int i = 0; i < n; i++)
        found += strcmp(w[i].code, code) == 0 && strstr(w[i].text, text) != NULL;
    if (found != n_expected)
        fail_msg("%d warnings %s \"%s\" of %d, expected %d", found, code, text, n,
                 n_expected);
}

static json_t *get(const char *dir, int force, int expect_measured)
{
    struct machine_card_opts o = opts(dir);
    json_t *card;

    o.force = force;
    n_measured = 0;
    assert_ok(machine_card_get(&card, &o));
    assert_int_equal(n_measured, expect_measured);
    return card;
}

static void check_measured(const json_t *card)
{
    const json_t *row, *values = json_object_get(card, "values");
    int n_available = 0;
    size_t i;

    json_array_foreach((json_t *)values, i, row)
    {
        const json_t *estimate = json_object_get(row, "estimate");
        const char *why = json_string_value(json_object_get(row, "why"));

        assert_non_null(why);
        if (json_is_null(estimate)) {
            assert_true(why[0] != '\0');
            continue;
        }
        n_available++;
        assert_string_equal(why, "");
        /* of noise there may be none */
        if (strncmp(json_string_value(json_object_get(row, "name")), "noise_", 6) == 0)
            continue;
        assert_true(json_number_value(estimate) > 0);
        assert_true(json_integer_value(json_object_get(row, "n_trials")) >= 3);
    }
    assert_true(n_available >= 4); /* read, copy, triad, plain C */
    assert_true(measure_card_read_gbps(card, 1) > 0);
    assert_true(measure_card_peak_gflops(card, "f32", "exact", 1) > 0);
}

TEST(measured_once)
{
    json_t *a, *b;
    char dir[600];

    log_set_sink(count_measurements, NULL);
    snprintf(dir, sizeof(dir), "%s/not/yet/there", test_dir());
    a = get(dir, 0, 1);
    check_measured(a);
    b = get(dir, 0, 0);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    json_decref(get(dir, 1, 1)); /* force */
    log_set_sink(NULL, NULL);
}

/* A card measured with fewer instruction sets neither replaces the other nor stands for it:
 * it would bound what it has never seen. */
TEST(masked_card)
{
    const char *before = getenv(CPU_ISA_ENV);
    char dir[600], level[32];
    json_t *all, *masked, *again;

    if (!cpu_isa_detected())
        test_skip("nothing can be hidden on a machine that has plain C only");
    snprintf(level, sizeof(level), "%s", before ? before : "auto");
    snprintf(dir, sizeof(dir), "%s/masked", test_dir());
    log_set_sink(count_measurements, NULL);
    all = get(dir, 0, 1);
    setenv(CPU_ISA_ENV, "ref", 1);
    masked = get(dir, 0, 1);
    again = get(dir, 0, 0);
    assert_true(json_equal(masked, again));
    json_decref(again);
    setenv(CPU_ISA_ENV, level, 1);
    again = get(dir, 0, 0);
    assert_true(json_equal(all, again));
    if (!before)
        unsetenv(CPU_ISA_ENV);
    log_set_sink(NULL, NULL);
    json_decref(all);
    json_decref(masked);
    json_decref(again);
}

/* The full card is written next to the quick one and holds all that it holds. */
TEST(full_card)
{
    json_t *quick, *full, *again;
    struct machine_card_opts o;
    const char *why;
    char dir[600];

    snprintf(dir, sizeof(dir), "%s/full", test_dir());
    o = opts(dir);
    assert_ok(machine_card_get(&quick, &o));
    o.full = true;
    assert_ok(machine_card_get(&full, &o));
    assert_ok(machine_card_get(&again, &o));
    assert_true(json_equal(full, again));
    json_decref(again);
    o.full = false;
    assert_ok(machine_card_get(&again, &o));
    assert_true(json_equal(quick, again));
    json_decref(again);
    check_measured(full);
    assert_true(json_array_size(json_object_get(full, "values")) >
                json_array_size(json_object_get(quick, "values")));
    assert_true(measure_card_value(full, "latency_ns_small_16KiB", 1, &why) > 0);
    near(measure_card_value(quick, "latency_ns_small_16KiB", 1, &why), NAN);
    assert_non_null(strstr(why, "no such value"));
    json_decref(quick);
    json_decref(full);
}

/* A kept card that is not one of this machine is measured again, and a warning says why. */
TEST(kept_card_is_refused)
{
    char dir[600], path[700];
    json_t *card;

    log_set_sink(count_measurements, NULL);
    snprintf(dir, sizeof(dir), "%s/kept", test_dir());
    assert_ok(measure_card_path(path, sizeof(path), dir, ""));
    card = get(dir, 0, 1);
    /* not a value: on a busy machine any of them may be null, and then nothing fits it */
    json_object_set_new(card, "edited", json_true());
    assert_ok(json_write_file(card, path));
    json_decref(card);
    take_warnings(0, "machine_card_refused", "");
    json_decref(get(dir, 0, 1));
    take_warnings(1, "machine_card_refused",
                  "changed after it was measured: its checksum");
    json_decref(get(dir, 0, 0));
    test_write(path, "{\"values\":", 10);
    json_decref(get(dir, 0, 1));
    take_warnings(1, "machine_card_refused", "; measuring again");
    json_decref(get(dir, 0, 0));
    take_warnings(0, "machine_card_refused", "");
    log_set_sink(NULL, NULL);
}

/* The card cannot be kept: it is still the truth. */
TEST(nowhere_to_keep)
{
    char file[600], dir[700];
    json_t *card;

    log_set_sink(count_measurements, NULL);
    snprintf(file, sizeof(file), "%s/file", test_dir());
    test_write(file, "", 0);
    snprintf(dir, sizeof(dir), "%s/below", file);
    card = get(dir, 0, 1);
    check_measured(card);
    json_decref(card);
    log_set_sink(NULL, NULL);
}

/* ---- what is not trusted ---- */

/* A machine of which every trial takes as long as the test says. */
struct scripted {
    double seconds;      /* of each trial */
    double spread;       /* they take up to this share longer ... */
    int n_spread_trials; /* ... as long as this many are left */
    int n_peaks;         /* 0, or: all of them are unavailable */
    int n_hidden;        /* of these, how many the probe that runs first has */
    int n_trials;        /* that were made */
    const char *busy;    /* NULL, or: from the first trial on, this is /proc */
};
static struct scripted machine;
static int n_peaks; /* alternatives of that probe */

static int scripted_trial(void *arg, int i, struct measure_trial *t)
{
    (void)arg;
    /* The peaks are lengths of loops that were chosen by the real clock. Their probe is the
     * first, and an alternative that is unavailable is tried once. */
    if (machine.n_trials++ < machine.n_hidden) {
        t->seconds = NAN;
        return OK;
    }
    t->seconds = machine.seconds;
    if (machine.n_spread_trials > 0)
        t->seconds *= 1 + machine.spread * (machine.n_spread_trials-- % 31) / 31;
    if (i >= n_peaks)
        n_peaks = i + 1; /* no other probe has more */
    if (machine.busy)
        cpu_usage_set_root(machine.busy);
    return OK;
}

static json_t *get_scripted(const char *dir, bool check, int expect_measured)
{
    const struct machine_card_opts o = {
        .dir = dir, .check = check, .budget_s = 0.05, .buffer_bytes = 16 << 20};
    char path[1200];
    struct cpu_budget b;
    json_t *card;

    assert_ok(cpu_budget_get(&b));
    assert_ok(measure_card_path(path, sizeof(path), dir, ""));
    machine.n_hidden = machine.n_peaks;
    if (check && access(path, F_OK) == 0 && b.n > 1)
        machine.n_hidden /= 2; /* a check leaves out those of one thread */

    n_measured = machine.n_trials = 0;
    log_set_sink(count_measurements, NULL);
    measure_script(scripted_trial, NULL);
    assert_ok(machine_card_get(&card, &o));
    measure_script(NULL, NULL);
    log_set_sink(NULL, NULL);
    cpu_usage_set_root(NULL);
    assert_int_equal(n_measured, expect_measured);
    return card;
}

/* Files in which every CPU has been busy for this many ticks. */
static const char *proc_of(char dir[600], const char *name, int ticks)
{
    char *text = NULL, path[700];
    size_t n;
    FILE *f = open_memstream(&text, &n);

    for (int i = 0; i < CPU_MAX; i++)
        fprintf(f, "cpu%d %d 0 0 0 0 0 0 0 0 0\n", i, ticks);
    fclose(f);
    snprintf(dir, 600, "%s/%s", test_dir(), name);
    mkdir(dir, 0755);
    snprintf(path, sizeof(path), "%s/proc", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/proc/stat", dir);
    test_write(path, text, n);
    free(text);
    snprintf(path, sizeof(path), "%s/proc/self", dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/proc/self/stat", dir);
    test_write(path, "5 (t) S 1 5 5 0 -1 0 1 2 3 4 1 0 0 0 20 0 1 0", 45);
    return dir;
}

/* Bounds of which the trials spread are measured again at once, and if that does not help
 * the next time; meanwhile they bound nothing. */
TEST(a_bound_that_spreads)
{
    char dir[600], idle[600];
    const char *why;
    json_t *card;

    snprintf(dir, sizeof(dir), "%s/spread", test_dir());
    take_warnings(0, "none", "");
    cpu_usage_set_root(proc_of(idle, "idle", 1));
    machine = (struct scripted){.seconds = 0.01, .spread = 2, .n_spread_trials = 1 << 20};
    card = get_scripted(dir, false, 1);
    take_warnings(1, "machine_card_doubtful", "trials spread by ");
    near(measure_card_read_gbps(card, 1), NAN);
    near(measure_card_peak_gflops(card, "f32", "exact", 1), NAN);
    near(measure_card_value(card, "read_gbps", 1, &why), NAN);
    assert_non_null(strstr(why, "more than 10 %"));
    assert_true(measure_card_value(card, "triad_gbps", 1, NULL) > 0); /* bounds nothing */
    json_decref(card);
    /* a smoke run takes it as it is */
    assert_ok(
        machine_card_get(&card, &(struct machine_card_opts){.dir = dir, .any = true}));
    json_decref(card);
    take_warnings(0, "machine_card_refused", "");
    /* the next time the first attempt at the peaks spreads, the second does not */
    cpu_usage_set_root(idle);
    machine.n_spread_trials = n_peaks * (1 + PROBE_TRIALS_MAX);
    card = get_scripted(dir, false, 1);
    take_warnings(1, "machine_card_refused", "not trusted: its trials spread");
    assert_true(measure_card_read_gbps(card, 1) > 0);
    assert_true(measure_card_peak_gflops(card, "f32", "exact", 1) > 0);
    assert_null(measure_card_doubt(card, "", 0));
    json_decref(card);
    json_decref(get_scripted(dir, false, 0));
    take_warnings(0, "machine_card_refused", "");
}

TEST(other_programs_had_the_cpus)
{
    char dir[600], idle[600], busy[600];
    json_t *card;

    snprintf(dir, sizeof(dir), "%s/busy", test_dir());
    proc_of(busy, "very_busy", 1 << 20);
    take_warnings(0, "none", "");
    cpu_usage_set_root(proc_of(idle, "before", 1));
    machine = (struct scripted){.seconds = 0.01, .busy = busy};
    card = get_scripted(dir, false, 1);
    near(measure_card_read_gbps(card, 1), NAN);
    assert_non_null(
        strstr(measure_card_doubt(card, "read_gbps", 1), "of the CPUs while"));
    assert_true(json_integer_value(json_object_get(json_object_get(card, "counters"),
                                                   "other_cpu_ns")) > 0);
    json_decref(card);
    take_warnings(1, "noisy_machine", "machine card: other programs used");
    cpu_usage_set_root(idle);
    machine.busy = NULL;
    json_decref(get_scripted(dir, false, 1));
    take_warnings(1, "machine_card_refused", "of the CPUs while");
}

/* A kept card is checked: what is 10 % off now is measured again, once. */
TEST(a_kept_card_is_checked)
{
    char dir[600], idle[600];
    json_t *card;
    double gbps;

    snprintf(dir, sizeof(dir), "%s/checked", test_dir());
    take_warnings(0, "none", "");
    cpu_usage_set_root(proc_of(idle, "idle2", 1));
    machine = (struct scripted){.seconds = 0.01, .n_peaks = n_peaks};
    card = get_scripted(dir, true, 1);
    gbps = measure_card_read_gbps(card, 1);
    json_decref(card);
    cpu_usage_set_root(idle);
    machine.seconds = 0.0105;
    card = get_scripted(dir, true, 0);
    near(measure_card_read_gbps(card, 1), gbps);
    json_decref(card);
    take_warnings(0, "machine_card_changed", "");
    for (int i = 0; i < 2; i++) { /* slower, faster */
        cpu_usage_set_root(idle);
        machine.seconds = i ? 0.01 : 0.02;
        card = get_scripted(dir, true, 1);
        assert_true(fabs(measure_card_read_gbps(card, 1) / gbps - (i ? 1 : 0.5)) < 1e-6);
        json_decref(card);
        take_warnings(1, "machine_card_changed", "measuring again");
    }
    /* a check that spreads contradicts nothing */
    cpu_usage_set_root(idle);
    machine = (struct scripted){
        .n_peaks = n_peaks, .seconds = 0.02, .spread = 2, .n_spread_trials = 1 << 20};
    json_decref(get_scripted(dir, true, 0));
    /* dropped, it is measured */
    measure_card_drop(dir);
    measure_card_drop(dir);
    machine = (struct scripted){.seconds = 0.01, .n_peaks = n_peaks};
    cpu_usage_set_root(idle);
    json_decref(get_scripted(dir, true, 1));
    take_warnings(0, "machine_card_refused", "");
}

TEST(memory_runs_out)
{
    struct machine_card_opts o = opts(test_dir());
    json_t *card;

    log_set_sink(count_measurements, NULL);
    for (long n = 0; n < 4; n++) {
        int rc;

        o.force = true;
        mem_fail_after(n, 0);
        rc = machine_card_get(&card, &o);
        mem_fail_after(-1, 0);
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(card);
    }
    log_set_sink(NULL, NULL);
}
