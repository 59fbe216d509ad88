/* What a grammar costs: the time for a token with one and without, in turn.
 *
 * The text is given: a random value of the schema, written as JSON. Its tokens are what the model
 * computes in each of the alternatives, so that all compute the same; what the sampler chooses is
 * timed and then dropped. A trial begins at a random place of the text. "Known" is a grammar whose
 * tables have seen the texts of earlier rounds, as those of a server have after some requests;
 * "new" is one that was just compiled. Not in the five papers. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "experiments/frame/frame.h"
#include "experiments/study/support/elasticity.h"
#include "experiments/study/support/engine.h"
#include "experiments/study/support/options.h"
#include "grammar/grammar.h"
#include "model/sampler.h"

#define OPTIONS(X)                                                                       \
    OPTION_MODEL(X)                                                                      \
    OPTION_PRECISION(X)                                                                  \
    X(ENUM, schema, "flat",                                                              \
      "Objects: flat has 5 fields, nested 4 objects of 5, large 10 objects of 10 with "  \
      "limits of length. texts has 4 strings with such a limit and nothing else.",       \
      .values = "flat|nested|large|texts")                                               \
    X(INT, max_chars, "200", "maxLength of strings that have one.", .min = 8,            \
      .max = 4096)                                                                       \
    X(INT, n_prompt_tok, "64", "Tokens before the text.", .min = 1, .max = 65536)        \
    X(INT, n_output_tok, "64", "Tokens of a trial, at most.", .min = 4, .max = 65536)    \
    X(INT, rounds, "9", "Rounds of all alternatives, in turn.", .min = 3, .max = 99)     \
    X(INT, seed, "1", "Seed of the texts.")

#define RESULTS(X)                                                                       \
    X(tpot_ms, "ms", LOWER, "time for a token without a grammar")                        \
    X(cost_us, "us", LOWER, "what a known grammar adds to choosing a token")             \
    X(cost_new_us, "us", LOWER, "what a new grammar adds to it")                         \
    X(cost_frac, "", LOWER, "cost_us / tpot_ms")                                         \
    X(cost_new_frac, "", LOWER, "cost_new_us / tpot_ms")                                 \
    X(worst_us, "us", LOWER, "longest choice of a token with a known grammar")           \
    X(worst_new_us, "us", LOWER, "longest choice of a token with a new grammar")         \
    X(tpot_ratio, "x", LOWER, "time for a token with a known grammar / without")         \
    X(ratio_again, "x", 0, "A/A: time for a token without a grammar / the same again")   \
    X(detectable_frac, "", 0, "smallest difference that this A/A could have seen")       \
    X(compile_ms, "ms", LOWER, "from the schema to a matcher, the vocabulary known")     \
    X(vocab_ms, "ms", LOWER, "making the vocabulary's trie, once for a model")           \
    X(allowed_frac, "", 0, "share of the vocabulary that the grammar allows, mean")      \
    X(schema_kb, "KB", 0, "length of the schema")                                        \
    X(n_vocab, "tok", 0, "size of the vocabulary")

FRAME_TYPES;

enum schema_size { FLAT, NESTED, LARGE, TEXTS };
static const struct {
    int n_objects, n_fields; /* 0 objects: the fields are the text's own */
    bool has_limits;
} sizes[] = {[FLAT] = {0, 5, false},
             [NESTED] = {4, 5, false},
             [LARGE] = {10, 10, true},
             [TEXTS] = {0, 4, true}};

/* The alternatives, in turn. */
enum { PLAIN, KNOWN, NEW, AGAIN, N_WAYS };

struct grammar_cost {
    FRAME_CELL;
    struct model_bench engine;
    struct model_phase *phase;
    struct tok *tok;
    struct grammar_vocab *vocab; /* of the known grammar */
    struct rng rng;
    char *schema;
    int32_t *ids; /* [n_ids] the text of this round */
    size_t n_ids, at;
    int text_round;  /* the round it is of; -1: there is none yet */
    float *logits;   /* [vocab] */
    double *between; /* [rounds] for intervals */
    double choose_s[N_WAYS], worst_s[N_WAYS], compile_s, vocab_s, allowed;
};

/* ---- schemas and texts ---- */

static json_t *words(struct rng *rng, int64_t n_chars)
{
    char text[4097];
    int64_t n = n_chars / 4 + (int64_t)rng_below(rng, (uint64_t)n_chars / 2);

    for (int64_t i = 0; i < n; i++)
        text[i] = rng_below(rng, 6) == 0 ? ' ' : (char)('a' + rng_below(rng, 26));
    return json_stringn(text, (size_t)n);
}

