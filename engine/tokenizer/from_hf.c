/* Hugging Face tokenizer.json: byte-level BPE, and SentencePiece vocabularies written as
 * BPE with byte fallback. Whatever would change the ids and is not known here is refused
 * by its name. Roles of tokens come from the post-processor, then tokenizer_config.json
 * in the same folder, which may add tokens and change those that are added. */
#include "tokenizer/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tokenizer/keys.h"

#define JSON_MAX_BYTES ((size_t)256 << 20) /* the largest published is about 35 MB */

/* A token as the file writes it; lent by the JSON tree. */
struct entry {
    const char *s;
    size_t n;
    int type; /* TOK_HOLE: none */
};

struct hf {
    struct tok *t;
    json_t *root, *config; /* config: NULL where there is none */
    const json_t *model, *vocab;
    struct entry *entry;
    int32_t n_entry;
    bool byte_level, marks_spaces;
    bool byte_fallback, normalises; /* the normalizer writes or marks spaces */
    bool strips;                    /* the decoder leaves the first space out */
};

static bool is_type(const json_t *j, const char *type)
{
    const char *s = json_string_value(json_object_get(j, "type"));

    return s && strcmp(s, type) == 0;
}

/* Names the type of the part, and all of its values. */
static int unknown_part(const json_t *j, const char *what)
{
    const char *s = json_string_value(json_object_get(j, "type"));
    char *all = json_text(j, JSON_COMPACT | JSON_ENCODE_ANY);
    int rc = err_set(ERR_UNSUPPORTED,
                     "%s: type \"%.64s\" is not supported with these values: %.200s",
                     what, s ? s : "?", all ? all : "?");

    mem_free(all);
    return rc;
}

static bool string_is(const json_t *j, const char *key, const char *value)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s && strcmp(s, value) == 0;
}

/* --- normalizer */

static int normalizer(struct hf *h, const json_t *j)
{
    const json_t *pattern = json_object_get(j, "pattern");

    if (!j || json_is_null(j))
        return OK;
    if (is_type(j, "NFC")) {
        h->t->nfc = true;
        return OK;
    }
    if (is_type(j, "Prepend") && string_is(j, "prepend", "\xE2\x96\x81")) {
        h->t->space_prefix = TOK_PREFIX_ALWAYS;
        h->t->prefix_special = h->normalises = true;
        return OK;
    }
    if (is_type(j, "Replace") && string_is(pattern, "String", " ") &&
        string_is(j, "content", "\xE2\x96\x81")) {
        h->marks_spaces = h->normalises = true;
        return OK;
    }
    return unknown_part(j, "normalizer");
}

/* --- pre_tokenizer */

static int split(struct hf *h, const json_t *j)
{
    const char *regex =
        json_string_value(json_object_get(json_object_get(j, "pattern"), "Regex"));
    bool invert = json_is_true(json_object_get(j, "invert"));

    /* Our words are the matches and what is between them, which "Removed" drops. */
    bool drops = string_is(j, "behavior", "Removed") && invert;

    if (!regex || !(drops || string_is(j, "behavior", "Isolated")))
        return unknown_part(j, "pre_tokenizer");
    TRY(tok_pre_regex(h->t, regex, strlen(regex)));
    h->t->drops |= (unsigned)drops << (h->t->n_expr - 1);
    return OK;
}

static int byte_level(struct hf *h, const json_t *j)
{
    const char *gpt2 = tok_pre_text("gpt-2");

    h->byte_level = true;
    if (json_is_true(json_object_get(j, "add_prefix_space")))
        return unknown_part(j, "pre_tokenizer");
    if (json_is_false(json_object_get(j, "use_regex")))
        return OK;
    return tok_pre_regex(h->t, gpt2, strlen(gpt2));
}

static int metaspace(struct hf *h, const json_t *j)
{
    static const char *const schemes[] = {[TOK_PREFIX_NEVER] = "never",
                                          [TOK_PREFIX_FIRST] = "first",
                                          [TOK_PREFIX_ALWAYS] = "always"};
    const json_t *add = json_object_get(j, "add_prefix_space"); /* older */
    int scheme = json_is_false(add) ? TOK_PREFIX_NEVER : TOK_PREFIX_ALWAYS;

    h->marks_spaces = h->t->prefix_once = true;
    for (int i = 0; i < 3; i++)
        if (string_is(j, "prepend_scheme", schemes[i]))
            scheme = i;
    if (!string_is(j, "replacement", "\xE2\x96\x81") ||
        !json_is_false(json_object_get(j, "split")) ||
        (json_object_get(j, "prepend_scheme") &&
         !string_is(j, "prepend_scheme", schemes[scheme])) ||
        (json_is_false(add) && scheme != TOK_PREFIX_NEVER))
        return unknown_part(j, "pre_tokenizer");
    h->t->space_prefix = (enum tok_prefix)scheme;
    return OK;
}

