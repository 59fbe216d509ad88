#include "tokenizer/keys.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum rule {
    FOLLOWED, /* a reader reads it, and refuses the values that it lacks */
    FLAG,     /* the same, of true and false */
    INERT,    /* changes no id */
    ONLY,     /* refused unless it has the value of the row */
};

static const struct row {
    enum tok_keys of;
    const char *key;
    enum rule rule;
    double value;
} rows[] = {
    {TOK_KEYS_GGUF, "model", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "pre", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "tokens", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "scores", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "token_type", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "merges", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "bos_token_id", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "eos_token_id", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "eot_token_id", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "eom_token_id", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "unknown_token_id", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "add_bos_token", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "add_space_prefix", FOLLOWED, 0},
    {TOK_KEYS_GGUF, "add_eos_token", ONLY, 0},
    {TOK_KEYS_GGUF, "add_sep_token", ONLY, 0},
    {TOK_KEYS_GGUF, "remove_extra_whitespaces", ONLY, 0},
    {TOK_KEYS_GGUF, "escape_whitespaces", ONLY, 1},
    {TOK_KEYS_GGUF, "treat_whitespace_as_suffix", ONLY, 0},

    {TOK_KEYS_FILE, "version", INERT, 0},
    {TOK_KEYS_FILE, "truncation", INERT, 0}, /* of batches: the caller's to ask for */
    {TOK_KEYS_FILE, "padding", INERT, 0},
    {TOK_KEYS_FILE, "decoder", FOLLOWED, 0},
    {TOK_KEYS_FILE, "added_tokens", FOLLOWED, 0},
    {TOK_KEYS_FILE, "normalizer", FOLLOWED, 0},
    {TOK_KEYS_FILE, "pre_tokenizer", FOLLOWED, 0},
    {TOK_KEYS_FILE, "post_processor", FOLLOWED, 0},
    {TOK_KEYS_FILE, "model", FOLLOWED, 0},

    {TOK_KEYS_MODEL, "type", FOLLOWED, 0},
    {TOK_KEYS_MODEL, "vocab", FOLLOWED, 0},
    {TOK_KEYS_MODEL, "merges", FOLLOWED, 0},
    {TOK_KEYS_MODEL, "unk_token", FOLLOWED, 0},
    {TOK_KEYS_MODEL, "fuse_unk", FLAG, 0},
    {TOK_KEYS_MODEL, "byte_fallback", FLAG, 0},
    {TOK_KEYS_MODEL, "ignore_merges", FLAG, 0},
    {TOK_KEYS_MODEL, "continuing_subword_prefix", FOLLOWED, 0},
    {TOK_KEYS_MODEL, "end_of_word_suffix", FOLLOWED, 0},
    {TOK_KEYS_MODEL, "dropout", ONLY, 0}, /* merges left out at random */

    {TOK_KEYS_PART, "type", FOLLOWED, 0},
    {TOK_KEYS_PART, "normalizers", FOLLOWED, 0},
    {TOK_KEYS_PART, "pretokenizers", FOLLOWED, 0},
    {TOK_KEYS_PART, "processors", FOLLOWED, 0},
    {TOK_KEYS_PART, "decoders", FOLLOWED, 0},
    {TOK_KEYS_PART, "start", FOLLOWED, 0},
    {TOK_KEYS_PART, "stop", FOLLOWED, 0},
    {TOK_KEYS_PART, "prepend", FOLLOWED, 0},
    {TOK_KEYS_PART, "pattern", FOLLOWED, 0},
    {TOK_KEYS_PART, "content", FOLLOWED, 0},
    {TOK_KEYS_PART, "behavior", FOLLOWED, 0},
    {TOK_KEYS_PART, "invert", FLAG, 0},
    {TOK_KEYS_PART, "use_regex", FLAG, 0},
    {TOK_KEYS_PART, "add_prefix_space", FLAG, 0},
    {TOK_KEYS_PART, "replacement", FOLLOWED, 0},
    {TOK_KEYS_PART, "str_rep", INERT, 0}, /* the replacement again */
    {TOK_KEYS_PART, "prepend_scheme", FOLLOWED, 0},
    {TOK_KEYS_PART, "split", FLAG, 0},
    {TOK_KEYS_PART, "individual_digits", FLAG, 0},
    {TOK_KEYS_PART, "trim_offsets", INERT, 0}, /* where tokens stand in the text */
    {TOK_KEYS_PART, "single", FOLLOWED, 0},
    {TOK_KEYS_PART, "special_tokens", FOLLOWED, 0},
    {TOK_KEYS_PART, "pair", INERT, 0}, /* of two texts */

    {TOK_KEYS_ADDED, "id", FOLLOWED, 0},
    {TOK_KEYS_ADDED, "content", FOLLOWED, 0},
    {TOK_KEYS_ADDED, "single_word", ONLY, 0},
    {TOK_KEYS_ADDED, "lstrip", FLAG, 0},
    {TOK_KEYS_ADDED, "rstrip", FLAG, 0},
    {TOK_KEYS_ADDED, "normalized", FLAG, 0},
    {TOK_KEYS_ADDED, "special", FLAG, 0},

    {TOK_KEYS_CONFIG, "bos_token", FOLLOWED, 0},
    {TOK_KEYS_CONFIG, "eos_token", FOLLOWED, 0},
    {TOK_KEYS_CONFIG, "add_bos_token", FLAG, 0},
    {TOK_KEYS_CONFIG, "add_eos_token", ONLY, 0},
    {TOK_KEYS_CONFIG, "add_prefix_space", FLAG, 0},
    {TOK_KEYS_CONFIG, "split_special_tokens", ONLY, 0},
    {TOK_KEYS_CONFIG, "added_tokens_decoder", FOLLOWED, 0},
    {TOK_KEYS_CONFIG, "additional_special_tokens", FOLLOWED, 0},
    /* of a whole text; servers that stream text do not, as it takes back what was sent */
    {TOK_KEYS_CONFIG, "clean_up_tokenization_spaces", INERT, 0},
};

