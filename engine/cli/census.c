#include "cli/census.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"

#define LIST(...)                                                                        \
    (const char *const[])                                                                \
    {                                                                                    \
        __VA_ARGS__, NULL                                                                \
    }
/* The first class that has an instruction counts it. */
const struct cli_census_class cli_census_classes[] = {
    {"int8 tile", "AMX: tiles of bytes",
     LIST("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")},
    {"bf16 tile", "AMX: tiles of bf16 and f16", LIST("tdpbf16ps", "tdpfp16ps")},
    {"int8 matrix", "Arm i8mm", LIST("smmla", "ummla", "usmmla")},
    {"int8 dot", "VNNI, Arm dot product", LIST("vpdpb*", "sdot", "udot", "usdot")},
    {"int8 pairs", "products of bytes in pairs, before VNNI",
     LIST("vpmaddubsw", "pmaddubsw", "smull*", "smlal*")},
    {"bf16 dot", "dot products of bf16", LIST("vdpbf16ps", "bfdot", "bfmmla", "bfmlal*")},
    {"f16 fma", "multiply-adds of f16", LIST("vfmadd*ph", "vfnmadd*ph", "vfmadd*sh")},
    {"f32 fma", "multiply-adds of f32",
     LIST("vfmadd*ps", "vfnmadd*ps", "vfmadd*ss", "vfnmadd*ss", "vfmsub*ps", "fmla",
          "fmls", "fmadd")},
    {"int16 pairs", "products of 16 bits in pairs",
     LIST("vpmaddwd", "pmaddwd", "vpdpw*")},
    {"f16 convert", "f16 to f32", LIST("vcvtph2ps*", "fcvtl*")},
    {"prefetch", "asks for memory ahead", LIST("prefetch*", "prfm*")},
    {NULL, NULL, NULL},
};

/* A * stands for any characters. */
static bool matches(const char *pattern, const char *word)
{
    const char *star = strchr(pattern, '*');
    size_t n, tail;

    if (!star)
        return strcmp(pattern, word) == 0;
    n = (size_t)(star - pattern);
    tail = strlen(star + 1);
    return strncmp(pattern, word, n) == 0 && strlen(word) >= n + tail &&
           strcmp(word + strlen(word) - tail, star + 1) == 0;
}

static int class_of(const char *mnemonic)
{
    for (int i = 0; cli_census_classes[i].name; i++)
        for (int k = 0; cli_census_classes[i].mnemonics[k]; k++)
            if (matches(cli_census_classes[i].mnemonics[k], mnemonic))
                return i;
    return -1;
}

static int bits_of(const char *operands)
{
    if (strstr(operands, "tmm"))
        return 8192;
    if (strstr(operands, "zmm"))
        return 512;
    if (strstr(operands, "ymm"))
        return 256;
    return strstr(operands, "xmm") || strstr(operands, ".16b") || strstr(operands, ".4s")
               ? 128
               : 0;
}

/* Of the function in hand, and of the one that has the most so far. */
struct tally {
    char function[96];
    long long n[CENSUS_CLASSES_MAX], most[CENSUS_CLASSES_MAX];
};

static void end_function(struct cli_census *c, struct tally *t)
{
    for (int i = 0; cli_census_classes[i].name; i++)
        if (t->n[i] > t->most[i]) {
            t->most[i] = t->n[i];
            memcpy(c->most[i], t->function, sizeof(t->function));
        }
    memset(t->n, 0, sizeof(t->n));
}

/* "0000000000001139 <main>:" */
static bool begins_function(const char *line, char out[96])
{
    const char *a = strchr(line, '<'), *b = a ? strrchr(a, '>') : NULL;
    int n;

    if (!b || b[1] != ':' || line[0] == ' ')
        return false;
    n = (int)(b - a - 1);
    snprintf(out, 96, "%.*s", n < 95 ? n : 95, a + 1);
    return true;
}

/* "    1139:\tvfmadd231ps %ymm0,%ymm1,%ymm2" */
static void count(struct cli_census *c, struct tally *t, const char *line)
{
    const char *tab = strchr(line, '\t');
    char word[32];
    size_t n;
    int i, bits;

    if (line[0] != ' ' || !tab)
        return;
    n = strcspn(++tab, " \t\n");
    if (n == 0 || n >= sizeof(word))
        return;
    memcpy(word, tab, n);
    word[n] = '\0';
    c->n_all++;
    i = class_of(word);
    if (i < 0)
        return;
    bits = bits_of(tab + n);
    c->n[i]++;
    c->bits[i] = bits > c->bits[i] ? bits : c->bits[i];
    t->n[i]++;
}

static int read_listing(struct cli_census *c, FILE *f)
{
    struct tally t = {.function = ""};
    size_t capacity = 0;
    char *line = NULL;

    while (getline(&line, &capacity, f) >= 0) {
        char name[96];

        if (begins_function(line, name)) {
            end_function(c, &t);
            memcpy(t.function, name, sizeof(name));
        } else {
            count(c, &t, line);
        }
    }
    end_function(c, &t);
    free(line); /* getline's */
    return c->n_all > 0 ? OK : err_set(ERR_FORMAT, "objdump finds no instructions in it");
}

int cli_census_take(struct cli_census *out, const char *path)
{
    const char *argv[] = {"objdump", "-d", "--no-show-raw-insn", "-w", "--", path, NULL};
    FILE *listing = tmpfile(), *said = tmpfile();
    struct child_program p = {.argv = argv, .fd = {-1, -1, -1}};
    char last[160];
    int fd, rc = OK;
    pid_t pid = 0;

    *out = (struct cli_census){0};
    rc = listing && said ? file_open(&fd, path)
                         : err_set(ERR_IO, "cannot make a temporary file: %m");
    if (rc == OK) {
        close(fd); /* it is there, and no pipe */
        p.fd[1] = fileno(listing);
        p.fd[2] = fileno(said);
        rc = child_start(&pid, &p);
        if (rc == ERR_NOTFOUND)
            rc = err_set(ERR_NOTFOUND, "objdump is not installed (Debian: binutils)");
    }
    if (rc == OK && child_wait(&pid, 0) != OK) {
        child_last_line(fileno(said), last, sizeof(last));
        rc = err_set(ERR_FORMAT, "%s: %s", path, *last ? last : err_msg());
    } else if (rc == OK) {
        rewind(listing);
        rc = read_listing(out, listing);
        rc = rc == OK ? OK : err_prefix(rc, "%s", path);
    }
    if (listing)
        fclose(listing);
    if (said)
        fclose(said);
    return rc;
}
