/* experiments/study/support/profile.h - profiles of this host and of an accelerator that is not
 * there (accel/paced.c), measured once for all cells that need them. Threads: the harness's one. */
#ifndef STUDY_PROFILE_H
#define STUDY_PROFILE_H

#include "hetero/profile.h"

struct study_profile_key {
    enum kern_type type;
    int n_threads;
    int64_t max_tok;
    double link_gbps; /* 0: that of Table I */
    double min_s;
    bool accel; /* with the accelerator, of Table I's testbed A */
};
#define STUDY_PROFILES_MAX 16
/* A study's kept state; all zero at first. */
struct study_profiles {
    struct study_profile_key keys[STUDY_PROFILES_MAX];
    struct hetero_profile *profiles[STUDY_PROFILES_MAX];
    int n;
};
/* Lent. Errors of hetero_profile_measure(). */
MUST int study_profile_get(struct study_profiles *p, const struct study_profile_key *key,
                           const struct hetero_profile **out);
void study_profiles_close(void *profiles); /* struct study.close */
/* The accelerator's own CPU: the last of the budget. -1: there is none. */
int study_profile_accel_cpu(void);

#endif