static int pre_tokenizer(struct hf *h, const json_t *j)
{
    if (!j || json_is_null(j))
        return OK;
    if (h->byte_level) /* a part behind it would see the stand-ins of bytes */
        return unknown_part(j, "pre_tokenizer behind ByteLevel");
    if (is_type(j, "Split"))
        return split(h, j);
    if (is_type(j, "ByteLevel"))
        return byte_level(h, j);
    if (is_type(j, "Metaspace"))
        return metaspace(h, j);
    if (is_type(j, "Digits")) {
        bool one = json_is_true(json_object_get(j, "individual_digits"));

        return one ? tok_pre_regex(h->t, "\\p{N}", 5) : tok_pre_regex(h->t, "\\p{N}+", 6);
    }
    return unknown_part(j, "pre_tokenizer");
}

/* --- decoder: of ids to text. What it does here follows from the vocabulary. */

static int decoder(struct hf *h, const json_t *j)
{
    const json_t *pattern = json_object_get(j, "pattern");

    bool known = is_type(j, "ByteFallback") || is_type(j, "Fuse");

    if (!j || json_is_null(j))
        return OK;
    if (is_type(j, "Replace"))
        known =
            string_is(pattern, "String", "\xE2\x96\x81") && string_is(j, "content", " ");
    if (is_type(j, "Metaspace")) {
        known = string_is(j, "replacement", "\xE2\x96\x81");
        h->strips = !string_is(j, "prepend_scheme", "never") &&
                    !json_is_false(json_object_get(j, "add_prefix_space"));
    }
    if (is_type(j, "Strip"))
        known = h->strips = string_is(j, "content", " ") &&
                            json_int_at(j, "start") == 1 && json_int_at(j, "stop") == 0;
    return (h->t->chars ? known : is_type(j, "ByteLevel")) ? OK
                                                           : unknown_part(j, "decoder");
}

/* Apply `one` to j, or in turn to the parts of a Sequence. */
static int each(struct hf *h, const json_t *j, const char *list,
                int (*one)(struct hf *, const json_t *))
{
    const json_t *part;
    size_t i;

    if (!is_type(j, "Sequence")) {
        TRY(one(h, j)); /* refuses a type by its name, before its keys */
        return tok_keys_check(TOK_KEYS_PART, j, list);
    }
    TRY(tok_keys_check(TOK_KEYS_PART, j, list));
    json_array_foreach(json_object_get(j, list), i, part)
    {
        TRY(one(h, part));
        TRY(tok_keys_check(TOK_KEYS_PART, part, list));
    }
    return OK;
}

/* --- the tokens */

static int highest_id(struct hf *h, const json_t *added)
{
    const json_t *v;
    const char *key;
    json_int_t top = -1, n = 0;
    size_t i;

    json_object_foreach((json_t *)h->vocab, key, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return err_set(ERR_FORMAT, "model.vocab: \"%.64s\": expected an id", key);
        top = json_integer_value(v) > top ? json_integer_value(v) : top;
        n++;
    }
    json_array_foreach(added, i, v)
    {
        const json_t *id = json_object_get(v, "id");

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            !json_is_string(json_object_get(v, "content")))
            return err_set(ERR_FORMAT, "added_tokens[%zu]: expected id and content", i);
        top = json_integer_value(id) > top ? json_integer_value(id) : top;
        n++;
    }
    if (n == 0 || top >= TOK_VOCAB_MAX || top > 4 * n + 65536)
        return err_set(ERR_LIMIT, "highest id %lld among %lld tokens", (long long)top,
                       (long long)n);
    h->n_entry = (int32_t)top + 1;
    return OK;
}

/* A token as added_tokens of tokenizer.json has it, of one of added_tokens_decoder. What was a
 * control token before remains one. NULL: no memory. */
