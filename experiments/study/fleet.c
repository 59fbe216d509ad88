/* A fleet of GPU and CPU machines over a day: how many GPU machines a load needs with and without
 * CPU machines for prompts, for tokens or for both; the day on that many, with failures, and with
 * machines that are drained when the load is low; what a million tokens cost and draw, and up to
 * which price a CPU machine is worth the GPU machines that it saves. An hour of it is simulated
 * with 1 and 2 threads, which must be the same. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/card.h"
#include "cluster/fleet.h"
#include "cluster/provision.h"
#include "datasets/dataset.h"
#include "experiments/frame/frame.h"

enum { ROLE_NONE, ROLE_PROMPT, ROLE_TOKEN, ROLE_BOTH, ROLE_SLOW };
enum { PROVISION_PEAK, PROVISION_COST, PROVISION_POWER };
enum { KIND_PROMPT, KIND_TOKEN, KIND_CPU, N_KINDS };

/* Llama2-70B, of which the paper prints times: 16-bit weights on GPUs. */
#define N_LAYERS     80
#define N_PARAMS     69e9
#define HIDDEN       8192.0
#define KV_BYTES_TOK 327680
#define MEMORY_FRAC  0.9 /* of a machine, for weights, keys and values */
#define SLOW_FACTOR  20  /* of the control: so much slower is its CPU machine */
#define LENGTHS_N    20000
#define MACHINES_MAX 256  /* of a kind in a pool */
#define HEADROOM     1.15 /* of the machines that stay when others are drained */
#define DGX_A100_KW  6.5  /* its data sheet; cards state power relative to it */
/* Of the load: the range in which the highest rate is sought, and to what. */
#define RATE_MIN  0.1
#define RATE_MAX  2.5
#define RATE_STEP 0.01

#define OPTIONS(X)                                                                       \
    X(ENUM, role, "none",                                                                \
      "What the CPU machines do next to GPU machines: nothing (there are none), only "   \
      "prompts, only tokens, or tokens and, where the GPU machines are full, prompts. "  \
      "slow: the control, tokens on CPU machines of a twentieth of the speed, which "    \
      "can save next to nothing.",                                                       \
      .values = "none|prompt|token|both|slow")                                           \
    X(STR, gpu, "dgx-h100", "GPU machine: a file of engine/cluster/machines/.")          \
    X(STR, machines, "",                                                                 \
      "GPU machines of a pool for prompts and tokens, such as \"2P,3T\". \"\": the "     \
      "cheapest with which target_frac of the requests of the peak hour are within the " \
      "objectives.")                                                                     \
    X(INT, cpus, "8", "CPU machines of a pool.", .min = 1, .max = 4096)                  \
    X(INT, n_pools, "2",                                                                 \
      "Pools that share nothing; each has an equal part of the load.", .min = 1,         \
      .max = 4096)                                                                       \
    X(INT, n_threads, "2", "Threads of the simulation.", .min = 1, .max = 64)            \
    X(F64, requests_per_day, "2e6", "Requests of the day, on average.", .min = 1,        \
      .max = 1e12)                                                                       \
    X(F64, night_frac, "0",                                                              \
      "Requests of batch jobs in the eight hours of the lowest rate, as a share of "     \
      "those of the day, to which they are added.",                                      \
      .min = 0, .max = 100)                                                              \
    X(F64, swing, "0.6",                                                                 \
      "The rate is 1 + swing at the peak hour and 1 - swing twelve hours later, of its " \
      "mean.",                                                                           \
      .min = 0, .max = 1)                                                                \
    X(F64, peak_h, "15", "Hour with the highest rate.", .min = 0, .max = 24)             \
    X(F64, hours, "24", "Hours that are simulated, from midnight.", .min = 1e-3,         \
      .max = 240)                                                                        \
    X(F64, size_s, "300", "Time at the peak rate by which a size is judged.",            \
      .unit = "s", .min = 1, .max = 86400)                                               \
    X(F64, ttft_ms, "2000", "Objective: time to the first token.", .unit = "ms",         \
      .min = 1e-3, .max = 1e9)                                                           \
    X(F64, tpot_ms, "200", "Objective: time per later token, about that of reading.",    \
      .unit = "ms", .min = 1e-3, .max = 1e9)                                             \
    X(F64, target_frac, "0.95", "Share of the requests within both.", .min = 0,          \
      .max = 1)                                                                          \
    X(ENUM, provision, "peak",                                                           \
      "peak: all machines are on all day. cost, power: each hour the machines that "     \
      "cost or draw the most for their speed are drained, as far as the load allows.",   \
      .values = "peak|cost|power")                                                       \
    X(F64, mtbf_h, "500", "Mean time between failures of a machine. 0: none fails.",     \
      .unit = "h", .min = 0, .max = 1e9)                                                 \
    X(F64, repair_h, "1", "Time until a failed machine is back.", .unit = "h",           \
      .min = 1e-3, .max = 1e6)                                                           \
    X(F64, cpu_gbps, "1000", "Read bandwidth of a CPU machine, as it is reached.",       \
      .unit = "GB/s", .min = 1e-3, .max = 1e9)                                           \
    X(F64, cpu_tflops, "100", "Arithmetic of a CPU machine, as it is reached.",          \
      .unit = "TFLOP/s", .min = 1e-6, .max = 1e9)                                        \
    X(F64, cpu_bits, "8.5", "Bits of a weight on CPU machines.", .min = 1, .max = 32)    \
    X(F64, cpu_memory_gib, "768", "Memory of a CPU machine.", .unit = "GiB", .min = 1,   \
      .max = 1e7)                                                                        \
    X(F64, cpu_link_gbps, "25", "Link of a CPU machine, in each direction.",             \
      .unit = "GB/s", .min = 1e-3, .max = 1e6)                                           \
    X(F64, cpu_usd_h, "6", "Price of a CPU machine.", .unit = "$/h", .min = 0,           \
      .max = 1e6)                                                                        \
    X(F64, cpu_kw, "1", "Power of a CPU machine.", .unit = "kW", .min = 0, .max = 1e3)   \
    X(INT, prompt_threshold, "8192",                                                     \
      "Prompt tokens that wait on a machine, in time of the fastest, above which "       \
      "machines of the other kind are tried.",                                           \
      .min = 0, .max = 1 << 30)                                                          \
    X(INT, max_seqs, "128", "Sequences on one machine, at most.", .min = 1,              \
      .max = 65536)                                                                      \
    X(INT, seed, "1", "Seed of all that is random.", .min = 1, .max = 1 << 30)

