/* Performance models: interpolation, repeats, missing power, bad files, and the error on points
 * that were not fitted. */
#include "base/mem.h"
#include "cluster/perf.h"
#include "tests/support/test.h"

#include <math.h>

#define HEADER                                                                           \
    "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,"         \
    "prompt_time,token_time,e2e_time,tensor_parallel\n"

static struct cluster_point points[64];
static int n_points;

static int read_text(const char *text)
{
    test_write(test_path("points.csv"), text, strlen(text));
    return cluster_points_read(points, &n_points, 64, test_path("points.csv"), "m", "h",
                               8);
}

TEST(repeats_are_one_point)
{
    assert_ok(read_text(HEADER "m,h,512,1,128,1,0.5,10,3,0,8\n"
                               "m,h,512,1,128,1,0.7,30,5,0,8\n"
                               "m,h,512,1,128,1,0.6,20,4,0,8\n"
                               "m,h,512,1,128,1,0.6,99,99,0,4\n"
                               "m,x,512,1,128,1,0.6,99,99,0,8\n"
                               "m,h,512,2,128,0.0,0.0,40,5,0,8"));
    assert_int_equal(n_points, 2);
    assert_true(points[0].prompt_ms == 20 && points[0].token_ms == 4);
    assert_true(points[0].power == 0.6 && isnan(points[1].power));
}

TEST(bad_files)
{
    assert_err(read_text("model,hardware\n"), ERR_FORMAT, "prompt_size");
    assert_err(read_text(HEADER "m,h,512,1\n"), ERR_FORMAT, ":2: expected 11 fields");
    assert_err(read_text(HEADER "m,h,512,1,128,1,1,ten,3,0,8\n"), ERR_FORMAT,
               ":2: prompt_time: expected a number");
    assert_err(read_text(HEADER "m,h,512,1,128,1,1,-1,3,0,8\n"), ERR_FORMAT, "\"-1\"");
    assert_err(read_text(HEADER "m,h,512,1,128,1,1,1,3,0,2\n"), ERR_NOTFOUND,
               "tensor_parallel 8");
    assert_err(read_text(""), ERR_FORMAT, "header");
    assert_err(cluster_points_read(points, &n_points, 64, "/nowhere", "m", "h", 8),
               ERR_NOTFOUND, "/nowhere");
}

/* Without a configuration to choose, and with numbers that were not measured. */
TEST(profiles_of_one_machine)
{
    static const char text[] =
        "token_time,prompt_time,batch_size,prompt_size,token_size\n"
        "3,,4,64,8\n,20,4,64,8\n5,,4,64,8\n";
    struct cluster_point *rows;

    test_write(test_path("profile.csv"), text, strlen(text));
    assert_ok(
        cluster_rows_read(&rows, &n_points, test_path("profile.csv"), NULL, NULL, 0));
    assert_int_equal(n_points, 3);
    assert_true(isnan(rows[0].prompt_ms) && isnan(rows[1].token_ms) &&
                isnan(rows[0].e2e_ms));
    cluster_points_join(rows, &n_points);
    assert_int_equal(n_points, 1);
    assert_true(rows[0].prompt_ms == 20 && rows[0].token_ms == 4 && isnan(rows[0].power));
    mem_free(rows);
    assert_err(
        cluster_rows_read(&rows, &n_points, test_path("profile.csv"), "m", NULL, 0),
        ERR_FORMAT, "\"model\"");
    assert_null(rows);
    assert_err(cluster_points_read(points, &n_points, 0, test_path("profile.csv"), NULL,
                                   NULL, 0),
               ERR_LIMIT, "1 distinct points, more than 0");
}

/* What the file holds, as its description says: 19 settings of each of 8 configurations, and power
 * of 11 of them on the A100 only. */
TEST(the_published_file)
{
    static const struct {
        const char *model, *hardware;
        int tensor_parallel;
    } all[] = {{"llama2-70b", "a100-80gb", 2}, {"llama2-70b", "h100-80gb", 2},
               {"llama2-70b", "a100-80gb", 4}, {"llama2-70b", "h100-80gb", 4},
               {"llama2-70b", "a100-80gb", 8}, {"llama2-70b", "h100-80gb", 8},
               {"bloom-176b", "a100-80gb", 8}, {"bloom-176b", "h100-80gb", 8}};
    const char *path = test_need_data("splitwise_perf/perf_model.csv");

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int n_rows, n_power = 0;
        struct cluster_point *rows;

        assert_ok(cluster_rows_read(&rows, &n_rows, path, all[i].model, all[i].hardware,
                                    all[i].tensor_parallel));
        mem_free(rows);
        assert_ok(cluster_points_read(points, &n_points, 19, path, all[i].model,
                                      all[i].hardware, all[i].tensor_parallel));
        assert_int_equal(n_rows, 105);
        assert_int_equal(n_points, 19);
        for (int k = 0; k < n_points; k++) {
            assert_true(points[k].prompt_ms > 0 && points[k].token_ms > 0 &&
                        points[k].e2e_ms > 0);
            assert_int_equal(isnan(points[k].power), isnan(points[k].power_most));
            n_power += !isnan(points[k].power);
        }
        assert_int_equal(n_power, all[i].hardware[0] == 'a' ? 11 : 0);
    }
    assert_int_equal(points[0].prompt_tok, 512);
    assert_true(fabs(points[0].prompt_ms - 75.491) < 0.001); /* of 15 repeats */
}

