#include "datasets/input.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"

/* A piece of a file that is read at once; in->chunk has room for at least as much. */
#define READ_BYTES ((size_t)1 << 18)

struct dataset_input {
    FILE *f;
    unsigned char *packed; /* bytes read of a gzipped file; NULL: it is not gzipped */
    z_stream unpack;
    bool inside_part; /* gzip's end mark of a part has not been reached */
    char *path;
    char *where;
    size_t where_size;
    unsigned char *chunk; /* bytes read and not yet consumed: [at, end) */
    size_t at, end;
    int64_t line; /* of the next byte, from 1 */
    char *piece;
    size_t piece_bytes, piece_capacity;
    int64_t piece_line; /* of its first byte */
    enum { ARRAY_BEFORE, ARRAY_INSIDE, ARRAY_AT_RECORD, ARRAY_AFTER } array;
    char key[64]; /* with which the list's first record begins, in quotes; "" unknown */
    bool lost;    /* where the next record of the list begins is not known */
    bool is_cut;  /* the file ended within a record, outside any text */
    int failed;   /* code of a failed read, OK before */
};

/* 0: the end of the file, or in->failed is set. */
static size_t read_file(struct dataset_input *in, unsigned char *to)
{
    size_t n = fread(to, 1, READ_BYTES, in->f);

    if (n == 0 && ferror(in->f))
        in->failed =
            err_set(ERR_IO, "%s:%lld: cannot read: %m", in->path, (long long)in->line);
    return n;
}

static int unpack_failed(const struct dataset_input *in, int rc)
{
    const char *why = rc == Z_BUF_ERROR ? "they end too early" : in->unpack.msg;

    if (rc == Z_MEM_ERROR)
        return ERR_NOMEM;
    return err_set(ERR_FORMAT, "%s:%lld: damaged gzip data: %s", in->path,
                   (long long)in->line, why ? why : zError(rc));
}

/* As read_file(), of the text that a gzipped file holds in one part or several. */
static size_t read_packed(struct dataset_input *in, unsigned char *to)
{
    z_stream *z = &in->unpack;
    int rc = Z_OK;

    z->next_out = to;
    z->avail_out = READ_BYTES;
    while (rc == Z_OK && z->avail_out == READ_BYTES) {
        if (z->avail_in == 0) {
            z->next_in = in->packed;
            z->avail_in = (uInt)read_file(in, in->packed);
        }
        if (z->avail_in == 0 && (in->failed || !in->inside_part))
            return 0;
        rc = z->avail_in > 0 ? inflate(z, Z_NO_FLUSH) : Z_BUF_ERROR;
        in->inside_part = rc != Z_STREAM_END;
        if (rc == Z_STREAM_END)
            rc = inflateReset(z);
    }
    if (rc != Z_OK)
        in->failed = unpack_failed(in, rc);
    return READ_BYTES - z->avail_out;
}

/* The next byte without consuming it, or -1 at the end of the file or after a failed read. */
static int peek(struct dataset_input *in)
{
    if (in->at == in->end) {
        in->at = in->end = 0;
        if (!in->failed)
            in->end = in->packed ? read_packed(in, in->chunk) : read_file(in, in->chunk);
        if (in->end == 0)
            return -1;
    }
    return in->chunk[in->at];
}

/* Consume the byte that peek() returned. */
static void advance(struct dataset_input *in)
{
    in->line += in->chunk[in->at++] == '\n';
}

/* Let dataset_input_where() name the line of the next byte. */
static void mark(struct dataset_input *in)
{
    snprintf(in->where, in->where_size, "%s:%lld", in->path, (long long)in->line);
}