#define RESULTS(X)                                                                       \
    X(n_prompt, "", LOWER, "GPU machines for prompts, of a pool")                        \
    X(n_token, "", LOWER, "GPU machines for tokens, of a pool")                          \
    X(n_cpu, "", 0, "CPU machines, of a pool")                                           \
    X(n_machines, "", LOWER, "machines, of all pools")                                   \
    X(n_requests, "", 0, "requests that were served")                                    \
    X(attained_frac, "", HIGHER, "requests within both objectives / requests")           \
    X(ttft_p99_ms, "ms", LOWER, "time to the first token, 99th percentile")              \
    X(tpot_p99_ms, "ms", LOWER, "time per later token, 99th percentile")                 \
    X(usd_mtok, "$", LOWER, "cost of all machines / million output tokens")              \
    X(gpu_usd_mtok, "$", LOWER, "the part of the GPU machines")                          \
    X(kwh_mtok, "kWh", LOWER, "energy of all machines at full power / million tokens")   \
    X(breakeven_usd_h, "$/h", HIGHER | SOME,                                             \
      "price of a CPU machine below which it lowers the cost: price of the GPU "         \
      "machines * (highest rate with CPU machines / without - 1) / CPU machines")        \
    X(cpu_speed, "", HIGHER | SOME,                                                      \
      "a CPU machine's speed in its role / a GPU machine's")                             \
    X(busy_prompt_frac, "", 0, "busy time of GPU machines for prompts / time")           \
    X(busy_token_frac, "", 0, "busy time of GPU machines for tokens / time")             \
    X(busy_cpu_frac, "", SOME, "busy time of CPU machines / time")                       \
    X(cpu_prompt_frac, "", 0, "requests with their prompts on CPU machines / requests")  \
    X(cpu_token_frac, "", 0, "requests with their tokens on CPU machines / requests")    \
    X(drained_frac, "", 0, "time in which machines are drained / time")                  \
    X(n_failures, "", 0, "machines that failed")                                         \
    X(restarted_frac, "", LOWER, "requests that failures made start again / requests")   \
    X(events_per_s, "/s", HIGHER | MEASURED,                                             \
      "events of the day per second on this host")                                       \
    X(steps_per_s, "/s", HIGHER | MEASURED, "steps of machines per second on this host") \
    X(requests_per_s, "/s", HIGHER | MEASURED, "requests per second on this host")       \
    X(sim_s, "s", LOWER | MEASURED, "time of the simulation of the day on this host")    \
    X(memory_mb, "MB", LOWER | MEASURED, "largest memory of this process")               \
    X(threads_equal, "", 0, "1: an hour is the same, to the bit, with 1 and 2 threads")