/* One field: its schema, and a value of it. */
static void add_field(struct grammar_cost *c, json_t *properties, json_t *values, int i)
{
    static const char *const colours[] = {"amber", "blue",   "crimson", "green",
                                          "olive", "orange", "purple",  "white"};
    const bool limit = sizes[c->o->schema].has_limits;
    const int kind = c->o->schema == TEXTS ? 0 : i % 5;
    json_t *schema, *value, *list = json_array();
    char name[32];

    snprintf(name, sizeof(name), "field_%d", i);
    for (int k = 0; k < (kind == 3 ? 8 : 3); k++)
        json_array_append_new(
            list, kind == 3 ? json_string(colours[k])
                            : json_integer((json_int_t)rng_below(&c->rng, 1000)));
    if (kind == 0) {
        schema = json_pack("{s:s}", "type", "string");
        if (limit)
            json_object_set_new(schema, "maxLength", json_integer(c->o->max_chars));
        value = words(&c->rng, limit ? c->o->max_chars : 40);
    } else if (kind == 1) {
        schema =
            json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", 0, "maximum", 120);
        value = json_integer((json_int_t)rng_below(&c->rng, 121));
    } else if (kind == 2) {
        schema = json_pack("{s:s}", "type", "boolean");
        value = json_boolean(rng_below(&c->rng, 2));
    } else if (kind == 3) {
        schema = json_pack("{s:O}", "enum", list);
        value = json_string(colours[rng_below(&c->rng, 8)]);
    } else {
        schema = json_pack("{s:s, s:{s:s}, s:i}", "type", "array", "items", "type",
                           "integer", "maxItems", limit ? 8 : 4096);
        value = json_incref(list);
    }
    json_object_set_new(properties, name, schema);
    json_object_set_new(values, name, value);
    json_decref(list);
}

static void add_object(struct grammar_cost *c, json_t **schema, json_t **value)
{
    json_t *properties = json_object(), *required = json_array();
    const char *key;
    json_t *v;

    *value = json_object();
    for (int i = 0; i < sizes[c->o->schema].n_fields; i++)
        add_field(c, properties, *value, i);
    json_object_foreach(properties, key, v)
    {
        json_array_append_new(required, json_string(key));
    }
    *schema = json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties,
                        "required", required);
}

/* *schema is the same each time, *value another one. */
static void make_text(struct grammar_cost *c, json_t **schema, json_t **value)
{
    const int n = sizes[c->o->schema].n_objects;
    json_t *properties = json_object(), *required = json_array(), *one, *of_one;
    char name[32];

    if (n == 0)
        add_object(c, schema, value);
    else
        *value = json_object();
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "part_%d", i);
        add_object(c, &of_one, &one);
        json_object_set_new(properties, name, of_one);
        json_object_set_new(*value, name, one);
        json_array_append_new(required, json_string(name));
    }
    if (n > 0)
        *schema = json_pack("{s:s, s:O, s:O}", "type", "object", "properties", properties,
                            "required", required);
    json_decref(properties);
    json_decref(required);
}

/* The text of this round, unless it is there, and the place where its trials begin. A first token
 * that is a space alone, as some tokenizers begin each text, is not of it. */
static int find_text(struct grammar_cost *c)
{
    json_t *schema = NULL, *value = NULL;
    char *text = NULL;
    int rc = ERR_NOMEM;

    if (c->text_round == c->f->round)
        return OK;
    make_text(c, &schema, &value);
    mem_free(c->schema);
    mem_free(c->ids);
    c->ids = NULL;
    c->schema = schema ? json_text(schema, JSON_COMPACT) : NULL;
    text = value ? json_text(value, JSON_COMPACT) : NULL;
    if (c->schema && text)
        rc = tok_encode(c->tok, text, strlen(text), 0, &c->ids, &c->n_ids);
    if (rc == OK) {
        const size_t first = tok_skips_space(c->tok, c->ids[0]),
                     most = (size_t)c->o->n_output_tok;

        c->n_ids -= first;
        memmove(c->ids, c->ids + first, c->n_ids * sizeof(*c->ids));
        c->at = c->n_ids > most ? rng_below(&c->rng, c->n_ids - most) : 0;
        c->text_round = c->f->round;
    }
    mem_free(text);
    json_decref(schema);
    json_decref(value);
    return rc;
}

/* ---- a trial ---- */

