/* A run: prompts and requests with deadlines, what answers say of themselves, rounds. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "experiments/conformance/run.h"

#define FLOOR_ROUNDS 12
#define HANGS_MAX    3 /* then the server is left alone */
#define PROBE_FRAC   0.25
#define DIFFER       "a request was sent again"

/* ==== findings */

static bool alike(const struct conform_finding *a, const struct conform_finding *b)
{
    return a->kind == b->kind && a->kind != CONFORM_WRONG && a->streamed == b->streamed &&
           strncmp(a->what, b->what, strcspn(a->what, ":")) == 0 &&
           strcspn(a->what, ":") == strcspn(b->what, ":");
}

static void add_finding(struct conform_run *r, const struct conform_finding *f)
{
    struct conform_finding *to;

    for (int i = 0; i < r->n_findings; i++)
        if (alike(&r->findings[i], f)) {
            r->findings[i].n++;
            return;
        }
    if (r->n_findings == CONFORM_FINDINGS_MAX) {
        r->n_more++;
        return;
    }
    to = &r->findings[r->n_findings++];
    *to = *f;
    to->relation = r->now ? r->now->name : "repeats";
    to->round = r->round;
    to->n = 1;
}

/* ==== what an answer says of itself is checked by rules; what breaks one is noted */

struct subject {
    const struct conform_request *q;
    const struct conform_answer *a;
    const struct sut_openai_probe *probe;
};

static bool is_malformed(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %s", s->a->malformed);
    return s->a->malformed[0];
}

static bool lacks_finish(const struct subject *s, char *why, size_t n)
{
    (void)why, (void)n;
    return !s->a->has_finish && !s->a->malformed[0];
}

static bool lacks_done(const struct subject *s, char *why, size_t n)
{
    if (s->a->n_events == 0)
        snprintf(why, n, ", and without any event");
    return s->q->stream && !s->a->done;
}

static bool goes_on(const struct subject *s, char *why, size_t n)
{
    (void)why, (void)n;
    return s->a->after_done;
}

static bool asks_usage(const struct subject *s)
{
    return !s->q->stream || s->probe->extras & 4u; /* stream_options */
}

static bool lacks_usage(const struct subject *s, char *why, size_t n)
{
    (void)why, (void)n;
    return asks_usage(s) && !s->a->malformed[0] && s->a->usage_completion < 0;
}

static bool miscounts_new(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": it counts %lld tokens and holds %lld",
             (long long)s->a->usage_completion, (long long)s->a->n_ids);
    return s->a->has_ids && s->a->usage_completion >= 0 &&
           s->a->usage_completion != s->a->n_ids;
}

static bool miscounts_prompt(const struct subject *s, char *why, size_t n)
{
    const int64_t want = s->q->n_prompt + s->probe->n_prompt_extra;

    snprintf(why, n, ": it counts %lld tokens of a prompt of %lld",
             (long long)s->a->usage_prompt, (long long)want);
    return !s->probe->as_text && s->a->usage_prompt >= 0 && s->a->usage_prompt != want;
}

static bool miscounts_total(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %lld, of %lld and %lld", (long long)s->a->usage_total,
             (long long)s->a->usage_prompt, (long long)s->a->usage_completion);
    return s->a->usage_total >= 0 && s->a->usage_prompt >= 0 &&
           s->a->usage_completion >= 0 &&
           s->a->usage_total != s->a->usage_prompt + s->a->usage_completion;
}

/* By the ids that came, or else as the server counts; -1: unknown. */
static int64_t n_tokens(const struct subject *s)
{
    return s->a->has_ids ? s->a->n_ids : s->a->usage_completion;
}

static bool misses_length(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %lld tokens of %lld", (long long)n_tokens(s),
             (long long)s->q->n_output);
    return strcmp(s->a->finish, "length") == 0 && n_tokens(s) >= 0 &&
           n_tokens(s) != s->q->n_output;
}