/* Words that an unknown key begins with where ids may follow from it. */
static const char *const suspect[] = {
    "add_", "remove_", "escape_", "split", "treat_", "precompiled_charsmap", NULL};

static int refuse_unknown(enum tok_keys of, const char *key, const char *where)
{
    bool refused = of != TOK_KEYS_GGUF && of != TOK_KEYS_CONFIG;

    for (int i = 0; suspect[i]; i++)
        refused |= strncmp(key, suspect[i], strlen(suspect[i])) == 0;
    return !refused
               ? OK
               : err_set(ERR_UNSUPPORTED,
                         "%s: %.80s: expected only keys whose effect on the ids of a "
                         "text is known, found this one",
                         where, key);
}

int tok_key_check(enum tok_keys of, const char *key, double value, const char *where)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *r = &rows[i];

        if (r->of != of || strcmp(r->key, key) != 0)
            continue;
        if (r->rule == FLAG && value != 0 && value != 1)
            return err_set(ERR_FORMAT,
                           "%s: %s: expected true or false, found something else", where,
                           key);
        if (r->rule != ONLY || value == r->value)
            return OK;
        if (isnan(value))
            return err_set(ERR_UNSUPPORTED, "%s: %s: expected %g, found something else",
                           where, key, r->value);
        return err_set(ERR_UNSUPPORTED, "%s: %s: expected %g, found %g", where, key,
                       r->value, value);
    }
    return refuse_unknown(of, key, where);
}

int tok_keys_check(enum tok_keys of, const json_t *object, const char *where)
{
    const char *key;
    const json_t *v;

    json_object_foreach((json_t *)object, key, v)
    {
        /* an integer is not a truth value */
        double value = json_is_real(v)      ? json_real_value(v)
                       : json_is_boolean(v) ? json_is_true(v)
                                            : NAN;

        if (!json_is_null(v))
            TRY(tok_key_check(of, key, value, where));
    }
    return OK;
}
