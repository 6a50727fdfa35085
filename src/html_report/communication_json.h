// SPDX-License-Identifier: Apache-2.0
/* What the ranks of a stage send in a step, by collective, axis and link. */
#ifndef TSR_HTML_REPORT_COMMUNICATION_JSON_H
#define TSR_HTML_REPORT_COMMUNICATION_JSON_H
#include "plan/report.h"

/* {"stage", "transfers": [{"op", "axis", "path", "count", "bytes", "sent", "seconds"}…], "axes":
 * [[name, bytes]…], "links": [[name, bytes]…]} of the stage that spends the most time on it. */
void tsr_communication_json(const tsr_report *report, tsr_text *json);

#endif
