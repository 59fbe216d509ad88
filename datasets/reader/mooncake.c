#include "base/json.h"
#include "base/mem.h"
#include "datasets/build.h"

#define MAX_S     4e9 /* in nanoseconds it fits 64 bits */
#define BLOCK_TOK 512
/* More requests a second than this, over at least that many: the times are hardly milliseconds. The
 * published traces have up to 10 a second. */
#define RATE_MAX_RPS 500
#define RATE_MIN_N   100

/* Mooncake's traces: {timestamp, input_length, output_length, hash_ids}, times in ms. Each
 * hash names a block of 512 tokens together with all before it, so that prompts with equal
 * first hashes begin alike. The last block may be shorter. Others write the same keys with
 * seconds, and blocks of other sizes. */
static int read_blocks(const json_t *record, int64_t n_prompt, int64_t block_tok,
                       int64_t **out, int64_t *n, const char *where)
{
    int64_t wanted = (n_prompt + block_tok - 1) / block_tok;
    const json_t *list;
    int64_t *ids;

    *out = NULL;
    *n = 0;
    if (!json_object_get(record, "hash_ids"))
        return OK;
    TRY(json_get_arr(record, "hash_ids", &list, where));
    if ((int64_t)json_array_size(list) != wanted)
        return err_set(
            ERR_FORMAT,
            "%s: hash_ids: expected %lld, one for each %lld tokens, found %zu; "
            "dataset.block_tok states another size",
            where, (long long)wanted, (long long)block_tok, json_array_size(list));
    ids = mem_new(MEM_DATASET, (size_t)wanted, sizeof(*ids));
    if (!ids)
        return ERR_NOMEM;
    *out = ids;
    for (*n = 0; *n < wanted; ++*n) {
        const json_t *v = json_array_get(list, (size_t)*n);

        if (!json_is_integer(v))
            return err_set(ERR_FORMAT, "%s: hash_ids: element %lld: expected an integer",
                           where, (long long)*n);
        ids[*n] = json_integer_value(v);
    }
    return OK;
}

static int read_time(const json_t *record, int unit, int64_t *ns, const char *where)
{
    static const double unit_s[] = {1e-3, 1, 1e-3, 1e-6}; /* by enum dataset_time_unit */
    const json_t *v = json_object_get(record, "timestamp");
    int64_t whole;
    double s;

    if (unit == DATASET_TIME_OF_FORMAT && json_is_real(v))
        return err_set(ERR_FORMAT,
                       "%s: timestamp: expected whole milliseconds, found %g; "
                       "dataset.time_unit states another unit",
                       where, json_real_value(v));
    if (!json_is_real(v))
        TRY(json_get_int(record, "timestamp", 0, INT64_MAX, &whole, where));
    s = json_number_value(v) * unit_s[unit];
    if (!(s >= 0 && s <= MAX_S))
        return err_set(ERR_FORMAT,
                       "%s: timestamp: expected a time of 0 to %g s, found %g s", where,
                       MAX_S, s);
    *ns = json_is_real(v) ? (int64_t)(s * 1e9)
                          : whole * (int64_t)(unit_s[unit] * 1e9 + 0.5);
    return OK;
}

static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    struct dataset_item it = {0};
    int64_t ns = 0, *blocks = NULL;
    json_t *record;
    int rc = json_read_text(&record, text, n, where);

    it.block_tok = o->block_tok > 0 ? o->block_tok : BLOCK_TOK;
    if (rc == OK)
        rc = read_time(record, o->time_unit, &ns, where);
    if (rc == OK)
        rc =
            json_get_int(record, "input_length", 0, DATASET_MAX_TOK, &it.n_prompt, where);
    if (rc == OK)
        rc = json_get_int(record, "output_length", 0, DATASET_MAX_TOK, &it.n_output,
                          where);
    if (rc == OK)
        rc = read_blocks(record, it.n_prompt, it.block_tok, &blocks, &it.n_blocks, where);
    if (rc == OK) {
        it.block_ids = blocks;
        rc = dataset_offer_at(d, &it, ns, where, full);
    }
    mem_free(blocks);
    json_decref(record);
    return rc;
}

static int mooncake_open(struct dataset *d, const struct dataset_opts *o)
{
    const struct dataset_item *v;
    double span_s;

    TRY(dataset_read_records(d, o, offer));
    v = d->items;
    span_s = d->n_items > 0 ? v[d->n_items - 1].arrival_s - v[0].arrival_s : 0;
    if (o->time_unit == DATASET_TIME_OF_FORMAT && d->n_items >= RATE_MIN_N &&
        span_s > 0 && (double)d->n_items > RATE_MAX_RPS * span_s)
        return err_set(ERR_FORMAT,
                       "%s: %.0f requests a second if its timestamps are milliseconds: "
                       "state dataset.time_unit, ms or s",
                       o->path, (double)d->n_items / span_s);
    return OK;
}

const struct dataset_reader dataset_reader_mooncake = {
    .name = "mooncake",
    .help = "Mooncake traces, JSONL (timestamp, input_length, output_length, hash_ids)",
    .needs_path = true,
    .keys = "input_length",
    .open = mooncake_open,
};
