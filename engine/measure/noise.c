#include "measure/noise.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "base/name.h"

/* The kernel counts both our time and that of the CPUs in ticks of 10 ms: less than this
 * may be their rounding. */
#define ROUNDING_NS INT64_C(50000000)

#define NOISY     "noisy_machine"
#define STEAL     "steal"
#define THROTTLED "throttled"

int measure_noise_begin(struct measure_noise *n)
{
    n->n_cpus = cpu_usage_cpus(n->cpus);
    return cpu_usage_get(&n->before, n->cpus, n->n_cpus);
}

int measure_noise_end(struct measure_noise *n)
{
    return cpu_usage_get(&n->after, n->cpus, n->n_cpus);
}

/* -1: unknown. */
static int64_t difference(int64_t before, int64_t after)
{
    return before < 0 || after < 0 ? -1 : after > before ? after - before : 0;
}
#define DIFFERENCE(n, member) difference((n)->before.member, (n)->after.member)

static int64_t other_ns(const struct measure_noise *n)
{
    int64_t busy = DIFFERENCE(n, busy_ns), self = DIFFERENCE(n, self_ns);

    return busy < 0 || self < 0 ? -1 : busy > self ? busy - self : 0;
}

static double wall_ns(const struct measure_noise *n)
{
    return (double)(n->after.wall_ns - n->before.wall_ns);
}

/* CPUs that `ns` kept busy; NaN: unknown. */
static double cpus(const struct measure_noise *n, int64_t ns)
{
    return ns < 0 || wall_ns(n) <= 0 ? NAN : (double)ns / wall_ns(n);
}

double measure_noise_lost_cpus(const struct measure_noise *n)
{
    int64_t steal = DIFFERENCE(n, steal_ns);

    return cpus(n, other_ns(n)) + (steal > 0 ? cpus(n, steal) : 0);
}

/* ---- judging ---- */

static bool exceeds(const struct measure_noise *n, int64_t ns, double threshold_cpus,
                    struct measure_noise_finding *f)
{
    f->observed = cpus(n, ns);
    f->threshold = threshold_cpus;
    return ns > ROUNDING_NS && f->observed > threshold_cpus;
}

static bool is_throttled(const struct measure_noise *n, struct measure_noise_finding *f)
{
    const struct cpu_usage *u = &n->after;

    f->code = THROTTLED;
    if (exceeds(n, DIFFERENCE(n, throttled_ns), MEASURE_NOISE_THROTTLED_FRAC, f)) {
        snprintf(f->text, sizeof(f->text),
                 "the quota of the control group stopped this process for %.1f %% of the "
                 "time",
                 100 * f->observed);
        return true;
    }
    f->observed = (double)DIFFERENCE(n, n_hot);
    f->threshold = 0;
    if (f->observed > 0) {
        snprintf(f->text, sizeof(f->text), "heat slowed the CPUs down %.0f times",
                 f->observed);
        return true;
    }
    f->observed = u->mhz;
    f->threshold = MEASURE_NOISE_SLOW_FRAC * u->nominal_mhz;
    snprintf(f->text, sizeof(f->text),
             "the CPUs ran at %.0f MHz, and %.0f are nominal (governor: %s)", u->mhz,
             u->nominal_mhz, u->governor[0] ? u->governor : "unknown");
    return f->observed < f->threshold; /* false for NaN */
}

int measure_noise_findings(const struct measure_noise *n,
                           struct measure_noise_finding out[MEASURE_NOISE_FINDINGS])
{
    struct measure_noise_finding *f = out;

    if (exceeds(n, other_ns(n), MEASURE_NOISE_OTHER_CPUS, f)) {
        f->code = NOISY;
        snprintf(f->text, sizeof(f->text),
                 "other programs used %.2f of the %d CPUs of this process", f->observed,
                 n->after.n_cpus);
        f++;
    }
    if (exceeds(n, DIFFERENCE(n, steal_ns), MEASURE_NOISE_STEAL_CPUS, f)) {
        f->code = STEAL;
        snprintf(f->text, sizeof(f->text),
                 "the host ran others on %.2f of the %d CPUs of this process",
                 f->observed, n->after.n_cpus);
        f++;
    }
    f += is_throttled(n, f);
    return (int)(f - out);
}

bool measure_noise_is(const char *code)
{
    static const char *const codes[] = {NOISY, STEAL, THROTTLED, NULL};

    return name_index(codes, code) >= 0;
}

void measure_noise_warn(const struct measure_noise *n, const char *what)
{
    struct measure_noise_finding f[MEASURE_NOISE_FINDINGS];
    int n_found = measure_noise_findings(n, f);

    for (int i = 0; i < n_found; i++)
        log_warning(f[i].code, f[i].observed, f[i].threshold, "%s: %s (threshold %.3g)",
                    what, f[i].text, f[i].threshold);
}

/* ---- recording ---- */

static json_t *integer(int64_t v)
{
    return v < 0 ? json_null() : json_integer(v);
}

static json_t *word(const char *s)
{
    return s[0] ? json_string_lossy(s) : json_null();
}

json_t *measure_noise_json(const struct measure_noise *n)
{
    const struct cpu_usage *u = &n->after;
    json_t *j = json_pack(
        "{s:i s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o}", "n_cpus",
        u->n_cpus, "steal_ns", integer(DIFFERENCE(n, steal_ns)), "other_cpu_ns",
        integer(other_ns(n)), "cpu_ns", integer(DIFFERENCE(n, self_ns)), "throttled_ns",
        integer(DIFFERENCE(n, throttled_ns)), "n_throttled",
        integer(DIFFERENCE(n, n_throttled)), "n_thermal_throttled",
        integer(DIFFERENCE(n, n_hot)), "n_preempted", integer(DIFFERENCE(n, n_preempted)),
        "n_major_faults", integer(DIFFERENCE(n, n_major_faults)), "load_avg_1min",
        json_number(u->load_1min), "frequency_mhz", json_number(u->mhz), "nominal_mhz",
        json_number(u->nominal_mhz), "governor", word(u->governor), "numa_balancing",
        word(u->numa_balancing), "interval_ns", integer((int64_t)wall_ns(n)));

    if (!j)
        err_set(ERR_NOMEM, "out of memory noting what the machine did");
    return j;
}
