#include "datasets/input.h"
#include "tests/datasets/data.h"

#include <unistd.h>
#include <zlib.h>

static struct dataset_input *open_text(const char *text)
{
    struct dataset_input *in;

    assert_ok(dataset_input_open(&in, data_text(text)));
    return in;
}

static void expect_line(struct dataset_input *in, const char *want)
{
    char *line;
    size_t n;

    assert_ok(dataset_input_line(in, &line, &n));
    if (!want) {
        assert_null(line);
        return;
    }
    assert_non_null(line);
    assert_string_equal(line, want);
    assert_int_equal(n, strlen(want));
}

TEST(lines)
{
    struct dataset_input *in =
        open_text("\xef\xbb\xbfone\r\n\ntwo \xe2\x80\xa8 still two\nend");

    expect_line(in, "one");
    expect_line(in, "");
    expect_line(in, "two \xe2\x80\xa8 still two");
    expect_line(in, "end");
    assert_non_null(strstr(dataset_input_where(in), ":4"));
    expect_line(in, NULL);
    expect_line(in, NULL);
    dataset_input_close(&in);
    assert_null(in);
    in = open_text("");
    expect_line(in, NULL);
    dataset_input_close(&in);
}

/* A line that crosses the chunks in which the file is read. */
TEST(long_line)
{
    size_t n = 1000003, got;
    char *text = mem_new(MEM_TEST, n + 8, 1), *line;
    struct dataset_input *in;

    memset(text, 'x', n);
    strcpy(text + n, "\nlast\n");
    in = open_text(text);
    assert_ok(dataset_input_line(in, &line, &got));
    assert_int_equal(got, n);
    assert_memory_equal(line, text, n);
    expect_line(in, "last");
    expect_line(in, NULL);
    dataset_input_close(&in);
    mem_free(text);
}

TEST(elements)
{
    static const char *const want[] = {"{\"a\":\"]}\\\"{\"}", "{ }", "{\"b\":[{}, [1]]}"};
    struct dataset_input *in =
        open_text(" [\n {\"a\":\"]}\\\"{\"}\n,{ },\n\n{\"b\":[{}, [1]]}\n]\n ");
    char *text;
    size_t n;

    for (int i = 0; i < 3; i++) {
        assert_ok(dataset_input_element(in, &text, &n));
        assert_non_null(text);
        assert_string_equal(text, want[i]);
        assert_int_equal(n, strlen(want[i]));
    }
    assert_non_null(strstr(dataset_input_where(in), ":5"));
    assert_ok(dataset_input_element(in, &text, &n));
    assert_null(text);
    dataset_input_close(&in);
}

TEST(bad_frames)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "in:1: expected '[' of a list of records, found the end of the file"},
        {"{}", "in:1: expected '[' of a list of records, found '{'"},
        {"[", "in:1: expected '{' of a record, found the end"},
        {"[\n{}", "in:2: expected ',' or ']' after a record, found the end"},
        {"[{},]", "expected '{' of a record, found ']'"},
        {"[{} {}]", "expected ',' or ']' after a record, found '{'"},
        {"[1]", "expected '{' of a record, found '1'"},
        {"[[]]", "expected '{' of a record, found '['"},
        {"[]x", "expected nothing after the list, found 'x'"},
        {"[{}]\n\x01", "in:2: expected nothing after the list, found byte 0x01"},
        {"[{\"a\":[1", "expected '}' of a record, found the end of the file"},
        {"[{\"a\":\"b}]", "expected '\"' at the end of a string, found the end"},
    };
    char *text;
    size_t n;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dataset_input *in = open_text(bad[i].text);
        int rc;

        do {
            rc = dataset_input_element(in, &text, &n);
        } while (rc == OK && text);
        assert_err(rc, ERR_FORMAT, bad[i].message);
        dataset_input_close(&in);
    }
}

/* --- gzipped files */

