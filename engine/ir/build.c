/* Compiling lowered kernels, and keeping what was compiled. */
#include "ir/build.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"
#include "base/home.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "cpu/cpu.h"
#include "ir/tree.h"

#define ARGS_MAX   48
#define LIMIT_S    300
#define OBJECT_MAX ((size_t)64 << 20)
#define DIGITS     32 /* of a digest in a name: 128 bits, which nobody can meet twice */
#define PATH_ROOM  sizeof(((struct ir_kernel *)0)->path)
#define AVX2       "-mavx2 -mfma -mf16c"

/* The best first. */
static const struct ir_target targets[] = {
    {"avx512", CPU_MASK(AVX512), 32, 16,
     AVX2 " -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512"},
    {"avx2", CPU_MASK(AVX2), 16, 8, AVX2},
    {"neon", CPU_MASK(NEON), 32, 4, ""},
    {"ref", 0, 16, 4, ""},
};

const struct ir_target *ir_target_of(uint64_t isa)
{
    int i = 0;

    while (targets[i].isa & ~isa)
        i++;
    return &targets[i];
}

/* ---- the compiler ---- */

struct compiler {
    char words[512]; /* its command and flags, cut at blanks */
    const char *argv[ARGS_MAX];
    int n;
    char version[256]; /* its own first line about itself */
};

static int add_words(struct compiler *c, size_t *used, const char *text)
{
    size_t n = strlen(text);
    char *at = c->words + *used;

    if (*used + n + 1 > sizeof(c->words))
        return err_set(ERR_LIMIT, "a compiler's command of more than %zu characters",
                       sizeof(c->words));
    memcpy(at, text, n + 1);
    *used += n + 1;
    for (char *word = strtok(at, " "); word; word = strtok(NULL, " "))
        if (c->n < ARGS_MAX - 8)
            c->argv[c->n++] = word;
    return OK;
}

/* Run it with the file `in` (-1: none) as its input; what it writes goes to *text, mem_free(). */
static int run(const struct compiler *c, int in, char **text)
{
    int fd = memfd_create("compiler", MFD_CLOEXEC), rc;
    struct child_program program = {.argv = c->argv, .fd = {in, fd, fd}};
    off_t size;
    pid_t pid;

    *text = NULL;
    if (fd < 0)
        return err_set(ERR_IO, "memfd_create: %m");
    rc = child_start(&pid, &program);
    if (rc == ERR_NOTFOUND)
        rc = err_set(ERR_UNSUPPORTED,
                     "no C compiler \"%s\": install one, or name it in $CC", c->argv[0]);
    else if (rc == OK)
        rc = child_wait(&pid, LIMIT_S);
    child_kill(&pid);
    size = lseek(fd, 0, SEEK_END);
    *text = mem_new(MEM_OTHER, (size_t)(size > 0 ? size : 0) + 1, 1);
    if (!*text)
        rc = ERR_NOMEM;
    else if (pread(fd, *text, (size_t)size, 0) != size)
        (*text)[0] = '\0';
    close(fd);
    return rc;
}

static int find_compiler(struct compiler *c, size_t *used)
{
    const char *cc = getenv("CC");
    char *text = NULL;
    int rc;

    c->n = 0;
    *used = 0;
    TRY(add_words(c, used, cc && *cc ? cc : "cc"));
    if (c->n == 0)
        return err_set(ERR_UNSUPPORTED, "$CC is blank: expected a compiler");
    c->argv[c->n] = "--version";
    c->argv[c->n + 1] = NULL;
    rc = run(c, -1, &text);
    if (rc == OK)
        snprintf(c->version, sizeof(c->version), "%.*s", (int)strcspn(text, "\n"), text);
    mem_free(text);
    return rc;
}

/* The first line with an error, without the path before it. */
static int refused(int rc, const char *text)
{
    const char *at = text ? strstr(text, "error:") : NULL;

    if (!at)
        return err_prefix(rc, "the compiler");
    return err_set(ERR_FORMAT, "the compiler refused it: %.*s", (int)strcspn(at, "\n"),
                   at);
}

/* ---- objects ---- */

static int digest_file(char text[SHA256_TEXT], const char *path)
{
    struct sha256 h;
    char *bytes;
    size_t n;

    TRY(file_read(&bytes, &n, path, OBJECT_MAX));
    sha256_init(&h);
    sha256_add(&h, bytes, n);
    sha256_end(&h, text);
    mem_free(bytes);
    return OK;
}

static int name_object(char path[PATH_ROOM], const char *dir, const char *source,
                       const char *object)
{
    if ((size_t)snprintf(path, PATH_ROOM, "%s/%.*s-%.*s.so", dir, DIGITS, source, DIGITS,
                         object) >= PATH_ROOM)
        return err_set(ERR_LIMIT, "%.60s...: too long a path", dir);
    return OK;
}

