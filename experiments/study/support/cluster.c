#include "experiments/study/support/cluster.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/name.h"

#define POINTS_MAX  64
#define TP          8          /* GPUs of a machine, in all experiments of the paper */
#define SIM_LINK    214.748365 /* 200 GiB/s, of splitwise-sim, whatever the machine */
#define MEMORY_FRAC 0.9        /* vLLM's default */
#define HEADROOM    0.9        /* of an SLO */
#define REQUESTS_N  20000      /* of a trace, at most, or drawn from a fit */

/* Table III. Llama2-70B shares keys and values among its 64 query heads: 8 heads of 128. */
static const struct study_cluster_model models[] = {
    {"bloom-176b", 70, 4014080, 4014080, 352e9},
    {"llama2-70b", 80, 327680, 2621440, 138e9},
};
enum { N_MODELS = sizeof(models) / sizeof(models[0]) };

const char *study_cluster_model_name(int i)
{
    return i < N_MODELS ? models[i].name : NULL;
}

const char *study_cluster_perf_name(int i)
{
    return cluster_perfs[i] ? cluster_perfs[i]->name : NULL;
}

/* Table V. The machines are those of Fig. 16, at the power of 40 DGX-H100: printed in the paper's
 * text (baselines, AA and HH of coding, HH of conversation), the other ones of conversation in
 * the scripts of splitwise-sim 8f99e7d. HA and HHcap of coding have the prompt machines of HH
 * and as many token machines as the power allows. */
static const struct design {
    const char *prompt_card, *token_card; /* NULL: a baseline */
    int machines[2][2];                   /* by trace */
} designs[] = {
    {"dgx-a100", NULL, {{70, 0}, {70, 0}}},
    {"dgx-h100", NULL, {{40, 0}, {40, 0}}},
    {"dgx-a100", "dgx-a100", {{45, 25}, {55, 15}}},
    {"dgx-h100", "dgx-h100", {{25, 15}, {35, 5}}},
    {"dgx-h100", "dgx-a100", {{25, 26}, {35, 8}}},
    {"dgx-h100", "dgx-h100-capped", {{25, 21}, {35, 7}}},
};

/* ---- performance models ---- */

static int read_points(struct cluster_point *p, int *n, const struct study_cluster *c,
                       const char *path, const struct cluster_card *card)
{
    if (strcmp(c->points, "printed") == 0)
        return cluster_points_printed(p, n, POINTS_MAX, card->printed);
    return cluster_points_read(p, n, POINTS_MAX, path, c->model->name, card->hardware,
                               TP);
}

static int open_perf(struct cluster_perf *out, const struct study_cluster *c,
                     const char *path, const struct cluster_card *card)
{
    struct cluster_point p[POINTS_MAX];
    int n;

    TRY(read_points(p, &n, c, path, card));
    for (int i = 0; i < n; i++) {
        p[i].prompt_ms *= card->prompt_time_factor;
        p[i].token_ms *= card->token_time_factor;
    }
    TRY(cluster_perf_find(c->o->perf, &out->kind));
    return out->kind->fit(out, p, n);
}

static const struct study_cluster_model *find_model(const char *name)
{
    const struct study_cluster_model *m = models;

    while (strcmp(m->name, name) != 0)
        m++; /* it is one of the option's names */
    return m;
}

static int open_machines(struct study_cluster *c)
{
    const struct design *d = &designs[c->o->design];
    struct cluster_card reference;
    char path[512];
    bool is_there = access(home_data(path, sizeof(path), c->o->perf_path), R_OK) == 0;

    if (c->o->points == STUDY_CLUSTER_PUBLISHED && !is_there)
        return dataset_absent(c->o->perf_path);
    c->points =
        c->o->points == STUDY_CLUSTER_PRINTED || !is_there ? "printed" : "published";
    c->model = find_model(strcmp(c->points, "printed") == 0 ? "llama2-70b" : c->o->model);
    c->is_baseline = !d->token_card;
    TRY(cluster_card_read(&c->prompt_card, d->prompt_card));
    TRY(cluster_card_read(&c->token_card,
                          c->is_baseline ? d->prompt_card : d->token_card));
    TRY(cluster_card_read(&reference, "dgx-a100"));
    TRY(open_perf(&c->prompt_perf, c, path, &c->prompt_card));
    TRY(open_perf(&c->token_perf, c, path, &c->token_card));
    return open_perf(&c->reference, c, path, &reference);
}

