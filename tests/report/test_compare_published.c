/* A record and the published one: which numbers agree, what depends on the machine, and the verdict
 * that follows. */
#include "tests/support/fixture.h"

#include "experiments/report/compare_published.h"

#define MARGIN  0.05
#define SAME    COMPARE_REPEAT_SAME
#define DIFFERS COMPARE_REPEAT_DIFFERS
#define OTHER   COMPARE_REPEAT_OTHER_MACHINE

/* {"value": v, "lo", "hi", "evidence"}; lo = hi: it has no interval. NaN: missing. */
static json_t *number(double v, double lo, double hi, const char *evidence)
{
    json_t *n = json_pack("{s:s}", "evidence", evidence);

    json_object_set_new(n, "value", isnan(v) ? json_null() : json_real(v));
    if (lo < hi) {
        json_object_set_new(n, "lo", json_real(lo));
        json_object_set_new(n, "hi", json_real(hi));
    }
    return n;
}

static json_t *head(const char *cpu, const char *published, json_t *number)
{
    json_t *h = json_pack("{s:s s:{s:s s:i s:s} s:{s:s s:s} s:{} s:{s:o}}", "evidence",
                          "measured", "run", "cpu_model", cpu, "n_cpus", 2, "evidence",
                          "measured", "cpu", "family", "6", "model", "1", "warnings",
                          "headline", "x", number);

    assert_non_null(h);
    if (published)
        json_object_set_new(h, "published", json_string(published));
    return h;
}

#define FOLDER "a-cpu-family-6-model-1-2-cpus" /* of "A CPU" */

static struct compare_heads compare(json_t *own, json_t *published)
{
    struct compare_heads out;

    compare_heads(&out, own, published, MARGIN);
    json_decref(own);
    json_decref(published);
    return out;
}

/* The verdict on one number. */
static enum compare_repeat verdict(const char *cpu, json_t *own, json_t *published)
{
    const struct compare_heads c =
        compare(head(cpu, NULL, own), head("A CPU", FOLDER, published));

    assert_int_equal(c.n_agree + c.n_differ, 1);
    assert_int_equal(c.n_agree, c.verdict == SAME);
    assert_int_equal(c.farthest[0] == 0, c.verdict == SAME);
    return c.verdict;
}

TEST(intervals_and_the_margin_decide)
{
    static const struct {
        double own[3], published[3]; /* value, ends of its interval */
        const char *evidence;
        enum compare_repeat here, elsewhere;
    } cases[] = {
        /* the intervals have a value in common, or have none */
        {{1, .8, 1.2}, {1.4, 1.1, 1.7}, "measured", SAME, SAME},
        {{1, .8, 1.2}, {1.4, 1.3, 1.7}, "measured", DIFFERS, OTHER},
        {{1.4, 1.3, 1.7}, {1, .8, 1.2}, "measured", DIFFERS, OTHER},
        {{1, .8, 1.2}, {1.4, 1.3, 1.7}, "simulated", DIFFERS, DIFFERS},
        {{1, .8, 1.2}, {1.19, 0, 0}, "simulated", SAME, SAME},
        {{1, .8, 1.2}, {1.21, 0, 0}, "simulated", DIFFERS, DIFFERS},
        /* without intervals the margin is for what is measured */
        {{100, 0, 0}, {96, 0, 0}, "measured", SAME, SAME},
        {{100, 0, 0}, {94, 0, 0}, "measured", DIFFERS, OTHER},
        {{94, 0, 0}, {100, 0, 0}, "measured_small, simulated", DIFFERS, OTHER},
        {{100, 0, 0}, {99.9, 0, 0}, "model", DIFFERS, DIFFERS},
        {{100, 0, 0}, {100.00001, 0, 0}, "model", SAME, SAME},
        {{100, 99, 101}, {96.5, 96, 97}, "measured", SAME, SAME},
        /* signs and nothing */
        {{1, 0, 0}, {-1, 0, 0}, "measured", DIFFERS, OTHER},
        {{0, 0, 0}, {0, 0, 0}, "published", SAME, SAME},
        {{0, 0, 0}, {1, 0, 0}, "published", DIFFERS, DIFFERS},
        /* missing in both, in one */
        {{NAN, 0, 0}, {NAN, 0, 0}, "measured", SAME, SAME},
        {{NAN, 0, 0}, {1, 0, 0}, "measured", DIFFERS, OTHER},
        {{1, 0, 0}, {NAN, 0, 0}, "emulated", DIFFERS, DIFFERS},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int other = 0; other < 2; other++) {
            const double *a = cases[i].own, *b = cases[i].published;
            const enum compare_repeat want = other ? cases[i].elsewhere : cases[i].here,
                                      got = verdict(
                                          other ? "B CPU" : "A CPU",
                                          number(a[0], a[1], a[2], cases[i].evidence),
                                          number(b[0], b[1], b[2], cases[i].evidence));

            if (got != want)
                fail_msg("case %zu, %s: %s, expected %s", i,
                         other ? "another machine" : "the same machine",
                         compare_repeat_name(got), compare_repeat_name(want));
        }
}

