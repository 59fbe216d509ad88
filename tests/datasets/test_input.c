#include "datasets/input.h"
#include "tests/datasets/data.h"

#include <unistd.h>

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

static void lines(void **s)
{
    struct dataset_input *in =
        open_text("\xef\xbb\xbfone\r\n\ntwo \xe2\x80\xa8 still two\nend");

    (void)s;
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
static void long_line(void **s)
{
    size_t n = 1000003, got;
    char *text = mem_new(MEM_TEST, n + 8, 1), *line;
    struct dataset_input *in;

    (void)s;
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

static void elements(void **s)
{
    static const char *const want[] = {"{\"a\":\"]}\\\"{\"}", "{ }", "{\"b\":[{}, [1]]}"};
    struct dataset_input *in =
        open_text(" [\n {\"a\":\"]}\\\"{\"}\n,{ },\n\n{\"b\":[{}, [1]]}\n]\n ");
    char *text;
    size_t n;

    (void)s;
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

static void bad_frames(void **s)
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

    (void)s;
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

static void refused_files(void **s)
{
    struct dataset_input *in;
    char *line, endless[300];
    size_t n;

    (void)s;
    assert_err(dataset_input_open(&in, "no/such/file"), ERR_NOTFOUND,
               "no/such/file: cannot open");
    assert_null(in);
    assert_err(dataset_input_open(&in, data_file("\x1f\x8b\x08", 3)), ERR_UNSUPPORTED,
               "gzip");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),         cmocka_unit_test(long_line),
        cmocka_unit_test(elements),      cmocka_unit_test(bad_frames),
        cmocka_unit_test(refused_files),
    };

    return cmocka_run_group_tests_name("datasets/input", tests, NULL, NULL);
}
