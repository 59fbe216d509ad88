/* Which program answers. */
#include "http/route.h"

#include "base/build.h"

static enum MHD_Result answer(struct http_exchange *x)
{
    return http_respond_json(x, MHD_HTTP_OK,
                             json_pack("{s:s, s:s, s:b, s:s}", "version",
                                       build_info.version, "commit", build_info.commit,
                                       "modified", build_info.dirty, "compiler",
                                       build_info.compiler));
}

const struct http_route http_route_version = {.urls = {"/version"}, .answer = answer};