static bool exceeds_length(const struct subject *s, char *why, size_t n)
{
    snprintf(why, n, ": %lld tokens of %lld", (long long)n_tokens(s),
             (long long)s->q->n_output);
    return strcmp(s->a->finish, "length") != 0 && n_tokens(s) > s->q->n_output;
}

static const struct rule {
    const char *what;
    bool (*broken)(const struct subject *s, char *why, size_t n);
} rules[] = {
    {"an answer of status 200 is not one of the protocol", is_malformed},
    {"an answer ends without finish_reason", lacks_finish},
    {"a stream ends without [DONE]", lacks_done},
    {"a stream goes on after [DONE]", goes_on},
    {"an answer has no usage", lacks_usage},
    {"usage.completion_tokens disagrees with the answer", miscounts_new},
    {"usage.prompt_tokens disagrees with the prompt", miscounts_prompt},
    {"usage.total_tokens is not the sum", miscounts_total},
    {"finish_reason is length at another length", misses_length},
    {"an answer is longer than max_tokens", exceeds_length},
};

static void check_answer(struct conform_run *r, const struct conform_request *q,
                         const struct conform_answer *a,
                         const struct sut_openai_probe *probe)
{
    const struct subject s = {q, a, probe};

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct conform_finding f = {.kind = CONFORM_SILENT, .streamed = q->stream};
        char why[160] = "";

        if (!rules[i].broken(&s, why, sizeof(why)))
            continue;
        snprintf(f.what, sizeof(f.what), "%s%s", rules[i].what, why);
        add_finding(r, &f);
    }
}

/* ==== what relations call: memory of a round, prompts, requests with deadlines, comparisons */

#define LONG_TOK   384  /* of long prompts, which servers compute in pieces */
#define FIRST_ID   3    /* below are control tokens of common vocabularies */
#define WORDS      1024 /* distinct numbers of words, where the server takes no ids */
#define SLOW       4    /* as slow as this times the slowest answer so far is no hang */
#define FIRST_WAIT 0.4  /* of the budget, before the server's speed is known */
#define WAIT       0.1  /* of the budget, at least */
#define N_AGAIN    4    /* an answer that differs is looked into by this many requests */
#define NO_NOISE   32   /* equal repeats, after which there is none */

struct memory {
    struct memory *next;
    struct conform_answer *answers; /* [n_answers], or NULL: tokens */
    int n_answers;
    int32_t *tokens;
};

static void end_round(struct conform_run *r)
{
    while (r->memory) {
        struct memory *m = r->memory;

        r->memory = m->next;
        for (int i = 0; i < m->n_answers; i++)
            conform_answer_fini(&m->answers[i]);
        mem_free(m->answers);
        mem_free(m->tokens);
        mem_free(m);
    }
}

static struct memory *add_memory(struct conform_run *r)
{
    struct memory *m = mem_new(MEM_HARNESS, 1, sizeof(*m));

    m->next = r->memory;
    r->memory = m;
    return m;
}

/* --- what relations may know */

const struct conform_opts *conform_opts_of(const struct conform_run *r)
{
    return r->o;
}

const struct sut_openai_probe *conform_probe_of(const struct conform_run *r)
{
    return conform_client_probe(r->server);
}

bool conform_has_reference(const struct conform_run *r)
{
    return r->reference;
}

bool conform_has_ids(const struct conform_run *r)
{
    return r->has_ids;
}

int64_t conform_long_tok(const struct conform_run *r)
{
    const int64_t half = conform_probe_of(r)->max_tok / 2;

    return half < LONG_TOK ? half : LONG_TOK;
}

void conform_note(struct conform_run *r, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(r->out->note, sizeof(r->out->note), fmt, args);
    va_end(args);
}

double conform_preemptions(struct conform_run *r)
{
    return conform_client_preemptions(r->server, r->end_ns);
}

/* --- prompts and requests */

int conform_tokens(struct conform_run *r, int32_t **out, int64_t n)
{
    struct memory *m = add_memory(r);

    *out = NULL;
    m->tokens = mem_new(MEM_HARNESS, (size_t)n, sizeof(*m->tokens));
    *out = m->tokens;
    return OK;
}

