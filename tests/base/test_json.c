#include "tests/support/failing_disk.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

/* Regression: running out of memory inside a JSON string caused an assertion in
 * jansson. */

/* --- reading */

static int read_text(const char *text, json_t **out)
{
    return json_read_text(out, text, strlen(text), "here");
}

TEST(bad_text)
{
    static const struct {
        const char *text;
        int code;
        const char *message;
    } cases[] = {
        {"", ERR_FORMAT, "here: line 1"},
        {"{\"a\": 1", ERR_FORMAT, "here: line 1"},
        {"{\"a\": 1,\n \"a\": 2}", ERR_FORMAT, "duplicate"},
        {"{} x", ERR_FORMAT, "here"},
        {"[1e999]", ERR_FORMAT, "real number overflow"},
        {"[99999999999999999999]", ERR_FORMAT, "too big"},
        {"[\"\xff\"]", ERR_FORMAT, "unable to decode byte 0xff"},
        {"[\"\\ud800\"]", ERR_FORMAT, "Unicode"},
        {"[\"\\u0000\"]", ERR_FORMAT, "here"},
        {"3", ERR_FORMAT, "here"},
    };
    json_t *j;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        j = (json_t *)&j;
        assert_err(read_text(cases[i].text, &j), cases[i].code, cases[i].message);
        assert_null(j);
    }
}

TEST(depth_is_capped)
{
    static char text[2000001];
    json_t *j;

    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_err(json_read_text(&j, text, 130, "here"), ERR_LIMIT,
               "here: offset 64: nested");
    assert_ok(json_read_text(&j, text + 1, 128, "here"));
    json_decref(j);
    memset(text, '[', sizeof(text) - 1);
    assert_err(json_read_text(&j, text, sizeof(text) - 1, "here"), ERR_LIMIT,
               "offset 64");
    for (size_t i = 0; i + 5 < sizeof(text); i += 5)
        memcpy(text + i, "{\"a\":", 5);
    assert_err(json_read_text(&j, text, sizeof(text) - 1, "here"), ERR_LIMIT, "nested");
    /* brackets in strings, behind escaped quotes, are not nesting */
    snprintf(text, sizeof(text), "[\"\\\"%0100d", 0);
    memset(text + 4, '[', 100);
    memcpy(text + 104, "\\\\\"]", 5);
    assert_ok(read_text(text, &j));
    json_decref(j);
}

TEST(files)
{
    char path[600];
    json_t *j;

    snprintf(path, sizeof(path), "%s/x.json", test_dir());
    assert_err(json_read_file(&j, path, 100), ERR_NOTFOUND, "x.json");
    test_write(path, "{\"a\": [1, 2]}", 13);
    assert_ok(json_read_file(&j, path, 13));
    assert_int_equal(json_array_size(json_object_get(j, "a")), 2);
    json_decref(j);
    assert_err(json_read_file(&j, path, 12), ERR_LIMIT, "limit of 12 bytes");
    assert_err(json_read_file(&j, test_dir(), 100), ERR_IO, "cannot read");
    test_write(path, "", 0);
    assert_err(json_read_file(&j, path, 100), ERR_FORMAT, "x.json");
}

/* A text cut anywhere is refused or, at its full length, equal. */
TEST(truncated_anywhere)
{
    const char text[] =
        "{\"a\": [1, 2.5, \"x\\u00e9\\\"\"], \"b\": {\"c\": null, \"d\": true}}";
    json_t *j;

    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        int rc = json_read_text(&j, text, n, "cut");
        assert_int_equal(rc, ERR_FORMAT);
        assert_null(j);
    }
    assert_ok(json_read_text(&j, text, sizeof(text) - 1, "whole"));
    json_decref(j);
}

/* --- writing */

static json_t *document(int n)
{
    json_t *j = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(
            j, json_pack("{s:i s:f s:s}", "i", i, "x", i / 3.0, "s", "text"));
    return j;
}

static int n_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

TEST(written_reads_back)
{
    char path[600];
    json_t *a = json_pack("{s:i s:f s:s}", "z", 1, "a", 0.1, "m", "\xc3\xa9"), *b;
    char *text;
    size_t n;

    snprintf(path, sizeof(path), "%s/w.json", test_dir());
    assert_ok(json_write_file(a, path));
    assert_ok(json_read_file(&b, path, 1 << 20));
    assert_true(json_equal(a, b));
    text = test_read(path, &n);
    assert_int_equal(text[n - 1], '\n');
    assert_true(strstr(text, "\"a\"") < strstr(text, "\"m\""));
    assert_true(strstr(text, "\"m\"") < strstr(text, "\"z\""));
    mem_free(text);
    json_decref(a);
    json_decref(b);
}

