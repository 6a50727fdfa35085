// SPDX-License-Identifier: Apache-2.0
/* The planned memory of a rank: by kind for each stage, and over the tasks of a step with what
 * fills it at its fullest. */
#ifndef TSR_HTML_REPORT_MEMORY_JSON_H
#define TSR_HTML_REPORT_MEMORY_JSON_H
#include "plan/report.h"

/* {"parameters", "state", "sources", "cache", "work", "total", "uses": bytes of work at its fullest
 * by use} of a stage. */
void tsr_memory_json_stage(const tsr_report *report, int stage, tsr_text *json);
/* {"stage", "tasks", "fixed": bytes that are always taken, "x": [task…], "work": [bytes…], "marks":
 * [[task, section]…], "peak": [task, bytes, name], "tensors": [[name, bytes, first task, last
 * task]…], "others": bytes}: of training's program of a stage; tasks are numbered in the order of
 * the memory plan, and tensors are those of the peak. */
void tsr_memory_json_over_step(const tsr_report *report, int stage, tsr_text *json);

#endif
