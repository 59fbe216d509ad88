#include <stdint.h>

#include "base/name.h"
#include "cluster/cluster.h"

const char *const cluster_load_names[] = {
    "requests", "prompt_tok",  "sequences", "remaining_tok",
    "kv_tok",   "pending_tok", NULL};

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
