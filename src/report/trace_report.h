// SPDX-License-Identifier: Apache-2.0
/* What `trace` prints: how a graph became the program of one rank. */
#ifndef TSR_REPORT_TRACE_REPORT_H
#define TSR_REPORT_TRACE_REPORT_H
#include "parallel/parallel.h"
#include "plan/machine.h"
#include "report/tile_report.h"
#include "schedule/program.h"

/* Graphs: the one that was written, with what training adds; and the same with placements and the
 * collectives that they made necessary. Program: that of the rank's stage, then its communication,
 * one line a task in the program's order: the stream, the event, the axis, the path (plan/path.h)
 * between the rank and those that it communicates with, the algorithm of a sum, tree, hier or ring
 * (collectives.all_reduce.algo), the bytes that the rank brings to it (or takes), how often in a
 * step, and the other ranks.
 *
 * Stream 0 is what the rank steps through. Stream 1 is what only begins where its task stands: a
 * send, and the collectives of a bucket. They end in an event, which a task of stream 0 waits for:
 * a send's, the receive on the other stage and the wait before its bytes are used again; a
 * bucket's, the wait for it. Stream 2 has the copies of activations to the host and back, which
 * begin and end alike. */
typedef struct {
  const tsr_graph *graph, *placed; /* before placement and after it */
  const tsr_programs *programs;
  const tsr_parallel *parallel;
  const tsr_machine *machine; /* whose paths are named; NULL: none are */
  tsr_all_reduce_algorithm all_reduce;
  int64_t rank;
  bool graphs, program;         /* what is printed */
  const tsr_tile_source *tiles; /* the same; NULL: they are not */
} tsr_lowering_request;

/* Error: a rank that the mesh does not have. */
bool tsr_lowering_print(const tsr_lowering_request *request, tsr_text *text, tsr_diags *diags);

#endif
