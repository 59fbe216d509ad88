/* The result of `sandwich bench`: one row per test or kernel, as Markdown, CSV or JSON. */
#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/stats.h"
#include "base/table.h"
#include "measure/card.h"

void cli_bench_type(const struct format_file *f, char *out, size_t n)
{
    snprintf(out, n, "%s %s", f->config.name, kern_type_name(f->config.weight_type));
}

void cli_bench_test_name(const struct cli_bench *b, const struct cli_bench_test *t,
                         char *out, size_t n)
{
    int n_ranks = b->phases[t->phase].n_ranks;
    char batch[16] = "", ranks[16] = "";

    if (t->n_seqs > 1)
        snprintf(batch, sizeof(batch), " b%d", t->n_seqs);
    if (n_ranks > 1)
        snprintf(ranks, sizeof(ranks), " r%d", n_ranks);
    snprintf(out, n, "%s%lld%s%s", t->n_seqs ? "tg" : "pp", (long long)t->n_tok, batch,
             ranks);
}

void cli_bench_set_bound(json_t *row, const char *name, double bound, double rate)
{
    json_object_set_new(row, "bound", name ? json_string(name) : json_null());
    json_object_set_new(row, "bound_value", json_number(bound));
    json_object_set_new(row, "bound_frac", json_number(measure_share(rate, bound)));
}

json_t *cli_bench_new_row(struct cli_bench *b)
{
    struct cpu_info cpu;
    char utc[32], isa[256];
    json_t *row;

    cpu_info_get(&cpu);
    clock_utc(utc, sizeof(utc));
    cpu_isa_words(cpu_isa_usable(), isa, sizeof(isa));
    row = json_pack("{s:s, s:o, s:s, s:s, s:s}", "build_commit", build_info.commit,
                    "cpu_info", json_string_lossy(cpu.model_name), "isa", isa, "backend",
                    "CPU", "test_time", utc);
    return row && json_array_append_new(b->rows, row) == 0 ? row : NULL;
}

/* The bytes that decode must read or the FLOP of a prompt, what bounds them, and the share of
 * this bound that `seconds` reach. */
static void add_bound(json_t *row, const struct cli_bench *b,
                      const struct cli_bench_test *t, double seconds)
{
    const struct model *m = b->engine.model;
    const struct model_config *c = model_config_of(m);
    struct model_cost_types types = model_cost_types_of(m);
    int threads = b->phases[t->phase].n_threads;
    const char *type = kern_type_name(types.weight);
    const char *precision = kern_precision_name(b->f->precision);
    double work, bound;

    if (t->n_seqs) { /* the mean context is that of the middle token */
        work =
            (double)t->n_tok *
            model_cost_decode(c, types, ((double)t->n_tok + 1) / 2, t->n_seqs).read_bytes;
        bound = measure_card_read_gbps(b->card, threads);
    } else {
        work = model_cost_prefill(c, types, t->n_tok, 0).flop;
        bound = measure_card_peak_gflops(b->card, type, precision, threads);
    }
    json_object_set_new(row, "bound_work", json_number(work));
    cli_bench_set_bound(row, t->n_seqs ? "read_gbps" : "peak_gflops", bound,
                        work / seconds * 1e-9);
}

/* Mean and deviation, as llama-bench has them, and this project's own estimate. */
static void add_times(json_t *row, const struct cli_bench *b, int i, double n_tok)
{
    double ns[CLI_BENCH_ROUNDS_MAX], rate[CLI_BENCH_ROUNDS_MAX];
    json_t *all_ns = json_array(), *all = json_array();
    struct measure_report r;
    int n_rounds, n = 0;
    const double *seconds = measure_times(b->measure, i, &n_rounds);

    for (int k = 0; k < n_rounds; k++) {
        ns[n] = 1e9 * seconds[k];
        rate[n] = n_tok / seconds[k];
        json_array_append_new(all_ns, json_number(ns[n]));
        json_array_append_new(all, json_number(rate[n++]));
    }
    measure_report(b->measure, i, &r);
    json_object_set_new(row, "avg_ns", json_number(stats_mean(ns, (size_t)n)));
    json_object_set_new(row, "stddev_ns",
                        json_number(n > 1 ? stats_std(ns, (size_t)n) : NAN));
    json_object_set_new(row, "avg_ts", json_number(stats_mean(rate, (size_t)n)));
    json_object_set_new(row, "stddev_ts",
                        json_number(n > 1 ? stats_std(rate, (size_t)n) : NAN));
    json_object_set_new(row, "estimate_ts", json_number(n_tok / r.estimate));
    json_object_set_new(row, "estimate_lo_ts", json_number(n_tok / r.hi));
    json_object_set_new(row, "estimate_hi_ts", json_number(n_tok / r.lo));
    json_object_set_new(row, "n_disturbed", json_integer(r.n_disturbed));
    json_object_set_new(row, "joules_per_tok",
                        json_number(*b->no_energy ? NAN : b->joules[i] / (n * n_tok)));
    json_object_set_new(row, "no_energy",
                        *b->no_energy ? json_string(b->no_energy) : json_null());
    add_bound(row, b, &b->tests[i], r.estimate);
    json_object_set_new(row, "samples_ns", all_ns);
    json_object_set_new(row, "samples_ts", all);
}

