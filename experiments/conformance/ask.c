/* What relations call: memory of a round, prompts, requests with deadlines, comparisons. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "experiments/conformance/impl.h"

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

void conform_round_end(struct conform_run *r)
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

    if (m) {
        m->next = r->memory;
        r->memory = m;
    }
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

    return r->o->long_tok < half ? r->o->long_tok : half;
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
    if (!m)
        return ERR_NOMEM;
    m->tokens = mem_new(MEM_HARNESS, (size_t)n, sizeof(*m->tokens));
    *out = m->tokens;
    return *out ? OK : ERR_NOMEM;
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
    conform_add_finding(r, &f);
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
    conform_check_answer(r, q, a, conform_client_probe(c));
}

static int ask(struct conform_run *r, struct conform_client *c, struct conform_answer **a,
               const struct conform_request *q, int n)
{
    struct memory *m = add_memory(r);
    const uint64_t begun_ns = clock_ns();
    bool whole, hung = false;
    uint64_t end_ns = wait_end(r, q, n, &whole);

    *a = NULL;
    if (!m)
        return ERR_NOMEM;
    m->answers = mem_new(MEM_HARNESS, (size_t)n, sizeof(*m->answers));
    if (!m->answers)
        return ERR_NOMEM;
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
    conform_add_finding(r, &f);
    return r->o->exact || r->o->roles ? OK : measure_noise(r, c->q);
}
