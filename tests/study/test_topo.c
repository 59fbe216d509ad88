/* The studies of core selection: what they say agrees with itself, with hand-worked
 * counts, and on a machine whose rates were measured by others, with those. */
#include "tests/study/capture.h"

extern const struct study study_topo_tree, study_topo_plan, study_topo_search,
    study_topo_hidden_structure;

static void a_tree_is_counted_and_cut(void **state)
{
    (void)state;
    assert_ok(capture_run(&study_topo_tree, "{\"machine\": \"kunpeng920x4\", "
                                            "\"n_requests\": 1}"));
    assert_true(value_of("n_pus") == 192);
    assert_true(value_of("n_grouped") == 3 * 1 * 286); /* S(4) S(2) S(24) */
    assert_true(value_of("n_removes") == 4 * 2 * 24);
    assert_int_equal(length_of("cpus"), 192);
    assert_ok(capture_run(&study_topo_tree,
                          "{\"machine\": \"kunpeng920x4\", \"n_requests\": 1, "
                          "\"steps\": \"group(4,1,3)  remove(1,4)\"}"));
    assert_true(value_of("n_pus") == 144);
    assert_true(value_of("n_removes") == 4 * 2 * 6 * 3);
    /* 1, 4, 8, 48 and 144 ranks; 16 heads */
    assert_true(value_of("n_levels") == 5);
    assert_true(value_of("n_configs_strict") == 3);
}

static void steps_that_are_none_are_refused(void **state)
{
    (void)state;
    assert_err(capture_run(&study_topo_tree,
                           "{\"machine\": \"kunpeng920x4\", \"steps\": \"group(4,1)\"}"),
               ERR_ARG, "\"group(4,1)\"");
    assert_err(capture_run(&study_topo_tree,
                           "{\"machine\": \"kunpeng920x4\", \"steps\": \"remove(1,4)\"}"),
               ERR_ARG, "");
    assert_err(capture_run(&study_topo_tree, "{\"machine\": \"kunpeng\"}"), ERR_NOTFOUND,
               "kunpeng920x4");
    assert_err(capture_run(&study_topo_tree, "{\"machine\": \"no such.xml\"}"),
               ERR_NOTFOUND, "no such.xml");
    assert_err(capture_run(&study_topo_tree, "{\"machine\": \"xeon6230x2\", \"model\": "
                                             "\"lama-160m\"}"),
               ERR_NOTFOUND, "llama-160m");
}

/* The measured STREAM figures say so without knowing the paper. */
static void one_core_of_four_left_out_helps_on_kunpeng(void **state)
{
    static const char *const plans[] = {"all", "sc_rm group(4,1,3) remove(1,4)",
                                        "numa_rm remove(6,3)"};
    double gbps[3];
    char options[256];

    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(options, sizeof(options),
                 "{\"machine\": \"kunpeng920x4\", \"n_requests\": 20, \"plan\": \"%s\"}",
                 plans[i]);
        assert_ok(capture_run(&study_topo_plan, options));
        gbps[i] = value_of("stream_gbps");
        assert_true(value_of("request_s") > value_of("prefill_s"));
        assert_true(value_of("n_ranks") == 8);
    }
    assert_true(gbps[1] > gbps[0] && gbps[0] > gbps[2]);
}

static void nodes_can_be_chosen_and_ranks_asked_for(void **state)
{
    (void)state;
    assert_ok(capture_run(&study_topo_plan,
                          "{\"machine\": \"kunpeng920x4\", \"n_requests\": 20, "
                          "\"plan\": \"fast@0,2,4,6\"}"));
    assert_true(value_of("n_ranks") == 4 && value_of("kept_frac") == 0.5);
    assert_ok(capture_run(&study_topo_plan,
                          "{\"machine\": \"kunpeng920x4\", \"n_requests\": 20, "
                          "\"ranks\": 16}"));
    assert_true(value_of("n_ranks") == 16 && value_of("n_threads") == 12);
    assert_err(
        capture_run(&study_topo_plan, "{\"machine\": \"kunpeng920x4\", \"ranks\": 7}"),
        ERR_ARG, "7");
}

static void no_search_beats_the_best_there_is(void **state)
{
    static const char *const methods[] = {"whole",  "no_group",  "no_remove", "no_prune",
                                          "random", "all_cores", "even_split"};
    char options[256];

    (void)state;
    for (int i = 0; i < 7; i++) {
        snprintf(options, sizeof(options),
                 "{\"machine\": \"synthetic:package:2 core:8 pu:1\", \"model\": "
                 "\"llama-160m\", \"n_requests\": 20, \"exhaustive\": true, "
                 "\"method\": \"%s\"}",
                 methods[i]);
        assert_ok(capture_run(&study_topo_search, options));
        assert_true(value_of("gap_frac") > -1e-12);
        if (i == 0)
            assert_true(value_of("gap_frac") < 0.03);
        assert_true(value_of("kept_frac") > 0 && value_of("kept_frac") <= 1);
        assert_true((value_of("n_measurements") > 0) == (i < 5));
        assert_string_equal(note_of("rates"), "assumed");
    }
}

static void what_is_hidden_is_judged_by_the_machine_params(void **state)
{
    const struct study *former;

    (void)state;
    assert_ok(capture_run(&study_topo_hidden_structure,
                          "{\"machine\": \"random:0\", \"seed\": 3}"));
    assert_true(value_of("false_cluster") == value_of("latent"));
    assert_true(isnan(value_of("kept_frac")));
    assert_true(value_of("gap_frac") > -1e-12);
    assert_ok(capture_run(&study_topo_hidden_structure,
                          "{\"machine\": \"kunpeng920x4\", \"n_requests\": 20}"));
    assert_true(isnan(value_of("false_cluster")));
    /* all plans there treat the clusters alike */
    assert_true(value_of("best_kept_frac") == 0.75);
    assert_true(value_of("kept_frac_min") <= value_of("kept_frac"));
    assert_true(value_of("kept_frac") <= value_of("kept_frac_max"));
    assert_true(value_of("gain_of_groups") > 0);
    assert_err(capture_run(&study_topo_hidden_structure, "{\"machine\": \"kunpeng\"}"),
               ERR_NOTFOUND, "kunpeng920x4");
    assert_err(study_find("topo_truth", &former), ERR_NOTFOUND, "\"machine\"");
    assert_err(capture_run(&study_topo_hidden_structure, "{\"machine\": \"random:-1\"}"),
               ERR_ARG, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_is_counted_and_cut),
        cmocka_unit_test(steps_that_are_none_are_refused),
        cmocka_unit_test(one_core_of_four_left_out_helps_on_kunpeng),
        cmocka_unit_test(nodes_can_be_chosen_and_ranks_asked_for),
        cmocka_unit_test(no_search_beats_the_best_there_is),
        cmocka_unit_test(what_is_hidden_is_judged_by_the_machine_params),
    };

    return cmocka_run_group_tests_name("study/topo", tests, NULL, capture_end);
}
