/* A vocabulary of any exact size that tokenises any text: 256 bytes, then short strings
 * of letters, the likelier letters first, each one letter longer than one before it, then
 * the special tokens at the places where the named model's own vocabulary has them. */
#include "make/parts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define N_BYTES 256
/* The word mark, then letters by how often English uses them. */
static const char letters[] = " etaoinshrdlcumwfgypbvkjxqz";
#define N_LETTERS ((int)sizeof(letters) - 1)
/* SentencePiece needs characters as tokens too: the word mark and printable ASCII. */
#define FIRST_CHAR '!'
#define LAST_CHAR  '~'
#define N_SINGLE   (1 + LAST_CHAR - FIRST_CHAR + 1)

static const char *const lead_text[] = {"<unk>", "<s>", "</s>"};
#define N_LEAD 3

#define END    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define SHORT  "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define BEHIND " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
const struct make_words make_words[] = {
    [MAKE_LLAMA3] = {"llama-bpe", WORDS "{1,3}|" END, false},
    [MAKE_QWEN2] = {"qwen2", WORDS "|" END, false},
    [MAKE_REFACT] = {"refact", "\\p{N}", true},
    [MAKE_DBRX] = {"dbrx", WORDS "{1,3}|" END, false},
    [MAKE_GLM4] = {"chatglm-bpe", WORDS "{1,3}|" END, false},
    [MAKE_COMMAND_R] = {"command-r", "\\p{N}", true},
    [MAKE_STARCODER] = {"starcoder", "\\p{N}", true},
    [MAKE_STABLELM2] = {"stablelm2", WORDS "|" END, false},
    [MAKE_TEKKEN] = {"tekken",
                     BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER
                                  "*|\\p{N}|" BEHIND,
                     false},
    [MAKE_O200K] = {"gpt-4o",
                    BEFORE UPPER "*" LOWER "+" SHORT "|" BEFORE UPPER "+" LOWER "*" SHORT
                                 "|\\p{N}{1,3}|" BEHIND,
                    false},
};

/* The published places of the special tokens that have a meaning; the rest are reserved.
 */
static const struct {
    enum make_family family;
    int id;
    const char *text;
} special_text[] = {
    {MAKE_LLAMA3, 128000, "<|begin_of_text|>"},
    {MAKE_LLAMA3, 128001, "<|end_of_text|>"},
    {MAKE_LLAMA3, 128006, "<|start_header_id|>"},
    {MAKE_LLAMA3, 128007, "<|end_header_id|>"},
    {MAKE_LLAMA3, 128009, "<|eot_id|>"},
    {MAKE_QWEN2, 151643, "<|endoftext|>"},
    {MAKE_QWEN2, 151644, "<|im_start|>"},
    {MAKE_QWEN2, 151645, "<|im_end|>"},
};

/* Strings of letters in the order of their length: each is an earlier one (or a single
 * letter) and one more letter. The word mark stands only in front. */
static void grow_pieces(struct make_piece *piece, int at, int n)
{
    int parent, l;
    struct make_piece p;

    for (parent = -N_LETTERS; at < n; parent++) {
        if (parent < 0)
            p = (struct make_piece){{letters[parent + N_LETTERS]}, 1};
        else
            p = piece[parent];
        for (l = 1; l < N_LETTERS && at < n; l++) {
            piece[at] = p;
            piece[at].text[p.n] = letters[l];
            piece[at++].n = (uint8_t)(p.n + 1);
        }
    }
}