TEST(bad_places)
{
    json_t *j = document(1);
    char path[600];

    assert_err(json_write_file(j, "/dev/null/x.json"), ERR_IO, "/dev/null/x.json");
    snprintf(path, sizeof(path), "%s/folder", test_dir());
    assert_int_equal(mkdir(path, 0777), 0);
    assert_err(json_write_file(j, path), ERR_ARG, "found a folder");
    json_decref(j);
}

/* Whatever fails, the old file stays whole until the new one is, and nothing is left
 * over. */
TEST(disk_fails)
{
    json_t *old = document(3), *new = document(400), *got;
    char dir[600], path[700];
    int k, rc;

    snprintf(dir, sizeof(dir), "%s/disk", test_dir());
    snprintf(path, sizeof(path), "%s/x.json", dir);
    assert_int_equal(mkdir(dir, 0777), 0);
    for (k = 0;; k++) {
        assert_ok(json_write_file(old, path));
        calls_left = k;
        rc = json_write_file(new, path);
        calls_left = -1;
        assert_int_equal(n_entries(dir), 1);
        assert_ok(json_read_file(&got, path, 1 << 24));
        if (rc == OK) {
            assert_true(json_equal(got, new));
            json_decref(got);
            break;
        }
        assert_int_equal(rc, ERR_IO);
        assert_true(json_equal(got, old) || json_equal(got, new));
        json_decref(got);
        assert_true(k < 30);
    }
    assert_int_equal(k, 4); /* text, sync, rename, sync of the folder */
    json_decref(old);
    json_decref(new);
}

TEST(file_size_limit)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY},
                        small = {1000, RLIM_INFINITY};
    json_t *j = document(400);
    char path[600];

    snprintf(path, sizeof(path), "%s/limit.json", test_dir());
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_err(json_write_file(j, path), ERR_IO, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    json_decref(j);
}

/* Short memory never gives a document or a text with a hole in it. */
TEST(memory_fails)
{
    json_t *whole = document(40), *got;
    char path[600];
    int rc;

    snprintf(path, sizeof(path), "%s/mem.json", test_dir());
    for (int once = 0; once < 2; once++)
        for (long k = 0;; k++) {
            unlink(path);
            mem_fail_after(k, once);
            rc = json_write_file(whole, path);
            if (rc == OK)
                rc = json_read_file(&got, path, 1 << 20);
            mem_fail_after(-1, 0);
            if (rc == OK) {
                assert_true(json_equal(got, whole));
                json_decref(got);
                break;
            }
            assert_int_equal(rc, ERR_NOMEM);
            if (access(path, F_OK) == 0) {
                assert_ok(json_read_file(&got, path, 1 << 20));
                assert_true(json_equal(got, whole));
                json_decref(got);
            }
            assert_true(k < 5000);
        }
    json_decref(whole);
}

/* --- members */

