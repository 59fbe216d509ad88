/* A model in several GGUF files is the model in one; a part that is missing, cut short,
 * out of order or named otherwise gives one line. */
#include "tests/format/small.h"

/* Regression: a model in several GGUF files was reported as incomplete. */

static const char *part(int no, int count)
{
    char name[40];

    snprintf(name, sizeof(name), "m-%05d-of-%05d.gguf", no, count);
    return test_path(name);
}

static void split_keys(struct small *s, int no, int count, int n_tensors)
{
    small_key(s, "split.no", GGUF_U16);
    small_put(s, &(uint16_t){(uint16_t)no}, 2);
    small_key(s, "split.count", GGUF_U16);
    small_put(s, &(uint16_t){(uint16_t)count}, 2);
    small_key(s, "split.tensors.count", GGUF_I32);
    small_u32(s, (uint32_t)n_tensors);
}

/* The small model as three files: the metadata, the attention, and the rest. */
static void write_parts(int n_tensors)
{
    struct small s;

    small_begin(&s);
    small_keys(&s, "llama");
    split_keys(&s, 0, 3, n_tensors);
    small_end(&s);
    test_write(part(1, 3), s.b, s.n);

    small_begin(&s);
    split_keys(&s, 1, 3, n_tensors);
    small_tensor(&s, "blk.0.attn_q.weight", S_DIM, S_HEADS * S_HEAD_DIM, 0);
    small_tensor(&s, "blk.0.attn_k.weight", S_DIM, S_KV * S_HEAD_DIM, 0);
    small_tensor(&s, "blk.0.attn_v.weight", S_DIM, S_KV * S_HEAD_DIM, 0);
    small_tensor(&s, "blk.0.attn_output.weight", S_HEADS * S_HEAD_DIM, S_DIM, 0);
    small_end(&s);
    test_write(part(2, 3), s.b, s.n);

    small_begin(&s);
    split_keys(&s, 2, 3, n_tensors);
    small_tensor(&s, "token_embd.weight", S_DIM, S_VOCAB, 0);
    small_tensor(&s, "output_norm.weight", S_DIM, 0, 0);
    small_tensor(&s, "blk.0.attn_norm.weight", S_DIM, 0, 0);
    small_tensor(&s, "blk.0.ffn_norm.weight", S_DIM, 0, 0);
    small_tensor(&s, "blk.0.ffn_gate.weight", S_DIM, S_HIDDEN, 0);
    small_tensor(&s, "blk.0.ffn_up.weight", S_DIM, S_HIDDEN, 0);
    small_tensor(&s, "blk.0.ffn_down.weight", S_HIDDEN, S_DIM, 0);
    small_end(&s);
    test_write(part(3, 3), s.b, s.n);
}

TEST(parts_are_one_model)
{
    struct format_file *f;
    struct stat st;
    int64_t bytes = 0;
    float v;

    write_parts(11);
    for (int no = 1; no <= 3; no++) {
        assert_int_equal(stat(part(no, 3), &st), 0);
        bytes += st.st_size;
    }
    assert_ok(format_open(&f, part(1, 3)));
    assert_int_equal(f->file_bytes, bytes);
    assert_int_equal(f->config.vocab, S_VOCAB);
    assert_true(f->config.tied);
    /* each file counts its data from 0: the K projection follows 8 x 8 values of Q */
    memcpy(&v, format_layer_tensor(f, 0, FORMAT_K)->data, sizeof(v));
    assert_true(v == 64.0f / 256);
    memcpy(&v, f->global[FORMAT_OUT_NORM].data, sizeof(v));
    assert_true(v == 40.0f / 256);
    (void)small_touch(f);
    format_close(&f);
}

TEST(wrong_parts_are_refused)
{
    char *other;
    void *bytes;
    size_t n;

    write_parts(11);
    assert_err(small_parse(part(2, 3)), ERR_ARG, "m-00001-of-00003.gguf, found part 2");
    bytes = test_read(part(1, 3), &n);
    test_write(part(1, 4), bytes, n); /* a name that says something else */
    assert_err(small_parse(part(1, 4)), ERR_FORMAT,
               "expected a name that ends in -00001-of-00003.gguf");
    test_write(part(2, 3), bytes, n); /* the first part again */
    assert_err(
        small_parse(part(1, 3)), ERR_FORMAT,
        "m-00002-of-00003.gguf: split.no, split.count: expected part 1 of 3, found 0 "
        "of 3");
    mem_free(bytes);
    write_parts(12);
    assert_err(small_parse(part(1, 3)), ERR_FORMAT,
               "split.tensors.count: expected 11, the tensors in its 3");
    write_parts(11);
    other = strdup(part(3, 3));
    assert_int_equal(truncate(other, 300), 0);
    assert_err(small_parse(part(1, 3)), ERR_FORMAT, "m-00003-of-00003.gguf");
    assert_int_equal(unlink(other), 0);
    assert_err(small_parse(part(1, 3)), ERR_NOTFOUND, "m-00003-of-00003.gguf");
    free(other);
}

TEST(numbers_of_parts_are_checked)
{
    static const struct {
        int no, count;
        const char *why;
    } cases[] = {{3, 3, "split.no: expected 0 to 2, found 3"},
                 {0, 1001, "split.count: expected 1 to 1000, found 1001"}};
    struct format_file *f;
    struct small s;

    for (int i = 0; i < 2; i++) {
        small_begin(&s);
        small_keys(&s, "llama");
        split_keys(&s, cases[i].no, cases[i].count, -1);
        small_tensors(&s);
        small_end(&s);
        test_write(part(1, 1), s.b, s.n);
        assert_err(small_parse(part(1, 1)), i ? ERR_LIMIT : ERR_FORMAT, cases[i].why);
    }
    small_begin(&s); /* split into one */
    small_keys(&s, "llama");
    split_keys(&s, 0, 1, 11);
    small_tensors(&s);
    small_end(&s);
    test_write(part(1, 1), s.b, s.n);
    assert_ok(format_open(&f, part(1, 1)));
    format_close(&f);
}

TEST(damaged_parts)
{
    for (int no = 1; no <= 3; no++) {
        struct test_document d = {.path = part(no, 3),
                                  .parse = small_parse,
                                  .opened = part(1, 3),
                                  .named = test_dir()};
        void *bytes;

        write_parts(11);
        d.data = bytes = test_read(d.path, &d.n);
        assert_true(test_mutants(&d, 1500) > 0);
        assert_int_equal(test_cuts(&d, d.n - 32, NULL), d.n - 32); /* the last may pad */
        mem_free(bytes);
    }
}

/* A tensor may be in one file only. */
TEST(tensors_are_in_one_part)
{
    struct small s;

    write_parts(-1);
    small_begin(&s);
    split_keys(&s, 1, 3, -1);
    small_tensor(&s, "token_embd.weight", S_DIM, S_VOCAB, 0);
    small_end(&s);
    test_write(part(2, 3), s.b, s.n);
    assert_err(small_parse(part(1, 3)), ERR_FORMAT,
               "tensor token_embd.weight: expected in one part, found in two");
}

TEST(every_allocation_may_fail)
{
    struct format_file *f;

    write_parts(11);
    assert_true(test_allocations(format_open(&f, part(1, 3)), !f) > 10);
    format_close(&f);
}
