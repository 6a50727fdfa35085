// SPDX-License-Identifier: Apache-2.0
/* URIs where paths are expected (RFC 3986; of files RFC 8089). */
#ifndef TSR_BASE_URI_H
#define TSR_BASE_URI_H
#include "base/diag.h"

/* The path that a text names: itself, or that of file:PATH, file:///PATH or file://localhost/PATH
 * with its %XX resolved. Errors at `place`: another scheme, of which the message names it; another
 * host; %XX that is none; a beginning that a shell would replace. `ret_path` is the text then. */
bool tsr_uri_path(
    tsr_arena *arena, const char *text, tsr_location location, const char **ret_path,
    tsr_diags *diags);

#endif
