#include <math.h>

#include "tests/datasets/data.h"
#include "tests/support/faults.h"

#include "base/log.h"

/* Regression: `dataset.path` was ignored, without a word, where the reader was
 * synth. */

#define SHAREGPT                                                                         \
    "[{\"id\":\"a\",\"conversations\":[{\"from\":\"gpt\",\"value\":\"old\"},"            \
    "{\"from\":\"human\",\"value\":\"\"},{\"from\":\"gpt\",\"value\":\"lost\"},"         \
    "{\"from\":\"human\",\"value\":\"q1\"},{\"from\":\"system\",\"value\":\"between\"}," \
    "{\"from\":\"human\",\"value\":\"q\\u20ac\"},{\"from\":\"gpt\",\"value\":"           \
    "\"answer\"},"                                                                       \
    "{\"from\":\"human\",\"value\":\"later\"},{\"from\":\"gpt\",\"value\":\"later\"}]}," \
    "\n"                                                                                 \
    "{\"id\":\"b\",\"conversations\":[{\"from\":\"human\",\"value\":\"alone\"}]},\n"     \
    "{\"id\":\"c\",\"conversations\":[]},\n"                                             \
    "{\"id\":\"d\",\"conversations\":[{\"from\":\"user\",\"value\":\"second\"},"         \
    "{\"from\":\"chatgpt\",\"value\":\"reply\"}]}]\n"
#define LMSYS                                                                            \
    "{\"conversation_id\":\"1\",\"model\":\"m\",\"conversation\":[{\"content\":"         \
    "\"a\xe2\x80\xa8"                                                                    \
    "b\",\"role\":\"user\"},{\"content\":\"c\",\"role\":\"assistant\"}],\"turn\":1}\r\n" \
    "\n"                                                                                 \
    "{\"conversation\":[{\"content\":\"\",\"role\":\"user\"},"                           \
    "{\"content\":\"x\",\"role\":\"assistant\"}]}"
#define AZURE                                                                            \
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"                                        \
    "2024-02-28 23:59:59.5000000,374,44\r\n"                                             \
    "2024-02-29 00:00:00.2500001,396,109\r\n"                                            \
    "2024-03-01 00:00:00,879,0\r\n"                                                      \
    "2024-03-01 00:00:00.000001+00:00,879,55\r\n"

#define BURSTGPT                                                                         \
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"             \
    "5,ChatGPT,472,18,490,Conversation log\n"                                            \
    "45.5,ChatGPT,1087,0,1087,Conversation log\n"                                        \
    "118,GPT-4,417,276,693,API log\n"
#define MOONCAKE                                                                         \
    "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 52, "               \
    "\"hash_ids\": [46, 47]}\n"                                                          \
    "{\"timestamp\": 3000, \"input_length\": 512, \"output_length\": 26, "               \
    "\"hash_ids\": [46]}\n"                                                              \
    "{\"timestamp\": 6500, \"input_length\": 7, \"output_length\": 1}\n"