/* The object of this source in the folder whose bytes are those that its name says: a damaged or
 * exchanged one is never loaded. */
static bool find_object(char path[PATH_ROOM], const char *dir, const char *source)
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    char object[SHA256_TEXT];
    bool is_kept = false;

    while (d && !is_kept && (e = readdir(d))) {
        snprintf(path, PATH_ROOM, "%s/%s", dir, e->d_name);
        if (strncmp(e->d_name, source, DIGITS) != 0 || digest_file(object, path) != OK)
            continue;
        is_kept = name_object(path, dir, source, object) == OK &&
                  strcmp(strrchr(path, '/') + 1, e->d_name) == 0;
    }
    if (d)
        closedir(d);
    err_clear();
    return is_kept;
}

static int compile(struct compiler *c, char path[PATH_ROOM], const char *dir,
                   const char *text, const char *source)
{
    char part[PATH_ROOM + 16], object[SHA256_TEXT], *said = NULL;
    int in = memfd_create("source", MFD_CLOEXEC), rc;
    size_t n = strlen(text);

    if (in < 0)
        return err_set(ERR_IO, "memfd_create: %m");
    snprintf(part, sizeof(part), "%s/%.*s.%d.part", dir, DIGITS, source, (int)getpid());
    for (const char *const *w =
             (const char *const[]){"-x", "c", "-", "-o", part, "-lm", NULL};
         *w; w++)
        c->argv[c->n++] = *w;
    c->argv[c->n] = NULL;
    rc = file_write_all(in, text, n) == 0 && lseek(in, 0, SEEK_SET) == 0
             ? run(c, in, &said)
             : err_set(ERR_IO, "cannot keep %zu bytes in memory: %m", n);
    close(in);
    if (rc != OK && said && rc != ERR_UNSUPPORTED && rc != ERR_NOMEM)
        rc = refused(rc, said);
    mem_free(said);
    if (rc == OK)
        rc = digest_file(object, part);
    if (rc == OK)
        rc = name_object(path, dir, source, object);
    if (rc == OK && rename(part, path) != 0)
        rc = err_set(ERR_IO, "%s: cannot rename to %s: %m", part, path);
    (void)unlink(part);
    return rc;
}

/* Its object, made where it is not kept. */
static int make_object(struct ir_kernel *k, const struct ir *high, const char *text,
                       const struct ir_target *target, const char *dir)
{
    struct compiler c = {.n = 0};
    char flags[320], source[SHA256_TEXT];
    struct sha256 h;
    size_t used;

    snprintf(flags, sizeof(flags),
             "-std=gnu11 -O2 -fPIC -shared -w -fno-stack-protector -fno-math-errno "
             "-ffp-contract=%s %s",
             ir_param(high, "fma") > 0 ? "fast" : "off", target->flags);
    TRY(file_make_private_dir(dir));
    TRY(find_compiler(&c, &used));
    sha256_init(&h);
    for (const char *const *part =
             (const char *const[]){text, flags, c.version, c.argv[0], NULL};
         *part; part++)
        sha256_add(&h, *part, strlen(*part) + 1);
    sha256_end(&h, source);
    snprintf(k->name, sizeof(k->name), "ir-%s-%.8s", target->name, source);
    k->was_kept = find_object(k->path, dir, source);
    if (k->was_kept)
        return OK;
    TRY(add_words(&c, &used, flags));
    return compile(&c, k->path, dir, text, source);
}

/* ---- the variant ---- */

static int find_op(const struct ir *high, enum kern_op *out)
{
    const char *word = ir_op_word(high);

    for (int op = 0; word && strncmp(word, "KERN_", 5) == 0 && op < KERN_N_OPS; op++) {
        const char *name = kern_op_name((enum kern_op)op), *w = word + 5;

        while (*w && tolower((unsigned char)*w) == *name)
            w++, name++;
        if (!*w && !*name) {
            *out = (enum kern_op)op;
            return OK;
        }
    }
    return err_set(ERR_UNSUPPORTED, "\"%.40s\" is no operator", word ? word : "");
}

/* The types of the arguments of an operator's function, as kern.h has them. */
static const char *arguments_of(enum kern_op op)
{
    if (kern_op_is_gemm(op))
        return "const struct kern_gemm_tile *";
    if (kern_op_is_attn(op))
        return "const struct kern_attn_args *";
    switch (op) {
    case KERN_RMSNORM:
        return "float *, const float *, const float *, int64_t, float";
    case KERN_ROPE:
        return "float *, const float *, const float *, int, int";
    case KERN_SILU_MUL:
        return "float *, const float *, const float *, int64_t";
    case KERN_ADD:
        return "float *, const float *, int64_t";
    case KERN_TO_BF16:
    case KERN_TO_F16:
        return "uint16_t *, const float *, int64_t";
    case KERN_FROM_BF16:
    case KERN_FROM_F16:
        return "float *, const uint16_t *, int64_t";
    default:
        return "const float *, int64_t";
    }
}

