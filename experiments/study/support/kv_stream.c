#include "experiments/study/support/kv_stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "datasets/examples.h"
#include "tokenizer/tokenizer.h"

#define TEXT_BYTES 48

/* One of the sources. */
struct source {
    char name[256];
    int index;
    int64_t n; /* requests wanted of it */
};

static void append(struct kv_example **list, int64_t *n, const struct kv_example *e,
                   int64_t n_more)
{
    *list = mem_resize(MEM_DATASET, *list, (size_t)(*n + n_more), sizeof(**list));
    memcpy(*list + *n, e, (size_t)n_more * sizeof(*e));
    *n += n_more;
}

/* A source's requests in time: those to learn from came first. */
static void add(struct study_kv_stream *s, const struct source *from,
                const struct kv_example *e, int64_t n_learn, int64_t n)
{
    if (from->index == 0)
        append(&s->learn, &s->n_learn, e, n_learn);
    append(&s->requests, &s->n, e + n_learn, n < from->n ? n : from->n);
    if (from->index == 0)
        s->n_first = s->n;
}

static int read_set(struct study_kv_stream *s, const struct study_kv_stream_opts *o,
                    const struct source *from, bool is_file)
{
    struct dataset_opts d;
    int rc = opt_init(dataset_opt_table, &d);

    if (rc != OK)
        return rc;
    d.turns = DATASET_TURNS_EACH;
    d.seed = o->seed;
    d.n = is_file ? 0 : from->n + o->n_learn;
    rc = opt_set(dataset_opt_table, &d, is_file ? "path" : "fit", from->name,
                 "study.stream");
    if (rc == OK)
        rc = dataset_open(&s->sets[from->index], &d);
    opt_free(dataset_opt_table, &d);
    return rc == ERR_NOTFOUND && is_file ? dataset_absent(from->name) : rc;
}

/* --- files */

static int add_file(struct study_kv_stream *s, const struct study_kv_stream_opts *o,
                    const struct source *from)
{
    const struct dataset *d = s->sets[from->index];
    struct dataset_examples x = {0};
    int rc = dataset_examples(&x, d, s->tok, 1 + (o->seed - 1) % o->folds, o->folds);

    s->text_bits = NAN;
    if (rc == OK)
        add(s, from, x.e, x.n_learn, x.n_held_out);
    dataset_examples_fini(&x);
    return rc;
}

/* --- lengths, with texts made for them */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The last length of each class. */
static void class_bounds(int64_t bounds[STUDY_KV_CLASSES], const struct dataset *d)
{
    int64_t *sorted = mem_new(MEM_DATASET, (size_t)d->n_items, sizeof(*sorted));

    for (int64_t i = 0; i < d->n_items; i++)
        sorted[i] = d->items[i].n_output;
    qsort(sorted, (size_t)d->n_items, sizeof(*sorted), by_value);
    for (int64_t k = 1; k <= STUDY_KV_CLASSES; k++)
        bounds[k - 1] = sorted[(d->n_items * k - 1) / STUDY_KV_CLASSES];
    mem_free(sorted);
}

/* The mutual information of a class and its word, where each class is equally likely. */
static double bits_told(double tells)
{
    double right = tells + (1 - tells) / STUDY_KV_CLASSES;
    double wrong = (1 - tells) / STUDY_KV_CLASSES;
    double bits = log2(STUDY_KV_CLASSES) + right * log2(right);

    return wrong > 0 ? bits + (STUDY_KV_CLASSES - 1) * wrong * log2(wrong) : bits;
}

static void make_texts(struct study_kv_stream *s, const struct study_kv_stream_opts *o,
                       const struct source *from, struct kv_example *e)
{
    const struct dataset *d = s->sets[from->index];
    char *texts = mem_new(MEM_DATASET, (size_t)d->n_items, TEXT_BYTES);
    int64_t bounds[STUDY_KV_CLASSES];
    struct rng r;

    s->texts[from->index] = texts;
    class_bounds(bounds, d);
    rng_init(&r, (uint64_t)o->seed, "text");
    for (int64_t i = 0; i < d->n_items; i++) {
        char *text = texts + i * TEXT_BYTES;
        int told = 0;

        while (told < STUDY_KV_CLASSES - 1 && d->items[i].n_output > bounds[told])
            told++;
        if (rng_f64(&r) >= o->tells)
            told = (int)rng_below(&r, STUDY_KV_CLASSES);
        snprintf(text, TEXT_BYTES, "subject%d of class%d", (int)rng_below(&r, 100), told);
        e[i] = (struct kv_example){.text = text,
                                   .text_bytes = strlen(text),
                                   .prompt_tok = d->items[i].n_prompt,
                                   .output_tok = d->items[i].n_output};
    }
}