int conform_prompt(struct conform_run *r, int32_t **out, int64_t n_tok,
                   const int32_t *like, int64_t n_shared)
{
    const struct sut_openai_probe *p = conform_probe_of(r);
    const int64_t n_ids = p->as_text ? WORDS : p->vocab - FIRST_ID;

    TRY(conform_tokens(r, out, n_tok));
    for (int64_t i = 0; i < n_tok; i++)
        (*out)[i] = i < n_shared
                        ? like[i]
                        : FIRST_ID + (int32_t)rng_below(&r->rng, (uint64_t)n_ids);
    return OK;
}

struct conform_request conform_request(const struct conform_run *r, const int32_t *prompt,
                                       int64_t n_prompt)
{
    const bool seeds = conform_probe_of(r)->extras & 0x80u;

    return (struct conform_request){
        .prompt = prompt,
        .n_prompt = n_prompt,
        .n_output = r->o->output_tok,
        .seed = seeds && r->round % 2 ? r->o->seed * 1000 + r->round : 0};
}

/* --- asking */

static double work_tok(const struct conform_request *q, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)(q[i].n_prompt + q[i].n_output);
    return sum;
}

/* The end of a wait for these requests; *whole: it is as long as it should be, so that what has
 * not ended by then hangs. */
static uint64_t wait_end(const struct conform_run *r, const struct conform_request *q,
                         int n, bool *whole)
{
    const double least = (r->s_per_tok > 0 ? WAIT : FIRST_WAIT) * r->o->budget;
    const double slow = SLOW * r->s_per_tok * work_tok(q, n);
    const uint64_t end_ns = clock_ns() + (uint64_t)((slow > least ? slow : least) * 1e9);

    *whole = end_ns <= r->end_ns;
    return *whole ? end_ns : r->end_ns;
}

static void note_hang(struct conform_run *r, const struct conform_request *q,
                      const struct conform_answer *a, double s)
{
    struct conform_finding f = {.kind = CONFORM_HANG, .streamed = q->stream};

    snprintf(f.what, sizeof(f.what), "no end of an answer after %.3g s%s", s,
             a->text.n || a->n_events ? ", when it had begun" : "");
    log_info("%s: %s", r->now ? r->now->name : "repeats", f.what);
    add_finding(r, &f);
}

static void take_answer(struct conform_run *r, const struct conform_request *q,
                        const struct conform_answer *a, int n,
                        const struct conform_client *c)
{
    const double s_per_tok = a->seconds / work_tok(q, n);

    if (a->left)
        return;
    if (!a->ended || a->hung || a->error[0]) {
        if (a->error[0] && r->out->n_failed++ == 0)
            utf8_show(r->out->error, sizeof(r->out->error), a->error);
        return;
    }
    if (s_per_tok > r->s_per_tok)
        r->s_per_tok = s_per_tok;
    r->has_ids = r->has_ids || a->has_ids;
    check_answer(r, q, a, conform_client_probe(c));
}

static int ask(struct conform_run *r, struct conform_client *c, struct conform_answer **a,
               const struct conform_request *q, int n)
{
    struct memory *m = add_memory(r);
    const uint64_t begun_ns = clock_ns();
    bool whole, hung = false;
    uint64_t end_ns = wait_end(r, q, n, &whole);

    *a = NULL;
    m->answers = mem_new(MEM_HARNESS, (size_t)n, sizeof(*m->answers));
    *a = m->answers;
    m->n_answers = n;
    TRY(conform_client_ask(c, q, m->answers, n, end_ns));
    r->n_asked += n;
    for (int i = 0; i < n; i++) {
        take_answer(r, &q[i], &m->answers[i], n, c);
        if (m->answers[i].hung && whole)
            note_hang(r, &q[i], &m->answers[i], (double)(end_ns - begun_ns) / 1e9);
        hung = hung || m->answers[i].hung;
    }
    r->n_hangs += hung && whole;
    r->time_over = r->time_over || (hung && !whole);
    return OK;
}

