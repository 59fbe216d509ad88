/* datasets/dataset.h - requests from real traces and conversations, or drawn from fits.
 *
 * A reader plug-in turns a file into a list of items: a text, or lengths only; an arrival
 * time where the trace has one. One file in datasets/reader/ ends in one `const struct
 * dataset_reader dataset_reader_<stem>`. `synth` draws lengths with the fitted marginals
 * and rank correlation of a published trace and needs no file: the embedded default. Bad
 * input is refused with file, line or byte offset, what was expected and found. Threads:
 * a dataset is immutable once open. */
#ifndef DATASETS_DATASET_H
#define DATASETS_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"

struct dataset_item {
    const char *text; /* NULL: only lengths are known. Not NUL-terminated. */
    size_t text_bytes;
    int64_t n_prompt; /* tokens; -1: tokenise `text` */
    int64_t n_output; /* tokens; -1: tokenise `reply` */
    const char *reply;
    size_t reply_bytes;
    double arrival_s; /* from the first request; NaN: the trace has none */
};

struct dataset {
    char name[64];
    char source[256]; /* path or fit */
    struct dataset_item *items;
    int64_t n_items;
    int64_t n_skipped; /* records that hold no request, with the reason below */
    char skipped_why[160];
    void *state; /* dataset.c's own */
    const struct dataset_reader *reader;
};

struct dataset_opts {
    char *reader; /* "sharegpt", "lmsys", "azure", "lengths_csv", "synth" */
    char *path;   /* NULL for synth */
    char *fit;    /* synth: which fit, by name */
    int64_t n;    /* items wanted; 0: all (synth: 1000) */
    int64_t seed; /* "sample" stream: which items, synth: which lengths */
    bool shuffle; /* in a seeded order instead of the file's */
    int64_t min_prompt_tok, max_prompt_tok; /* lengths outside are cut to the bound */
    int64_t max_output_tok;
};
extern const struct opt_row dataset_opt_table[];

MUST int dataset_open(struct dataset **out, const struct dataset_opts *o);
void dataset_close(struct dataset **d);

/* Cut an item's known lengths to the bounds. dataset_open() has done so for lengths from
 * a file; the caller that tokenises `text` and `reply` sets the two lengths and calls it again. A
 * text is never made longer. */
void dataset_cut(const struct dataset_opts *o, struct dataset_item *item);

struct dataset_reader {
    const char *name;
    const char *help;
    bool needs_path; /* ERR_ARG when opts.path is NULL */
    /* Offer every request of the file by dataset_offer() (datasets/build.h). */
    int (*open)(struct dataset *d, const struct dataset_opts *o);
};
extern const struct dataset_reader *const dataset_readers[];

#endif
