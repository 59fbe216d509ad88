#include "experiments/record/chain.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* More is in no record of ours; the process has limits, too. */
#define BYTES_MAX ((size_t)1 << 32)

static void add_text(struct sha256 *s, const char *text)
{
    sha256_add(s, text, strlen(text) + 1);
}

/* Class, width and number of the elements of either kind, and their bytes as they are stored. */
static herr_t add_elements(struct sha256 *s, hid_t of, hid_t type, hid_t space,
                           herr_t (*read)(hid_t of, hid_t type, void *to))
{
    const size_t width = type >= 0 ? H5Tget_size(type) : 0;
    const hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    const uint64_t shape[] = {(uint64_t)H5Tget_class(type), width, (uint64_t)n};
    herr_t rc = -1;
    void *bytes;

    if (width > 0 && n >= 0 && (size_t)n <= BYTES_MAX / width &&
        H5Tdetect_class(type, H5T_VLEN) == 0 && H5Tis_variable_str(type) <= 0) {
        bytes = mem_new(MEM_HARNESS, (size_t)n + 1, width);
        rc = n > 0 ? read(of, type, bytes) : 0;
        sha256_add(s, shape, sizeof(shape));
        sha256_add(s, bytes, (size_t)n * width);
        mem_free(bytes);
    }
    H5Sclose(space);
    H5Tclose(type);
    return rc;
}

static herr_t add_attribute(hid_t of, const char *name, const H5A_info_t *info, void *s)
{
    hid_t a;
    herr_t rc;

    (void)info;
    if (strcmp(name, RECORD_CHAIN_ATTRIBUTE) == 0)
        return 0;
    a = H5Aopen(of, name, H5P_DEFAULT);
    if (a < 0)
        return -1;
    add_text(s, name);
    rc = add_elements(s, a, H5Aget_type(a), H5Aget_space(a), H5Aread);
    H5Aclose(a);
    return rc;
}

static herr_t read_dataset(hid_t set, hid_t type, void *to)
{
    return H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to);
}

static herr_t add_attributes(struct sha256 *s, hid_t of)
{
    hsize_t at = 0;

    return H5Aiterate2(of, H5_INDEX_NAME, H5_ITER_INC, &at, add_attribute, s);
}

static herr_t add_dataset(struct sha256 *s, hid_t set)
{
    const herr_t rc =
        add_elements(s, set, H5Dget_type(set), H5Dget_space(set), read_dataset);

    return rc < 0 ? rc : add_attributes(s, set);
}

/* Groups in a group have links of their own. */
static herr_t add_member(hid_t group, const char *name, const H5L_info_t *info, void *s)
{
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    herr_t rc = object < 0 ? -1 : 0;

    (void)info;
    if (rc == 0 && H5Iget_type(object) == H5I_DATASET) {
        add_text(s, name);
        rc = add_dataset(s, object);
    }
    H5Oclose(object);
    return rc;
}

int record_chain_next(char chain[SHA256_TEXT], hid_t object, const char *name)
{
    struct sha256 s;
    hsize_t at = 0;
    herr_t rc;

    sha256_init(&s);
    add_text(&s, chain);
    add_text(&s, name);
    if (H5Iget_type(object) == H5I_DATASET) {
        rc = add_dataset(&s, object);
    } else {
        rc = add_attributes(&s, object);
        if (rc >= 0)
            rc = H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, &at, add_member, &s);
    }
    if (rc < 0)
        return err_set(ERR_FORMAT, "%s: expected numbers and texts of a fixed size",
                       name);
    sha256_end(&s, chain);
    return OK;
}
