// SPDX-License-Identifier: Apache-2.0
/* What `plan` knows of a run, for the page. */
#ifndef TSR_HTML_REPORT_PLAN_JSON_H
#define TSR_HTML_REPORT_PLAN_JSON_H
#include "plan/report.h"

/* {"machine", "machine_memory", "shared": whether all ranks share one device, "devices",
 * "parameters", "tokens", "has_positions", "step": seconds, "bubble", "mfu", "ideal": seconds of a
 * step at the devices' peak, "stages": [{"flops", "compute", "waits", "idle", "memory"}…], "ranks":
 * of a stage, "communication", "memory": over a step, of the stage that needs the most, "pipeline":
 * {"name", "stages", "total", "actions": [[stage, kind, microbatch, chunk, start, end]…]}}; actions
 * is null where there are too many to draw, and pipeline where there is one stage. */
void tsr_plan_json(tsr_arena *arena, const tsr_report *report, tsr_text *json);

#endif