FRAME_TYPES;

struct size {
    int of[N_KINDS];
};

struct fleet {
    FRAME_CELL;
    struct cluster_card card;
    struct cluster_perf gpu, cpu;
    int64_t gpu_kv_tok, cpu_kv_tok;
    double speed[2]; /* of a CPU machine, by kind of task */
    double price[N_KINDS], kw[N_KINDS];
    struct dataset *trace;
    struct cluster_lengths *lengths;
    int64_t n_lengths;
    struct size size;
    struct cluster_fleet_part *scratch;
};

/* A part of the fleet that is simulated: the day, an hour, or the peak of a pool. */
struct part {
    struct fleet *c;
    struct size size;
    int n_pools;
    double load; /* of the requests of the day */
    double from_h, n_hours;
    bool outages;
};

static bool has_cpus(const struct fleet *c)
{
    return c->o->role != ROLE_NONE;
}

/* ---- machines ---- */

static int open_gpu(struct fleet *c)
{
    struct cluster_point p[8];
    int n;

    TRY(cluster_card_read(&c->card, c->o->gpu));
    TRY(cluster_points_printed(p, &n, 8, c->card.printed));
    for (int i = 0; i < n; i++) {
        p[i].prompt_ms *= c->card.prompt_time_factor;
        p[i].token_ms *= c->card.token_time_factor;
    }
    TRY(cluster_perf_find("table", &c->gpu.kind));
    return c->gpu.kind->fit(&c->gpu, p, n);
}

/* A CPU machine by its roofs: each step takes the longer of the time of its bytes and of its
 * operations. The model of steps is fitted to such points as to those of a measured host. */
static int open_cpu(struct fleet *c)
{
    static const int prompts[] = {64, 256, 512, 1024, 2048, 4096, 8192};
    static const int batches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256},
                     contexts[] = {256, 2048};
    double slow = c->o->role == ROLE_SLOW ? SLOW_FACTOR : 1;
    double weights = N_PARAMS * c->o->cpu_bits / 8;
    double bytes_ms = 1e9 * c->o->cpu_gbps / slow / 1e3;
    double flop_ms = 1e12 * c->o->cpu_tflops / slow / 1e3;
    struct cluster_point p[32];
    int n = 0;

    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
        double t = prompts[i], flop = t * (2 * N_PARAMS + 2 * N_LAYERS * HIDDEN * t);

        p[n++] =
            (struct cluster_point){.prompt_tok = prompts[i],
                                   .batch = 1,
                                   .prompt_ms = fmax(flop / flop_ms, weights / bytes_ms),
                                   .token_ms = NAN};
    }
    for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++)
        for (int k = 0; k < 2; k++) {
            double n_seq = batches[b],
                   bytes = weights + n_seq * contexts[k] * KV_BYTES_TOK;
            double flop = n_seq * (2 * N_PARAMS + 4.0 * N_LAYERS * HIDDEN * contexts[k]);

            p[n++] = (struct cluster_point){.prompt_tok = contexts[k],
                                            .batch = batches[b],
                                            .prompt_ms = NAN,
                                            .token_ms =
                                                fmax(bytes / bytes_ms, flop / flop_ms)};
        }
    TRY(cluster_perf_find("host", &c->cpu.kind));
    return c->cpu.kind->fit(&c->cpu, p, n);
}

