/* sandwich profile: what products and copies take on this host, and models of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/offload.h"
#include "cpu/cpu.h"
#include "hetero/profile.h"

#define TYPES_MAX   8
#define THREADS_MAX 8

struct profile_flags {
    char *types, *threads, *out, *isa, *accel;
    int precision, testbed;
    int64_t max_tok;
    double min_ms, link_gbps;
    bool bus_limit, json;
};

#define OPT_OF struct profile_flags
static const struct opt_row rows[] = {
    OPT_ROW(STR, types, "bf16,f16,q4_0", "Types of weights, separated by commas.",
            .unit = "TYPES"),
    OPT_ROW(STR, threads, NULL,
            "Numbers of threads, separated by commas. Default: 1 and all of the CPU "
            "budget.",
            .unit = "LIST"),
    OPT_ROW(ENUM, precision, "exact", "Precision of the products.",
            .values = KERN_PRECISIONS),
    OPT_ROW(INT, max_tok, "1024", "Tokens of the largest product; a power of two.",
            .min = 1, .max = 1024),
    OPT_ROW(F64, min_ms, "10", "Each point is timed for at least so long.", .unit = "ms",
            .min = 0, .max = 1e4),
    OPT_ROW(
        STR, accel, "none",
        "Accelerator whose launches, copies and products are timed as well. opencl: "
        "the first device of libOpenCL.so.1; where PoCL makes it of the CPU, its times "
        "are those of no accelerator. cuda: the first GPU of libcuda.so.1.",
        .names = cli_accel_name),
    OPT_ROW(ENUM, testbed, "A",
            "sim, paced: the times of an accelerator that is not there are those of this "
            "machine of ScheInfer's Table I.",
            .values = "A|B|C"),
    OPT_ROW(BOOL, bus_limit, NULL,
            "sim, paced: the link is no faster than the bus that the paper names."),
    OPT_ROW(F64, link_gbps, NULL, "sim, paced: rate of the link. 0: Table I's.",
            .unit = "GB/s", .min = 0, .max = 1000),
    OPT_ROW(STR, out, NULL,
            "Write the profile to this file, for `sandwich run` and `serve`.",
            .unit = "FILE"),
    OPT_ROW(BOOL, json, NULL, "Print the profile as JSON in place of a table."),
    CPU_ISA_ROW,
    {0},
};

/* ---- lists ---- */

static int next_word(const char **at, char *out, size_t n)
{
    size_t length = strcspn(*at, ",");

    if (length == 0 || length >= n)
        return err_set(ERR_ARG, "expected words separated by commas, found \"%.40s\"",
                       *at);
    memcpy(out, *at, length);
    out[length] = 0;
    *at += length + ((*at)[length] == ',');
    return OK;
}

static int parse_types(const char *text, enum kern_type *out, int *n)
{
    char word[16];

    for (*n = 0; *text; (*n)++) {
        if (*n == TYPES_MAX)
            return err_set(ERR_ARG, "--types: more than %d", TYPES_MAX);
        TRY(next_word(&text, word, sizeof(word)));
        TRY(kern_type_parse(word, &out[*n]));
    }
    return *n ? OK : err_set(ERR_ARG, "--types: expected one at least");
}

static int parse_threads(const char *text, int *out, int *n)
{
    static struct cpu_budget budget;
    char word[16];

    TRY(cpu_budget_get(&budget));
    out[0] = 1;
    out[1] = budget.n;
    *n = budget.n > 1 ? 2 : 1;
    if (!text)
        return OK;
    for (*n = 0; *text; (*n)++) {
        char *end;
        long v;

        if (*n == THREADS_MAX)
            return err_set(ERR_ARG, "--threads: more than %d", THREADS_MAX);
        TRY(next_word(&text, word, sizeof(word)));
        v = strtol(word, &end, 10);
        if (*end || v < 1 || v > budget.n)
            return err_set(ERR_ARG, "--threads: expected 1 to %d, found \"%s\"", budget.n,
                           word);
        out[*n] = (int)v;
    }
    return *n ? OK : err_set(ERR_ARG, "--threads: expected one at least");
}

/* ---- the profile ---- */

static void progress(void *ctx, const char *what)
{
    (void)ctx;
    fprintf(stderr, "sandwich profile: %s\n", what);
}

static int machine_for(struct hetero_machine *out, const struct profile_flags *f,
                       enum kern_type type)
{
    enum hetero_type t =
        kern_type_weight_bytes(type) < 1.5 ? HETERO_INT4 : HETERO_FP16; /* 8 bits: INT4 */

    TRY(hetero_machine_printed(out, (char)('A' + f->testbed), t, f->bus_limit));
    if (f->link_gbps > 0)
        out->link_s_per_byte = 1e-9 / f->link_gbps;
    return OK;
}

static int put(const struct profile_flags *f, const struct hetero_profile *p)
{
    json_t *j = NULL;
    char *text = NULL;
    int rc = f->out ? hetero_profile_write(p, f->out) : OK;

    if (rc == OK && f->json)
        rc = hetero_profile_json(p, &j);
    if (rc == OK && f->json)
        rc = cli_print_json(j);
    if (rc == OK && !f->json)
        rc = hetero_profile_text(p, &text);
    if (text)
        fputs(text, stdout);
    mem_free(text);
    json_decref(j);
    return rc;
}

static int run(const struct verb_words *w)
{
    const struct profile_flags *f = w->opts;
    static struct hetero_profile p;
    struct hetero_machine machines[TYPES_MAX];
    enum kern_type types[TYPES_MAX];
    int threads[THREADS_MAX], rc;
    struct hetero_profile_opts o = {.types = types,
                                    .threads = threads,
                                    .precision = (enum kern_precision)f->precision,
                                    .max_tok = f->max_tok,
                                    .min_s = 1e-3 * f->min_ms,
                                    .copy_bytes = (int64_t)8 << 20,
                                    .machines = machines,
                                    .seed = 1,
                                    .progress = isatty(STDERR_FILENO) ? progress : NULL};

    TRY(cpu_isa_limit(f->isa));
    TRY(parse_types(f->types, types, &o.n_types));
    TRY(parse_threads(f->threads, threads, &o.n_threads));
    if ((f->max_tok & (f->max_tok - 1)) != 0)
        return err_set(ERR_ARG, "--max-tok: expected a power of two, found %lld",
                       (long long)f->max_tok);
    if (f->out)
        TRY(file_check_target(f->out, NULL));
    for (int i = 0; i < o.n_types; i++)
        TRY(machine_for(&machines[i], f, types[i]));
    if (strcmp(f->accel, "none") != 0)
        TRY(accel_find(f->accel, &o.kind));
    rc = hetero_profile_measure(&p, &o);
    if (rc == OK)
        rc = put(f, &p);
    hetero_profile_fini(&p);
    return rc;
}

const struct verb cli_verb_profile = {
    .name = "profile",
    .help = "Time products and copies, for slices on a CPU and an accelerator.",
    .place = 7,
    .usage =
        {.line = "sandwich profile [options]",
         .about =
             "Time products of the CPU and an accelerator, and copies between them, and "
             "fit ScheInfer's line and a model of two regimes to them. The errors are "
             "those "
             "of points that were not fitted.",
         .examples =
             "  sandwich profile --types q4_0 --out profile.json\n"
             "  sandwich profile --types bf16 --threads 1 --accel paced --link-gbps 8 "
             "--out profile.json\n"},

    .opts = {{rows}},
    .opts_bytes = sizeof(struct profile_flags),
    .run = run,
};