int conform_ask(struct conform_run *r, struct conform_answer **a,
                const struct conform_request *q, int n)
{
    return ask(r, r->server, a, q, n);
}

int conform_ask_reference(struct conform_run *r, struct conform_answer **a,
                          const struct conform_request *q, int n)
{
    return ask(r, r->reference, a, q, n);
}

/* --- comparing */

/* An answer that differs may do so for no reason: the plain request, sent again and again, then
 * gets different answers. They count for the noise floor, but for the first, which may meet what
 * the server still does. */
static int measure_noise(struct conform_run *r, const struct conform_request *q)
{
    struct conform_tally *floor = &r->floor[conform_mode_of(q)];
    struct conform_answer *a[N_AGAIN];
    struct conform_finding unused = {0};

    if (floor->n >= NO_NOISE && floor->n_differ == 0)
        return OK;
    for (int i = 0; i < N_AGAIN; i++) {
        TRY(conform_ask(r, &a[i], q, 1));
        if (i < 2 || !conform_answer_whole(a[i - 1]) || !conform_answer_whole(a[i]))
            continue;
        floor->n++;
        floor->n_differ += conform_differ(
            &unused, &(struct conform_comparison){.q = q, .want = a[i - 1], .got = a[i]});
    }
    return OK;
}

int conform_compare(struct conform_run *r, const struct conform_comparison *c)
{
    const enum conform_mode mode = conform_mode_of(c->q);
    struct conform_finding f = {
        .kind = CONFORM_WRONG, .streamed = c->q->stream, .mode = mode};

    if (!conform_answer_whole(c->want) || !conform_answer_whole(c->got))
        return OK;
    r->out->cases[mode].n++;
    if (!conform_differ(&f, c))
        return OK;
    r->out->cases[mode].n_differ++;
    snprintf(f.what, sizeof(f.what), "%s", c->when);
    add_finding(r, &f);
    return r->o->exact || r->o->roles ? OK : measure_noise(r, c->q);
}

/* ==== rounds */

static int n_relations(void)
{
    int n = 0;

    while (conform_relations[n])
        n++;
    return n;
}

static bool is_over(const struct conform_run *r)
{
    return r->time_over || r->n_hangs >= HANGS_MAX || clock_ns() >= r->end_ns;
}

/* --- findings */

/* --- the noise floor */

/* The first answer may come from a prompt that no cache has; the floor is of equal states. */
static int repeat(struct conform_run *r)
{
    const int64_t n = r->o->prompt_tok;
    struct conform_finding f = {.kind = CONFORM_WRONG};
    struct conform_answer *a[3];
    struct conform_request q;
    int32_t *prompt;

    TRY(conform_prompt(r, &prompt, n, NULL, 0));
    q = conform_request(r, prompt, n);
    for (int i = 0; i < 3; i++)
        TRY(conform_ask(r, &a[i], &q, 1));
    if (!conform_answer_whole(a[1]) || !conform_answer_whole(a[2]))
        return OK;
    f.mode = conform_mode_of(&q);
    r->floor[f.mode].n++;
    if (!conform_differ(&f,
                        &(struct conform_comparison){.q = &q, .want = a[1], .got = a[2]}))
        return OK;
    r->floor[f.mode].n_differ++;
    snprintf(f.what, sizeof(f.what), DIFFER);
    add_finding(r, &f);
    return OK;
}

static int measure_floor(struct conform_run *r)
{
    int rc = OK;

    r->now = NULL;
    r->out = &r->floor_outcome;
    for (r->round = 0; rc == OK && r->round < FLOOR_ROUNDS && !is_over(r); r->round++) {
        rc = repeat(r);
        end_round(r);
    }
    return rc;
}

/* --- the relations, in turn, so that each has cases when the time is over */

