// SPDX-License-Identifier: Apache-2.0
/* Answers of a server: texts with the headers that all of them have. */
#ifndef TSR_HTTP_RESPONSE_H
#define TSR_HTTP_RESPONSE_H
#include "base/text.h"
#include <microhttpd.h>

/* Takes the text's memory. Pages (text/html) may run their own scripts and ask their own server,
 * and nothing else. NULL: there is no memory. */
struct MHD_Response *tsr_http_response(tsr_text *text, const char *content_type);
/* Gives the response away; NULL: the connection is closed. */
enum MHD_Result
tsr_http_send(struct MHD_Connection *connection, int status, struct MHD_Response *response);

#endif
