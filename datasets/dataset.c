#include "datasets/dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "datasets/build.h"

#define MAX_REASONS 4

/* The state of a data set while it is built. */
struct keep {
    const struct dataset_opts *o; /* valid within dataset_open() */
    int64_t *order;               /* the offer each kept item came from */
    int64_t capacity;
    int64_t n_offered;
    struct rng sample;
    bool trace;                /* items have arrival times */
    int64_t first_ns, last_ns; /* of dataset_offer_at(); INT64_MIN before the first */
    struct {
        const char *why;
        int64_t n;
    } skipped[MAX_REASONS];
};

static const char *reader_name(int i)
{
    return dataset_readers[i] ? dataset_readers[i]->name : NULL;
}

#define OPT_OF struct dataset_opts
#define TOK    .unit = "tok", .max = DATASET_MAX_TOK
const struct opt_row dataset_opt_table[] = {
    OPT_ROW(STR, reader, "auto",
            "Format of the data set. auto: recognised by the first record of the file at "
            "path; without a path, synth, which draws lengths from a fit.",
            .names = reader_name),
    OPT_ROW(STR, path, NULL,
            "File to read, also below $SANDWICH_DATA (without it: ../shared/data).",
            .unit = "FILE"),
    OPT_ROW(STR, fit, "sharegpt",
            "With synth: name of a fit in datasets/fits, or path of one.", .unit = "FIT"),
    OPT_ROW(STR, stand_in, NULL,
            "Fit to draw from where the file at path is absent. A warning and the record "
            "say so. Default: an absent file is an error.",
            .unit = "FIT"),
    OPT_ROW(
        INT, n, "0",
        "Number of requests to take, of conversations with turns = conversation. 0: all "
        "(synth: 1000).",
        .unit = "requests", .max = 1e9),
    OPT_ROW(INT, seed, "1",
            "Seed of the random choice of requests, their order and their arrival times.",
            .max = 9e15),
    OPT_ROW(BOOL, shuffle, "false", "Shuffle the requests by the seed."),
    OPT_ROW(INT, min_prompt_tok, "1",
            "Lengthen shorter prompts to this. Data sets with text are not changed.",
            .min = 1, TOK),
    OPT_ROW(INT, max_prompt_tok, "0", "Cut longer prompts to this length. 0: uncut.",
            TOK),
    OPT_ROW(INT, max_output_tok, "0", "Cut longer outputs to this length. 0: uncut.",
            TOK),
    OPT_ROW(
        ENUM, turns, "first",
        "Which requests a conversation becomes. first: its first answered question. "
        "each: every answered question, with all turns before it as its prompt, on its "
        "own. conversation: the same, each sent load.think_s after the answer to the "
        "one before. Histories hold the recorded answers, not those of the system; "
        "with chat they hold the system's own.",
        .values = "first|each|conversation|chat"),
    OPT_ROW(ENUM, filter, "none",
            "Which requests are left out. vllm: by the rule of vLLM's serving benchmark, "
            "prompts or outputs below 4 tokens, prompts above 1024, and both together "
            "above 2048.",
            .values = "none|vllm"),
    OPT_ROW(
        ENUM, time_unit, "format",
        "What the arrival times of a trace in JSON count, where its format leaves that "
        "open. format: milliseconds, as Mooncake writes; a file that can hardly be "
        "meant so is refused.",
        .values = "format|s|ms|us"),
    OPT_ROW(INT, block_tok, "0",
            "Tokens of a block that a trace names by a hash. 0: 512, as Mooncake writes.",
            TOK),
    OPT_ROW(
        INT, skip_bad, "0",
        "Pass over at most N records that are no requests of this format, each with a "
        "warning that names it. 0: the first one is an error. In a JSON list with "
        "a missing quote or bracket, reading goes on at the next object that begins with "
        "the first key of the first record.",
        .unit = "records", .max = 1e9),
    OPT_ROW(F64, start_s, "0",
            "Trace with arrival times: begin this long after its first request.",
            .unit = "s", .max = 1e9),
    OPT_ROW(F64, duration_s, "0",
            "Trace with arrival times: length of the window to take. 0: to the end.",
            .unit = "s", .max = 1e9),
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

bool dataset_may_skip_bad(const struct dataset *d, const struct dataset_opts *o, int rc)
{
    return (rc == ERR_FORMAT || rc == ERR_LIMIT) && d->n_bad < o->skip_bad;
}

bool dataset_skip_bad(struct dataset *d, const struct dataset_opts *o, int rc)
{
    static const char why[] = "bad, see dataset.skip_bad";

    if (!dataset_may_skip_bad(d, o, rc))
        return false;
    d->n_bad++;
    log_warning("dataset_bad_record", (double)d->n_bad, (double)o->skip_bad,
                "a record is left out: %s", err_msg());
    dataset_skip(d, why);
    err_clear();
    return true;
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

/* All turns; a conversation may have too many for recursion. */
static void item_free(struct dataset_item *it)
{
    struct dataset_item *later = (struct dataset_item *)it->later;

    mem_free((void *)it->text);
    mem_free((void *)it->reply);
    mem_free((void *)it->block_ids);
    while (later) {
        struct dataset_item *next = (struct dataset_item *)later->later;

        mem_free((void *)later->text);
        mem_free((void *)later->reply);
        mem_free(later);
        later = next;
    }
}

static int turn_copy(struct dataset_item *to, const struct dataset_item *from)
{
    size_t bytes = (size_t)from->n_blocks * sizeof(*from->block_ids);

    *to = *from;
    to->text = to->reply = NULL;
    to->block_ids = NULL;
    to->later = NULL;
    if (from->text &&
        !(to->text = mem_strndup(MEM_DATASET, from->text, from->text_bytes)))
        return ERR_NOMEM;
    if (from->reply &&
        !(to->reply = mem_strndup(MEM_DATASET, from->reply, from->reply_bytes)))
        return ERR_NOMEM;
    if (bytes) {
        void *ids = mem_new(MEM_DATASET, bytes, 1);

        if (!ids)
            return ERR_NOMEM;
        memcpy(ids, from->block_ids, bytes);
        to->block_ids = ids;
    }
    return OK;
}

static int item_copy(struct dataset_item *to, const struct dataset_item *from)
{
    struct dataset_item *at = to;
    int rc = turn_copy(to, from);

    for (from = from->later; from && rc == OK; from = from->later) {
        struct dataset_item *next = mem_new(MEM_DATASET, 1, sizeof(*next));

        if (!next) {
            rc = ERR_NOMEM;
            break;
        }
        at->later = next;
        at = next;
        rc = turn_copy(at, from);
    }
    if (rc != OK)
        item_free(to);
    return rc;
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

const char *dataset_filtered(const struct dataset_opts *o, int64_t n_prompt,
                             int64_t n_output)
{
    if (o->filter == DATASET_FILTER_NONE)
        return NULL;
    return n_prompt < 4                 ? "a prompt below 4 tokens"
           : n_output < 4               ? "an output below 4 tokens"
           : n_prompt > 1024            ? "a prompt above 1024 tokens"
           : n_prompt + n_output > 2048 ? "prompt and output above 2048 tokens"
                                        : NULL;
}

/* Why a request of known lengths is left out; NULL: it is not. */
static const char *unwanted(const struct dataset_opts *o, const struct dataset_item *it)
{
    if (it->text)
        return NULL; /* whoever tokenises asks */
    return it->n_prompt < 1 || it->n_output < 1
               ? "a length of 0"
               : dataset_filtered(o, it->n_prompt, it->n_output);
}

/* Is the item outside the window, or unwanted? */
static bool is_left_out(struct dataset *d, const struct dataset_opts *o,
                        const struct dataset_item *it, bool *full)
{
    const char *why = unwanted(o, it);

    *full = o->duration_s > 0 && it->arrival_s >= o->start_s + o->duration_s;
    if (*full || it->arrival_s < o->start_s)
        return true;
    if (why)
        dataset_skip(d, why);
    return why != NULL;
}

int dataset_offer(struct dataset *d, const struct dataset_item *item, bool *full)
{
    struct keep *k = d->state;
    struct dataset_item copy;
    int64_t slot = d->n_items;
    int rc;

    k->trace = !isnan(item->arrival_s);
    if (is_left_out(d, k->o, item, full))
        return OK;
    k->n_offered++;
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
    copy.arrival_s -= k->o->start_s;
    if (copy.conversation == 0 && copy.text)
        copy.conversation = hash_fnv1a(HASH_FNV1A, copy.text);
    if (slot == d->n_items)
        d->n_items++;
    else
        item_free(&d->items[slot]);
    d->items[slot] = copy;
    k->order[slot] = k->n_offered;
    *full = k->trace && d->n_items == k->o->n;
    return OK;
}

int dataset_offer_at(struct dataset *d, struct dataset_item *item, int64_t time_ns,
                     const char *where, bool *full)
{
    struct keep *k = d->state;

    if (time_ns < k->last_ns)
        return err_set(ERR_FORMAT,
                       "%s: expected a time no earlier than that of the record before, "
                       "found one %.9g s earlier",
                       where, (double)(k->last_ns - time_ns) / 1e9);
    if (k->last_ns == INT64_MIN)
        k->first_ns = time_ns;
    k->last_ns = time_ns;
    item->arrival_s = (double)(time_ns - k->first_ns) / 1e9;
    return dataset_offer(d, item, full);
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
    if (o->max_prompt_tok && it->n_prompt > o->max_prompt_tok)
        it->n_prompt = o->max_prompt_tok;
    if (it->n_prompt >= 0 && it->n_prompt < o->min_prompt_tok && !it->text)
        it->n_prompt = o->min_prompt_tok;
    if (o->max_output_tok && it->n_output > o->max_output_tok)
        it->n_output = o->max_output_tok;
}

static int check_opts(const struct dataset_opts *o, const struct dataset_reader *r)
{
    if (o->n < 0)
        return err_set(ERR_ARG, "dataset.n: expected 0 or more, found %lld",
                       (long long)o->n);
    if (o->min_prompt_tok < 1 ||
        (o->max_prompt_tok && o->max_prompt_tok < o->min_prompt_tok))
        return err_set(ERR_ARG,
                       "dataset: expected 1 <= min_prompt_tok <= max_prompt_tok, found "
                       "%lld and %lld",
                       (long long)o->min_prompt_tok, (long long)o->max_prompt_tok);
    if (r->needs_path && !o->path)
        return err_set(ERR_ARG, "dataset.path: reader \"%s\" needs a file, found none",
                       r->name);
    if (!r->needs_path && o->path)
        return err_set(ERR_ARG,
                       "dataset.path: reader \"%s\" reads no file, found %s; set "
                       "dataset.reader to auto to read it",
                       r->name, o->path);
    return OK;
}

/* Whether the requests that a reader found make a data set. */
static int check_found(const struct dataset *d, const struct dataset_opts *o)
{
    const struct keep *k = d->state;

    if ((o->start_s > 0 || o->duration_s > 0) && k->n_offered && !k->trace)
        return err_set(ERR_ARG,
                       "%s: start_s and duration_s need arrival times, and the requests "
                       "have none",
                       d->source);
    if (d->n_items == 0)
        return err_set(ERR_FORMAT,
                       "%s: expected at least one request, found none in %lld records",
                       d->source, (long long)d->n_skipped);
    return OK;
}

static int read_all(struct dataset *d, const struct dataset_opts *o)
{
    struct keep *k = d->state;

    k->o = o;
    k->first_ns = k->last_ns = INT64_MIN;
    rng_init(&k->sample, (uint64_t)o->seed, "sample");
    snprintf(d->name, sizeof(d->name), "%s", d->reader->name);
    snprintf(d->source, sizeof(d->source), "%s", o->path ? o->path : "");
    TRY(d->reader->open(d, o));
    TRY(check_found(d, o));
    TRY(restore_order(d, k));
    if (o->shuffle)
        shuffle(d, o->seed);
    for (int64_t i = 0; i < d->n_items; i++)
        dataset_cut(o, &d->items[i]);
    report_skipped(d, k);
    k->o = NULL;
    return OK;
}

int dataset_open_by(struct dataset **out, const struct dataset_opts *o,
                    const struct dataset_reader *reader)
{
    struct dataset *d;
    int rc;

    TRY(check_opts(o, reader));
    d = mem_new(MEM_DATASET, 1, sizeof(*d));
    if (!d)
        return ERR_NOMEM;
    d->reader = reader;
    d->state = mem_new(MEM_DATASET, 1, sizeof(struct keep));
    rc = d->state ? read_all(d, o) : ERR_NOMEM;
    if (rc == OK)
        *out = d, d = NULL;
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
