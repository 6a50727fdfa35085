// SPDX-License-Identifier: Apache-2.0
/* The report as one file: page.html with its data, a JSON object that its script reads:
 *   {"format": 1, "version", "runs": [run_json.h…]}
 * The page that `watch` serves has the same object and what else feed.h adds to it. */
#ifndef TSR_HTML_REPORT_PAGE_H
#define TSR_HTML_REPORT_PAGE_H
#include "html_report/run_json.h"

/* What a page begins with: a file that does is one that the command has written. */
#define TSR_REPORT_PAGE_BEGIN "<!DOCTYPE html>\n<!-- report of tessera-train -->\n"

/* The object. */
void tsr_report_data_make(
    const tsr_page_run *runs, int count, const char *version, tsr_text *ret_json);
/* The page with this object. */
void tsr_report_page_make(const tsr_text *json, tsr_text *ret_page);

#endif
