#include "datasets/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "base/rng.h"
#include "datasets/build.h"

#define MAX_REASONS 4

/* What dataset.state points to. */
struct keep {
    const struct dataset_opts *o; /* valid within dataset_open() */
    int64_t *order;               /* the offer each kept item came from */
    int64_t capacity;
    int64_t n_offered;
    struct rng sample;
    bool trace; /* items have arrival times */
    struct {
        const char *why;
        int64_t n;
    } skipped[MAX_REASONS];
};

static const char *reader_name(int i)
{
    return dataset_readers[i] ? dataset_readers[i]->name : NULL;
}

#define ROW(member, kind, low, high, preset, u, text)                                    \
    {                                                                                    \
        .name = #member, .type = kind, .offset = offsetof(struct dataset_opts, member),  \
        .unit = u, .min = low, .max = high, .def = preset, .help = text                  \
    }

#define OPT_OF struct dataset_opts
const struct opt_row dataset_opt_table[] = {
    OPT_ROW(STR, reader, "synth",
            "Format of the data set, or synth to draw one from a fit.",
            .names = reader_name),
    ROW(path, OPT_STR, 0, 0, NULL, NULL, "File to read. synth reads none."),
    ROW(fit, OPT_STR, 0, 0, "sharegpt", NULL,
        "With synth: name of a fit in datasets/fits, or path of one."),
    ROW(n, OPT_INT, 0, 1e9, "0", "requests",
        "Number of requests to take. 0: all (synth: 1000)."),
    ROW(seed, OPT_INT, 0, 9e15, "1", NULL,
        "Seed of the random choice of requests, their order and their arrival times."),
    ROW(shuffle, OPT_BOOL, 0, 0, "false", NULL, "Shuffle the requests by the seed."),
    ROW(min_prompt_tok, OPT_INT, 1, DATASET_MAX_TOK, "1", "tok",
        "Lengthen shorter prompts to this. Data sets with text are not changed."),
    ROW(max_prompt_tok, OPT_INT, 1, DATASET_MAX_TOK, "16777216", "tok",
        "Cut longer prompts to this length."),
    ROW(max_output_tok, OPT_INT, 1, DATASET_MAX_TOK, "16777216", "tok",
        "Cut longer outputs to this length."),
    {0},
};

void dataset_skip(struct dataset *d, const char *why)
{
    struct keep *k = d->state;
    int i;

    d->n_skipped++;
    for (i = 0; i < MAX_REASONS - 1; i++)
        if (!k->skipped[i].why || strcmp(k->skipped[i].why, why) == 0)
            break;
    k->skipped[i].why = i < MAX_REASONS - 1 ? why : "another reason";
    k->skipped[i].n++;
}

static void report_skipped(struct dataset *d, const struct keep *k)
{
    size_t at = 0;

    for (int i = 0; i < MAX_REASONS && k->skipped[i].why; i++) {
        int n = snprintf(d->skipped_why + at, sizeof(d->skipped_why) - at, "%s%s (%lld)",
                         i ? ", " : "", k->skipped[i].why, (long long)k->skipped[i].n);

        at += (size_t)n;
        if (at >= sizeof(d->skipped_why))
            return; /* cut, and still ends in NUL */
    }
}

static void item_free(struct dataset_item *it)
{
    mem_free((void *)it->text);
    mem_free((void *)it->reply);
}

static int item_copy(struct dataset_item *to, const struct dataset_item *from)
{
    *to = *from;
    to->text = to->reply = NULL;
    if (from->text) {
        to->text = mem_strndup(MEM_DATASET, from->text, from->text_bytes);
        if (!to->text)
            goto out;
    }
    if (from->reply) {
        to->reply = mem_strndup(MEM_DATASET, from->reply, from->reply_bytes);
        if (!to->reply)
            goto out;
    }
    return OK;
out:
    item_free(to);
    return ERR_NOMEM;
}

static int grow(struct dataset *d, struct keep *k)
{
    int64_t capacity = k->capacity ? 2 * k->capacity : 256;
    void *p;

    if (d->n_items < k->capacity)
        return OK;
    p = mem_resize(MEM_DATASET, d->items, (size_t)capacity, sizeof(*d->items));
    if (!p)
        return ERR_NOMEM;
    d->items = p;
    p = mem_resize(MEM_DATASET, k->order, (size_t)capacity, sizeof(*k->order));
    if (!p)
        return ERR_NOMEM;
    k->order = p;
    k->capacity = capacity;
    return OK;
}

int dataset_offer(struct dataset *d, const struct dataset_item *item, bool *full)
{
    struct keep *k = d->state;
    struct dataset_item copy;
    int64_t slot = d->n_items;
    int rc;

    *full = false;
    k->n_offered++;
    k->trace = !isnan(item->arrival_s);
    if (k->o->n > 0 && d->n_items == k->o->n) {
        slot = (int64_t)rng_below(&k->sample, (uint64_t)k->n_offered);
        if (slot >= d->n_items)
            return OK;
    }
    rc = grow(d, k);
    if (rc != OK)
        return rc;
    rc = item_copy(&copy, item);
    if (rc != OK)
        return rc;
    if (slot == d->n_items)
        d->n_items++;
    else
        item_free(&d->items[slot]);
    d->items[slot] = copy;
    k->order[slot] = k->n_offered;
    *full = k->trace && d->n_items == k->o->n;
    return OK;
}