/* `text` packed by gzip, in `n_parts` parts; its bytes. */
static size_t pack(unsigned char *out, size_t most, const char *text, size_t n,
                   int n_parts)
{
    size_t bytes = 0;

    for (int i = 0; i < n_parts; i++) {
        size_t from = n * (size_t)i / (size_t)n_parts;
        z_stream z = {.next_out = out + bytes, .avail_out = (uInt)(most - bytes)};

        assert_int_equal(
            deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
        z.next_in = (unsigned char *)text + from;
        z.avail_in = (uInt)(n * (size_t)(i + 1) / (size_t)n_parts - from);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        bytes += z.total_out;
        deflateEnd(&z);
    }
    return bytes;
}

/* The text of all lines, each with its LF, into out[most]; the code of the first failure. */
static int read_lines(const char *path, char *out, size_t most, size_t *n_out)
{
    struct dataset_input *in;
    char *line;
    size_t n;
    int rc = dataset_input_open(&in, path);

    *n_out = 0;
    while (rc == OK) {
        rc = dataset_input_line(in, &line, &n);
        if (rc != OK || !line)
            break;
        assert_true(*n_out + n + 1 <= most);
        memcpy(out + *n_out, line, n);
        out[*n_out + n] = '\n';
        *n_out += n + 1;
    }
    dataset_input_close(&in);
    return rc;
}

/* More than the chunks in which packed and unpacked bytes are read; and nothing at all. */
TEST(gzipped_files)
{
    enum { MOST = 3 << 20 };
    char *text = mem_new(MEM_TEST, MOST, 1), *got = mem_new(MEM_TEST, MOST, 1);
    unsigned char *packed = mem_new(MEM_TEST, MOST, 1);
    size_t n = 0, n_got, n_packed;
    struct rng r;

    rng_init(&r, test_seed(), "text");
    while (n < MOST - 600000) {
        size_t end = n + rng_below(&r, rng_below(&r, 50) == 0 ? 500000 : 200);

        while (n < end) /* little to pack, so that the packed bytes are many, too */
            text[n++] = (char)(32 + rng_below(&r, 90));
        text[n++] = '\n';
    }
    for (int parts = 1; parts <= 3; parts++) {
        n_packed = pack(packed, MOST, text, n, parts);
        assert_true(n_packed > n / 2);
        assert_ok(read_lines(data_file(packed, n_packed), got, MOST, &n_got));
        assert_int_equal(n_got, n);
        assert_memory_equal(got, text, n);
    }
    n_packed = pack(packed, MOST, "\xef\xbb\xbfone\n", 7, 1);
    assert_ok(read_lines(data_file(packed, n_packed), got, MOST, &n_got));
    assert_true(n_got == 4 && memcmp(got, "one\n", 4) == 0);
    n_packed = pack(packed, MOST, "", 0, 1);
    assert_ok(read_lines(data_file(packed, n_packed), got, MOST, &n_got));
    assert_int_equal(n_got, 0);
    for (int n_fail = 0, rc = ERR_NOMEM; rc != OK; n_fail++) {
        mem_fail_after(n_fail, 1);
        rc = read_lines(data_file(packed, n_packed), got, MOST, &n_got);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
    }
    mem_free(packed);
    mem_free(got);
    mem_free(text);
}

/* Cut anywhere or with any byte changed, gzip's data are refused, or hold the text as it was. */
TEST(damaged_gzip)
{
    static const char text[] = "prompt,output\n1,2\n30,40\n1,2\n30,40\n5,6\n";
    unsigned char packed[200], bad[200];
    size_t n = sizeof(text) - 1, n_packed = pack(packed, sizeof(packed), text, n, 1),
           got_n;
    int n_same = 0;
    char got[200];

    for (size_t cut = 2; cut < n_packed; cut++)
        assert_err(read_lines(data_file(packed, cut), got, sizeof(got), &got_n),
                   ERR_FORMAT, "damaged gzip data: they end too early");
    for (size_t at = 2; at < n_packed; at++)
        for (int bit = 0; bit < 8; bit++) {
            int rc;

            memcpy(bad, packed, n_packed);
            bad[at] ^= (unsigned char)(1 << bit);
            rc = read_lines(data_file(bad, n_packed), got, sizeof(got), &got_n);
            if (rc == OK) { /* the time, the system, bits that fill a byte */
                assert_true(got_n == n && memcmp(got, text, n) == 0);
                n_same++;
            } else {
                assert_err(rc, ERR_FORMAT, "damaged gzip data");
            }
        }
    assert_true(n_same > 0);
    memcpy(bad, packed, n_packed);
    bad[n_packed] = 'x'; /* what follows the data is no part of them */
    assert_err(read_lines(data_file(bad, n_packed + 1), got, sizeof(got), &got_n),
               ERR_FORMAT, "damaged gzip data");
}

TEST(refused_files)
{
    struct dataset_input *in;
    char *line, endless[300];
    size_t n;

    assert_err(dataset_input_open(&in, "no/such/file"), ERR_NOTFOUND,
               "no/such/file: cannot open");
    assert_null(in);
    assert_err(dataset_input_open(&in, data_file("\x1f\x8b\x08", 3)), ERR_FORMAT,
               "in:1: damaged gzip data: they end too early");
    assert_null(in);
    assert_err(dataset_input_open(&in, test_dir()), ERR_IO, "cannot read");
    assert_null(in);
    assert_err(dataset_input_open(&in, "/dev/zero"), ERR_IO, "found a device");
    assert_null(in);
    /* a piece without end is refused before it fills the memory */
    snprintf(endless, sizeof(endless), "%s/endless", test_dir());
    test_write(endless, "[", 1);
    assert_int_equal(truncate(endless, (off_t)1 << 40), 0); /* a hole, no disk */
    assert_ok(dataset_input_open(&in, endless));
    assert_err(dataset_input_line(in, &line, &n), ERR_LIMIT,
               "expected a record of at most");
    assert_null(line);
    dataset_input_close(&in);
}