/* ---- rules ---- */

static int64_t kv_tok(const struct study_cluster *c, const struct cluster_card *card)
{
    double frac = c->o->memory_frac > 0                        ? c->o->memory_frac
                  : c->o->rules == STUDY_CLUSTER_SPLITWISE_SIM ? 1
                                                               : MEMORY_FRAC;
    double bytes = frac * card->memory_gib * 0x1p30 - c->model->weight_bytes;

    return (int64_t)(bytes / (double)c->cluster.kv_bytes_per_tok);
}

static void toggle_quirk(struct cluster_quirks *q, int toggle)
{
    bool *const members[] = {
        &q->full_length_kv,  &q->free_links,  &q->tenfold_layer_wise, &q->slow_mixed,
        &q->flat_token_time, &q->needs_queue, &q->return_when_idle,   &q->retry};

    if (toggle > 0 && toggle < STUDY_CLUSTER_TOKEN_LOAD)
        *members[toggle - 1] ^= true;
}

/* The most sequences with which a token step takes this share of the SLO of the median TBT. */
static int64_t sequences_within_slo(const struct study_cluster *c, double share)
{
    struct cluster_work w = {.n_decode = 1};
    double most = share * cluster_slo[CLUSTER_TBT][0] *
                  (double)cluster_perf_step_ns(&c->reference, &w);

    while (w.n_decode < 4096 && (double)cluster_perf_step_ns(&c->token_perf, &w) <= most)
        w.n_decode++;
    return w.n_decode - 1;
}

static void set_thresholds(struct study_cluster *c)
{
    static const double shares[STUDY_CLUSTER_THRESHOLDS] = {HEADROOM, 0.85, 0.95, 1};

    c->token_thresholds[0] = c->o->token_threshold;
    c->n_thresholds = 1;
    if (c->o->token_threshold > 0)
        return;
    c->n_thresholds = c->is_baseline ? 1 : STUDY_CLUSTER_THRESHOLDS;
    for (int i = 0; i < c->n_thresholds; i++)
        c->token_thresholds[i] = sequences_within_slo(c, shares[i]);
}

/* Both kinds of rules, and one difference that is as the other has it. */
static void set_rules(struct study_cluster *c, bool sim)
{
    const struct cluster_opts paper = c->cluster;
    int toggle = c->o->toggle;

    if (sim) {
        cluster_opts_splitwise_sim(&c->cluster);
        c->prompt_card.link_gbps = c->token_card.link_gbps = SIM_LINK;
        c->prompt_card.link_alpha_ms = c->token_card.link_alpha_ms = 0;
    }
    c->tbt_over_all = sim ^ (toggle == STUDY_CLUSTER_TBT_OVER_ALL);
    if (sim ^ (toggle == STUDY_CLUSTER_TOKEN_LOAD)) {
        c->cluster.token_load = CLUSTER_LOAD_KV_TOK;
        c->token_thresholds[0] = c->token_kv_tok; /* "memory loaded" */
        c->n_thresholds = 1;
    } else {
        c->cluster.token_load = paper.token_load;
        set_thresholds(c);
    }
    c->cluster.token_threshold = c->token_thresholds[0];
    toggle_quirk(&c->cluster.quirks, toggle);
}

static int open_cluster(struct study_cluster *c)
{
    bool sim = c->o->rules == STUDY_CLUSTER_SPLITWISE_SIM;

    TRY(cluster_opts_init(&c->cluster));
    c->cluster.n_layers = c->model->n_layers;
    c->cluster.kv_bytes_per_tok =
        sim ? c->model->kv_bytes_all_heads : c->model->kv_bytes_per_tok;
    c->cluster.seed = (uint64_t)c->o->seed;
    c->prompt_kv_tok = kv_tok(c, &c->prompt_card);
    c->token_kv_tok = kv_tok(c, &c->token_card);
    if (c->prompt_kv_tok < 1 || c->token_kv_tok < 1)
        return err_set(ERR_ARG, "memory_frac %g: no memory is left for keys and values",
                       c->o->memory_frac);
    set_rules(c, sim);
    return OK;
}

