#include "experiments/run/bench_answer.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text_number.h"

static const char *text_of(const struct run_bench_answer *a, const char *key,
                           const char *otherwise)
{
    const char *s =
        json_string_value(json_object_get(json_object_get(a->described, "server"), key));

    return s && s[0] ? s : otherwise;
}

/* --- for people */

static const struct run_bench_trial *trial_at(const struct run_bench_answer *a,
                                              double rate_rps)
{
    for (int i = 0; i < a->n_trials; i++)
        if (a->trials[i].rate_rps == rate_rps)
            return &a->trials[i];
    return NULL;
}

static void print_capacity(const struct run_bench_answer *a, FILE *out)
{
    const struct run_bench_opts *o = a->o;
    const struct run_bench_trial *low = trial_at(a, a->bracket.low_rps);
    const struct run_bench_trial *high = trial_at(a, a->bracket.high_rps);

    if (a->one.within_frac < RUN_BENCH_TARGET_FRAC)
        fprintf(out,
                "Even alone, this user does not get the objectives of %g ms to the first "
                "token and %g ms per token in 90 %% of requests, so no rate can "
                "keep them. ",
                o->slo_ttft_ms, o->slo_tpot_ms);
    else if (!low)
        fprintf(
            out,
            "No rate was found at which 90 %% of requests get their first token within "
            "%g ms and the others within %g ms each. ",
            o->slo_ttft_ms, o->slo_tpot_ms);
    else
        fprintf(out,
                "At %s requests a second, at least 90 %% of them get their first token "
                "within %g ms and the others within %g ms each, and the server writes "
                "%s tokens a second. ",
                TEXT_NUMBER(low->rate_rps, 3), o->slo_ttft_ms, o->slo_tpot_ms,
                TEXT_NUMBER(low->tok_s, 3));
    if (high)
        fprintf(out, "At %s requests a second it is %.0f %% of them%s%s%s.\n",
                TEXT_NUMBER(high->rate_rps, 3), 100 * high->within_frac,
                high->error[0] ? ", and requests fail: " : "", high->error,
                low ? "" : "; time was too short for lower rates");
    else if (a->n_trials)
        fprintf(out, "The time was too short to find a rate at which it no longer does; "
                     "a longer --budget-s finds it.\n");
    else
        fprintf(out, "Other objectives are set by --slo-ttft-ms and --slo-tpot-ms.\n");
}

/* One percentile or share of few requests may not exist. */
static void print_cell(double x, int digits, const char *unit, FILE *out)
{
    if (isnan(x))
        fprintf(out, " n/a |");
    else
        fprintf(out, " %.*f%s |", digits, x, unit);
}

static void print_row(const struct run_bench_trial *t, FILE *out)
{
    fprintf(out, "| %s | %.0f | %.0f |", t->load, t->n, t->n_failed);
    print_cell(t->ttft_ms, 1, "", out);
    print_cell(t->p90_ttft_ms, 1, "", out);
    print_cell(t->tpot_ms, 2, "", out);
    print_cell(t->tok_s, 1, "", out);
    print_cell(100 * t->within_frac, 0, " %", out);
    fprintf(out, "\n");
}

/* Rates in their order; the parts of a given load as they came. */
static void print_table(const struct run_bench_answer *a, FILE *out)
{
    bool printed[RUN_BENCH_MAX_TRIALS] = {0};

    fprintf(out,
            "\n| load | requests | not completed | TTFT p50 ms | TTFT p90 ms | TPOT p50 "
            "ms | output tokens/s | within objectives |\n"
            "|---|---|---|---|---|---|---|---|\n");
    if (!a->is_given)
        print_row(&a->one, out);
    for (int i = 0; i < a->n_trials; i++) {
        int next = a->is_given ? i : -1;

        for (int k = 0; k < a->n_trials && !a->is_given; k++)
            if (!printed[k] &&
                (next < 0 || a->trials[k].rate_rps < a->trials[next].rate_rps))
                next = k;
        printed[next] = true;
        print_row(&a->trials[next], out);
    }
}

static void print_server(const struct run_bench_answer *a, FILE *out)
{
    const struct run_bench_opts *o = a->o;
    const char *sent = strcmp(text_of(a, "prompt", ""), "words") != 0 ? "token ids"
                       : strstr(text_of(a, "path", ""), "chat") == NULL
                           ? "tokens, sent as words"
                           : "tokens, sent as words of a chat";

    fprintf(out, "The server at %s (%s, version %s) serves %s; ", a->url,
            text_of(a, "kind", "of a kind that it does not state"),
            text_of(a, "version", "not stated"), text_of(a, "model", "?"));
    if (o->dataset)
        fprintf(out, "requests are those of %s, their prompts %s. ", o->dataset, sent);
    else
        fprintf(out,
                "each request here has a prompt of %lld %s and an answer of %s%lld "
                "tokens. ",
                (long long)o->prompt_tok, sent, o->any_length ? "at most " : "",
                (long long)o->output_tok);
}

