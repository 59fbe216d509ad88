/* graph_rewrite: the passes leave the same of every spelling, and never more than there was. */
#include "tests/study/capture.h"

extern const struct study study_graph_rewrite;

static double nodes(const char *norm, const char *passes)
{
    assert_ok(capture_run(&study_graph_rewrite,
                          "{\"norm\": \"%s\", \"passes\": \"%s\", \"n_layers\": 2}", norm,
                          passes));
    return value_of("n_nodes");
}

TEST(spellings_end_alike)
{
    static const char *const norms[] = {"division", "reciprocal", "power"};

    for (int i = 0; i < 3; i++) {
        double file = nodes(norms[i], "none"), before = file;
        double bytes = value_of("activation_mb");

        assert_true(value_of("nodes_left_frac") == 1 && value_of("n_copies") == 10);
        assert_true(nodes(norms[i], "fold") < before);
        before = value_of("n_nodes");
        assert_true(value_of("activation_mb") == bytes); /* sizes are no activations */
        assert_true(nodes(norms[i], "fold,merge,fuse_norm") < before);
        before = value_of("n_nodes");
        assert_true(nodes(norms[i], "all") < before);
        assert_true(value_of("n_nodes") == nodes("division", "all"));
        assert_true(value_of("n_copies") == 8 && value_of("activation_mb") < bytes);
        assert_true(fabs(value_of("nodes_left_frac") * nodes("division", "none") -
                         nodes("division", "all")) < 1e-6 * file);
    }
    /* An offset for each of the five normalisations. */
    assert_true(nodes("layer_norm", "all") == nodes("division", "all") + 5);
}

TEST(an_unknown_pass_is_named)
{
    int rc = capture_run(&study_graph_rewrite, "{\"passes\": \"fold,fuse\"}");

    assert_int_equal(rc, ERR_ARG);
    assert_non_null(strstr(err_msg(), "no pass \"fuse\""));
}

TEST_GROUP(NULL, capture_end);
