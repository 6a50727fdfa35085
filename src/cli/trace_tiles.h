// SPDX-License-Identifier: Apache-2.0
/* What the tasks of a rank launch on its device, which need not be there. */
#ifndef TSR_CLI_TRACE_TILES_H
#define TSR_CLI_TRACE_TILES_H
#include "cli/run_setup.h"
#include "report/tile_report.h"

typedef struct {
  tsr_arena *arena;
  const tsr_cpu_context *cpu;
  int ranks; /* of the rank's stage; one process has them all */
  int coord[TSR_AXES];
  bool fast, cuda;
} trace_tiles;

/* `ret` is the context of the source. A rank that the mesh does not have is the caller's error. */
tsr_tile_source trace_tiles_of(app *a, const setup *s, int64_t rank, trace_tiles *ret);

#endif
