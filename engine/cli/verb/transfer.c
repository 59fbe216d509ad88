/* sandwich transfer: how fast keys and values go from one process to another. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "cli/cli.h"
#include "cluster/mpi/mpi.h"
#include "cluster/transport_bench.h"
#include "kernels/kv_type.h"
#include "kv/alloc.h"

struct transfer_flags {
    char *transport, *kv_alloc;
    int kv_type;
    int64_t tok, n_layers, n_kv_heads, head_dim, n, in_flight;
    double gbps;
    bool checksums, json;
};

static const char *transport_name(int i)
{
    return cluster_transports[i] ? cluster_transports[i]->name : NULL;
}

static const char *alloc_name(int i)
{
    return kv_allocs[i] ? kv_allocs[i]->name : NULL;
}

#define OPT_OF struct transfer_flags
static const struct opt_row rows[] = {
    OPT_ROW(STR, transport, "shm", "Transport; mpi_...: of two processes under mpirun.",
            .unit = "NAME", .names = transport_name),
    OPT_ROW(INT, tok, "512", "Tokens of a prompt.", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, n_layers, "32", "Layers.", .min = 1, .max = 1024),
    OPT_ROW(INT, n_kv_heads, "8", "Heads of keys and values.", .min = 1, .max = 1024),
    OPT_ROW(INT, head_dim, "128", "Elements of a key.", .min = 16, .max = 1024),
    OPT_ROW(ENUM, kv_type, "bf16", "Type of the keys and values.",
            .values = KERN_KV_TYPES),
    OPT_ROW(STR, kv_alloc, "paged", "Allocator of the receiver's memory.", .unit = "NAME",
            .names = alloc_name),
    OPT_ROW(INT, n, "32", "Prompts that are sent.", .min = 1, .max = 1 << 20),
    OPT_ROW(INT, in_flight, "2", "At once.", .min = 1, .max = 64),
    OPT_ROW(F64, gbps, "0", "Emulate a link of this rate. 0: as fast as it goes.",
            .unit = "Gb/s", .min = 0, .max = 1e5),
    OPT_ROW(BOOL, checksums, "true", "Compare a checksum of each layer."),
    OPT_ROW(BOOL, json, NULL, "Print JSON in place of a line."),
    {0},
};

/* The sender's measurements. */
struct transfer_result {
    struct cluster_bench_result r;
    char library[128]; /* MPI's name and version; "": none */
};

static json_t *to_json(const struct transfer_flags *f, const struct transfer_result *t)
{
    const struct cluster_bench_result *r = &t->r;
    double gb = 1e-9 * (double)r->bytes;

    return json_pack(
        "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}",
        "transport", f->transport, "library", t->library, "bytes", (json_int_t)r->bytes,
        "pieces", (json_int_t)r->n_pieces, "seconds", r->seconds, "gb_per_s",
        gb / r->seconds, "put_s", r->put_s, "hash_s", r->hash_s, "sender_cpu_s",
        r->sender_cpu_s, "receiver_cpu_s", r->receiver_cpu_s, "cpu_s_per_gb",
        (r->sender_cpu_s + r->receiver_cpu_s) / gb, "begin_s", r->begin_s, "end_s",
        r->end_s, "same_bytes", r->same);
}

static int print(const struct transfer_flags *f, const struct transfer_result *t)
{
    const struct cluster_bench_result *r = &t->r;
    double gb = 1e-9 * (double)r->bytes;
    json_t *j;
    int rc;

    if (f->json) {
        j = to_json(f, t);
        rc = cli_print_json(j);
        json_decref(j);
        return rc;
    }
    printf("%s%s%s: %.2f GB in %.3f s, %.2f GB/s; %lld pieces; processor time %.3f s a "
           "GB at "
           "the sender (checksums %.3f), %.3f at the receiver\n",
           f->transport, t->library[0] ? ", " : "", t->library, gb, r->seconds,
           gb / r->seconds, (long long)r->n_pieces, r->sender_cpu_s / gb, r->hash_s / gb,
           r->receiver_cpu_s / gb);
    return OK;
}

/* ---- two processes ---- */

/* Its error goes to the parent, which prints one line. */
static void receive_in_child(const int fd[CLUSTER_BENCH_N_SOCKETS],
                             const struct cluster_bench_opts *o, int to_parent)
{
    int rc = cluster_bench_receive(fd, o);

    if (rc != OK)
        (void)!write(to_parent, err_msg(), strlen(err_msg()));
    _exit(rc != OK);
}