/* Tokens per ms with as many sequences of 1,024 tokens as are within the objective; 0: none is. */
static double tokens_per_ms(const struct fleet *c, const struct cluster_perf *p,
                            int64_t *n_seqs)
{
    double best = 0;

    *n_seqs = 0;
    for (int64_t n = 1; n <= c->o->max_seqs; n++) {
        struct cluster_work w = {.n_decode = n, .ctx_tok = 1024 * n};
        double ms = 1e-6 * (double)cluster_perf_step_ns(p, &w);

        if (ms > c->o->tpot_ms)
            break;
        *n_seqs = n;
        best = (double)n / ms;
    }
    return best;
}

static double prompt_ms(const struct cluster_perf *p)
{
    struct cluster_work w = {.n_prompt_tok = 1024, .sum_prompt_sq = 1024.0 * 1024};

    return 1e-6 * (double)cluster_perf_step_ns(p, &w);
}

static int64_t kv_tok(double memory_gib, double weight_bytes)
{
    return (int64_t)((MEMORY_FRAC * memory_gib * 0x1p30 - weight_bytes) / KV_BYTES_TOK);
}

static int open_machines(struct fleet *c)
{
    int64_t n_seqs;
    double gpu;

    TRY(open_gpu(c));
    TRY(open_cpu(c));
    c->gpu_kv_tok = kv_tok(c->card.memory_gib, 2 * N_PARAMS);
    c->cpu_kv_tok = kv_tok(c->o->cpu_memory_gib, N_PARAMS * c->o->cpu_bits / 8);
    if (c->gpu_kv_tok < 1 || c->cpu_kv_tok < 1)
        return err_set(ERR_ARG,
                       "memory of %g GiB for %s and %g for a CPU machine: none is "
                       "left for keys and values",
                       c->card.memory_gib, c->o->gpu, c->o->cpu_memory_gib);
    gpu = tokens_per_ms(c, &c->gpu, &n_seqs);
    if (gpu == 0)
        return err_set(ERR_ARG, "tpot_ms: a step of %s takes longer than %g ms",
                       c->o->gpu, c->o->tpot_ms);
    c->speed[CLUSTER_PROMPT] = prompt_ms(&c->gpu) / prompt_ms(&c->cpu);
    c->speed[CLUSTER_TOKEN] = tokens_per_ms(c, &c->cpu, &n_seqs) / gpu;
    if (c->speed[CLUSTER_TOKEN] ==
        0) /* not within the objective: as one sequence alone is */
        c->speed[CLUSTER_TOKEN] = 1e-3;
    for (int k = 0; k < N_KINDS; k++) {
        c->price[k] = k == KIND_CPU ? c->o->cpu_usd_h : c->card.cost_per_hour_usd;
        c->kw[k] = k == KIND_CPU ? c->o->cpu_kw : DGX_A100_KW * c->card.power;
    }
    return OK;
}

static int open_lengths(struct fleet *c)
{
    struct dataset_opts o = {.path = "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
                             .n = LENGTHS_N,
                             .seed = 1,
                             .min_prompt_tok = 1,
                             .max_prompt_tok = INT64_MAX,
                             .stand_in = "azure_conv"};

    TRY(dataset_open(&c->trace, &o));
    c->n_lengths = c->trace->n_items;
    c->lengths = frame_new(c->f, (size_t)c->n_lengths, sizeof(*c->lengths));
    for (int64_t i = 0; i < c->n_lengths; i++) {
        const struct dataset_item *t = &c->trace->items[i];

        c->lengths[i].n_prompt = t->n_prompt > 0 ? t->n_prompt : 1;
        c->lengths[i].n_output = t->n_output > 0 ? t->n_output : 1;
    }
    return OK;
}

static void fleet_close(struct fleet *c)
{
    dataset_close(&c->trace);
}

/* ---- outages ---- */

struct outages {
    struct cluster_outage *of;
    int n, max;
};

static void add_outage(struct outages *to, int machine, double from_s, double until_s,
                       bool drained)
{
    if (to->n == to->max) {
        to->max = 2 * to->max + 16;
        to->of = mem_resize(MEM_OTHER, to->of, (size_t)to->max, sizeof(*to->of));
    }
    to->of[to->n++] = (struct cluster_outage){.t_ns = (int64_t)(1e9 * from_s),
                                              .until_ns = (int64_t)(1e9 * until_s),
                                              .machine = machine,
                                              .drained = drained};
}

