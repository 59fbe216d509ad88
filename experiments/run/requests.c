#include "experiments/run/run.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/rng.h"

/* Lowest id of a synthetic prompt: the usual vocabularies begin with <unk>, <s>, </s>. */
#define FIRST_ORDINARY_ID 3

struct builder {
    struct run_system *s;
    struct run_requests *out;
    const struct dataset_opts *dataset_opts;
    int64_t vocab, max_tok;
    struct rng ids;
    uint64_t block_seed; /* of the tokens that a named block stands for */
    size_t max_ids;
    /* Of a chat with the system's own answers: the turn before, and the tokens so far, at most. */
    const struct dataset_item *before;
    int64_t chat_tok;
};

static void reserve_ids(struct builder *b, size_t more)
{
    size_t need = b->out->n_ids + more;

    if (need <= b->max_ids)
        return;
    need = need + need / 2 + 1024;
    b->out->ids = mem_resize(MEM_HARNESS, b->out->ids, need, sizeof(*b->out->ids));
    b->max_ids = need;
}

static int count_reply(struct builder *b, const struct dataset_item *item, int64_t *n)
{
    const struct sut_adapter *a = b->s->adapter;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = a->encode(b->s->sut, item->reply, item->reply_bytes, &ids, &n_ids);

    mem_free(ids);
    *n = (int64_t)n_ids;
    return rc;
}

/* A conversation: its own text by the system's own tokenizer. *why: as of append(). */
static int append_text(struct builder *b, struct dataset_item *item, const char **why)
{
    const struct sut_adapter *a = b->s->adapter;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc;

    if (!a->encode)
        return err_set(ERR_ARG,
                       "dataset: has texts, but system \"%s\" has no tokenizer; use "
                       "lengths (reader synth, lengths_csv, azure)",
                       a->name);
    rc = a->encode(b->s->sut, item->text, item->text_bytes, &ids, &n_ids);
    if (rc == OK && item->n_output < 0 && item->reply)
        rc = count_reply(b, item, &item->n_output);
    if (rc == OK)
        *why = dataset_filtered(b->dataset_opts, (int64_t)n_ids, item->n_output);
    if (rc == OK && !*why) {
        reserve_ids(b, n_ids);
        memcpy(b->out->ids + b->out->n_ids, ids, n_ids * sizeof(*ids));
        item->n_prompt = (int64_t)n_ids;
        dataset_cut(b->dataset_opts, item);
        b->out->n_ids += (size_t)item->n_prompt;
    }
    mem_free(ids);
    return rc;
}

static int32_t draw_id(struct builder *b, struct rng *r)
{
    return FIRST_ORDINARY_ID +
           (int32_t)rng_below(r, (uint64_t)(b->vocab - FIRST_ORDINARY_ID));
}

static void append_synthetic(struct builder *b, const struct dataset_item *item)
{
    struct rng block, *r = &b->ids;
    int32_t *ids;

    reserve_ids(b, (size_t)item->n_prompt);
    ids = b->out->ids + b->out->n_ids;
    for (int64_t t = 0; t < item->n_prompt; t++) {
        int64_t k = item->n_blocks > 0 ? t / item->block_tok : 0;

        if (k < item->n_blocks && t % item->block_tok == 0) {
            rng_init(&block, b->block_seed ^ (uint64_t)item->block_ids[k], "block");
            r = &block;
        } else if (k >= item->n_blocks) {
            r = &b->ids;
        }
        ids[t] = draw_id(b, r);
    }
    b->out->n_ids += (size_t)item->n_prompt;
}

/* Cut the request to the longest sequence, with at least one token each way. */
static void fit(struct builder *b, struct sut_request *r)
{
    int64_t n_prompt = r->n_prompt, n_output = r->n_output;

    if (r->n_output > b->max_tok - 1)
        r->n_output = b->max_tok - 1;
    if (r->n_prompt > b->max_tok - r->n_output) {
        r->n_prompt = b->max_tok - r->n_output;
    }
    b->out->n_cut += r->n_prompt != n_prompt || r->n_output != n_output;
}

/* Of a turn behind others: the question alone. */
static void cut_history(const struct dataset_item *before, struct dataset_item *item)
{
    item->n_blocks = 0;
    if (item->n_prompt >= 0) {
        item->n_prompt -= before->n_prompt + before->n_output;
        item->n_prompt = item->n_prompt < 1 ? 1 : item->n_prompt;
    } else if (item->question_bytes) {
        item->text += item->text_bytes - item->question_bytes;
        item->text_bytes = item->question_bytes;
    }
}

