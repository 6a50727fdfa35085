// SPDX-License-Identifier: Apache-2.0
/* Recorded steps as a file in the Trace Event Format, which Perfetto and chrome://tracing show
 * (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
 *
 *   pid   a rank; its name has the rank's coords. One more, the number of ranks, is the steps
 *   tid   0 what the rank computes, 1 communication, 2 the same in the background, 3 waiting
 *   name  of the graph's node, "inputs", or "step 0"
 *   cat   compute, input, communication, wait or step
 *   args  step, microbatch, op, section; place: of the node in the YAML
 *         of communication: axis (a send, a receive: peer, a rank); bytes that the rank brings;
 *         seq, which counts the rank's communication
 *
 * Times are microseconds with three decimals, so sums of `dur` are those of the profile exactly. */
#ifndef TSR_REPORT_CHROME_TRACE_H
#define TSR_REPORT_CHROME_TRACE_H
#include "base/new_file.h"
#include "runtime/recorder.h"

/* Makes the file, beside the path until all is written. Errors: it cannot be made, or another file
 * than a trace exists. */
bool tsr_chrome_trace_open(const char *path, tsr_new_file *ret_file, tsr_diags *diags);
/* Takes the file: nothing is left of it on failure. */
bool tsr_chrome_trace_write(tsr_new_file *file, const tsr_record *record, tsr_diags *diags);

#endif
