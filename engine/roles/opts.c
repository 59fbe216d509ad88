#include "cluster/router.h"
#include "roles/control.h"

static const char *transport_name(int i)
{
    return cluster_transports[i] ? cluster_transports[i]->name : NULL;
}

static const char *router_name(int i)
{
    return cluster_routers[i] ? cluster_routers[i]->name : NULL;
}

#define OPT_OF struct roles_opts
const struct opt_row roles_opt_table[] = {
    OPT_ROW(
        STR, roles, NULL,
        "Compute prompts and tokens by different processes: how many machines of each "
        "kind (prompt, token, mixed: both), for example prompt=1,token=1. Options of the "
        "engine for one kind follow behind colons: "
        "prompt=1:threads=3,token=2:threads=1:kv_alloc=paged. A machine gets as many "
        "CPUs "
        "as it has threads; the others divide the rest.",
        .unit = "ROLES"),
    OPT_ROW(STR, transport, "shm",
            "How keys and values get from prompt machines to token machines.",
            .unit = "NAME", .names = transport_name),
    OPT_ROW(
        STR, router, "jsq",
        "How the machines of a request are chosen: prompt machines by the prompt tokens "
        "that they have to compute, token machines by their sequences.",
        .unit = "NAME", .names = router_name),
    OPT_ROW(
        ENUM, transfer, "layer_wise",
        "When keys and values leave a prompt machine: serial: when the prompt is "
        "computed; layer_wise: each layer when it is stored; auto: by the length of the "
        "prompt.",
        .values = "serial|layer_wise|auto"),
    OPT_ROW(
        INT, serial_below_tok, "-1",
        "With transfer auto, prompts of fewer tokens than this are sent serially. -1: "
        "measured at start, by some requests of both kinds; the log says the number.",
        .unit = "tok", .min = -1, .max = 1 << 30),
    OPT_ROW(BOOL, checksums, "true", "Compare a checksum of each layer that is sent."),
    OPT_ROW(INT, restarts, "5",
            "How often a machine that has ended is started again, within ten minutes.",
            .min = 0, .max = 1000),
    OPT_ROW(INT, attempts, "3",
            "How often a request is computed, at most, where machines that had it ended.",
            .min = 1, .max = 1000),
    OPT_ROW(
        F64, link_gbps, "0",
        "Emulate a link of this bandwidth between the machines. 0: as fast as it goes.",
        .unit = "Gb/s", .min = 0, .max = 1e6),
    OPT_ROW(F64, link_latency_ms, "0", "And of this latency.", .unit = "ms", .min = 0,
            .max = 1e6),
    OPT_ROW(STR, machines, NULL,
            "Wait here for machines that connect, by --role, instead of starting them. "
            "Without --key-file only for those of this host.",
            .unit = "HOST:PORT"),
    OPT_ROW(STR, key_file, NULL,
            "File with the key, at least 16 bytes, by which --machines and --front know "
            "each other. Nothing is encrypted: between hosts that do not trust their "
            "network use WireGuard or SSH.",
            .unit = "FILE"),
    OPT_ROW(
        ENUM, role, "front",
        "prompt, token: be a machine of this kind, for the front of --front. Transport "
        "socket.",
        .values = "front|prompt|token"),
    OPT_ROW(STR, front, NULL, "With --role: where the front waits.", .unit = "HOST:PORT"),
    OPT_ROW(
        INT, prompt_threshold_tok, "0",
        "Where the prompt machine chosen has more tokens than this to compute, a prompt "
        "goes to a mixed machine, or to a token machine, which is mixed meanwhile. 0: "
        "never.",
        .unit = "tok", .min = 0, .max = 1 << 30),
    OPT_ROW(INT, token_threshold_seqs, "0",
            "The same for the tokens of a request: more sequences than this. 0: never.",
            .unit = "sequences", .min = 0, .max = 1 << 20),
    {.name = NULL}};