/* Request i of this item; *why: it was not appended, because the filter leaves it out. */
static int append(struct builder *b, const struct dataset_item *from, size_t i,
                  uint64_t seed, const char **why)
{
    struct sut_request *r = &b->out->v[i];
    struct dataset_item item = *from;
    size_t start = b->out->n_ids;

    if (b->before)
        cut_history(b->before, &item);
    *why = NULL; /* known lengths were asked about when the data set was read */
    if (item.n_prompt < 0)
        TRY(append_text(b, &item, why));
    else
        append_synthetic(b, &item);
    if (*why)
        return OK;
    if (b->out->n_ids == start) { /* an empty text: one ordinary token stands for it */
        item.n_prompt = 1;
        append_synthetic(b, &item);
    }
    *r = (struct sut_request){.n_prompt = (int64_t)(b->out->n_ids - start),
                              .n_output = item.n_output < 1 ? 1 : item.n_output,
                              .seed = (int64_t)(seed >> 1)};
    fit(b, r);
    b->out->n_ids = start + (size_t)r->n_prompt;
    b->chat_tok = (b->before ? b->chat_tok : 0) + r->n_prompt + r->n_output;
    if (b->chat_tok > b->max_tok) {
        *why = "a chat longer than the longest sequence";
        b->out->n_ids = start;
    }
    return OK;
}

/* order[i]: the item of request i, a permutation repeated as often as needed. */
static void fill_order(size_t *order, size_t n, size_t n_items,
                       const struct load_opts *load, int64_t seed)
{
    struct rng r;

    rng_init(&r, (uint64_t)seed, "order");
    for (size_t i = 0; i < n; i++)
        order[i] = i % n_items;
    if (load->order != LOAD_ORDER_SHUFFLE)
        return;
    for (size_t start = 0; start < n; start += n_items) {
        size_t len = n - start < n_items ? n - start : n_items;

        for (size_t i = len; i > 1; i--) {
            size_t j = rng_below(&r, i), t = order[start + i - 1];

            order[start + i - 1] = order[start + j];
            order[start + j] = t;
        }
    }
}

/* The trace's times, in its order; NULL where an item has none. */
static double *trace_times(const struct dataset *d)
{
    double *at = mem_new(MEM_HARNESS, (size_t)d->n_items, sizeof(*at));

    for (int64_t i = 0; i < d->n_items; i++) {
        at[i] = d->items[i].arrival_s;
        if (!(at[i] >= (i ? at[i - 1] : 0))) {
            mem_free(at);
            return NULL;
        }
    }
    return at;
}

/* The n times at the front to the rows that begin a conversation; a later turn's has no meaning,
 * and gets that of its conversation. */
static void spread_arrivals(struct run_requests *out, size_t n)
{
    for (size_t i = out->n; i-- > 0;) {
        out->arrival_s[i] = out->arrival_s[n - 1];
        n -= !out->follows[i];
    }
}

static int fill_arrivals(struct run_requests *out, const struct dataset *d,
                         const struct load_opts *load, const struct load_seeds *seeds)
{
    const struct load_process *p;
    struct load_trace trace = {0};
    double *times = NULL;
    size_t n = 0; /* conversations, or requests of their own */
    int rc = load_process_find(load->process, &p);

    if (rc != OK || !p->arrivals)
        return rc;
    for (size_t i = 0; i < out->n; i++)
        n += !out->follows || !out->follows[i];
    out->arrival_s = mem_new(MEM_HARNESS, out->n, sizeof(double));
    if (p->wants_trace)
        trace.arrival_s = times = trace_times(d);
    trace.n = times ? (size_t)d->n_items : 0;
    rc = load_arrivals(p, load, (uint64_t)seeds->arrival, &trace, out->arrival_s, n);
    if (rc == OK && out->follows)
        spread_arrivals(out, n);
    mem_free(times);
    return rc;
}

static int read_limits(struct builder *b)
{
    const struct sut_adapter *a = b->s->adapter;
    int rc = a->limits(b->s->sut, &b->vocab, &b->max_tok);

    if (rc == OK && (b->vocab <= FIRST_ORDINARY_ID || b->max_tok < 2))
        rc = err_set(ERR_ARG, "system \"%s\": %lld ids and %lld tokens are too few",
                     a->name, (long long)b->vocab, (long long)b->max_tok);
    return rc;
}

/* Requests in the order of the items, and of each its turns. An item that the filter leaves
 * out ends its conversation and the next one comes in its place. */
