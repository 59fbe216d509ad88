/* Conversations against the scripted adapter: the turns of one come in order, each after the
 * answer to the one before and its think time, and others go on meanwhile. Also what the
 * requests of texts and of named blocks are made of. Waits of the script are lower bounds. */
#include "tests/metrics/rows.h"

#include "experiments/run/run.h"

#define TURNS 3

struct fixture {
    struct run_system *system;
    struct dataset_item items[4 * TURNS];
    struct dataset d;
    struct dataset_opts opts;
    struct load_opts load;
    struct run_requests requests;
    struct run_result result;
};

static const struct load_seeds seeds = {1, 1, 1, 1};

/* n conversations of TURNS turns; turn t of each has 10 + t prompt tokens and 2 of output. */
static void begin(struct fixture *x, const char *config, int n, char *process)
{
    json_t *j = json_loads(config, 0, NULL);

    *x = (struct fixture){.opts = {.min_prompt_tok = 1},
                          .load = {.process = process, .concurrency = 1, .rate_rps = 1}};
    assert_non_null(j);
    assert_ok(run_system_open(&x->system, j));
    json_decref(j);
    x->opts.turns = DATASET_TURNS_CONVERSATION;
    x->d = (struct dataset){.source = "test", .items = x->items, .n_items = n};
    for (int c = 0; c < n; c++)
        for (int t = 0; t < TURNS; t++) {
            struct dataset_item *it = &x->items[t == 0 ? c : n + c * (TURNS - 1) + t - 1];

            *it = (struct dataset_item){
                .n_prompt = 10 + t, .n_output = 2, .arrival_s = NAN};
            if (t + 1 < TURNS)
                it->later = &x->items[n + c * (TURNS - 1) + t];
        }
}

static void run(struct fixture *x)
{
    assert_ok(
        run_requests_new(&x->requests, x->system, &x->d, &x->opts, &x->load, &seeds));
    assert_ok(run_cell(&x->result, x->system, &x->requests, &x->load, NULL, NULL));
}

static void end(struct fixture *x)
{
    run_system_close(&x->system);
    run_result_fini(&x->result);
    run_requests_fini(&x->requests);
}

/* The row of a request; rows are sorted by their intended start. */
static const struct metrics_row *row(const struct fixture *x, int64_t request)
{
    for (size_t i = 0; i < x->result.n; i++)
        if (x->result.rows[i].request == request)
            return &x->result.rows[i];
    fail_msg("request %lld has no row", (long long)request);
    return NULL;
}

static void check_order(const struct fixture *x, double think_ms)
{
    for (size_t i = 1; i < x->result.n; i++)
        assert_true(x->result.rows[i].intended_ns >= x->result.rows[i - 1].intended_ns);
    for (size_t i = 0; i < x->result.n; i++) {
        const struct metrics_row *r = row(x, (int64_t)i);

        assert_int_equal(r->n_prompt_tok, 10 + (int64_t)i % TURNS);
        assert_true(x->requests.follows[i] == (i % TURNS > 0));
        if (i % TURNS)
            assert_int_equal(r->intended_ns,
                             row(x, (int64_t)i - 1)->done_ns + (int64_t)(think_ms * MS));
    }
}

TEST(turns_wait_for_their_answer)
{
    static char constant[] = "constant";
    struct fixture x;

    begin(&x, "{\"adapter\": \"scripted\", \"ttft_ms\": 30, \"itl_ms\": 1}", 4, constant);
    x.load.rate_rps = 200;
    x.load.think_s = 0.004;
    run(&x);
    assert_int_equal(x.result.n, 4 * TURNS); /* 0: every turn of the data set */
    check_order(&x, 4);
    for (int c = 0; c < 4; c++) { /* conversations arrive at their own times */
        assert_near((double)row(&x, c * TURNS)->intended_ns / MS, c * 5, 1e-3);
        assert_int_equal(row(&x, c * TURNS)->status, METRICS_OK);
    }
    /* the last conversation begins before the first has its second turn */
    assert_true(row(&x, 3 * TURNS)->intended_ns < row(&x, 1)->intended_ns);
    end(&x);
}