static json_t *added_token(json_int_t id, const json_t *v, const json_t *before)
{
    const json_t *normalized = json_object_get(v, "normalized");
    bool special = json_is_true(json_object_get(v, "special")) ||
                   json_is_true(json_object_get(before, "special"));

    return json_pack("{s:I, s:O, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                     json_object_get(v, "content"), "special", special, "single_word",
                     json_is_true(json_object_get(v, "single_word")), "lstrip",
                     json_is_true(json_object_get(v, "lstrip")), "rstrip",
                     json_is_true(json_object_get(v, "rstrip")), "normalized",
                     normalized ? json_is_true(normalized) : !special);
}

/* places: where in `added` a text is. */
static int merge_token(struct hf *h, json_t *added, json_t *places, const char *key,
                       const json_t *v)
{
    const char *text = json_string_value(json_object_get(v, "content"));
    const json_t *place = text ? json_object_get(places, text) : NULL;
    size_t at = place ? (size_t)json_integer_value(place) : json_array_size(added);
    const json_t *before = json_array_get(added, at);
    const json_t *known = before ? json_object_get(before, "id")
                          : text ? json_object_get(h->vocab, text)
                                 : NULL;
    json_int_t id = known ? json_integer_value(known) : h->n_entry;
    int rc;

    if (!text || id >= TOK_VOCAB_MAX || strtoll(key, NULL, 10) != id)
        return err_set(ERR_UNSUPPORTED,
                       "tokenizer_config.json: added_tokens_decoder: %.20s: expected a "
                       "token of tokenizer.json or one behind its last, found \"%.64s\"",
                       key, text ? text : "something else");
    h->n_entry += id == h->n_entry;
    rc = before ? json_array_set_new(added, at, added_token(id, v, before))
                : json_array_append_new(added, added_token(id, v, NULL));
    if (rc == 0 && !before)
        rc = json_object_set_new(places, text, json_integer((json_int_t)at));
    return rc == 0 ? OK : err_set(ERR_NOMEM, "no memory for an added token");
}

/* As transformers has it, a token of tokenizer_config.json is added, or is as that file says where
 * both have it. Of a text that has another id there it is not known which was meant. */
static int merge_added(struct hf *h, json_t *added)
{
    const json_t *decoder = json_object_get(h->config, "added_tokens_decoder"), *v;
    json_t *places = json_object();
    int rc = places ? OK : err_set(ERR_NOMEM, "no memory for added tokens");
    const char *key;
    size_t i;

    json_array_foreach(added, i, v)
    {
        const char *text = json_string_value(json_object_get(v, "content"));

        if (rc == OK && json_object_set_new(places, text, json_integer((json_int_t)i)))
            rc = err_set(ERR_NOMEM, "no memory for added tokens");
    }
    json_object_foreach((json_t *)decoder, key, v)
    {
        if (rc == OK)
            rc = merge_token(h, added, places, key, v);
    }
    json_decref(places);
    return rc;
}

static int take_added(struct hf *h)
{
    json_t *added = json_object_get(h->root, "added_tokens");

    TRY(highest_id(h, added));
    if (!json_is_object(json_object_get(h->config, "added_tokens_decoder")))
        return OK;
    if (!json_is_array(added)) {
        if (json_object_set_new(h->root, "added_tokens", added = json_array()) != 0)
            return err_set(ERR_NOMEM, "no memory for added tokens");
    }
    return merge_added(h, added);
}

static int take_entries(struct hf *h)
{
    const json_t *added, *v;
    const char *key;
    size_t i;

    TRY(take_added(h));
    added = json_object_get(h->root, "added_tokens");
    h->entry = mem_new(MEM_TOKENIZER, (size_t)h->n_entry, sizeof(*h->entry));
    if (!h->entry)
        return ERR_NOMEM;
    json_object_foreach((json_t *)h->vocab, key, v)
    {
        struct entry *e = &h->entry[json_integer_value(v)];

        if (e->type != TOK_HOLE)
            return err_set(ERR_FORMAT, "model.vocab: id %lld is given twice",
                           (long long)json_integer_value(v));
        *e = (struct entry){key, strlen(key), TOK_NORMAL};
    }
    json_array_foreach(added, i, v)
    {
        const json_t *text = json_object_get(v, "content");
        bool special = json_is_true(json_object_get(v, "special"));
        char where[48];

        snprintf(where, sizeof(where), "added_tokens[%zu]", i);
        TRY(tok_keys_check(TOK_KEYS_ADDED, v, where));
        h->entry[json_integer_value(json_object_get(v, "id"))] =
            (struct entry){json_string_value(text), json_string_length(text),
                           special ? TOK_CONTROL : TOK_USER};
    }
    return OK;
}

