#include "experiments/study/support/profile.h"

#include "base/mem.h"
#include "cpu/cpu.h"

#define COPY_BYTES ((int64_t)8 << 20)

static bool equal(const struct study_profile_key *a, const struct study_profile_key *b)
{
    return a->type == b->type && a->n_threads == b->n_threads &&
           a->max_tok == b->max_tok && a->link_gbps == b->link_gbps &&
           a->min_s == b->min_s && a->accel == b->accel;
}

static int measure(struct hetero_profile *out, const struct study_profile_key *key)
{
    struct hetero_machine m;
    struct hetero_profile_opts o = {.types = &key->type,
                                    .n_types = 1,
                                    .threads = &key->n_threads,
                                    .n_threads = 1,
                                    .max_tok = key->max_tok,
                                    .min_s = key->min_s,
                                    .copy_bytes = COPY_BYTES,
                                    .machines = &m,
                                    .seed = 1};

    TRY(hetero_machine_printed(
        &m, 'A', kern_type_weight_bytes(key->type) < 1.5 ? HETERO_INT4 : HETERO_FP16,
        false));
    if (key->link_gbps > 0)
        m.link_s_per_byte = 1e-9 / key->link_gbps;
    if (key->accel)
        TRY(accel_find("paced", &o.kind));
    return hetero_profile_measure(out, &o);
}

int study_profile_get(struct study_profiles *p, const struct study_profile_key *key,
                      const struct hetero_profile **out)
{
    int rc;

    for (int i = 0; i < p->n; i++)
        if (equal(&p->keys[i], key)) {
            *out = p->profiles[i];
            return OK;
        }
    if (p->n == STUDY_PROFILES_MAX)
        return err_set(ERR_LIMIT, "more than %d profiles", STUDY_PROFILES_MAX);
    p->profiles[p->n] = mem_new(MEM_OTHER, 1, sizeof(struct hetero_profile));
    rc = measure(p->profiles[p->n], key);
    if (rc != OK) {
        hetero_profile_fini(p->profiles[p->n]);
        mem_free(p->profiles[p->n]);
        return rc;
    }
    p->keys[p->n] = *key;
    *out = p->profiles[p->n++];
    return OK;
}

void study_profiles_close(void *profiles)
{
    struct study_profiles *p = profiles;

    for (int i = 0; i < p->n; i++) {
        hetero_profile_fini(p->profiles[i]);
        mem_free(p->profiles[i]);
    }
    p->n = 0;
}

int study_profile_accel_cpu(void)
{
    struct cpu_budget b;

    if (cpu_budget_get(&b) == OK && b.n > 1)
        return b.cpus[b.n - 1];
    err_clear();
    return -1;
}
