// SPDX-License-Identifier: Apache-2.0
/* What /metrics says, in the text format of Prometheus. Any number of threads may count. */
#ifndef TSR_SERVE_METRICS_H
#define TSR_SERVE_METRICS_H
#include "base/arena.h"
#include "base/text.h"
#include <stdint.h>

typedef enum {
  TSR_REQUEST_SECONDS,     /* from a request's body to the end of its texts */
  TSR_FIRST_TOKEN_SECONDS, /* until a text's first token is drawn */
  TSR_TOKEN_SECONDS,       /* between a text's tokens */
  TSR_HISTOGRAMS
} tsr_histogram;

typedef enum {
  TSR_PROMPT_TOKENS,
  TSR_DRAWN_TOKENS,
  TSR_STEPS,           /* runs of the model */
  TSR_CANCELLED_TEXTS, /* whose client has gone, or whose time was over */
  TSR_COUNTERS
} tsr_counter;

typedef enum {
  TSR_WAITING_TEXTS,
  TSR_RUNNING_TEXTS,
  TSR_ROWS, /* texts that can run at once */
  TSR_PAGES_USED,
  TSR_PAGES,
  TSR_GAUGES
} tsr_gauge;

typedef struct tsr_metrics tsr_metrics;

tsr_metrics *tsr_metrics_new(tsr_arena *arena);
void tsr_metrics_answer(tsr_metrics *metrics, int status);
void tsr_metrics_observe(tsr_metrics *metrics, tsr_histogram histogram, double seconds);
void tsr_metrics_count(tsr_metrics *metrics, tsr_counter counter, int64_t more);
void tsr_metrics_set(tsr_metrics *metrics, tsr_gauge gauge, int64_t value);
void tsr_metrics_add(tsr_metrics *metrics, tsr_text *text);

#endif