/* A model of this machine is arithmetic on what a machine card has measured. */
TEST(numbers_from_a_machine_card_depend_on_it)
{
    json_t *own = head("B CPU", NULL, number(100, 0, 0, "model"));

    json_object_set_new(own, "machine_card", json_object());
    assert_int_equal(
        compare(own, head("A CPU", FOLDER, number(50, 0, 0, "model"))).verdict, OTHER);
    own = head("A CPU", NULL, number(100, 0, 0, "model"));
    json_object_set_new(own, "machine_card", json_object());
    assert_int_equal(
        compare(own, head("A CPU", FOLDER, number(50, 0, 0, "model"))).verdict, DIFFERS);
}

/* Arithmetic may be on what the same record measured; a simulation has its own inputs. */
TEST(arithmetic_next_to_measurements_depends_on_the_machine)
{
    static const char *const evidence[] = {"model", "simulated"};
    static const enum compare_repeat want[] = {OTHER, DIFFERS};

    for (int i = 0; i < 2; i++) {
        json_t *own = head("B CPU", NULL, number(1, 0, 0, evidence[i]));
        json_t *published = head("A CPU", FOLDER, number(2, 0, 0, evidence[i]));

        json_object_set_new(json_object_get(own, "headline"), "measured",
                            number(1, 0, 0, "measured"));
        assert_int_equal(compare(own, published).verdict, want[i]);
    }
}

/* The number that differs most is shown; a simulation that differs is not excused by what is
 * measured on another machine; a number of one record only does not count. */
TEST(the_worst_number_decides)
{
    json_t *own = head("B CPU", NULL, number(1, 0, 0, "model")), *published;
    json_t *mine = json_object_get(own, "headline"), *theirs;
    struct compare_heads c;

    published = head("A CPU", FOLDER, number(1, 0, 0, "model"));
    theirs = json_object_get(published, "headline");
    json_object_set_new(mine, "far", number(10, 9, 11, "measured"));
    json_object_set_new(theirs, "far", number(40, 30, 50, "measured"));
    json_object_set_new(mine, "near", number(10, 0, 0, "simulated"));
    json_object_set_new(theirs, "near", number(11, 0, 0, "simulated"));
    json_object_set_new(mine, "alone", number(10, 0, 0, "model"));
    c = compare(own, published);
    assert_int_equal(c.verdict, DIFFERS);
    assert_int_equal(c.n_agree, 1);
    assert_int_equal(c.n_differ, 2);
    assert_string_equal(c.farthest, "far: 10 [9 to 11] here, 40 [30 to 50] published");
}

TEST(nothing_in_common_differs)
{
    json_t *own = head("A CPU", NULL, number(1, 0, 0, "model"));
    struct compare_heads c;

    json_object_clear(json_object_get(own, "headline"));
    c = compare(own, head("A CPU", FOLDER, number(1, 0, 0, "model")));
    assert_int_equal(c.verdict, DIFFERS);
    assert_string_equal(c.farthest, "no number in common");
}