/* A function of another type would be called with what it does not expect. */
static int check_arguments(const struct ir *high, enum kern_op op)
{
    const struct ir_node *f = ir_find_function(high, ir_entry_name(high));
    const char *result = op == KERN_ARGMAX ? "int64_t" : "void";
    struct text t = {0};
    int rc = OK;

    for (const struct ir_node *a = f ? f->k[0] : NULL; a; a = a->next) {
        text_puts(&t, t.n > 0 ? ", " : "");
        ir_print_type(&t, a->type, IR_LOW);
        text_puts(&t, a->k[0] ? "[]" : "");
    }
    text_put(&t, "", 1);
    if (t.rc != OK)
        return t.rc;
    if (!f || strcmp(t.p, arguments_of(op)) != 0 || f->type.ptr > 0 ||
        strcmp(f->type.base, result) != 0)
        rc = err_set(ERR_UNSUPPORTED,
                     "%s: expected a function of (%s) that returns %s, found (%.80s)",
                     kern_op_name(op), arguments_of(op), result, t.p);
    text_fini(&t);
    return rc;
}

/* The numbers of a list in the row, as .rows = {4, 4}. */
static void take_rows(const struct ir *high, uint8_t rows[KERN_NP_MAX])
{
    const struct ir_node *v = ir_part(high, IR_VARIANT);

    for (const struct ir_node *f = v ? v->k[0] : NULL; f; f = f->next) {
        const struct ir_node *x = f->k[0]->k[0];
        int64_t value;

        for (int i = 0; strcmp(f->text, "rows") == 0 && x && i < KERN_NP_MAX;
             i++, x = x->next)
            if (ir_int_value(x, &value) && value < 256)
                rows[i] = (uint8_t)value;
    }
}

static int load(struct ir_kernel *k, const struct ir *high,
                const struct ir_target *target)
{
    void *fn;
    const uint8_t *rows;

    k->handle = dlopen(k->path, RTLD_NOW | RTLD_LOCAL);
    if (!k->handle)
        return err_set(ERR_IO, "%s: cannot be loaded: %s", k->path, dlerror());
    fn = dlsym(k->handle, "ir_kernel");
    if (!fn)
        return err_set(ERR_FORMAT, "%s: has no ir_kernel", k->path);
    k->v.name = k->name;
    k->v.isa = target->isa;
    k->v.precision = KERN_EXACT;
    memcpy(&k->v.fn, &fn, sizeof(fn));
    if (!kern_op_is_gemm(k->v.op))
        return OK;
    rows = dlsym(k->handle, "ir_rows");
    if (rows)
        memcpy(k->v.rows, rows, sizeof(k->v.rows));
    else
        take_rows(high, k->v.rows);
    k->v.vec_cols = ir_param(high, "vN") > 1 ? (int)ir_param(high, "vN") : 1;
    k->v.batch_invariant = ir_param(high, "sK") <= 1;
    k->v.error = KERN_ERROR_F32;
    k->v.a_format = KERN_A_F32;
    return OK;
}

int ir_build(struct ir_kernel *out, const struct ir *high, const struct ir_target *target,
             const char *dir)
{
    char *text, own[PATH_ROOM];
    int rc;

    *out = (struct ir_kernel){.handle = NULL};
    TRY(find_op(high, &out->v.op));
    TRY(check_arguments(high, out->v.op));
    TRY(ir_lower(&text, high, target->registers));
    rc = make_object(out, high, text, target,
                     dir ? dir : home_cache(own, sizeof(own), IR_CACHE_DIR));
    mem_free(text);
    return rc == OK ? load(out, high, target) : rc;
}

void ir_unload(struct ir_kernel *k)
{
    if (k->handle)
        dlclose(k->handle);
    k->handle = NULL;
}

/* 4 rows of K at once; 8 sums, which two multiply-adds a cycle of four cycles' latency want; 16 KiB
 * ahead. */
int ir_set_product(struct ir *high, const struct ir_target *target, bool bits)
{
    TRY(ir_set(high, "uM", 30));
    TRY(ir_set(high, "uN", KERN_NP_MAX));
    TRY(ir_set(high, "vN", target->lanes));
    TRY(ir_set(high, "uK", 4));
    TRY(ir_set(high, "aK", 16384));
    TRY(ir_set(high, "sK", bits ? 0 : 8));
    return ir_set(high, "fma", bits ? 0 : 1);
}