static double seconds_since(uint64_t t0)
{
    return (double)(clock_ns() - t0) * 1e-9;
}

static int check_allowed(const struct grammar_cost *c, struct grammar_matcher *m,
                         size_t i, double *n_allowed)
{
    const int vocab = model_config_of(c->engine.model)->vocab;
    const uint64_t *bits = grammar_allowed(m);
    const int32_t id = c->ids[i];

    if (!bits || !(bits[id / 64] >> id % 64 & 1))
        return err_set(
            ERR_FORMAT, "token %zu of the text: the grammar does not allow it: %s", i,
            bits ? "the tokenizer joins it with what is before" : grammar_why(m));
    for (int k = 0; k < (vocab + 63) / 64; k++)
        *n_allowed += __builtin_popcountll(bits[k]);
    return OK;
}

/* The tokens of the trial after the prompt, whose keys and values are in place; m NULL: without a
 * grammar. */
static int grammar_cost_steps(struct grammar_cost *c, int way, struct grammar_matcher *m,
                              struct sampler *s, double *seconds)
{
    const size_t n = c->n_ids - c->at < (size_t)c->o->n_output_tok
                         ? c->n_ids - c->at
                         : (size_t)c->o->n_output_tok;
    double model_s = 0, choose_s = 0, worst_s = 0, n_allowed = 0;
    int32_t id = 0;

    for (size_t i = 0; m && i < c->at; i++)
        grammar_take(m, c->ids[i]);
    for (size_t i = 0; i < n; i++) {
        struct model_chunk chunk = {.kv = &c->engine.steps.kv[0],
                                    .ids = &id,
                                    .n_tok = 1,
                                    .pos0 = c->o->n_prompt_tok + (int64_t)i,
                                    .want_logits = true};
        double one;
        uint64_t t0 = clock_ns();

        TRY(model_forward(c->phase, &chunk, 1, c->logits));
        model_s += seconds_since(t0);
        t0 = clock_ns();
        (void)sampler_sample(s, c->logits);
        one = seconds_since(t0);
        id = c->ids[c->at + i];
        if (m) {
            TRY(check_allowed(c, m, c->at + i, &n_allowed));
            t0 = clock_ns();
            grammar_take(m, id);
            one += seconds_since(t0);
        }
        choose_s += one;
        worst_s = fmax(worst_s, one);
    }
    *seconds = (model_s + choose_s) / (double)n;
    frame_put(c->f, &c->choose_s[way], choose_s / (double)n);
    frame_put(c->f, &c->worst_s[way], worst_s);
    if (way == KNOWN)
        frame_put(c->f, &c->allowed,
                  n_allowed / (double)n / model_config_of(c->engine.model)->vocab);
    return OK;
}

static int open_vocab(struct grammar_cost *c, struct grammar_vocab **out)
{
    int32_t stops[TOK_STOP_MAX];
    const int n = tok_stops(c->tok, stops);

    return grammar_vocab_open(out, c->tok, model_config_of(c->engine.model)->vocab, stops,
                              n);
}

static int open_matcher(struct grammar_cost *c, struct grammar_matcher **out,
                        struct grammar_vocab *v)
{
    return grammar_matcher_open(out, v, GRAMMAR_SCHEMA, c->schema, strlen(c->schema),
                                false);
}

/* A vocabulary that knows no grammar yet, its trie made, and the schema compiled for it. */
static int open_new(struct grammar_cost *c, struct grammar_vocab **v,
                    struct grammar_matcher **m)
{
    static const char any[] = "root ::= \"a\"";
    uint64_t t0;

    TRY(open_vocab(c, v));
    t0 = clock_ns();
    TRY(grammar_matcher_open(m, *v, GRAMMAR_GBNF, any, strlen(any), false));
    frame_put(c->f, &c->vocab_s, seconds_since(t0));
    grammar_matcher_close(m);
    t0 = clock_ns();
    TRY(open_matcher(c, m, *v));
    frame_put(c->f, &c->compile_s, seconds_since(t0));
    return OK;
}