TEST(linear_between_and_beyond)
{
    static const double x[] = {1, 2, 4}, y[] = {10, 20, 30};

    assert_true(cluster_interpolate(x, y, 3, 1.5) == 15);
    assert_true(cluster_interpolate(x, y, 3, 3) == 25);
    assert_true(cluster_interpolate(x, y, 3, 8) == 50);
    assert_true(cluster_interpolate(x, y, 3, -5) == 0);
    assert_true(cluster_interpolate(x, y, 1, 9) == 10);
}

/* distserve finds the weights of its own form. */
TEST(distserve_fits_its_form)
{
    const struct cluster_perf_kind *kind;
    struct cluster_perf perf = {0};
    struct cluster_point p[30];

    for (int i = 0; i < 30; i++) {
        double l = 100 + 130 * i, b = 1 + i % 7;

        p[i] = (struct cluster_point){.prompt_tok = (int64_t)l,
                                      .batch = (int64_t)b,
                                      .prompt_ms = 20 + 0.05 * b * l + 1e-6 * b * l * l,
                                      .token_ms = 30 + 1e-4 * b * l + 0.5 * b};
    }
    assert_ok(cluster_perf_find("distserve", &kind));
    perf.kind = kind;
    assert_ok(kind->fit(&perf, p, 30));
    assert_true(fabs(kind->prompt_ms(&perf, 3000, 3000 * 3000.0) - 179) < 0.1);
    assert_true(fabs(kind->token_ms(&perf, 64, 64000) - 68.4) < 0.1);
    assert_err(kind->fit(&perf, p, 2), ERR_ARG, "at least three");
}

/* A profile of a machine whose token step is not linear in the batch: exact at measured
 * batches for any context, and for prompts of any number. */
TEST(host_fits_a_profile)
{
    static const int64_t batches[] = {1, 2, 4, 8, 16}, lengths[] = {64, 128, 256, 512};
    static const double step_ms[] = {10, 10.5, 12, 19, 37}, ctx_ms[] = {1, 2, 4, 8, 16};
    const struct cluster_perf_kind *kind;
    struct cluster_perf perf = {0};
    struct cluster_point p[20];

    for (int i = 0; i < 20; i++) {
        double b = (double)batches[i / 4], l = (double)lengths[i % 4];

        p[i] =
            (struct cluster_point){.prompt_tok = lengths[i % 4],
                                   .batch = batches[i / 4],
                                   .prompt_ms = 5 + 0.3 * b * l + 1e-4 * b * l * l,
                                   .token_ms = step_ms[i / 4] + 1e-3 * ctx_ms[i / 4] * l};
    }
    assert_ok(cluster_perf_find("host", &kind));
    perf.kind = kind;
    assert_ok(kind->fit(&perf, p, 20));
    for (int i = 0; i < 5; i++) {
        double b = (double)batches[i];

        assert_true(fabs(kind->token_ms(&perf, b, b * 1000) - step_ms[i] - ctx_ms[i]) <
                    1e-6);
    }
    assert_true(fabs(kind->token_ms(&perf, 12, 0) - 28) < 1e-6); /* between 8 and 16 */
    assert_true(fabs(kind->prompt_ms(&perf, 700, 700 * 700.) - 264) < 1e-6);
    assert_true(fabs(kind->prompt_ms(&perf, 700, 7 * 100 * 100.) - 222) < 1e-6);
    assert_err(kind->fit(&perf, p, 1), ERR_ARG, "one context of batch 1");
    p[1].token_ms = NAN;
    assert_err(kind->fit(&perf, p + 1, 1), ERR_ARG, "1 lengths of prompts and 0 batches");
}

TEST(printed_numbers)
{
    const struct cluster_perf_kind *kind;
    struct cluster_perf a = {0}, h = {0};
    struct cluster_work w = {.n_prompt_tok = 1020}, d = {.n_decode = 64};

    assert_ok(cluster_perf_find("table", &kind));
    a.kind = h.kind = kind;
    assert_ok(cluster_points_printed(points, &n_points, 64, "a100"));
    assert_ok(kind->fit(&a, points, n_points));
    assert_ok(cluster_points_printed(points, &n_points, 64, "h100"));
    assert_ok(kind->fit(&h, points, n_points));
    assert_int_equal(cluster_perf_step_ns(&a, &w), 155000000);
    assert_int_equal(cluster_perf_step_ns(&h, &w), 84000000);
    assert_int_equal(cluster_perf_step_ns(&h, &d), 56000000);
    assert_err(cluster_points_printed(points, &n_points, 64, "h200"), ERR_NOTFOUND,
               "h100");
    assert_err(cluster_perf_find("tabel", &kind), ERR_NOTFOUND, "table");
}
