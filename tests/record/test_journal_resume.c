/* Journals whose lines have the right CRC and yet are none that a run may go on with. */
#include "tests/record/toy_journal.h"

#include <zlib.h>

/* Regression: a journal whose cells no record can hold was found out after the run, not
 * before. */

/* Change `from` in the last line that has it, give the line its CRC again, and try to go on
 * with the journal. */
static int resume_changed(const char *path, const char *from, const char *to)
{
    static char text[1 << 18], line[1 << 16];
    size_t n, n_head = strlen("{\"crc\":\"01234567\",");
    char *whole = test_read(path, &n), *at = whole, *begin, *end, *next;
    struct journal *j;
    json_t *h = fixture_header("2026-01-01T00:00:00Z");
    int rc;

    while ((next = strstr(at + 1, from)))
        at = next;
    assert_true(at > whole && n < sizeof(line) / 2);
    for (begin = at; begin > whole && begin[-1] != '\n';)
        begin--;
    end = strchr(at, '\n');
    snprintf(line, sizeof(line), "%.*s%s%.*s", (int)(at - begin - (long)n_head),
             begin + n_head, to, (int)(end - at - (long)strlen(from)), at + strlen(from));
    snprintf(text, sizeof(text), "%.*s{\"crc\":\"%08x\",%s%s", (int)(begin - whole),
             whole, (unsigned)crc32_z(0, (const Bytef *)line, strlen(line)), line, end);
    test_write(path, text, strlen(text));
    rc = journal_open(&j, test_dir(), "changed", h, false);
    journal_close(&j);
    test_write(path, whole, n);
    mem_free(whole);
    json_decref(h);
    return rc;
}

/* What no record can hold is refused before the run goes on: all cells are read. */
TEST(cells_are_checked_on_resuming)
{
    static const char *const changes[][2] = {
        {"\"p99_ttft_ms\"", "\"mean_ttft_ms\""},
        {"\"p99_ttft_ms\"", "\"p99/ttft\""},
        {"\"p99_ttft_ms\"", "7"},
        {"\"key\":\"rate=2/repeat=0\"", "\"key\":\"\""},
        {"\"cdf\"", "\".\""},
        {"\"state\":\"done\"", "\"state\":\"dont\""},
        {"\"evidence\":\"simulated\"", "\"evidence\":\"guessed\""},
    };
    json_t *h = fixture_header("2026-01-01T00:00:00Z");
    struct journal *j;
    struct fixture_cell f;
    struct log_warning w[4];
    char path[600];

    assert_ok(journal_open(&j, test_dir(), "changed", h, true));
    snprintf(path, sizeof(path), "%s", journal_path(j));
    for (int i = 1; i < 3; i++) {
        fixture_cell_make(&f, i);
        assert_ok(journal_cell(j, &f.cell));
        fixture_cell_free(&f);
    }
    journal_close(&j);
    json_decref(h);
    assert_ok(resume_changed(path, "\"p99_ttft_ms\"", "\"p98_ttft_ms\""));
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        assert_err(resume_changed(path, changes[i][0], changes[i][1]), ERR_FORMAT,
                   "changed.journal: ");
        assert_non_null(strstr(err_msg(), "--fresh"));
    }
    /* a header that lacks what a record states is another run's */
    while (log_warnings_take(w, 4) > 0)
        ;
    log_set_sink(ignore_line, NULL);
    assert_ok(
        resume_changed(path, "\"evidence\":\"measured\"", "\"evidenze\":\"measured\""));
    log_set_sink(NULL, NULL);
    assert_int_equal(log_warnings_take(w, 4), 1);
    assert_string_equal(w[0].code, "journal_set_aside");
}
