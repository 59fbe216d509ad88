/* Texts as tokens, and what the preprocessor does in kernels/ref/. */
#include "ir/lex.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

#define TOKENS_MAX   (1 << 18)
#define MACROS_MAX   64
#define ARGS_MAX     8
#define EXPAND_DEPTH 16
#define FILES_MAX    8
#define FILE_MAX     ((size_t)1 << 20)
#define INDENTS_MAX  128

struct macro {
    const char *name;
    int n_params; /* -1: no list of arguments */
    const char *params[ARGS_MAX];
    int from, to; /* its tokens among `bodies` */
};

struct tokens {
    struct ir_token *v; /* [n] */
    int n, max;
};

struct ir_lexer {
    struct ir *p;
    struct tokens raw, bodies, out;
    struct macro macros[MACROS_MAX];
    int n_macros;
    const char *files[FILES_MAX]; /* read once each */
    char *texts[FILES_MAX];       /* of those that are included */
    int n_files;
};

/* One text. */
struct source {
    const char *at, *end, *file;
    int line;
};

static int add(struct tokens *t, const struct ir_token *x)
{
    if (t->n == TOKENS_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d tokens", x->file, x->line,
                       TOKENS_MAX);
    if (t->n == t->max) {
        int max = 2 * t->max + 256;
        struct ir_token *v = mem_resize(MEM_OTHER, t->v, (size_t)max, sizeof(*v));

        if (!v)
            return ERR_NOMEM;
        t->v = v;
        t->max = max;
    }
    t->v[t->n++] = *x;
    return OK;
}

static bool starts(const struct source *s, const char *with)
{
    size_t n = strlen(with);

    return (size_t)(s->end - s->at) >= n && memcmp(s->at, with, n) == 0;
}

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Blanks, comments and joined lines. A comment of C may have several lines. */
static int skip(struct source *s, bool comments)
{
    for (;;) {
        if (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')) {
            s->at++;
        } else if (starts(s, "\\\n")) {
            s->at += 2;
            s->line++;
        } else if (comments && starts(s, "/*")) {
            int line = s->line;

            for (s->at += 2; !starts(s, "*/"); s->at++) {
                if (s->at >= s->end)
                    return err_set(ERR_FORMAT, "%s:%d: a comment that does not end",
                                   s->file, line);
                s->line += *s->at == '\n';
            }
            s->at += 2;
        } else {
            return OK;
        }
    }
}

static int unknown_char(const struct source *s)
{
    return err_set(ERR_FORMAT,
                   isprint((unsigned char)*s->at) ? "%s:%d: \"%c\" begins no token"
                                                  : "%s:%d: byte 0x%02x begins no token",
                   s->file, s->line, (unsigned char)*s->at);
}

/* Digits, a point, an exponent with its sign, suffixes. */
static size_t number_length(const struct source *s)
{
    const char *c = s->at;
    bool hex = s->end - c > 1 && c[0] == '0' && (c[1] == 'x' || c[1] == 'X');

    while (c < s->end && (is_word_char(*c) || *c == '.')) {
        bool exponent = hex ? (*c == 'p' || *c == 'P') : (*c == 'e' || *c == 'E');

        c++;
        if (exponent && c < s->end && (*c == '-' || *c == '+'))
            c++;
    }
    return (size_t)(c - s->at);
}

/* The next token that is not the end of a line. */
static int next_token(struct ir_lexer *x, struct source *s, struct ir_token *t)
{
    static const char *const signs[] = {
        "<<=", ">>=", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
        "+=",  "-=",  "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", NULL};
    size_t n = 1;

    *t = (struct ir_token){.kind = IR_T_SIGN, .file = s->file, .line = s->line};
    if (isalpha((unsigned char)*s->at) || *s->at == '_') {
        t->kind = IR_T_WORD;
        while (s->at + n < s->end && is_word_char(s->at[n]))
            n++;
    } else if (isdigit((unsigned char)*s->at) || (*s->at == '.' && s->at + 1 < s->end &&
                                                  isdigit((unsigned char)s->at[1]))) {
        t->kind = IR_T_NUMBER;
        n = number_length(s);
    } else if (*s->at == '"') {
        t->kind = IR_T_STRING;
        while (s->at + n < s->end && s->at[n] != '"' && s->at[n] != '\\' &&
               s->at[n] != '\n')
            n++;
        if (s->at + n >= s->end || s->at[n] != '"')
            return err_set(ERR_FORMAT, "%s:%d: a string that does not end", s->file,
                           s->line);
        t->text = ir_text(x->p, s->at + 1, n - 1);
        s->at += n + 1;
        return OK;
    } else {
        int i = 0;

        while (signs[i] && !starts(s, signs[i]))
            i++;
        if (signs[i])
            n = strlen(signs[i]);
        else if (!*s->at || !strchr("+-*/%<>=!&|^~?:;,.()[]{}", *s->at))
            return unknown_char(s);
    }
    if (n > 255)
        return err_set(ERR_LIMIT, "%s:%d: a token of %zu characters", s->file, s->line,
                       n);
    t->text = ir_text(x->p, s->at, n);
    s->at += n;
    return OK;
}

