/* Pre-tokenizers: regular expressions that cut a text into words before merging.
 *
 * The known expressions are part of the models they belong to: one character more or less
 * gives other tokens than the model was trained on. Text between two matches is a word
 * too, and so is every run of invalid UTF-8, so that nothing is ever lost. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/tok.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"

/* Enough for every published expression; a hostile one gets an error instead of our
 * memory. */
#define REGEX_MAX_BYTES 4096
#define PARENS_MAX      50
#define STEPS           10000000u
#define STEPS_PER_BYTE  32 /* a text of spaces takes 18 by the published expressions */
#define WINDOW          128 /* bytes that a match sees first, and its first limit on steps */
#define HEAP_LIMIT_KIB  20000
#define JIT_STACK_BYTES (512 << 10)

#define GPT2_WORDS                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"

#define LLAMA3_WORDS                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"            \
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Letters of OpenAI's and Mistral's vocabularies: words end where upper case follows lower case. */
#define UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define SHORT  "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define BEHIND " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct pre {
    const char *name;
    const char *regex;
    bool whole_word;
    const char *then[3]; /* applied in turn to the parts that the one before gave */
} pres[] = {
    /* llama.cpp takes this for a file that names no pre-tokenizer. */
    {.name = "default",
     .regex = "[\\p{P}\\$\\+<=>\\^~\\|]+",
     .then = {GPT2_WORDS, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {.name = "gpt-2", .regex = GPT2_WORDS "|\\s+"},
    {.name = "llama-3", .regex = LLAMA3_WORDS, .whole_word = true},
    /* Llama 3's words, of which all are merged from their parts. */
    {.name = "smaug-bpe", .regex = LLAMA3_WORDS},
    {.name = "qwen2",
     .regex = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
              " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {.name = "smollm", .regex = "\\p{N}", .then = {GPT2_WORDS}},
    /* Mistral's models since Nemo have it. */
    {.name = "tekken",
     .regex = BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}|" BEHIND,
     .whole_word = true},
    /* o200k of gpt-oss, Phi-4-mini and Llama 4. */
    {.name = "gpt-4o",
     .regex = BEFORE UPPER "*" LOWER "+" SHORT "|" BEFORE UPPER "+" LOWER "*" SHORT
                           "|\\p{N}{1,3}|" BEHIND},
};
#define N_PRES ((int)(sizeof(pres) / sizeof(pres[0])))

/* The words that files use. */
static const struct {
    const char *word, *name;
} aliases[] = {
    {"gpt-2", "gpt-2"},       {"gpt2", "gpt-2"},
    {"default", "default"},   {"llama-3", "llama-3"},
    {"tekken", "tekken"},     {"smollm", "smollm"},
    {"llama3", "llama-3"},    {"llama-v3", "llama-3"},
    {"llama-bpe", "llama-3"}, {"dbrx", "smaug-bpe"},
    {"refact", "smollm"},     {"starcoder", "smollm"},
    {"command-r", "smollm"},  {"chatglm-bpe", "smaug-bpe"},
    {"glm4", "smaug-bpe"},    {"smaug-bpe", "smaug-bpe"},
    {"qwen2", "qwen2"},       {"deepseek-r1-qwen", "qwen2"},
    {"stablelm2", "qwen2"},   {"megrez", "qwen2"},
    {"gpt-4o", "gpt-4o"},     {"llama4", "gpt-4o"},
    {"olmo", "gpt-2"},        {"phi-2", "gpt-2"},
    {"falcon3", "llama-3"},   {"pixtral", "llama-3"},
};

static void *pcre_alloc(size_t n, void *ctx)
{
    (void)ctx;
    return mem_new(MEM_TOKENIZER, n, 1);
}

static void pcre_free(void *p, void *ctx)
{
    (void)ctx;
    mem_free(p);
}

/* White_Space of Unicode. PCRE2's \s has U+180E, too, which lost that property in Unicode 6.3. */
#define SPACES                                                                           \
    "\\x{9}-\\x{d} "                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"              \
    "\\x{205f}\\x{3000}"

/* The expression with \s and \S written out. \S within brackets stays: no model has it. */
static int spell_spaces(struct text *out, const char *regex, size_t n)
{
    bool in_class = false;
    size_t first = 0; /* of the class: a bracket there is a character of it */

    for (size_t i = 0; i < n; i++) {
        char c = regex[i], next = i + 1 < n ? regex[i + 1] : '\0';

        if (c == '\\' && next == 's') {
            text_puts(out, in_class ? SPACES : "[" SPACES "]");
            i++;
        } else if (c == '\\' && next == 'S' && !in_class) {
            text_puts(out, "[^" SPACES "]");
            i++;
        } else if (c == '\\' && i + 1 < n) {
            text_put(out, regex + i++, 2);
        } else {
            if (!in_class && c == '[')
                first = i + 1 + (next == '^');
            in_class = in_class ? c != ']' || i == first : c == '[';
            text_put(out, &c, 1);
        }
    }
    return out->rc;
}

static int compile_own(struct tok *t, const char *regex, size_t n, bool known)
{
    pcre2_general_context *gc = NULL;
    pcre2_compile_context *cc = NULL;
    pcre2_code *code = NULL;
    PCRE2_UCHAR text[128];
    PCRE2_SIZE at = 0;
    int e = 0, rc = ERR_NOMEM;

    if (t->n_expr == TOK_EXPR_MAX)
        return err_set(ERR_LIMIT, "more than %d pre-tokenizer expressions", TOK_EXPR_MAX);
    gc = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    cc = gc ? pcre2_compile_context_create(gc) : NULL;
    if (!cc)
        goto out;
    pcre2_set_parens_nest_limit(cc, PARENS_MAX);
    code = pcre2_compile((PCRE2_SPTR)regex, n,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
                             PCRE2_DOLLAR_ENDONLY,
                         &e, &at, cc);
    if (!code && e == PCRE2_ERROR_HEAP_FAILED)
        goto out;
    if (!code) {
        pcre2_get_error_message(e, text, sizeof(text));
        rc = err_set(ERR_FORMAT, "pre-tokenizer expression, offset %zu: %s", at,
                     (const char *)text);
        goto out;
    }
    /* Where the system forbids generated code the interpreter does the same, slower. It alone
     * counts each step back into a repetition: a stranger's expression is left to it. */
    if (known)
        (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    t->expr[t->n_expr++] = code;
    rc = OK;
out:
    pcre2_compile_context_free(cc);
    pcre2_general_context_free(gc);
    return rc;
}

static int compile(struct tok *t, const char *regex, size_t n, bool known)
{
    struct text own = {0};
    int rc = n > REGEX_MAX_BYTES
                 ? err_set(ERR_FORMAT,
                           "pre-tokenizer expression: %zu bytes, expected at most %d", n,
                           REGEX_MAX_BYTES)
                 : spell_spaces(&own, regex, n);

    if (rc == OK)
        rc = compile_own(t, own.p ? own.p : "", own.n, known);
    text_fini(&own);
    return rc;
}

static int use(struct tok *t, const struct pre *p)
{
    int rc = compile(t, p->regex, strlen(p->regex), true);

    snprintf(t->kind, sizeof(t->kind), "bpe/%s", p->name);
    t->whole_word = t->whole_word || p->whole_word;
    for (int i = 0; rc == OK && i < 3 && p->then[i]; i++)
        rc = compile(t, p->then[i], strlen(p->then[i]), true);
    return rc;
}

int tok_pre_named(struct tok *t, const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (strlen(aliases[i].word) != n || memcmp(aliases[i].word, name, n) != 0)
            continue;
        /* Qwen's tokenizers have normal form C, DeepSeek's of Qwen's words have not; a GGUF file
         * cannot say it. */
        t->nfc = t->nfc || strcmp(aliases[i].word, "qwen2") == 0;
        for (int k = 0; k < N_PRES; k++)
            if (strcmp(pres[k].name, aliases[i].name) == 0)
                return use(t, &pres[k]);
    }
    return err_set(ERR_UNSUPPORTED, "pre-tokenizer \"%.*s\", expected " TOK_PRE_NAMES,
                   (int)(n < 64 ? n : 64), name);
}

int tok_pre_regex(struct tok *t, const char *regex, size_t n)
{
    for (int k = 0; k < N_PRES && t->n_expr == 0; k++)
        if (!pres[k].then[0] && strlen(pres[k].regex) == n &&
            memcmp(pres[k].regex, regex, n) == 0)
            return use(t, &pres[k]);
    snprintf(t->kind, sizeof(t->kind), "bpe/custom");
    return compile(t, regex, n, false);
}

const char *tok_pre_text(const char *name)
{
    int k = 0;

    while (strcmp(pres[k].name, name) != 0)
        k++;
    return pres[k].regex;
}

void tok_pre_fini(struct tok *t)
{
    for (int i = 0; i < t->n_expr; i++)
        pcre2_code_free(t->expr[i]);
    t->n_expr = 0;
    t->drops = 0;
}

/* --- matching */

static int work_init(struct tok_work *w)
{
    pcre2_general_context *gc = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    bool whole = gc != NULL;

    if (gc) {
        w->match_ctx = pcre2_match_context_create(gc);
        w->jit_stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, gc);
        for (int i = 0; i < w->t->n_expr; i++) {
            w->match[i] = pcre2_match_data_create(1, gc);
            whole = whole && w->match[i];
        }
    }
    pcre2_general_context_free(gc);
    if (!whole || !w->match_ctx)
        return ERR_NOMEM;
    pcre2_set_heap_limit(w->match_ctx, HEAP_LIMIT_KIB);
    w->max_steps = STEPS;
    pcre2_jit_stack_assign(w->match_ctx, NULL,
                           w->jit_stack); /* NULL: the machine's 32 K */
    return OK;
}

void tok_pre_work_fini(struct tok_work *w)
{
    for (int i = 0; i < TOK_EXPR_MAX; i++)
        pcre2_match_data_free(w->match[i]);
    pcre2_jit_stack_free(w->jit_stack);
    pcre2_match_context_free(w->match_ctx);
}

/* Find expression k in s[n] at or after *at; its place is in the ovector. PCRE2's own limit is one
 * for each place where a match may begin, and does not count the bytes that loops read, so that
 * the work could grow with the square of the text. Here a match sees a window, of which PCRE2 says
 * whether the answer depends on what is behind it, and has few steps. Where these do not suffice,
 * a match is tried at *at alone with twice as many. Windows and tries add up to n_steps, which is
 * the work but for a constant factor, and has a limit in proportion to the text. false with *rc
 * OK: there is no match. */
static bool find(struct tok_work *w, int k, const char *s, size_t n, size_t *at, int *rc)
{
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match[k]);
    uint32_t steps = WINDOW;
    size_t window = WINDOW;
    int m = PCRE2_ERROR_NOMATCH;

    while (*at < n && w->n_steps <= w->max_steps) {
        size_t end = n - *at > window ? *at + window : n;
        bool alone = steps > WINDOW;

        while (end < n && ((unsigned char)s[end] & 0xC0) == 0x80)
            end++;
        pcre2_set_match_limit(w->match_ctx, steps);
        m = pcre2_match(w->t->expr[k], (PCRE2_SPTR)s, end, *at,
                        PCRE2_NO_UTF_CHECK | (end < n ? PCRE2_PARTIAL_HARD : 0) |
                            (alone ? PCRE2_ANCHORED : 0),
                        w->match[k], w->match_ctx);
        w->n_steps += (alone ? steps : 1) + (m >= 0 ? v[1] : end) - *at;
        if (m == PCRE2_ERROR_MATCHLIMIT) {
            steps *= steps < UINT32_MAX / 2 ? 2 : 1;
        } else if (m == PCRE2_ERROR_PARTIAL) {
            window *= 2;
        } else if (m < 0 && m != PCRE2_ERROR_NOMATCH) {
            break;
        } else if (m < 0 && alone) {
            *at += (size_t)utf8_len(s + *at, n - *at);
            steps = window = WINDOW;
        } else if (end < n && (m < 0 || v[0] == end)) {
            *at = end; /* no match begins in the window */
        } else {
            return m >= 0;
        }
    }
    if (*at < n)
        *rc = m == PCRE2_ERROR_NOMEMORY
                  ? ERR_NOMEM
                  : err_set(ERR_LIMIT,
                            "pre-tokenizer: matching at byte %zu exceeds a limit (%d)",
                            *at, m);
    return false;
}

