#include "datasets/input_impl.h"

#include <string.h>

#include "base/mem.h"

#define DEPTH_MAX 256 /* brackets of which the kind is checked; records nest a few deep */

/* The next byte that is not JSON white space, not consumed; -1 at the end. */
static int skip_space(struct dataset_input *in)
{
    int c;

    while ((c = dataset_input_peek(in)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        dataset_input_advance(in);
    return c;
}

static int bad_frame(struct dataset_input *in, const char *expected, int found)
{
    dataset_input_mark(in);
    if (in->failed)
        return in->failed;
    if (found < 0)
        return err_set(ERR_FORMAT, "%s: expected %s, found the end of the file",
                       in->where, expected);
    if (found < 0x20 || found > 0x7e)
        return err_set(ERR_FORMAT, "%s: expected %s, found byte 0x%02x", in->where,
                       expected, (unsigned)found);
    return err_set(ERR_FORMAT, "%s: expected %s, found '%c'", in->where, expected, found);
}

/* The brackets and the text that are open within a record. */
struct nesting {
    char closed_by[DEPTH_MAX];
    size_t depth;
    bool in_text, is_escaped;
};

/* False: JSON cannot go on with this byte. */
static bool nest(struct nesting *s, unsigned char c)
{
    if (s->in_text) {
        bool ends = c == '"' && !s->is_escaped;

        s->is_escaped = c == '\\' && !s->is_escaped;
        s->in_text = !ends;
        return c >= 0x20;
    }
    s->in_text = c == '"';
    if (c == '{' || c == '[') {
        if (s->depth < DEPTH_MAX)
            s->closed_by[s->depth] = c == '{' ? '}' : ']';
        s->depth++;
    } else if (c == '}' || c == ']') {
        s->depth--;
        return s->depth >= DEPTH_MAX || s->closed_by[s->depth] == c;
    }
    return true;
}

static int bad_nesting(struct dataset_input *in, const struct nesting *s)
{
    char closed_by[] = "'?'";

    if (s->in_text)
        return bad_frame(in, "'\"' at the end of a string", in->chunk[in->at]);
    closed_by[1] = s->closed_by[s->depth];
    return bad_frame(in, closed_by, in->chunk[in->at]);
}

/* Collect an object that starts at the next byte, up to its closing brace. */
static int collect_object(struct dataset_input *in)
{
    struct nesting s = {.depth = 0};
    bool is_sound = true;

    do {
        size_t from = in->at;
        int rc;

        while (in->at < in->end && is_sound) {
            is_sound = nest(&s, in->chunk[in->at]);
            if (is_sound)
                dataset_input_advance(in);
            if (s.depth == 0)
                break;
        }
        rc = dataset_input_piece_add(in, in->chunk + from, in->at - from);
        if (rc != OK)
            in->at = from; /* the piece ends there */
        else if (!is_sound)
            rc = bad_nesting(in, &s);
        if (rc != OK || s.depth == 0)
            return rc;
    } while (dataset_input_peek(in) >= 0);
    in->is_cut = !s.in_text;
    return bad_frame(in, s.in_text ? "'\"' at the end of a string" : "'}' of a record",
                     -1);
}

bool dataset_input_is_list(struct dataset_input *in)
{
    return skip_space(in) == '[';
}

/* What stands before a record: the list's begin, a comma, or nothing where reading resumed. *c: the
 * byte that follows. */
static int to_record(struct dataset_input *in, int *c)
{
    bool may_end = true;

    *c = skip_space(in);
    switch (in->array) {
    case ARRAY_BEFORE:
        if (*c != '[')
            return bad_frame(in, "'[' of a list of records", *c);
        dataset_input_advance(in);
        *c = skip_space(in);
        break;
    case ARRAY_INSIDE:
        if (*c != ',' && *c != ']')
            return bad_frame(in, "',' or ']' after a record", *c);
        may_end = *c == ']';
        if (*c == ',') {
            dataset_input_advance(in);
            *c = skip_space(in);
        }
        break;
    default:
        break;
    }
    in->array = ARRAY_INSIDE;
    if (*c == ']' && may_end) {
        dataset_input_advance(in);
        in->array = ARRAY_AFTER;
        *c = skip_space(in);
        return *c < 0 ? in->failed : bad_frame(in, "nothing after the list", *c);
    }
    return *c == '{' ? OK : bad_frame(in, "'{' of a record", *c);
}

/* From the begin of the list's first record, which may be damaged behind it. */
static void learn_key(struct dataset_input *in)
{
    size_t from = 1, end;

    if (in->key[0] || in->piece_bytes == 0)
        return;
    from += strspn(in->piece + from, " \t\r\n");
    if (in->piece[from] != '"')
        return;
    end = from + 1 + strcspn(in->piece + from + 1, "\"\\\r\n") + 1;
    if (end > in->piece_bytes || in->piece[end - 1] != '"' ||
        end - from >= sizeof(in->key))
        return;
    if (in->piece[end + strspn(in->piece + end, " \t\r\n")] == ':')
        snprintf(in->key, sizeof(in->key), "%.*s", (int)(end - from), in->piece + from);
}

int dataset_input_element(struct dataset_input *in, char **text, size_t *n)
{
    int c, rc;

    *text = NULL;
    *n = 0;
    in->piece_bytes = 0;
    if (in->array == ARRAY_AFTER)
        return OK;
    in->lost = true;
    in->is_cut = false;
    rc = to_record(in, &c);
    if (rc == OK && in->array != ARRAY_AFTER) {
        dataset_input_mark(in);
        in->piece_line = in->line;
        rc = collect_object(in);
        learn_key(in);
    }
    if (rc != OK)
        return rc;
    in->lost = false;
    if (in->array == ARRAY_AFTER)
        return OK;
    *text = in->piece;
    *n = in->piece_bytes;
    return OK;
}

/* ---- going on after a record that is refused ---- */

/* How far a text is like the begin of a record, '{', white space, the key, white space, ':'. */
struct likeness {
    size_t n_key;
    enum { LIKE_NOTHING, LIKE_BRACE, LIKE_KEY } state;
};

/* True: this byte completes it. In sound JSON nothing else is written so, whether or not the
 * quotes before it are sound: a text that ends with '{' is followed by no name, and inside a text a
 * quote has a backslash. */
static bool begins(struct likeness *l, const char *key, unsigned char c)
{
    bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';

    if (l->state == LIKE_BRACE && c == (unsigned char)key[l->n_key]) {
        l->n_key++;
        if (!key[l->n_key])
            l->state = LIKE_KEY;
    } else if (l->state == LIKE_KEY && c == ':') {
        return true;
    } else if (!is_space || (l->state == LIKE_BRACE && l->n_key > 0)) {
        *l = (struct likeness){.state = c == '{' ? LIKE_BRACE : LIKE_NOTHING};
    }
    return false;
}

/* Does the record last returned hold what begins as records do? Then it is hardly one, but several
 * of which some quotes or brackets are missing. */
static bool holds_another(const struct dataset_input *in)
{
    struct likeness l = {.state = LIKE_NOTHING};

    for (size_t i = 1; i < in->piece_bytes; i++)
        if (begins(&l, in->key, (unsigned char)in->piece[i]))
            return true;
    return false;
}

/* The piece from its byte `from` on is to be read again. */
static int push_back(struct dataset_input *in, size_t from)
{
    size_t n_piece = in->piece_bytes - from, n_rest = in->end - in->at;
    size_t n = n_piece + n_rest;
    unsigned char *chunk = mem_new(MEM_DATASET, n > READ_BYTES ? n : READ_BYTES, 1);

    if (!chunk)
        return ERR_NOMEM;
    memcpy(chunk, in->piece + from, n_piece);
    memcpy(chunk + n_piece, in->chunk + in->at, n_rest);
    mem_free(in->chunk);
    in->chunk = chunk;
    in->at = 0;
    in->end = n;
    in->line = in->piece_line;
    for (size_t i = 0; i < from; i++)
        in->line += in->piece[i] == '\n';
    in->piece_bytes = 0;
    return OK;
}

/* Go to where the next record begins, or behind the list. */
static int find_record(struct dataset_input *in, int refusal)
{
    struct likeness l = {.state = LIKE_NOTHING};
    int c, last = 0;

    if (in->piece_bytes > 0)
        TRY(push_back(in, 1));
    while ((c = dataset_input_peek(in)) >= 0) {
        char byte = (char)c;
        bool found = begins(&l, in->key, (unsigned char)c);

        if (l.state == LIKE_BRACE && l.n_key == 0 && c == '{') {
            in->piece_bytes = 0;
            in->piece_line = in->line;
        }
        if (l.state != LIKE_NOTHING)
            TRY(dataset_input_piece_add(in, &byte, 1));
        dataset_input_advance(in);
        if (found) {
            in->array = ARRAY_AT_RECORD;
            return push_back(in, 0);
        }
        if (!strchr(" \t\r\n", c))
            last = c;
    }
    if (in->failed || last != ']' || in->is_cut)
        return in->failed ? in->failed : refusal;
    in->array = ARRAY_AFTER;
    return OK;
}

int dataset_input_resume(struct dataset_input *in, int refusal)
{
    bool in_list = in->array != ARRAY_BEFORE;

    if (in->failed)
        return in->failed;
    if (!in_list) { /* of a line that is too long the rest is left */
        while (in->lost && dataset_input_peek(in) >= 0) {
            in->lost = in->chunk[in->at] != '\n';
            dataset_input_advance(in);
        }
        return in->failed;
    }
    if (!in->lost && (!in->key[0] || !holds_another(in)))
        return OK;
    if (!in->key[0])
        return refusal;
    TRY(find_record(in, refusal));
    if (in->array == ARRAY_AFTER)
        err_set(refusal, "%s; no record follows", err_msg());
    else
        err_set(refusal, "%s; the next record begins in line %lld", err_msg(),
                (long long)in->line);
    return OK;
}