static void add_failures(struct outages *to, const struct part *p, int n_machines,
                         int pool)
{
    const struct opts *o = p->c->o;
    struct rng r;

    rng_init(&r, (uint64_t)(o->seed + pool), "failures");
    for (int i = 0; i < n_machines && o->mtbf_h > 0; i++)
        for (double h = o->mtbf_h * rng_exp(&r); h < p->n_hours;
             h += o->repair_h + o->mtbf_h * rng_exp(&r))
            add_outage(to, i, 3600 * h, 3600 * (h + o->repair_h), false);
}

static struct cluster_day_opts day_of(const struct part *p, int pool)
{
    const struct fleet *c = p->c;
    double n = p->load * c->o->requests_per_day / (double)c->o->n_pools;

    return (struct cluster_day_opts){.per_day = n,
                                     .swing = c->o->swing,
                                     .peak_h = c->o->peak_h,
                                     .night_per_day = n * c->o->night_frac,
                                     .from_h = p->from_h,
                                     .n_hours = p->n_hours,
                                     .lengths = c->lengths,
                                     .n_lengths = c->n_lengths,
                                     .seed = (uint64_t)c->o->seed << 20,
                                     .number = pool};
}

/* The highest rate of an hour and of the quarter after it, of that by which sizes are judged. */
static double load_at(const struct cluster_day_opts *d, double h)
{
    double here = 0;

    for (double x = 0; x <= 1.25; x += 0.25)
        here = fmax(here, cluster_day_rate(d, h + x));
    return here / cluster_day_rate(d, d->peak_h);
}

/* Of the machines that do one kind of work, how many are drained in an hour.
 * n_gpu of them are GPU machines of speed 1, the others CPU machines. Those go first that cost or
 * draw the most for their speed; one GPU machine stays. */
static void drained_of(int *gpu, int *cpu, const struct fleet *c, int n_gpu, int n_cpu,
                       double speed, double load)
{
    double spare = (n_gpu + n_cpu * speed) * (1 - fmin(1, HEADROOM * load));
    const double *of = c->o->provision == PROVISION_POWER ? c->kw : c->price;
    bool cpu_first = of[KIND_CPU] / speed > of[KIND_TOKEN];

    *gpu = *cpu = 0;
    for (int pass = 0; pass < 2; pass++) {
        bool is_cpu = (pass == 0) == cpu_first;
        double one = is_cpu ? speed : 1;
        int most = is_cpu ? n_cpu : n_gpu - 1, n = (int)(spare / one);

        n = n < most ? n : most;
        *(is_cpu ? cpu : gpu) = n > 0 ? n : 0;
        spare -= one * (n > 0 ? n : 0);
    }
}

/* Machine `first + i` is drained in the hours in which at least n - i of its n machines are. */
static void add_drains_of(struct outages *to, int first, int n, const int *n_drained,
                          int n_hours)
{
    for (int i = 0; i < n; i++)
        for (int h = 0; h < n_hours; h++) {
            int from = h;

            while (h < n_hours && n_drained[h] >= n - i)
                h++;
            if (h > from)
                add_outage(to, first + i, 3600.0 * from, 3600.0 * h, true);
        }
}

/* Of a pool; its machines are in order of KIND_. */
static void add_drains(struct outages *to, const struct part *p)
{
    const struct fleet *c = p->c;
    bool prompts = c->o->role == ROLE_PROMPT;
    int n_hours = (int)ceil(p->n_hours), first = 0, n_cpu = p->size.of[KIND_CPU];
    const struct cluster_day_opts day = day_of(p, 0);
    int drained[N_KINDS][240];

    for (int h = 0; h < n_hours; h++) {
        double load = load_at(&day, h);
        int none, *cpu = &drained[KIND_CPU][h];

        drained_of(&drained[KIND_PROMPT][h], prompts ? cpu : &none, c,
                   p->size.of[KIND_PROMPT], prompts ? n_cpu : 0, c->speed[CLUSTER_PROMPT],
                   load);
        drained_of(&drained[KIND_TOKEN][h], prompts ? &none : cpu, c,
                   p->size.of[KIND_TOKEN], prompts ? 0 : n_cpu, c->speed[CLUSTER_TOKEN],
                   load);
    }
    for (int k = 0; k < N_KINDS; k++) {
        add_drains_of(to, first, p->size.of[k], drained[k], n_hours);
        first += p->size.of[k];
    }
}