/* ---- C ---- */

static int lex_c(struct ir_lexer *x, const char *text, size_t n, const char *name);

static int expected_in(const struct source *s, const char *what)
{
    return err_set(ERR_FORMAT, "%s:%d: expected %s", s->file, s->line, what);
}

/* Up to the end of the line. */
static int directive_token(struct ir_lexer *x, struct source *s, struct ir_token *t,
                           bool *end)
{
    TRY(skip(s, true));
    *end = s->at >= s->end || *s->at == '\n';
    return *end ? OK : next_token(x, s, t);
}

static int define(struct ir_lexer *x, struct source *s)
{
    struct macro *m = &x->macros[x->n_macros];
    struct ir_token t;
    bool end;

    if (x->n_macros == MACROS_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d macros", s->file, s->line,
                       MACROS_MAX);
    TRY(directive_token(x, s, &t, &end));
    if (end || t.kind != IR_T_WORD)
        return expected_in(s, "a name after #define");
    for (int i = 0; i < x->n_macros; i++)
        if (strcmp(x->macros[i].name, t.text) == 0)
            return err_set(ERR_UNSUPPORTED, "%s:%d: %s is defined twice", s->file,
                           s->line, t.text);
    *m = (struct macro){.name = t.text, .n_params = -1, .from = x->bodies.n};
    if (s->at < s->end && *s->at == '(') {
        s->at++;
        m->n_params = 0;
        do {
            TRY(directive_token(x, s, &t, &end));
            if (end || t.kind != IR_T_WORD || m->n_params == ARGS_MAX)
                return expected_in(s, "at most 8 names of arguments");
            m->params[m->n_params++] = t.text;
            TRY(directive_token(x, s, &t, &end));
        } while (!end && strcmp(t.text, ",") == 0);
        if (end || strcmp(t.text, ")") != 0)
            return expected_in(s, "\")\" after the arguments");
    }
    for (;;) {
        TRY(directive_token(x, s, &t, &end));
        if (end)
            break;
        TRY(add(&x->bodies, &t));
    }
    m->to = x->bodies.n;
    x->n_macros++;
    return OK;
}

/* "kernels/ref/x.h" from .../kernels/ref/y.c: the folder of y.c. */
static int include(struct ir_lexer *x, struct source *s)
{
    static const char folder[] = "kernels/ref/";
    const char *slash = strrchr(s->file, '/'), *part;
    char path[1024], *text;
    struct ir_token t;
    size_t n;
    bool end;
    int rc;

    TRY(skip(s, true));
    if (s->at < s->end && *s->at == '<') {
        while (s->at < s->end && *s->at != '\n')
            s->at++;
        return OK;
    }
    TRY(directive_token(x, s, &t, &end));
    if (end || t.kind != IR_T_STRING)
        return expected_in(s, "a name in quotes after #include");
    if (strncmp(t.text, folder, strlen(folder)) != 0)
        return OK;
    part = t.text + strlen(folder);
    if (!*part || strspn(part, "abcdefghijklmnopqrstuvwxyz0123456789_.") != strlen(part))
        return expected_in(s, "a file of kernels/ref/");
    if (x->n_files == FILES_MAX)
        return err_set(ERR_LIMIT, "%s:%d: more than %d files", s->file, s->line,
                       FILES_MAX);
    snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash + 1 - s->file) : 0,
             s->file, part);
    for (int i = 0; i < x->n_files; i++)
        if (strcmp(x->files[i], path) == 0)
            return OK;
    rc = file_read(&text, &n, path, FILE_MAX);
    if (rc != OK)
        return err_prefix(rc, "%s:%d", s->file, s->line);
    x->texts[x->n_files] = text;
    return lex_c(x, text, n, ir_text(x->p, path, strlen(path)));
}

