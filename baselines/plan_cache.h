/* baselines/plan_cache.h - plans that `sandwich plan` made for this machine, kept for later
 * runs.
 *
 * A plan takes minutes to make and is worth its file for as long as nothing that it depends
 * on has changed: the model, the types and precision it is computed with, the instruction
 * sets, the CPUs, the processor, the kernels, and how it was asked for. The file's name ends
 * in a hash of these, and FILE.made.json next to it states them, with the command and the
 * time that it took. Threads: any; two processes that need the same plan make it once. */
#ifndef BASELINES_PLAN_CACHE_H
#define BASELINES_PLAN_CACHE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define SUT_PLAN_DIR "results/plans"

/* How a plan is made; the names are those of the adapter's option. */
enum sut_plan_by {
    SUT_PLAN_NONE,
    SUT_PLAN_ONE,        /* one rank on all CPUs, both phases */
    SUT_PLAN_EVEN_SPLIT, /* equal ranks, one on each memory node; the first sums for all */
    SUT_PLAN_VLLMPP,     /* the best number of ranks, of all numbers of equal parts */
    SUT_PLAN_SEARCH,     /* searched, by phase */
    SUT_PLAN_TUNED       /* searched, and the schedules of its matrices tuned */
};
#define SUT_PLAN_NAMES "none|one_plan|even_split|vllmpp|search|tuned"

struct sut_plan_request {
    enum sut_plan_by by;     /* not SUT_PLAN_NONE */
    const char *model;       /* path */
    const char *weight_type; /* "file" as stored */
    const char *precision;   /* "exact", "relaxed", "a8" */
    const char *kv_type;     /* "f32", "bf16", "q8" */
    const char *isa;         /* "auto" or a level */
    int64_t ranks;           /* of an even split; 0: one for each memory node */
    const char *budget;      /* longest time to tune, "10m"; NULL: the program's own */
    const char *dir;         /* NULL: SUT_PLAN_DIR */
    const char *program;     /* NULL: `sandwich` near this program, or in PATH */
};

struct sut_plan {
    char path[PATH_MAX];
    double made_s; /* how long it took when it was made */
    bool reused;   /* it was there */
};

/* Find the plan, or make it, which shows its progress on standard error. ERR_ARG: no such
 * instruction set. ERR_NOTFOUND: no such model, or the program `sandwich` is not there. ERR_IO: it
 * failed, and has reported why. */
MUST int sut_plan_get(struct sut_plan *out, const struct sut_plan_request *r);

#endif