int make_vocab_init(struct make_vocab *v, const struct make_shape *s, bool spm)
{
    int i, n;

    *v = (struct make_vocab){.shape = s, .spm = spm, .special_at = s->special_at};
    v->n_lead = s->family == MAKE_LLAMA2 || s->family == MAKE_TEKKEN ? N_LEAD : 0;
    v->single_at = v->n_lead + N_BYTES;
    v->piece_at = v->single_at + (spm ? N_SINGLE : 0);
    n = v->special_at - v->piece_at;
    v->piece = mem_new(MEM_TOKENIZER, (size_t)n, sizeof(v->piece[0]));
    if (!v->piece)
        return ERR_NOMEM;
    grow_pieces(v->piece, 0, n);
    for (i = 0; i < n; i++)
        if (v->piece[i].n >= sizeof(v->piece[i].text))
            return err_set(ERR_LIMIT,
                           "model make: %s: a vocabulary of %d needs longer pieces",
                           s->name, s->vocab);
    return OK;
}

void make_vocab_fini(struct make_vocab *v)
{
    mem_free(v->piece);
    v->piece = NULL;
}

/* The printable stand-in of a byte in byte-level vocabularies: itself where it is
 * printable Latin-1, else the next free letter from U+0100 on. */
static void put_byte_letter(int byte, char out[MAKE_TOKEN_BYTES])
{
    int b, code = byte, moved = 0;

    for (b = 0; b <= byte; b++)
        if (b <= 0x20 || (b >= 0x7f && b <= 0xa0) || b == 0xad) {
            code = b == byte ? 0x100 + moved : byte;
            moved++;
        }
    if (code < 0x80)
        snprintf(out, MAKE_TOKEN_BYTES, "%c", code);
    else
        snprintf(out, MAKE_TOKEN_BYTES, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
}

static const char *word_mark(const struct make_vocab *v)
{
    return v->spm ? "\xe2\x96\x81"
                  : "\xc4\xa0"; /* U+2581; U+0120, the stand-in of a space */
}

static void put_letters(const struct make_vocab *v, const char *text, int n,
                        char out[MAKE_TOKEN_BYTES])
{
    bool mark = text[0] == ' ';

    snprintf(out, MAKE_TOKEN_BYTES, "%s%.*s", mark ? word_mark(v) : "", n - mark,
             text + mark);
}

static void put_special(const struct make_vocab *v, int id, char out[MAKE_TOKEN_BYTES])
{
    size_t i;

    for (i = 0; i < sizeof(special_text) / sizeof(special_text[0]); i++)
        if (special_text[i].family == v->shape->family && special_text[i].id == id) {
            snprintf(out, MAKE_TOKEN_BYTES, "%s", special_text[i].text);
            return;
        }
    snprintf(out, MAKE_TOKEN_BYTES, "<|reserved_%d|>", id);
}

enum make_token_kind make_token(const struct make_vocab *v, int id,
                                char out[MAKE_TOKEN_BYTES])
{
    const struct make_piece *p;
    char single[2];

    if (id < v->n_lead) {
        snprintf(out, MAKE_TOKEN_BYTES, "%s", lead_text[id]);
        return id == 0 ? MAKE_TOKEN_UNKNOWN : MAKE_TOKEN_CONTROL;
    }
    if (id >= v->special_at) {
        put_special(v, id, out);
        return MAKE_TOKEN_CONTROL;
    }
    if (id < v->single_at && v->spm) {
        snprintf(out, MAKE_TOKEN_BYTES, "<0x%02X>", id - v->n_lead);
        return MAKE_TOKEN_BYTE;
    }
    if (id < v->single_at) {
        put_byte_letter(id - v->n_lead, out);
    } else if (id < v->piece_at) {
        single[0] = id == v->single_at ? ' ' : (char)(FIRST_CHAR + id - v->single_at - 1);
        put_letters(v, single, 1, out);
    } else {
        p = &v->piece[id - v->piece_at];
        put_letters(v, p->text, p->n, out);
    }
    return MAKE_TOKEN_NORMAL;
}

void make_merge(const struct make_vocab *v, int id, char out[MAKE_TOKEN_BYTES])
{
    const struct make_piece *p = &v->piece[id - v->piece_at];
    char left[MAKE_TOKEN_BYTES];

    put_letters(v, p->text, p->n - 1, left);
    snprintf(out, MAKE_TOKEN_BYTES, "%.40s %c", left, p->text[p->n - 1]);
}