/* Add p[n] to the piece. ERR_LIMIT: then it is longer than DATASET_PIECE_MAX_BYTES. */
static int piece_add(struct dataset_input *in, const void *p, size_t n)
{
    size_t capacity = in->piece_capacity;

    if (in->piece_bytes + n > DATASET_PIECE_MAX_BYTES)
        return err_set(ERR_LIMIT, "%s: expected a record of at most %zu MiB, found more",
                       in->where, DATASET_PIECE_MAX_BYTES >> 20);
    while (in->piece_bytes + n + 1 > capacity)
        capacity = capacity ? 2 * capacity : 4096;
    if (capacity != in->piece_capacity) {
        char *grown = mem_resize(MEM_DATASET, in->piece, capacity, 1);

        if (!grown)
            return ERR_NOMEM;
        in->piece = grown;
        in->piece_capacity = capacity;
    }
    if (n > 0)
        memcpy(in->piece + in->piece_bytes, p, n);
    in->piece_bytes += n;
    in->piece[in->piece_bytes] = '\0';
    return OK;
}

static void *new_for_zlib(void *ctx, unsigned n, unsigned size)
{
    (void)ctx;
    return mem_new(MEM_DATASET, n, size);
}

static void free_for_zlib(void *ctx, void *p)
{
    (void)ctx;
    mem_free(p);
}

/* The bytes that have been read are not the text, but the text packed by gzip. */
static int begin_unpacking(struct dataset_input *in)
{
    in->unpack = (z_stream){.zalloc = new_for_zlib, .zfree = free_for_zlib};
    if (inflateInit2(&in->unpack, 16 + MAX_WBITS) != Z_OK) /* 16: gzip's format */
        return ERR_NOMEM;
    in->packed = in->chunk;
    in->unpack.next_in = in->packed;
    in->unpack.avail_in = (uInt)in->end;
    in->inside_part = true;
    in->at = in->end = 0;
    in->chunk = mem_new(MEM_DATASET, READ_BYTES, 1);
    return in->chunk ? OK : ERR_NOMEM;
}

/* By its mark, or by two ASCII characters with a byte of 0 each. */
static bool is_utf16(const unsigned char *s)
{
    bool marked = (s[0] == 0xff && s[1] == 0xfe) || (s[0] == 0xfe && s[1] == 0xff);

    return marked || (s[0] && !s[1] && s[2] && !s[3]) || (!s[0] && s[1] && !s[2] && s[3]);
}

static int check_start(struct dataset_input *in)
{
    static const unsigned char bom[] = {0xef, 0xbb, 0xbf};

    if (peek(in) >= 0 && in->end >= 2 && in->chunk[0] == 0x1f && in->chunk[1] == 0x8b)
        TRY(begin_unpacking(in));
    if (peek(in) < 0)
        return in->failed;
    if (in->end >= 3 && memcmp(in->chunk, bom, 3) == 0)
        in->at = 3;
    if (in->end >= 4 && is_utf16(in->chunk))
        return err_set(ERR_FORMAT,
                       "%s: expected UTF-8, found UTF-16; iconv -f UTF-16 -t UTF-8 "
                       "converts it",
                       in->where);
    return OK;
}

int dataset_input_open(struct dataset_input **out, const char *path)
{
    struct dataset_input *in;
    int rc = ERR_NOMEM;

    *out = NULL;
    in = mem_new(MEM_DATASET, 1, sizeof(*in));
    if (!in)
        return ERR_NOMEM;
    in->line = 1;
    in->where_size = strlen(path) + 24;
    in->path = mem_strdup(MEM_DATASET, path);
    in->where = mem_new(MEM_DATASET, in->where_size, 1);
    in->chunk = mem_new(MEM_DATASET, READ_BYTES, 1);
    if (!in->path || !in->where || !in->chunk)
        goto out;
    mark(in);
    rc = file_stream(&in->f, path);
    if (rc == OK)
        rc = check_start(in);
    if (rc != OK)
        goto out;
    *out = in, in = NULL;
out:
    dataset_input_close(&in);
    return rc;
}

