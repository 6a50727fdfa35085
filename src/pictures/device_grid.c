// SPDX-License-Identifier: Apache-2.0
#include "pictures/device_grid.h"
#include <assert.h>
#include <math.h>

enum { CELLS_MAX = 256, GAP = 10, HEAD = 18, MARGIN = 8, CELL_MAX = 118 };

static int64_t step_of(const tsr_mesh_shape *s, int dim) {
  int64_t step = 1;
  for (int i = s->ndim - 1; i > dim; i--) step *= s->dims[i];
  return step;
}

static int coord_of(const tsr_mesh_shape *s, int64_t device, int dim) {
  return dim < 0 ? 0 : (int)(device % s->devices / step_of(s, dim) % s->dims[dim]);
}

static int size_of(const tsr_mesh_shape *s, int dim) { return dim < 0 ? 1 : s->dims[dim]; }

int tsr_device_grid_neighbour(
    const tsr_device_grid *grid, const tsr_mesh_shape *s, int device, int dim) {
  if (coord_of(s, device, dim) + 1 >= s->dims[dim]) return -1;
  int64_t next = device + step_of(s, dim);
  return next < grid->count ? (int)next : -1;
}

int tsr_device_grid_first(const tsr_mesh_shape *s, int device, int dim) {
  return (int)(device - coord_of(s, device, dim) * step_of(s, dim));
}

/* ---- the descriptor's topology ---- */

/* Sizes and coordinates by the direction in which a picture has them. */
typedef struct {
  int columns, rows, across, down; /* cells of a panel; panels of a mesh */
} extent;

static extent extent_of(const tsr_mesh_shape *s) {
  int n = s->ndim;
  return (extent){size_of(s, n - 1), size_of(s, n - 2), size_of(s, n - 3), size_of(s, n - 4)};
}

static int host_of(const tsr_mesh *mesh, int device) {
  const tsr_mesh_shape *s = &mesh->shape;
  int64_t host = device / s->devices;
  for (int d = 0; d < s->ndim; d++)
    host = host * s->host_dims[d] + coord_of(s, device, d) / (s->dims[d] / s->host_dims[d]);
  return (int)host;
}

/* Gaps between a dimension's hosts. */
static double hosts_before(const tsr_mesh_shape *s, int64_t device, int dim) {
  if (dim < 0) return 0;
  int host = coord_of(s, device, dim) / (s->dims[dim] / s->host_dims[dim]);
  return (double)host * GAP;
}

static void fit_cells(const tsr_mesh *mesh, extent e, double width, tsr_device_grid *g) {
  int panels = e.across;
  double gaps = GAP * (e.columns + 1.0) +
                (mesh->hosts > 1 ? GAP * (double)size_of(&mesh->shape, mesh->shape.ndim - 1) : 0);
  g->cell_width = fmin(CELL_MAX, (width / panels - gaps - 2 * MARGIN) / e.columns);
  if (g->cell_width < 12)
    g->cell_width = fmax(6, (width / panels - 2 * MARGIN - GAP) / e.columns - 3);
  g->cell_height = fmin(34, fmax(14, g->cell_width * 0.6));
}