static void add_lengths(struct study_kv_stream *s, const struct study_kv_stream_opts *o,
                        const struct source *from, int64_t n_learn)
{
    int64_t n = s->sets[from->index]->n_items;
    struct kv_example *e = mem_new(MEM_DATASET, (size_t)n, sizeof(*e));

    make_texts(s, o, from, e);
    n_learn = n_learn < n ? n_learn : 0;
    add(s, from, e, n_learn, n - n_learn);
    mem_free(e);
}

/* --- all of them */

static int add_source(struct study_kv_stream *s, const struct study_kv_stream_opts *o,
                      const struct source *from)
{
    bool is_file = strpbrk(from->name, "./") != NULL;

    TRY(read_set(s, o, from, is_file));
    if (is_file && s->sets[from->index]->items[0].text)
        return add_file(s, o, from);
    add_lengths(s, o, from, is_file ? 0 : o->n_learn);
    return OK;
}

/* The longest sequence, and the requests cut to it. */
#define FIT_FRAC 0.95 /* that are not cut */

static void cut_requests(struct study_kv_stream *s, const struct study_kv_stream_opts *o)
{
    double *total = mem_new(MEM_OTHER, (size_t)s->n, sizeof(*total));
    int64_t most = o->max_tok;

    for (int64_t i = 0; i < s->n; i++)
        total[i] = (double)(s->requests[i].prompt_tok + s->requests[i].output_tok);
    if (most == 0)
        most = (int64_t)stats_percentile(total, (size_t)s->n, FIT_FRAC);
    mem_free(total);
    most = (most + o->align_tok - 1) / o->align_tok * o->align_tok;
    most = most < 16 ? 16 : most;
    if (o->limit_tok > 0 && most > o->limit_tok)
        most = o->limit_tok;
    s->max_tok = o->max_tok > 0 ? o->max_tok : most;
    for (int64_t i = 0; i < s->n; i++) {
        struct kv_example *q = &s->requests[i];

        q->output_tok = q->output_tok < s->max_tok ? q->output_tok : s->max_tok - 1;
        q->output_tok = q->output_tok > 1 ? q->output_tok : 1;
        most = s->max_tok - q->output_tok;
        q->prompt_tok = q->prompt_tok < most ? q->prompt_tok : most;
        q->prompt_tok = q->prompt_tok > 1 ? q->prompt_tok : 1;
    }
}

int study_kv_stream_open(struct study_kv_stream *s, const struct study_kv_stream_opts *o)
{
    const char *at = o->sources;
    int n = 1;

    *s = (struct study_kv_stream){.text_bits = bits_told(o->tells)};
    for (const char *p = at; *p; p++)
        n += *p == '+';
    if (n > STUDY_KV_SOURCES)
        return err_set(ERR_ARG, "study.stream: expected at most %d sources, found %d",
                       STUDY_KV_SOURCES, n);
    if (o->tokenizer)
        TRY(tok_open(&s->tok, o->tokenizer, NULL));
    for (int i = 0; i < n; i++) {
        struct source from = {.index = i,
                              .n = o->n_requests * (i + 1) / n - o->n_requests * i / n};
        size_t len = strcspn(at, "+");

        snprintf(from.name, sizeof(from.name), "%.*s", (int)len, at);
        at += len + (at[len] == '+');
        TRY(add_source(s, o, &from));
    }
    if (s->n == 0)
        return err_set(ERR_ARG,
                       "study.stream: %s: expected a request to replay, found none",
                       o->sources);
    cut_requests(s, o);
    return OK;
}

void study_kv_stream_close(struct study_kv_stream *s)
{
    for (int i = 0; i < STUDY_KV_SOURCES; i++) {
        dataset_close(&s->sets[i]);
        mem_free(s->texts[i]);
    }
    mem_free(s->requests);
    mem_free(s->learn);
    tok_close(&s->tok);
    *s = (struct study_kv_stream){0};
}
