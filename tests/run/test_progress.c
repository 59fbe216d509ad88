#include "tests/support/test.h"

#include "experiments/run/progress.h"

#define S 1000000000ull

static char *text;
static size_t n_text;

static struct progress *start(FILE **f, enum progress_mode mode)
{
    struct progress *p;

    *f = open_memstream(&text, &n_text);
    assert_non_null(*f);
    assert_ok(progress_open(&p, *f, mode, 3, 1, 200, 10 * S));
    return p;
}

static void stop(struct progress **p, FILE *f)
{
    progress_close(p);
    fclose(f);
}

TEST(live_line_with_estimate)
{
    FILE *f;
    struct progress *p = start(&f, PROGRESS_LIVE);

    progress_cell(p, "rate=2", 100, 100, 10 * S);
    progress_tick(p, 50, 2, 30 * S); /* 50 of 200 in 20 s: 60 s to go */
    fflush(f);
    assert_non_null(
        strstr(text, "cell 2/3 rate=2: 50/100 requests, 2 failed, 60 s left"));
    progress_cell(p, "rate=2", 100, 100, 40 * S); /* measured again */
    fflush(f);
    assert_null(strstr(text, "cell 3/3"));
    progress_cell_end(p);
    progress_cell(p, "rate=4", 100, 100, 50 * S); /* 100 of 200 in 40 s */
    fflush(f);
    assert_non_null(strstr(text, "cell 3/3 rate=4: 0/100 requests, 40 s left"));
    progress_log(p, LOG_WARN, "hot");
    stop(&p, f);
    assert_non_null(strstr(text, "\r\033[Kwarning: hot\n"));
    free(text);
}

/* Two cells of a study: a quarter of the whole in 20 s leaves 60 s. Half of it in 40 s leaves
 * 40 s, and 10 s later no more. */
TEST(a_study_counts_in_fractions)
{
    struct progress *p;
    FILE *f = open_memstream(&text, &n_text);

    assert_ok(progress_open(&p, f, PROGRESS_LIVE, 2, 0, 2, 10 * S));
    progress_study(p, "m=4", 1, 10 * S);
    progress_step(p, 0.5, "tune", 30 * S);
    fflush(f);
    assert_non_null(strstr(text, "cell 1/2 m=4: begins"));
    assert_non_null(strstr(text, "cell 1/2 m=4: tune, 60 s left"));
    progress_cell_end(p);
    progress_study(p, "m=8", 1, 50 * S);
    progress_step(p, -1, "less than nothing", 60 * S);
    progress_step(p, 7, "more than all", 60 * S);
    fflush(f);
    assert_non_null(strstr(text, "cell 2/2 m=8: less than nothing, 40 s left"));
    assert_non_null(strstr(text, "cell 2/2 m=8: more than all, 0 s left"));
    stop(&p, f);
    free(text);
}

/* The seconds of the last "N s left" in the text; -1: none. *more: they are a lower bound. */
static double last_left(const char *s, bool *more)
{
    const char *last = NULL;

    while ((s = strstr(s, " requests")))
        last = s++;
    *more = last && strstr(last, "more than ");
    last = last ? strchr(last, ',') : NULL;
    return !last ? -1 : atof(last + (*more ? 12 : 2)) * (strstr(last, " min") ? 60 : 1);
}

/* Requests stall, and each cell is slower than the one before: an estimate from the mean
 * rate would climb all the time.
 * Regression: the estimate of the time left climbed as later cells were slower. */
TEST(the_time_left_never_climbs)
{
    double now = 10, shown = 1e9;
    bool more, was_more = false;
    struct progress *p;
    FILE *f = open_memstream(&text, &n_text);

    assert_ok(progress_open(&p, f, PROGRESS_LIVE, 3, 0, 30, 10 * S));
    for (int cell = 0; cell < 3; cell++) {
        progress_cell(p, "a", 10, 10, (uint64_t)(now * S));
        for (size_t i = 0; i < 10; i++)
            for (int tick = 0; tick < 8; tick++) {
                double left;

                now += (cell + 1) * (i % 3 ? 0.2 : 0.5);
                progress_tick(p, i + (tick == 7), 0, (uint64_t)(now * S));
                fflush(f);
                left = last_left(text, &more);
                if (left >= 0 && left > shown)
                    fail_msg("at %g s: %g s left after %g s", now, left, shown);
                shown = left >= 0 ? left : shown;
                was_more |= more;
            }
        progress_cell_end(p);
    }
    assert_true(shown <= 1); /* and it ends where the run does */
    assert_true(was_more);
    stop(&p, f);
    free(text);
}

/* Cells of a tenth and nine tenths of the time, whatever their numbers of requests are. */
TEST(cells_have_weights)
{
    struct progress *p;
    FILE *f = open_memstream(&text, &n_text);

    assert_ok(progress_open(&p, f, PROGRESS_LIVE, 2, 0, 10, 10 * S));
    progress_cell(p, "fast", 50, 1, 10 * S);
    progress_tick(p, 50, 0, 15 * S);
    fflush(f);
    assert_non_null(strstr(text, "fast: 50/50 requests, 45 s left"));
    stop(&p, f);
    free(text);
}

TEST(elsewhere_one_line_a_minute)
{
    FILE *f;
    struct progress *p = start(&f, PROGRESS_MINUTE);
    int n_lines = 0;

    progress_cell(p, "a", 100, 100, 10 * S);
    for (uint64_t t = 10; t <= 200; t++)
        progress_tick(p, t / 2, 0, t * S);
    stop(&p, f);
    for (size_t i = 0; i < n_text; i++)
        n_lines += text[i] == '\n';
    assert_int_equal(n_lines, 3); /* at 70, 130 and 190 s */
    assert_null(strchr(text, '\r'));
    free(text);
}

TEST(quiet_says_nothing_but_logs)
{
    FILE *f;
    struct progress *p = start(&f, PROGRESS_QUIET);

    progress_note(p, "open", 11 * S);
    progress_cell(p, "a", 100, 100, 200 * S);
    progress_tick(p, 50, 0, 500 * S);
    fflush(f);
    assert_int_equal(n_text, 0);
    progress_log(p, LOG_ERROR, "broken");
    stop(&p, f);
    assert_string_equal(text, "error: broken\n");
    free(text);
}
