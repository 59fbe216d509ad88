/* sandwich kernel: a kernel as text, raised, changed, lowered, checked and timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/name.h"
#include "cli/cli.h"
#include "cpu/cpu.h"
#include "ir/build.h"
#include "ir/problem.h"

#define TIMED 1000 /* random problems take less time than all that is timed */

enum product { AS_IS, BITS, FAST };

struct flags {
    char *set, *isa, *cache;
    int product;
    int64_t m, problems;
};

#define OPT_OF struct flags
static const struct opt_row table[] = {
    OPT_ROW(STR, set, NULL, "Parameters and their values. Example: --set uM=6,uN=1,vN=8",
            .unit = "LIST"),
    OPT_ROW(
        ENUM, product, "as-is",
        "Parameters of a matrix product, before those of --set. bits: all tiles and "
        "vectors that this machine's registers hold, every bit as kernels/ref/. fast: "
        "with fused multiply-adds and several sums, too.",
        .values = "as-is|bits|fast"),
    CPU_ISA_ROW,
    OPT_ROW(STR, cache, NULL,
            "Folder that keeps compiled kernels, of this user only (mode 700). Default: "
            "kernels in the user's cache, ~/.cache/sandwich.",
            .unit = "DIR"),
    OPT_ROW(INT, m, "64", "run: rows of a matrix product that is timed.", .min = 1,
            .max = 4096),
    OPT_ROW(INT, problems, "100", "run: random problems that are compared first.",
            .min = 1, .max = 1000000),
    {0},
};

static const char *const actions[] = {"print", "raise", "set", "lower", "run", NULL};

/* uM=6,uN=1 */
static int set_all(struct ir *high, const char *list)
{
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, "=");
        char name[64], *end;
        long long value;

        if (at[n] != '=' || n == 0 || n >= sizeof(name))
            return err_set(ERR_ARG, "--set: expected NAME=VALUE, found \"%.40s\"", at);
        memcpy(name, at, n);
        name[n] = '\0';
        value = strtoll(at + n + 1, &end, 10);
        if (end == at + n + 1 || (*end && *end != ','))
            return err_set(ERR_ARG, "--set %s: expected an integer, found \"%.40s\"",
                           name, at + n + 1);
        TRY(ir_set(high, name, value));
        at = *end ? end + 1 : end;
    }
    return OK;
}

static int show(const struct ir *p)
{
    char *text;

    TRY(ir_print(&text, p));
    fputs(text, stdout);
    mem_free(text);
    return OK;
}

static void print_time(FILE *out, const char *name, const struct measure_report *t,
                       const struct measure_report *own)
{
    fprintf(out, "%-26s %10.2f us  [%.2f to %.2f]  %.2f times the time of this kernel\n",
            name, 1e6 * t->estimate, 1e6 * t->lo, 1e6 * t->hi,
            t->estimate / own->estimate);
}

struct timing {
    const struct kern_variant *v;
    int64_t m;
};

static int time_it(void *ctx, FILE *out)
{
    const struct timing *own = ctx;
    const struct kern_variant *v[3] = {own->v, ir_reference(own->v->op)};
    struct measure_report t[3];
    struct ir_problem *p;
    struct kern_table best;
    int n = 2, rc;

    kern_table_choose(&best, cpu_isa_usable(), KERN_EXACT);
    if (best.v[own->v->op] != v[1])
        v[n++] = best.v[own->v->op];
    TRY(ir_problem_bench(&p, own->v->op, own->m));
    rc = ir_bench(t, p, v, n);
    for (int i = 0; i < n && rc == OK; i++) {
        if (i == 0)
            fprintf(out, "one thread, data in the caches: %s\n", ir_problem_text(p));
        print_time(out, v[i]->name, &t[i], &t[0]);
    }
    ir_problem_close(&p);
    return rc;
}

