/* The study of scattered keys and values, by itself on a little memory: every layout reads each
 * byte once, an allocator's operations give every sequence its tokens, and what is reported is
 * worked out again from the rounds. */
#include "experiments/study/support/kv_layout.h"
#include "experiments/study/support/kv_ops.h"
#include "kernels/attn_pieces.h"
#include "measure/compare.h"
#include "tests/study/capture.h"

extern const struct study study_paged_attention;

#define N_SEQS  3
#define CTX_TOK 512

/* Add one to each byte that attention to all heads of all sequences reads. */
static void count_reads(const struct study_kv_layout *l, unsigned char *n_reads)
{
    for (int64_t i = 0; i < l->n_layers * l->n_kv_heads * N_SEQS; i++) {
        struct kern_attn_args a = {0};

        study_kv_place(l, i / (l->n_kv_heads * N_SEQS), i / N_SEQS % l->n_kv_heads,
                       i % N_SEQS, &a);
        for (int64_t t = 0; t < CTX_TOK; t++) {
            const struct kern_attn_piece at = kern_attn_token(&a, t, l->vec_bytes);

            for (size_t k = 0; k < l->vec_bytes; k++) {
                n_reads[(const char *)at.k - l->memory + (ptrdiff_t)k]++;
                n_reads[(const char *)at.v - l->memory + (ptrdiff_t)k]++;
            }
        }
    }
}

TEST(every_layout_reads_each_byte_once)
{
    static char memory[1 << 20];
    static unsigned char n_reads[sizeof(memory)];
    int32_t blocks[N_SEQS * CTX_TOK / 16];

    for (int64_t block_tok = 8; block_tok <= CTX_TOK; block_tok *= 2)
        for (int random = 0; random < 2; random++) {
            struct study_kv_layout l = {.memory = memory,
                                        .n_layers = 2,
                                        .n_kv_heads = 3,
                                        .ctx_tok = CTX_TOK,
                                        .vec_bytes = 28,
                                        .block_tok = block_tok > 8 ? block_tok : 0,
                                        .blocks = blocks};
            size_t bytes = N_SEQS * CTX_TOK * study_kv_tok_bytes(&l);

            assert_true(bytes == N_SEQS * CTX_TOK * 2 * 2 * 3 * 14 * 2);
            assert_true(bytes < sizeof(memory));
            if (l.block_tok)
                study_kv_number(blocks, (int32_t)(N_SEQS * CTX_TOK / block_tok), random,
                                (int64_t)test_seed());
            memset(n_reads, 0, sizeof(n_reads));
            count_reads(&l, n_reads);
            for (size_t i = 0; i < sizeof(n_reads); i++)
                assert_int_equal(n_reads[i], i < bytes);
        }
}

TEST(random_numbers_are_not_in_sequence)
{
    int32_t a[256], b[256];
    int n_next = 0;

    study_kv_number(a, 256, true, 5);
    study_kv_number(b, 256, true, 6);
    assert_memory_not_equal(a, b, sizeof(a));
    for (int i = 0; i + 1 < 256; i++)
        n_next += a[i + 1] == a[i] + 1;
    assert_true(n_next < 10); /* one is to be expected */
    study_kv_number(a, 256, false, 5);
    for (int i = 0; i < 256; i++)
        assert_int_equal(a[i], i);
}

/* Every allocator gives the sequences the same tokens, and paged an operation for each block. */
TEST(operations_give_tokens)
{
    for (int i = 0; kv_allocs[i]; i++) {
        struct study_kv_ops k;
        struct kv_alloc_stat s;
        double ops_per_tok;

        assert_ok(study_kv_ops_open(&k, kv_allocs[i], 8, 512, (int64_t)test_seed()));
        assert_ok(study_kv_ops_run(&k, 20000));
        kv_allocs[i]->stat(k.state, &s);
        assert_int_equal(s.n_live, 8);
        assert_true(k.n_ops >= 20000 && k.n_ops <= 40000);
        ops_per_tok = (double)k.n_ops / (double)k.n_tok;
        /* A prompt is 128 tokens in the mean and the output 192: two operations, and
         * those for blocks. */
        if (strcmp(kv_allocs[i]->name, "static") == 0)
            assert_true(fabs(ops_per_tok - 2.0 / 192) < 0.1 / 192);
        if (strcmp(kv_allocs[i]->name, "paged") == 0)
            assert_true(fabs(ops_per_tok - 1.0 / 16 - 2.0 / 192) < 0.3 / 192);
        study_kv_ops_close(&k);
        assert_null(k.state);
    }
    assert_int_equal(mem_used_bytes(MEM_KV), 0);
}