static int append_items(struct builder *b, const struct dataset *d, const size_t *order,
                        const struct load_seeds *seeds)
{
    struct run_requests *out = b->out;
    const struct dataset_item *turn = NULL, *last = NULL;
    size_t n_used = 0, n_in_vain = 0, item = 0;
    struct rng output;

    rng_init(&output, (uint64_t)seeds->output, "output");
    for (size_t i = 0; i < out->n;) {
        bool follows = turn != NULL;
        const char *why;
        int rc;

        if (!follows) {
            item = n_used < out->n ? order[n_used] : n_used % (size_t)d->n_items;
            turn = &d->items[item];
            n_used++;
        }
        b->before = out->own_answers && follows ? last : NULL;
        last = turn;
        rc = append(b, turn, i, rng_u64(&output), &why);
        if (rc != OK)
            return err_prefix(rc, "dataset item %zu", item);
        turn = why ? NULL : turn->later;
        out->n_filtered += why != NULL;
        n_in_vain = why ? n_in_vain + 1 : 0;
        if (n_in_vain > (size_t)d->n_items)
            return err_set(ERR_ARG,
                           "dataset.filter: it leaves out every request; the last "
                           "has %s",
                           why);
        if (why)
            continue;
        if (out->follows)
            out->follows[i] = follows;
        if (follows)
            out->pause_s[i] = last->pause_s;
        i++;
    }
    if (n_used > (size_t)d->n_items)
        out->n_repeated = n_used - (size_t)d->n_items;
    return OK;
}

/* Every turn of every item. */
static size_t count_all(const struct dataset *d)
{
    size_t n = 0;

    for (int64_t i = 0; i < d->n_items; i++)
        for (const struct dataset_item *it = &d->items[i]; it; it = it->later)
            n++;
    return n;
}

/* How many requests are measured. A load that ends by itself counts conversations; shuffled, the
 * last of them may be cut. */
static size_t n_measured(const struct dataset *d, bool in_conversations,
                         const struct load_opts *load, const struct load_seeds *seeds)
{
    const struct load_process *p;
    size_t n = (size_t)load->n_requests, n_turns = 0;

    if (n == 0 && load_process_find(load->process, &p) == OK && p->count) {
        n = p->count(load, (uint64_t)seeds->arrival);
        n = n > (size_t)load->warmup_requests ? n - (size_t)load->warmup_requests : 1;
        if (!in_conversations)
            return n;
        for (size_t i = 0; i < n; i++)
            for (const struct dataset_item *it = &d->items[i % (size_t)d->n_items]; it;
                 it = it->later)
                n_turns++;
        return n_turns;
    }
    return n ? n : count_all(d);
}

static int append_all(struct builder *b, const struct dataset *d, const size_t *order,
                      const struct load_seeds *seeds)
{
    struct run_requests *out = b->out;
    const int32_t *at;

    TRY(append_items(b, d, order, seeds));
    at = out->ids; /* only now does the store stand still */
    for (size_t i = 0; i < out->n; at += out->v[i++].n_prompt)
        out->v[i].prompt = at;
    return OK;
}

static bool in_turns(const struct dataset_opts *o)
{
    return o->turns == DATASET_TURNS_CONVERSATION || o->turns == DATASET_TURNS_CHAT;
}

int run_requests_new(struct run_requests *out, struct run_system *s,
                     const struct dataset *d, const struct dataset_opts *dataset_opts,
                     const struct load_opts *load, const struct load_seeds *seeds)
{
    struct builder b = {.s = s, .out = out, .dataset_opts = dataset_opts};
    size_t *order = NULL;
    int rc;

    *out = (struct run_requests){.n_warmup = (size_t)load->warmup_requests};
    out->own_answers = dataset_opts->turns == DATASET_TURNS_CHAT;
    if (out->own_answers && !s->adapter->continues)
        return err_set(ERR_ARG,
                       "dataset.turns: system \"%s\" does not continue its own answers; "
                       "expected openai_http, or turns other than chat",
                       s->adapter->name);
    if (d->n_items < 1)
        return err_set(ERR_ARG, "dataset %s: holds no request (%lld records skipped: %s)",
                       d->source, (long long)d->n_skipped, d->skipped_why);
    out->n = out->n_warmup + n_measured(d, in_turns(dataset_opts), load, seeds);
    b.block_seed = (uint64_t)seeds->sample;
    rng_init(&b.ids, (uint64_t)seeds->sample, "synthetic_ids");
    out->v = mem_new(MEM_HARNESS, out->n, sizeof(*out->v));
    order = mem_new(MEM_HARNESS, out->n, sizeof(*order));
    if (in_turns(dataset_opts))
        out->pause_s = mem_new(MEM_HARNESS, out->n, sizeof(*out->pause_s));
    if (in_turns(dataset_opts))
        out->follows = mem_new(MEM_HARNESS, out->n, sizeof(*out->follows));
    fill_order(order, out->n, (size_t)d->n_items, load, seeds->order);
    rc = read_limits(&b);
    if (rc == OK)
        rc = append_all(&b, d, order, seeds);
    if (rc == OK)
        rc = fill_arrivals(out, d, load, seeds);
    mem_free(order);
    if (rc != OK)
        run_requests_fini(out);
    return rc;
}

void run_requests_fini(struct run_requests *r)
{
    mem_free(r->v);
    mem_free(r->ids);
    mem_free(r->arrival_s);
    mem_free(r->follows);
    mem_free(r->pause_s);
    *r = (struct run_requests){0};
}