static int set_entry(struct tok *t, int32_t id, const struct entry *e)
{
    int byte = t->chars && !t->no_bytes ? tok_byte_text(e->s, e->n) : -1;
    char c = (char)byte, *text;
    size_t m;
    int rc;

    if (e->type != TOK_NORMAL)
        return tok_vocab_set(t, id, e->s, e->n, (enum tok_type)e->type);
    if (byte >= 0)
        return tok_vocab_set(t, id, &c, 1, TOK_BYTE);
    text = mem_new(MEM_TOKENIZER, e->n, 1);
    if (!text)
        return ERR_NOMEM;
    if (t->chars)
        m = tok_unmark(e->s, e->n, text);
    else if (!tok_unprint(e->s, e->n, text, &m)) /* it means itself */
        memcpy(text, e->s, m = e->n);
    rc = tok_vocab_set(t, id, text, m, TOK_NORMAL);
    mem_free(text);
    return rc;
}

static bool is_ascii(const json_t *text)
{
    const char *s = json_string_value(text);

    for (; *s; s++)
        if ((unsigned char)*s >= 0x80)
            return false;
    return true;
}

/* TOK_NORMALISED, or 0: it means the same in raw text. Normal form C leaves ASCII alone. */
static int normalised_bit(const struct hf *h, const json_t *v, size_t i, int *bit)
{
    bool set = json_is_true(json_object_get(v, "normalized"));

    *bit = set && h->normalises ? TOK_NORMALISED : 0;
    if (set && h->t->nfc && !is_ascii(json_object_get(v, "content")))
        return err_set(ERR_UNSUPPORTED,
                       "added_tokens[%zu]: normalized: expected false of a token that "
                       "normal form C may change, found true",
                       i);
    return OK;
}

static int strip_bits(const json_t *v)
{
    return json_is_true(json_object_get(v, "lstrip")) * TOK_STRIP_LEFT +
           json_is_true(json_object_get(v, "rstrip")) * TOK_STRIP_RIGHT;
}

/* Mark the added tokens that take the whitespace around them, or are those of normalised text. */
static int set_strips(struct hf *h)
{
    struct tok *t = h->t;
    const json_t *v;
    size_t i;

    json_array_foreach(json_object_get(h->root, "added_tokens"), i, v)
    {
        int strip = strip_bits(v), bit;

        TRY(normalised_bit(h, v, i, &bit));
        strip |= bit;
        if (strip && !t->strip)
            t->strip = mem_new(MEM_TOKENIZER, (size_t)t->n_vocab, 1);
        if (strip && !t->strip)
            return ERR_NOMEM;
        if (strip)
            t->strip[json_integer_value(json_object_get(v, "id"))] = (uint8_t)strip;
    }
    return OK;
}

static int set_tokens(struct hf *h)
{
    int rc = take_entries(h);

    if (rc == OK)
        rc = tok_vocab_init(h->t, h->n_entry, false);
    for (int32_t id = 0; rc == OK && id < h->n_entry; id++)
        if (h->entry[id].type != TOK_HOLE)
            rc = set_entry(h->t, id, &h->entry[id]);
    return rc == OK ? set_strips(h) : rc;
}

/* --- merges: "left right", or in newer files ["left", "right"] */

static int32_t part(const struct hf *h, const char *s, size_t n)
{
    const json_t *id = json_object_getn(h->vocab, s, n);

    return id ? (int32_t)json_integer_value(id) : -1;
}

static int set_merges(struct hf *h)
{
    const json_t *merges = json_object_get(h->model, "merges"), *v;
    size_t i;

    TRY(tok_merges_init(h->t, json_array_size(merges)));
    json_array_foreach(merges, i, v)
    {
        const char *s = json_string_value(v), *space = s ? strchr(s, ' ') : NULL;
        const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);
        int32_t l = -1, r = -1;

        if (space) {
            l = part(h, s, (size_t)(space - s));
            r = part(h, space + 1, strlen(space + 1));
        } else if (json_is_string(a) && json_is_string(b)) {
            l = part(h, json_string_value(a), json_string_length(a));
            r = part(h, json_string_value(b), json_string_length(b));
        }
        if (l < 0 || r < 0)
            return err_set(ERR_FORMAT, "model.merges[%zu]: expected two tokens", i);
        TRY(tok_merges_add(h->t, l, r, (uint32_t)i));
    }
    return OK;
}