void dataset_input_close(struct dataset_input **in)
{
    struct dataset_input *i = *in;

    *in = NULL;
    if (!i)
        return;
    if (i->f)
        fclose(i->f); /* opened for reading: nothing can be lost */
    if (i->packed)
        inflateEnd(&i->unpack);
    mem_free(i->packed);
    mem_free(i->path);
    mem_free(i->where);
    mem_free(i->chunk);
    mem_free(i->piece);
    mem_free(i);
}

const char *dataset_input_where(const struct dataset_input *in)
{
    return in->where;
}

int dataset_input_line(struct dataset_input *in, char **line, size_t *n)
{
    int rc;

    *line = NULL;
    *n = 0;
    in->piece_bytes = 0;
    mark(in);
    if (peek(in) < 0)
        return in->failed;
    do {
        const unsigned char *from = in->chunk + in->at;
        const unsigned char *nl = memchr(from, '\n', in->end - in->at);
        size_t bytes = nl ? (size_t)(nl - from) : in->end - in->at;

        rc = piece_add(in, from, bytes);
        in->lost = rc != OK;
        if (rc != OK)
            return rc;
        in->at += bytes;
        if (nl) {
            advance(in);
            break;
        }
    } while (peek(in) >= 0);
    if (in->failed)
        return in->failed;
    if (in->piece_bytes > 0 && in->piece[in->piece_bytes - 1] == '\r')
        in->piece[--in->piece_bytes] = '\0';
    *line = in->piece;
    *n = in->piece_bytes;
    return OK;
}

/* ---- the records of a list ---- */

#define DEPTH_MAX 256 /* brackets of which the kind is checked; records nest a few deep */

/* The next byte that is not JSON white space, not consumed; -1 at the end. */
static int skip_space(struct dataset_input *in)
{
    int c;

    while ((c = peek(in)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        advance(in);
    return c;
}

static int bad_frame(struct dataset_input *in, const char *expected, int found)
{
    mark(in);
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
                advance(in);
            if (s.depth == 0)
                break;
        }
        rc = piece_add(in, in->chunk + from, in->at - from);
        if (rc != OK)
            in->at = from; /* the piece ends there */
        else if (!is_sound)
            rc = bad_nesting(in, &s);
        if (rc != OK || s.depth == 0)
            return rc;
    } while (peek(in) >= 0);
    in->is_cut = !s.in_text;
    return bad_frame(in, s.in_text ? "'\"' at the end of a string" : "'}' of a record",
                     -1);
}

bool dataset_input_is_list(struct dataset_input *in)
{
    return skip_space(in) == '[';
}

/* Read what precedes a record: the list's begin, a comma, or nothing where reading resumed. *c: the
 * byte that follows. */
static int to_record(struct dataset_input *in, int *c)
{
    bool may_end = true;

    *c = skip_space(in);
    switch (in->array) {
    case ARRAY_BEFORE:
        if (*c != '[')
            return bad_frame(in, "'[' of a list of records", *c);
        advance(in);
        *c = skip_space(in);
        break;
    case ARRAY_INSIDE:
        if (*c != ',' && *c != ']')
            return bad_frame(in, "',' or ']' after a record", *c);
        may_end = *c == ']';
        if (*c == ',') {
            advance(in);
            *c = skip_space(in);
        }
        break;
    default:
        break;
    }
    in->array = ARRAY_INSIDE;
    if (*c == ']' && may_end) {
        advance(in);
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
        mark(in);
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
    while ((c = peek(in)) >= 0) {
        char byte = (char)c;
        bool found = begins(&l, in->key, (unsigned char)c);

        if (l.state == LIKE_BRACE && l.n_key == 0 && c == '{') {
            in->piece_bytes = 0;
            in->piece_line = in->line;
        }
        if (l.state != LIKE_NOTHING)
            TRY(piece_add(in, &byte, 1));
        advance(in);
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
        while (in->lost && peek(in) >= 0) {
            in->lost = in->chunk[in->at] != '\n';
            advance(in);
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
