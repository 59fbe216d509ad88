#include "base/json.h"
#include "base/mem.h"
#include "datasets/build.h"

#define MAX_MS INT64_C(4000000000000) /* in nanoseconds it fits 64 bits */

/* Mooncake's traces: {timestamp, input_length, output_length, hash_ids}, times in ms. Each
 * hash names a block of 512 tokens together with all before it, so that prompts with equal
 * first hashes begin alike. The last block may be shorter. */
static int read_blocks(const json_t *record, int64_t n_prompt, int64_t **out, int64_t *n,
                       const char *where)
{
    int64_t wanted = (n_prompt + DATASET_BLOCK_TOK - 1) / DATASET_BLOCK_TOK;
    const json_t *list;
    int64_t *ids;

    *out = NULL;
    *n = 0;
    if (!json_object_get(record, "hash_ids"))
        return OK;
    TRY(json_get_arr(record, "hash_ids", &list, where));
    if ((int64_t)json_array_size(list) != wanted)
        return err_set(
            ERR_FORMAT, "%s: hash_ids: expected %lld, one for each %d tokens, found %zu",
            where, (long long)wanted, DATASET_BLOCK_TOK, json_array_size(list));
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

static int offer(struct dataset *d, const struct dataset_opts *o, const char *text,
                 size_t n, const char *where, bool *full)
{
    struct dataset_item it = {0};
    int64_t ms = 0, *blocks = NULL;
    json_t *record;
    int rc = json_read_text(&record, text, n, where);

    (void)o;
    if (rc == OK)
        rc = json_get_int(record, "timestamp", 0, MAX_MS, &ms, where);
    if (rc == OK)
        rc =
            json_get_int(record, "input_length", 0, DATASET_MAX_TOK, &it.n_prompt, where);
    if (rc == OK)
        rc = json_get_int(record, "output_length", 0, DATASET_MAX_TOK, &it.n_output,
                          where);
    if (rc == OK)
        rc = read_blocks(record, it.n_prompt, &blocks, &it.n_blocks, where);
    if (rc == OK) {
        it.block_ids = blocks;
        rc = dataset_offer_at(d, &it, ms * 1000000, where, full);
    }
    mem_free(blocks);
    json_decref(record);
    return rc;
}

static int mooncake_open(struct dataset *d, const struct dataset_opts *o)
{
    return dataset_read_records(d, o, offer);
}

const struct dataset_reader dataset_reader_mooncake = {
    .name = "mooncake",
    .help = "Mooncake traces, JSONL (timestamp, input_length, output_length, hash_ids)",
    .needs_path = true,
    .keys = "input_length",
    .open = mooncake_open,
};