/* --- BOS and EOS */

/* Its only id in the post-processor's own table is the vocabulary's. */
static int check_special(const struct hf *h, const json_t *j, const char *name)
{
    const json_t *ids = json_object_get(
        json_object_get(json_object_get(j, "special_tokens"), name), "ids");
    const json_t *id = json_array_get(ids, 0);

    h->t->bos = tok_vocab_named(h->t, name, strlen(name));
    if (h->t->bos < 0)
        return err_set(ERR_FORMAT, "post_processor: single: \"%.64s\" is not a token",
                       name);
    if (ids && (json_array_size(ids) != 1 || json_integer_value(id) != h->t->bos))
        return err_set(ERR_UNSUPPORTED,
                       "post_processor: special_tokens: \"%.64s\": expected the id of "
                       "that token, %d, alone",
                       name, h->t->bos);
    h->t->adds_bos = true;
    return OK;
}

/* TemplateProcessing of a text alone, or of a special token and the text. */
static int post_processor(struct hf *h, const json_t *j)
{
    const json_t *single = json_object_get(j, "single");
    size_t n = json_array_size(single);
    const json_t *first = json_object_get(json_array_get(single, 0), "SpecialToken");
    const json_t *text = json_object_get(json_array_get(single, n - 1), "Sequence");
    const char *name = json_string_value(json_object_get(first, "id"));

    if (!j || json_is_null(j) || is_type(j, "ByteLevel")) /* it only moves offsets */
        return OK;
    if (!is_type(j, "TemplateProcessing"))
        return unknown_part(j, "post_processor");
    if (n == 0 || n > 2 || !string_is(text, "id", "A") || (n == 2 && !name))
        return err_set(ERR_UNSUPPORTED,
                       "post_processor: single: expected the text, or one special token "
                       "before it, found %zu parts",
                       n);
    return n == 2 ? check_special(h, j, name) : OK;
}

/* A token of tokenizer_config.json: its text, or an object with `content`; *out stays where it is
 * not there. */
static int named_in(const struct tok *t, const json_t *v, const char *key, int *out)
{
    const char *s =
        json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    int id = s ? tok_vocab_named(t, s, strlen(s)) : -1;

    if (v && !json_is_null(v) && id < 0)
        return err_set(ERR_UNSUPPORTED,
                       "tokenizer_config.json: %s: expected a token, found %.64s", key,
                       s ? s : "something else");
    *out = id >= 0 ? id : *out;
    return OK;
}

/* It may repeat what tokenizer.json says. */
static int check_prefix_space(const struct tok *t, const json_t *config)
{
    const json_t *v = json_object_get(config, "add_prefix_space");
    bool has = t->chars && t->space_prefix != TOK_PREFIX_NEVER;

    if (!json_is_boolean(v) || json_is_true(v) == has)
        return OK;
    return err_set(ERR_UNSUPPORTED,
                   "tokenizer_config.json: add_prefix_space: expected %s as in "
                   "tokenizer.json, found %s",
                   has ? "true" : "false", has ? "false" : "true");
}

static int use_config(struct hf *h)
{
    const json_t *config = h->config, *v;
    const json_t *add = json_object_get(config, "add_bos_token");
    struct tok *t = h->t;
    size_t i;
    int none;

    TRY(tok_keys_check(TOK_KEYS_CONFIG, config, "tokenizer_config.json"));
    TRY(check_prefix_space(t, config));
    json_array_foreach(json_object_get(config, "additional_special_tokens"), i, v)
        TRY(named_in(t, v, "additional_special_tokens", &none));
    if (t->bos < 0)
        TRY(named_in(t, json_object_get(config, "bos_token"), "bos_token", &t->bos));
    TRY(named_in(t, json_object_get(config, "eos_token"), "eos_token", &t->eos));
    if (json_is_boolean(add)) /* over the post_processor */
        t->adds_bos = json_is_true(add);
    return OK;
}

