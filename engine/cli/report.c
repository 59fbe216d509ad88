/* What a run came to, beside what the machine can do. */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

#define CARD_MAX_BYTES (16 << 20)

/* The best value of the card for this many threads among those whose name begins with
 * `prefix`; NaN when the card has none. */
static double card_best(const json_t *card, const char *prefix, int64_t n_threads)
{
    double best = NAN;
    const json_t *v;
    size_t i;

    json_array_foreach(json_object_get(card, "values"), i, v)
    {
        const char *name = json_string_value(json_object_get(v, "name"));
        const json_t *median = json_object_get(v, "median");

        if (!name || strncmp(name, prefix, strlen(prefix)) != 0 ||
            !json_is_number(median))
            continue;
        if (json_integer_value(json_object_get(v, "n_threads")) == n_threads &&
            !(best >= json_number_value(median)))
            best = json_number_value(median);
    }
    return best;
}

/* The fastest arithmetic that the declared precision allows for these weights. */
static double card_peak(const json_t *card, const char *type, const char *precision,
                        int64_t n_threads)
{
    double best = card_best(card, "peak_f32_fma_", n_threads);

    if (strcmp(precision, "relaxed") == 0 && strcmp(type, "f32") != 0)
        best = fmax(best, card_best(card, "peak_fp16_fma_", n_threads)); /* skips NaN */
    if (strcmp(precision, "relaxed") == 0 && strcmp(type, "bf16") == 0)
        best = fmax(best, card_best(card, "peak_bf16_dot_", n_threads));
    return best;
}

static json_t *read_card(const char *path)
{
    char host[128] = "", standard[256];
    json_t *card = NULL;

    if (!path) {
        gethostname(host, sizeof(host) - 1);
        snprintf(standard, sizeof(standard), "results/machine/%s.json", host);
        path = standard;
    }
    if (json_read_file(&card, path, CARD_MAX_BYTES) != OK)
        err_clear(); /* the report says that the bounds are unknown */
    return card;
}

/* A number, or null where it is undefined: never 0. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static int64_t threads(const json_t *describe, const char *phase)
{
    return json_integer_value(json_object_get(describe, phase));
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

json_t *cli_report_json(const struct cli_timing *t, const json_t *describe,
                        const char *card_path)
{
    json_t *card = read_card(card_path);
    double n_gaps = (double)(t->n_new - 1);
    double tpot = n_gaps > 0 ? t->decode_s / n_gaps : NAN;
    double read = n_gaps > 0 ? t->decode_bytes / t->decode_s * 1e-9 : NAN;
    double can = card_best(card, "read_gbps", threads(describe, "decode_threads"));
    double gflops = t->prefill_flop / t->ttft_s * 1e-9;
    double peak =
        card_peak(card, text(describe, "weight_type"), text(describe, "precision"),
                  threads(describe, "prefill_threads"));
    json_t *j = json_object();

    json_object_set_new(j, "n_prompt_tok", json_integer(t->n_prompt));
    json_object_set_new(j, "n_new_tok", json_integer(t->n_new));
    json_object_set_new(j, "ttft_s", number(t->ttft_s));
    json_object_set_new(j, "tpot_s", number(tpot));
    json_object_set_new(j, "decode_tokens_per_s", number(1 / tpot));
    json_object_set_new(j, "prefill_tokens_per_s",
                        number((double)t->n_prompt / t->ttft_s));
    json_object_set_new(j, "token_bytes",
                        number(n_gaps > 0 ? t->decode_bytes / n_gaps : NAN));
    json_object_set_new(j, "read_gbps", number(read));
    json_object_set_new(j, "machine_read_gbps", number(can));
    json_object_set_new(j, "read_frac", number(read / can));
    json_object_set_new(j, "prefill_gflops", number(gflops));
    json_object_set_new(j, "machine_peak_gflops", number(peak));
    json_object_set_new(j, "prefill_peak_frac", number(gflops / peak));
    json_decref(card);
    return j;
}

static double get(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void print_kernels(const json_t *describe)
{
    json_t *chosen = json_object_get(json_object_get(describe, "kernels"), "chosen");
    const char *op, *note = text(json_object_get(describe, "kernels"), "measured");
    json_t *v;

    fprintf(stderr, "kernels:");
    json_object_foreach(chosen, op, v)
        fprintf(stderr, " %s=%s", op, json_string_value(v));
    fprintf(stderr, "%s%s\n", *note ? "; " : "", note);
}

void cli_report_print(const json_t *j, const json_t *describe)
{
    double share = get(j, "read_frac");

    print_kernels(describe);
    fprintf(stderr, "cpus: %s; plan: prefill %lld, decode %lld threads (%s)\n",
            text(json_object_get(describe, "cpu_budget"), "reason"),
            (long long)threads(describe, "prefill_threads"),
            (long long)threads(describe, "decode_threads"),
            text(json_object_get(describe, "plan"), "source"));
    fprintf(stderr, "prompt %.0f tok, TTFT %.1f ms, %.1f tok/s, %.1f GFLOP/s",
            get(j, "n_prompt_tok"), 1e3 * get(j, "ttft_s"),
            get(j, "prefill_tokens_per_s"), get(j, "prefill_gflops"));
    if (!isnan(get(j, "prefill_peak_frac")))
        fprintf(stderr, " = %.1f %% of measured %.0f", 100 * get(j, "prefill_peak_frac"),
                get(j, "machine_peak_gflops"));
    fputc('\n', stderr);
    fprintf(stderr, "output %.0f tok", get(j, "n_new_tok"));
    if (isnan(get(j, "tpot_s"))) {
        fprintf(stderr, ", TPOT undefined for one token\n");
        return;
    }
    fprintf(stderr, ", TPOT %.2f ms, %.1f tok/s, %.1f MB a token, %.2f GB/s",
            1e3 * get(j, "tpot_s"), get(j, "decode_tokens_per_s"),
            1e-6 * get(j, "token_bytes"), get(j, "read_gbps"));
    if (isnan(share))
        fprintf(stderr, ", bandwidth unknown: run testbed machine\n");
    else
        fprintf(stderr, " = %.1f %% of measured %.1f GB/s\n", 100 * share,
                get(j, "machine_read_gbps"));
}
