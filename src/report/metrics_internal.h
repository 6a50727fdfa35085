// SPDX-License-Identifier: Apache-2.0
/* Inside the metrics: what metrics.c and metrics_origin.c share. */
#ifndef TSR_REPORT_METRICS_INTERNAL_H
#define TSR_REPORT_METRICS_INTERNAL_H
#include "report/json_lines.h"
#include "report/metrics.h"

struct tsr_metrics {
  tsr_json_lines *lines;
};

#endif