TEST(a_user_ends_a_conversation_before_the_next)
{
    static char closed[] = "closed";
    struct fixture x;

    begin(&x, "{\"adapter\": \"scripted\", \"ttft_ms\": 3}", 4, closed);
    x.load.concurrency = 2;
    x.load.n_requests = 4 * TURNS - 1; /* the last conversation is cut */
    run(&x);
    assert_int_equal(x.result.n, 4 * TURNS - 1);
    check_order(&x, 0);
    for (size_t i = 0; i < x.result.n; i++) {
        const struct metrics_row *r = row(&x, (int64_t)i);
        int n_open = 0;

        for (size_t k = 0; k < x.result.n; k++) {
            const struct metrics_row *o = &x.result.rows[k];

            n_open += o->dispatch_ns <= r->dispatch_ns && o->done_ns > r->dispatch_ns;
        }
        assert_true(n_open <= 2);
    }
    /* the third begins when one of the first two has ended */
    assert_true(row(&x, 2 * TURNS)->intended_ns == row(&x, TURNS - 1)->done_ns ||
                row(&x, 2 * TURNS)->intended_ns == row(&x, 2 * TURNS - 1)->done_ns);
    end(&x);
}

/* A turn that fails or is canceled is followed like one that is answered, and turns that are
 * still to come keep no other request from its deadline. */
TEST(failed_turns_are_followed)
{
    static char constant[] = "constant";
    struct fixture x;

    begin(&x,
          "{\"adapter\": \"scripted\", \"ttft_ms\": 2, \"hang_request\": 1, "
          "\"fail_request\": 0}",
          2, constant);
    x.load.rate_rps = 1000;
    x.load.timeout_s = 0.05;
    run(&x);
    check_order(&x, 0);
    assert_int_equal(row(&x, 0)->status, METRICS_FAILED);
    assert_int_equal(row(&x, TURNS)->status, METRICS_TIMEOUT);
    for (int i = 1; i < TURNS; i++) {
        assert_int_equal(row(&x, i)->status, METRICS_OK);
        assert_int_equal(row(&x, TURNS + i)->status, METRICS_OK);
    }
    end(&x);
}

/* --- texts that a filter leaves out, and blocks that prompts share */

TEST(texts_are_filtered_by_their_tokens)
{
    static char closed[] = "closed";
    static const struct dataset_item items[] = {
        {.text = "one two three", .text_bytes = 13, .n_prompt = -1, .n_output = 9},
        {.text = "a b c d", .text_bytes = 7, .n_prompt = -1, .n_output = 9},
        {.text = "a b c d e", .text_bytes = 9, .n_prompt = -1, .n_output = 3},
    };
    struct fixture x;

    begin(&x, "{\"adapter\": \"scripted\"}", 1, closed);
    x.opts.turns = DATASET_TURNS_FIRST;
    x.opts.filter = DATASET_FILTER_VLLM;
    x.load.n_requests = 3;
    memcpy(x.items, items, sizeof(items));
    x.d.n_items = 3;
    assert_ok(run_requests_new(&x.requests, x.system, &x.d, &x.opts, &x.load, &seeds));
    for (int i = 0; i < 3; i++)
        assert_int_equal(x.requests.v[i].n_prompt, 4);
    assert_true(x.requests.n_filtered >= 4);
    assert_int_equal(x.requests.n_repeated, 5); /* of 8 that were tried */
    run_requests_fini(&x.requests);
    x.d.n_items = 1;
    assert_err(run_requests_new(&x.requests, x.system, &x.d, &x.opts, &x.load, &seeds),
               ERR_ARG, "it leaves out every request; the last has a prompt below 4");
    end(&x);
}

TEST(equal_blocks_are_equal_tokens)
{
    static char closed[] = "closed";
    static const int64_t one[] = {7, 8}, two[] = {7, 9};
    struct fixture x;
    const struct sut_request *v;

    begin(&x, "{\"adapter\": \"scripted\"}", 1, closed);
    x.opts.turns = DATASET_TURNS_FIRST;
    for (int i = 0; i < 3; i++)
        x.items[i] = (struct dataset_item){.n_prompt = 512 + 100,
                                           .block_tok = 512,
                                           .n_output = 1,
                                           .block_ids = i == 2 ? NULL
                                                        : i    ? two
                                                               : one,
                                           .n_blocks = i == 2 ? 0 : 2};
    x.d.n_items = 3;
    assert_ok(run_requests_new(&x.requests, x.system, &x.d, &x.opts, &x.load, &seeds));
    v = x.requests.v;
    assert_memory_equal(v[0].prompt, v[1].prompt, 512 * sizeof(int32_t));
    assert_memory_not_equal(v[0].prompt, v[2].prompt, 512 * sizeof(int32_t));
    assert_memory_not_equal(v[0].prompt + 512, v[1].prompt + 512, 100 * sizeof(int32_t));
    end(&x);
}
