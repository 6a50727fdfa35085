// SPDX-License-Identifier: Apache-2.0
/* Where the cells of devices, or of blocks of ranks, are drawn. */
#ifndef TSR_PICTURES_DEVICE_GRID_H
#define TSR_PICTURES_DEVICE_GRID_H
#include "pictures/rank_blocks.h"

typedef struct {
  double x, y; /* from the grid's corner */
  int block;   /* of ranks; -1: none is on this device */
  int host;    /* -1: not known, or several */
} tsr_device_cell;

/* A host, or one of several meshes. */
typedef struct {
  double x, y, width, height;
  int number;
  bool is_mesh;
} tsr_device_frame;

typedef struct {
  tsr_rank_blocks blocks;
  bool is_topology; /* a cell a device, in the descriptor's dimensions; else blocks in rows */
  tsr_device_cell *cells;
  int count, idle; /* cells; devices without a rank */
  tsr_device_frame *frames;
  int frames_count;
  double cell_width, cell_height, width, height;
} tsr_device_grid;

/* Of a descriptor of at most 256 devices: the last dimension goes to the right, the one before it
 * down, further ones and several meshes are panels. Others: at most 256 blocks of ranks, in rows,
 * with the hosts around them where they are whole. */
void tsr_device_grid_make(
    tsr_arena *arena, const tsr_report *report, double width, tsr_device_grid *ret_grid);

/* The next device of the same mesh in a dimension, or -1; the first one of its line. */
int tsr_device_grid_neighbour(
    const tsr_device_grid *grid, const tsr_mesh_shape *shape, int device, int dim);
int tsr_device_grid_first(const tsr_mesh_shape *shape, int device, int dim);

#endif