/* ---- requests ---- */

static int open_trace(struct study_cluster *c)
{
    static const char *const files[] = {"azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
                                        "azure_llm_2023/AzureLLMInferenceTrace_code.csv"};
    static const char *const fits[] = {"azure_conv", "azure_code"};
    const char *path = c->o->trace_path ? c->o->trace_path : files[c->o->trace];
    struct dataset_opts o = {.path = (char *)path,
                             .n = REQUESTS_N,
                             .seed = 1,
                             .min_prompt_tok = 1,
                             .max_prompt_tok = INT64_MAX,
                             .stand_in =
                                 c->o->trace_path ? NULL : (char *)fits[c->o->trace]};
    const struct dataset_item *last;

    TRY(dataset_open(&c->trace, &o));
    for (int64_t i = 0; i < c->trace->n_items; i++)
        if (c->trace->items[i].n_prompt < 0 || c->trace->items[i].n_output < 0)
            return err_set(ERR_ARG, "%s: request %" PRId64 " has no lengths in tokens",
                           path, i);
    if (c->trace->n_items < 2)
        return err_set(ERR_ARG, "%s: expected at least 2 requests", path);
    last = &c->trace->items[c->trace->n_items - 1];
    c->trace_rate = (double)(c->trace->n_items - 1) / last->arrival_s;
    if (c->o->arrivals == STUDY_CLUSTER_RECORDED && !(c->trace_rate > 0))
        return err_set(ERR_ARG, "%s: its requests have no times", path);
    return OK;
}

int study_cluster_open(struct study_cluster *c, const struct study_cluster_opts *o)
{
    c->o = o;
    if (o->warmup_s + o->cooldown_s >= o->duration_s)
        return err_set(ERR_ARG,
                       "warmup_s %g and cooldown_s %g leave nothing of duration_s %g",
                       o->warmup_s, o->cooldown_s, o->duration_s);
    TRY(open_machines(c));
    TRY(open_cluster(c));
    return open_trace(c);
}

void study_cluster_close(struct study_cluster *c)
{
    dataset_close(&c->trace);
}

void study_cluster_notes(const struct study_cluster *c, struct study_cell *out)
{
    study_note_text(out, "requests",
                    c->trace->stands_in ? "drawn from a fit" : "of the trace");
    study_note_text(out, "performance_points", c->points);
    study_note_text(out, "performance_model", c->o->perf);
    study_note_text(out, "model_used", c->model->name);
    study_note(out, "kv_tok_prompt_machine", json_integer(c->prompt_kv_tok));
    study_note(out, "kv_tok_token_machine", json_integer(c->token_kv_tok));
}

/* ---- sizes ---- */

int study_cluster_machines(const struct study_cluster *c, int *n_prompt, int *n_token)
{
    const char *text = c->o->machines;
    int for_trace =
        c->o->sized_for > STUDY_CLUSTER_CODING ? c->o->trace : c->o->sized_for;
    char end = 0;
    bool ok;

    if (!text || !*text) {
        *n_prompt = designs[c->o->design].machines[for_trace][0];
        *n_token = designs[c->o->design].machines[for_trace][1];
        return OK;
    }
    *n_token = 0;
    ok = sscanf(text, "%dP,%d%c%c", n_prompt, n_token, &end, &end) == 3 && end == 'T' &&
         *n_prompt > 0 && *n_token > 0;
    if (!ok && c->is_baseline)
        ok = sscanf(text, "%d%c", n_prompt, &end) == 1 && *n_prompt > 0;
    if (ok && c->is_baseline) {
        *n_prompt += *n_token;
        *n_token = 0;
    }
    if (ok && *n_prompt + *n_token <= 10000)
        return OK;
    return err_set(ERR_ARG, "machines: expected %s, found \"%s\"",
                   c->is_baseline ? "such as \"40\"" : "such as \"25P,15T\"", text);
}

double study_cluster_cost(const struct study_cluster *c, int n_prompt, int n_token)
{
    return n_prompt * c->prompt_card.cost_per_hour_usd +
           n_token * c->token_card.cost_per_hour_usd;
}

double study_cluster_power(const struct study_cluster *c, int n_prompt, int n_token)
{
    return n_prompt * c->prompt_card.power + n_token * c->token_card.power;
}
