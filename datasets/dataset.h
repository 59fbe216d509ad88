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
    /* The end of `text` that is the question, after the turns before; 0: all of it. */
    size_t question_bytes;
    /* Requests of one conversation have equal ones, also where a file holds it in parts. A
     * reader may leave it 0, for a request that stands alone. */
    uint64_t conversation;
    double arrival_s; /* from the first request; NaN: the trace has none */
    /* Without text: the names of the prompt's blocks of block_tok tokens. Prompts whose first
     * blocks have equal names begin with the same tokens. NULL: not known. */
    const int64_t *block_ids; /* [n_blocks] */
    int64_t n_blocks, block_tok;
    /* The next turn of the same conversation, sent after the answer to this one. Its text
     * begins with all turns before. NULL: the last. Owned by the item. */
    const struct dataset_item *later;
    /* From the end of the answer before to this turn, besides the load's think time: tools ran. */
    double pause_s;
};

struct dataset {
    char name[64];
    char source[256]; /* path or fit */
    struct dataset_item *items;
    int64_t n_items;
    int64_t n_skipped; /* records that hold no request, with the reason below */
    char skipped_why[160];
    int64_t n_bad;  /* of these, records that are no requests of the format */
    bool stands_in; /* drawn from opts.stand_in, because opts.path is absent */
    void *state;    /* dataset.c's own */
    const struct dataset_reader *reader;
};

/* Which requests a conversation becomes. */
enum dataset_turns {
    DATASET_TURNS_FIRST,        /* its first answered question */
    DATASET_TURNS_EACH,         /* each, with its history, on its own */
    DATASET_TURNS_CONVERSATION, /* each, with its history, after the answer before */
    DATASET_TURNS_CHAT,         /* the same, with the system's own answers as history */
};
/* Units of a trace's arrival times. */
enum dataset_time_unit {
    DATASET_TIME_OF_FORMAT, /* as the format defines; a file that contradicts it is refused */
    DATASET_TIME_S,
    DATASET_TIME_MS,
    DATASET_TIME_US,
};
/* Which requests are left out. */
enum dataset_filter { DATASET_FILTER_NONE, DATASET_FILTER_VLLM };

struct dataset_opts {
    char *reader;   /* "auto", or the name of a reader; NULL: auto */
    char *path;     /* NULL for synth */
    char *fit;      /* synth: which fit, by name */
    char *stand_in; /* fit to draw from when `path` is absent; NULL: that is an error */
    int64_t n;      /* items wanted; 0: all (synth: 1000) */
    int64_t seed;   /* "sample" stream: which items, synth: which lengths */
    bool shuffle;   /* in a seeded order instead of the file's */
    int64_t min_prompt_tok, max_prompt_tok; /* lengths outside are cut to the bound */
    int64_t max_output_tok;                 /* 0, as for max_prompt_tok: no bound */
    int turns, filter;                      /* enum dataset_turns, dataset_filter */
    int time_unit; /* enum dataset_time_unit, of the readers that ask */
    int64_t
        block_tok;    /* tokens of a block that a trace names; 0: as its format defines */
    int64_t skip_bad; /* records that may be refused, each named in a warning */
    double start_s,
        duration_s; /* window of a trace with arrival times; duration 0: the rest */
};
extern const struct opt_row dataset_opt_table[];

/* ERR_NOTFOUND: data that do not come with the program are absent. A message that ends in
 * DATASET_ABSENT has this reason. `file`: as it was asked for. */
#define DATASET_ABSENT "(datasets/data.md says where to get it)"
MUST int dataset_absent(const char *file);

MUST int dataset_open(struct dataset **out, const struct dataset_opts *o);
void dataset_close(struct dataset **d);

/* Cut an item's known lengths to the bounds. dataset_open() has done so for lengths from
 * a file; the caller that tokenises `text` and `reply` sets the two lengths and calls it again. A
 * text is never made longer. */
void dataset_cut(const struct dataset_opts *o, struct dataset_item *item);

/* Why the filter leaves out a request of these lengths in tokens; NULL: it does not. For the
 * caller that tokenises: dataset_open() has asked it about known lengths. A literal. */
const char *dataset_filtered(const struct dataset_opts *o, int64_t n_prompt,
                             int64_t n_output);

struct dataset_reader {
    const char *name;
    const char *help;
    bool needs_path; /* ERR_ARG when opts.path is NULL */
    /* Names joined by '|', one of which a file of this format has and no other format: keys of
     * its first JSON record, columns of its CSV. reader = auto goes by them. */
    const char *keys, *columns;
    /* Offer every request of the file by dataset_offer() (datasets/build.h). */
    int (*open)(struct dataset *d, const struct dataset_opts *o);
};
extern const struct dataset_reader *const dataset_readers[];

#endif
