/* Runs that are drawn from a run's requests, by hand: when the next request comes, where each block
 * is put, and what stays as it is. */
#include "tests/metrics/rows.h"

#include "experiments/metrics/bootstrap.h"

static void open_rows(struct compare_resampler *s, const struct metrics_row *rows,
                      size_t n)
{
    const struct compare_run run = {.rows = rows, .n_rows = n};

    compare_resampler_open(s, &run);
}

/* From one to the next; the last's is what it took, or where requests overlapped the mean. */
TEST(times_to_the_next)
{
    const int64_t t[] = {10 * MS, 25 * MS, 37 * MS};
    struct metrics_row r[] = {row_at(0, 1 * MS, &t[0], 1),
                              row_at(9 * MS, 10 * MS, &t[1], 1),
                              row_at(30 * MS, 30 * MS, &t[2], 1)};
    struct compare_resampler s;

    for (size_t n = 0; n <= 3; n++) { /* each begins when the one before has ended */
        static const int64_t want[4][3] = {
            {0}, {10 * MS}, {9 * MS, 16 * MS}, {9 * MS, 21 * MS, 7 * MS}};

        open_rows(&s, r, n);
        assert_int_equal(s.n, n);
        assert_memory_equal(s.gap_ns, want[n], n * sizeof(int64_t));
        compare_resampler_close(&s);
    }
    r[1].dispatch_ns--; /* a moment too early */
    for (size_t n = 2; n <= 3; n++) {
        open_rows(&s, r, n);
        assert_int_equal(s.gap_ns[n - 1], n == 2 ? 9 * MS : 15 * MS);
        compare_resampler_close(&s);
    }
    r[1].dispatch_ns++;
    r[2].dispatch_ns = 24 * MS; /* the last two */
    open_rows(&s, r, 3);
    assert_int_equal(s.gap_ns[2], 15 * MS);
    compare_resampler_close(&s);
    r[0].warmup = r[1].warmup = r[2].warmup = true;
    open_rows(&s, r, 3);
    assert_int_equal(s.n, 0);
    compare_resampler_close(&s);
    r[1].warmup = r[2].warmup = false; /* only what is at the beginning is left out */
    open_rows(&s, r, 3);
    assert_true(s.n == 2 && s.rows == r + 1);
    compare_resampler_close(&s);
}

/* Blocks of two of five requests, of which the last block goes on at the beginning. */
TEST(blocks_are_put_in_a_row)
{
    static const size_t starts[] = {3, 4, 1}, from[] = {3, 4, 4, 0, 1};
    int64_t t[5][2], at = 0;
    struct metrics_row r[5];
    struct compare_resampler s;
    double v;

    for (int i = 0; i < 5; i++) {
        int64_t begin = i * i * 100 * MS + 7 * MS;

        t[i][0] = begin + (i + 2) * MS;
        t[i][1] = begin + (2 * i + 5) * MS;
        r[i] = row_at(begin, begin + MS, t[i], 2);
        r[i].n_prompt_tok = i;
    }
    r[4] = row_at(1607 * MS, METRICS_NEVER, NULL, 0); /* never sent */
    r[4].status = METRICS_REJECTED;
    r[4].done_ns = r[4].intended_ns;
    r[4].n_prompt_tok = 4;
    open_rows(&s, r, 5);
    assert_ok(compare_resample(&s, "n_completed", 2, starts, &v));
    assert_near(v, 3, 0);
    for (size_t k = 0; k < 5; k++) {
        const struct metrics_row *d = &s.drawn[k], *was = &r[from[k]];
        int64_t by = at - was->intended_ns;

        assert_int_equal(d->n_prompt_tok, from[k]);
        assert_int_equal(d->intended_ns, at);
        assert_int_equal(d->done_ns, was->done_ns + by);
        assert_true(from[k] == 4 ? d->dispatch_ns == METRICS_NEVER &&
                                       d->first_token_ns == METRICS_NEVER
                                 : d->dispatch_ns == at + MS &&
                                       d->first_token_ns == was->first_token_ns + by);
        for (int64_t i = 0; i < d->n_tok; i++)
            assert_int_equal(d->token_ns[i], was->token_ns[i] + by);
        at += from[k] == 4
                  ? 400 * MS /* the mean: who was never sent found others there */
                  : r[from[k] + 1].intended_ns - was->intended_ns;
    }
    compare_resampler_close(&s);
    assert_int_equal(mem_used_bytes(MEM_HARNESS), 0);
}

/* There is room for as many tokens as a run can have that is all of the longest request. */
TEST(room_for_the_longest)
{
    enum { N = 400, N_TOK = 500 };
    static int64_t t[N_TOK];
    static size_t starts[N];
    struct metrics_row r[N];
    struct compare_resampler s;
    double v;

    for (int i = 0; i < N_TOK; i++)
        t[i] = (i + 1) * MS;
    for (int i = 0; i < N; i++)
        r[i] = row_at(0, 0, t, i == N - 1 ? N_TOK : 1);
    for (int i = 0; i < N; i++)
        starts[i] = N - 1;
    open_rows(&s, r, N);
    assert_ok(compare_resample(&s, "output_tok", 1, starts, &v));
    assert_near(v, N * N_TOK, 0);
    compare_resampler_close(&s);
}
