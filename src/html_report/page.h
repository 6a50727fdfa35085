// SPDX-License-Identifier: Apache-2.0
/* The report as one file: page.html with its data, a JSON object that its script reads:
 *   {"format": 1, "version", "runs": [run_json.h…]}
 * A page that a server sends can read the same object, and increments of its series. */
#ifndef TSR_HTML_REPORT_PAGE_H
#define TSR_HTML_REPORT_PAGE_H
#include "html_report/run_json.h"

/* What a page begins with: a file that does is one that the command has written. */
#define TSR_REPORT_PAGE_BEGIN "<!DOCTYPE html>\n<!-- report of tessera-train -->\n"

void tsr_report_page_make(
    const tsr_page_run *runs, int count, const char *version, tsr_text *ret_page);

#endif