/* The file next to tokenizer.json is optional; one that is broken is refused. */
static int read_config(struct hf *h, const char *path)
{
    const char *slash = strrchr(path, '/');
    char beside[4096];
    int rc, n;

    n = snprintf(beside, sizeof(beside), "%.*stokenizer_config.json",
                 slash ? (int)(slash + 1 - path) : 0, path);
    if (n < 0 || (size_t)n >= sizeof(beside))
        return err_set(ERR_ARG, "path of %zu bytes is too long", strlen(path));
    rc = json_read_file(&h->config, beside, JSON_MAX_BYTES);
    return rc == ERR_NOTFOUND ? OK : rc;
}

static int check_model(struct hf *h)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const char *unk = json_string_value(json_object_get(h->model, "unk_token"));

    if (!json_is_object(h->model) || !is_type(h->model, "BPE"))
        return unknown_part(h->model, "model");
    if (!json_is_object(h->vocab) || !json_is_array(json_object_get(h->model, "merges")))
        return err_set(ERR_FORMAT, "model: expected vocab and merges");
    for (int i = 0; i < 2; i++) {
        const char *s = json_string_value(json_object_get(h->model, affixes[i]));

        if (s && *s)
            return err_set(ERR_UNSUPPORTED, "model: %s: expected none, found \"%.64s\"",
                           affixes[i], s);
    }
    h->byte_fallback = json_is_true(json_object_get(h->model, "byte_fallback"));
    if (unk)
        h->t->unk = part(h, unk, strlen(unk));
    h->t->fuse_unk = json_is_true(json_object_get(h->model, "fuse_unk"));
    return OK;
}

static int load_json(struct hf *h, const struct tok_opts *o)
{
    struct tok *t = h->t;
    const json_t *whole;

    TRY(tok_keys_check(TOK_KEYS_FILE, h->root, "tokenizer.json"));
    TRY(tok_keys_check(TOK_KEYS_MODEL, h->model, "model"));
    TRY(check_model(h));
    TRY(each(h, json_object_get(h->root, "normalizer"), "normalizers", normalizer));
    TRY(each(h, json_object_get(h->root, "pre_tokenizer"), "pretokenizers",
             pre_tokenizer));
    t->chars = !h->byte_level;
    t->no_bytes = t->chars && !h->byte_fallback;
    if (t->chars && !h->marks_spaces)
        return err_set(ERR_UNSUPPORTED,
                       "expected a ByteLevel pre_tokenizer or spaces written as U+2581");
    if (t->chars && (t->n_expr || t->nfc))
        return err_set(ERR_UNSUPPORTED, "spaces as U+2581 together with NFC or Split");
    TRY(each(h, json_object_get(h->root, "decoder"), "decoders", decoder));
    if (t->chars && json_is_object(json_object_get(h->root, "decoder")) &&
        h->strips != (t->space_prefix != TOK_PREFIX_NEVER))
        return err_set(
            ERR_UNSUPPORTED,
            "decoder: expected Strip exactly where a text gets a space, found %s",
            h->strips ? "it" : "none");
    if (t->chars)
        snprintf(t->kind, sizeof(t->kind), "spm/merges");
    else if (t->n_expr == 0)
        snprintf(t->kind, sizeof(t->kind), "bpe/none");
    if (o->pre) {
        tok_pre_fini(t);
        TRY(tok_pre_named(t, o->pre, strlen(o->pre)));
    }
    whole = json_object_get(h->model, "ignore_merges");
    if (json_is_boolean(whole))
        t->whole_word = json_is_true(whole);
    return set_tokens(h);
}

int tok_from_hf(struct tok *t, const char *path, const struct tok_opts *o)
{
    struct hf h = {.t = t};
    int rc = json_read_file(&h.root, path, JSON_MAX_BYTES);

    if (rc != OK)
        return rc;
    h.model = json_object_get(h.root, "model");
    h.vocab = json_object_get(h.model, "vocab");
    t->by = TOK_BY_PAIR;
    rc = read_config(&h, path);
    if (rc == OK)
        rc = load_json(&h, o);
    if (rc == OK)
        rc = each(&h, json_object_get(h.root, "post_processor"), "processors",
                  post_processor);
    if (rc == OK && h.config)
        rc = use_config(&h);
    if (rc == OK)
        rc = tok_vocab_finish(t);
    if (rc == OK)
        rc = set_merges(&h);
    mem_free(h.entry);
    json_decref(h.config);
    json_decref(h.root);
    return rc == OK ? OK : err_prefix(rc, "%s", path);
}