int cli_bench_add_row(struct cli_bench *b, const struct format_file *f, int i)
{
    const struct cli_bench_test *t = &b->tests[i];
    const struct cli_bench_phase *p = &b->phases[t->phase];
    const struct model_load_stat *load = model_load_stat_of(b->engine.model);
    json_t *row = cli_bench_new_row(b), *own;
    char type[128], name[48];

    cli_bench_type(f, type, sizeof(type));
    cli_bench_test_name(b, t, name, sizeof(name));
    own = json_pack(
        "{s:o, s:o, s:I, s:I, s:s, s:s, s:b, s:s, s:i, s:i, s:I, s:I, s:I, s:s, s:f, "
        "s:f, s:f, s:I}",
        "model_filename", json_string_lossy(b->path), "model_type",
        json_string_lossy(type), "model_size", (json_int_t)load->tensor_bytes,
        "model_n_params", (json_int_t)model_n_params(&f->config), "precision",
        kern_precision_name(b->f->precision), "kv_type",
        kern_kv_type_name((enum kern_kv_type)b->f->kv_type), "deterministic",
        b->f->deterministic, "team", b->team_kind->name, "n_threads", p->n_threads,
        "n_ranks", p->n_ranks, "n_prompt", (json_int_t)(t->n_seqs ? 0 : t->n_tok),
        "n_gen", (json_int_t)(t->n_seqs ? t->n_tok : 0), "n_seqs",
        (json_int_t)(t->n_seqs ? t->n_seqs : 1), "test", name, "load_s", load->load_s,
        "load_read_s", load->read_s, "load_pack_s", load->pack_s, "load_disk_bytes",
        (json_int_t)load->disk_bytes);
    if (!row || !own || json_object_update(row, own) != 0) {
        json_decref(own);
        return err_set(ERR_NOMEM, "no memory for the result");
    }
    json_decref(own);
    add_times(row, b, i, (double)t->n_tok * (t->n_seqs ? t->n_seqs : 1));
    return OK;
}

static const struct table_column op_columns[] = {{"op", -10},
                                                 {"variant", -22},
                                                 {"shape", -21},
                                                 {"threads", 7},
                                                 {"rate (interval, %)", 22},
                                                 {"unit", -7},
                                                 {"% of bound", 10},
                                                 {0}};

/* The first column is as wide as the widest name. */
static void model_table(struct table *t, struct table_column columns[8],
                        const struct cli_bench *b)
{
    static const struct table_column all[8] = {
        {"model", 0},   {"size", 10}, {"params", 9}, {"backend", -7},
        {"threads", 7}, {"test", 11}, {"t/s", 20},   {0}};

    memcpy(columns, all, sizeof(all));
    columns[0].width = -b->name_width;
    *t = (struct table){.f = stdout, .markdown = true, .columns = columns};
}

void cli_bench_print_head(const struct cli_bench *b)
{
    struct table_column columns[8];
    struct table t = {.f = stdout, .markdown = true, .columns = op_columns};

    if (!b->f->ops)
        model_table(&t, columns, b);
    table_head(&t);
}

static void print_md(const struct cli_bench *b, const json_t *row)
{
    double bytes = json_f64_at(row, "model_size"), n = json_f64_at(row, "model_n_params");
    bool gib = bytes >= 0x1p30, billion = n >= 1e9;
    struct table_column columns[8];
    char deviation[24] = "";
    struct table t;

    model_table(&t, columns, b);
    if (json_is_real(json_object_get(row, "stddev_ts")))
        snprintf(deviation, sizeof(deviation), " ± %.2f", json_f64_at(row, "stddev_ts"));
    table_cell(&t, "%s", json_str_at(row, "model_type", ""));
    table_cell(&t, "%.2f %s", bytes / (gib ? 0x1p30 : 0x1p20), gib ? "GiB" : "MiB");
    table_cell(&t, "%.2f %s", n / (billion ? 1e9 : 1e6), billion ? "B" : "M");
    table_cell(&t, "%s", json_str_at(row, "backend", ""));
    table_cell(&t, "%.0f", json_f64_at(row, "n_threads"));
    table_cell(&t, "%s", json_str_at(row, "test", ""));
    table_cell(&t, "%.2f%s", json_f64_at(row, "avg_ts"), deviation);
}

static void print_op_md(const json_t *row)
{
    double value = json_f64_at(row, "rate"), frac = json_f64_at(row, "bound_frac");
    struct table t = {.f = stdout, .markdown = true, .columns = op_columns};

    table_cell(&t, "%s", json_str_at(row, "op", ""));
    table_cell(&t, "%s", json_str_at(row, "variant", ""));
    table_cell(&t, "%s", json_str_at(row, "shape", ""));
    table_cell(&t, "%.0f", json_f64_at(row, "n_threads"));
    table_cell(&t, "%.1f (%+.1f .. %+.1f)", value,
               100 * (json_f64_at(row, "rate_lo") / value - 1),
               100 * (json_f64_at(row, "rate_hi") / value - 1));
    table_cell(&t, "%s", json_str_at(row, "unit", ""));
    if (frac > 0)
        table_cell(&t, "%.1f", 100 * frac);
    else
        table_cell(&t, "%s", "");
}

void cli_bench_print(const struct cli_bench *b, size_t first)
{
    for (size_t i = first; i < json_array_size(b->rows); i++) {
        const json_t *row = json_array_get(b->rows, i);

        if (b->f->output == CLI_BENCH_CSV && i == 0)
            table_csv(stdout, row, true);
        if (b->f->output == CLI_BENCH_CSV)
            table_csv(stdout, row, false);
        else if (b->f->output == CLI_BENCH_MD && b->f->ops)
            print_op_md(row);
        else if (b->f->output == CLI_BENCH_MD)
            print_md(b, row);
    }
    fflush(stdout);
}
