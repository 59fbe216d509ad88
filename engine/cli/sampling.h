/* cli/sampling.h - the options of sampling, for verbs whose struct has the members `sampling`,
 * `grammar` and `json_schema`. */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "base/opt.h"
#include "serve/serve.h"

#define CLI_SAMPLING_ROWS(temperature_default)                                           \
    OPT_ROW_AS("temperature", F64, sampling.temperature, temperature_default,            \
               "Sampling temperature. 0 always takes the most likely token (greedy).",   \
               .min = 0, .max = 100, .alias = "temp"),                                   \
        OPT_ROW_AS("top_k", INT, sampling.top_k, NULL,                                   \
                   "Sample from the N most likely tokens only. 0: from all.", .min = 0,  \
                   .max = 1 << 24),                                                      \
        OPT_ROW_AS("top_p", F64, sampling.top_p, "1",                                    \
                   "Sample from the most likely tokens whose probabilities sum to X.",   \
                   .min = 0, .max = 1),                                                  \
        OPT_ROW_AS("min_p", F64, sampling.min_p, NULL,                                   \
                   "Drop tokens whose probability is less than X times that of the "     \
                   "most likely one.",                                                   \
                   .min = 0, .max = 1),                                                  \
        OPT_ROW_AS("seed", INT, sampling.seed, NULL,                                     \
                   "Seed of the sampler. The same seed gives the same text."),           \
        OPT_ROW(STR, grammar, NULL, "The text obeys the rules of this file, in GBNF.",   \
                .unit = "FILE", .alias = "grammar_file"),                                \
        OPT_ROW(STR, json_schema, NULL,                                                  \
                "The text is JSON that is valid by the schema of this file. Example: "   \
                "{\"type\": \"object\"} for any object.",                                \
                .unit = "FILE", .alias = "json_schema_file")

/* The grammar of either file; both NULL: none. out->text: mem_free(). */
MUST int cli_read_grammar(const char *grammar, const char *json_schema,
                          struct serve_grammar *out);

#endif