static int run(const struct ir *high, const struct flags *f)
{
    const struct ir_target *target = ir_target_of(cpu_isa_usable());
    bool bits = ir_keeps_bits(high);
    struct ir_kernel k;
    struct ir_check c;
    char *times = NULL;
    int rc = ir_build(&k, high, target, f->cache);

    if (rc == OK) {
        printf("%s of %s: %s%s\n", k.name, kern_op_name(k.v.op), k.path,
               k.was_kept ? ", kept from before" : "");
        rc = ir_check(&c, &k.v, (int)f->problems, 1);
    }
    if (rc == OK)
        rc = ir_check_verdict(&c, bits);
    if (rc == OK) {
        printf("%lld random problems, %lld results: %s (largest difference %.2g of "
               "their RMS)\n",
               (long long)c.n_problems, (long long)c.n_values,
               bits ? "the bits of kernels/ref/"
                    : "sums in another order or rounded less",
               c.error);
        rc = ir_run_apart(&times, time_it, &(struct timing){&k.v, f->m}, &k.v, TIMED);
    }
    if (rc == OK)
        fputs(times, stdout);
    mem_free(times);
    ir_unload(&k);
    return rc;
}

/* The high level of a file of either one. */
static int open_high(struct ir *out, struct ir *read, const struct flags *f)
{
    if (read->level == IR_HIGH) {
        *out = *read;
        *read = (struct ir){.level = IR_HIGH};
    } else {
        TRY(ir_raise(out, read));
    }
    if (f->product != AS_IS)
        TRY(ir_set_product(out, ir_target_of(cpu_isa_usable()), f->product == BITS));
    return set_all(out, f->set);
}

static int act(const struct verb_words *w)
{
    const struct flags *f = w->opts;
    const char *action = w->rest[0], *path = w->rest[1];
    struct ir read = {0}, high = {0};
    char *text = NULL;
    int rc;

    if (name_index(actions, action) < 0)
        return err_set(ERR_ARG, "\"%.40s\": expected print, raise, set, lower or run",
                       action);
    rc = cpu_isa_limit(f->isa);
    if (rc == OK)
        rc = ir_read(&read, path);
    if (rc == OK && strcmp(action, "print") == 0) {
        rc = show(&read);
    } else if (rc == OK) {
        rc = open_high(&high, &read, f);
        if (rc != OK)
            rc = err_prefix(rc, "%s", path);
        else if (strcmp(action, "run") == 0)
            rc = run(&high, f);
        else if (strcmp(action, "lower") != 0)
            rc = show(&high);
        else
            rc = ir_lower(&text, &high, ir_target_of(cpu_isa_usable())->registers);
    }
    if (text)
        fputs(text, stdout);
    mem_free(text);
    ir_fini(&high);
    ir_fini(&read);
    return rc;
}

const struct verb cli_verb_kernel = {
    .name = "kernel",
    .help = "Raise a kernel, change its parameters, lower and time it.",
    .place = 11,
    .usage =
        {.line = "sandwich kernel print|raise|set|lower|run FILE [options]",
         .about =
             "A kernel as text on two levels (engine/ir/ir.h): C as in "
             "engine/kernels/ref/ "
             "(FILE.c), and a text like Python whose loops say what they are and whose "
             "parameters have names. print: the file again. raise, set: the high level, "
             "with the parameters of --set. lower: C with vector extensions. run: "
             "compile it, compare it with kernels/ref/, and time it and the kernels that "
             "are there in turn. run executes the code of FILE in a process of its own, "
             "with limits of memory and time and with your rights: its indices are not "
             "checked. Run only files that you trust.",
         .examples =
             "  sandwich kernel raise engine/kernels/ref/rope_ref.c --set vI=8 >rope.ir\n"
             "  sandwich kernel run rope.ir\n"
             "  sandwich kernel run engine/kernels/ref/gemm_f32_ref.c --product fast\n"},
    .n_args = 2,
    .opts = {{table}},
    .opts_bytes = sizeof(struct flags),
    .run = act,
};