static int directive(struct ir_lexer *x, struct source *s)
{
    struct ir_token t;
    bool end;

    TRY(directive_token(x, s, &t, &end));
    if (end || t.kind != IR_T_WORD)
        return expected_in(s, "#define or #include");
    if (strcmp(t.text, "define") == 0)
        return define(x, s);
    if (strcmp(t.text, "include") == 0)
        return include(x, s);
    if (strcmp(t.text, "ifndef") != 0 && strcmp(t.text, "endif") != 0)
        return err_set(ERR_UNSUPPORTED, "%s:%d: #%s: expected #define or #include",
                       s->file, t.line, t.text);
    while (!end) /* a guard: every part is read once anyway */
        TRY(directive_token(x, s, &t, &end));
    return OK;
}

static int lex_c(struct ir_lexer *x, const char *text, size_t n, const char *name)
{
    struct source s = {.at = text, .end = text + n, .file = name, .line = 1};
    bool line_start = true;
    struct ir_token t;

    x->files[x->n_files++] = name;
    for (;;) {
        TRY(skip(&s, true));
        if (s.at >= s.end)
            return OK;
        if (*s.at == '\n') {
            s.line++;
            s.at++;
            line_start = true;
        } else if (*s.at == '#' && line_start) {
            s.at++;
            TRY(directive(x, &s));
        } else {
            TRY(next_token(x, &s, &t));
            TRY(add(&x->raw, &t));
            line_start = false;
        }
    }
}

/* ---- macros ---- */

struct range {
    const struct ir_token *v;
    int n;
};

static int expand(struct ir_lexer *x, struct range in, const struct ir_token *where,
                  const struct macro *m, const struct range *args, int depth);

static const struct macro *find_macro(const struct ir_lexer *x, const struct ir_token *t)
{
    for (int i = 0; t->kind == IR_T_WORD && i < x->n_macros; i++)
        if (strcmp(x->macros[i].name, t->text) == 0)
            return &x->macros[i];
    return NULL;
}

/* The arguments that begin behind the bracket at `in`; *used: tokens up to its end. */
static int collect(struct range in, const struct macro *m, struct range args[ARGS_MAX],
                   int *used)
{
    int depth = 1, n = 0, from = 1, i = 1;

    for (; i < in.n && depth > 0; i++) {
        const char *w = in.v[i].kind == IR_T_SIGN ? in.v[i].text : "";

        depth += *w == '(' ? 1 : *w == ')' ? -1 : 0;
        if (depth == 0 || (depth == 1 && *w == ',')) {
            if (n < ARGS_MAX)
                args[n] = (struct range){in.v + from, i - from};
            n++;
            from = i + 1;
        }
    }
    if (depth > 0 || n != m->n_params)
        return err_set(ERR_FORMAT, "%s:%d: %s with %d arguments: expected %d", in.v->file,
                       in.v->line, m->name, n, m->n_params);
    *used = i;
    return OK;
}

static int put_token(struct ir_lexer *x, const struct ir_token *t,
                     const struct ir_token *where)
{
    struct ir_token at = *t;

    if (where) {
        at.file = where->file;
        at.line = where->line;
    }
    return add(&x->out, &at);
}

