#include "experiments/record/unpack.h"

#include <lzma.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define UNPACKED_MAX ((size_t)1 << 30)

/* Memory of a decoder: that of the preset below is 9 MB. */
#define DECODER_BYTES_MAX ((uint64_t)128 << 20)

static int unpack(struct text *to, lzma_stream *z, const char *path)
{
    static uint8_t piece[1 << 16];
    lzma_ret state = LZMA_OK;

    while (state == LZMA_OK) {
        z->next_out = piece;
        z->avail_out = sizeof(piece);
        state = lzma_code(z, LZMA_FINISH);
        text_put(to, (const char *)piece, sizeof(piece) - z->avail_out);
        if (to->n > UNPACKED_MAX)
            return err_set(ERR_FORMAT, "%s: expected at most 1 GiB, found more", path);
    }
    return state == LZMA_STREAM_END && z->avail_in == 0
               ? OK
               : err_set(ERR_FORMAT, "%s: expected a whole xz file", path);
}

int export_unpack(char **bytes, size_t *n, const char *path)
{
    lzma_stream z = LZMA_STREAM_INIT;
    struct text to = {0};
    char *packed;
    size_t n_packed;
    int rc;

    *bytes = NULL;
    TRY(file_read(&packed, &n_packed, path, UNPACKED_MAX));
    z.next_in = (const uint8_t *)packed;
    z.avail_in = n_packed;
    rc = lzma_stream_decoder(&z, DECODER_BYTES_MAX, 0) == LZMA_OK
             ? unpack(&to, &z, path)
             : err_set(ERR_NOMEM, "%s: no memory for a decoder", path);
    lzma_end(&z);
    mem_free(packed);
    if (rc == OK)
        *bytes = to.p, *n = to.n;
    else
        text_fini(&to);
    return rc;
}