static int grammar_cost_trial(void *arg, int way, struct measure_trial *t)
{
    struct grammar_cost *c = arg;
    struct sampler_opts o = {.top_p = 1};
    struct grammar_vocab *v = NULL;
    struct grammar_matcher *m = NULL;
    struct sampler *s = NULL;
    int rc;

    TRY(find_text(c));
    rc = way == NEW     ? open_new(c, &v, &m)
         : way == KNOWN ? open_matcher(c, &m, c->vocab)
                        : OK;
    if (m)
        o.constraint = (struct sampler_constraint){.allowed = grammar_allowed, .ctx = m};
    if (rc == OK)
        rc = sampler_open(&s, &o, model_config_of(c->engine.model)->vocab,
                          model_kern(c->engine.model));
    if (rc == OK)
        rc = grammar_cost_steps(c, way, m, s, &t->seconds);
    sampler_close(&s);
    grammar_matcher_close(&m);
    grammar_vocab_close(&v);
    return rc;
}

/* ---- what it comes to ---- */

/* The median over the rounds of what an alternative adds to choosing, and its share. */
static void report_cost(struct grammar_cost *c, int way, const char *name, double *us,
                        double *frac)
{
    const double *with = frame_each(c->f, &c->choose_s[way]),
                 *without = frame_each(c->f, &c->choose_s[PLAIN]);
    const char *why = "no round was timed";
    char series[32];
    struct study_estimate e;

    for (int i = 0; i < c->f->n_rounds; i++)
        c->between[i] = (with[i] - without[i]) * 1e6;
    snprintf(series, sizeof(series), "%s_us", name);
    study_series(c->out, series, "us", c->between, (size_t)c->f->n_rounds);
    e = study_estimate_median(c->between, c->f->n_rounds);
    frame_set(c->f, us, e.value, why);
    frame_interval(c->f, us, e.lo, e.hi);
    for (int i = 0; i < c->f->n_rounds; i++)
        c->between[i] *= 1e-6 / frame_times(c->f, PLAIN)[i];
    e = study_estimate_median(c->between, c->f->n_rounds);
    frame_set(c->f, frac, e.value, why);
    frame_interval(c->f, frac, e.lo, e.hi);
}

static void grammar_cost_report(struct grammar_cost *c)
{
    struct results *r = c->r;

    r->tpot_ms = frame_seconds(c->f, PLAIN) * 1e3;
    report_cost(c, KNOWN, "cost", &r->cost_us, &r->cost_frac);
    report_cost(c, NEW, "cost_new", &r->cost_new_us, &r->cost_new_frac);
    r->worst_us = c->worst_s[KNOWN] * 1e6;
    r->worst_new_us = c->worst_s[NEW] * 1e6;
    frame_ratio(c->f, &r->tpot_ratio, KNOWN, PLAIN, 0);
    frame_again(c->f, "", AGAIN, PLAIN);
    r->compile_ms = c->compile_s * 1e3;
    r->vocab_ms = c->vocab_s * 1e3;
    r->allowed_frac = c->allowed;
    r->schema_kb = (double)strlen(c->schema) * 1e-3;
    r->n_vocab = model_config_of(c->engine.model)->vocab;
    study_engine_report(c->out, &c->engine);
}

static void free_text(struct grammar_cost *c)
{
    mem_free(c->schema);
    mem_free(c->ids);
}

static int grammar_cost_run(struct grammar_cost *c)
{
    const struct opts *o = c->o;
    const struct model_bench_opts eo = {.precision = (enum kern_precision)o->precision,
                                        .n_seqs = 1,
                                        .one_rank = true,
                                        .max_tok = o->n_prompt_tok + o->n_output_tok,
                                        .step_tok = 1,
                                        .seed = (uint64_t)o->seed};

    c->text_round = -1;
    FRAME_CLOSE(c->f, free_text, c);
    FRAME_CLOSE(c->f, model_bench_close, &c->engine);
    FRAME_CLOSE(c->f, model_phase_close, &c->phase);
    FRAME_CLOSE(c->f, tok_close, &c->tok);
    FRAME_CLOSE(c->f, grammar_vocab_close, &c->vocab);
    TRY(study_engine_open(&c->engine, o->model, &eo));
    TRY(study_engine_phase(&c->engine, &c->phase, 1, c->engine.budget.n));
    TRY(tok_open(&c->tok, o->model, NULL));
    TRY(open_vocab(c, &c->vocab));
    c->logits = frame_new(c->f, (size_t)model_config_of(c->engine.model)->vocab,
                          sizeof(*c->logits));
    c->between = frame_new(c->f, (size_t)o->rounds, sizeof(*c->between));
    rng_init(&c->rng, (uint64_t)o->seed, "texts");
    TRY(frame_rounds(c->f, "with and without a grammar", N_WAYS, o->rounds,
                     grammar_cost_trial, c));
    grammar_cost_report(c);
    return OK;
}

STUDY(grammar_cost, "what a grammar adds to the time for a token");