/* The tokens `in`, inside of macro m with these arguments where m is not NULL. */
static int expand(struct ir_lexer *x, struct range in, const struct ir_token *where,
                  const struct macro *m, const struct range *args, int depth)
{
    if (depth > EXPAND_DEPTH)
        return err_set(ERR_LIMIT, "%s:%d: macros in macros, %d deep", where->file,
                       where->line, EXPAND_DEPTH);
    for (int i = 0; i < in.n; i++) {
        const struct ir_token *t = &in.v[i];
        const struct macro *use = find_macro(x, t);
        struct range own[ARGS_MAX];
        int used = 0, a = 0;

        while (m && a < m->n_params &&
               (t->kind != IR_T_WORD || strcmp(m->params[a], t->text) != 0))
            a++;
        if (m && a < m->n_params) {
            TRY(expand(x, args[a], where, NULL, NULL, depth + 1));
            continue;
        }
        if (!use || use == m ||
            (use->n_params >= 0 &&
             (i + 1 >= in.n || strcmp(in.v[i + 1].text, "(") != 0))) {
            TRY(put_token(x, t, where));
            continue;
        }
        if (use->n_params >= 0)
            TRY(collect((struct range){in.v + i + 1, in.n - i - 1}, use, own, &used));
        if (m && use->n_params > 0)
            return err_set(ERR_UNSUPPORTED,
                           "%s:%d: %s: a macro with arguments inside of another one",
                           t->file, t->line, use->name);
        if (use->to > use->from)
            TRY(expand(x, (struct range){x->bodies.v + use->from, use->to - use->from},
                       where ? where : t, use, own, depth + 1));
        i += used;
    }
    return OK;
}

/* ---- high level ---- */

static int lex_lines(struct ir_lexer *x, const char *text, size_t n, const char *name)
{
    struct source s = {.at = text, .end = text + n, .file = name, .line = 1};
    int indents[INDENTS_MAX] = {0}, depth = 0;
    struct ir_token t = {.text = "", .file = name};

    while (s.at < s.end) {
        const char *from = s.at;
        int column, n_tokens = 0;

        while (s.at < s.end && *s.at == ' ')
            s.at++;
        column = (int)(s.at - from);
        for (; s.at < s.end && *s.at != '\n'; n_tokens++) {
            if (*s.at == '#')
                while (s.at < s.end && *s.at != '\n')
                    s.at++;
            if (s.at >= s.end || *s.at == '\n')
                break;
            for (t.line = s.line; n_tokens == 0 && column != indents[depth];) {
                t.kind = column > indents[depth] ? IR_T_IN : IR_T_OUT;
                t.text = "";
                if (t.kind == IR_T_IN) {
                    if (depth + 1 == INDENTS_MAX)
                        return err_set(ERR_LIMIT, "%s:%d: more than %d levels", name,
                                       s.line, INDENTS_MAX - 1);
                    indents[++depth] = column;
                } else if (indents[--depth] < column) {
                    return err_set(ERR_FORMAT, "%s:%d: indented like no line before",
                                   name, s.line);
                }
                TRY(add(&x->out, &t));
            }
            TRY(next_token(x, &s, &t));
            TRY(add(&x->out, &t));
            TRY(skip(&s, false));
        }
        t = (struct ir_token){
            .kind = IR_T_LINE, .text = "", .file = name, .line = s.line};
        if (n_tokens > 0)
            TRY(add(&x->out, &t));
        s.at += s.at < s.end;
        s.line++;
    }
    for (t.kind = IR_T_OUT; depth > 0; depth--)
        TRY(add(&x->out, &t));
    return OK;
}

struct ir_lexer *ir_lexer_open(struct ir *p)
{
    struct ir_lexer *x = mem_new(MEM_OTHER, 1, sizeof(*x));

    if (x)
        x->p = p;
    return x;
}

void ir_lexer_close(struct ir_lexer *x)
{
    if (!x)
        return;
    for (int i = 0; i < FILES_MAX; i++)
        mem_free(x->texts[i]);
    mem_free(x->raw.v);
    mem_free(x->bodies.v);
    mem_free(x->out.v);
    mem_free(x);
}

int ir_lex(struct ir_lexer *x, const char *text, size_t n, const char *name,
           const struct ir_token **out)
{
    struct ir_token end = {.kind = IR_T_END, .text = "", .line = 1};

    end.file = ir_text(x->p, name, strlen(name));
    if (x->p->level == IR_LOW) {
        TRY(lex_c(x, text, n, end.file));
        TRY(expand(x, (struct range){x->raw.v, x->raw.n}, NULL, NULL, NULL, 0));
    } else {
        TRY(lex_lines(x, text, n, end.file));
    }
    if (x->out.n > 0)
        end.line = x->out.v[x->out.n - 1].line;
    TRY(add(&x->out, &end));
    *out = x->out.v;
    return OK;
}
