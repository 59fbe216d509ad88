/* ir/ir.h - kernels as text that can be changed: the two levels of Sandwich's tensor IR.
 *
 * The low level is the subset of C in which kernels/ref/ is written: functions, declarations,
 * arithmetic, pointers, for loops, calls of functions that it knows. It is parsed from those files,
 * macros and included parts too. What it does not know is refused with file and line.
 *
 * The high level is a text like Python, made from the low one by ir_raise(): every loop states
 * what it is, and parameters by which it may be changed have names:
 *
 *     param uM = 6
 *     for i: int in par(0, t.mr, tile=uM):
 *
 *     par   no iteration depends on another one. Tiles and vectors of it keep every bit.
 *     red   iterations only add to sums and move pointers. Unrolling it keeps every bit;
 *           `sums` and `vector` of it change the order of the sums, and so the bits.
 *     seq   anything else. It is computed in order.
 *
 * ir_lower() makes C with vector extensions of it, ir_build() a shared object (build.h).
 * Both levels are trees of the same nodes. Printing a tree and parsing the text gives an equal
 * tree. Paper: Sandwich 7.1.   Threads: one owner per program. */
#ifndef IR_IR_H
#define IR_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

enum ir_level { IR_LOW, IR_HIGH };

enum ir_kind {
    /* expressions; k[]: children, a list is a first node and its `next` */
    IR_INT,    /* text */
    IR_FLOAT,  /* text */
    IR_STRING, /* text without its quotes; in rows of variants only */
    IR_NAME,   /* text */
    IR_UNARY,  /* op; k0 */
    IR_BINARY, /* op; k0, k1 */
    IR_COND,   /* k0 ? k1 : k2 */
    IR_CALL,   /* text; k0: list of arguments */
    IR_INDEX,  /* k0[k1] */
    IR_MEMBER, /* k0, text; op: IR_DOT, IR_ARROW (low level), IR_EITHER (high) */
    IR_CAST,   /* type; k0 */
    IR_SIZEOF, /* k0, or of `type` where it is NULL */
    IR_LIST,   /* k0: list; an initialiser */
    /* statements */
    IR_DECL,   /* type, text; k0: list of sizes of an array, k1: initial value or NULL */
    IR_ASSIGN, /* k0 = k1; op: IR_SET, or IR_ADD for += ... */
    IR_EXPR,   /* k0: a call */
    IR_IF,     /* k0; k1: list, k2: list or NULL */
    IR_FOR,    /* k0: IR_DECL or NULL, k1: condition, k2: list of IR_ASSIGN, k3: list */
    IR_LOOP,   /* op: IR_PAR ...; type, text: the counter; k0 to k1 by k2 (NULL: 1);
                  k3: list of IR_ATTR, k4: list. High level only */
    IR_RETURN, /* k0 or NULL */
    IR_BLOCK,  /* k0: list. Low level only */
    /* parts of a program */
    IR_ATTR,     /* text; k0 */
    IR_FIELD,    /* text, a path; k0 */
    IR_FUNCTION, /* type, text; k0: list of IR_DECL, k1: list */
    IR_TYPEDEF,  /* of a function's type: type, text; k0: list of IR_DECL */
    IR_VARIANT,  /* text; k0: list of IR_FIELD: the row of kern_variants */
    IR_PARAM,    /* text; k0: IR_INT. High level only */
    IR_N_KINDS
};

enum ir_op {
    IR_SET, /* of IR_ASSIGN only */
    IR_ADD,
    IR_SUB,
    IR_MUL,
    IR_DIV,
    IR_MOD,
    IR_SHL,
    IR_SHR,
    IR_LT,
    IR_GT,
    IR_LE,
    IR_GE,
    IR_EQ,
    IR_NE,
    IR_BIT_AND,
    IR_BIT_XOR,
    IR_BIT_OR,
    IR_AND,
    IR_OR,
    IR_NEG, /* unary from here on */
    IR_NOT,
    IR_INVERT,
    IR_DEREF,
    IR_ADDRESS,
    IR_DOT, /* of IR_MEMBER */
    IR_ARROW,
    IR_EITHER,
    IR_PAR, /* of IR_LOOP */
    IR_RED,
    IR_SEQ
};

struct ir_type {
    const char *base; /* "float", "struct kern_gemm_tile"; NULL: none */
    bool is_const;
    int ptr; /* 0: a number, 1: a pointer, ... */
};

#define IR_KIDS 5
struct ir_node {
    enum ir_kind kind;
    enum ir_op op;
    int line;
    const char *text;
    struct ir_type type;
    struct ir_node *k[IR_KIDS], *next;
};

struct ir_arena;
/* A program and all its nodes. */
struct ir {
    enum ir_level level;
    struct ir_node *top; /* list of parts */
    struct ir_arena *arena;
    int n_nodes;
    int rc; /* the error of making nodes, of the last call below */
    void *
        jump; /* a jmp_buf while such a call runs: where a node that cannot be made ends it */
};

void ir_fini(struct ir *p);

/* Parse. `name` begins error lines and is the path from which included parts are found. ERR_FORMAT:
 * "name:line: expected ..., found ...". ERR_UNSUPPORTED: what the subset does not have.
 * ERR_LIMIT: too deep, or too long. *out is empty after an error. */
MUST int ir_parse(struct ir *out, enum ir_level level, const char *text, size_t n,
                  const char *name);
/* A file: a name that ends in .c is low level, any other high. */
MUST int ir_read(struct ir *out, const char *path);
/* The text, NUL-terminated, mem_free(). */
MUST int ir_print(char **out, const struct ir *p);

/* The high level of a low-level program with a row of kern_variants: functions that return nothing
 * are put where they are called, loops are classified, parameters added with the values that leave
 * the kernel as it is. ERR_UNSUPPORTED: it has no such row, or calls what cannot be raised. */
MUST int ir_raise(struct ir *out, const struct ir *low);

/* The value of a parameter. ERR_NOTFOUND names those that there are; ERR_ARG: not in
 * [0, IR_PARAM_MAX]. */
#define IR_PARAM_MAX 65536
MUST int ir_set(struct ir *high, const char *name, int64_t value);
/* -1: there is none. */
int64_t ir_param(const struct ir *high, const char *name);
/* Do its parameters keep the order of every sum, so that results are those of kernels/ref/? */
bool ir_keeps_bits(const struct ir *high);
/* The KERN_ word of the operator ("KERN_ROPE"), NULL: none. */
const char *ir_op_word(const struct ir *p);

/* C for the system's compiler, NUL-terminated, mem_free(): a function `ir_kernel` of the
 * operator's type (kernels/kern.h), and for a product `ir_rows` as kern_variant.rows.
 * registers: vector registers of the target, 16 or 32, which bound tiles. ERR_UNSUPPORTED names
 * the loop that cannot be changed as its parameters say. */
MUST int ir_lower(char **out, const struct ir *high, int registers);

#endif
