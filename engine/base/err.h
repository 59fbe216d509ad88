/* base/err.h - one error convention for the whole project.
 *
 * A function that can fail returns OK or one negative `enum err`. The function where the
 * error happened sets the message, once, with the values that explain it. Every caller
 * passes the code up unchanged. The user sees that one line.
 * Threads: the message belongs to the calling thread. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#define MUST __attribute__((warn_unused_result))

enum err {
    OK = 0,
    ERR_ARG = -1,         /* an argument is wrong */
    ERR_NOMEM = -2,       /* memory, or a fixed pool, is exhausted */
    ERR_IO = -3,          /* the operating system refused a read, write, open, map */
    ERR_FORMAT = -4,      /* input bytes break a rule of their format */
    ERR_UNSUPPORTED = -5, /* valid, but not built here or not possible on this machine */
    ERR_LIMIT = -6,       /* valid, but larger than a documented limit */
    ERR_NOTFOUND = -7,    /* a named thing does not exist */
    ERR_STATE = -8,       /* called in the wrong order */
    ERR_CANCELED = -9,    /* stopped on request */
};

/* Record what went wrong and return `code`, so that `return err_set(...)` reads well.
 * `%m` works. Longer messages than 511 bytes are cut. */
int err_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Return the error of `call`, if there is one. For functions that open nothing of their own:
 * what they open belongs to a context that their caller closes. */
#define TRY(call)                                                                        \
    do {                                                                                 \
        int try_rc_ = (call);                                                            \
        if (try_rc_ != OK)                                                               \
            return try_rc_;                                                              \
    } while (0)

/* Put "prefix: " before the message already set; returns `code`. For the one caller that
 * knows the file name when the callee knew only the offset. */
int err_prefix(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The calling thread's last message; "" when there is none. Valid until its next err_
 * call. */
const char *err_msg(void);
void err_clear(void);

/* "ERR_FORMAT" for a code, "ERR_?" for an unknown one. */
const char *err_name(int code);

#endif