static const char options[] =
    "{\"n_layers\": 2, \"n_kv_heads\": 3, \"head_dim\": 18, \"group\": 2, \"ctx_tok\": "
    "512, \"memory_mb\": 1, \"rounds\": 5, \"probe_s\": 0.05, \"probe_mb\": 8, "
    "\"alloc_ops\": 500, \"pages\": \"small\", \"kv_type\": \"%s\"}";

/* Of a scripted run, where no round was disturbed. */
static void check_ratios(void)
{
    for (int tok = 16; tok <= 512; tok *= 2) {
        char name[48], times[48];

        snprintf(name, sizeof(name), "paged%d_over_contiguous", tok);
        snprintf(times, sizeof(times), "paged%d_s", tok);
        assert_value(name, ratio_middle(times, "contiguous_s"));
        assert_true(value_of(name) < 0.9); /* contiguous is the slowest of the script */
        assert_true(captured(name)->lo < value_of(name));
        assert_true(captured(name)->hi > value_of(name));
    }
}

static void check_cell(double vec_bytes)
{
    double tok_bytes = 2.0 * 2 * 3 * vec_bytes;
    double seqs = ceil((1 << 20) / (512 * tok_bytes)), bytes = seqs * 512 * tok_bytes;
    double step_s = series_min("contiguous_s"), most = 0;

    for (int i = 0, tok = 16; tok <= 512; i++, tok *= 2) {
        char name[48], times[48];

        snprintf(name, sizeof(name), "paged%d_over_contiguous", tok);
        snprintf(times, sizeof(times), "paged%d_s", tok);
        assert_int_equal(length_of(times), 5);
        assert_true(value_of(name) > 0);
        assert_true(series_at("over_contiguous", i) == value_of(name));
        assert_true(series_at("block_tok", i) == tok);
        assert_true(series_at("block_run_bytes", i) == tok * vec_bytes);
    }
    assert_int_equal(length_of("over_contiguous"), 6);
    assert_value("n_seqs", seqs);
    assert_value("kv_mb", bytes / (1 << 20));
    assert_value("contiguous_ms", 1e3 * step_s);
    assert_value("contiguous_gbps", 1e-9 * bytes / step_s);
    assert_value("alloc_ops_per_s", 1 / series_max("alloc_op_s"));
    for (int i = 0; i < length_of("alloc_op_s"); i++)
        most = fmax(most, series_at("alloc_op_s", i) * series_at("alloc_ops_per_tok", i) *
                              seqs / step_s);
    assert_value("alloc_step_frac", most);
    for (int i = 0; i < length_of("probe_bytes"); i++)
        if (series_at("probe_bytes", i) == 4096)
            assert_value("random_frac_4k",
                         series_at("probe_random_gbps", i) / value_of("sequential_gbps"));
    assert_true(value_of("random_frac_4k") > 0);
    assert_true(note_of("variant")[0] && note_of("cpu")[0]);
    assert_non_null(strstr(note_of("allocators"), "paged"));
}

/* Times that grow with the alternative and vary from trial to trial. */
static int scripted(void *arg, int i, struct measure_trial *t)
{
    int *n = arg;

    t->seconds = 1e-3 * (i + 1) * (1 + 0.02 * sin((*n)++));
    return OK;
}

TEST(the_report_follows_from_the_rounds)
{
    int n = 0;

    measure_script(scripted, &n);
    assert_ok(capture_run(&study_paged_attention, options, "bf16"));
    measure_script(NULL, NULL);
    check_ratios();
    check_cell(18 * 2);
    for (int i = 0; i < 3; i++) {
        static const double vec_bytes[] = {18 * 4, 18 * 2, 20 + 4};
        static const char *const types[] = {"f32", "bf16", "q8"};

        assert_ok(capture_run(&study_paged_attention, options, types[i]));
        check_cell(vec_bytes[i]);
    }
}

TEST(bad_shapes_are_refused)
{
    assert_err(capture_run(&study_paged_attention, "{\"ctx_tok\": 1000}"), ERR_ARG,
               "multiple of 512, found 1000");
    assert_err(capture_run(&study_paged_attention, "{\"head_dim\": 63}"), ERR_ARG,
               "head_dim: expected an even number");
}

TEST_GROUP(NULL, capture_end);
