/* grammar/grammar.h - which tokens may come next, so that a text obeys a grammar.
 *
 * A grammar is a text of rules in GBNF, or a JSON schema, which is rewritten as one. Rules become
 * the states of a pushdown automaton over bytes. What was generated so far is a set of its stacks,
 * of which equal ones are one, with the step of each by each byte. A mask has a bit for each token
 * after which a stack is left. Tokens are a trie of their bytes, so that what they have in common
 * is followed once, and masks that took long are kept.
 *
 * Work and memory are bounded. A rule that calls itself before it has read a byte, and one that
 * has no end, are refused. Texts that nest rules deeper than GRAMMAR_DEPTH_MAX are not generated.
 * Threads: a vocabulary may be used by any, a matcher by one at a time. Not in the five papers. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/tokenizer.h"

#define GRAMMAR_TEXT_MAX  ((size_t)1 << 20) /* bytes of a grammar or schema */
#define GRAMMAR_DEPTH_MAX 512

enum grammar_kind {
    GRAMMAR_GBNF,
    GRAMMAR_SCHEMA, /* JSON schema; {"type": "object"} is any object */
};

/* The tokens of a model, and the grammars that were used last. */
struct grammar_vocab;
/* tok is lent. Ids of tok_vocab(tok) and above never come; `stops`, copied, end a text. The trie is
 * made with the first matcher. ERR_NOMEM. */
MUST int grammar_vocab_open(struct grammar_vocab **out, const struct tok *tok,
                            int n_vocab, const int32_t *stops, int n_stops);
void grammar_vocab_close(struct grammar_vocab **v); /* after all its matchers */

/* A text as it is generated. */
struct grammar_matcher;
/* From its beginning. drops_space: the first token's leading space would not be shown, and no such
 * token comes first. ERR_ARG, ERR_LIMIT, ERR_FORMAT: what is wrong in the grammar, and where.
 * ERR_UNSUPPORTED: a keyword of a schema. ERR_NOMEM. */
MUST int grammar_matcher_open(struct grammar_matcher **out, struct grammar_vocab *v,
                              enum grammar_kind kind, const char *text, size_t n,
                              bool drops_space);
void grammar_matcher_close(struct grammar_matcher **m);

/* These have the types of a sampler's constraint; the matcher is passed as void *. */
/* A bit for each id that may come next, [(n_vocab + 63) / 64], lent until the next call. All are 0
 * where the vocabulary lacks what has to come. NULL: it has failed, see grammar_why(). */
const uint64_t *grammar_allowed(void *matcher);
/* The id comes next. */
void grammar_take(void *matcher, int32_t id);

/* Why no token may come, or "". */
const char *grammar_why(const struct grammar_matcher *m);

/* The rules that a JSON schema becomes. root: what `root` is, in which r0 is a value of the schema.
 * *out: mem_free(). Errors as of grammar_matcher_open(). */
MUST int grammar_from_schema(char **out, const char *text, size_t n, const char *root);

#endif