static void find_unavailable(struct conform_run *r)
{
    for (int i = 0; conform_relations[i]; i++)
        if (conform_relations[i]->unavailable)
            r->outcomes[i].unavailable = conform_relations[i]->unavailable(r);
}

static int one_round(struct conform_run *r)
{
    int rc = OK;

    for (int i = 0; rc == OK && conform_relations[i] && !is_over(r); i++) {
        r->now = conform_relations[i];
        r->out = &r->outcomes[i];
        if (!r->out->unavailable)
            rc = r->now->round(r);
        end_round(r);
    }
    return rc;
}

static int all_rounds(struct conform_run *r)
{
    int rc = measure_floor(r);

    find_unavailable(r);
    for (r->round = 0; rc == OK && r->round < r->o->rounds && !is_over(r); r->round++)
        rc = one_round(r);
    return rc;
}

/* --- the servers */

struct servers {
    struct conform_serve *checked, *reference; /* started here, or NULL */
};

static int start_both(struct servers *s, char *url, char *reference_url,
                      const struct conform_opts *o)
{
    if (!o->model)
        return err_set(ERR_ARG, "--roles: expected --model FILE together with it");
    if (o->reference)
        return err_set(ERR_ARG, "--roles: its reference is one process; remove "
                                "--reference");
    TRY(conform_serve_start(&s->reference, reference_url, o->model, NULL, o->serve_words,
                            NULL));
    return conform_serve_start(&s->checked, url, o->model, o->roles, o->serve_words,
                               o->roles_words);
}

static int open_clients(struct conform_run *r, const char *url, const char *reference)
{
    const char *key = r->o->api_key_env ? getenv(r->o->api_key_env) : NULL;
    const char *model = r->o->roles ? NULL : r->o->model;
    const double limit_s = PROBE_FRAC * r->o->budget;

    TRY(conform_client_open(&r->server, url, model, key, r->o->ids, limit_s));
    if (!reference)
        return OK;
    TRY(conform_client_open(&r->reference, reference, NULL, key, r->o->ids, limit_s));
    if (conform_client_probe(r->reference)->as_text !=
        conform_client_probe(r->server)->as_text)
        return err_set(ERR_UNSUPPORTED,
                       "one of the servers takes prompts of token ids, "
                       "and the other does not: they cannot be compared");
    return OK;
}

static int check(struct conform_run *r, struct conform_result *result, const char *url,
                 const char *reference, FILE *out)
{
    r->outcomes = mem_new(MEM_HARNESS, (size_t)n_relations(), sizeof(*r->outcomes));
    r->findings = mem_new(MEM_HARNESS, CONFORM_FINDINGS_MAX, sizeof(*r->findings));
    r->begun_ns = clock_ns();
    r->end_ns = r->begun_ns + (uint64_t)(r->o->budget * 1e9);
    TRY(open_clients(r, url, reference));
    TRY(all_rounds(r));
    conform_judge(r, result);
    conform_print(r, result, out);
    return r->o->json ? conform_write_json(r, result, r->o->json) : OK;
}

int conform_run(struct conform_result *result, const char *url,
                const struct conform_opts *o, FILE *out)
{
    struct conform_run r = {.o = o};
    struct servers s = {0};
    char own[64], own_reference[64];
    const char *reference = o->reference;
    int rc = OK;

    *result = (struct conform_result){0};
    if (!url == !o->roles)
        return err_set(ERR_ARG, "expected a URL or --roles SPEC, one of the two");
    if (o->json)
        rc = file_check_target(o->json, NULL);
    rng_init(&r.rng, (uint64_t)o->seed, "conformance");
    if (rc == OK && o->roles) {
        rc = start_both(&s, own, own_reference, o);
        url = own;
        reference = own_reference;
    }
    if (rc == OK)
        rc = check(&r, result, url, reference, out);
    end_round(&r);
    conform_client_close(&r.server);
    conform_client_close(&r.reference);
    conform_serve_stop(&s.checked);
    conform_serve_stop(&s.reference);
    mem_free(r.outcomes);
    mem_free(r.findings);
    return rc;
}
