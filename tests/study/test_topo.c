/* The studies of core selection: hand-worked counts, refusals, and answers that other code
 * computes. Tests named regression_ only repeat what the simulator gives; they show that it did
 * not change, not that it is right. */
#include "tests/study/capture.h"

#include "simulate/random_machine.h"

extern const struct study study_topo_tree, study_topo_plan, study_topo_search,
    study_topo_hidden_structure;

TEST(a_tree_is_counted_and_cut)
{
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

/* The search is told nothing of the clusters, and has the paper's tree all the same. */
TEST(the_tree_may_be_found)
{
    assert_ok(capture_run(&study_topo_tree,
                          "{\"machine\": \"kunpeng920x4\", \"steps\": \"found\", "
                          "\"sections\": \"8x18 48x3 7x7\"}"));
    assert_true(value_of("n_pus") == 144);
    assert_true(value_of("n_sections") == 2);
    assert_err(capture_run(&study_topo_tree,
                           "{\"machine\": \"kunpeng920x4\", \"sections\": \"8y18\"}"),
               ERR_ARG, "expected RANKSxTHREADS");
}

TEST(steps_that_are_none_are_refused)
{
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

/* A regression test: this is what the simulator gives with the shipped rates. That the rates
 * give the measured figures is tested in simulate/test_contention_rates. */
TEST(regression_one_core_of_four_left_out_helps_on_kunpeng)
{
    static const char *const plans[] = {"all", "sc_rm group(4,1,3) remove(1,4)",
                                        "numa_rm remove(6,3)"};
    double gbps[3];

    for (int i = 0; i < 3; i++) {
        assert_ok(capture_run(
            &study_topo_plan,
            "{\"machine\": \"kunpeng920x4\", \"n_requests\": 20, \"plan\": \"%s\"}",
            plans[i]));
        gbps[i] = value_of("stream_gbps");
        assert_true(value_of("request_s") > value_of("prefill_s"));
        assert_true(value_of("n_ranks") == 8);
    }
    assert_true(gbps[1] > gbps[0] && gbps[0] > gbps[2]);
}

TEST(nodes_can_be_chosen_and_ranks_asked_for)
{
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

TEST(no_search_beats_the_best_there_is)
{
    static const char *const methods[] = {"whole",  "no_group",  "no_remove", "no_prune",
                                          "random", "all_cores", "even_split"};

    for (int i = 0; i < 7; i++) {
        assert_ok(
            capture_run(&study_topo_search,
                        "{\"machine\": \"synthetic:package:2 core:8 pu:1\", \"model\": "
                        "\"llama-160m\", \"n_requests\": 20, \"exhaustive\": true, "
                        "\"method\": \"%s\"}",
                        methods[i]));
        assert_true(value_of("gap_frac") > -1e-12);
        if (i == 0)
            assert_true(value_of("gap_frac") < 0.03);
        assert_true(value_of("kept_frac") > 0 && value_of("kept_frac") <= 1);
        assert_true((value_of("n_measurements") > 0) == (i < 5));
        assert_string_equal(note_of("rates"), "assumed");
    }
}

TEST(what_is_hidden_is_judged_by_the_machine_params)
{
    const struct study *former;

    assert_ok(capture_run(&study_topo_hidden_structure,
                          "{\"machine\": \"tiled:0\", \"max_cores\": 12, \"seed\": 3}"));
    assert_true(value_of("false_cluster") == value_of("latent"));
    assert_true(isnan(value_of("kept_frac")));
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
    assert_err(capture_run(&study_topo_hidden_structure, "{\"machine\": \"tiled:-1\"}"),
               ERR_ARG, "");
    assert_err(capture_run(&study_topo_hidden_structure, "{\"machine\": \"links:x\"}"),
               ERR_ARG, "links:FRACTION");
}

/* Of every kind: no plan is faster than the best known, random trees have the search's budget,
 * and the same seed gives the same numbers. */
TEST(every_kind_is_judged)
{
    static const char *const ways[] = {"",
                                       "_trees",
                                       "_no_group",
                                       "_random",
                                       "_paper",
                                       "_paper_patience_1",
                                       "_paper_patience_3",
                                       "_paper_patience_10",
                                       "_paper_patience_30",
                                       "_paper_margin_2",
                                       "_paper_margin_2_patience_1",
                                       "_paper_margin_2_patience_3",
                                       "_paper_margin_2_patience_10",
                                       "_paper_margin_2_patience_30",
                                       "_all_cores",
                                       "_one_rank_per_node"};
    char name[64];

    for (int kind = 0; kind < SIMULATE_N_HIDDEN; kind++) {
        double found;

        assert_ok(capture_run(&study_topo_hidden_structure,
                              "{\"machine\": \"%s:0.4\", \"max_cores\": 8, \"seed\": %d}",
                              simulate_hidden_names[kind], 5 + kind));
        found = value_of("step_s");
        assert_true(value_of("best_s") <= value_of("best_of_trees_s"));
        assert_true(value_of("best_of_trees_s") <=
                    value_of("step_s_trees") * (1 + 1e-12));
        for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
            double step_s, best_s = value_of("best_s");

            snprintf(name, sizeof(name), "step_s%s", ways[w]);
            step_s = value_of(name);
            snprintf(name, sizeof(name), "within_2pct%s", ways[w]);
            assert_true(step_s >= best_s * (1 - 1e-12));
            assert_true((step_s <= 1.02 * best_s) == (value_of(name) == 1));
        }
        assert_true(value_of("n_measurements_random") <= value_of("n_measurements"));
        /* a group that is discarded after one miss is measured no further */
        assert_true(value_of("n_measurements_paper_patience_1") <
                    value_of("n_measurements_paper"));
        assert_true(value_of("noise_frac") > 0);
        assert_ok(capture_run(&study_topo_hidden_structure,
                              "{\"machine\": \"%s:0.4\", \"max_cores\": 8, \"seed\": %d}",
                              simulate_hidden_names[kind], 5 + kind));
        assert_true(value_of("step_s") == found);
    }
}

/* Shares over all alternatives add up to 1, but for ties; without nodes assumed slow, the fast ones
 * are as good as the slow ones. */
TEST(a_plan_is_priced_with_the_uncertainty_of_the_fit)
{
    static const char alternatives[] =
        "all|sc_rm group(4,1,3) remove(1,4)|numa_rm remove(6,3)";
    static const char *const plans[] = {"all", "sc_rm group(4,1,3) remove(1,4)",
                                        "numa_rm remove(6,3)", "fast@0,2,4,6",
                                        "slow@1,3,5,7"};
    double sum = 0, request_s[5];

    for (int i = 0; i < 5; i++) {
        assert_ok(capture_run(
            &study_topo_plan,
            "{\"machine\": \"kunpeng920x4\", \"n_requests\": 20, \"n_bootstrap\": "
            "20, \"equal_nodes\": true, \"plan\": \"%s\", \"alternatives\": \"%s\"}",
            plans[i], alternatives));
        assert_true(captured("request_s")->lo < captured("request_s")->hi);
        assert_int_equal(length_of("request_s_draws"), 20);
        sum += i < 3 ? value_of("p_best") : 0;
        request_s[i] = value_of("request_s");
    }
    assert_true(fabs(sum - 1) < 1e-12);
    assert_true(fabs(request_s[3] / request_s[4] - 1) < 1e-9);
    assert_err(capture_run(&study_topo_plan,
                           "{\"machine\": \"xeon6230x2\", \"n_bootstrap\": 5}"),
               ERR_ARG, "only kunpeng920x4");
}

TEST_GROUP(NULL, capture_end);