/* A mesh's devices; meshes stand beside or under each other. */
static void
place_topology(tsr_arena *arena, const tsr_report *r, double width, tsr_device_grid *g) {
  const tsr_mesh *mesh = r->parallel->mesh;
  const tsr_mesh_shape *s = &mesh->shape;
  extent e = extent_of(s);
  int n = s->ndim;
  fit_cells(mesh, e, width, g);
  double gap = g->cell_width >= 12 ? GAP : 3;
  double hosts_x = GAP * (double)(s->host_dims[n - 1] - 1);
  double hosts_y = n > 1 ? GAP * (double)(s->host_dims[n - 2] - 1) : 0;
  double panel_width = e.columns * (g->cell_width + gap) + hosts_x + 2 * MARGIN;
  double panel_height = e.rows * (g->cell_height + gap) + hosts_y + HEAD + MARGIN;
  double mesh_width = panel_width * e.across, mesh_height = panel_height * e.down;
  int in_row = (int)fmax(1, floor((width + GAP) / (mesh_width + GAP)));
  g->count = (int)mesh->devices;
  g->cells = tsr_arena_array(arena, tsr_device_cell, g->count);
  g->frames = tsr_arena_array(arena, tsr_device_frame, mesh->meshes);
  for (int m = 0; m < mesh->meshes; m++) {
    int row = m / in_row;
    double x = (m % in_row) * (mesh_width + GAP), y = row * (mesh_height + GAP);
    g->frames[g->frames_count++] = (tsr_device_frame){x, y, mesh_width, mesh_height, m, true};
    g->width = fmax(g->width, x + mesh_width);
    g->height = fmax(g->height, y + mesh_height);
  }
  for (int d = 0; d < g->count; d++) {
    const tsr_device_frame *f = &g->frames[d / s->devices];
    g->cells[d].x = f->x + MARGIN + gap / 2 + coord_of(s, d, n - 3) * panel_width +
                    coord_of(s, d, n - 1) * (g->cell_width + gap) + hosts_before(s, d, n - 1);
    g->cells[d].y = f->y + HEAD + gap / 2 + coord_of(s, d, n - 4) * panel_height +
                    coord_of(s, d, n - 2) * (g->cell_height + gap) + hosts_before(s, d, n - 2);
    g->cells[d].host = mesh->hosts > 1 ? host_of(mesh, d) : -1;
    g->cells[d].block = -1;
  }
  g->idle = g->count - r->parallel->ranks;
  for (int rank = 0; rank < r->parallel->ranks; rank++) {
    int device = r->parallel->device_ids ? r->parallel->device_ids[rank] : rank;
    assert(device >= 0 && device < g->count); /* rules_devices.c */
    g->cells[device].block = g->blocks.of_rank[rank];
  }
}

/* ---- blocks in rows ---- */

static void place_rows(tsr_arena *arena, double width, tsr_device_grid *g) {
  const tsr_rank_blocks *b = &g->blocks;
  int group = b->host_devices && b->size < b->host_devices ? (int)(b->host_devices / b->size) : 0;
  int columns = group ? (group < 8 ? group : 8) : b->count < 16 ? b->count : 16;
  double gap = 4, frame = group ? 2 * MARGIN : 0;
  if (group) columns = group <= 8 ? group : (int)ceil(sqrt(group));
  g->cell_width = fmin(
      CELL_MAX, group ? fmax(34, ((width - GAP) / 2 - frame) / columns - gap)
                      : (width + gap) / columns - gap);
  if (group && columns * 2 > 16) g->cell_width = (width - frame) / columns - gap;
  g->cell_height = 34;
  int rows = group ? (group + columns - 1) / columns : 1;
  double box_width = columns * (g->cell_width + gap) - gap + frame;
  double box_height = rows * (g->cell_height + gap) - gap + (group ? HEAD + MARGIN : 0);
  int in_row = group ? (int)fmax(1, floor((width + GAP) / (box_width + GAP))) : 1;
  g->count = b->count;
  g->cells = tsr_arena_array(arena, tsr_device_cell, g->count);
  g->frames = tsr_arena_array(arena, tsr_device_frame, g->count);
  for (int i = 0; i < g->count; i++) {
    int box = group ? i / group : i / columns, inside = group ? i % group : i % columns;
    int row = box / in_row, inner_row = inside / columns;
    double x = (box % in_row) * (box_width + GAP), y = row * (box_height + (group ? GAP : gap));
    if (group && !inside)
      g->frames[g->frames_count++] = (tsr_device_frame){x, y, box_width, box_height, box, false};
    g->cells[i].x = x + (group ? MARGIN : 0) + inside % columns * (g->cell_width + gap);
    g->cells[i].y = y + (group ? HEAD : 0) + inner_row * (g->cell_height + gap);
    g->cells[i].block = i;
    g->cells[i].host = group ? box : b->host_devices && b->size == b->host_devices ? i : -1;
    g->width = fmax(g->width, x + box_width);
    g->height = fmax(g->height, y + box_height);
  }
}

void tsr_device_grid_make(
    tsr_arena *arena, const tsr_report *r, double width, tsr_device_grid *ret_grid) {
  const tsr_mesh *mesh = r->parallel->mesh;
  *ret_grid = (tsr_device_grid){.blocks = tsr_rank_blocks_make(arena, r, CELLS_MAX)};
  ret_grid->is_topology = mesh && mesh->file && mesh->is_uniform && mesh->devices <= CELLS_MAX;
  if (ret_grid->is_topology) place_topology(arena, r, width, ret_grid);
  else place_rows(arena, width, ret_grid);
}
