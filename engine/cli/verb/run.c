/* sandwich run: generates text or ids from one prompt and reports the speed. */
#include "cli/cli.h"
#include "cli/offload.h"
#include "cli/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "measure/card.h"
#include "tokenizer/tokenizer.h"
#include "serve/serve.h"

struct run_flags {
    struct serve_opts serve; /* first: its table's offsets hold here */
    struct serve_sampling sampling;
    struct cli_offload_flags offload;
    char *prompt, *prompt_ids, *machine_card, *grammar, *json_schema;
    int64_t n_new;
    bool ids, json, special, ignore_eos;
};
#define OPT_OF struct run_flags
static const struct opt_row own_rows[] = {
    OPT_ROW(STR, prompt, NULL,
            "Prompt to continue. Either this or --prompt-ids is needed.", .letter = 'p'),
    OPT_ROW(
        STR, prompt_ids, NULL,
        "Prompt as token ids, separated by commas. Example: --prompt-ids 1,15043,3186",
        .unit = "IDS"),
    OPT_ROW(INT, n_new, "128", "Generate at most N tokens.", .unit = "tok", .min = 1,
            .max = 1 << 24, .letter = 'n', .alias = "max_tokens|n_predict"),
    OPT_ROW(BOOL, ids, NULL,
            "Print the generated token ids on one line in place of the text."),
    OPT_ROW(
        BOOL, json, NULL,
        "Print one JSON object with text, ids, times and the engine's configuration."),
    OPT_ROW(
        BOOL, special, NULL,
        "Recognise control tokens such as <|eot_id|> in the prompt. Without it they are "
        "plain text."),
    OPT_ROW(BOOL, ignore_eos, NULL, "Continue after a token that ends the text."),
    CLI_SAMPLING_ROWS("0"),
    OPT_ROW(STR, machine_card, NULL,
            "Machine card with the measured bandwidth and peak of this machine, to "
            "which the speed is compared. A card that was changed or measured on another "
            "machine is refused. Default: results/machine/HOST.json, written by `testbed "
            "machine`.",
            .unit = "FILE"),
    CLI_OFFLOAD_ROWS,
    {0},
};

struct timing {
    int64_t n_prompt, n_new;
    double ttft_s, decode_s; /* decode_s: first to last token */
    double start_s;          /* from the start of the program to the first token */
    double decode_bytes;     /* that the decoded tokens had to read */
    double prefill_flop;
};
struct run {
    const struct run_flags *f;
    json_t *card; /* NULL: the bounds of this machine are unknown */
    struct serve *serve;
    struct cli_offload *offload; /* NULL: no accelerator */
    struct serve_grammar grammar;
    int32_t *prompt;
    size_t n_prompt;
    struct tok_stream stream;
    char *piece; /* buffer for the text of one token */
    size_t capacity;
    json_t *ids;
    FILE *text; /* the decoded text, for --json */
    char *text_buf;
    size_t text_n;
    uint64_t t_start_ns; /* of the program, by the clock on the wall */
    uint64_t t_submit_ns, t_first_ns, t_last_ns;
    struct timing timing;
    enum serve_finish finish;
    char why[256];
};

/* ---- output ---- */

static void put_text(struct run *r, const char *s, size_t n)
{
    if (r->f->json) {
        fwrite(s, 1, n, r->text);
    } else {
        fwrite(s, 1, n, stdout);
        fflush(stdout);
    }
}

static void put_token(struct run *r, int32_t id)
{
    size_t n = 0;

    if (r->f->json)
        json_array_append_new(r->ids, json_integer(id));
    if (r->f->ids && !r->f->json) {
        printf("%s%d", r->timing.n_new > 1 ? " " : "", id);
        fflush(stdout);
    } else if (r->piece && !serve_is_stop(r->serve, id)) {
        if (tok_stream_put(&r->stream, id, r->piece, r->capacity, &n) == OK)
            put_text(r, r->piece, n);
    }
}

static void on_token(void *ctx, int64_t request, int32_t id, const float *logits,
                     enum serve_finish finish)
{
    struct run *r = ctx;
    uint64_t now = cli_offload_now_ns(r->offload);

