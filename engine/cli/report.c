/* The speed of a run, compared with what the machine can do. */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "measure/card.h"

/* From this share on, waiting is reported. Two threads alone on two CPUs wait a tenth of it. */
#define WAIT_FRAC 0.2

/* A number, or null where it is undefined: never 0. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static int threads(const json_t *describe, const char *phase)
{
    return (int)json_integer_value(json_object_get(describe, phase));
}

/* The share of a phase for which a thread waited for the others; NaN: no step of it. */
static double wait_frac(const json_t *describe, const char *phase)
{
    const json_t *work = json_object_get(describe, "work");
    const json_t *v = json_object_get(json_object_get(work, phase), "wait_frac");

    return json_is_number(v) ? json_number_value(v) : NAN;
}

json_t *cli_report_json(const struct cli_timing *t, const json_t *describe,
                        const json_t *card)
{
    double n_gaps = (double)(t->n_new - 1);
    double tpot = n_gaps > 0 ? t->decode_s / n_gaps : NAN;
    double read = n_gaps > 0 ? t->decode_bytes / t->decode_s * 1e-9 : NAN;
    double can = measure_card_read_gbps(card, threads(describe, "decode_threads"));
    double gflops = t->prefill_flop / t->ttft_s * 1e-9;
    double peak = measure_card_peak_gflops(card, json_str_at(describe, "weight_type", ""),
                                           json_str_at(describe, "precision", ""),
                                           threads(describe, "prefill_threads"));
    json_t *j = json_object();

    json_object_set_new(j, "n_prompt_tok", json_integer(t->n_prompt));
    json_object_set_new(j, "n_new_tok", json_integer(t->n_new));
    json_object_set_new(j, "ttft_s", number(t->ttft_s));
    json_object_set_new(j, "start_to_first_token_s", number(t->start_s));
    json_object_set_new(j, "tpot_s", number(tpot));
    json_object_set_new(j, "decode_tokens_per_s", number(1 / tpot));
    json_object_set_new(j, "prefill_tokens_per_s",
                        number((double)t->n_prompt / t->ttft_s));
    json_object_set_new(j, "token_bytes",
                        number(n_gaps > 0 ? t->decode_bytes / n_gaps : NAN));
    json_object_set_new(j, "read_gbps", number(read));
    json_object_set_new(j, "machine_read_gbps", number(can));
    json_object_set_new(j, "read_frac", number(measure_share(read, can)));
    json_object_set_new(j, "prefill_gflops", number(gflops));
    json_object_set_new(j, "machine_peak_gflops", number(peak));
    json_object_set_new(j, "prefill_peak_frac", number(measure_share(gflops, peak)));
    json_object_set_new(j, "prefill_wait_frac", number(wait_frac(describe, "prefill")));
    json_object_set_new(j, "decode_wait_frac", number(wait_frac(describe, "decode")));
    return j;
}

int cli_read_card(const char *path, json_t **card)
{
    int rc = measure_card_read(card, path);

    if (rc == OK || path || rc == ERR_NOMEM)
        return rc;
    if (rc != ERR_NOTFOUND)
        log_warning("machine_card_refused", NAN, NAN, "%s", err_msg());
    err_clear();
    return OK;
}

static void print_kernels(const json_t *describe)
{
    json_t *chosen = json_object_get(json_object_get(describe, "kernels"), "chosen");
    const char *op,
        *note = json_str_at(json_object_get(describe, "kernels"), "measured", "");
    json_t *v;

    fprintf(stderr, "kernels:");
    json_object_foreach(chosen, op, v)
        fprintf(stderr, " %s=%s", op, json_string_value(v));
    fprintf(stderr, "%s%s\n", *note ? "; " : "", note);
}

