/* The result of `sandwich bench`: one row per test or kernel, as Markdown, CSV or JSON. */
#include "cli/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/stats.h"
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

json_t *cli_bench_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

void cli_bench_set_bound(json_t *row, const char *name, double bound, double rate)
{
    json_object_set_new(row, "bound", name ? json_string(name) : json_null());
    json_object_set_new(row, "bound_value", cli_bench_number(bound));
    json_object_set_new(row, "bound_frac", cli_bench_number(measure_share(rate, bound)));
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
    json_object_set_new(row, "bound_work", cli_bench_number(work));
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
        json_array_append_new(all_ns, cli_bench_number(ns[n]));
        json_array_append_new(all, cli_bench_number(rate[n++]));
    }
    measure_report(b->measure, i, &r);
    json_object_set_new(row, "avg_ns", cli_bench_number(stats_mean(ns, (size_t)n)));
    json_object_set_new(row, "stddev_ns",
                        cli_bench_number(n > 1 ? stats_std(ns, (size_t)n) : NAN));
    json_object_set_new(row, "avg_ts", cli_bench_number(stats_mean(rate, (size_t)n)));
    json_object_set_new(row, "stddev_ts",
                        cli_bench_number(n > 1 ? stats_std(rate, (size_t)n) : NAN));
    json_object_set_new(row, "estimate_ts", cli_bench_number(n_tok / r.estimate));
    json_object_set_new(row, "estimate_lo_ts", cli_bench_number(n_tok / r.hi));
    json_object_set_new(row, "estimate_hi_ts", cli_bench_number(n_tok / r.lo));
    json_object_set_new(row, "n_disturbed", json_integer(r.n_disturbed));
    json_object_set_new(
        row, "joules_per_tok",
        cli_bench_number(*b->no_energy ? NAN : b->joules[i] / (n * n_tok)));
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

void cli_bench_print_head(const struct cli_bench *b)
{
    if (b->f->ops) {
        printf("| %-10s | %-22s | %-21s | threads | %22s | %-7s | %% of bound |\n", "op",
               "variant", "shape", "rate (interval, %)", "unit");
        printf(
            "| ---------- | ---------------------- | --------------------- | ------: | "
            "---------------------: | ------- | ---------: |\n");
        return;
    }
    printf("| %-*s | %10s | %9s | %-7s | %7s | %11s | %20s |\n", b->name_width, "model",
           "size", "params", "backend", "threads", "test", "t/s");
    printf("| ");
    for (int i = 0; i < b->name_width; i++)
        putchar('-');
    printf(" | ---------: | --------: | ------- | ------: | ----------: | "
           "-------------------: |\n");
}

static void print_md(const struct cli_bench *b, const json_t *row)
{
    double bytes = json_f64_at(row, "model_size"), n = json_f64_at(row, "model_n_params");
    bool gib = bytes >= 0x1p30, billion = n >= 1e9;
    char size[32], params[32], rate[48];

    snprintf(size, sizeof(size), "%.2f %s", bytes / (gib ? 0x1p30 : 0x1p20),
             gib ? "GiB" : "MiB");
    snprintf(params, sizeof(params), "%.2f %s", n / (billion ? 1e9 : 1e6),
             billion ? "B" : "M");
    snprintf(rate, sizeof(rate), "%.2f", json_f64_at(row, "avg_ts"));
    if (json_is_real(json_object_get(row, "stddev_ts")))
        snprintf(rate + strlen(rate), sizeof(rate) - strlen(rate), " ± %.2f",
                 json_f64_at(row, "stddev_ts"));
    /* "±" takes two bytes and one column */
    printf("| %-*s | %10s | %9s | %-7s | %7.0f | %11s | %*s |\n", b->name_width,
           json_str_at(row, "model_type", ""), size, params,
           json_str_at(row, "backend", ""), json_f64_at(row, "n_threads"),
           json_str_at(row, "test", ""), strchr(rate, ' ') ? 21 : 20, rate);
}

static void print_op_md(const json_t *row)
{
    double value = json_f64_at(row, "rate"), frac = json_f64_at(row, "bound_frac");
    char rate[64], share[16] = "";

    snprintf(rate, sizeof(rate), "%.1f (%+.1f .. %+.1f)", value,
             100 * (json_f64_at(row, "rate_lo") / value - 1),
             100 * (json_f64_at(row, "rate_hi") / value - 1));
    if (frac > 0)
        snprintf(share, sizeof(share), "%.1f", 100 * frac);
    printf("| %-10s | %-22s | %-21s | %7.0f | %22s | %-7s | %10s |\n",
           json_str_at(row, "op", ""), json_str_at(row, "variant", ""),
           json_str_at(row, "shape", ""), json_f64_at(row, "n_threads"), rate,
           json_str_at(row, "unit", ""), share);
}

/* A line of what is not a list; `head`: of the keys in place of the values. */
static void print_csv(const json_t *row, bool head)
{
    const char *key, *separator = "";
    json_t *v;

    json_object_foreach((json_t *)row, key, v)
    {
        if (json_is_array(v))
            continue;
        fputs(separator, stdout);
        separator = ",";
        if (head)
            fputs(key, stdout);
        else if (json_is_real(v))
            printf("%.9g", json_real_value(v));
        else if (json_is_integer(v))
            printf("%lld", (long long)json_integer_value(v));
        else if (json_is_boolean(v))
            printf("%d", json_is_true(v));
        for (const char *s = head ? NULL : json_string_value(v); s && *s; s++)
            putchar(*s == ',' || *s == '"' || *s == '\n' ? ' ' : *s);
    }
    putchar('\n');
}

void cli_bench_print(const struct cli_bench *b, size_t first)
{
    for (size_t i = first; i < json_array_size(b->rows); i++) {
        const json_t *row = json_array_get(b->rows, i);

        if (b->f->output == CLI_BENCH_CSV && i == 0)
            print_csv(row, true);
        if (b->f->output == CLI_BENCH_CSV)
            print_csv(row, false);
        else if (b->f->output == CLI_BENCH_MD && b->f->ops)
            print_op_md(row);
        else if (b->f->output == CLI_BENCH_MD)
            print_md(b, row);
    }
    fflush(stdout);
}