    (void)request, (void)logits;
    r->finish = finish;
    if (finish == SERVE_ERROR)
        snprintf(r->why, sizeof(r->why), "%s", err_msg());
    if (id < 0)
        return;
    if (r->timing.n_new == 0)
        r->t_first_ns = now;
    else /* this token read the keys and values of all tokens before it */
        r->timing.decode_bytes +=
            (double)serve_token_bytes(r->serve, (int64_t)r->n_prompt + r->timing.n_new);
    r->t_last_ns = now;
    r->timing.n_new++;
    put_token(r, id);
}

/* ---- input ---- */

static int parse_ids(struct run *r, const char *text)
{
    const char *p = text;
    size_t n = 1;

    for (const char *q = text; *q; q++)
        n += *q == ',';
    r->prompt = mem_new(MEM_OTHER, n, sizeof(r->prompt[0]));
    if (!r->prompt)
        return ERR_NOMEM;
    for (r->n_prompt = 0; r->n_prompt < n; p++) {
        char *end;
        long id = strtol(p, &end, 10);

        if (end == p || (*end && *end != ',') || id < 0 || id > INT32_MAX)
            return err_set(ERR_ARG,
                           "--prompt-ids: offset %d: expected an id, found \"%.16s\"",
                           (int)(p - text), p);
        r->prompt[r->n_prompt++] = (int32_t)id;
        p = end;
    }
    return OK;
}

static int read_prompt(struct run *r)
{
    const char *text = r->f->prompt;
    int bos = serve_bos(r->serve);
    int rc;

    if (r->f->prompt_ids)
        return parse_ids(r, r->f->prompt_ids);
    if (r->serve->tok || *text) {
        rc = serve_encode(r->serve, text, strlen(text),
                          SERVE_BOS | (r->f->special ? SERVE_SPECIAL : 0), &r->prompt,
                          &r->n_prompt);
        if (rc != OK || r->n_prompt > 0)
            return rc;
        mem_free(r->prompt);
    }
    if (bos < 0)
        return err_set(ERR_ARG, "--prompt: the prompt is empty and the model has no BOS "
                                "token to begin with; give a text");
    r->prompt = mem_new(MEM_OTHER, 1, sizeof(r->prompt[0]));
    if (!r->prompt)
        return ERR_NOMEM;
    r->prompt[0] = bos;
    r->n_prompt = 1;
    return OK;
}

static int prepare_output(struct run *r)
{
    const struct tok *tok = r->serve->tok;

    r->ids = json_array();
    r->text = open_memstream(&r->text_buf, &r->text_n);
    if (!r->ids || !r->text)
        return err_set(ERR_NOMEM, "no memory for the output");
    if (!tok)
        return r->f->ids || r->f->json ? OK
                                       : err_set(ERR_ARG,
                                                 "%s has no tokenizer: give one with "
                                                 "--tokenizer, or print ids with --ids",
                                                 r->f->serve.model);
    r->capacity = 8 + 3 * tok_longest(tok);
    r->piece = mem_new(MEM_OTHER, r->capacity, 1);
    tok_stream_init(&r->stream, tok);
    return r->piece ? OK : ERR_NOMEM;
}

/* ---- the run ---- */