TEST(members)
{
    json_t *j;
    int64_t i = 5;
    double d = 5;
    const char *s = "kept";
    const json_t *sub = NULL;
    bool b = true;

    assert_ok(read_text(
        "{\"i\": 7, \"d\": 1.5, \"s\": \"x\", \"a\": [], \"o\": {}, \"b\": false,"
        "\"long\": \"0123456789012345678901234567890123456789012345678901234567"
        "890123456789\"}",
        &j));
    assert_ok(json_get_int(j, "i", 1, 7, &i, "w"));
    assert_int_equal(i, 7);
    assert_ok(json_get_f64(j, "d", &d, "w"));
    assert_true(d == 1.5);
    assert_ok(json_get_f64(j, "i", &d, "w"));
    assert_true(d == 7);
    assert_ok(json_get_str(j, "s", &s, "w"));
    assert_string_equal(s, "x");
    assert_ok(json_get_arr(j, "a", &sub, "w"));
    assert_ok(json_get_obj(j, "o", &sub, "w"));
    assert_ok(json_opt_bool(j, "b", &b, "w"));
    assert_false(b);

    i = 5, d = 5, s = "kept", b = true;
    assert_ok(json_opt_int(j, "none", 1, 2, &i, "w"));
    assert_ok(json_opt_f64(j, "none", &d, "w"));
    assert_ok(json_opt_str(j, "none", &s, "w"));
    assert_ok(json_opt_bool(j, "none", &b, "w"));
    assert_true(i == 5 && d == 5 && b && strcmp(s, "kept") == 0);

    assert_err(json_get_int(j, "i", 8, 9, &i, "w"), ERR_FORMAT,
               "w: i: expected an integer in [8, 9], found 7");
    assert_err(json_get_int(j, "s", 1, 2, &i, "w"), ERR_FORMAT, "found \"x\"");
    assert_err(json_opt_int(j, "d", 1, 2, &i, "w"), ERR_FORMAT, "found 1.5");
    assert_err(json_get_int(j, "none", 1, 2, &i, "w"), ERR_FORMAT, "found nothing");
    assert_err(json_get_f64(j, "long", &d, "w"), ERR_FORMAT,
               "found \"0123456789012345678901234567890123456789...\"");
    assert_err(json_get_str(j, "a", &s, "w"), ERR_FORMAT,
               "expected a string, found an array");
    assert_err(json_get_arr(j, "o", &sub, "w"), ERR_FORMAT, "an array, found an object");
    assert_err(json_get_obj(j, "i", &sub, "w"), ERR_FORMAT, "an object, found 7");
    assert_err(json_opt_bool(j, "i", &b, "w"), ERR_FORMAT, "true or false, found 7");
    assert_err(json_get_int(NULL, "i", 1, 2, &i, "w"), ERR_FORMAT, "found nothing");
    assert_true(i == 5 && d == 5 && b);
    json_decref(j);
}

/* What is UTF-8 stays, a '?' stands for each other byte, and memory alone can lack. */
TEST(copies_and_defaults)
{
    char name[4] = "old";
    double x[2] = {0};
    json_t *j;

    assert_ok(read_text(
        "{\"s\": \"abc\", \"long\": \"abcd\", \"empty\": \"\", \"x\": [1, 2.5], "
        "\"mixed\": [1, null], \"i\": 7}",
        &j));
    assert_err(json_copy_str(j, "long", name, sizeof(name), "w"), ERR_LIMIT,
               "w: long: expected below 4 bytes, found 4");
    assert_err(json_copy_str(j, "i", name, sizeof(name), "w"), ERR_FORMAT, "a string");
    assert_string_equal(name, "old");
    assert_ok(json_copy_str(j, "s", name, sizeof(name), "w"));
    assert_string_equal(name, "abc");

    assert_ok(json_get_f64s(j, "x", x, 2, "w"));
    assert_true(x[0] == 1 && x[1] == 2.5);
    assert_err(json_get_f64s(j, "x", x, 1, "w"), ERR_FORMAT,
               "w: x: expected 1 numbers, found 2");
    assert_err(json_get_f64s(j, "mixed", x, 2, "w"), ERR_FORMAT, "w: mixed[1]");

    assert_true(json_f64_at(j, "i") == 7 && isnan(json_f64_at(j, "s")) &&
                isnan(json_f64_at(NULL, "i")));
    assert_true(json_int_at(j, "i") == 7 && json_int_at(j, "none") == 0);
    assert_string_equal(json_str_at(j, "s", "?"), "abc");
    assert_string_equal(json_str_at(j, "empty", "?"), "?");
    assert_string_equal(json_str_at(j, "i", "?"), "?");
    json_decref(j);
}

/* Regression: a name or path that is not UTF-8, and a cell without its name, were
 * reported as "out of memory". */
TEST(lossy_strings)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"", ""},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xc3\xa9 caf\xe9", "caf\xc3\xa9 caf?"},
        {"cut \xe2\x82", "cut ??"},
        {"\xff\xfe\xc0\x80", "????"},
        {"\xed\xa0\x80x", "???x"},
    };
    json_t *v;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        v = json_string_lossy(rows[i].text);
        assert_non_null(v);
        assert_string_equal(json_string_value(v), rows[i].wanted);
        json_decref(v);
        for (int n = 0; n < 3; n++) {
            mem_fail_after(n, 0);
            json_decref(json_string_lossy(rows[i].text));
            mem_fail_after(-1, 0);
        }
    }
    v = json_stringn_lossy("a\0\xff", 3);
    assert_int_equal(json_string_length(v), 3);
    assert_memory_equal(json_string_value(v), "a\0?", 3);
    json_decref(v);
}
