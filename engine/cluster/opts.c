#include <stdint.h>

#include "base/name.h"
#include "cluster/cluster.h"

int cluster_router_find(const char *name, const struct cluster_router **out)
{
    *out = name_find(cluster_routers, name, "router");
    return *out ? OK : ERR_NOTFOUND;
}

int cluster_opts_init(struct cluster_opts *o)
{
    *o = (struct cluster_opts){
        .prompt_load = CLUSTER_LOAD_PENDING_TOK,
        .token_load = CLUSTER_LOAD_SEQUENCES,
        .prompt_threshold = 8192,     /* of splitwise-sim; the paper names none */
        .token_threshold = 64,        /* up to which throughput rises, Fig. 6b */
        .max_batch_prompt_tok = 2048, /* IV-B */
        .max_seqs = 1 << 16,
        .keep_frac = 0.02,
        .layer_wise_tok = 512, /* VI-A, on H100 */
        .seed = 1};
    TRY(sched_policy_find("mixed", &o->policy));
    return cluster_router_find("jsq", &o->router);
}

void cluster_opts_splitwise_sim(struct cluster_opts *o)
{
    o->token_load = CLUSTER_LOAD_KV_TOK;
    o->prompt_threshold = 8192;
    o->token_threshold = INT64_MAX;
    o->quirks = (struct cluster_quirks){.full_length_kv = true,
                                        .free_links = true,
                                        .tenfold_layer_wise = true,
                                        .slow_mixed = true,
                                        .flat_token_time = true,
                                        .needs_queue = true,
                                        .return_when_idle = true,
                                        .retry = true};
}

int cluster_opts_check(const struct cluster_opts *o)
{
    int n[CLUSTER_N_POOLS] = {0};

    if (o->n_machines < 1 || o->n_layers < 1 || o->kv_bytes_per_tok < 0 || !o->next ||
        !o->router || !o->policy || o->max_seqs < 1)
        return err_set(ERR_ARG, "cluster: expected machines, layers, requests, a router, "
                                "a policy and at least 1 sequence per machine");
    for (int i = 0; i < o->n_machines; i++) {
        const struct cluster_machine_opts *m = &o->machines[i];

        if (m->kv_tok < 1 || !m->perf || (unsigned)m->home >= CLUSTER_N_POOLS)
            return err_set(ERR_ARG,
                           "machine %d: expected a pool, a performance model and "
                           "memory of at least 1 token",
                           i);
        n[m->home]++;
    }
    if (n[CLUSTER_MIXED] == 0 && (n[CLUSTER_PROMPT] == 0 || n[CLUSTER_TOKEN] == 0))
        return err_set(ERR_ARG,
                       "cluster: %d prompt, %d token and 0 mixed machines; "
                       "expected one of each kind, or a mixed one",
                       n[CLUSTER_PROMPT], n[CLUSTER_TOKEN]);
    for (int k = 0; o->contention && k < 4; k++)
        if (!(o->contention->slowdown[k / 2][k % 2] >= 1))
            return err_set(ERR_ARG, "cluster: a slowdown of %g; expected at least 1",
                           o->contention->slowdown[k / 2][k % 2]);
    return OK;
}
