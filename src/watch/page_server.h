// SPDX-License-Identifier: Apache-2.0
/* The server of `watch`, for GET and HEAD alone:
 *
 *   /                             the page
 *   /data                         its data (html_report/feed.h)
 *   /data?since=SESSION-REVISION  what has changed since
 *
 * Answers that are errors are plain text. */
#ifndef TSR_WATCH_PAGE_SERVER_H
#define TSR_WATCH_PAGE_SERVER_H
#include "base/diag.h"
#include "html_report/feed.h"

/* Listens from now on, for as long as the process lives, on the socket (http/listen_socket.h),
 * which it takes. `checks_host`: to requests that do not name this machine (http/host.h) nothing is
 * shown. The feed outlives it. */
bool tsr_page_server_open(
    tsr_arena *arena, int socket, bool checks_host, tsr_feed *feed, tsr_diags *diags);

#endif
