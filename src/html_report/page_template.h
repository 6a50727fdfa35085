// SPDX-License-Identifier: Apache-2.0
/* The page without its data. Made from page.html. */
#ifndef TSR_HTML_REPORT_PAGE_TEMPLATE_H
#define TSR_HTML_REPORT_PAGE_TEMPLATE_H
#include <stddef.h>

extern const char tsr_report_page[];
extern const size_t tsr_report_page_bytes;

#endif
