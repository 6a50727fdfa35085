// SPDX-License-Identifier: Apache-2.0
/* The clock of durations. */
#ifndef TSR_BASE_CLOCK_H
#define TSR_BASE_CLOCK_H

/* Seconds of CLOCK_MONOTONIC. */
double tsr_seconds_now(void);

#endif
