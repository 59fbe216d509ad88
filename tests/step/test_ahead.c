/* The walk over what the next layer attends to: every byte of the thread's heads once and no other,
 * in the order of attention; contiguous and in blocks. */
#include "tests/support/fixture.h"

#include "base/rng.h"
#include "step/ahead.h"

#define LAYERS      3
#define HEADS       4
#define CAP         40
#define ROW_BYTES   64
#define HEAD_BYTES  (CAP * ROW_BYTES)
#define SLOT_BYTES  (LAYERS * HEADS * 2 * HEAD_BYTES)
#define CHUNKS_MAX  5
#define BLOCK_TOK   8
#define BLOCK_BYTES (LAYERS * HEADS * 2 * BLOCK_TOK * ROW_BYTES + 64)

static char memory[CHUNKS_MAX][SLOT_BYTES];
static char
    pool[CHUNKS_MAX * SLOT_BYTES]; /* of blocks; no part of it follows one of memory */
static struct kv_slot slots[CHUNKS_MAX];
static struct model_chunk chunks[CHUNKS_MAX];
static int32_t blocks[CHUNKS_MAX][CAP / BLOCK_TOK];

static int random_chunks(struct rng *rng)
{
    int n = (int)rng_below(rng, CHUNKS_MAX + 1);

    for (int c = 0; c < n; c++) {
        slots[c] =
            (struct kv_slot){.base = memory[c], .cap_tok = CAP, .run_bytes = HEAD_BYTES};
        if (rng_below(rng, 2)) {
            slots[c].base = pool;
            slots[c].run_bytes = BLOCK_TOK * ROW_BYTES;
            slots[c].blocks = blocks[c];
            slots[c].block_tok = BLOCK_TOK;
            slots[c].block_bytes = BLOCK_BYTES;
            for (int i = 0; i < CAP / BLOCK_TOK; i++)
                blocks[c][i] = (int32_t)rng_below(rng, sizeof(pool) / BLOCK_BYTES);
        }
        slots[c].head_stride = 2 * slots[c].run_bytes;
        slots[c].layer_stride = HEADS * slots[c].head_stride;
        chunks[c] = (struct model_chunk){
            .n_tok = 1, .pos0 = (int64_t)rng_below(rng, CAP), .kv = &slots[c]};
    }
    return n;
}

/* Where byte `i` of all that is attended to is; NULL: there are fewer. In each block, or in all
 * of a contiguous slot, the latest key comes first and the latest value last. */
static const char *byte_at(int n_chunks, int layer, int lo, int hi, int64_t i)
{
    for (int c = 0; c < n_chunks; c++)
        for (int h = lo; h < hi; h++)
            for (int64_t tok = 0, most = slots[c].blocks ? BLOCK_TOK : CAP;
                 tok <= chunks[c].pos0; tok += most) {
                int64_t left = chunks[c].pos0 + 1 - tok, n = left < most ? left : most;
                int64_t row = i / ROW_BYTES;

                if (row < 2 * n)
                    return (const char *)kv_token_at(
                               &slots[c], layer, h, row >= n,
                               row < n ? tok + n - 1 - row : tok + row - n, ROW_BYTES) +
                           i % ROW_BYTES;
                i -= 2 * n * ROW_BYTES;
            }
    return NULL;
}

TEST(every_byte_once)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "ahead");
    for (int round = 0; round < 2000; round++) {
        int n_chunks = random_chunks(&rng), layer = (int)rng_below(&rng, LAYERS);
        int lo = (int)rng_below(&rng, HEADS + 1);
        int hi = lo + (int)rng_below(&rng, (uint64_t)(HEADS - lo) + 1);
        int64_t most = (int64_t)rng_below(&rng, 3 * HEAD_BYTES), at = 0;
        struct model_ahead a;
        const char *part;

        model_ahead_begin(&a, chunks, n_chunks, layer, lo, hi, ROW_BYTES, most, 0);
        for (;;) {
            int64_t most_now = 1 + (int64_t)rng_below(&rng, 2 * HEAD_BYTES), n = most_now;
            bool left = a.left > 0;

            part = model_ahead_next(&a, &n);
            if (!part)
                break;
            assert_true(left && at < most && n > 0 && n <= most_now);
            for (int64_t i = 0; i < n; i++)
                assert_ptr_equal(part + i, byte_at(n_chunks, layer, lo, hi, at++));
        }
        if (at < most) /* not ended by `most` */
            assert_null(byte_at(n_chunks, layer, lo, hi, at));
        assert_int_equal(a.left, 0);
        assert_null(model_ahead_next(&a, &(int64_t){1}));
    }
}

/* At no time is more prefetched than its share of what was multiplied, and at the end little is
 * left. No call asks for more than a token's key, so at least half of a call's bytes are in the
 * run on average, and half is the most that is due. */
TEST(is_spread)
{
    struct rng rng;

    rng_init(&rng, test_seed(), "spread");
    for (int round = 0; round < 500; round++) {
        int n = random_chunks(&rng);
        int64_t all = 0, seen = 0, step = 1 + (int64_t)rng_below(&rng, ROW_BYTES);
        int64_t meanwhile, most = INT64_MAX;
        struct model_ahead a;

        for (int c = 0; c < n; c++)
            all += (chunks[c].pos0 + 1) * ROW_BYTES * 2 * HEADS;
        meanwhile = all * 2 + (int64_t)rng_below(&rng, (uint64_t)all + 1);
        model_ahead_begin(&a, chunks, n, 0, 0, HEADS, ROW_BYTES, most, meanwhile);
        while (seen < meanwhile && a.left > 0) {
            double due;

            model_ahead_next(&a, &(int64_t){step});
            seen += step;
            due = (double)all / (double)meanwhile * (double)seen;
            assert_true((double)(all - a.left) <= due + 1);
        }
        assert_true(a.left <= 2 * step);
    }
}