#define ALPACA                                                                           \
    "[{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"},\n"             \
    " {\"instruction\": \"Greet.\", \"input\": \"\", \"output\": \"Hi\"},\n"             \
    " {\"instruction\": \"x\", \"output\": \"\"}]"
#define NQ                                                                               \
    "{\"question\": \"who\", \"answer\": [\"the moon\", \"Moon\"]}\n"                    \
    "{\"question\": \"when\", \"answer\": []}\n"                                         \
    "{\"question\": \"where\", \"answer\": [\"here\"]}\n"

static struct dataset *open_text(const char *reader, const char *text)
{
    struct dataset_opts o = data_opts(reader, data_text(text));
    struct dataset *d;

    assert_ok(dataset_open(&d, &o));
    opt_free(dataset_opt_table, &o);
    return d;
}

static void expect_texts(const struct dataset_item *it, const char *text,
                         const char *reply)
{
    assert_int_equal(it->text_bytes, strlen(text));
    assert_memory_equal(it->text, text, it->text_bytes);
    assert_int_equal(it->reply_bytes, strlen(reply));
    assert_memory_equal(it->reply, reply, it->reply_bytes);
    assert_int_equal(it->n_prompt, -1);
    assert_int_equal(it->n_output, -1);
    assert_true(isnan(it->arrival_s));
}

TEST(sharegpt)
{
    struct dataset *d = open_text("sharegpt", SHAREGPT);

    assert_int_equal(d->n_items, 2);
    expect_texts(&d->items[0], "q\xe2\x82\xac", "answer");
    expect_texts(&d->items[1], "second", "reply");
    assert_int_equal(d->n_skipped, 2);
    assert_string_equal(d->skipped_why, "no question with an answer (2)");
    dataset_close(&d);
}

TEST(lmsys)
{
    struct dataset *d = open_text("lmsys", LMSYS);

    assert_int_equal(d->n_items, 1);
    expect_texts(&d->items[0],
                 "a\xe2\x80\xa8"
                 "b",
                 "c");
    assert_int_equal(d->n_skipped, 1);
    dataset_close(&d);
}

TEST(azure)
{
    struct dataset *d = open_text("azure", AZURE);

    assert_int_equal(d->n_items, 3);
    assert_int_equal(d->items[0].n_prompt, 374);
    assert_int_equal(d->items[0].n_output, 44);
    assert_true(d->items[0].arrival_s == 0);
    assert_true(fabs(d->items[1].arrival_s - 0.7500001) < 1e-9);
    assert_true(fabs(d->items[2].arrival_s - 86400.500001) < 1e-9); /* over a leap day */
    assert_int_equal(d->n_skipped, 1);
    assert_string_equal(d->skipped_why, "a length of 0 (1)");
    dataset_close(&d);
}

TEST(lengths_csv)
{
    struct dataset *d = open_text(
        "lengths_csv", "pd_ratio, Num_Decode_Tokens ,\"x,\"\"y\",num_prefill_tokens\n"
                       "0.5,7.0,\"a \"\"b\"\",c\",12\n\n1e9,8,,1.\n");

    assert_int_equal(d->n_items, 2);
    assert_int_equal(d->items[0].n_prompt, 12);
    assert_int_equal(d->items[0].n_output, 7);
    assert_int_equal(d->items[1].n_prompt, 1);
    assert_int_equal(d->items[1].n_output, 8);
    dataset_close(&d);

    d = open_text("auto", "100,10\r\n\n 7,8\n"); /* without a header */
    assert_string_equal(d->reader->name, "lengths_csv");
    assert_int_equal(d->n_items, 2);
    assert_int_equal(d->items[0].n_prompt, 100);
    assert_int_equal(d->items[0].n_output, 10);
    assert_int_equal(d->items[1].n_prompt, 7);
    dataset_close(&d);
}

TEST(burstgpt)
{
    struct dataset *d = open_text("burstgpt", BURSTGPT);

    assert_int_equal(d->n_items, 2);
    assert_int_equal(d->items[0].n_prompt, 472);
    assert_int_equal(d->items[0].n_output, 18);
    assert_true(d->items[0].arrival_s == 0);
    assert_int_equal(d->items[1].n_prompt, 417);
    assert_true(d->items[1].arrival_s == 113);
    assert_string_equal(d->skipped_why, "a length of 0 (1)");
    dataset_close(&d);
}

TEST(mooncake)
{
    struct dataset *d = open_text("mooncake", MOONCAKE);

    assert_int_equal(d->n_items, 3);
    assert_int_equal(d->items[0].n_prompt, 600);
    assert_int_equal(d->items[0].n_output, 52);
    assert_int_equal(d->items[0].n_blocks, 2);
    assert_int_equal(d->items[0].block_ids[0], 46);
    assert_int_equal(d->items[0].block_ids[1], 47);
    assert_int_equal(d->items[1].n_blocks, 1);
    assert_int_equal(d->items[2].n_blocks, 0);
    assert_true(d->items[1].arrival_s == 0);
    assert_true(d->items[2].arrival_s == 3.5);
    dataset_close(&d);
}

/* Traces with Mooncake's keys, but seconds, microseconds, or blocks of another size: their
 * requests came a thousand times too fast. */
/* Calls of a session with the times that its tools took. */
TEST(agent)
{
    static const char text[] =
        "{\"start_s\": 5, \"calls\": [{\"input_tok\": 10, \"output_tok\": 3}, "
        "{\"input_tok\": 20, \"output_tok\": 4, \"pause_s\": 1.5}]}\n"
        "{\"start_s\": 6, \"calls\": []}\n"
        "{\"start_s\": 7.5, \"calls\": [{\"input_tok\": 1, \"output_tok\": 1}]}\n";
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"calls\": 1}", "calls"},
        {"{\"calls\": [1]}", "calls: element 0: expected an object"},
        {"{\"calls\": [{\"input_tok\": 0, \"output_tok\": 1}]}", "element 0: input_tok"},
        {"{\"calls\": [{\"input_tok\": 1}]}", "output_tok"},
        {"{\"calls\": [{\"input_tok\": 1, \"output_tok\": 1, \"pause_s\": -1}]}",
         "pause_s: expected 0 to"},
        {"{\"start_s\": -1, \"calls\": []}", "start_s: expected 0 to"},
        {"{\"start_s\": 2, \"calls\": [{\"input_tok\": 1, \"output_tok\": 1}]}\n"
         "{\"start_s\": 1, \"calls\": [{\"input_tok\": 1, \"output_tok\": 1}]}",
         "no earlier than"}};
    struct dataset *d = open_text("auto", text);
    struct dataset_opts o;

    assert_int_equal(d->n_items, 2);
    assert_int_equal(d->n_skipped, 1);
    assert_null(d->items[0].later); /* turns = first */
    assert_true(d->items[1].arrival_s == 2.5);
    dataset_close(&d);
    o = data_opts("agent", data_text(text));
    o.turns = DATASET_TURNS_CHAT;
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->items[0].later->n_prompt, 20);
    assert_int_equal(d->items[0].later->n_output, 4);
    assert_true(d->items[0].later->pause_s == 1.5);
    assert_null(d->items[0].later->later);
    assert_true(d->items[0].pause_s == 0);
    dataset_close(&d);
    o.turns = DATASET_TURNS_EACH;
    assert_ok(dataset_open(&d, &o));
    assert_int_equal(d->n_items, 3);
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        o = data_opts("agent", data_text(bad[i].text));
        assert_err(dataset_open(&d, &o), ERR_FORMAT, bad[i].says);
        opt_free(dataset_opt_table, &o);
    }
}
TEST(mooncake_of_other_units)
{
    static const char seconds[] =
        "{\"timestamp\": 1.5, \"input_length\": 33, \"output_length\": 2, "
        "\"hash_ids\": [1, 2, 3]}\n"
        "{\"timestamp\": 4, \"input_length\": 16, \"output_length\": 2, "
        "\"hash_ids\": [1]}\n";
    static const double ms[] = {0, 2.5, 0.0025, 2.5e-6};
    struct dataset_opts o = data_opts("mooncake", data_text(seconds));
    char many[200 * 64] = "";
    struct dataset *d;

    assert_err(dataset_open(&d, &o), ERR_FORMAT, "dataset.time_unit states another unit");
    for (int unit = DATASET_TIME_S; unit <= DATASET_TIME_US; unit++) {
        o.time_unit = unit;
        o.block_tok = 0;
        assert_err(dataset_open(&d, &o), ERR_FORMAT, "dataset.block_tok states another");
        o.block_tok = 16;
        assert_ok(dataset_open(&d, &o));
        assert_int_equal(d->items[0].block_tok, 16);
        assert_int_equal(d->items[0].n_blocks, 3);
        assert_true(fabs(d->items[1].arrival_s - ms[unit]) < 1e-9);
        dataset_close(&d);
    }
    for (int i = 0; i < 200; i++)
        snprintf(many + strlen(many), 72,
                 "{\"timestamp\": %d, \"input_length\": 1, \"output_length\": 1}\n",
                 i / 4);
    opt_free(dataset_opt_table, &o);
    o = data_opts("mooncake", data_text(many));
    assert_err(dataset_open(&d, &o), ERR_FORMAT,
               "4082 requests a second if its timestamps are milliseconds");
    o.time_unit = DATASET_TIME_MS;
    assert_ok(dataset_open(&d, &o));
    assert_true(d->items[199].arrival_s == 0.049);
    dataset_close(&d);
    o.time_unit = DATASET_TIME_S;
    assert_ok(dataset_open(&d, &o));
    assert_true(d->items[199].arrival_s == 49);
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
}