static int generate(struct run *r)
{
    struct serve_request q = {.prompt = r->prompt,
                              .n_prompt = (int64_t)r->n_prompt,
                              .max_new = r->f->n_new,
                              .ignore_eos = r->f->ignore_eos,
                              .sampling = r->f->sampling,
                              .grammar = r->grammar,
                              .on_token = on_token,
                              .ctx = r};
    uint64_t loaded_ns = clock_ns() - r->t_start_ns; /* an accelerator may have its own */
    bool busy = true;
    int64_t id;
    int rc;

    r->stream.at_start =
        r->n_prompt <= 1; /* the space after a prompt is part of the text */
    q.grammar.at_start = r->stream.at_start;
    r->t_submit_ns = cli_offload_now_ns(r->offload);
    rc = serve_submit(r->serve, &q, &id);
    cli_catch_interrupts();
    while (rc == OK && busy) {
        if (cli_interrupted)
            serve_cancel(r->serve, id);
        rc = serve_step(r->serve, &busy);
    }
    if (rc == OK && r->finish == SERVE_ERROR)
        rc = err_set(ERR_STATE, "%s", r->why);
    if (rc != OK)
        return rc;
    if (r->piece && !(r->f->ids && !r->f->json))
        put_text(r, r->piece, tok_stream_flush(&r->stream, r->piece, r->capacity));
    if (!r->f->json)
        putchar('\n');
    fflush(stdout);
    r->timing.n_prompt = (int64_t)r->n_prompt;
    r->timing.ttft_s = (double)(r->t_first_ns - r->t_submit_ns) * 1e-9;
    r->timing.start_s = (double)loaded_ns * 1e-9 + r->timing.ttft_s;
    r->timing.decode_s = (double)(r->t_last_ns - r->t_first_ns) * 1e-9;
    r->timing.prefill_flop = serve_prefill_flop(r->serve, r->timing.n_prompt);
    if (r->f->serve.draft) { /* its steps are not those of single tokens */
        const struct serve_totals *t = serve_totals_of(r->serve, SERVE_DECODE);
        struct serve_draft_stat d;

        serve_draft_stat(r->serve, &d);
        r->timing.decode_bytes = (double)(t->weight_bytes + t->kv_bytes + d.bytes);
    }
    return OK;
}

/* ---- the report ---- */

/* From this share on, waiting is reported. Two threads alone on two CPUs wait a tenth of it. */
#define WAIT_FRAC 0.2

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

