#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int plan_default(struct plan *p, const struct cpu_budget *b, int threads)
{
    struct plan_phase *f = &p->prefill;

    memset(p, 0, sizeof(*p));
    if (threads < 0)
        return err_set(ERR_ARG, "threads: expected 0 or more, found %d", threads);
    if (threads > b->n)
        return err_set(ERR_ARG, "threads: %d asked for, %d allowed (%s)", threads, b->n,
                       b->reason);
    f->n_ranks = 1;
    f->n_threads = threads > 0 ? threads : b->n;
    f->expected_s = NAN;
    for (int i = 0; i < f->n_threads; i++) {
        f->cpus[i] = b->cpus[i];
        f->nodes[i] = -1;
    }
    snprintf(p->machine, sizeof(p->machine), "host");
    if (threads > 0) {
        snprintf(p->source, sizeof(p->source), "--threads");
        snprintf(f->why, sizeof(f->why), "%d threads asked for", threads);
    } else {
        snprintf(p->source, sizeof(p->source), "default");
        snprintf(f->why, sizeof(f->why), "no plan: every CPU of the budget (%d)", b->n);
    }
    p->decode = p->prefill;
    return plan_number_cpus(p);
}

void plan_fini(struct plan *p)
{
    tune_cache_close(&p->schedules);
}

int plan_copy(struct plan *to, const struct plan *p)
{
    json_t *schedules = p->schedules ? tune_cache_to_json(p->schedules) : NULL;
    int rc = p->schedules && !schedules ? ERR_NOMEM : OK;

    memset(to, 0, sizeof(*to));
    if (rc == OK) {
        *to = *p;
        to->schedules = NULL;
    }
    if (schedules)
        rc = tune_cache_of_json(&to->schedules, schedules, p->source);
    json_decref(schedules);
    if (rc != OK)
        memset(to, 0, sizeof(*to));
    return rc;
}

int plan_schedules(const struct plan *p, const struct plan_phase *f,
                   struct tune_cache **out)
{
    *out = p->schedules;
    return p->schedules ? tune_cache_use(p->schedules, f->cpus, f->n_ranks * f->n_threads)
                        : OK;
}

static int split(struct plan_phase *f, const char *name, int n_ranks)
{
    int n = f->n_ranks * f->n_threads;

    if (n_ranks < 1 || n % n_ranks != 0)
        return err_set(ERR_ARG, "ranks: %s's %d threads do not divide by %d", name, n,
                       n_ranks);
    f->n_ranks = n_ranks;
    f->n_threads = n / n_ranks;
    return OK;
}

int plan_split(struct plan *p, int n_ranks)
{
    int rc = split(&p->prefill, "prefill", n_ranks);

    return rc == OK ? split(&p->decode, "decode", n_ranks) : rc;
}

bool plan_has_one_rank(const struct plan *p)
{
    return p->prefill.n_ranks == 1 && p->decode.n_ranks == 1;
}

bool plan_is_one(const struct plan *p)
{
    const struct plan_phase *a = &p->prefill, *b = &p->decode;
    size_t n = (size_t)(a->n_ranks * a->n_threads);

    return a->n_ranks == b->n_ranks && a->n_threads == b->n_threads &&
           memcmp(a->cpus, b->cpus, n * sizeof(a->cpus[0])) == 0;
}

int plan_number_cpus(struct plan *p)
{
    const struct plan_phase *phases[] = {&p->decode, &p->prefill};
    bool seen[CPU_MAX] = {false};

    p->n_cpus = 0;
    for (int f = 0; f < 2; f++) {
        int n = phases[f]->n_ranks * phases[f]->n_threads;

        for (int i = 0; i < n; i++) {
            int cpu = phases[f]->cpus[i];

            if (cpu < 0 || cpu >= CPU_MAX)
                return err_set(ERR_LIMIT, "plan: expected CPUs below %d, found %d",
                               CPU_MAX, cpu);
            if (!seen[cpu])
                p->cpus[p->n_cpus++] = cpu;
            seen[cpu] = true;
        }
    }
    return OK;
}

static bool has(const int *cpus, int n, int cpu)
{
    for (int i = 0; i < n; i++)
        if (cpus[i] == cpu)
            return true;
    return false;
}

static int check_cpus(const struct plan *p, const struct cpu_budget *b)
{
    const struct plan_phase *pre = &p->prefill, *dec = &p->decode;

    for (int i = 0; i < dec->n_ranks * dec->n_threads; i++)
        if (!has(pre->cpus, pre->n_ranks * pre->n_threads, dec->cpus[i]))
            return err_set(ERR_UNSUPPORTED,
                           "decode's CPU %d is not one of prefill's: this engine "
                           "decodes on some of prefill's CPUs",
                           dec->cpus[i]);
    for (int i = 0; i < p->n_cpus; i++)
        if (!has(b->cpus, b->n, p->cpus[i]))
            return err_set(ERR_ARG, "CPU %d is not one of this process's (%s)",
                           p->cpus[i], b->reason);
    return OK;
}

int plan_runnable(const struct plan *p, const struct cpu_budget *b)
{
    const char *of = *p->machine ? p->machine : "an unknown machine";
    int rc = check_cpus(p, b);

    return rc == OK ? OK : err_prefix(rc, "%s (a plan for %s)", p->source, of);
}