/* rc: of the sender. What failed first says why the other one did. */
static int wait_for_child(pid_t pid, int from_child, int rc)
{
    char why[512];
    ssize_t n = read(from_child, why, sizeof(why) - 1); /* until it ends */
    int status;

    why[n > 0 ? n : 0] = 0;
    if (waitpid(pid, &status, 0) == pid && status == 0)
        return rc;
    return rc != OK && (rc != ERR_IO || !why[0])
               ? rc
               : err_set(ERR_STATE, "the receiver has failed: %s", why);
}

/* Socket pairs: transports lend files over them. */
static int with_child(struct transfer_result *out, const struct cluster_bench_opts *o)
{
    int pair[CLUSTER_BENCH_N_SOCKETS + 1][2], fd[CLUSTER_BENCH_N_SOCKETS + 1], rc;
    pid_t pid, parent = getpid();

    for (int i = 0; i <= CLUSTER_BENCH_N_SOCKETS; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[i]) != 0)
            return err_set(ERR_IO, "cannot make a socket: %m");
    pid = fork();
    if (pid < 0)
        return err_set(ERR_IO, "cannot start a process: %m");
    for (int i = 0; i <= CLUSTER_BENCH_N_SOCKETS; i++) {
        close(pair[i][pid == 0 ? 0 : 1]);
        fd[i] = pair[i][pid == 0 ? 1 : 0];
    }
    if (pid == 0) {
        child_follow(parent);
        receive_in_child(fd, o, fd[CLUSTER_BENCH_N_SOCKETS]);
    }
    rc = wait_for_child(pid, fd[CLUSTER_BENCH_N_SOCKETS],
                        cluster_bench_send(&out->r, fd, o));
    close(fd[CLUSTER_BENCH_N_SOCKETS]);
    return rc;
}

static int with_ranks(struct transfer_result *out, bool *is_sender,
                      const struct cluster_bench_opts *o)
{
    int fd[CLUSTER_BENCH_N_SOCKETS], rank;

    TRY(cluster_bench_connect_ranks(fd, &rank, out->library, sizeof(out->library)));
    *is_sender = rank == 0;
    TRY(rank == 0 ? cluster_bench_send(&out->r, fd, o) : cluster_bench_receive(fd, o));
    cluster_mpi_close();
    return OK;
}

static int move(struct transfer_result *out, bool *is_sender,
                const struct cluster_bench_opts *o)
{
    *is_sender = true;
    if (o->transport->mpi && cluster_mpi_rank() < 0)
        return err_set(ERR_STATE, "transport %s: start two processes with mpirun",
                       o->transport->name);
    if (!o->transport->mpi && cluster_mpi_rank() >= 0)
        return err_set(ERR_STATE, "transport %s: not under mpirun", o->transport->name);
    return o->transport->mpi ? with_ranks(out, is_sender, o) : with_child(out, o);
}

static int run(const struct verb_words *w)
{
    const struct transfer_flags *f = w->opts;
    struct cluster_bench_opts o = {
        .shape = {.n_layers = (int)f->n_layers,
                  .n_kv_heads = (int)f->n_kv_heads,
                  .vec_bytes =
                      kern_kv_bytes((enum kern_kv_type)f->kv_type, (int)f->head_dim)},
        .alloc = f->kv_alloc,
        .n_tok = f->tok,
        .n_transfers = (int)f->n,
        .in_flight = (int)f->in_flight,
        .no_checksums = !f->checksums,
        .bytes_per_s = 1e9 / 8 * f->gbps};
    struct transfer_result t = {.library = ""};
    bool is_sender;

    TRY(cluster_transport_find(f->transport, &o.transport));
    TRY(move(&t, &is_sender, &o));
    if (!is_sender)
        return OK;
    if (!t.r.same)
        return err_set(ERR_STATE, "%s: what has arrived is not what was sent",
                       f->transport);
    return print(f, &t);
}

const struct verb cli_verb_transfer = {
    .name = "transfer",
    .help = "Time keys and values on their way from one process to another.",
    .place = 8,
    .usage =
        {.line = "sandwich transfer [options]",
         .about =
             "Move the keys and values of made-up prompts from one process to another, "
             "layer by layer as a prompt machine does, and say how fast that goes and "
             "what processor time it takes at both ends. Each layer is read for a "
             "checksum at both ends, too.",
         .examples = "  sandwich transfer --transport shm\n"
                     "  sandwich transfer --transport socket --no-checksums --json\n"
                     "  mpirun -n 2 sandwich transfer --transport mpi_put\n"},

    .opts = {{rows}},
    .opts_bytes = sizeof(struct transfer_flags),
    .run = run,
};