/* Records that are none may be passed over, counted and named; one more is an error. */
TEST(bad_records_are_counted)
{
    static const struct {
        const char *reader, *text;
    } cases[] = {
        {"sharegpt", "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, "
                     "{\"from\": \"gpt\", \"value\": \"a\"}]}\n"
                     "{\"conversations\": 7}\n{oops\n"
                     "{\"conversations\": [{\"from\": \"human\", \"value\": \"r\"}, "
                     "{\"from\": \"gpt\", \"value\": \"b\"}]}\n"},
        {"lengths_csv", "prompt_len,output_len\n1,2\nx,2\n1,2,3\n3,4\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dataset_opts o = data_opts(cases[i].reader, data_text(cases[i].text));
        struct log_warning w[4];
        struct dataset *d;

        for (o.skip_bad = 0; o.skip_bad < 2; o.skip_bad++)
            assert_err(dataset_open(&d, &o), ERR_FORMAT, "in:");
        (void)log_warnings_take(w, 4);
        assert_ok(dataset_open(&d, &o));
        assert_int_equal(d->n_items, 2);
        assert_int_equal(d->n_bad, 2);
        assert_int_equal(d->n_skipped, 2);
        assert_string_equal(d->skipped_why, "bad, see dataset.skip_bad (2)");
        assert_int_equal(log_warnings_take(w, 4), 2);
        assert_string_equal(w[0].code, "dataset_bad_record");
        assert_non_null(strstr(w[0].text, i == 0 ? "in:2: " : "in:3: "));
        assert_non_null(strstr(w[1].text, i == 0 ? "in:3: " : "in:4: "));
        dataset_close(&d);
        opt_free(dataset_opt_table, &o);
    }
}

/* Text of two bytes a character, with its mark or without: it was said to be no JSON. */
TEST(utf16_is_named)
{
    static const struct {
        const char *text;
        size_t n;
    } cases[] = {{"\xff\xfe{\0\"\0", 6},
                 {"\xfe\xff\0{\0\"", 6},
                 {"{\0\"\0a\0", 6},
                 {"\0{\0\"\0a", 6}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *path = test_path("utf16");
        struct dataset_opts o = data_opts("auto", path);
        struct dataset *d;

        test_write(path, cases[i].text, cases[i].n);
        assert_err(dataset_open(&d, &o), ERR_FORMAT,
                   "utf16:1: expected UTF-8, found UTF-16; iconv");
        opt_free(dataset_opt_table, &o);
    }
}

TEST(nq)
{
    struct dataset *d = open_text("nq", NQ);

    assert_int_equal(d->n_items, 2);
    expect_texts(&d->items[0], "who", "the moon");
    expect_texts(&d->items[1], "where", "here");
    assert_string_equal(d->skipped_why, "no question or no answer (1)");
    dataset_close(&d);
    assert_err(data_try_text("nq", "{\"question\":\"x\"}"), ERR_FORMAT, "in:1: answer");
    assert_err(data_try_text("nq", "{\"question\":\"x\",\"answer\":[3]}"), ERR_FORMAT,
               "in:1: answer: expected a list of texts");
    assert_err(data_try_text("nq", "\n{\"answer\":[]}"), ERR_FORMAT, "in:2: question");
}

TEST(alpaca)
{
    struct dataset *d = open_text("alpaca", ALPACA);

    assert_int_equal(d->n_items, 2);
    expect_texts(&d->items[0], "Add.\n1 2", "3");
    expect_texts(&d->items[1], "Greet.", "Hi");
    assert_string_equal(d->skipped_why, "no instruction or no output (1)");
    dataset_close(&d);
}

/* --- conversations with their histories */

static struct dataset *open_turns(const char *turns)
{
    struct dataset_opts o = data_opts("sharegpt", data_text(SHAREGPT));
    struct dataset *d;

    assert_ok(opt_set(dataset_opt_table, &o, "turns", turns, "test"));
    assert_ok(dataset_open(&d, &o));
    opt_free(dataset_opt_table, &o);
    return d;
}

/* Every message before a question is its history, also those that ask nothing. */
TEST(each_turn_has_its_history)
{
    static const char second[] = "old\nlost\nq1\nbetween\nq\xe2\x82\xac\nanswer\nlater";
    struct dataset *d = open_turns("each");

    assert_int_equal(d->n_items, 3);
    expect_texts(&d->items[0], "old\nlost\nq1\nbetween\nq\xe2\x82\xac", "answer");
    expect_texts(&d->items[1], second, "later");
    expect_texts(&d->items[2], "second", "reply");
    for (int i = 0; i < 3; i++)
        assert_null(d->items[i].later);
    dataset_close(&d);
    d = open_turns("conversation");
    assert_int_equal(d->n_items, 2);
    expect_texts(&d->items[0], "old\nlost\nq1\nbetween\nq\xe2\x82\xac", "answer");
    assert_non_null(d->items[0].later);
    expect_texts(d->items[0].later, second, "later");
    assert_null(d->items[0].later->later);
    assert_null(d->items[1].later);
    dataset_close(&d);
}

/* Prompts grow with the square of the turns: a conversation of a million is cut, not run out of
 * memory, and freed without recursion. */
TEST(a_conversation_has_an_end)
{
    enum { TURNS = 40000 };
    static const char turn[] = ",{\"from\":\"human\",\"value\":\"a question\"},"
                               "{\"from\":\"gpt\",\"value\":\"an answer\"}";
    struct dataset_opts o;
    struct dataset *d;
    char *text = mem_new(MEM_TEST, TURNS + 1, sizeof(turn));
    size_t at = 0, n = 0, bytes = 0;

    at += (size_t)sprintf(text, "[{\"conversations\":[");
    for (int i = 0; i < TURNS; i++)
        at += (size_t)sprintf(text + at, "%s", turn + (i == 0));
    sprintf(text + at, "]}]");
    o = data_opts("sharegpt", data_text(text));
    o.turns = DATASET_TURNS_CONVERSATION;
    assert_ok(dataset_open(&d, &o));
    for (const struct dataset_item *it = &d->items[0]; it; it = it->later) {
        n++;
        bytes += it->text_bytes;
    }
    assert_true(n > 1000 && n < TURNS);
    assert_true(bytes > 60u << 20 && bytes <= 64u << 20);
    assert_non_null(strstr(d->skipped_why, "more than 64 MiB together"));
    dataset_close(&d);
    opt_free(dataset_opt_table, &o);
    mem_free(text);
}

/* A list and JSONL are one format. */
TEST(lists_and_lines)
{
    struct dataset *d =
        open_text("sharegpt", "\n{\"conversations\":[{\"from\":\"human\",\"value\":"
                              "\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}]}\n\n");

    assert_int_equal(d->n_items, 1);
    expect_texts(&d->items[0], "q", "a");
    dataset_close(&d);
    d = open_text("mooncake",
                  "[{\"timestamp\":1,\"input_length\":2,\"output_length\":3}]");
    assert_int_equal(d->items[0].n_prompt, 2);
    dataset_close(&d);
}

TEST(recognised)
{
    static const struct {
        const char *text, *reader;
    } files[] = {
        {SHAREGPT, "sharegpt"},
        {LMSYS, "lmsys"},
        {AZURE, "azure"},
        {BURSTGPT, "burstgpt"},
        {MOONCAKE, "mooncake"},
        {ALPACA, "alpaca"},
        {NQ, "nq"},
        {"input_length,output_length\n1,2\n", "lengths_csv"},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct dataset *d = open_text("auto", files[i].text);

        assert_string_equal(d->name, files[i].reader);
        dataset_close(&d);
    }
    assert_err(data_try_text("auto", "[{\"messages\":[],\"id\":1}]"), ERR_FORMAT,
               "not recognised by its first record's keys, \"messages\", \"id\"; name it "
               "with dataset.reader");
    assert_err(data_try_text("auto", "a,b\n"), ERR_FORMAT,
               "not recognised by its first line, a,b");
    assert_err(data_try_text("auto", "[]"), ERR_FORMAT, "at least one record");
    assert_err(data_try_text("auto", ""), ERR_FORMAT, "found an empty file");
    assert_err(data_try_text("synth", "x"), ERR_ARG,
               "dataset.path: reader \"synth\" reads no file");
}

TEST(refused)
{
    static const struct {
        const char *reader, *text;
        int code;
        const char *message;
    } bad[] = {
        {"sharegpt", "[]", ERR_FORMAT, "at least one request, found none in 0 records"},
        {"sharegpt", "[{\"id\":1}]", ERR_FORMAT, "in:1: conversations"},
        {"sharegpt", "[\n{\"conversations\":{}}]", ERR_FORMAT, "in:2: conversations"},
        {"sharegpt", "[{\"conversations\":[3]}]", ERR_FORMAT,
         "messages that are objects"},
        {"sharegpt", "[{\"conversations\":[{\"value\":\"x\"}]}]", ERR_FORMAT, "from"},
        {"sharegpt", "[{\"conversations\":[{\"from\":\"gpt\",\"value\":null}]}]",
         ERR_FORMAT, "value: expected a text"},
        {"sharegpt", "[{\"a\":1,\"a\":2}]", ERR_FORMAT, "duplicate"},
        {"sharegpt", "[{\"a\":\"\xff\"}]", ERR_FORMAT, "in:1: line 1, offset 6"},
        {"sharegpt", "[{\"a\":]}]", ERR_FORMAT, "in:1: expected '}', found ']'"},
        {"lmsys", "{\"conversation\":[]}\n[]\n", ERR_FORMAT, "in:2: expected an object"},
        {"lmsys", "{\"conversation\":[]}\n{\"conversation\"\n", ERR_FORMAT, "in:2: line"},
        {"lmsys", "{\"conversation\":7}", ERR_FORMAT, "in:1: conversation"},
        {"azure", "", ERR_FORMAT, "in:1: expected a header line, found an empty file"},
        {"azure", "a,b\n", ERR_FORMAT, "expected a column TIMESTAMP, found \"a,b\""},
        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", ERR_FORMAT,
         "in:2: expected 3 fields as in the header, found 2"},
        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-01 00:00:00,1,1\n",
         ERR_FORMAT, "in:2: TIMESTAMP: expected a time like"},
        {"azure",
         "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-02 00:00:00,1,1\n"
         "2023-01-01 00:00:00,1,1\n",
         ERR_FORMAT, "in:3: expected a time no earlier than that of the record before"},
        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-02 00:00:00,-1,1\n",
         ERR_FORMAT,
         "ContextTokens: expected a whole number in [0, 16777216], found \"-1\""},
        {"lengths_csv", "1,2\n3,4,5\n", ERR_FORMAT, "in:2: expected 2 fields"},
        {"lengths_csv", "1,2\n3,x\n", ERR_FORMAT,
         "in:2: output: expected a whole number"},
        {"lengths_csv", "prompt_len,output_len\n1,99999999999999999999\n", ERR_FORMAT,
         "in:2: output_len: expected a whole number"},
        {"lengths_csv", "prompt_len,output_len\n1,1e3\n", ERR_FORMAT, "found \"1e3\""},
        {"lengths_csv", "prompt_len,output_len\n1.5,1\n", ERR_FORMAT, "found \"1.5\""},
        {"lengths_csv", "prompt_len,output_len\n,\n", ERR_FORMAT, "found \"\""},
        {"lengths_csv", "prompt_len,output_len\n\"1,2\n", ERR_FORMAT,
         "field 1: expected a"},
        {"lengths_csv", "prompt_len,output_len,arrival_s\n1,2,nan\n", ERR_FORMAT,
         "arrival_s: expected a decimal number, found \"nan\""},
        {"lengths_csv", "prompt_len,output_len,arrival_s\n1,2,1e999\n", ERR_FORMAT,
         "a decimal number"},
        {"lengths_csv", "prompt_len,output_len,arrival_s\n1,2,5e9\n", ERR_FORMAT,
         "arrival_s: expected a time of at most 4e9 seconds, found \"5e9\""},
        {"burstgpt", "Model,Request tokens,Response tokens\n", ERR_FORMAT,
         "expected a column Timestamp"},
        {"burstgpt", "Timestamp,Request tokens,Response tokens\n2,1,1\n1,1,1\n",
         ERR_FORMAT, "in:3: expected a time no earlier than that of the record before"},
        {"burstgpt", "Timestamp,Request tokens,Response tokens\n2,1,x\n", ERR_FORMAT,
         "in:2: Response tokens: expected a whole number"},
        {"mooncake", "{\"timestamp\":0,\"input_length\":1}\n", ERR_FORMAT,
         "in:1: output_length"},
        {"mooncake",
         "{\"timestamp\":0,\"input_length\":513,\"output_length\":1,\"hash_ids\":[1]}",
         ERR_FORMAT, "in:1: hash_ids: expected 2, one for each 512 tokens, found 1"},
        {"mooncake",
         "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1.5]}",
         ERR_FORMAT, "hash_ids: element 0: expected an integer"},
        {"mooncake", "{\"timestamp\":1e3,\"input_length\":1,\"output_length\":1}",
         ERR_FORMAT, "in:1: timestamp: expected whole milliseconds, found 1000"},
        {"mooncake", "{\"timestamp\":\"1\",\"input_length\":1,\"output_length\":1}",
         ERR_FORMAT, "in:1: timestamp: expected an integer"},
        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,1\n",
         ERR_FORMAT, "in:2: TIMESTAMP: expected a time like"},
        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-29 00:00:00,1,1\n",
         ERR_FORMAT, "in:2: TIMESTAMP: expected a time like"},
        {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-04-31 00:00:00,1,1\n",
         ERR_FORMAT, "in:2: TIMESTAMP: expected a time like"},
        {"mooncake",
         "{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n"
         "{\"timestamp\":8,\"input_length\":1,\"output_length\":1}",
         ERR_FORMAT, "in:2: expected a time no earlier"},
        {"alpaca", "[{\"instruction\":\"x\"}]", ERR_FORMAT, "in:1: output"},
        {"alpaca", "[{\"instruction\":3,\"output\":\"\"}]", ERR_FORMAT,
         "in:1: instruction"},
        {"alpaca", "[3]", ERR_FORMAT, "in:1: expected '{' of a record, found '3'"},
        {"lengths_csv", "prompt_len,output_len\n0,5\n", ERR_FORMAT,
         "found none in 1 records"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_err(data_try_text(bad[i].reader, bad[i].text), bad[i].code,
                   bad[i].message);
}