/* The numbers as JSON, with shares of the machine's bounds. card NULL: they are unknown. */
static json_t *report_json(const struct timing *t, const json_t *describe,
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
    json_object_set_new(j, "ttft_s", json_number(t->ttft_s));
    json_object_set_new(j, "start_to_first_token_s", json_number(t->start_s));
    json_object_set_new(j, "tpot_s", json_number(tpot));
    json_object_set_new(j, "decode_tokens_per_s", json_number(1 / tpot));
    json_object_set_new(j, "prefill_tokens_per_s",
                        json_number((double)t->n_prompt / t->ttft_s));
    json_object_set_new(j, "token_bytes",
                        json_number(n_gaps > 0 ? t->decode_bytes / n_gaps : NAN));
    json_object_set_new(j, "read_gbps", json_number(read));
    json_object_set_new(j, "machine_read_gbps", json_number(can));
    json_object_set_new(j, "read_frac", json_number(measure_share(read, can)));
    json_object_set_new(j, "prefill_gflops", json_number(gflops));
    json_object_set_new(j, "machine_peak_gflops", json_number(peak));
    json_object_set_new(j, "prefill_peak_frac", json_number(measure_share(gflops, peak)));
    json_object_set_new(j, "prefill_wait_frac",
                        json_number(wait_frac(describe, "prefill")));
    json_object_set_new(j, "decode_wait_frac",
                        json_number(wait_frac(describe, "decode")));
    return j;
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

/* The same for people, on standard error. */
static void print_report(const json_t *j, const json_t *describe)
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

static int put_accel(const struct run *r, json_t *j)
{
    double tokens = (double)(r->timing.n_new - 1);
    json_t *accel;

    if (!r->offload)
        return OK;
    TRY(cli_offload_json(
        r->offload, r->timing.decode_s > 0 ? tokens / r->timing.decode_s : NAN, &accel));
    json_object_set_new(j, "accel", accel);
    return OK;
}

static int report(struct run *r)
{
    json_t *describe = NULL, *j = NULL, *text;
    int rc = serve_describe(r->serve, &describe);

    if (rc != OK)
        return rc;
    j = report_json(&r->timing, describe, r->card);
    if (!j) {
        rc = err_set(ERR_NOMEM, "no memory for the report");
        goto out;
    }
    print_report(j, describe);
    if (!r->f->json)
        goto out;
    fflush(r->text);
    text = json_stringn_lossy(r->text_buf, r->text_n);
    json_object_set(j, "ids", r->ids);
    json_object_set_new(j, "text", r->piece && text ? text : json_null());
    json_object_set_new(j, "finish",
                        json_string(r->finish == SERVE_EOS ? "eos" : "length"));
    json_object_set(j, "engine", describe);
    rc = put_accel(r, j);
    if (rc == OK)
        rc = cli_print_json(j);
out:
    json_decref(j);
    json_decref(describe);
    return rc;
}

/* Before anything is loaded: those of the ids, or one for four bytes of text. */
static int64_t about_tokens(const struct run_flags *f)
{
    int64_t n = 1;

    if (!f->prompt_ids)
        return (int64_t)(strlen(f->prompt) + 3) / 4 + 1;
    for (const char *p = f->prompt_ids; *p; p++)
        n += *p == ',';
    return n;
}

/* The same, and more than any tokenizer makes of the text: a byte is three tokens at most (where
 * a blank is spelled in bytes). */
static int64_t most_tokens(const struct run_flags *f)
{
    int64_t n = f->prompt_ids ? about_tokens(f) : 4 * (int64_t)strlen(f->prompt) + 64;

    return n + f->n_new;
}

static int run(const struct verb_words *w)
{
    const struct run_flags *f = w->opts;
    static char doing[] = "loading";
    struct serve_opts opts = f->serve;
    struct run r = {.f = f, .t_start_ns = clock_ns()};
    int rc;

    if (!f->serve.model)
        return err_set(ERR_ARG, "--model is needed: the file of the model to run");
    if (!f->prompt == !f->prompt_ids)
        return err_set(ERR_ARG, "expected either --prompt or --prompt-ids, found %s",
                       f->prompt ? "both" : "neither");
    rc = cli_offload_open(&r.offload, &f->offload, &f->serve, about_tokens(f), f->n_new);
    if (rc == OK && f->offload.dry_run) {
        rc = cli_offload_print(r.offload);
        cli_offload_close(&r.offload);
        return rc;
    }
    if (rc == OK)
        rc = cli_read_card(f->machine_card, &r.card);
    if (rc == OK)
        rc = cli_read_grammar(f->grammar, f->json_schema, &r.grammar);
    if (rc == OK)
        rc = serve_open_with(&r.serve, &opts,
                             &(struct serve_how){.offload = cli_offload_hook(r.offload),
                                                 .need_tok = most_tokens(f),
                                                 .progress = cli_progress,
                                                 .ctx = doing});
    if (rc == OK)
        rc = prepare_output(&r);
    if (rc == OK)
        rc = read_prompt(&r);
    if (rc == OK)
        rc = generate(&r);
    if (rc == OK && !cli_interrupted)
        rc = report(&r);
    if (r.text)
        fclose(r.text);
    free(r.text_buf); /* open_memstream's own */
    json_decref(r.ids);
    json_decref(r.card);
    mem_free(r.piece);
    mem_free(r.prompt);
    mem_free((char *)r.grammar.text);
    serve_close(&r.serve);
    cli_offload_close(&r.offload);
    return rc == OK && cli_interrupted ? CLI_INTERRUPTED : rc;
}

const struct verb cli_verb_run = {
    .name = "run",
    .help = "Generate text from a prompt and report the speed.",
    .place = 1,
    .usage =
        {.line = "sandwich run --model FILE --prompt TEXT [options]",
         .about = "Generate text from one prompt. The text is printed on standard "
                  "output; time to "
                  "first token, speed and the share of the machine's limits that was "
                  "reached are "
                  "printed on standard error.",
         .examples =
             "  sandwich run --model llama-160m.gguf --prompt \"Once upon a time\" -n "
             "32\n"
             "  sandwich run --model llama-160m.gguf --plan plan.json --prompt-ids "
             "1,15043 "
             "--json\n"
             "  sandwich run --model m.gguf --prompt Once --accel paced --accel-profile "
             "p.json "
             "--explain\n"},

    .fills = {"model", "prompt"},
    .opts = {{serve_opt_table}, {own_rows}},
    .opts_bytes = sizeof(struct run_flags),
    .run = run,
};