/* Where the time from the start to the first token went. */
static void print_load(const json_t *j, const json_t *describe)
{
    const json_t *load = json_object_get(describe, "load");
    double gb = 1e-9 * json_f64_at(json_object_get(describe, "model"), "tensor_bytes");

    fprintf(
        stderr,
        "first token %.0f ms after the start: loading %.0f (threads %.0f, file %.0f, "
        "weights %.0f: reading %.0f, packing %.0f, %.2f GB at %.2f GB/s, %.2f GB from "
        "disk; kernels and schedules %.0f, keys and values %.0f, tokenizer %.0f), "
        "prompt %.0f\n",
        1e3 * json_f64_at(j, "start_to_first_token_s"), 1e3 * json_f64_at(load, "all_s"),
        1e3 * json_f64_at(load, "team_s"), 1e3 * json_f64_at(load, "file_s"),
        1e3 * json_f64_at(load, "weights_s"), 1e3 * json_f64_at(load, "read_s"),
        1e3 * json_f64_at(load, "pack_s"), gb, gb / json_f64_at(load, "weights_s"),
        1e-9 * json_f64_at(load, "disk_bytes"), 1e3 * json_f64_at(load, "steps_s"),
        1e3 * json_f64_at(load, "kv_s"), 1e3 * json_f64_at(load, "tokenizer_s"),
        1e3 * json_f64_at(j, "ttft_s"));
}

static void print_draft(const json_t *draft)
{
    if (!json_is_object(draft))
        return;
    fprintf(stderr, "draft: %.0f tokens guessed, %.0f compared, %.0f right",
            json_f64_at(draft, "n_guessed"), json_f64_at(draft, "n_checked"),
            json_f64_at(draft, "n_right"));
    if (json_f64_at(draft, "n_checked") > 0)
        fprintf(stderr, " (acceptance %.0f %%)", 100 * json_f64_at(draft, "acceptance"));
    fprintf(stderr, "; guessing took %.0f ms\n", 1e3 * json_f64_at(draft, "draft_s"));
}

void cli_report_print(const json_t *j, const json_t *describe)
{
    double share = json_f64_at(j, "read_frac");

    print_kernels(describe);
    print_load(j, describe);
    fprintf(stderr, "cpus: %s; plan: prefill %d, decode %d threads (%s)\n",
            json_str_at(json_object_get(describe, "cpu_budget"), "reason", ""),
            threads(describe, "prefill_threads"), threads(describe, "decode_threads"),
            json_str_at(json_object_get(describe, "plan"), "source", ""));
    fprintf(stderr, "prompt %.0f tok, TTFT %.1f ms, %.1f tok/s, %.1f GFLOP/s",
            json_f64_at(j, "n_prompt_tok"), 1e3 * json_f64_at(j, "ttft_s"),
            json_f64_at(j, "prefill_tokens_per_s"), json_f64_at(j, "prefill_gflops"));
    if (!isnan(json_f64_at(j, "prefill_peak_frac")))
        fprintf(stderr, " = %.1f %% of measured %.0f",
                100 * json_f64_at(j, "prefill_peak_frac"),
                json_f64_at(j, "machine_peak_gflops"));
    fputc('\n', stderr);
    fprintf(stderr, "output %.0f tok", json_f64_at(j, "n_new_tok"));
    if (isnan(json_f64_at(j, "tpot_s"))) {
        fprintf(stderr, ", TPOT undefined for one token\n");
        return;
    }
    fprintf(stderr, ", TPOT %.2f ms, %.1f tok/s, %.1f MB a token, %.2f GB/s",
            1e3 * json_f64_at(j, "tpot_s"), json_f64_at(j, "decode_tokens_per_s"),
            1e-6 * json_f64_at(j, "token_bytes"), json_f64_at(j, "read_gbps"));
    if (isnan(share) && json_f64_at(j, "read_gbps") > json_f64_at(j, "machine_read_gbps"))
        fprintf(stderr,
                ", more than the machine card's %.1f GB/s, which is wrong: run testbed "
                "machine --force\n",
                json_f64_at(j, "machine_read_gbps"));
    else if (isnan(share))
        fprintf(stderr, ", bandwidth unknown: run testbed machine\n");
    else
        fprintf(stderr, " = %.1f %% of measured %.1f GB/s\n", 100 * share,
                json_f64_at(j, "machine_read_gbps"));
    print_draft(json_object_get(json_object_get(describe, "work"), "draft"));
    if (json_f64_at(j, "decode_wait_frac") >= WAIT_FRAC)
        fprintf(
            stderr,
            "threads waited for one another during %.0f %% of decode: another process "
            "may be using their CPUs\n",
            100 * json_f64_at(j, "decode_wait_frac"));
}