struct place {
    int64_t offer;
    struct dataset_item item;
};

static int by_offer(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return (x->offer > y->offer) - (x->offer < y->offer);
}

/* Back into the file's order: the reservoir has mixed them. */
static int restore_order(struct dataset *d, const struct keep *k)
{
    struct place *p;

    if (k->n_offered == d->n_items)
        return OK;
    p = mem_new(MEM_DATASET, (size_t)d->n_items, sizeof(*p));
    if (!p)
        return ERR_NOMEM;
    for (int64_t i = 0; i < d->n_items; i++)
        p[i] = (struct place){k->order[i], d->items[i]};
    qsort(p, (size_t)d->n_items, sizeof(*p), by_offer);
    for (int64_t i = 0; i < d->n_items; i++)
        d->items[i] = p[i].item;
    mem_free(p);
    return OK;
}

static void shuffle(struct dataset *d, int64_t seed)
{
    struct rng r;

    rng_init(&r, (uint64_t)seed, "order");
    for (int64_t i = d->n_items - 1; i > 0; i--) {
        int64_t j = (int64_t)rng_below(&r, (uint64_t)i + 1);
        struct dataset_item a = d->items[i], b = d->items[j];
        double at_i = a.arrival_s, at_j = b.arrival_s;

        d->items[i] = b, d->items[i].arrival_s = at_i;
        d->items[j] = a, d->items[j].arrival_s = at_j;
    }
}

void dataset_cut(const struct dataset_opts *o, struct dataset_item *it)
{
    if (it->n_prompt > o->max_prompt_tok)
        it->n_prompt = o->max_prompt_tok;
    if (it->n_prompt >= 0 && it->n_prompt < o->min_prompt_tok && !it->text)
        it->n_prompt = o->min_prompt_tok;
    if (it->n_output > o->max_output_tok)
        it->n_output = o->max_output_tok;
}

static int find_reader(const struct dataset_reader **out, const char *name)
{
    *out = name_find(dataset_readers, name ? name : "", "reader");
    return *out ? OK : err_prefix(ERR_NOTFOUND, "dataset.reader");
}

static int check_opts(const struct dataset_opts *o, const struct dataset_reader *r)
{
    if (o->n < 0)
        return err_set(ERR_ARG, "dataset.n: expected 0 or more, found %lld",
                       (long long)o->n);
    if (o->min_prompt_tok < 1 || o->max_prompt_tok < o->min_prompt_tok)
        return err_set(ERR_ARG,
                       "dataset: expected 1 <= min_prompt_tok <= max_prompt_tok, found "
                       "%lld and %lld",
                       (long long)o->min_prompt_tok, (long long)o->max_prompt_tok);
    if (o->max_output_tok < 1)
        return err_set(ERR_ARG, "dataset.max_output_tok: expected 1 or more, found %lld",
                       (long long)o->max_output_tok);
    if (r->needs_path && !o->path)
        return err_set(ERR_ARG, "dataset.path: reader \"%s\" needs a file, found none",
                       r->name);
    return OK;
}

int dataset_open(struct dataset **out, const struct dataset_opts *o)
{
    const struct dataset_reader *reader;
    struct dataset *d = NULL;
    struct keep *k;
    int rc;

    *out = NULL;
    rc = find_reader(&reader, o->reader);
    if (rc == OK)
        rc = check_opts(o, reader);
    if (rc != OK)
        return rc;
    rc = ERR_NOMEM;
    d = mem_new(MEM_DATASET, 1, sizeof(*d));
    if (!d)
        goto out;
    d->state = k = mem_new(MEM_DATASET, 1, sizeof(*k));
    if (!k)
        goto out;
    d->reader = reader;
    k->o = o;
    rng_init(&k->sample, (uint64_t)o->seed, "sample");
    snprintf(d->name, sizeof(d->name), "%s", reader->name);
    snprintf(d->source, sizeof(d->source), "%s", o->path ? o->path : "");
    rc = reader->open(d, o);
    if (rc != OK)
        goto out;
    if (d->n_items == 0) {
        rc = err_set(ERR_FORMAT,
                     "%s: expected at least one request, found none in %lld records",
                     d->source, (long long)d->n_skipped);
        goto out;
    }
    rc = restore_order(d, k);
    if (rc != OK)
        goto out;
    if (o->shuffle)
        shuffle(d, o->seed);
    for (int64_t i = 0; i < d->n_items; i++)
        dataset_cut(o, &d->items[i]);
    report_skipped(d, k);
    k->o = NULL;
    *out = d, d = NULL;
out:
    dataset_close(&d);
    return rc;
}

void dataset_close(struct dataset **d)
{
    struct dataset *p = *d;
    struct keep *k;

    *d = NULL;
    if (!p)
        return;
    for (int64_t i = 0; i < p->n_items; i++)
        item_free(&p->items[i]);
    mem_free(p->items);
    k = p->state;
    if (k)
        mem_free(k->order);
    mem_free(k);
    mem_free(p);
}
