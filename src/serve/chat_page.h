// SPDX-License-Identifier: Apache-2.0
/* The page that the server has at /: a chat in the browser. Made from chat_page.html. */
#ifndef TSR_SERVE_CHAT_PAGE_H
#define TSR_SERVE_CHAT_PAGE_H
#include <stddef.h>

extern const char tsr_chat_page[];
extern const size_t tsr_chat_page_bytes;

#endif
