#include "kv/slot_runs.h"

#include <string.h>

#include "base/hash_stream.h"

void kv_slot_runs(struct kv_slot_runs *r, const struct kv_slot *slot, size_t vec_bytes,
                  int layer, int kv_head, int64_t lo, int64_t hi)
{
    *r = (struct kv_slot_runs){.slot = slot,
                               .vec_bytes = vec_bytes,
                               .layer = layer,
                               .kv_head = kv_head,
                               .lo = lo,
                               .hi = hi};
}

/* Vectors from r->next on that are in one block, all keys or all values; 0 at the end. */
static int64_t piece(const struct kv_slot_runs *r, char **at)
{
    int64_t n = r->hi - r->lo, each = r->slot->blocks ? r->slot->block_tok : INT64_MAX;
    bool value = r->next >= n;
    int64_t tok = value ? r->lo + r->next - n : r->hi - 1 - r->next;
    int64_t first = tok / each * each, left = r->hi - tok;

    if (r->next == 2 * n)
        return 0;
    *at = kv_token_at(r->slot, r->layer, r->kv_head, value, tok, r->vec_bytes);
    if (!value)
        return tok + 1 - (first > r->lo ? first : r->lo);
    return left < each - (tok - first) ? left : each - (tok - first);
}

bool kv_slot_runs_next(struct kv_slot_runs *r, struct kv_run *out)
{
    char *at = NULL;
    int64_t n = piece(r, &at);

    *out = (struct kv_run){.at = at};
    for (; n > 0 && at == out->at + out->bytes; n = piece(r, &at)) {
        out->bytes += (size_t)n * r->vec_bytes;
        r->next += n;
    }
    return out->bytes > 0;
}

static void copy_head(struct kv_slot_runs *to, struct kv_slot_runs *from, kv_copy_fn copy)
{
    struct kv_run a = {0}, b = {0};

    while ((a.bytes > 0 || kv_slot_runs_next(to, &a)) &&
           (b.bytes > 0 || kv_slot_runs_next(from, &b))) {
        size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;

        if (copy)
            copy(a.at, b.at, n);
        else
            memcpy(a.at, b.at, n);
        a = (struct kv_run){a.at + n, a.bytes - n};
        b = (struct kv_run){b.at + n, b.bytes - n};
    }
}

void kv_slot_copy(const struct kv_slot *to, const struct kv_slot *from,
                  const struct kv_shape *shape, int layer, int64_t lo, int64_t hi,
                  kv_copy_fn copy)
{
    for (int head = 0; head < shape->n_kv_heads; head++) {
        struct kv_slot_runs a, b;

        kv_slot_runs(&a, to, shape->vec_bytes, layer, head, lo, hi);
        kv_slot_runs(&b, from, shape->vec_bytes, layer, head, lo, hi);
        copy_head(&a, &b, copy);
    }
}

uint64_t kv_slot_hash(const struct kv_slot *slot, const struct kv_shape *shape, int layer,
                      int64_t lo, int64_t hi)
{
    struct hash_stream h;

    hash_stream_init(&h);
    for (int head = 0; head < shape->n_kv_heads; head++) {
        struct kv_slot_runs r;
        struct kv_run run;

        kv_slot_runs(&r, slot, shape->vec_bytes, layer, head, lo, hi);
        while (kv_slot_runs_next(&r, &run))
            hash_stream_add(&h, run.at, run.bytes);
    }
    return hash_stream_end(&h);
}