/* ---- pools ---- */

static void set_machine(struct cluster_machine_opts *m, const struct fleet *c, int kind)
{
    bool is_cpu = kind == KIND_CPU;

    *m = (struct cluster_machine_opts){
        .home = kind == KIND_PROMPT || (is_cpu && c->o->role == ROLE_PROMPT)
                    ? CLUSTER_PROMPT
                    : CLUSTER_TOKEN,
        .perf = is_cpu ? &c->cpu : &c->gpu,
        .kv_tok = is_cpu ? c->cpu_kv_tok : c->gpu_kv_tok,
        .link_gbps = is_cpu ? c->o->cpu_link_gbps : c->card.link_gbps,
        .link_alpha_ns = 1e6 * c->card.link_alpha_ms,
        .own_kind_only = is_cpu && c->o->role != ROLE_BOTH,
        .speed = {is_cpu ? c->speed[0] : 1, is_cpu ? c->speed[1] : 1}};
}

static int pool_open(void *ctx, int pool, struct cluster_fleet_pool *out)
{
    const struct part *p = ctx;
    const struct fleet *c = p->c;
    struct cluster_machine_opts *machines;
    struct outages outages = {0};
    int *kinds, n = 0;

    TRY(cluster_opts_init(&out->cluster));
    for (int k = 0; k < N_KINDS; k++)
        n += p->size.of[k];
    out->cluster.machines = machines = mem_new(MEM_OTHER, (size_t)n, sizeof(*machines));
    out->kinds = kinds = mem_new(MEM_OTHER, (size_t)n, sizeof(*kinds));
    n = 0;
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < p->size.of[k]; i++) {
            set_machine(&machines[n], c, k);
            kinds[n++] = k;
        }
    out->day = day_of(p, pool);
    if (p->outages)
        add_failures(&outages, p, n, pool);
    if (p->outages && c->o->provision != PROVISION_PEAK)
        add_drains(&outages, p);
    out->cluster.n_machines = n;
    out->cluster.outages = outages.of;
    out->cluster.n_outages = outages.n;
    out->cluster.n_layers = N_LAYERS;
    out->cluster.kv_bytes_per_tok = KV_BYTES_TOK;
    out->cluster.by_speed = true;
    out->cluster.max_seqs = c->o->max_seqs;
    out->cluster.prompt_threshold = c->o->prompt_threshold;
    out->cluster.token_threshold = c->o->max_seqs;
    out->cluster.seed = (uint64_t)(c->o->seed + pool);
    return OK;
}

static void pool_close(void *ctx, struct cluster_fleet_pool *p)
{
    (void)ctx;
    mem_free((void *)p->cluster.machines);
    mem_free((void *)p->cluster.outages);
    mem_free((void *)p->kinds);
}

static int simulate(struct cluster_fleet_part *out, struct part *p, int n_threads)
{
    return cluster_fleet_run(
        out, &(const struct cluster_fleet_opts){.n_pools = p->n_pools,
                                                .n_threads = n_threads,
                                                .ttft_ms = p->c->o->ttft_ms,
                                                .tpot_ms = p->c->o->tpot_ms,
                                                .open = pool_open,
                                                .close = pool_close,
                                                .ctx = p});
}

/* ---- how many machines ---- */

struct search {
    struct fleet *c;
    struct size size;
};

/* Are the objectives met at the peak hour of this share of the load, without failures? */
static int meets(void *ctx, double load, bool *met)
{
    const struct search *s = ctx;
    struct fleet *c = s->c;
    struct part p = {.c = c,
                     .size = s->size,
                     .n_pools = 1,
                     .load = load,
                     .from_h = fmod(c->o->peak_h + 24 - c->o->size_s / 7200, 24),
                     .n_hours = c->o->size_s / 3600};
    struct cluster_fleet_part *out = c->scratch;

    TRY(simulate(out, &p, 1));
    *met = (double)out->n_good >= c->o->target_frac * (double)out->n_ended;
    return OK;
}

