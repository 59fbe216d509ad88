/* base/opt.h - one table of options, from which come flags, JSON keys, help text, the
 * docs and the attributes recorded with a result.
 *
 * A table describes the members of one plain struct. A row's name is the JSON key
 * (`n_prompt_tok`); the flag is the same with dashes (`--n-prompt-tok V`,
 * `--n-prompt-tok=V`; booleans also `--no-x`). Strings are owned by the struct and given
 * back by opt_free().
 * An unknown key is an error that names the nearest known one.
 * Threads: none of its own; one struct, one owner. */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stdio.h>
#include <stddef.h>
#include <jansson.h>

#include "base/err.h"

enum opt_type {
    OPT_BOOL,  /* member: bool */
    OPT_INT,   /* member: int64_t */
    OPT_F64,   /* member: double */
    OPT_STR,   /* member: char *, NULL when not given and no default */
    OPT_ENUM,  /* member: int, the index into `values` ("greedy|top_k|top_p") */
    OPT_BYTES, /* member: int64_t; accepts 512, 64KiB, 2GiB, 1.5GB */
};

struct opt_row {
    const char *name; /* NULL ends the table */
    enum opt_type type;
    size_t offset;
    const char *unit;   /* "tok", "FILE" or NULL; OPT_ENUM: a word, see opt_names() */
    double min, max;    /* inclusive range of numbers; both 0: no limit */
    const char *def;    /* default as text; NULL: 0, false or no string */
    const char *values; /* OPT_ENUM only: words joined by '|' */
    const char *help;
    char letter; /* one-letter flag, 0 for none */
    /* What users of other programs call it: words joined by '|', with one dash or two ("np"). */
    const char *alias;
    char joins; /* OPT_STR: a flag given again is appended behind this, 0: replaces */
    /* OPT_STR that names a plug-in: the i-th name, for the help text; NULL after the last.
     * i counts up from 0. */
    const char *(*names)(int i);
};

/* A row whose name is its member's. The file that holds the table names the struct first;
 * what else there is to say of the row follows by name:
 *   #define OPT_OF struct serve_opts
 *   OPT_ROW(INT, threads, "0", "Threads. 0: one per CPU.", .min = 0, .max = 1024), */
#define OPT_ROW(kind, member, ...) OPT_ROW_AS(#member, kind, member, __VA_ARGS__)
/* The same under another name, such as that of a member of a member. */
#define OPT_ROW_AS(word, kind, member, default_, text, ...)                              \
    {                                                                                    \
        .name = word, .type = OPT_##kind, .offset = offsetof(OPT_OF, member),            \
        .def = (default_), .help = (text), ##__VA_ARGS__                                 \
    }

/* Set every member to its default. The struct need not be initialised before.
 * ERR_NOMEM, or ERR_ARG when the table itself is wrong. */
MUST int opt_init(const struct opt_row *table, void *s);
void opt_free(const struct opt_row *table, void *s); /* frees and NULLs the strings */
/* *to: all `size` bytes of *from, with strings of its own. ERR_NOMEM: opt_free() is still due. */
MUST int opt_copy(const struct opt_row *table, void *to, const void *from, size_t size);

/* Set one member from text. `where` ("--isa", "x.json: load.rate") begins the error
 * line. */
MUST int opt_set(const struct opt_row *table, void *s, const char *name,
                 const char *value, const char *where);

/* Read flags. Words that are not flags are left in argv[0..*n_rest) in order (argv[0] is
 * read too: pass argv + 1). "--" ends the flags. ERR_ARG on an unknown flag or bad
 * value. */
MUST int opt_from_argv(const struct opt_row *table, void *s, int argc, char **argv,
                       int *n_rest);

/* Set the members that `obj` names; every key must be known. */
MUST int opt_from_json(const struct opt_row *table, void *s, const json_t *obj,
                       const char *where);

/* The seconds in "90", "90s", "10m", "10min" or "1h". `where` as of opt_set(). ERR_ARG. */
MUST int opt_seconds(double *out, const char *word, const char *where);

/* All members with their present values; a new reference, NULL on ERR_NOMEM. */
MUST json_t *opt_to_json(const struct opt_row *table, const void *s);

/* The parts of the help text of a program or verb besides its options. Lines of `examples` and
 * `exit_status` are indented by two spaces and end in a newline. */
struct opt_usage {
    const char *line;        /* "sandwich run --model FILE --prompt TEXT [options]" */
    const char *about;       /* what it does, in one or two sentences */
    const char *examples;    /* command lines */
    const char *exit_status; /* "  0  success" and the others */
};

/* "One of: fcfs, continuous, chunked." where the row has names, or values and a word for them, ""
 * elsewhere. Lent until the next call; one thread. */
const char *opt_names(const struct opt_row *row);
/* Print the flag, meaning, unit, range and default of each option. */
void opt_help(const struct opt_row *table, FILE *f);
/* The same of one option, without the flag. */
void opt_help_row(const struct opt_row *row, FILE *f);
/* Print the whole help text: usage, options, examples, exit status. */
void opt_help_usage(const struct opt_usage *u, const struct opt_row *table, FILE *f);
/* Print the options as a Markdown table of the keys of a JSON object. */
void opt_help_markdown(const struct opt_row *table, FILE *f);

#endif
