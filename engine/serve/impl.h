/* serve/impl.h - the inside of the public API, for the files of this module only: open.c puts the
 * engine together, queue.c takes requests in, serve.c steps, describe.c and
 * placement.c tell. */
#ifndef SERVE_IMPL_H
#define SERVE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "kv/kv.h"
#include "model/model.h"
#include "model/sampler.h"
#include "tokenizer/tokenizer.h"
#include "par/team.h"
#include "plan/plan.h"
#include "sched/sched.h"
#include "serve/phase_choice.h"
#include "serve/serve.h"
#include "topo/machine.h"
#include "tune/schedule_cache.h"

/* Requests a policy may look at: enough to sort and bucket, a bound for the arrays. Later
 * ones wait in the queue, in order. */
#define SERVE_VIEW_MAX 1024

struct serve_seq {
    int64_t id;
    int32_t *prompt;
    int64_t n_prompt, max_new, n_new, n_ctx;
    enum sched_state state;
    int32_t last_id; /* the token to decode next */
    bool ignore_eos;
    atomic_bool canceled; /* set by any thread */
    bool ended;
    struct kv_slot kv;
    struct sampler *sampler;
    serve_token_fn on_token;
    void *ctx;
    struct serve_seq *next; /* in the queue */
};

struct serve {
    struct serve_opts o; /* a copy; strings are ours */
    char isa_words[128];
    struct cpu_budget budget;
    struct plan plan;
    struct par_team *team;
    struct model *model;
    /* How prefill's steps and decode's are computed; one and the same where the plan
     * makes no difference. */
    struct model_phase *prefill, *decode;
    char model_format[16];
    int64_t n_schedules, n_tuned; /* with o.schedules: in use; found in the file */
    struct kv_pool *pool;
    struct tok *tok;
    const struct sched_policy *policy;
    int64_t max_tok;

    /* Written by the submitting threads under the lock. `live` is written by the stepping
     * thread alone, under the lock, which it need not take to read. */
    pthread_mutex_t lock;
    pthread_cond_t submitted;
    struct serve_seq *queue_head, **queue_tail;
    int64_t n_submitted;
    bool woken;
    struct serve_seq **live; /* [SERVE_VIEW_MAX], ascending arrival */
    int n_live;

    /* The stepping thread's. */
    int64_t n_slots;                   /* sequences that hold memory */
    struct sched_seq *view;            /* [SERVE_VIEW_MAX] */
    struct sched_batch_entry *entries; /* [max_seqs] */
    struct model_chunk *chunks;        /* [max_seqs] */
    struct serve_seq **stepping;       /* [max_seqs] whose chunk it is */
    float *logits;                     /* [max_seqs, vocab] */
    int64_t n_steps, n_tok;
    struct serve_choice choice;
    const struct model_phase *last; /* of the step before */
    int64_t n_switches;             /* steps of another phase than that */
    double busy_s, op_s[MODEL_T_N];
    struct serve_totals totals[SERVE_N_PHASES];
    struct topo_machine *machine;   /* NULL: not known */
    char no_machine[160];           /* why */
    struct model_numa_row kv_place; /* when it was touched */
    char kv_place_unknown[160];     /* why */
    bool warned, warned_elsewhere;
};

/* Where the CPUs of a phase stand in the plan's numbering, which is the team's. */
void serve_number_threads(const struct plan *p, const struct plan_phase *f, int *threads);
/* Who decodes by the plan, and on which memory nodes, for model_open(). Opens
 * s->machine, where that can be known. ERR_NOMEM. */
struct serve_numa_owners {
    struct model_numa_owners of; /* points into the others */
    int threads[CPU_MAX], nodes[CPU_MAX];
};
MUST int serve_numa_owners(struct serve *s, struct serve_numa_owners *out);
/* Where the pool's pages went, once they are touched. ERR_NOMEM. */
MUST int serve_kv_numa_report(struct serve *s);
/* CPUs of the threads, nodes of the pages; what is not where it should be is a warning,
 * once. New reference. */
json_t *serve_describe_placement(struct serve *s);

/* Add the step of these chunks, which took so long, to the totals. */
void serve_totals_add(struct serve *s, enum serve_phase phase,
                      const struct model_chunk *chunks, int n_chunks, int64_t forward_ns,
                      int64_t wait_ns);

void serve_seq_free(struct serve_seq *q);
/* Move requests from the queue to the live ones. */
void serve_take_queue(struct serve *s);
/* Give back the memory of the live requests that ended. */
void serve_drop_ended(struct serve *s);

#endif