static void print_clients(const struct run_bench_answer *a, FILE *out)
{
    double worst_ms = 0;

    for (size_t i = 0; i < json_array_size(a->clients); i++)
        worst_ms =
            fmax(worst_ms, json_f64_at(json_array_get(a->clients, i), "clock_error_ms"));
    if (a->clients)
        fprintf(
            out,
            "Machines that sent the load: %zu, of which each clock is known to %s ms. ",
            json_array_size(a->clients), TEXT_NUMBER(worst_ms, 2));
}

static void print_given(const struct run_bench_answer *a, FILE *out)
{
    const struct run_bench_trial *all = &a->trials[0];

    fprintf(out,
            "Of %.0f requests, %.0f did not complete; %s %% got their first token within "
            "%g ms and the others within %g ms each, and the server wrote %s tokens a "
            "second.%s%s",
            all->n, all->n_failed,
            isnan(all->within_frac) ? "n/a" : TEXT_NUMBER(100 * all->within_frac, 3),
            a->o->slo_ttft_ms, a->o->slo_tpot_ms,
            isnan(all->tok_s) ? "n/a" : TEXT_NUMBER(all->tok_s, 3),
            all->error[0] ? " The first that failed: " : "", all->error);
    if (a->n_not_sent)
        fprintf(out, " The time of --limit was over before %zu more were sent.",
                a->n_not_sent);
    fprintf(out, "\n");
}

void run_bench_print(const struct run_bench_answer *a, FILE *out)
{
    print_server(a, out);
    print_clients(a, out);
    if (a->is_given) {
        print_given(a, out);
    } else {
        fprintf(out,
                "One user at a time waits %s ms for the first token and then gets %s "
                "tokens a second. ",
                TEXT_NUMBER(a->one.ttft_ms, 3), TEXT_NUMBER(1e3 / a->one.tpot_ms, 3));
        print_capacity(a, out);
    }
    print_table(a, out);
    if (a->record)
        fprintf(out, "\n%s\n", a->record);
}

/* --- for programs */

static json_t *trial_json(const struct run_bench_trial *t)
{
    return json_pack("{s:s s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o s:o}", "load", t->load,
                     "rate_rps", t->rate_rps > 0 ? json_real(t->rate_rps) : json_null(),
                     "n_requests", json_number(t->n), "n_not_completed",
                     json_number(t->n_failed), "p50_ttft_ms", json_number(t->ttft_ms),
                     "p90_ttft_ms", json_number(t->p90_ttft_ms), "p50_tpot_ms",
                     json_number(t->tpot_ms), "output_throughput_tok_s",
                     json_number(t->tok_s), "request_throughput_rps", json_number(t->rps),
                     "within_objectives_frac", json_number(t->within_frac),
                     "p90_lateness_ms", json_number(t->lateness_ms), "first_error",
                     t->error[0] ? json_string_lossy(t->error) : json_null());
}

json_t *run_bench_json(const struct run_bench_answer *a)
{
    json_t *all =
        json_pack("{s:o s:o s:O}", "url", json_string_lossy(a->url), "options",
                  opt_to_json(run_bench_opt_table, a->o), "described", a->described);
    json_t *trials = json_array();

    for (int i = 0; i < a->n_trials; i++)
        json_array_append_new(trials, trial_json(&a->trials[i]));
    json_object_set_new(all, a->is_given ? "load" : "rates", trials);
    if (a->is_given) {
        json_object_set_new(all, "n_not_sent", json_integer((json_int_t)a->n_not_sent));
    } else {
        json_object_set_new(all, "one_user", trial_json(&a->one));
        json_object_set_new(all, "capacity",
                            json_pack("{s:o s:o s:f}", "low_rps",
                                      json_number(a->bracket.low_rps), "high_rps",
                                      json_number(a->bracket.high_rps), "target_frac",
                                      RUN_BENCH_TARGET_FRAC));
    }
    if (a->clients)
        json_object_set(all, "clients", a->clients);
    if (a->record)
        json_object_set_new(all, "record", json_string_lossy(a->record));
    return all;
}
