/* Machine cards: the shipped ones, their relations in the paper's tables, and bad files. */
#include "cluster/card.h"
#include "cluster/perf.h"
#include "tests/support/test.h"

#include <glob.h>
#include <math.h>

TEST(shipped)
{
    glob_t g;

    assert_int_equal(glob(CLUSTER_MACHINES_DIR "/*.json", 0, NULL, &g), 0);
    assert_true(g.gl_pathc >= 3);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        struct cluster_point points[8];
        struct cluster_card c;
        int n;

        assert_ok(cluster_card_read(&c, g.gl_pathv[i]));
        assert_ok(cluster_points_printed(points, &n, 8, c.printed));
    }
    globfree(&g);
}

/* Table I: 2.16 x the cost; Table V: 1.75 and 1.23 x the power. */
TEST(as_printed)
{
    struct cluster_card a, h, cap;

    assert_ok(cluster_card_read(&a, "dgx-a100"));
    assert_ok(cluster_card_read(&h, "dgx-h100"));
    assert_ok(cluster_card_read(&cap, "dgx-h100-capped"));
    assert_true(fabs(h.cost_per_hour_usd / a.cost_per_hour_usd - 2.16) < 0.005);
    assert_true(h.power / a.power == 1.75 && cap.power / a.power == 1.23);
    assert_true(h.link_gbps == 2 * a.link_gbps);
    assert_true(cap.token_time_factor == 1 && cap.prompt_time_factor > 1);
}

static int read_text(const char *text)
{
    struct cluster_card c;

    test_write(test_path("card.json"), text, strlen(text));
    return cluster_card_read(&c, test_path("card.json"));
}

TEST(bad_files)
{
    struct cluster_card c;

    assert_err(cluster_card_read(&c, "dgx-a1000"), ERR_NOTFOUND, "dgx-a1000");
    assert_err(read_text("{\"powr\": 1}"), ERR_FORMAT, "power");
    assert_err(read_text("{\"sources\": [], \"hardware\": \"h\", \"printed\": \"a100\"}"),
               ERR_FORMAT, "cost_per_hour_usd");
    assert_err(read_text("{\"sources\": [], \"hardware\": \"h\", \"printed\": \"a100\", "
                         "\"cost_per_hour_usd\": -1}"),
               ERR_FORMAT, "expected a number in [1e-06, 1e+06], found -1");
}