/* Cut valid UTF-8 by the expressions from `k` on; the depth is at most TOK_EXPR_MAX. */
static int cut(struct tok_work *w, int k, const char *s, size_t n)
{
    size_t at = 0, done = 0; /* text before `done` has become words */
    bool keeps = !(w->t->drops >> k & 1);
    int rc = OK;

    if (k == w->t->n_expr)
        return tok_word(w, s, n);
    while (at < n && rc == OK) {
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match[k]);

        if (!find(w, k, s, n, &at, &rc))
            break;
        if (v[1] <= v[0] || v[0] < done) { /* an empty match cuts nothing */
            at = v[1] > at ? v[1] : at;
            at += at < n ? (size_t)utf8_len(s + at, n - at) : 0;
            continue;
        }
        at = v[1];
        if (v[0] > done && keeps)
            rc = cut(w, k + 1, s + done, v[0] - done);
        if (rc == OK)
            rc = cut(w, k + 1, s + v[0], at - v[0]);
        done = at;
    }
    if (rc == OK && done < n && keeps)
        rc = cut(w, k + 1, s + done, n - done);
    return rc;
}

int tok_pre_words(struct tok_work *w, const char *s, size_t n)
{
    int rc = OK;

    if (!w->match_ctx)
        rc = work_init(w);
    for (size_t i = 0, from = 0; i < n && rc == OK; from = i) {
        int len = utf8_len(s + i, n - i);
        bool valid = len > 0;

        /* The longest run that is all valid or all invalid. */
        while (i < n && (len > 0) == valid) {
            i += len > 0 ? (size_t)len : len < 0 ? (size_t)-len : n - i;
            if (i < n)
                len = utf8_len(s + i, n - i);
        }
        w->max_steps += STEPS_PER_BYTE * (i - from);
        rc = valid ? cut(w, 0, s + from, i - from) : tok_word(w, s + from, i - from);
    }
    return rc;
}
