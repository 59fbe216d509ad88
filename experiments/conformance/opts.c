#include "experiments/conformance/conform.h"

#define OPT_OF struct conform_opts
const struct opt_row conform_opt_table[] = {
    OPT_ROW(F64, budget, "120",
            "Time to spend. Every wait ends by then, and no relation begins after it.",
            .unit = "s", .min = 1, .max = 86400),
    OPT_ROW(INT, rounds, "8", "Cases of each relation, where the time is enough.",
            .min = 1, .max = 1e6),
    OPT_ROW(INT, prompt_tok, "48", "Length of most prompts.", .unit = "tok", .min = 16,
            .max = 1e6),
    OPT_ROW(INT, output_tok, "32", "Length of most answers.", .unit = "tok", .min = 4,
            .max = 1e5),
    OPT_ROW(INT, concurrency, "8", "Requests at the same time, where several are sent.",
            .min = 2, .max = 256),
    OPT_ROW(INT, seed, "1", "Seed of prompts and of sampled answers.", .min = 0,
            .max = 1e9),
    OPT_ROW(BOOL, exact, "false",
            "The server is known to be deterministic: a request that gets another answer "
            "when it is sent again is a wrong answer, too, not noise."),
    OPT_ROW(
        BOOL, ids, "true",
        "Ask for the token ids of answers, by return_token_ids or n_probs. Without them "
        "texts are compared."),
    OPT_ROW(STR, roles, NULL,
            "Start `sandwich serve --deterministic` with these roles and compare it with "
            "one process, in place of a server at a URL. Implies --exact.",
            .unit = "SPEC"),
    OPT_ROW(STR, model, NULL,
            "The model's name at the server. Default: the first that it lists. With "
            "--roles: the model's file, which is needed.",
            .unit = "NAME"),
    OPT_ROW(
        STR, serve_words, NULL,
        "With --roles: more options of both servers, such as --serve-words=\"--kv-type "
        "bf16\".",
        .unit = "WORDS"),
    OPT_ROW(STR, roles_words, NULL,
            "With --roles: more options of the server with roles, such as "
            "--roles-words=\"--transport socket\".",
            .unit = "WORDS"),
    OPT_ROW(
        STR, reference, NULL,
        "A second server, which must give the same answers as the one that is checked.",
        .unit = "URL"),
    OPT_ROW(STR, api_key_env, NULL, "Environment variable that holds the API key.",
            .unit = "NAME"),
    OPT_ROW(STR, json, NULL, "Write the report with every finding to this file as well.",
            .unit = "FILE"),
    {0},
};
