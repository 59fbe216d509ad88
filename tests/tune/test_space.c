/* Which schedules there are: the limit of parallelizability, micro-kernels, schemes, and
 * that whatever is drawn can be run. */
#include "tests/tune/bench_model.h"

#include "tune/space.h"

/* Sandwich 6: for (M, N, K) = (128, 64, 64) and two threads the slice is limited to
 * (64, 32, 32). */
TEST(the_papers_example)
{
    const int64_t dim[] = {128, 64, 64};
    int64_t limit[TUNE_N_DIMS];

    tune_slice_limit(dim, 2, limit);
    assert_int_equal(limit[TUNE_M], 64);
    assert_int_equal(limit[TUNE_N], 32);
    assert_int_equal(limit[TUNE_K], 32);
    tune_slice_limit(dim, 1, limit);
    assert_int_equal(limit[TUNE_M], 128);
    tune_slice_limit(dim, 1000, limit);
    assert_int_equal(limit[TUNE_K], 1);
}

TEST(literal_and_product_limits)
{
    static const struct {
        int64_t b[TUNE_N_DIMS];
        bool literal, product, product_k;
    } rows[] = {
        {{64, 32, 32}, true, true, true},    {{64, 64, 64}, false, true, true},
        {{65, 32, 32}, false, true, true},   {{128, 64, 64}, false, false, false},
        {{128, 64, 32}, false, false, true}, {{128, 32, 64}, false, true, true},
        {{1, 1, 1}, true, true, true},
    };
    const int64_t dim[] = {128, 64, 64};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(tune_slice_parallel(dim, rows[i].b, 2, true, false),
                         rows[i].literal);
        assert_int_equal(tune_slice_parallel(dim, rows[i].b, 2, false, false),
                         rows[i].product);
        assert_int_equal(tune_slice_parallel(dim, rows[i].b, 2, false, true),
                         rows[i].product_k);
    }
}

TEST(micro_kernels_are_distinct_programs)
{
    struct tune_mk mk[TUNE_MKS_MAX];

    for (int64_t m = 1; m <= 512; m = m < 40 ? m + 1 : m * 2) {
        int n = tune_mks(&bench_model_mks, m, mk);

        assert_in_range(n, 1, TUNE_MKS_MAX);
        for (int i = 0; i < n; i++) {
            int most = kern_gemm_rows(&bench_model_mks, mk[i].np);

            assert_in_range(mk[i].mr, 1, most);
            /* the tallest of those that cut m rows the same way */
            assert_true(mk[i].mr == most ||
                        kern_a_blocks(m, mk[i].mr + 1) < kern_a_blocks(m, mk[i].mr));
            for (int k = 0; k < i; k++) {
                assert_false(mk[k].np == mk[i].np &&
                             kern_a_blocks(m, mk[k].mr) == kern_a_blocks(m, mk[i].mr));
                assert_true(mk[k].mr * mk[k].np >= mk[i].mr * mk[i].np);
            }
        }
    }
    assert_int_equal(tune_mks(&bench_model_mks, 1, mk), 8); /* one a width */
}

TEST(schemes_are_all_factorings)
{
    for (int n = 1; n <= 64; n++) {
        struct tune_scheme x[TUNE_SCHEMES_MAX];
        int n_all = tune_schemes(n, true, x), n_want = 0, n_flat = 0;

        for (int a = 1; a <= n; a++)
            for (int b = 1; b <= n; b++)
                n_want += n % (a * b) == 0;
        assert_int_equal(n_all, n_want);
        for (int i = 0; i < n_all; i++) {
            assert_int_equal(x[i].pm * x[i].pn * x[i].pk, n);
            n_flat += x[i].pk == 1;
            for (int k = 0; k < i; k++)
                assert_false(x[k].pm == x[i].pm && x[k].pn == x[i].pn);
        }
        assert_int_equal(tune_schemes(n, false, x), n_flat);
    }
}

static struct tune_shape draw_shape(struct rng *r)
{
    struct tune_shape s = {.v = &bench_model_mks,
                           .m = 1 + (int64_t)rng_below(r, 600),
                           .n = 1 + (int64_t)rng_below(r, 3000),
                           .k = 1 + (int64_t)rng_below(r, 3000)};

    if (rng_below(r, 2) && s.k > 4)
        s.k_unit = 2 + (int64_t)rng_below(r, (uint64_t)s.k / 2) / 2 * 2;
    return s;
}

/* What is drawn or changed is refused only for threads that would have nothing to do. */
TEST(what_is_drawn_is_legal)
{
    int n_legal = 0, n_all = 20000;
    struct rng rng;

    rng_init(&rng, test_seed(), "space");
    for (int i = 0; i < n_all; i++) {
        struct tune_shape shape = draw_shape(&rng);
        int n_threads = 1 + (int)rng_below(&rng, 12);
        struct kern_schedule s, again;
        struct kern_mat w;

        kern_mat_layout(&w, KERN_F32, shape.n, shape.k, shape.k_unit);
        tune_random(&s, &shape, &w, n_threads, true, &rng);
        for (int k = 0; k < 3; k++) {
            int rc = kern_schedule_check(&s, shape.v, &w, shape.m, n_threads);

            if (rc != OK && !strstr(err_msg(), "threads along"))
                fail_msg("seed %llu, draw %d: %s", (unsigned long long)test_seed(), i,
                         err_msg());
            n_legal += rc == OK;
            again = s; /* clamping what is clamped changes nothing */
            tune_clamp(&again, &w, shape.m);
            assert_true(tune_same(&again, &s));
            for (int d = 0; d < TUNE_N_DIMS; d++)
                assert_in_range(*tune_extent(&s, (enum tune_dim)d), 1,
                                tune_part(&s, &w, shape.m, (enum tune_dim)d));
            tune_mutate(&s, &shape, &w, n_threads, true, &rng);
        }
    }
    assert_true(n_legal > n_all); /* of three times as many */
}

TEST(clamped_all_is_the_part)
{
    const struct tune_shape shape = {
        .v = &bench_model_mks, .m = 100, .n = 320, .k = 640, .k_unit = 64};
    struct kern_schedule s = {.mr = 14,
                              .np = 2,
                              .bm = KERN_ALL,
                              .bn = KERN_ALL,
                              .bk = KERN_ALL,
                              .pm = 2,
                              .pn = 2,
                              .pk = 2};
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, shape.n, shape.k, shape.k_unit);
    tune_clamp(&s, &w, shape.m);
    assert_int_equal(s.bm, 56);  /* 4 of 8 blocks */
    assert_int_equal(s.bn, 10);  /* of 20 panels */
    assert_int_equal(s.bk, 320); /* 5 of 10 units */
    s.bk = 65;
    s.bn = 3;
    s.bm = 15;
    tune_clamp(&s, &w, shape.m);
    assert_int_equal(s.bm, 28);
    assert_int_equal(s.bn, 4);
    assert_int_equal(s.bk, 128);
}