TEST(too_many_columns)
{
    char text[2048] = "prompt_len,output_len";

    for (int i = 0; i < 100; i++)
        strcat(text, ",x");
    assert_err(data_try_text("lengths_csv", text), ERR_LIMIT, "at most 64 fields");
}

TEST(nul_byte)
{
    static const char csv[] = "prompt_len,output_len\n1,\0002\n";
    static const char list[] = "[{\"conversations\":\0[]}]";

    assert_err(data_try("lengths_csv", data_file(csv, sizeof(csv) - 1)), ERR_FORMAT,
               "in:2: expected text, found a NUL byte");
    assert_err(data_try("sharegpt", data_file(list, sizeof(list) - 1)), ERR_FORMAT,
               "in:1");
}

TEST(deep_nesting)
{
    char *text = mem_new(MEM_TEST, 300100, 1);

    strcpy(text, "[{\"a\":");
    memset(text + 6, '[', 100000);
    memset(text + 100006, ']', 100000);
    strcpy(text + 200006, "}]");
    assert_err(data_try_text("sharegpt", text), ERR_LIMIT, "nested deeper");
    mem_free(text);
}

static const char *const good[][2] = {
    {"sharegpt", SHAREGPT},
    {"lmsys", LMSYS},
    {"azure", AZURE},
    {"lengths_csv", "prompt_len,output_len,arrival_s\n12,\"7\",0.5\n8,8,1.5\n"},
    {"burstgpt", BURSTGPT},
    {"mooncake", MOONCAKE},
    {"alpaca", ALPACA},
    {"nq", NQ},
    {"auto", SHAREGPT},
    {"auto", MOONCAKE},
    {"auto", BURSTGPT},
};
#define N_GOOD (sizeof(good) / sizeof(good[0]))

static const char *reader; /* of the document in hand */

static int parse(const char *path)
{
    return data_try(reader, path);
}

static struct test_document document(size_t i)
{
    reader = good[i][0];
    return (struct test_document){.path = test_memory_file(),
                                  .data = good[i][1],
                                  .n = strlen(good[i][1]),
                                  .parse = parse};
}

/* Cut at every byte: equal to a shorter file or refused, never a crash. */
TEST(truncated)
{
    for (size_t i = 0; i < N_GOOD; i++) {
        const struct test_document d = document(i);

        assert_true(test_cuts(&d, d.n, NULL) > 0);
    }
}

TEST(mutated)
{
    for (size_t i = 0; i < N_GOOD; i++) {
        const struct test_document d = document(i);

        assert_true(test_mutants(&d, 1500) > 0);
    }
}
