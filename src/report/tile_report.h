// SPDX-License-Identifier: Apache-2.0
/* What `trace --emit tile-ir` prints: how the tasks of a rank's program are divided on its device.
 */
#ifndef TSR_REPORT_TILE_REPORT_H
#define TSR_REPORT_TILE_REPORT_H
#include "schedule/kernel_launch.h"
#include "schedule/program.h"

/* Of one task: the kernels that it launches on a GPU; or, on the CPU, the items of a rank, the
 * ranges of items that are jobs of threads, and how many rounds of such jobs there are. */
typedef struct {
  tsr_kernel_launches launches;
  bool on_cpu;
  int64_t items;
  int ranges, rounds;
  const char *tile; /* "12×32×384": of items that are strips of GEMMs, packed; NULL: they are not */
  const char *note; /* why there is neither; NULL: there is one */
} tsr_task_tiles;

typedef struct {
  /* Of a task of the program, in its first microbatch. */
  void (*find)(
      void *context, const tsr_program *program, const tsr_task *task, tsr_task_tiles *ret_tiles);
  void *context;
  const char *device; /* "a CUDA device", for the heading */
  bool on_cpu;        /* the rank's device; its host runs tasks too */
} tsr_tile_source;

/* One line a kernel, those of a task one below the other. */
void tsr_tiles_print(const tsr_tile_source *source, const tsr_program *program, tsr_text *text);

#endif
