#include "cli/offload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cpu/cpu.h"
#include "format/format.h"
#include "hetero/offload.h"
#include "hetero/plan.h"

#define DEFAULT_STEP_TOK 512

const char *cli_accel_name(int i)
{
    if (i == 0)
        return "none";
    return accel_kinds[i - 1] ? accel_kinds[i - 1]->name : NULL;
}

void cli_ngl_warn(int64_t n_gpu_layers)
{
    if (n_gpu_layers != 0)
        log_warn("--n-gpu-layers %lld has no effect: layers stay on the CPU, and --accel "
                 "with --gpu-budget moves slices of them",
                 (long long)n_gpu_layers);
}

struct cli_offload {
    struct serve_offload hook;
    const struct cli_offload_flags *f;
    const struct accel_kind *kind;
    struct hetero_profile profile;
    struct model_config config;
    struct hetero_plan_opts opts;
    struct hetero_plan plan;
    struct hetero_offload *offload;
    int accel_cpu;
};

static int open_hook(void *ctx, struct model *m, struct model_phase **phases,
                     int n_phases)
{
    struct cli_offload *o = ctx;
    struct hetero_offload_opts opts = {
        .kind = o->kind,
        .accel = {.machine = &o->plan.machines[0], .cpu = o->accel_cpu},
        .n_units = o->plan.n_layers * hetero_n_mlps(&o->config),
        .machines = o->plan.machines};
    struct hetero_units *units = mem_new(MEM_OTHER, (size_t)opts.n_units, sizeof(*units));
    int rc;

    if (!units)
        return ERR_NOMEM;
    hetero_plan_units(units, &o->plan, &o->config);
    opts.units = units;
    rc = hetero_offload_open(&o->offload, m, phases, n_phases, &opts);
    mem_free(units);
    return rc;
}

static void close_hook(void *ctx)
{
    hetero_offload_close(&((struct cli_offload *)ctx)->offload);
}

static int read_config(struct model_config *out, const char *path)
{
    struct format_file *f = NULL;

    TRY(format_open(&f, path));
    *out = f->config;
    format_close(&f);
    return OK;
}

/* The last CPU of the budget is left to the accelerator's thread where it has one. */
static int count_threads(struct cli_offload *o, const struct serve_opts *s)
{
    struct cpu_budget *b = mem_new(MEM_OTHER, 1, sizeof(*b));
    int rc = b ? cpu_budget_get(b) : ERR_NOMEM;

    if (rc == OK) {
        o->opts.n_threads = s->threads > 0 ? (int)s->threads : b->n;
        o->accel_cpu = b->cpus[b->n - 1];
        if (o->kind->real_time && o->opts.n_threads >= b->n)
            fprintf(stderr,
                    "sandwich: all %d CPUs compute: an accelerator's thread that copies "
                    "takes time from them; --threads %d leaves it one\n",
                    b->n, b->n > 1 ? b->n - 1 : 1);
    }
    mem_free(b);
    return rc;
}

static int check(const struct cli_offload_flags *f, const struct serve_opts *s)
{
    if (!f->profile)
        return err_set(ERR_ARG,
                       "--accel needs --accel-profile FILE, which `sandwich "
                       "profile --accel %s --out FILE` writes",
                       f->accel);
    if ((f->cg > -1 && f->cg < 0) || (f->gg > -1 && f->gg < 0))
        return err_set(ERR_ARG, "--accel-cg, --accel-gg: expected -1 or 0 to 1");
    if (s->plan || s->ranks > 1 || s->rank_mode == SERVE_RANKS_PROCESSES)
        return err_set(ERR_ARG,
                       "--accel has one rank, in this process, and makes its own "
                       "plan: leave out --plan, --ranks and --rank-mode");
    if (s->deterministic)
        return err_set(ERR_ARG, "--accel changes the order of sums: leave out "
                                "--deterministic");
    return OK;
}

static int prepare(struct cli_offload *o, const struct serve_opts *s, int64_t n_prompt,
                   int64_t n_new)
{
    char *text = NULL;

    TRY(accel_find(o->f->accel, &o->kind));
    TRY(hetero_profile_read(&o->profile, o->f->profile));
    TRY(read_config(&o->config, s->model));
    if (strcmp(o->profile.accel_name, o->kind->name) != 0)
        return err_set(ERR_ARG, "%s: a profile of accelerator \"%s\", expected %s",
                       o->f->profile, o->profile.accel_name, o->kind->name);
    TRY(count_threads(o, s));
    o->opts.profile = &o->profile;
    o->opts.config = &o->config;
    o->opts.kv = (enum kern_kv_type)s->kv_type;
    o->opts.budget_bytes = o->f->gpu_budget;
    o->opts.n_prompt = n_prompt;
    o->opts.n_new = n_new;
    o->opts.max_step_tok = s->max_step_tok > 0 ? s->max_step_tok : DEFAULT_STEP_TOK;
    o->opts.fixed_cg = o->f->cg;
    o->opts.fixed_gg = o->f->gg;
    TRY(hetero_plan_make(&o->plan, &o->opts));
    if (!o->f->explain)
        return OK;
    TRY(hetero_plan_text(&o->plan, &o->opts, &text));
    fputs(text, stderr);
    mem_free(text);
    return OK;
}

int cli_offload_open(struct cli_offload **out, const struct cli_offload_flags *f,
                     const struct serve_opts *s, int64_t n_prompt, int64_t n_new)
{
    struct cli_offload *o;
    int rc;

    *out = NULL;
    cli_ngl_warn(f->n_gpu_layers);
    if (strcmp(f->accel, "none") == 0)
        return f->dry_run || f->explain
                   ? err_set(ERR_ARG, "--dry-run and --explain need --accel")
                   : OK;
    TRY(check(f, s));
    o = mem_new(MEM_OTHER, 1, sizeof(*o));
    if (!o)
        return ERR_NOMEM;
    *out = o;
    o->f = f;
    o->hook = (struct serve_offload){o, open_hook, close_hook};
    rc = prepare(o, s, n_prompt, n_new);
    if (rc != OK)
        cli_offload_close(out);
    return rc;
}

void cli_offload_close(struct cli_offload **o)
{
    if (*o)
        hetero_profile_fini(&(*o)->profile);
    mem_free(*o);
    *o = NULL;
}

const struct serve_offload *cli_offload_hook(struct cli_offload *o)
{
    return o ? &o->hook : NULL;
}

int cli_offload_json(const struct cli_offload *o, double tokens_per_s, json_t **out)
{
    TRY(hetero_plan_json(&o->plan, &o->opts, out));
    json_object_set_new(*out, "measured_tokens_per_s", json_number(tokens_per_s));
    json_object_set_new(*out, "real_time", json_boolean(o->kind->real_time));
    return OK;
}

int cli_offload_print(const struct cli_offload *o)
{
    json_t *j = NULL;
    int rc = hetero_plan_json(&o->plan, &o->opts, &j);

    if (rc == OK)
        rc = cli_print_json(j);
    json_decref(j);
    return rc;
}

uint64_t cli_offload_now_ns(const struct cli_offload *o)
{
    uint64_t now = clock_ns();

    return o && o->offload
               ? now - (uint64_t)(int64_t)(1e9 * hetero_offload_unreal_s(o->offload))
               : now;
}
