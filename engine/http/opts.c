#include "http/http.h"

#include "chat/chat.h"

#define OPT_OF struct http_opts
const struct opt_row http_opt_table[] = {
    OPT_ROW(STR, host, "127.0.0.1",
            "Address to listen on. The default accepts connections of this machine only; "
            "0.0.0.0 accepts all.",
            .unit = "ADDR"),
    OPT_ROW(INT, port, "8080",
            "Port to listen on. 0: any free port, which is printed on standard output.",
            .min = 0, .max = 65535),
    OPT_ROW(STR, api_key, NULL,
            "Refuse requests to /v1 that do not carry this key in the header "
            "\"Authorization: Bearer KEY\".",
            .unit = "KEY"),
    OPT_ROW(
        STR, api_key_env, NULL,
        "Environment variable that holds the key. Other users of the machine can read "
        "a command line, but not this.",
        .unit = "NAME"),
    OPT_ROW(STR, api_key_file, NULL, "File or pipe whose first line is the key.",
            .unit = "FILE"),
    OPT_ROW(
        STR, allow_host, NULL,
        "Names under which clients ask for this server, in their header Host, "
        "separated by commas; * allows every name. Addresses, localhost, --host and "
        "the machine's own name are always allowed. Others are refused, because a web "
        "page can make its own name lead here.",
        .unit = "NAMES"),
    OPT_ROW(
        STR, cors, NULL,
        "Origins of web pages that may use this server, separated by commas; * allows "
        "every page. Example: --cors http://localhost:3000. Default: none.",
        .unit = "ORIGINS"),
    OPT_ROW(STR, model_name, NULL,
            "Name under which the model is served. Default: its file name without the "
            "ending.",
            .unit = "NAME"),
    OPT_ROW(STR, chat_template, NULL,
            "Chat template in place of the model's own: a file, one of the model's own "
            "by name, "
            "or " CHAT_KNOWN_NAMES ".",
            .unit = "FILE|NAME"),
    OPT_ROW(STR, chat_date, NULL,
            "Date that chat templates write which ask for the current one. Example: "
            "--chat-date 2025-07-20. Default: today.",
            .unit = "YYYY-MM-DD"),
    OPT_ROW(
        INT, max_queue, "256",
        "Requests that may wait while --max-seqs others are computed. Further ones are "
        "answered with status 429.",
        .min = 0, .max = 512),
    OPT_ROW(BYTES, max_body_bytes, "2MiB", "Largest body of a request.", .min = 1024,
            .max = 1 << 30),
    OPT_ROW(INT, max_connections, "512", "Connections that may be open at the same time.",
            .min = 1, .max = 65536),
    /* More than the requests that are answered or wait by default: one client that sends too
     * many gets status 429 with a reason before its connections are refused without one. */
    OPT_ROW(INT, max_connections_per_address, "384",
            "Connections that one address may have open at the same time. 0: any number.",
            .min = 0, .max = 65536),
    OPT_ROW(F64, header_timeout_s, "10",
            "Close a new connection that has not sent the header of a request after X "
            "seconds.",
            .unit = "s", .min = 0.1, .max = 86400),
    OPT_ROW(F64, idle_timeout_s, "60",
            "Close a connection that has not sent another request X seconds after the "
            "previous one was answered.",
            .unit = "s", .min = 0.1, .max = 86400),
    OPT_ROW(F64, body_timeout_s, "30",
            "Close a connection that has not sent the body of a request X seconds after "
            "its header.",
            .unit = "s", .min = 0.1, .max = 86400),
    OPT_ROW(F64, write_timeout_s, "30",
            "Close a connection and cancel its request when the client has read nothing "
            "of the answer for X seconds.",
            .unit = "s", .min = 0.1, .max = 86400),
    OPT_ROW(F64, drain_timeout_s, "30",
            "After SIGTERM, SIGINT or SIGHUP, let running requests continue for at most "
            "X seconds.",
            .unit = "s", .min = 0, .max = 86400),
    OPT_ROW(BOOL, access_log, NULL,
            "Write a line for each response on standard error: address, method, path, "
            "status, time and tokens."),
    {0},
};
