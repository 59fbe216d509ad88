/* A model in several GGUF files is the model in one; a part that is missing, cut short,
 * out of order or named otherwise gives one line. */
#include "tests/format/small.h"

static const char *part(int no, int count)
{
    static char names[4][400];
    static int at;
    char *p = names[at++ % 4];

    snprintf(p, sizeof(names[0]), "%s/m-%05d-of-%05d.gguf", test_dir(), no, count);
    return p;
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

static void refused(const char *file, int code, const char *why)
{
    struct format_file *f;
    int rc = format_open(&f, file);

    if (rc != code || !strstr(err_msg(), why) || strchr(err_msg(), '\n'))
        fail_msg("%s: %s \"%s\", expected \"%s\"", file, err_name(rc), err_msg(), why);
}

TEST(wrong_parts_are_refused)
{
    char *other;
    void *bytes;
    size_t n;

    write_parts(11);
    refused(part(2, 3), ERR_ARG, "m-00001-of-00003.gguf, found part 2");
    bytes = test_read(part(1, 3), &n);
    test_write(part(1, 4), bytes, n); /* a name that says something else */
    refused(part(1, 4), ERR_FORMAT, "expected a name that ends in -00001-of-00003.gguf");
    test_write(part(2, 3), bytes, n); /* the first part again */
    refused(part(1, 3), ERR_FORMAT,
            "m-00002-of-00003.gguf: split.no, split.count: expected part 1 of 3, found 0 "
            "of 3");
    mem_free(bytes);
    write_parts(12);
    refused(part(1, 3), ERR_FORMAT,
            "split.tensors.count: expected 11, the tensors in its 3");
    write_parts(11);
    other = strdup(part(3, 3));
    assert_int_equal(truncate(other, 300), 0);
    refused(part(1, 3), ERR_FORMAT, "m-00003-of-00003.gguf");
    assert_int_equal(unlink(other), 0);
    refused(part(1, 3), ERR_NOTFOUND, "m-00003-of-00003.gguf");
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
        refused(part(1, 1), i ? ERR_LIMIT : ERR_FORMAT, cases[i].why);
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

/* Open the model: it loads, or one line names one of its files. */
static bool loads(const char *what, int no, size_t at)
{
    struct format_file *f;
    int rc;

    err_clear();
    rc = format_open(&f, part(1, 3));
    if (rc == OK)
        (void)small_touch(f);
    else if (!strstr(err_msg(), test_dir()) || strchr(err_msg(), '\n'))
        fail_msg("%s of part %d at %zu: \"%s\"", what, no, at, err_msg());
    format_close(&f);
    return rc == OK;
}

TEST(damaged_parts)
{
    struct rng r;

    rng_init(&r, test_seed(), "split");
    for (int no = 1; no <= 3; no++) {
        size_t n;
        uint8_t *bytes;

        write_parts(11);
        bytes = test_read(part(no, 3), &n);
        for (int i = 0; i < 1500; i++) {
            size_t at = rng_below(&r, n < 700 ? n : 700); /* the header */
            uint8_t b = bytes[at] ^ (uint8_t)(1u << rng_below(&r, 8));

            small_patch(part(no, 3), at, &b, 1);
            (void)loads("flip", no, at);
            small_patch(part(no, 3), at, bytes + at, 1);
        }
        for (size_t cut = n - 1; cut > 0; cut = cut > 700 ? cut - 37 : cut - 1) {
            test_write(part(no, 3), bytes, cut);
            if (loads("cut", no, cut) && cut < n - 32) /* the last may be padding */
                fail_msg("part %d cut to %zu of %zu bytes: loaded", no, cut, n);
        }
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
    refused(part(1, 3), ERR_FORMAT,
            "tensor token_embd.weight: expected in one part, found in two");
}

TEST(every_allocation_may_fail)
{
    struct format_file *f;
    int rc = ERR_NOMEM;
    long n;

    write_parts(11);
    for (n = 0; rc == ERR_NOMEM && n < 1000; n++) {
        mem_fail_after(n, 1);
        rc = format_open(&f, part(1, 3));
        mem_fail_after(-1, 0);
    }
    assert_ok(rc);
    assert_true(n > 10);
    format_close(&f);
}
