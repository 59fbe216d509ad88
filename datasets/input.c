#include "datasets/input_impl.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"

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

int dataset_input_peek(struct dataset_input *in)
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

void dataset_input_advance(struct dataset_input *in)
{
    in->line += in->chunk[in->at++] == '\n';
}

void dataset_input_mark(struct dataset_input *in)
{
    snprintf(in->where, in->where_size, "%s:%lld", in->path, (long long)in->line);
}

int dataset_input_piece_add(struct dataset_input *in, const void *p, size_t n)
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

/* What has been read is not the text, but the text packed by gzip. */
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

    if (dataset_input_peek(in) >= 0 && in->end >= 2 && in->chunk[0] == 0x1f &&
        in->chunk[1] == 0x8b)
        TRY(begin_unpacking(in));
    if (dataset_input_peek(in) < 0)
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
    dataset_input_mark(in);
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
    dataset_input_mark(in);
    if (dataset_input_peek(in) < 0)
        return in->failed;
    do {
        const unsigned char *from = in->chunk + in->at;
        const unsigned char *nl = memchr(from, '\n', in->end - in->at);
        size_t bytes = nl ? (size_t)(nl - from) : in->end - in->at;

        rc = dataset_input_piece_add(in, from, bytes);
        in->lost = rc != OK;
        if (rc != OK)
            return rc;
        in->at += bytes;
        if (nl) {
            dataset_input_advance(in);
            break;
        }
    } while (dataset_input_peek(in) >= 0);
    if (in->failed)
        return in->failed;
    if (in->piece_bytes > 0 && in->piece[in->piece_bytes - 1] == '\r')
        in->piece[--in->piece_bytes] = '\0';
    *line = in->piece;
    *n = in->piece_bytes;
    return OK;
}
