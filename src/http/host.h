// SPDX-License-Identifier: Apache-2.0
/* Names of this machine. */
#ifndef TSR_HTTP_HOST_H
#define TSR_HTTP_HOST_H
#include <stdbool.h>

/* Whether a host that a server listens on is reached by this machine alone. */
bool tsr_host_is_loopback(const char *host);
/* Whether the value of a header Host (NULL: there is none) names this machine, with any port. A
 * page whose name was made to resolve to this machine sends its own. */
bool tsr_host_header_is_loopback(const char *value);

#endif