static int rate_of(void *ctx, int n_prompt, int n_token, double *rate)
{
    struct search *s = ctx;
    bool met;

    s->size.of[KIND_PROMPT] = n_prompt;
    s->size.of[KIND_TOKEN] = n_token;
    TRY(meets(s, 1, &met));
    *rate = met;
    return OK;
}

static int find_size(struct fleet *c, int n_cpu, struct size *out)
{
    struct search s = {.c = c, .size.of[KIND_CPU] = n_cpu};
    struct cluster_size best;
    int n_sizes = 0;

    TRY(cluster_provision(
        &best, &n_sizes,
        &(const struct cluster_provision_opts){.goal = CLUSTER_MIN_COST,
                                               .max_prompt = MACHINES_MAX,
                                               .max_token = MACHINES_MAX,
                                               .prompt_cost = c->price[KIND_PROMPT],
                                               .token_cost = c->price[KIND_TOKEN],
                                               .min_rate = 1,
                                               .rate = rate_of,
                                               .ctx = &s}));
    *out = (struct size){{best.n_prompt, best.n_token, n_cpu}};
    return OK;
}

/* A pool with and without its CPU machines at the highest rate of each. */
static int find_breakeven(struct fleet *c)
{
    struct search s = {.c = c, .size = c->size};
    double with, without;
    int n_cpu = c->size.of[KIND_CPU];

    if (n_cpu == 0 || c->o->provision != PROVISION_PEAK) {
        frame_set(c->f, &c->r->breakeven_usd_h, NAN,
                  n_cpu == 0 ? "there are no CPU machines"
                             : "it is that of the same machines with provision=peak");
        return OK;
    }
    TRY(cluster_max_rate(&with, meets, &s, RATE_MIN, RATE_MAX, RATE_STEP));
    s.size.of[KIND_CPU] = 0;
    TRY(cluster_max_rate(&without, meets, &s, RATE_MIN, RATE_MAX, RATE_STEP));
    frame_set(c->f, &c->r->breakeven_usd_h,
              without > 0 ? c->price[KIND_PROMPT] *
                                (s.size.of[KIND_PROMPT] + s.size.of[KIND_TOKEN]) *
                                (with / without - 1) / n_cpu
                          : NAN,
              "the GPU machines alone meet the objectives at no rate");
    return OK;
}

static int set_size(struct fleet *c)
{
    int n_cpu = has_cpus(c) ? (int)c->o->cpus : 0, p, t;
    char end = 0;

    if (c->o->machines && *c->o->machines) {
        if (sscanf(c->o->machines, "%dP,%dT%c", &p, &t, &end) != 2 || p < 1 || t < 1)
            return err_set(ERR_ARG, "machines: expected such as \"2P,3T\", found \"%s\"",
                           c->o->machines);
        c->size = (struct size){{p, t, n_cpu}};
        return OK;
    }
    return find_size(c, n_cpu, &c->size);
}

/* ---- the day ---- */

static void report_cost(struct fleet *c, const struct cluster_fleet_part *day)
{
    double mtok = 1e-6 * (double)day->n_output_tok, usd[N_KINDS], kwh = 0;

    for (int k = 0; k < N_KINDS; k++) {
        double hours = (double)c->o->n_pools * c->size.of[k] * c->o->hours -
                       day->drained_s[k] / 3600;

        usd[k] = c->price[k] * hours;
        kwh += c->kw[k] * hours;
    }
    c->r->gpu_usd_mtok = (usd[KIND_PROMPT] + usd[KIND_TOKEN]) / mtok;
    c->r->usd_mtok = c->r->gpu_usd_mtok + usd[KIND_CPU] / mtok;
    c->r->kwh_mtok = kwh / mtok;
}

static void report_hours(struct fleet *c, const struct cluster_fleet_part *day)
{
    double n[CLUSTER_HOURS], attained[CLUSTER_HOURS];
    int n_hours = c->o->hours < CLUSTER_HOURS ? (int)ceil(c->o->hours) : CLUSTER_HOURS;

    for (int h = 0; h < n_hours; h++) {
        n[h] = (double)day->hour[h].n_requests;
        attained[h] = (double)day->hour[h].n_good / n[h];
    }
    study_series(c->out, "hour_requests", "", n, (size_t)n_hours);
    study_series(c->out, "hour_attained", "", attained, (size_t)n_hours);
}

static void report_day(struct fleet *c, const struct cluster_fleet_part *day, double s)
{
    struct results *r = c->r;
    double *const busy[N_KINDS] = {&r->busy_prompt_frac, &r->busy_token_frac,
                                   &r->busy_cpu_frac};
    double drained_s = 0;

    for (int k = 0; k < N_KINDS; k++) {
        frame_set(c->f, busy[k], day->busy_s[k] / day->machine_s[k],
                  "there are no such machines");
        drained_s += day->drained_s[k];
    }
    r->n_prompt = c->size.of[KIND_PROMPT];
    r->n_token = c->size.of[KIND_TOKEN];
    r->n_cpu = c->size.of[KIND_CPU];
    r->n_machines = (r->n_prompt + r->n_token + r->n_cpu) * (double)c->o->n_pools;
    r->n_requests = (double)day->stat.n_done;
    r->attained_frac = (double)day->n_good / (double)day->n_ended;
    r->ttft_p99_ms = cluster_histogram_quantile(&day->ttft, 0.99);
    r->tpot_p99_ms = cluster_histogram_quantile(&day->tpot, 0.99);
    frame_set(c->f, &r->cpu_speed,
              !has_cpus(c)
                  ? NAN
                  : c->speed[c->o->role == ROLE_PROMPT ? CLUSTER_PROMPT : CLUSTER_TOKEN],
              "there are no CPU machines");
    r->cpu_prompt_frac =
        (double)day->n_on[KIND_CPU][CLUSTER_PROMPT] / (double)day->stat.n_done;
    r->cpu_token_frac =
        (double)day->n_on[KIND_CPU][CLUSTER_TOKEN] / (double)day->stat.n_done;
    r->drained_frac = drained_s / (3600 * c->o->hours * r->n_machines);
    r->n_failures = (double)day->stat.n_failures;
    r->restarted_frac = (double)day->n_restarted / (double)day->stat.n_done;
    r->sim_s = s;
    r->events_per_s = (double)day->stat.n_events / s;
    r->steps_per_s = (double)day->stat.n_steps / s;
    r->requests_per_s = r->n_requests / s;
    r->memory_mb = 1e-6 * (double)mem_rss_peak_bytes();
    report_cost(c, day);
    report_hours(c, day);
}

static int run_day(struct fleet *c)
{
    struct part p = {.c = c,
                     .size = c->size,
                     .n_pools = (int)c->o->n_pools,
                     .load = 1,
                     .n_hours = c->o->hours,
                     .outages = true};
    struct cluster_fleet_part *day = frame_new(c->f, 1, sizeof(*day));
    uint64_t start = clock_ns();

    TRY(simulate(day, &p, (int)c->o->n_threads));
    report_day(c, day, 1e-9 * (double)(clock_ns() - start));
    return OK;
}

/* ---- what the simulator is held to ---- */

static int check_threads(struct fleet *c)
{
    struct part p = {.c = c,
                     .size = c->size,
                     .n_pools = c->o->n_pools < 4 ? (int)c->o->n_pools : 4,
                     .load = 1,
                     .n_hours = fmin(1, c->o->hours),
                     .outages = true};
    struct cluster_fleet_part *of[2];

    for (int i = 0; i < 2; i++) {
        of[i] = frame_new(c->f, 1, sizeof(*of[i]));
        TRY(simulate(of[i], &p, 1 + i));
    }
    c->r->threads_equal = memcmp(of[0], of[1], sizeof(*of[0])) == 0;
    return OK;
}

static int fleet_run(struct fleet *c)
{
    c->scratch = frame_new(c->f, 1, sizeof(*c->scratch));
    FRAME_CLOSE(c->f, fleet_close, c);
    TRY(open_machines(c));
    TRY(open_lengths(c));
    study_progress(c->out, 0, "how many machines the peak hour needs");
    TRY(set_size(c));
    TRY(find_breakeven(c));
    study_progress(c->out, 0.4, "the day");
    TRY(run_day(c));
    TRY(check_threads(c));
    study_note_text(c->out, "requests",
                    c->trace->stands_in ? "drawn from a fit" : "of the trace");
    return OK;
}

STUDY(fleet, "a fleet of GPU and CPU machines over a day: sizes and cost");
